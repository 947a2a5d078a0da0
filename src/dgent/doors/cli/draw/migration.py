"""Draw an import from another framework's store."""

from __future__ import annotations

from typing import Any

from dgent.doors.cli.style import Paint, table

Lines = list[str]
SHOWN = 20  # problems


def draw_migration(found: Any, paint: Paint) -> Lines:
    """Draw the counts of an import by kind, and its problems."""
    if not found.read and not found.problems:
        return [paint.dim(f"nothing is in {found.source}")]
    written = "would write" if found.dry_run else "written"
    fields = ("read", "written", "already_there", "left_out")
    rows = [
        [paint(each.kind, fg="cyan"), *(f"{getattr(each, name):,}" for name in fields)]
        for each in (*found.kinds, *_total(found))
    ]
    lines = table(paint, ("kind", "read", written, "already there", "left out"), rows)
    for each in found.problems[:SHOWN]:
        place = f"{each.file}, row {each.line}" if each.line else each.file
        lines.append(paint(f"{place}: {each.message}", fg="yellow"))
    if found.odd > SHOWN:
        lines.append(paint.dim(f"and {found.odd - SHOWN:,} more; --json lists them"))
    return lines


class _Total:
    kind = "all"

    def __init__(self, found: Any) -> None:
        self.read, self.written = found.read, found.written
        self.already_there, self.left_out = found.already_there, found.left_out


def _total(found: Any) -> list[_Total]:
    return [_Total(found)] if len(found.kinds) > 1 else []
