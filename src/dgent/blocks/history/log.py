"""The chain of a block's versions in the store: loading the document, adding a version, folding old ones.

A version is stored under the next number and must not be there yet. Whoever loses that race takes in what
came first and tries the next number: so versions are dense and in one order. A document that is kept in
memory is brought up to date before each edit, and the commit proves that nothing came in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

from dgent import clock
from dgent.blocks import errors
from dgent.blocks.document.document import Document
from dgent.blocks.errors import missing
from dgent.blocks.history.pack import Page, Past, pack, readable
from dgent.blocks.history.version import REWRITES, Version
from dgent.blocks.record import (
    PageRecord,
    RedactionRecord,
    SnapshotRecord,
    VersionRecord,
    page_id,
    redaction_id,
    second_snapshot_id,
    snapshot_id,
    version_id,
)
from dgent.errors import StorageError, Unreadable, VersionConflict
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.store.backend import LIVE, Check, Delete, Op, Put
from dgent.universe import write as writing
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

FOLD = 128  # versions that are folded together
FOLD_BYTES = 64 * 1024  # or when their updates are this large
KEEP = 16  # of the newest that stay unfolded
STATE_EVERY = 3  # pages, of which one has the state
FOLD_AGE = timedelta(hours=1)  # or when the oldest of a few is older than this
READ = 64  # versions read at once when it is not known how many there are


class Head(NamedTuple):
    """What loading a block begins with: what was redacted in it, and its snapshot."""

    redaction: Crystal[RedactionRecord] | None
    snapshot: Crystal[SnapshotRecord] | None

    @property
    def folded(self) -> int:
        """The newest folded version."""
        return 0 if self.snapshot is None else self.snapshot.value.version

    def is_same(self, other: Head) -> bool:
        """Whether nobody has folded or rewritten anything between two reads."""
        pairs = zip(self, other, strict=True)
        return all((a and (a.id, a.rev)) == (b and (b.id, b.rev)) for a, b in pairs)


class Chain:
    """The versions of one block, and its document as of the newest that was seen."""

    def __init__(self, universe: Universe, block: str) -> None:
        self._universe, self._block = universe, block
        self._past = Past(universe, block)
        self.document = Document()
        self.tail: list[Version] = []  # those that are not folded, oldest first
        self._updates: list[bytes] = []  # theirs
        self._head = Head(None, None)
        self._loaded = False
        self._last = 0  # the newest that was seen before everything was forgotten
        self._pending = False  # whether some of it waits for the store to come back
        self.alone = asyncio.Lock()  # held by whoever reads into the document or changes it

    @property
    def loaded(self) -> bool:
        """Whether the document is in memory, as of the version that was last seen."""
        return self._loaded

    @property
    def folded(self) -> int:
        """The newest folded version."""
        return self._head.folded

    @property
    def snapshot(self) -> Crystal[SnapshotRecord] | None:
        """The snapshot that the document was loaded from; None before anything was folded."""
        return self._head.snapshot

    @property
    def redaction(self) -> Crystal[RedactionRecord] | None:
        """What was redacted in the block; None when nothing was."""
        return self._head.redaction

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
        if self._loaded and not await self._read_newer():
            self.forget()
        if not self._loaded:
            await self._load()

    async def catch_up(self) -> None:
        """Bring the document up to date before an edit, so that the edit sees all that was stored before it.

        It is one read of two small records. What others store after it is merged with the edit. While the
        store cannot be reached, what is in memory has to do.
        """
        if self._loaded and not await self._read_newer():
            if self._universe.degraded is not None:
                return
            self.forget()
        if not self._loaded:
            await self._load()

    async def rebase(self, update: bytes) -> bool:
        """Take in what others have written, below an update of this document that is not stored yet.

        False when it builds on what was compacted meanwhile: then what it does must be done anew.
        """
        if not self._loaded or not await self._read_newer():
            self.forget()
            await self._load()
            try:
                self.document.merge(update)
            except errors.DocumentCorrupt:
                return False
        return True

    async def newest(self, tx: Transaction) -> Document:
        """The document as it is now, for a transaction that must not commit if it has changed by then."""
        while True:
            await self.refresh()
            here, later = (version_id(self._block, self.number + step) for step in (0, 1))
            if await tx.get(here) is not None and await tx.get(later) is None:
                return self.document.fork()

    async def _read_newer(self) -> bool:
        """Read on from the newest version that was seen; False when what is in memory is of no use.

        That is so when it was folded away since. Versions are folded from the oldest on and never the newest:
        so while this one is there, one that comes after it is there too, or does not exist. And it is so when
        something was redacted or compacted.
        """
        here = self.number
        while True:
            sure = self._universe.degraded is None
            came = await self._after(self.number - 1, 2 if self.number == here else READ)
            if not came or any(version.op in REWRITES for version, _ in came[1:]):
                return False
            if came[0][0].frontiers != self.tail[-1].frontiers:
                return False  # what was written here while the store was away did not get this number
            if not self._merge(update for _, update in came[1:]):
                return False
            self._settle(sure)
            self._add(came[1:])
            if len(came) < 2 or (len(came) < READ and self.number > here + 1):
                return True

    def _merge(self, updates: Iterable[bytes]) -> bool:
        """Merge what others stored; False when the document in memory cannot take it, or is spoilt by it."""
        some = list(updates)
        try:
            self.document.merge_all(some)
            if some:
                self.document.check_usable()
        except errors.DocumentCorrupt:
            return False
        return True

    def _settle(self, sure: bool) -> None:
        """All that the document holds is stored, if that is sure: the next update need not have it again."""
        self._pending = self._pending and not sure
        if not self._pending:
            self.document.settled()

    def forget(self) -> None:
        """What is in memory is not to be relied on: read everything again."""
        self._last = self.number
        self.document, self.tail, self._updates = Document(), [], []
        self._head, self._loaded, self._pending = Head(None, None), False, False

    async def _load(self) -> None:
        """One snapshot and the few versions after it; again if they were folded or rewritten in between."""
        while True:
            head = await self._find_head()
            came = await self._after(head.folded, READ)
            if len(came) == READ:
                came += await self._rest(head.folded + READ)
            # A version that rewrote the past may have come after the snapshot was read.
            sure = bool(came) and not any(version.op in REWRITES for version, _ in came)
            if sure or head.is_same(await self._find_head()):
                break
        self._hold(head, came)

    async def _find_head(self) -> Head:
        block = self._block
        ids = [redaction_id(block), snapshot_id(block), second_snapshot_id(block)]
        while True:
            redaction, first, second = map(readable, await self._universe.get_many(ids), ids)
            fresh = "" if redaction is None else redaction.value.snapshot
            if redaction is None or not fresh:
                return Head(redaction, first or second)
            snapshot = await self._stored(snapshot_id(block, fresh))
            if snapshot is not None:
                return Head(redaction, snapshot)
            now = await self._stored(redaction.id)
            if now is not None and now.rev == redaction.rev:
                error = errors.DocumentCorrupt(f"the snapshot of the block {block!r} is not there")
                raise missing(self._universe, error)

    def hold(self, redaction: Datum | None, snapshot: Datum | None, came: Sequence[Datum]) -> None:
        """Take a snapshot and the versions after it, as they were read of many blocks together."""
        make = self._universe.contracts.lenient
        head = Head(*(each and readable(make(each), each.id) for each in (redaction, snapshot)))
        found = [(number, readable(make(each), each.id)) for number, each in enumerate(came, head.folded + 1)]
        self._hold(head, [(_version(number, each), each.datum.content) for number, each in found if each])

    def _hold(self, head: Head, came: Sequence[tuple[Version, bytes]]) -> None:
        if head.snapshot is None and not came:
            error = errors.DocumentCorrupt(f"of the block {self._block!r} no version is there")
            raise missing(self._universe, error)
        content = b"" if head.snapshot is None else head.snapshot.datum.content
        self.document = Document.load(content, [update for _, update in came])
        self._head, self.tail, self._updates = head, [], []
        self._add(came)
        self._loaded = True

    async def _stored(self, id: str) -> Crystal[Any] | None:
        try:
            return readable(await self._universe.get(id), id)
        except Unreadable as error:
            raise errors.DocumentCorrupt(
                f"the record {id!r} cannot be read: {error.message}", id=id
            ) from None

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
        out: list[tuple[Version, bytes]] = []
        for step, found in enumerate(await self._universe.get_many(ids), 1):
            if (each := readable(found, ids[step - 1])) is None:
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
        self._pending = self._pending or done.seq is None
        self._settle(done.seq is not None)
        self._add([(version, update)])
        if done.seq is not None and self._is_due():
            with suppress(StorageError):  # the version is stored; the next one tries to fold again
                await self.fold()
        return version

    def _is_due(self) -> bool:
        old = len(self.tail) - KEEP
        if old < FOLD // 4:
            return False
        large = sum(map(len, self._updates[:old])) > FOLD_BYTES
        return large or old >= FOLD or clock.now() - self.tail[0].at > FOLD_AGE

    async def fold(self, keep: int | None = None) -> bool:
        """Pack old versions into a page and their updates into the snapshot; False when somebody else did.

        What is asked of the document afterwards is as before: the snapshot has all of its history.
        """
        # The newest stays: others find out by it where they are.
        old = len(self.tail) - max(1, KEEP if keep is None else keep)
        if old <= 0:
            return False
        versions, updates = self.tail[:old], self._updates[:old]
        behind = Document.load(self._base, updates)
        state = behind.state() if await self._wants_state() else b""
        last = versions[-1].number
        ops: list[Op] = [
            self.put_page(Page(versions, updates, state)),
            self.put_snapshot(last, behind),
            self._check_not_redacted(),
            # Whoever has rewritten the past meanwhile has folded this one, too.
            Check(version_id(self._block, self.number), LIVE),
            *(Delete(version_id(self._block, each.number)) for each in versions),
        ]
        try:
            await self._universe.commit(ops, note=None)
        except VersionConflict:
            self.forget()
            return False
        written = await self._find_head()
        if written.folded != last:  # somebody else went on folding
            self.forget()
            return False
        self._head, self.tail, self._updates = written, self.tail[old:], self._updates[old:]
        return True

    def _check_not_redacted(self) -> Check:
        """The op that fails when something was redacted meanwhile: then the snapshot is elsewhere."""
        known = self._head.redaction
        return Check(redaction_id(self._block), 0 if known is None else known.rev or 0)

    async def _wants_state(self) -> bool:
        recent = await self._past.newest(STATE_EVERY - 1)
        return len(recent) == STATE_EVERY - 1 and not any(page.value.state for page in recent)

    @property
    def redactions(self) -> int:
        """How often something was redacted."""
        return 0 if self.snapshot is None else self.snapshot.value.redactions

    def put_page(self, page: Page, fresh: str = "", record: Crystal[PageRecord] | None = None) -> Put:
        """The op that stores a page: in the place of another one, or under a new id."""
        first, last = page.versions[0].number, page.versions[-1].number
        said = PageRecord(self._block, first, last, bool(page.state))
        if record is not None:
            return self.put(said, record.id, pack(page), record.rev or 0)
        return self.put(said, page_id(self._block, last, fresh), pack(page), 0)

    def put_snapshot(self, version: int, document: Document, fresh: str = "") -> Put:
        """The op that stores a snapshot: in the place of the one that was read, or after a redaction anew."""
        old = self.snapshot
        if fresh:
            record, id, expect = (
                SnapshotRecord(version, self.redactions + 1),
                snapshot_id(self._block, fresh),
                0,
            )
        elif old is None:
            record, id, expect = SnapshotRecord(version), snapshot_id(self._block), 0
        else:
            record, id, expect = SnapshotRecord(version, self.redactions), old.id, old.rev or 0
        return self.put(record, id, document.snapshot(), expect)

    def put(self, value: Any, id: str, content: bytes, expect: int, by: str | None = None) -> Put:
        """The op that stores a record of this block."""
        datum, _ = writing.new_datum(
            self._universe.contracts, value, id=id, content=content, author=by or self._universe.author
        )
        return Put(datum, expect, None, True)

    # -- looking back -----------------------------------------------------------------------

    async def versions(self, after: int = 0) -> list[Version]:
        """The versions after one, oldest first."""
        async with self.alone:
            await self.renew()
            return await self._versions(after)

    async def newest_versions(self, count: int) -> list[Version]:
        """So many of the newest versions, oldest first."""
        async with self.alone:
            await self.renew()
            return (await self._versions(max(0, self.number - count)))[-count:] if count > 0 else []

    async def _versions(self, after: int) -> list[Version]:
        folded = await self._past.versions(after) if after < self.folded else []
        known = [*(version for version in folded if version.number <= self.folded), *self.tail]
        return [version for version in known if version.number > after]

    async def find(self, number: int) -> Version:
        """One version."""
        await self.refresh()
        found = self._in_tail(number)
        if found is None and 1 <= number <= self.folded:
            found = await self._past.find(number)
        if found is None:
            raise errors.VersionNotFound(
                f"there is no version {number}", hint=f"the newest is {self.number}", version=number
            )
        return found

    async def at(self, number: int) -> Document:
        """The document as it was at a version."""
        found = await self.find(number)
        held = self.held(number)
        if held is None:
            return await self._past.at(found)
        return held.fork() if held is self.document else held

    def held(self, number: int) -> Document | None:
        """The document as it was at a version, without reading anything; None when it is too old for that."""
        if number == self.number:
            return self.document
        if self._in_tail(number) is None:
            return None
        return Document.load(self._base, self._updates[: number - self.folded])

    def _in_tail(self, number: int) -> Version | None:
        place = number - self.folded - 1
        return self.tail[place] if 0 <= place < len(self.tail) else None

    @property
    def _base(self) -> bytes:
        """The content of the snapshot."""
        return b"" if self.snapshot is None else self.snapshot.datum.content


def _version(number: int, found: Crystal[Any]) -> Version:
    return Version(number, found.created_at, found.author or "", **_fields(found.value))


def _fields(record: VersionRecord) -> dict[str, Any]:
    return vars(record)
