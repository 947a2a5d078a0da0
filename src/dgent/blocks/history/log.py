"""The version log of a block: loading the document, adding a version, packing old versions.

A version is stored under the next number, which must be free. The writer that loses this race merges the
versions that came first and tries the next number: so versions are dense and in one order. A document in
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
from dgent.blocks.history.pack import Pack, PackStore, check_readable, encode_pack
from dgent.blocks.history.version import REWRITES, Version
from dgent.blocks.record import (
    PackRecord,
    RedactionRecord,
    SnapshotRecord,
    VersionRecord,
    pack_id,
    redaction_id,
    second_snapshot_id,
    snapshot_id,
    version_id,
)
from dgent.errors import StorageError, Unreadable, VersionConflict
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.store.backend import LIVE, Check, Delete, Op, Put
from dgent.universe import write
from dgent.universe.position import known_seq
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

PACK_SIZE = 128  # versions that are packed together
PACK_BYTES = 64 * 1024  # or when their updates are this large
KEEP = 16  # of the newest versions that are not packed
STATE_EVERY = 3  # one of so many packs has the state
PACK_AGE = timedelta(hours=1)  # or when the oldest of a few is older than this
READ = 64  # versions read at once when it is not known how many there are
YOUNG = 8  # versions read together with the snapshot: all that a young block has


class Head(NamedTuple):
    """The start of loading a block: its redactions and its snapshot."""

    redaction: Crystal[RedactionRecord] | None
    snapshot: Crystal[SnapshotRecord] | None

    @property
    def last_packed(self) -> int:
        """The number of the newest packed version; 0 when none is."""
        return 0 if self.snapshot is None else self.snapshot.value.version

    def is_same(self, other: Head) -> bool:
        """Check whether nothing was packed or rewritten between two reads."""
        pairs = zip(self, other, strict=True)
        return all((a and (a.id, a.rev)) == (b and (b.id, b.rev)) for a, b in pairs)


class VersionLog:
    """The versions of one block, and its document as of the newest one that was read."""

    def __init__(self, universe: Universe, block: str) -> None:
        self._universe, self._block = universe, block
        self._packs = PackStore(universe, block)
        self._document: Document | None = None
        self.tail: list[Version] = []  # versions that are not packed, oldest first
        self._updates: list[bytes] = []  # theirs
        self._head = Head(None, None)
        self._states: tuple[Head, list[bool]] | None = None  # of a head written here: which packs have one
        self._loaded = False
        self._usable = False  # whether the document was proven to be usable since it was last merged
        self._proven: int | None = None  # a commit as of which the newest version in memory is the newest
        self._last = 0  # the newest version before `forget`
        self._pending = False  # whether some of it waits for the store to be online again
        self.lock = asyncio.Lock()  # held while the document is loaded or changed

    @property
    def block(self) -> str:
        """The id of the block."""
        return self._block

    @property
    def document(self) -> Document:
        """The document as of the newest version that was read; empty before that."""
        if self._document is None:
            self._document = Document()
        return self._document

    @property
    def size_bytes(self) -> int:
        """The bytes of the snapshot and of the updates after it."""
        return len(self._base) + sum(map(len, self._updates))

    @property
    def is_loaded(self) -> bool:
        """True when the document is in memory, as of the version that was last read."""
        return self._loaded

    @property
    def last_packed(self) -> int:
        """The number of the newest packed version; 0 when none is."""
        return self._head.last_packed

    @property
    def snapshot(self) -> Crystal[SnapshotRecord] | None:
        """The snapshot that the document was loaded from; None before anything was packed."""
        return self._head.snapshot

    @property
    def redaction(self) -> Crystal[RedactionRecord] | None:
        """The redactions in the block; None when nothing was redacted."""
        return self._head.redaction

    @property
    def number(self) -> int:
        """The number of the newest version that was read."""
        if not self._loaded:
            return self._last
        return self.tail[-1].number if self.tail else self.last_packed

    # -- reading ----------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read and merge the versions that others have written since."""
        async with self.lock:
            await self.refresh_locked()

    async def refresh_locked(self) -> None:
        """Do what `refresh` does, for a caller that holds the lock."""
        if self._loaded and not await self._read_newer():
            self.forget()
        if not self._loaded:
            await self._load()

    async def catch_up(self) -> None:
        """Bring the document up to date before an edit, so that the edit sees everything stored before it.

        It is one read of two small records. Versions that others store after it are merged with the edit.
        While the store is offline, the document in memory is used as it is.
        """
        if self._loaded and not await self._read_newer():
            if self._universe.degraded is not None:
                return
            self.forget()
        if not self._loaded:
            await self._load()
        if not self._usable:  # an edit of a document that cannot be stored as a whole could never be packed
            self.document.check_usable()
            self._usable = True

    async def rebase(self, update: bytes) -> bool:
        """Merge the versions of others below an update of this document that is not stored yet.

        False when the update builds on history that was compacted meanwhile: then the edit must be made
        again, in the document that was loaded.
        """
        if not self._loaded or not await self._read_newer():
            self.forget()
            await self._load()
            try:
                self.document.merge(update)
            except errors.DocumentCorrupt:
                self.forget()  # the update waits in the document for what it builds on
                await self._load()
                return False
        return True

    def check_history(self) -> None:
        """Load the document with its whole history; raises DocumentCorrupt if that is damaged or differs."""
        whole = Document.load(self._base, self._updates, whole=True)
        whole.check_usable()
        if whole.value() != self.document.value():
            raise errors.DocumentCorrupt(f"the state of the block {self._block!r} differs from its history")

    async def newest(self, tx: Transaction) -> Document:
        """Return the current document, for a transaction that must not commit if it has changed by then."""
        while True:
            await self.refresh()
            here, later = (version_id(self._block, self.number + step) for step in (0, 1))
            if await tx.get(here) is not None and await tx.get(later) is None:
                return self.document.fork()

    async def _read_newer(self) -> bool:
        """Read the versions after the newest one in memory; False when the memory is out of date.

        That is so when the newest one in memory was packed since. Versions are packed from the oldest on and
        never the newest: so while this one has a record, the one after it has a record too, or does not
        exist. It is also so when something was redacted or compacted.
        """
        here = self.number
        sure = self._universe.degraded is None
        seq = known_seq(self._universe.backend) if sure and not self._pending else None
        if seq is not None and seq == self._proven:
            return True  # nothing at all was committed since
        if await self._is_newest():
            self._proven = seq
            if self._pending:  # else all of it is marked already
                self._mark_saved(sure)
            return True
        while True:
            sure = self._universe.degraded is None
            came = await self._read_after(self.number - 1, 2 if self.number == here else READ)
            if not came or any(version.op in REWRITES for version, _ in came[1:]):
                return False
            if came[0][0].frontiers != self.tail[-1].frontiers:
                return False  # what was written while the store was offline got another number
            if not self._merge(update for _, update in came[1:]):
                return False
            self._mark_saved(sure)
            self._add(came[1:])
            if len(came) < 2 or (len(came) < READ and self.number > here + 1):
                return True

    def newest_ids(self) -> tuple[str, ...]:
        """Return the ids whose records prove that the newest version in memory is the newest one.

        They are its own, and the one after it; none while it is not loaded, or some of it is not stored.
        """
        if not self._loaded or self._pending:
            return ()
        return version_id(self._block, self.number), version_id(self._block, self.number + 1)

    def is_newest_by(self, found: Sequence[Any]) -> bool:
        """Check whether the records of `newest_ids` prove it."""
        here, later = found
        is_same = isinstance(here, Crystal) and bool(self.tail) and later is None
        return is_same and here.value.frontiers == self.tail[-1].frontiers

    async def _is_newest(self) -> bool:
        """Check whether the newest version in memory is the newest one; reads two records as they are."""
        ids = [version_id(self._block, self.number + step) for step in (0, 1)]
        here, later = await self._universe.get_many(ids, raw=True)
        known = self.tail[-1].frontiers if self.tail else None
        return later is None and here is not None and here.data.get("frontiers") == known

    def _merge(self, updates: Iterable[bytes]) -> bool:
        """Merge updates of others; False when the document in memory cannot take them."""
        some = list(updates)
        try:
            self.document.merge_all(some)
        except errors.DocumentCorrupt:
            return False
        self._usable = self._usable and not some
        return True

    def _mark_saved(self, sure: bool) -> None:
        """Mark all of the document as stored, if `sure`, so that the next update leaves it out."""
        self._pending = self._pending and not sure
        if not self._pending:
            self.document.mark_saved()

    def forget(self) -> None:
        """Drop what is in memory, so that everything is read again."""
        self._last = self.number
        self._document, self._proven, self.tail, self._updates = None, None, [], []
        self._head, self._loaded, self._pending, self._usable = Head(None, None), False, False, False

    async def _load(self) -> None:
        """Load the snapshot and the versions after it; again if they were packed or rewritten in between."""
        while True:
            head, came = await self._read_start(YOUNG)
            if head.snapshot is None and 0 < len(came) < YOUNG:
                break  # that is all, and of one moment
            came = came if head.snapshot is None else []
            came += await self._read_rest(head.last_packed + len(came))
            # A version that rewrote history may have come after the snapshot was read.
            sure = bool(came) and not any(version.op in REWRITES for version, _ in came)
            if sure or head.is_same(await self._find_head()):
                break
        self._load_state(head, came)

    async def _find_head(self) -> Head:
        return (await self._read_start(0))[0]

    async def _read_start(self, count: int) -> tuple[Head, list[tuple[Version, bytes]]]:
        """Return the head, and of the first `count` versions those before the first that does not exist."""
        block = self._block
        ids = [redaction_id(block), snapshot_id(block), second_snapshot_id(block)]
        ids += [version_id(block, number) for number in range(1, count + 1)]
        while True:
            found = await self._universe.get_many(ids)
            redaction, first, second = map(check_readable, found[:3], ids)
            came = _versions_of(found[3:], ids[3:], 1)
            fresh = "" if redaction is None else redaction.value.snapshot
            if redaction is None or not fresh:
                return Head(redaction, first or second), came
            snapshot = await self._read_record(snapshot_id(block, fresh))
            if snapshot is not None:
                return Head(redaction, snapshot), came
            now = await self._read_record(redaction.id)
            if now is not None and now.rev == redaction.rev:
                error = errors.DocumentCorrupt(f"the snapshot of the block {block!r} is missing")
                raise missing(self._universe, error)

    def load_records(self, redaction: Datum | None, snapshot: Datum | None, came: Sequence[Datum]) -> None:
        """Load from a snapshot and the versions after it, which were read for many blocks together."""
        make = self._universe.contracts.lenient
        head = Head(*(each and check_readable(make(each), each.id) for each in (redaction, snapshot)))
        found = [
            (number, check_readable(make(each), each.id))
            for number, each in enumerate(came, head.last_packed + 1)
        ]
        self._load_state(
            head, [(_version(number, each), each.datum.content) for number, each in found if each]
        )

    def _load_state(self, head: Head, came: Sequence[tuple[Version, bytes]]) -> None:
        if head.snapshot is None and not came:
            error = errors.DocumentCorrupt(f"the block {self._block!r} has no versions")
            raise missing(self._universe, error)
        content = b"" if head.snapshot is None else head.snapshot.datum.content
        self._document = Document.load(content, [update for _, update in came])
        self._head, self.tail, self._updates = head, [], []
        self._add(came)
        self._loaded, self._usable = True, False

    async def _read_record(self, id: str) -> Crystal[Any] | None:
        try:
            return check_readable(await self._universe.get(id), id)
        except Unreadable as error:
            raise errors.DocumentCorrupt(
                f"the record {id!r} cannot be read: {error.message}", id=id
            ) from None

    async def _read_rest(self, after: int) -> list[tuple[Version, bytes]]:
        found: list[tuple[Version, bytes]] = []
        while some := await self._read_after(after + len(found), READ):
            found += some
            if len(some) < READ:
                break
        return found

    async def _read_after(self, number: int, count: int) -> list[tuple[Version, bytes]]:
        """Return the versions after one, up to the first that does not exist."""
        ids = [version_id(self._block, number + step) for step in range(1, count + 1)]
        return _versions_of(await self._universe.get_many(ids), ids, number + 1)

    def _add(self, came: Sequence[tuple[Version, bytes]]) -> None:
        for version, update in came:
            self.tail.append(version)
            self._updates.append(update)

    # -- writing ----------------------------------------------------------------------------

    def build_first(self, document: Document, size: int, by: str) -> Datum:
        """Build the record of the first version of a new block."""
        record = VersionRecord("create", 1, 0, size, size, 0, document.frontiers)
        self._last = 1
        datum, _ = write.new_datum(
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
        """Store an update as the next version; None, and nothing stored, when another writer was faster."""
        number = self.number + 1
        datum, _ = write.new_datum(
            self._universe.contracts, record, id=version_id(self._block, number), author=by, content=update
        )
        newest = version_id(self._block, self.number)
        ops: list[Op] = [Put(datum, 0, None, True), *others]
        if self.number:
            ops.append(Check(newest, LIVE))  # else it was packed, and there are later ones
        try:
            done = await self._universe.commit(ops, note=record.message or None)
        except VersionConflict as error:
            if error.details.get("id") in (datum.id, newest):
                return None
            raise
        version = Version(number, datum.created_at, by, **_fields(record))
        self._pending = self._pending or done.seq is None
        self._mark_saved(done.seq is not None)
        self._proven = done.seq
        self._add([(version, update)])
        if done.seq is not None and self._needs_packing():
            with suppress(StorageError):  # the version is stored; the next one tries to pack again
                await self.pack_versions()
        return version

    def _needs_packing(self) -> bool:
        old = len(self.tail) - KEEP
        if old < PACK_SIZE // 4:
            return False
        large = sum(map(len, self._updates[:old])) > PACK_BYTES
        return large or old >= PACK_SIZE or clock.now() - self.tail[0].at > PACK_AGE

    async def pack_versions(self, keep: int | None = None) -> bool:
        """Pack old versions and merge their updates into the snapshot; False when another writer did.

        The document answers everything as before: the snapshot has all of its history.
        """
        # The newest stays: by it others find out whether they are up to date.
        old = len(self.tail) - max(1, KEEP if keep is None else keep)
        if old <= 0:
            return False
        versions, updates = self.tail[:old], self._updates[:old]
        behind = Document.load(self._base, updates, whole=True)
        states = await self._newest_states()
        state = behind.state() if len(states) == STATE_EVERY - 1 and not any(states) else b""
        last = versions[-1].number
        ops: list[Op] = [
            self.put_pack(Pack(versions, updates, state)),
            self.put_snapshot(last, behind),
            self._check_not_redacted(),
            # A writer that has rewritten history meanwhile has packed this one, too.
            Check(version_id(self._block, self.number), LIVE),
            *(Delete(version_id(self._block, each.number)) for each in versions),
        ]
        try:
            await self._universe.commit(ops, note=None)
        except VersionConflict:
            self.forget()
            return False
        written = await self._find_head()
        if written.last_packed != last:  # another writer went on packing
            self.forget()
            return False
        self._head, self.tail, self._updates = written, self.tail[old:], self._updates[old:]
        self._states = written, [bool(state), *states][: STATE_EVERY - 1]
        return True

    def _check_not_redacted(self) -> Check:
        """Return the op that fails when something was redacted meanwhile, which moves the snapshot."""
        known = self._head.redaction
        return Check(redaction_id(self._block), 0 if known is None else known.rev or 0)

    async def _newest_states(self) -> list[bool]:
        """Return whether the newest packs have a state, newest first, of as many as may go without."""
        # Whoever packs or rewrites writes another head: while it is the one written here, nobody else has.
        if self._states is not None and self._states[0] is self._head:
            return self._states[1]
        return [pack.value.state for pack in await self._packs.newest(STATE_EVERY - 1)]

    @property
    def redactions(self) -> int:
        """The number of redactions."""
        return 0 if self.snapshot is None else self.snapshot.value.redactions

    def put_pack(self, pack: Pack, fresh: str = "", record: Crystal[PackRecord] | None = None) -> Put:
        """Return the op that stores a pack: in place of another record, or under a new id."""
        first, last = pack.versions[0].number, pack.versions[-1].number
        said = PackRecord(self._block, first, last, bool(pack.state))
        if record is not None:
            return self.put(said, record.id, encode_pack(pack), record.rev or 0)
        return self.put(said, pack_id(self._block, last, fresh), encode_pack(pack), 0)

    def put_snapshot(self, version: int, document: Document, fresh: str = "") -> Put:
        """Return the op that stores a snapshot: in place of the one that was read, or under a fresh id."""
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
        return self.put(record, id, document.snapshot_with_state(), expect)

    def put(self, value: Any, id: str, content: bytes, expect: int, by: str | None = None) -> Put:
        """Return the op that stores a record of this block."""
        datum, _ = write.new_datum(
            self._universe.contracts, value, id=id, content=content, author=by or self._universe.author
        )
        return Put(datum, expect, None, True)

    # -- history -----------------------------------------------------------------------

    async def versions(self, after: int = 0) -> list[Version]:
        """Return the versions after one, oldest first."""
        async with self.lock:
            await self.refresh_locked()
            return await self._versions(after)

    async def newest_versions(self, count: int) -> list[Version]:
        """Return the newest `count` versions, oldest first."""
        async with self.lock:
            await self.refresh_locked()
            return (await self._versions(max(0, self.number - count)))[-count:] if count > 0 else []

    async def _versions(self, after: int) -> list[Version]:
        last_packed = await self._packs.versions(after) if after < self.last_packed else []
        known = [*(version for version in last_packed if version.number <= self.last_packed), *self.tail]
        return [version for version in known if version.number > after]

    async def find(self, number: int) -> Version:
        """Return one version, or raise VersionNotFound."""
        await self.refresh()
        found = self._in_tail(number)
        if found is None and 1 <= number <= self.last_packed:
            found = await self._packs.find(number)
        if found is None:
            raise errors.VersionNotFound(
                f"version {number} does not exist", hint=f"the newest is {self.number}", version=number
            )
        return found

    async def at(self, number: int) -> Document:
        """Return the document as it was at a version."""
        found = await self.find(number)
        held = self.find_in_memory(number)
        if held is None:
            return await self._packs.at(found)
        return held.fork() if held is self.document else held

    def find_in_memory(self, number: int) -> Document | None:
        """Return the document as of a version without reading anything; None when it is too old."""
        if number == self.number:
            return self.document
        if self._in_tail(number) is None:
            return None
        return Document.load(self._base, self._updates[: number - self.last_packed])

    def _in_tail(self, number: int) -> Version | None:
        place = number - self.last_packed - 1
        return self.tail[place] if 0 <= place < len(self.tail) else None

    @property
    def _base(self) -> bytes:
        """The content of the snapshot."""
        return b"" if self.snapshot is None else self.snapshot.datum.content


def _versions_of(found: Sequence[Any], ids: Sequence[str], first: int) -> list[tuple[Version, bytes]]:
    """Return the versions and updates of records from a number on, up to the first that does not exist."""
    out: list[tuple[Version, bytes]] = []
    for number, (each, id) in enumerate(zip(found, ids, strict=True), first):
        if (record := check_readable(each, id)) is None:
            break
        out.append((_version(number, record), record.datum.content))
    return out


def _version(number: int, found: Crystal[Any]) -> Version:
    return Version(number, found.created_at, found.author or "", **_fields(found.value))


def _fields(record: VersionRecord) -> dict[str, Any]:
    return vars(record)
