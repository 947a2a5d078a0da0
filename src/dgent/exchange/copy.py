"""Everything from one universe to another, whatever their engines.

The source's log is replayed commit by commit, so that the copy has the history too, with authors and
notes. Each commit also moves a mark in the target that says how far it is: a copy that was stopped
goes on there, and none is done twice. At the end both are compared, record by record.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

import msgspec

from dgent import clock, codec
from dgent.errors import Conflict, Corrupt, HistoryGone, InputError, Unavailable, Unsupported
from dgent.exchange.snapshot import Moment
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import EVERY_ROOM, Change, Commit, Delete, Op, Put
from dgent.store.upkeep import forgotten_among
from dgent.system.progress import Progress, ProgressReporter
from dgent.universe import feed
from dgent.universe.contract import Contracts
from dgent.universe.position import time_of
from dgent.universe.universe import Universe


async def forget_gone(source: Universe, target: Universe, at_us: int) -> None:
    """Forget in a copy, with every version, the records that its source has forgotten.

    `at_us` is the time of the commit. What a redaction erased in the source goes with them.
    """
    gone: list[str] = []
    async for some in _known(target):
        gone += await _gone(source, target, list(some))
    if gone:
        await target.backend.forget(gone, "system", EVERY_ROOM, at_us=at_us)
    await target.forget()  # what an earlier call may have left on the disk


async def _gone(source: Universe, target: Universe, ids: Sequence[str]) -> list[str]:
    forgotten = [*await forgotten_among(source.backend, ids)]
    if not forgotten:
        return []
    again = await forgotten_among(target.backend, forgotten)
    live = await source.get_many(forgotten, raw=True)
    found = []
    for id, now in zip(forgotten, live, strict=True):
        # One that was made anew has versions, and those stay; in the copy it was forgotten before.
        if not (id in again if now is not None else await source.history(id, limit=1)):
            found.append(id)
    return found


async def _known(target: Universe) -> AsyncIterator[dict[str, str | None]]:
    """The ids that a store knows, live or in its log, and their schemas; some at a time."""
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
ATTEMPTS = 8  # at reading both whole
OWN = "copied, beside what the log shows"  # the note of commits that the source does not have
_EVERYTHING = Query(limit=None, descending=False)


@dataclass(frozen=True)
class Mark:
    """How far a copy is: the source, and the last of its commits that the target has.

    `step` counts the target's own commits, so that each of them changes the mark: what was written
    later than the mark was written by somebody else. The stored mark also has `at`, the time of the commit
    where it is known, by which a source that was restored is recognized; and `forgets`, unless the copy
    was made before copies followed what their source forgets.
    """

    source: str
    seq: int
    step: int = 0


MARK = Schema("dgent.copy", contract=Mark, history="none", feed=False)


class Copied(msgspec.Struct, frozen=True):
    """What a copy holds: as of which commit of the source, how much of it is new, and what proves it."""

    seq: int
    commits: int
    records: int
    sha256: str


async def copy(source: Universe, target: Universe, *, progress: Progress | None = None) -> Copied:
    """Copy everything, or what is new since the last copy; proven by count and digest.

    The target is a copy and nothing else: what the source no longer has is deleted there. So a target
    with records of its own is refused, and one that somebody else wrote to since the last copy.
    """
    copying = await _Copying.begin(source, target)
    pace = ProgressReporter(progress)
    for attempt in range(ATTEMPTS):
        seq = await copying.catch_up(pace)
        try:
            records, sha256 = await copying.reconcile(seq) or await copying.proven(seq)
            break
        except HistoryGone:
            # A record that keeps no old versions changed while it was read: as of now it is there.
            if attempt == ATTEMPTS - 1:
                raise
    pace.end()
    return Copied(seq, copying.commits, records, sha256)


async def replay(source: Universe, target: Universe, *, progress: Progress | None = None) -> int:
    """Do the commits of a store again in another one, and no more; returns the last of them.

    What the log does not show is not there yet: schemas that are kept off the feed, and versions that are
    not kept.
    """
    return await (await _Copying.begin(source, target)).catch_up(ProgressReporter(progress))


async def mirror(source: Universe, target: Universe) -> AsyncIterator[int]:
    """Copy, then follow the source; gives the number of each commit once the target has it.

    Schemas that are kept off the feed are brought up to date by `copy` only.
    """
    done = await copy(source, target)
    yield done.seq
    copying = await _Copying.begin(source, target)
    # As they are stored: not as the values that this program, which may know some schemas, makes of them.
    async with aclosing(feed.watch(source.backend, Contracts(), done.seq, None)) as changes:
        async for change in changes:
            if change.seq is None:
                continue  # pending, or only a notice; it has a number when it is done
            await copying.replay(change)
            yield change.seq


class _Copying:
    """One copy under way; the mark is moved with every commit, and only from where it was."""

    def __init__(self, source: Universe, target: Universe, name: str, mark: Datum | None) -> None:
        self.source, self.target = source, target
        self._name = name
        self._rev = 0 if mark is None or mark.rev is None else mark.rev
        self.seq = 0 if mark is None else int(mark.data["seq"])
        self._step = 0 if mark is None else int(mark.data["step"])
        self._at: int | None = None  # of the source's commit that is repeated, or was repeated last
        self._time = "" if mark is None else str(mark.data.get("at", ""))  # of the source's commit `seq`
        self._follows_forgets = mark is None or bool(mark.data.get("forgets"))
        self._forgot = self.seq  # what the source forgot up to this commit is forgotten in the target
        self.commits = 0  # that were replayed

    @classmethod
    async def begin(cls, source: Universe, target: Universe) -> _Copying:
        """Find out how far an earlier copy came; refuse a target that is no copy of this source."""
        for universe in (source, target):
            if universe.degraded is not None:
                # What is at hand is not all there is, and a copy deletes what the source does not have.
                raise Unavailable(
                    f"a copy needs both stores, and one cannot be reached: {universe.degraded.reason}"
                )
        epochs = [getattr(universe.backend, "epoch", b"") for universe in (source, target)]
        if not all(epochs):
            raise Unsupported("one of the engines does not say which store it is")
        name = epochs[0].hex()
        if epochs[0] == epochs[1]:
            raise InputError("a universe cannot be copied to itself", field="target")
        target.register(MARK)
        marks = await target.query(schema=MARK.name, limit=2, raw=True)
        mine = [mark for mark in marks if mark.data.get("source") == name]
        if not mine and await target.count(Query(limit=None)):
            raise Conflict(
                "the target holds records of its own, or is the copy of another store",
                hint="copy to an empty place",
            )
        if mine:
            await _refuse_strangers(target, mine[0])
        copying = cls(source, target, name, mine[0] if mine else None)
        if not mine:
            copying._forgot = await source.seq()  # what was forgotten before the first look never comes
        elif not copying._follows_forgets:
            await copying._forget()
        return copying

    # -- replaying ------------------------------------------------------------------------

    async def catch_up(self, pace: ProgressReporter) -> int:
        """Replay what is new until now; the last commit."""
        seq = await self.source.seq()
        if self.seq > seq:
            raise _restored(f"the copy has commits up to {self.seq}, and the source only up to {seq}")
        now = await time_of(self.source.backend, self.seq) if self._time else ""
        if now and now != self._time:
            raise _restored(f"commit {self.seq} is another one in the source than in the copy")
        pace.total = self.commits + seq - self.seq
        while self.seq < seq:
            for change in await self.next_changes(seq):
                await self.replay(change)
                self.commits += 1
                pace.at(self.commits)
        return seq

    async def next_changes(self, until: int) -> list[Change]:
        """The next commits of the source; where they were compacted away, its records at that point."""
        try:
            found = await self.source.changes(self.seq, limit=BATCH)
        except HistoryGone as gone:
            await self._begin_at(int(gone.details["first_seq"]) - 1)
            return []
        wanted = [change for change in found if change.seq is not None and change.seq <= until]
        if not wanted:
            # What is left has nothing for the feed; the comparison at the end covers it.
            await self._commit([], "system", OWN, until)
        return wanted

    async def _begin_at(self, floor: int) -> None:
        """Put the records as they were at a commit; those that keep no old versions as they are now."""
        await self._forget()
        first = await self.source.changes(floor, limit=1)
        self._at = clock.to_us(first[0].at) if first else None
        batch: list[Datum] = []
        async with aclosing(Moment(self.source, floor).records(_EVERYTHING)) as found:
            async for datum in found:
                if datum.schema == MARK.name:
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
        """Put records as they are."""
        await self._commit([_put(datum) for datum in batch], "system", OWN, self.seq)

    async def replay(self, change: Change) -> None:
        """Do a commit of the source again; versions that it no longer keeps are left out."""
        assert change.seq is not None, "only commits of the store itself are copied"
        if change.kind == "forget" and change.seq > self._forgot:
            # Before the mark moves on: if it is cut off, it is done again.
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
        """Forget in the target what the source has forgotten until now, no earlier than its last commit."""
        until = await self.source.seq()
        await forget_gone(self.source, self.target, at_us)
        self._forgot = until

    async def _commit(
        self, ops: Sequence[Op], author: str, note: str | None, seq: int, time: str = ""
    ) -> None:
        if seq == self.seq and not ops:
            return
        self._time = time or (self._time if seq == self.seq else "")
        mark = Datum(
            f"dgent.copy:{self._name}",
            data={
                "source": self._name,
                "seq": seq,
                "step": self._step + 1,
                "forgets": True,
                "at": self._time,
            },
            author="system",
            schema=MARK.name,
            schema_version=MARK.version,
        )
        ops = (*ops, Put(mark, self._rev))
        commit = Commit(ops, author=author, note=note, room=EVERY_ROOM, at_us=self._at)
        done = await self.target.backend.commit(commit, self.target.contracts)
        self._rev, self.seq, self._step = done.written[-1].rev, seq, self._step + 1

    # -- comparing ------------------------------------------------------------------------

    async def reconcile(self, seq: int) -> tuple[int, str] | None:
        """Bring over what the feed does not show: quiet schemas, and versions that are not kept.

        Gives what both hold when there was nothing to bring over, so that nobody needs to look again.
        """
        ours, theirs = _Sum(), _Sum()
        async for batch in self._batches(self.source, seq):
            ours.add(batch)
            held = await self.target.get_many([datum.id for datum in batch], raw=True)
            pairs = zip(batch, held, strict=True)
            different = [new for new, old in pairs if old is None or _proof(new) != _proof(old)]
            await self._put_all(different)
        gone: list[Datum] = []
        async for batch in self._batches(self.target, None):
            theirs.add(batch)
            held = await self.source.get_many([datum.id for datum in batch], as_of=seq, raw=True)
            gone += [datum for datum, old in zip(batch, held, strict=True) if old is None]
        # After the reading: it is of one moment, and the mark keeps no older versions of itself.
        for start in range(0, len(gone), BATCH):
            ops = [Delete(datum.id) for datum in gone[start : start + BATCH]]
            await self._commit(ops, "system", OWN, self.seq)
        return ours.told() if ours.told() == theirs.told() else None

    async def proven(self, seq: int) -> tuple[int, str]:
        """How many records both hold, and their digest; Corrupt when they differ after all."""
        ours, theirs = await self._summed(self.source, seq), await self._summed(self.target, None)
        if ours != theirs:
            raise Corrupt(
                f"the copy differs: {ours[0]} records in the source, {theirs[0]} in the target",
                hint="somebody else writes to the target; copy again when nobody does",
            )
        return ours

    async def _summed(self, universe: Universe, as_of: int | None) -> tuple[int, str]:
        held = _Sum()
        async for batch in self._batches(universe, as_of):
            held.add(batch)
        return held.told()

    async def _batches(self, universe: Universe, as_of: int | None) -> AsyncIterator[list[Datum]]:
        """Every record but the marks of copies, some at a time."""
        batch: list[Datum] = []
        everything = cast("AsyncGenerator[Datum]", universe.iterate(_EVERYTHING, as_of=as_of, raw=True))
        async with aclosing(everything) as records:
            async for datum in records:
                if datum.schema == MARK.name:
                    continue
                if datum.problem is not None:
                    raise Corrupt(datum.problem, id=datum.id)
                batch.append(datum)
                if len(batch) == BATCH:
                    yield batch
                    batch = []
        if batch:
            yield batch


def _restored(why: str) -> Conflict:
    """What the copy has more would be deleted, and may be nowhere else."""
    return Conflict(f"{why}: it was restored", hint="copy to an empty place; what is newer is in this copy")


async def _refuse_strangers(target: Universe, mark: Datum) -> None:
    """A copy in which somebody wrote is somebody's store: nothing of it may be deleted."""
    later = await target.changes(mark.seq or 0, limit=BATCH)
    written = [change for change in later if change.kind != "forget"]
    if written:
        raise Conflict(
            f"{written[0].author} wrote to the copy, in its commit {written[0].seq}",
            hint="it is a store of its own now; copy to an empty place",
        )


class _Sum:
    """Records counted and summed, in any order: two engines need not share one for equal times."""

    def __init__(self) -> None:
        self._count = self._total = 0

    def add(self, batch: Sequence[Datum]) -> None:
        self._count += len(batch)
        self._total += sum(int.from_bytes(_proof(datum), "big") for datum in batch)

    def told(self) -> tuple[int, str]:
        return self._count, f"{self._total % 2**256:064x}"


def _put(datum: Datum) -> Put:
    return Put(datum.replace(rev=None, seq=None))


def _proof(datum: Datum) -> bytes:
    """What a record is, apart from its numbers in a store."""
    names = [datum.id, datum.schema, datum.schema_version, datum.author, datum.source, datum.parent_id]
    rest = [clock.text(datum.created_at), sorted(datum.tags), datum.content.hex(), datum.extra]
    return hashlib.sha256(codec.canonical([names, rest, datum.data])).digest()
