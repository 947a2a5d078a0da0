"""What became of the files of a folder, for people."""

from __future__ import annotations

from dgent.doors.cli.paint import Paint
from dgent.verbs.memory import FolderSynced

Lines = list[str]

COLORS = {"taken": "green", "written": "cyan", "deleted": "yellow", "conflicts": "red", "refused": "red"}
WORDS = {"taken": "taken in", "conflicts": "at odds"}


def synced(found: FolderSynced, paint: Paint) -> Lines:
    """A line for each file that something was done to."""
    lines = []
    for kind, color in COLORS.items():
        for each in getattr(found, kind):
            word = paint(f"{WORDS.get(kind, kind):9}", fg=color)
            number = "" if each.version is None else paint.dim(f"  version {each.version}")
            lines.append(f"{word} {paint(each.file, bold=True)}{number}  {paint(each.why)}")
    if not lines:
        return [paint.dim("nothing to do")]
    return [*lines, paint.dim("a trial: nothing was changed")] if found.dry_run else lines
