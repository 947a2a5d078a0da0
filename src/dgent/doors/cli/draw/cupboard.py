"""The cupboard as a whole, and its tables as they are, for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dgent import clock
from dgent.doors.cli.paint import Paint, table
from dgent.doors.cli.wire import as_text

Lines = list[str]


def row(found: dict[str, Any], paint: Paint) -> Lines:
    """An entity, field by field."""
    most = max(map(len, found), default=0)
    return [
        f"{paint.dim(name)}{' ' * (most - len(name))}  {paint(_cell(value))}" for name, value in found.items()
    ]


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return clock.text(value)
    return value if isinstance(value, str) else "" if value is None else as_text(value)


def rows(found: Any, paint: Paint) -> Lines:
    """Entities, one below the other."""
    if not found.items:
        return [paint.dim("nothing found")]
    lines: Lines = []
    for each in found.items:
        lines += [*row(each, paint), ""]
    return lines[:-1]


def opened(found: Any, paint: Paint) -> Lines:
    """A cupboard, and what it holds."""
    rows = [[paint(name, fg="cyan"), f"{count:,}"] for name, count in found.tables.items()]
    return [paint(found.place), "", *table(paint, ("table", "entities"), rows)]


def graph(found: Any, paint: Paint) -> Lines:
    """The drawing of the graph, as other programs take it."""
    return [paint(line) for line in found.text.splitlines()]


def audited(found: Any, paint: Paint) -> Lines:
    """What is not as the rules say."""
    lines = []
    for each in found.findings:
        fixed = paint(" (repaired)", fg="green") if each.repaired else ""
        lines.append(f"{paint(each.rule, fg='red')}: {paint(each.text)}{fixed}")
        lines += [] if each.repaired else [f"    {paint.dim(each.suggestion)}"]
    held = f"{found.on_trail:,} crumbs on trails, {found.permanent:,} permanent, {found.orphan:,} on none"
    verdict = paint("healthy", fg="green", bold=True) if found.healthy else paint("not healthy", fg="red")
    lines.append(f"{verdict}  {paint.dim(held)}")
    if found.seq is not None:
        lines.append(paint.dim(f"`dgent undo {found.seq}` takes the repair back"))
    return lines
