"""What came into a cupboard, or went out of it."""

from __future__ import annotations

from typing import Any

from dgent.doors.cli.paint import Paint, many, size

Lines = list[str]
SHOWN = 20


def taken_in(found: Any, paint: Paint) -> Lines:
    """What an import did, and what was odd."""
    names = ("added", "changed", "unchanged", "skipped")
    told = ", ".join(f"{number:,} {name}" for name in names if (number := getattr(found, name)))
    lines = [("would be: " if found.dry_run else "") + (told or "nothing in it")]
    if found.kept:
        lines.append(f"{many(found.kept, 'line')} kept as they are, because no record can hold them")
    for problem in found.problems[:SHOWN]:
        lines.append(paint(f"{problem.file}, line {problem.line}: {problem.message}", fg="yellow"))
    if found.odd > SHOWN:
        lines.append(paint.dim(f"and {found.odd - SHOWN:,} more; --json tells them"))
    return lines


def written_out(found: Any, paint: Paint) -> Lines:
    """What an export wrote."""
    told = ", ".join(f"{number:,} {name}" for name, number in found.lines.items() if number)
    where = paint(found.path, fg="cyan")
    return [f"{where}: {told or 'nothing'}", f"as of commit {found.seq:,}, {size(found.size_bytes)}"]
