"""Draw revisions of tables, and halves of what is on both tracks."""

from __future__ import annotations

from typing import Any

from dgent.doors.cli.style import Paint, table

Lines = list[str]


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
