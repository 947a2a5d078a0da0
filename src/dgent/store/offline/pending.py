"""Commits that wait in the outbox: accepted while the store is unavailable, replayed when it is back.

They are replayed in order, once each; refused ones become conflicts. A commit is sent with its key, so that
one which arrived before is answered and not done again. It is removed from the outbox after the store has
it. If the program is killed in between, it is sent again.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dgent import clock
from dgent.errors import Conflict, DgentError, OutcomeUnknown, StorageError, VersionConflict
from dgent.model.datum import Datum
from dgent.store.backend import LIVE, NEW, Backend, Check, Commit, Committed, Expect, Op, Put, View, Written
from dgent.store.engine.commit import prepare
from dgent.store.offline import event
from dgent.store.offline.entry import OutboxEntry, commit_of, make_entry, name_of
from dgent.store.offline.outbox import Clash, Outbox, SendAttempt
from dgent.store.offline.overlay import PendingRecord

if TYPE_CHECKING:
    from dgent.store.offline.backend import DegradableBackend


SHARE = 2  # replayed commits for each one that may be added to the outbox
BATCH = 64  # commits that are removed from the outbox together
KEY_LIFE_US = 6 * 24 * 3600 * 1_000_000
"""The time that any engine keeps a key; dgent's engines keep keys for seven days."""
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


# -- accepting ----------------------------------------------------------------------------


async def keep_commit(backend: DegradableBackend, commit: Commit) -> Committed:
    """Add a commit to the outbox; raises Unavailable if it depends on what the store has."""
    assert commit.key is not None, "a degradable store gives every commit a key"
    prepared = prepare(commit)
    records = await backend.overlay.records()
    if (earlier := backend.outbox.pending.get(name_of(commit.key))) is None:
        for op in commit.ops:
            await _check(backend, op, records)
        if commit.guard is not None or commit.kind != "data":
            backend._refuse("a transaction that read something" if commit.guard else f"{commit.kind}")
    after = [_after(op, records) for op in commit.ops]
    entry, repeated = await backend.outbox.append(make_entry(prepared, commit.key, after))
    done = await _answer(backend, entry, repeated)
    if earlier is None and not repeated:
        backend.notices.notify(
            event.make_pending_change(
                entry, {each.id: each.rev for each in done.written if each.id is not None}
            )
        )
    return done


async def pending_outcome(backend: DegradableBackend, key: str) -> Committed | None:
    """Return the receipt of a commit in the outbox; None if no pending commit has the key."""
    entry = backend.outbox.pending.get(name_of(key))
    return None if entry is None else await _answer(backend, entry, True)


async def _answer(backend: DegradableBackend, entry: OutboxEntry, repeated: bool) -> Committed:
    """Return the receipt, without a seq, with the revs that result if nobody else writes."""
    records = await backend.overlay.records()
    found = await backend.overlay.get_many(entry.ids)
    written = []
    for step, datum in zip(entry.steps, found, strict=True):
        pending = records.get(step.id)
        rev = 0 if pending is None else pending.steps
        rev = datum.rev if datum is not None and datum.rev is not None else rev
        written.append(Written(step.id, rev, None, step.op != "check"))
    return Committed(None, tuple(written), repeated, pending=True)


async def _check(backend: DegradableBackend, op: Op, records: Mapping[str, PendingRecord]) -> None:
    """Refuse an op that only the store can check; check it against pending commits where possible."""
    pending = records.get(op.id)
    fresh = isinstance(op, Put) and op.expect in (0, NEW) and pending is None and _UUID7.fullmatch(op.id)
    if fresh or (op.expect is None and not isinstance(op, Check)):
        return
    if not backend.optimistic:
        what = "a check" if isinstance(op, Check) else f"expect={op.expect!r}"
        backend._refuse(f"{what} of {op.id!r}")
    if pending is None:
        return  # checked at replay
    (datum,) = await backend.overlay.get_many([op.id])
    rev = 0 if datum is None else datum.rev
    if rev == 0 if op.expect == LIVE else rev != op.expect:  # an id in a pending commit is not NEW either
        state = f"is at rev {rev}, not {op.expect}," if rev else "is deleted"
        raise VersionConflict(
            f"{op.id!r} {state} in a pending commit", id=op.id, expected=op.expect, actual=rev
        )


def _after(op: Op, records: Mapping[str, PendingRecord]) -> str | None:
    pending = records.get(op.id)
    return None if pending is None or op.expect is None else pending.key


# -- replaying ----------------------------------------------------------------------------


class AppendThrottle:
    """Lets one commit into the outbox for every two replayed ones, so that a replay comes to an end."""

    def __init__(self) -> None:
        self._running = 0
        self._done = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Mark a replay as running; waiting commits are released when it ends or fails."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                while self._waiting:
                    self._release_one()

    def step(self) -> None:
        """Count one more replayed commit."""
        self._done += 1
        if self._done % SHARE == 0:
            self._release_one()

    async def wait(self) -> None:
        """Wait until one more commit may be added; returns at once while nothing is replayed."""
        if self._running:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def _release_one(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its caller was cancelled
                turn.set_result(None)
                return


class _BaseRefused(Conflict):
    """A commit that this one builds on was refused."""


class OutboxReplay:
    """Replays the outbox once; the caller makes sure that no other replay runs."""

    def __init__(self, outbox: Outbox, store: Backend, view: View, step: Callable[[], None]) -> None:
        self._outbox, self._store, self._view, self._step = outbox, store, view, step
        self._revs: dict[tuple[str, str | None], int] = {}
        self._refused_at: dict[str, int] = {}  # by record: refuse its commits below this seq
        self.done = 0
        self.clashes: list[Clash] = []

    async def run(self) -> None:
        """Send all commits that are pending now; raises if the store cannot be reached."""
        await self._outbox.refresh()
        for clash in self._outbox.clashes.values():
            for id in clash.data.get("ids", ()):
                self._refused_at[id] = max(self._refused_at.get(id, 0), clash.seq or 0)
        entries = self._outbox.entries()
        earlier = await self._outbox.read_attempt()
        # Commits that were being sent when a program was killed keep the time of that attempt.
        again = [entry for entry in entries if entry.name in earlier.names]
        await self._send_batch(again, earlier)
        rest = [entry for entry in entries if entry.name not in earlier.names]
        for start in range(0, len(rest), BATCH):
            some = rest[start : start + BATCH]
            await self._outbox.write_attempt(some)
            await self._send_batch(some, SendAttempt())
        if entries:
            await self._outbox.tidy()

    async def _send_batch(self, entries: Sequence[OutboxEntry], earlier: SendAttempt) -> None:
        done: list[OutboxEntry] = []
        clashes: list[Clash] = []
        try:
            for entry in entries:
                clash = await self._send(entry, earlier)
                self._step()
                if clash is None:
                    done.append(entry)
                else:
                    clashes.append(clash)
        except StorageError as error:
            # Only this one may have arrived, and only if its answer was lost.
            unsure = [entry] if isinstance(error, OutcomeUnknown) else []
            await self._settle(done, clashes)
            await self._outbox.write_attempt(unsure)
            raise
        await self._settle(done, clashes)

    async def _settle(self, done: Sequence[OutboxEntry], clashes: Sequence[Clash]) -> None:
        await self._outbox.settle(done, clashes)
        self.done += len(done)
        self.clashes += clashes

    async def _send(self, entry: OutboxEntry, earlier: SendAttempt) -> Clash | None:
        try:
            await self._check_base(entry, earlier)
            expects = [await self._rebase_expect(entry, place) for place in range(len(entry.steps))]
            answer = await self._store.commit(commit_of(entry, expects), self._view)
        except StorageError:
            raise  # not refused: the store cannot do it now
        except DgentError as error:
            return await self._make_clash(entry, error)
        for written in answer.written:
            self._revs[entry.key, written.id] = written.rev
        return None

    async def _check_base(self, entry: OutboxEntry, earlier: SendAttempt) -> None:
        """Refuse a commit that builds on a refused one, or that may have arrived before its key expired."""
        for id in entry.ids:
            if entry.seq < self._refused_at.get(id, 0):
                raise _BaseRefused(f"an earlier pending change of {id!r} conflicts")
        old = entry.name in earlier.names and clock.now_us() - earlier.at > KEY_LIFE_US
        if old and await self._store.outcome(entry.key) is None:
            raise _BaseRefused(
                f"it was sent on {clock.text(clock.from_us(earlier.at))}, and may have arrived"
            )

    async def _rebase_expect(self, entry: OutboxEntry, place: int) -> Expect:
        """Return the rev to expect in the store: the one that the commit it builds on got there."""
        step = entry.steps[place]
        if step.after is None or type(step.expect) is not int or step.expect == 0:
            return step.expect
        if (step.after, step.id) not in self._revs:
            answer = await self._store.outcome(step.after)
            for written in () if answer is None else answer.written:
                self._revs[step.after, written.id] = written.rev
        rev = self._revs.get((step.after, step.id))
        if rev is None:
            raise _BaseRefused(f"the change of {step.id!r} that it builds on did not happen")
        return rev

    async def _make_clash(self, entry: OutboxEntry, error: DgentError) -> Clash:
        for id in entry.ids:
            # For the rest of this run; later commits do not build on this one.
            self._refused_at[id] = 2**62
        theirs: list[Datum | None] = await self._store.get_many(entry.ids)
        return Clash(entry, error.code, error.message, tuple(theirs))
