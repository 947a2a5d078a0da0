"""Draw messages, batches, archives and the queue."""

from __future__ import annotations

from typing import Any

from dgent.doors.cli.draw.record import draw_origin
from dgent.doors.cli.style import Paint, ago, table
from dgent.messages.part import show

Lines = list[str]
_ROLES = {"user": "green", "assistant": "cyan", "tool": "yellow"}
_STATES = {"open": "green", "interrupted": "yellow", "dead": "red", "taken": "yellow"}
WIDTH = 100


def _line(text: str) -> str:
    line = " ".join(text[: 4 * WIDTH].split())
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def _count(number: int, noun: str, ending: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else ending}"


def _trust(trust: str, origin: str, paint: Paint) -> str:
    return paint.dim(f"{trust} {origin}".strip())


def draw_page(found: Any, paint: Paint) -> Lines:
    """Draw messages, newest first."""
    if not found.items:
        return [paint.dim("no messages")]
    rows = [
        [
            paint(each.id, fg="cyan"),
            paint(each.role, fg=_ROLES.get(each.role)),
            paint.dim(ago(each.at)),
            _trust(each.trust, each.origin, paint),
            (paint.dim if each.archived else paint)(_line(show(each.parts))),
        ]
        for each in found.items
    ]
    more = [] if found.cursor is None else [paint.dim(f"more: --cursor {found.cursor}")]
    return [*table(paint, ("message", "role", "when", "trust", "text"), rows), *more]


def draw_message(found: Any, paint: Paint) -> Lines:
    """Draw a message with all its parts."""
    archived = paint.dim("  archived") if found.archived else ""
    edited = paint.dim(f"  edited {ago(found.edited_at)}") if found.edited_at else ""
    head = f"{paint(found.id, fg='cyan')}  {paint(found.role, fg=_ROLES.get(found.role))}"
    by = f"  {paint(found.by)}" if found.by else ""
    about = f"{paint.dim(ago(found.at))}  {_trust(found.trust, found.origin, paint)}{by}{edited}{archived}"
    return [head, about, "", *(paint(line) for line in show(found.parts).splitlines() or [""])]


def draw_hits(found: Any, paint: Paint) -> Lines:
    """Draw what a search found."""
    if not found.items:
        return [paint.dim("no message has these words")]
    rows = []
    for each in found.items:
        thing = each.message or each.summary
        kind = "summary" if each.message is None else each.message.role
        origin = draw_origin("" if thing.trust == "partner" else thing.trust, paint)
        text = f"{origin} {paint(_line(each.snippet))}".strip()
        rows.append([paint(thing.id, fg="cyan"), paint(kind), text])
    return table(paint, ("id", "role", "text"), rows)


def draw_batch(found: Any, paint: Paint) -> Lines:
    """Draw a batch."""
    state = paint(found.state, fg=_STATES.get(found.state))
    why = f": {paint(found.reason)}" if found.reason else ""
    lines = [f"{paint(found.id, fg='cyan')}  {state}{why}"]
    lines.append(
        f"{paint.dim(found.type)}  {found.count} messages  {_trust(found.trust, found.origin, paint)}"
    )
    if found.dropped:
        lines.append(f"dropped calls without results: {paint(', '.join(found.dropped), fg='yellow')}")
    return lines


def draw_batches(found: Any, paint: Paint) -> Lines:
    """Draw a list of batches."""
    if not found.items:
        return [paint.dim("no batches")]
    rows = [
        [
            paint(each.id, fg="cyan"),
            paint(each.state, fg=_STATES.get(each.state)),
            paint.dim(ago(each.started_at)),
            paint(each.type),
            _trust(each.trust, each.origin, paint),
            str(each.count),
        ]
        for each in found.items
    ]
    return table(paint, ("batch", "state", "started", "type", "trust", "messages"), rows)


def draw_compressed(found: Any, paint: Paint) -> Lines:
    """Draw the outcome of a compression."""
    if not found.batches:
        return [paint.dim("nothing to archive"), *([paint(found.note, fg="yellow")] if found.note else [])]
    said = f"archived {_count(found.messages, 'message')} of {_count(found.batches, 'batch', 'es')}"
    return [said, *([paint(found.note, fg="yellow")] if found.note else [])]


def draw_summaries(found: Any, paint: Paint) -> Lines:
    """Draw archives, newest first."""
    if not found.items:
        return [paint.dim("nothing is archived")]
    rows = [
        [
            paint(each.id, fg="cyan"),
            paint(each.strategy),
            str(each.count),
            paint(_line(each.text or each.note or "no summary")),
        ]
        for each in found.items
    ]
    return table(paint, ("archive", "strategy", "messages", "summary"), rows)


def draw_queue(found: Any, paint: Paint) -> Lines:
    """Draw incoming messages."""
    if not found.items:
        return [paint.dim("the queue is empty")]
    rows = [
        [
            paint(each.id, fg="cyan"),
            paint(each.state, fg=_STATES.get(each.state)),
            paint.dim(ago(each.sent_at)),
            paint(each.sender),
            _trust(each.trust, each.origin, paint),
            paint(_line(each.error or each.text)),
        ]
        for each in found.items
    ]
    return table(paint, ("id", "state", "sent", "from", "trust", "text"), rows)


def draw_incoming(found: Any, paint: Paint) -> Lines:
    """Draw one incoming message."""
    state = paint(found.state, fg=_STATES.get(found.state))
    head = f"{paint(found.id, fg='cyan')}  {state}  from {paint(found.sender)} to {paint(found.agent)}"
    return [head, _trust(found.trust, found.origin, paint), "", *map(paint, show(found.parts).splitlines())]
