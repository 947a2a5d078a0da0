"""Draw tables and their rows, revisions, and halves of what is on both tracks."""

from __future__ import annotations

from typing import Any

from dgent.doors.cli.style import Paint, table
from dgent.verbs.wire import as_text

Lines = list[str]


def draw_models(found: Any, paint: Paint) -> Lines:
    """Draw tables, a line each."""
    rows = [
        [
            paint(each.name, fg="cyan"),
            paint(each.table) if each.ready else paint.dim(f"{each.table} (not made yet)"),
            paint.dim(", ".join(each.columns)),
        ]
        for each in found.items
    ]
    return table(paint, ("model", "table", "columns"), rows)


def draw_rows(found: Any, paint: Paint) -> Lines:
    """Draw rows, a line each."""
    if not found.items:
        return [paint.dim("no rows")]
    rows = [[paint(each.id, fg="cyan"), paint(as_text(each.data))] for each in found.items]
    return table(paint, ("id", "row"), rows)


def draw_row(found: Any, paint: Paint) -> Lines:
    """Draw a row, a line for each column."""
    most = max(map(len, found.data), default=0)
    return [f"{paint.dim(name.ljust(most))}  {_cell(value, paint)}" for name, value in found.data.items()]


def _cell(value: Any, paint: Paint) -> str:
    return paint.dim("NULL") if value is None else paint(value if isinstance(value, str) else as_text(value))


def draw_state(found: Any, paint: Paint) -> Lines:
    """Draw the revision of the tables, and those that have not run yet."""
    at = f"the tables are at revision {paint.bold(found.revision)}" if found.revision else "no tables yet"
    left = f"; to run: {', '.join(found.pending)}" if found.pending else ""
    return [at + left]


def draw_revisions(found: Any, paint: Paint) -> Lines:
    """Draw revisions, a line each."""
    if not found.items:
        return [paint.dim("no revisions")]
    rows = [
        [
            paint(each.id, fg="cyan"),
            paint("done", fg="green") if each.applied else paint.dim("to run"),
            paint(each.title),
        ]
        for each in found.items
    ]
    return table(paint, ("revision", "state", "title"), rows)


def draw_halves(found: Any, paint: Paint) -> Lines:
    """Draw halves, a line each."""
    if not found.items:
        return [paint.dim("every text has its row, and every row its text")]
    rows = [
        [paint(each.table, fg="cyan"), paint(each.id), each.missing, each.done, paint(each.reason)]
        for each in found.items
    ]
    return table(paint, ("table", "id", "missing", "done", "reason"), rows)
