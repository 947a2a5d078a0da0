"""What a sync of a folder came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileReport:
    """What happened to one file: of which block, the version it stands at now, and why it happened."""

    label: str
    owner: str
    file: str
    version: int | None
    why: str

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"


@dataclass(frozen=True)
class FolderReport:
    """What a sync did, or would do when it is a `dry_run`.

    `written` are files that were written, `taken` those whose edits became versions or whose blocks are new,
    `deleted` blocks and files that went with the other. `conflicts` are what both sides changed and no rule
    could merge, `refused` what was not done: of both, the text of the file is kept and `why` says where.
    """

    folder: str
    written: tuple[FileReport, ...] = ()
    taken: tuple[FileReport, ...] = ()
    deleted: tuple[FileReport, ...] = ()
    conflicts: tuple[FileReport, ...] = ()
    refused: tuple[FileReport, ...] = ()
    dry_run: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.written or self.taken or self.deleted or self.conflicts or self.refused)

    def __str__(self) -> str:
        told = []
        for name in ("taken", "written", "deleted", "conflicts", "refused"):
            told += [f"{name:9} {each}" for each in getattr(self, name)]
        return "\n".join(told) or "nothing to do"
