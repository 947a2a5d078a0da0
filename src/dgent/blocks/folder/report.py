"""The report of a folder sync."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileReport:
    """The result for one file: its block, its version now, and the reason."""

    label: str
    owner: str
    file: str
    version: int | None
    why: str

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"


@dataclass(frozen=True)
class FolderReport:
    """The result of a sync, or of a `dry_run` what it would be.

    `written` are files that were written, `taken` those whose edits became versions or whose blocks are new,
    `deleted` blocks and files that were deleted because the other was. `conflicts` are changes of both sides
    that no rule could merge, `refused` those that were not made: of both, the text of the file is kept and
    `why` says where.
    """

    folder: str
    written: tuple[FileReport, ...] = ()
    taken: tuple[FileReport, ...] = ()
    deleted: tuple[FileReport, ...] = ()
    conflicts: tuple[FileReport, ...] = ()
    refused: tuple[FileReport, ...] = ()
    dry_run: bool = False

    def __bool__(self) -> bool:
        """Check whether anything is reported."""
        return bool(self.written or self.taken or self.deleted or self.conflicts or self.refused)

    def __str__(self) -> str:
        lines = []
        for name in ("taken", "written", "deleted", "conflicts", "refused"):
            lines += [f"{name:9} {each}" for each in getattr(self, name)]
        return "\n".join(lines) or "nothing to do"
