"""Copy everything from one universe to another, whatever their engines.

The log of the source is replayed commit by commit, so that the copy has the history too, with authors and
notes. Each commit also moves a mark in the target that records the progress, so that an interrupted copy
resumes there and repeats nothing. At the end both are compared, record by record.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import cast

import msgspec

from dgent import clock, codec
from dgent.errors import Conflict, Corrupt, HistoryGone, InputError, StorageError, Unavailable, Unsupported
from dgent.exchange.contents import check_contents, copy_contents
from dgent.exchange.snapshot import Snapshot
from dgent.exchange.tables import check_tables, copy_tables, describe_tables, follow_tables
from dgent.exchange.telemetry import copy_events
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import EVERY_ROOM, Change, Commit, Delete, Op, Put
from dgent.store.upkeep import forgotten_among
from dgent.system.progress import Progress, ProgressReporter
from dgent.universe import feed
from dgent.universe.blob import drop_unused
from dgent.universe.contract import Contracts
from dgent.universe.position import time_of
from dgent.universe.telemetry import forget_events
from dgent.universe.universe import Universe


async def sync_forgotten(source: Universe, target: Universe, at_us: int) -> None:
    """Forget in a copy, with every version, the records that its source has forgotten.

    `at_us` is the time of the commit. Records that a redaction erased in the source are included.
    """
    gone: list[str] = []
    async for some in _iterate_ids(target):
        gone += await _find_forgotten(source, target, list(some))
    if gone:
        from dgent.blocks.record import text_id  # most copies have nothing to forget, and need no blocks

        # The copy may have texts of these blocks that its own searches made, with what was redacted.
        blocks = sorted({id.partition("/")[0] for id in gone if "/" in id})
        texts = [text_id(block) for block in blocks if text_id(block) not in gone]
        async with drop_unused(target, gone):
            await target.backend.forget([*gone, *texts], "system", EVERY_ROOM, at_us=at_us)
        await forget_events(target, gone)
    await target.forget()  # finishes an interrupted earlier call


async def _find_forgotten(source: Universe, target: Universe, ids: Sequence[str]) -> list[str]:
    forgotten = [*await forgotten_among(source.backend, ids)]
    if not forgotten:
        return []
    again = await forgotten_among(target.backend, forgotten)
    live = await source.get_many(forgotten, raw=True)
    found = []
    for id, now in zip(forgotten, live, strict=True):
        # A record that was created again has versions, which stay; the copy forgot the earlier ones.
        if not (id in again if now is not None else await source.history(id, limit=1)):
            found.append(id)
    return found


async def _iterate_ids(target: Universe) -> AsyncIterator[dict[str, str | None]]:
    """Yield the ids of a store, live or in its log, with their schemas; in batches."""
    some: dict[str, str | None] = {}
    async for datum in target.iterate(Query(limit=None, content=False), raw=True):
        some[datum.id] = datum.schema
        if len(some) == BATCH:
            yield some
            some = {}
    yield some
    since, seen = 0, set[str]()
    while True:
        try:
            changes = await target.changes(since, limit=BATCH)
        except HistoryGone as cut:
            since = int(cut.details["first_seq"]) - 1
            continue
        items = [item for change in changes for item in change.items if item.id is not None]
        some = {str(item.id): item.schema for item in items if item.id not in seen}
        seen |= some.keys()
        if some:
            yield some
        if not changes:
            return
        since = changes[-1].seq or since


BATCH = 500
EVENTS_S = 0.5  # how often a mirror looks for new telemetry
ATTEMPTS = 8  # at comparing both
OWN = "copied, beside what the log shows"  # the note of commits that the source does not have
_EVERYTHING = Query(limit=None, descending=False)


@dataclass(frozen=True)
class CopyMark:
    """The progress of a copy: the source, and the last of its commits that the target has.

    `step` counts the commits of the copy in the target, so that each of them changes the mark: a commit later
    than the mark is by another writer. The stored mark also has `at`, its commit's time if known,
    by which a restored source is recognized; and `forgets`, unless the copy was made before copies followed
    what their source forgets.
    """

    source: str
    seq: int
    step: int = 0


MARK = Schema("dgent.copy", contract=CopyMark, history="none", feed=False)


class Copied(msgspec.Struct, frozen=True):
    """The result of a copy: the commit of the source, the commits and records copied, and their digest.

    `tables` counts the own tables copied; `left_out` names those that were not, and parts of them.
    """

    seq: int
    commits: int
    records: int
    sha256: str
    tables: int = 0
    left_out: list[str] = []


async def copy(source: Universe, target: Universe, *, progress: Progress | None = None) -> Copied:
    """Copy everything, or what is new since the last copy; verified by count and digest.

    The target is only a copy: records that the source no longer has are deleted there. So a target with other
    records is refused, and one that anyone else wrote to since the last copy. Own tables are copied between
    stores of the same engine, sqlite or postgres.
    """
    run = await _CopyRun.begin(source, target)
    await check_tables(source, target, run.tables)
    pace = ProgressReporter(progress)
    for attempt in range(ATTEMPTS):
        seq = await run.catch_up(pace)
        try:
            records, sha256 = await run.reconcile(seq) or await run.verify(seq)
            break
        except HistoryGone:
            # A record without history changed while it was read: the next attempt reads it as of then.
            if attempt == ATTEMPTS - 1:
                raise
    await run.copy_events()
    left_out = await run.copy_tables()
    pace.end()
    return Copied(seq, run.commits, records, sha256, len(run.tables), left_out)


async def replay(source: Universe, target: Universe, *, progress: Progress | None = None) -> int:
    """Repeat the commits of a store in another one; return the last of them.

    Schemas that are kept off the feed, and versions that are not kept, are not in the log and so not copied.
    """
    return await (await _CopyRun.begin(source, target)).catch_up(ProgressReporter(progress))


async def mirror(source: Universe, target: Universe) -> AsyncIterator[int]:
    """Copy, then follow the source; yield the seq of each commit once the target has it.

    Telemetry and own tables follow by themselves, without a seq. Schemas that are kept off the feed are
    updated by `copy` only.
    """
    tables = await describe_tables(source)
    done = await copy(source, target)
    yield done.seq
    run = await _CopyRun.begin(source, target)
    beside = [asyncio.create_task(run.follow_events()), asyncio.create_task(run.follow_tables(tables))]
    try:
        async with aclosing(_follow(source, run, done.seq)) as seqs:
            while (seq := await _next_unless_failed(seqs, beside)) is not None:
                yield seq
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


async def _next_unless_failed(seqs: AsyncGenerator[int], beside: Sequence[asyncio.Task[None]]) -> int | None:
    """Return the next seq, None at the end; raises what ended one of the tasks beside."""
    step = asyncio.ensure_future(anext(seqs, None))
    try:
        # A task that ended without an error had nothing to do.
        running = [task for task in beside if not task.done() or task.exception() is not None]
        while not step.done():
            await asyncio.wait([step, *running], return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in running if task.done()]:
                running.remove(task)
                task.result()
        return await step
    finally:
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)


async def _follow(source: Universe, run: _CopyRun, since: int) -> AsyncGenerator[int]:
    """Replay each commit of the source as it is made; yield its seq."""
    # As stored, not as values of the schemas that this program has registered.
    async with aclosing(feed.watch(source.backend, Contracts(), since, None)) as changes:
        async for change in changes:
            if change.seq is None:
                continue  # pending, or only a notice; it gets a seq when it is committed
            await run.replay(change)
            yield change.seq


class _CopyRun:
    """One run of a copy; every commit moves the mark, and only from where it was."""

    def __init__(self, source: Universe, target: Universe, name: str, mark: Datum | None) -> None:
        self.source, self.target = source, target
        self._name = name
        self._rev = 0 if mark is None or mark.rev is None else mark.rev
        self.seq = 0 if mark is None else int(mark.data["seq"])
        self._step = 0 if mark is None else int(mark.data["step"])
        self._at: int | None = None  # time of the source's commit that is repeated
        self._time = "" if mark is None else str(mark.data.get("at", ""))  # of the source's commit `seq`
        self._follows_forgets = mark is None or bool(mark.data.get("forgets"))
        self._forgot = self.seq  # what the source forgot up to this commit is forgotten in the target
        self.commits = 0  # that were replayed
        self._events = 0 if mark is None else int(mark.data.get("events", 0))  # how far telemetry is copied
        # The digests of the own tables that were copied, by name.
        self.tables: dict[str, str] = {} if mark is None else dict(mark.data.get("tables") or {})
        self._moving = asyncio.Lock()  # the mark: records and tables move it

    @classmethod
    async def begin(cls, source: Universe, target: Universe) -> _CopyRun:
        """Read the progress of an earlier copy; refuse a target that is not a copy of this source."""
        for universe in (source, target):
            if universe.degraded is not None:
                # The local copy may lack records, and a copy deletes what the source does not have.
                raise Unavailable(
                    f"a copy needs both stores, but one is unavailable: {universe.degraded.reason}"
                )
        epochs = [getattr(universe.backend, "epoch", b"") for universe in (source, target)]
        if not all(epochs):
            raise Unsupported("one of the engines does not identify its store")
        name = epochs[0].hex()
        if epochs[0] == epochs[1]:
            raise InputError("a universe cannot be copied to itself", field="target")
        target.register(MARK)
        marks = await target.query(schema=MARK.name, limit=2, raw=True)
        mine = [mark for mark in marks if mark.data.get("source") == name]
        if not mine and await target.count(Query(limit=None)):
            raise Conflict(
                "the target has other records, or is the copy of another store",
                hint="copy to an empty place",
            )
        if mine:
            await _check_unwritten(target, mine[0])
        run = cls(source, target, name, mine[0] if mine else None)
        if not mine:
            run._forgot = await source.seq()  # earlier forgotten records are never copied
        elif not run._follows_forgets:
            await run._forget()
        return run

    # -- replaying ------------------------------------------------------------------------

    async def catch_up(self, pace: ProgressReporter) -> int:
        """Replay the new commits; return the last one."""
        seq = await self.source.seq()
        if self.seq > seq:
            raise _make_restored_error(
                f"the copy has commits up to {self.seq}, and the source only up to {seq}"
            )
        now = await time_of(self.source.backend, self.seq) if self._time else ""
        if now and now != self._time:
            raise _make_restored_error(f"commit {self.seq} differs between the source and the copy")
        pace.total = self.commits + seq - self.seq
        while self.seq < seq:
            for change in await self.next_changes(seq):
                await self.replay(change)
                self.commits += 1
                pace.at(self.commits)
        return seq

    async def next_changes(self, until: int) -> list[Change]:
        """Return the next commits of the source; if they were compacted, copy its records at that point."""
        try:
            found = await self.source.changes(self.seq, limit=BATCH)
        except HistoryGone as gone:
            await self._begin_at(int(gone.details["first_seq"]) - 1)
            return []
        wanted = [change for change in found if change.seq is not None and change.seq <= until]
        if not wanted:
            # The remaining commits are not on the feed; the comparison at the end covers them.
            await self._commit([], "system", OWN, until)
        return wanted

    async def _begin_at(self, floor: int) -> None:
        """Write the records as of a commit; those without history as they are now."""
        await self._forget()
        first = await self.source.changes(floor, limit=1)
        self._at = clock.to_us(first[0].at) if first else None
        batch: list[Datum] = []
        async with aclosing(Snapshot(self.source, floor).records(_EVERYTHING)) as found:
            async for datum in found:
                if datum.schema == MARK.name or datum.schema in reserved.UNSHARED:
                    continue
                if datum.problem is not None:
                    raise Corrupt(datum.problem, id=datum.id)
                batch.append(datum)
                if len(batch) == BATCH:
                    await self._put_all(batch)
                    batch = []
        await self._put_all(batch)
        await self._commit([], "system", OWN, floor)

    async def _put_all(self, batch: Sequence[Datum]) -> None:
        """Write records unchanged in one commit."""
        await self._commit([_put(datum) for datum in batch], "system", OWN, self.seq)

    async def replay(self, change: Change) -> None:
        """Repeat a commit of the source, without versions that it no longer keeps."""
        assert change.seq is not None, "only commits of the store itself are copied"
        if change.kind == "forget" and change.seq > self._forgot:
            # Before the mark moves: if it is interrupted, it is repeated.
            await self._forget(clock.to_us(change.at))
        ops: list[Op] = []
        for item in change.items:
            if item.op == "put" and isinstance(item.datum, Datum) and item.datum.problem is None:
                ops.append(_put(item.datum))
            elif item.op == "delete" and item.id is not None:
                ops.append(Delete(item.id))
        self._at = clock.to_us(change.at)
        await self._commit(ops, change.author, change.note, change.seq, clock.text(change.at))

    async def _forget(self, at_us: int = 0) -> None:
        """Forget in the target what the source has forgotten until now."""
        until = await self.source.seq()
        await sync_forgotten(self.source, self.target, at_us)
        self._forgot = until

    async def copy_events(self) -> None:
        """Copy the telemetry that is new."""
        after = await copy_events(self.source, self.target, self._events)
        if after != self._events:
            self._events = after
            await self._commit([], "system", OWN, None)

    async def copy_tables(self) -> list[str]:
        """Copy the caller's own tables; return what was left out."""
        return await copy_tables(self.source, self.target, self.tables, self._note_tables)

    async def _note_tables(self, tables: dict[str, str]) -> None:
        if tables != self.tables:
            self.tables = tables
            await self._commit([], "system", OWN, None)

    async def follow_tables(self, last: str) -> None:
        """Copy the own tables whenever they changed; raises Conflict if others wrote to the copies."""
        await follow_tables(self.source, self.target, last, self.copy_tables)

    async def follow_events(self) -> None:
        """Copy telemetry as it arrives; the next commit, or the next copy, notes how far it is."""
        while True:
            await asyncio.sleep(EVENTS_S)
            with suppress(StorageError):  # the commits that are copied beside it say what is wrong
                self._events = await copy_events(self.source, self.target, self._events)

    async def _commit(
        self,
        ops: Sequence[Op],
        author: str,
        note: str | None,
        seq: int | None,
        time: str = "",
    ) -> None:
        """Write records along with the mark; without a `seq` the mark stays there, and its rest is new."""
        async with self._moving:
            await self._commit_alone(ops, author, note, seq, time)

    async def _commit_alone(
        self, ops: Sequence[Op], author: str, note: str | None, seq: int | None, time: str
    ) -> None:
        if seq == self.seq and not ops:
            return
        seq = self.seq if seq is None else seq
        self._time = time or (self._time if seq == self.seq else "")
        mark = Datum(
            f"dgent.copy:{self._name}",
            data={
                "source": self._name,
                "seq": seq,
                "step": self._step + 1,
                "forgets": True,
                "at": self._time,
                "events": self._events,
                **({"tables": self.tables} if self.tables else {}),
            },
            author="system",
            schema=MARK.name,
            schema_version=MARK.version,
        )
        records = (op.datum for op in ops if isinstance(op, Put))
        async with copy_contents(self.source, self.target, records) as contents:
            ops = (*ops, *contents, Put(mark, self._rev))
            commit = Commit(ops, author=author, note=note, room=EVERY_ROOM, at_us=self._at)
            done = await self.target.backend.commit(commit, self.target.contracts)
        self._rev, self.seq, self._step = done.written[-1].rev, seq, self._step + 1

    # -- comparing ------------------------------------------------------------------------

    async def reconcile(self, seq: int) -> tuple[int, str] | None:
        """Copy what the feed does not show: schemas kept off it, and versions that are not kept.

        Returns the count and digest of both if nothing was to copy, so that they need not be read again.
        """
        ours, theirs = _Sum(), _Sum()
        async for batch in self._batches(self.source, seq):
            ours.add(batch)
            held = await self.target.get_many([datum.id for datum in batch], raw=True)
            pairs = zip(batch, held, strict=True)
            different = [new for new, old in pairs if old is None or _hash_record(new) != _hash_record(old)]
            await self._put_all(different)
            await check_contents(self.target, batch)
        gone: list[Datum] = []
        async for batch in self._batches(self.target, None):
            theirs.add(batch)
            held = await self.source.get_many([datum.id for datum in batch], as_of=seq, raw=True)
            gone += [datum for datum, old in zip(batch, held, strict=True) if old is None]
        # After the reading, which is as of one moment: the mark keeps no older versions of itself.
        for start in range(0, len(gone), BATCH):
            ops = [Delete(datum.id) for datum in gone[start : start + BATCH]]
            await self._commit(ops, "system", OWN, self.seq)
        return ours.result() if ours.result() == theirs.result() else None

    async def verify(self, seq: int) -> tuple[int, str]:
        """Return the number of records in both and their digest; raises Corrupt if they differ."""
        ours, theirs = await self._compute_sum(self.source, seq), await self._compute_sum(self.target, None)
        if ours != theirs:
            raise Corrupt(
                f"the copy differs: {ours[0]} records in the source, {theirs[0]} in the target",
                hint="another program writes to the target; copy again when it has stopped",
            )
        return ours

    async def _compute_sum(self, universe: Universe, as_of: int | None) -> tuple[int, str]:
        held = _Sum()
        async for batch in self._batches(universe, as_of):
            held.add(batch)
        return held.result()

    async def _batches(self, universe: Universe, as_of: int | None) -> AsyncIterator[list[Datum]]:
        """Yield every record but the marks of copies and what follows from other records, in batches."""
        batch: list[Datum] = []
        everything = cast("AsyncGenerator[Datum]", universe.iterate(_EVERYTHING, as_of=as_of, raw=True))
        async with aclosing(everything) as records:
            async for datum in records:
                if datum.schema == MARK.name or datum.schema in reserved.UNSHARED:
                    continue
                if datum.problem is not None:
                    raise Corrupt(datum.problem, id=datum.id)
                batch.append(datum)
                if len(batch) == BATCH:
                    yield batch
                    batch = []
        if batch:
            yield batch


def _make_restored_error(why: str) -> Conflict:
    """Return the error for a restored source: newer records would be deleted from the copy."""
    return Conflict(
        f"{why}: it was restored", hint="copy to an empty place; newer records are only in this copy"
    )


async def _check_unwritten(target: Universe, mark: Datum) -> None:
    """Refuse a copy that someone else wrote to, so that nothing of theirs is deleted; raises Conflict."""
    later = await target.changes(mark.seq or 0, limit=BATCH)
    written = [change for change in later if change.kind != "forget"]
    if written:
        raise Conflict(
            f"{written[0].author} wrote to the copy, in its commit {written[0].seq}",
            hint="it is an independent store now; copy to an empty place",
        )


class _Sum:
    """The count and the sum of hashes of records, which do not depend on their order."""

    def __init__(self) -> None:
        self._count = self._total = 0

    def add(self, batch: Sequence[Datum]) -> None:
        self._count += len(batch)
        self._total += sum(int.from_bytes(_hash_record(datum), "big") for datum in batch)

    def result(self) -> tuple[int, str]:
        return self._count, f"{self._total % 2**256:064x}"


def _put(datum: Datum) -> Put:
    return Put(datum.replace(rev=None, seq=None, updated_at=None))


def _hash_record(datum: Datum) -> bytes:
    """Return the hash of a record without its numbers in a store (rev, seq)."""
    names = [datum.id, datum.schema, datum.schema_version, datum.author, datum.source, datum.parent_id]
    rest = [clock.text(datum.created_at), sorted(datum.tags), datum.content.hex(), datum.extra]
    return hashlib.sha256(codec.canonical([names, rest, datum.data])).digest()
