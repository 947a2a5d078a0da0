"""Draw the context of an agent, and consent."""

from __future__ import annotations

from typing import Any

from dgent.doors.cli.style import Paint, ago, until
from dgent.doors.cli.turn_view import describe_arguments
from dgent.runtime.context import draw

Lines = list[str]
_PLAIN = str.maketrans("█▉▊▋▌▍▎▏·", "########.")
_STATES = {"granted": "green", "denied": "red", "open": "yellow"}


def draw_context(found: Any, paint: Paint) -> Lines:
    """Draw a bar for each part of a context, and what did not fit."""
    text = draw.draw_context(found)
    # A pipe gets letters that any program can read.
    return [paint(line) for line in (text if paint.terminal else text.translate(_PLAIN)).splitlines()]


def draw_consent(found: Any, paint: Paint) -> Lines:
    """Draw a request for consent: the question, what the call is given, and its state."""
    state = found.state if found.answer is None else f"{found.state} ({found.answer}, by {found.by})"
    lines = [f"{paint(found.id, fg='cyan')}  {paint(state, fg=_STATES.get(found.state))}"]
    lines.append(f"  {paint(found.describe())}")
    if found.details:
        lines.append(f"  {paint.dim(describe_arguments(found.details)[:400])}")
    return lines


def draw_consents(found: Any, paint: Paint) -> Lines:
    """Draw the requests that wait."""
    if not found.items:
        return [paint.dim("nothing waits for consent")]
    return [
        line
        for each in found.items
        for line in (*draw_consent(each, paint), f"  {paint.dim(f'asked {ago(each.asked_at)}')}")
    ]


def draw_grant(found: Any, paint: Paint) -> Lines:
    """Draw a grant."""
    tool = f"{found.tool}.{found.operation}" if found.operation else found.tool
    covers = f"all of {found.scope}" if found.scope else tool
    return [
        f"{paint(found.id, fg='cyan')}  {paint(found.agent)} may call {paint(covers)} {until(found.until)}"
    ]


def draw_grants(found: Any, paint: Paint) -> Lines:
    """Draw the grants that last."""
    if not found.items:
        return [paint.dim("no grant lasts")]
    return [line for each in found.items for line in draw_grant(each, paint)]
