"""The chain of a block's versions in the store: loading the document, adding a version, folding old ones.

A version is stored under the next number and must not be there yet. Whoever loses that race takes in what
came first and tries the next number: so versions are dense and in one order, and a document that was kept in
memory is proven fresh by the very commit that writes to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dgent.blocks import errors
from dgent.blocks.document import Document
from dgent.blocks.page import pack, unpack
from dgent.blocks.record import (
    PAGE,
    PageRecord,
    SnapshotRecord,
    VersionRecord,
    page_id,
    snapshot_id,
    version_id,
)
from dgent.blocks.version import Version
from dgent.errors import StorageError, VersionConflict
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import LIVE, Check, Delete, Op, Put
from dgent.universe import writing
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

FOLD = 128  # versions that are folded together
FOLD_BYTES = 64 * 1024  # or when their updates are this large
KEEP = 32  # of the newest that stay unfolded
STATE_EVERY = 4  # pages, of which one has the state
READ = 48  # versions read at once when it is not known how many there are


class Chain:
    """The versions of one block, and its document as of the newest that was seen."""

    def __init__(self, universe: Universe, block: str) -> None:
        self._universe, self._block = universe, block
        self.document = Document()
        self.tail: list[Version] = []  # those that are not folded, oldest first
        self._updates: list[bytes] = []  # theirs
        self.folded = 0  # the newest folded version
        self._snapshot: Crystal[SnapshotRecord] | None = None
        self._loaded = False
        self._last = 0  # the newest that was seen before everything was forgotten
        self.alone = asyncio.Lock()  # held by whoever reads into the document or changes it

    @property
    def loaded(self) -> bool:
        """Whether the document is in memory; the next commit proves whether it is still the newest."""
        return self._loaded

    @property
    def number(self) -> int:
        """The newest version that was seen."""
        if not self._loaded:
            return self._last
        return self.tail[-1].number if self.tail else self.folded

    # -- reading ----------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Take in what others have written since."""
        async with self.alone:
            await self.renew()

    async def renew(self) -> None:
        """As `refresh`, for a caller that is alone already."""
        if self._loaded and not await self._catch_up():
            self.forget()
        if not self._loaded:
            await self._load()

    async def rebase(self, update: bytes) -> None:
        """Take in what others have written, below an update of this document that is not stored yet."""
        if not self._loaded or not await self._catch_up():
            self.forget()
            await self._load()
            self.document.merge(update)

    async def newest(self, tx: Transaction) -> Document:
        """The document as it is now, for a transaction that must not commit if it has changed by then."""
        while True:
            await self.refresh()
            here, later = (version_id(self._block, self.number + step) for step in (0, 1))
            if await tx.get(here) is not None and await tx.get(later) is None:
                return self.document.fork()

    async def _catch_up(self) -> bool:
        """Read on from the newest version that was seen; False when it was folded away since.

        Versions are folded from the oldest on and never the newest: so while this one is there, one that
        comes after it is there too, or does not exist.
        """
        here = self.number
        while True:
            came = await self._after(self.number - 1, 2 if self.number == here else READ)
            if not came:
                return False
            self.document.merge_all(update for _, update in came[1:])
            self.document.settled()
            self._add(came[1:])
            if len(came) < 2 or (len(came) < READ and self.number > here + 1):
                return True

    def forget(self) -> None:
        """What is in memory is not to be relied on: read everything again."""
        self._last = self.number
        self.document, self.tail, self._updates, self.folded = Document(), [], [], 0
        self._snapshot, self._loaded = None, False

    async def _load(self) -> None:
        """One snapshot and the few versions after it; again if they were folded in between."""
        while True:
            found = await self._universe.get(snapshot_id(self._block))
            snapshot = found if isinstance(found, Crystal) else None
            folded = 0 if snapshot is None else snapshot.value.version
            came = await self._after(folded, READ)
            if len(came) == READ:
                came += await self._rest(folded + READ)
            if came or snapshot is None or await self._is_still(snapshot):
                break
        content = b"" if snapshot is None else snapshot.datum.content
        self.document = Document.load(content, [update for _, update in came])
        self._snapshot, self.folded, self.tail, self._updates = snapshot, folded, [], []
        self._add(came)
        self._loaded = True

    async def _is_still(self, snapshot: Crystal[SnapshotRecord]) -> bool:
        now = await self._universe.get(snapshot_id(self._block))
        return isinstance(now, Crystal) and now.rev == snapshot.rev

    async def _rest(self, after: int) -> list[tuple[Version, bytes]]:
        found: list[tuple[Version, bytes]] = []
        while some := await self._after(after + len(found), READ):
            found += some
            if len(some) < READ:
                break
        return found

    async def _after(self, number: int, count: int) -> list[tuple[Version, bytes]]:
        """The versions after one, up to the first that is not there."""
        ids = [version_id(self._block, number + step) for step in range(1, count + 1)]
        found = [await self._universe.get(ids[0])] if count == 1 else await self._universe.get_many(ids)
        out: list[tuple[Version, bytes]] = []
        for step, each in enumerate(found, 1):
            if not isinstance(each, Crystal):
                break
            out.append((_version(number + step, each), each.datum.content))
        return out

    def _add(self, came: Sequence[tuple[Version, bytes]]) -> None:
        for version, update in came:
            self.tail.append(version)
            self._updates.append(update)

    # -- writing ----------------------------------------------------------------------------

    def first(self, document: Document, size: int, by: str) -> Datum:
        """The record of the first version, of a block that is being made."""
        record = VersionRecord("create", 1, 0, size, size, 0, document.frontiers)
        self._last = 1
        datum, _ = writing.new_datum(
            self._universe.contracts,
            record,
            id=version_id(self._block, 1),
            author=by,
            content=document.take_update(),
        )
        return datum

    async def write(
        self, record: VersionRecord, update: bytes, by: str, others: Sequence[Op] = ()
    ) -> Version | None:
        """Store an update as the next version; None when somebody else was faster, and nothing is stored."""
        number = self.number + 1
        datum, _ = writing.new_datum(
            self._universe.contracts, record, id=version_id(self._block, number), author=by, content=update
        )
        newest = version_id(self._block, self.number)
        ops: list[Op] = [Put(datum, 0, None, True), *others]
        if self.number:
            ops.append(Check(newest, LIVE))  # else it was folded, and there are later ones
        try:
            done = await self._universe.commit(ops, note=record.message or None)
        except VersionConflict as error:
            if error.details.get("id") in (datum.id, newest):
                return None
            raise
        version = Version(number, datum.created_at, by, **_fields(record))
        self.document.settled()
        self._add([(version, update)])
        if done.seq is not None and self._is_due():
            with suppress(StorageError):  # the version is stored; the next one tries to fold again
                await self.fold()
        return version

    def _is_due(self) -> bool:
        old = len(self.tail) - KEEP
        return old >= FOLD or (old >= FOLD // 8 and sum(map(len, self._updates[:old])) > FOLD_BYTES)

    async def fold(self, keep: int | None = None) -> bool:
        """Pack old versions into a page and their updates into the snapshot; False when somebody else did.

        What is asked of the document afterwards is as before: the snapshot has all of its history.
        """
        # The newest stays: others find out by it where they are.
        old = len(self.tail) - max(1, KEEP if keep is None else keep)
        if old <= 0:
            return False
        versions, updates = self.tail[:old], self._updates[:old]
        behind = Document.load(b"" if self._snapshot is None else self._snapshot.datum.content, updates)
        state = behind.state() if await self._wants_state() else b""
        last = versions[-1].number
        page = PageRecord(self._block, versions[0].number, last, bool(state))
        snapshot = SnapshotRecord(last, 0 if self._snapshot is None else self._snapshot.value.folded_from)
        ops: list[Op] = [
            self._put(page, page_id(self._block, last), pack(versions, updates, state), 0),
            self._put(
                snapshot,
                snapshot_id(self._block),
                behind.snapshot(),
                0 if self._snapshot is None else self._snapshot.rev or 0,
            ),
            *(Delete(version_id(self._block, each.number)) for each in versions),
        ]
        try:
            await self._universe.commit(ops, note=None)
        except VersionConflict:
            self.forget()
            return False
        found = await self._universe.get(snapshot_id(self._block))
        self._snapshot = found if isinstance(found, Crystal) else None
        self.folded, self.tail, self._updates = last, self.tail[old:], self._updates[old:]
        return True

    async def _wants_state(self) -> bool:
        recent = await self._universe.recall(
            Query(schema=PAGE.name, prefix=f"{self._block}/p/", limit=STATE_EVERY - 1, content=False)
        )
        return len(recent) == STATE_EVERY - 1 and not any(page.value.state for page in recent)

    def _put(self, value: Any, id: str, content: bytes, expect: int) -> Put:
        datum, _ = writing.new_datum(
            self._universe.contracts, value, id=id, content=content, author=self._universe.author
        )
        return Put(datum, expect, None, True)

    # -- looking back -----------------------------------------------------------------------

    async def versions(self) -> list[Version]:
        """Every version that is kept, oldest first."""
        async with self.alone:
            await self.renew()
            found: list[Version] = []
            for page in await self._pages():
                found += unpack(self._block, page.value.first, page.datum.content)[0]
            return [*(version for version in found if version.number <= self.folded), *self.tail]

    async def find(self, number: int) -> Version:
        """One version."""
        await self.refresh()
        if self.tail and number >= self.tail[0].number:
            if number > self.number:
                raise self._missing(number)
            return self.tail[number - self.tail[0].number]
        for page in await self._pages():
            if page.value.first <= number <= page.value.last:
                versions = unpack(self._block, page.value.first, page.datum.content)[0]
                return versions[number - page.value.first]
        raise self._missing(number)

    async def at(self, number: int) -> Document:
        """The document as it was at a version: the last state before it, and the updates since."""
        await self.refresh()
        if number == self.number:
            return self.document.fork()
        found = await self.find(number)
        snapshot = b""
        updates: list[bytes] = []
        for page in await self._pages():
            first = page.value.first
            if first > number:
                break
            _, mine, state = unpack(self._block, first, page.datum.content)
            if state and page.value.last <= number:
                snapshot, updates = state, []
            else:
                updates += mine[: number - first + 1]
        if self.tail and number >= self.tail[0].number:
            return Document.load(
                b"" if self._snapshot is None else self._snapshot.datum.content,
                self._updates[: number - self.tail[0].number + 1],
            )
        try:
            return Document.load(snapshot, updates)
        except errors.DocumentCorrupt:
            # An update may build on what was before the state: whoever made it was far behind.
            return self.document.as_of(found.frontiers)

    async def _pages(self) -> list[Crystal[PageRecord]]:
        query = Query(schema=PAGE.name, prefix=f"{self._block}/p/", limit=None)
        return sorted(await self._universe.recall(query), key=lambda page: page.value.first)

    def _missing(self, number: int) -> errors.VersionNotFound:
        return errors.VersionNotFound(
            f"there is no version {number}", hint=f"the newest is {self.number}", version=number
        )


def _version(number: int, found: Crystal[Any]) -> Version:
    return Version(number, found.created_at, found.author or "", **_fields(found.value))


def _fields(record: VersionRecord) -> dict[str, Any]:
    return vars(record)
