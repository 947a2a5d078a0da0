"""One sync of a folder: what is there on both sides, and what has been told of it so far."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from dgent.blocks.block import Block
from dgent.blocks.folder.disk import ASIDE, Disk, File, translated
from dgent.blocks.folder.format import folded, label_of, stem_of
from dgent.blocks.folder.report import FileReport, FolderReport
from dgent.blocks.folder.state import SHARED, Entry, Ledger
from dgent.blocks.kind import CONSTELLATION

if TYPE_CHECKING:
    from dgent.blocks.library import Library


class Round:
    """What one sync works with. `held` are blocks whose files stay as they are, `held_cards` so for cards."""

    def __init__(self, library: Library, disk: Disk, ledger: Ledger, by: str | None, dry_run: bool) -> None:
        self.library, self.disk, self.ledger = library, disk, ledger
        self.by, self.dry_run = by, dry_run
        self.files: dict[str, File] = {}
        self.blocks: dict[str, Block] = {}
        self.held: set[str] = set()
        self.held_cards: set[str] = set()
        self.current: set[str] = set()  # blocks that are at the version their file was written from
        self.made: set[str] = set()  # blocks of new files
        self.renamed: dict[str, str] = {}  # the labels that files were renamed to
        self.reasons: dict[str, str] = {}  # why a file is to be written, where it is not only that it is old
        self._told: dict[str, list[FileReport]] = defaultdict(list)
        self._folders: dict[str, str] = {}  # those of other owners
        self._stems: dict[str, set[str]] = {}
        self._saved = ledger.encoded()

    async def look(self) -> None:
        """See what is there now, on both sides."""
        known = {name for entry in self.ledger.entries.values() for name in (entry.file, entry.card_file)}
        with translated(self.disk.folder):
            found = await asyncio.to_thread(self.disk.scan)
            # What stands in a file's place, or on the way to it, is not the same as a file that was deleted.
            missing = known - {file.name for file in found}
            found += await asyncio.to_thread(self.disk.obstacles, missing)
        for file in sorted(found, key=lambda each: (each.name not in known, each.name)):
            other = self.files.setdefault(folded(file.name), file)
            if other is not file:
                self.refuse(file, f"its name is that of {other.name} on some systems")
        self.blocks = {block.id: block for block in await self.library.list(shared=True)}

    def file(self, name: str) -> File | None:
        """A file as it was when this began, under whatever spelling of its name."""
        return self.files.get(folded(name))

    def move(self, name: str, to: str) -> None:
        """Give a file another name, now."""
        file = self.files.pop(folded(name))
        self.files[folded(to)] = replace(file, name=to)
        if not self.dry_run:
            with translated(self.disk.folder):
                self.disk.move(file.name, to)

    async def remove(self, entry: Entry) -> None:
        """Remove the files of a block."""
        if not self.dry_run:
            with translated(self.disk.folder):
                for name in (entry.file, entry.card_file):
                    await asyncio.to_thread(self.disk.remove, name)

    async def save(self) -> None:
        """Keep what the folder knows, if that is anything new."""
        now = self.ledger.encoded()
        if not self.dry_run and now != self._saved:
            await asyncio.to_thread(self.disk.save, now)
            self._saved = now

    async def tidy(self) -> None:
        """Leave nothing lying about; only when what the folder knows does not refer to it any more."""
        if not self.dry_run:
            await asyncio.to_thread(self.disk.tidy)

    async def set_aside(self, file: File) -> str:
        """Keep what a file says beside it; returns where, for people."""
        if self.dry_run:
            return f"{file.name}{ASIDE}"
        with translated(self.disk.folder):
            return await asyncio.to_thread(self.disk.set_aside, file.name, file.content)

    # -- where blocks belong --------------------------------------------------------------------

    def folder_of(self, owner: str) -> str:
        """Where the files of an owner's blocks are; those of two owners are never in one folder."""
        if owner == self.library.agent:
            return ""
        if not self._folders:
            for entry in self.ledger.entries.values():
                if "/" in entry.place:
                    self._folders.setdefault(entry.owner, entry.place.rpartition("/")[0] + "/")
        if owner not in self._folders:
            taken = {folded(each.split("/")[1]) for each in self._folders.values()}
            self._folders[owner] = f"{SHARED}/{stem_of(owner, taken)}/"
        return self._folders[owner]

    def owner_of(self, place: str) -> str | None:
        """Whose blocks are at a place; None when nobody's that this agent sees."""
        if "/" not in place:
            return self.library.agent
        folder = folded(place.rpartition("/")[0] + "/")
        owners = sorted({block.owner for block in self.blocks.values()} | {CONSTELLATION})
        return next((each for each in owners if folded(self.folder_of(each)) == folder), None)

    def stems(self, folder: str) -> set[str]:
        """The names that files of a folder have, without suffix and folded; what is new may be added."""
        if not self._stems:
            self._stems[""] = {folded(SHARED)}
            places = [entry.place for entry in self.ledger.entries.values()]
            for place in (*places, *(file.place for file in self.files.values())):
                above, sign, stem = place.rpartition("/")
                self._stems.setdefault(above + sign, set()).add(folded(stem))
        return self._stems.setdefault(folder, set())

    # -- telling --------------------------------------------------------------------------------

    def tell(self, kind: str, entry: Entry, why: str, version: int | None = None) -> None:
        """Have something in the report: `written`, `taken`, `deleted`, `conflicts` or `refused`."""
        self.tell_of(kind, entry.label, entry.owner, entry.file, why, version)

    def tell_of(
        self, kind: str, label: str, owner: str, file: str, why: str, version: int | None = None
    ) -> None:
        """As `tell`, of a file that no block is known for."""
        self._told[kind].append(FileReport(label, owner, file, version, why))

    def refuse(self, file: File, why: str) -> None:
        """Have in the report that nothing is done with a file that no block is known for."""
        owner = self.owner_of(file.place) or label_of(file.place.split("/")[1])
        self.tell_of("refused", label_of(file.place.rpartition("/")[2]), owner, file.name, why)

    def report(self) -> FolderReport:
        """What this came to."""
        told = {kind: tuple(sorted(some, key=_order)) for kind, some in self._told.items()}
        return FolderReport(str(self.disk.folder), **told, dry_run=self.dry_run)


def _order(told: FileReport) -> tuple[str, str]:
    return told.file, told.why
