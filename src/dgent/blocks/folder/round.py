"""One sync of a folder: the state of both sides, and the report so far."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dgent.blocks.block import Block
from dgent.blocks.folder.disk import ASIDE, Disk, FolderFile, translate_errors
from dgent.blocks.folder.format import (
    folder_stem_of,
    label_of,
    label_of_place,
    normalize_name,
    split_label,
    stem_of,
)
from dgent.blocks.folder.state import SHARED, FileEntry, FolderLedger
from dgent.blocks.kind import CONSTELLATION

if TYPE_CHECKING:
    from dgent.blocks.library import Library


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


class Round:
    """The state of one sync.

    `held` are blocks whose content files stay as they are, `held_headers` those whose header files do.
    """

    def __init__(
        self, library: Library, disk: Disk, ledger: FolderLedger, by: str | None, dry_run: bool
    ) -> None:
        self.library, self.disk, self.ledger = library, disk, ledger
        self.by, self.dry_run = by, dry_run
        self.files: dict[str, FolderFile] = {}
        self.blocks: dict[str, Block] = {}
        self.held: set[str] = set()
        self.held_headers: set[str] = set()
        self.current: set[str] = set()  # blocks that are at the version their file was written from
        self.made: set[str] = set()  # blocks of new files
        self.renamed: dict[str, str] = {}  # the labels that files were renamed to
        self.reasons: dict[str, str] = {}  # why a file is to be written, if not only because it is old
        self._reports: dict[str, list[FileReport]] = defaultdict(list)
        self._folders: dict[str, str] = {}  # those of other owners
        self._stems: dict[str, set[str]] = {}
        self._saved = ledger.encode()

    async def scan(self) -> None:
        """Read the current state of both sides."""
        known = {name for entry in self.ledger.entries.values() for name in (entry.file, entry.header_file)}
        with translate_errors(self.disk.folder):
            found = await asyncio.to_thread(self.disk.scan)
            # Something else in a file's place, or a link on its path, is not a deleted file.
            missing = known - {file.name for file in found}
            found += await asyncio.to_thread(self.disk.obstacles, missing)
        for file in sorted(found, key=lambda each: (each.name not in known, each.name)):
            other = self.files.setdefault(normalize_name(file.name), file)
            if other is not file:
                self.refuse(file, f"its name is that of {other.name} on some systems")
        self.blocks = {block.id: block for block in await self.library.list(shared=True)}

    def file(self, name: str) -> FolderFile | None:
        """Return a file as of the scan, under any spelling of its name that is the same on some system."""
        return self.files.get(normalize_name(name))

    def move(self, name: str, to: str) -> None:
        """Rename a file now."""
        file = self.files.pop(normalize_name(name))
        self.files[normalize_name(to)] = replace(file, name=to)
        if not self.dry_run:
            with translate_errors(self.disk.folder):
                self.disk.move(file.name, to)

    async def remove(self, entry: FileEntry) -> None:
        """Remove the files of a block."""
        if not self.dry_run:
            with translate_errors(self.disk.folder):
                for name in (entry.file, entry.header_file):
                    await asyncio.to_thread(self.disk.remove, name)

    async def save(self) -> None:
        """Save the ledger, if it has changed."""
        now = self.ledger.encode()
        if not self.dry_run and now != self._saved:
            await asyncio.to_thread(self.disk.save, now)
            self._saved = now

    async def tidy(self) -> None:
        """Remove temporary files; only when the ledger no longer refers to them."""
        if not self.dry_run:
            await asyncio.to_thread(self.disk.tidy)

    async def set_aside(self, file: FolderFile) -> str:
        """Keep the text of a file beside it; returns its name."""
        if self.dry_run:
            return f"{file.name}{ASIDE}"
        with translate_errors(self.disk.folder):
            return await asyncio.to_thread(self.disk.set_aside, file.name, file.content)

    # -- places of blocks --------------------------------------------------------------------

    def folder_of(self, owner: str) -> str:
        """Return the folder of an owner's blocks; two owners never share one."""
        if owner == self.library.agent:
            return ""
        if not self._folders:
            for entry in self.ledger.entries.values():
                if root := _root_of(entry.place):
                    self._folders.setdefault(entry.owner, root)
        if owner not in self._folders:
            taken = {normalize_name(each.split("/")[1]) for each in self._folders.values()}
            self._folders[owner] = f"{SHARED}/{stem_of(owner, taken)}/"
        return self._folders[owner]

    def owner_of(self, place: str) -> str | None:
        """Return the owner of the blocks at a place; None when this agent sees no such blocks."""
        folder = normalize_name(_root_of(place))
        if not folder:
            return self.library.agent
        owners = sorted({block.owner for block in self.blocks.values()} | {CONSTELLATION})
        return next((each for each in owners if normalize_name(self.folder_of(each)) == folder), None)

    def locate(self, owner: str, label: str) -> tuple[str, str]:
        """Return the folder for a block's files, ending with /, and the last step of its label."""
        folder = self.folder_of(owner)
        *above, last = split_label(label)
        for step in above:
            folder += folder_stem_of(step, () if folder else (SHARED,)) + "/"
        return folder, last

    def label_at(self, place: str) -> str:
        """Return the label that files at a place have, when nothing else gives one."""
        return label_of_place(place.removeprefix(_root_of(place)))

    def is_at_label(self, owner: str, label: str, place: str) -> bool:
        """Check whether files are in the folder of their label, however its name is spelled."""
        here = place.rpartition("/")[0]
        if normalize_name(self.locate(owner, label)[0]) == normalize_name(f"{here}/" if here else ""):
            return True
        if _root_of(place) != self.folder_of(owner):
            return False
        *above, _ = place.removeprefix(_root_of(place)).split("/")
        return [label_of(step) for step in above] == split_label(label)[:-1]

    def stems(self, folder: str) -> set[str]:
        """Return the normalized file names in a folder, without suffix; new ones may be added to the set."""
        if not self._stems:
            self._stems[""] = {normalize_name(SHARED)}
            places = [entry.place for entry in self.ledger.entries.values()]
            for place in (*places, *(file.place for file in self.files.values())):
                above, sign, stem = place.rpartition("/")
                self._stems.setdefault(normalize_name(above + sign), set()).add(normalize_name(stem))
        return self._stems.setdefault(normalize_name(folder), set())

    # -- reporting --------------------------------------------------------------------------------

    def add_report(self, kind: str, entry: FileEntry, why: str, version: int | None = None) -> None:
        """Add a line to the report, under `written`, `taken`, `deleted`, `conflicts` or `refused`."""
        self.add_file_report(kind, entry.label, entry.owner, entry.file, why, version)

    def add_file_report(
        self, kind: str, label: str, owner: str, file: str, why: str, version: int | None = None
    ) -> None:
        """Add a line to the report for a file, with or without a known block."""
        self._reports[kind].append(FileReport(label, owner, file, version, why))

    def refuse(self, file: FolderFile, why: str) -> None:
        """Report that a file without a known block is ignored."""
        owner = self.owner_of(file.place) or label_of(file.place.split("/")[1])
        self.add_file_report("refused", self.label_at(file.place), owner, file.name, why)

    def report(self) -> FolderReport:
        """Return the report."""
        reports = {kind: tuple(sorted(some, key=_order)) for kind, some in self._reports.items()}
        return FolderReport(str(self.disk.folder), **reports, dry_run=self.dry_run)


def _root_of(place: str) -> str:
    """Return the folder of another owner's blocks that a place is in, ending with /; empty for one's own."""
    steps = place.split("/")
    return f"{SHARED}/{steps[1]}/" if len(steps) > 2 and normalize_name(steps[0]) == SHARED else ""


def _order(report: FileReport) -> tuple[str, str]:
    return report.file, report.why
