"""One sync of a folder: what is there on both sides, and what has been told of it so far."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from dgent.blocks.block import Block
from dgent.blocks.folder.disk import SHARED, Disk, File
from dgent.blocks.folder.ledger import Entry, Ledger
from dgent.blocks.folder.names import folded, stem_of
from dgent.blocks.folder.report import FileReport, FolderReport

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
        self._saved = ledger.encoded()

    async def look(self) -> None:
        """See what is there now, on both sides."""
        found = await asyncio.to_thread(self.disk.scan)
        self.files = {folded(name): file for name, file in found.items()}
        self.blocks = {block.id: block for block in await self.library.list(shared=True)}

    def file(self, name: str) -> File | None:
        """A file as it was when this began, under whatever spelling of its name."""
        return self.files.get(folded(name))

    def move(self, name: str, to: str) -> None:
        """Give a file another name, now."""
        file = self.files.pop(folded(name))
        self.files[folded(to)] = replace(file, name=to)
        if not self.dry_run:
            self.disk.move(name, to)

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
            return f"{file.name}.mine"
        return await asyncio.to_thread(self.disk.set_aside, file.name, file.content)

    # -- where blocks belong --------------------------------------------------------------------

    def folder_of(self, owner: str) -> str:
        """Where the files of an owner's blocks are."""
        return "" if owner == self.library.agent else f"{SHARED}/{stem_of(owner)}/"

    def owner_of(self, place: str) -> str | None:
        """Whose blocks are at a place; None when nobody's that this agent sees."""
        if "/" not in place:
            return self.library.agent
        folder = folded(place.rpartition("/")[0] + "/")
        owners = {block.owner for block in self.blocks.values()} | {
            entry.owner for entry in self.ledger.entries.values()
        }
        return next((each for each in owners if folded(self.folder_of(each)) == folder), None)

    # -- telling --------------------------------------------------------------------------------

    def tell(self, kind: str, entry: Entry, why: str, version: int | None = None) -> None:
        """Have something in the report: `written`, `taken`, `deleted`, `conflicts` or `refused`."""
        self.tell_of(kind, entry.label, entry.owner, entry.file, why, version)

    def tell_of(
        self, kind: str, label: str, owner: str, file: str, why: str, version: int | None = None
    ) -> None:
        """As `tell`, of a file that no block is known for."""
        self._told[kind].append(FileReport(label, owner, file, version, why))

    def report(self) -> FolderReport:
        """What this came to."""
        told = {kind: tuple(sorted(some, key=_order)) for kind, some in self._told.items()}
        return FolderReport(str(self.disk.folder), **told, dry_run=self.dry_run)


def _order(told: FileReport) -> tuple[str, str]:
    return told.file, told.why
