"""Doing the pending commits when the store is back: in order, once each, conflicts set aside.

A commit is sent under its key, so that one which had arrived before is answered and not done again. It
leaves the outbox after the store has it. Killed in between, it is sent again and answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dgent import clock
from dgent.errors import Conflict, DgentError, OutcomeUnknown, StorageError
from dgent.model.datum import Datum
from dgent.store.backend import Backend, Expect, View
from dgent.store.offline.entry import Entry, commit_of
from dgent.store.offline.outbox import Clash, Outbox, Trying

SHARE = 2  # commits that a replay does for each one that may be added


class Pace:
    """While a replay runs, one commit may be kept for every two that it has done: it halves each time."""

    def __init__(self) -> None:
        self._running = 0
        self._done = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextmanager
    def running(self) -> Iterator[None]:
        """A replay is under way; whoever waits is let go when it ends, however it ends."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                while self._waiting:
                    self._let_one_go()

    def step(self) -> None:
        """A replay has done one more commit."""
        self._done += 1
        if self._done % SHARE == 0:
            self._let_one_go()

    async def turn(self) -> None:
        """Wait until one more commit may be kept; not at all while nothing is replayed."""
        if self._running:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def _let_one_go(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its caller was cancelled
                turn.set_result(None)
                return


BATCH = 64  # commits that leave the outbox together
KEY_LIFE_US = 6 * 24 * 3600 * 1_000_000
"""How long an engine surely knows a key: those of dgent keep them for seven days."""


class _Stopped(Conflict):
    """Something that this commit builds on did not happen."""


class Replay:
    """One run through the outbox; the caller sees to it that it is the only one."""

    def __init__(self, outbox: Outbox, store: Backend, view: View, step: Callable[[], None]) -> None:
        self._outbox, self._store, self._view, self._step = outbox, store, view, step
        self._revs: dict[tuple[str, str | None], int] = {}
        self._stopped: dict[str, int] = {}  # records whose chain ended in a conflict, and when that was seen
        self.done = 0
        self.clashes: list[Clash] = []

    async def run(self) -> None:
        """Send everything that is pending now; stops where the store cannot be reached."""
        await self._outbox.refresh()
        for clash in self._outbox.clashes.values():
            for id in clash.data.get("ids", ()):
                self._stopped[id] = max(self._stopped.get(id, 0), clash.seq or 0)
        entries = self._outbox.entries()
        earlier = await self._outbox.trying()
        # What was being sent when a program was killed keeps the time of that, until it is settled.
        again = [entry for entry in entries if entry.name in earlier.names]
        await self._send_some(again, earlier)
        rest = [entry for entry in entries if entry.name not in earlier.names]
        for start in range(0, len(rest), BATCH):
            some = rest[start : start + BATCH]
            await self._outbox.try_now(some)
            await self._send_some(some, Trying())
        if entries:
            await self._outbox.tidy()

    async def _send_some(self, entries: Sequence[Entry], earlier: Trying) -> None:
        done: list[Entry] = []
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
            # Only this one can have arrived, and only if its answer was lost.
            unsure = [entry] if isinstance(error, OutcomeUnknown) else []
            await self._settle(done, clashes)
            await self._outbox.try_now(unsure)
            raise
        await self._settle(done, clashes)

    async def _settle(self, done: Sequence[Entry], clashes: Sequence[Clash]) -> None:
        await self._outbox.settle(done, clashes)
        self.done += len(done)
        self.clashes += clashes

    async def _send(self, entry: Entry, earlier: Trying) -> Clash | None:
        try:
            await self._check_chain(entry, earlier)
            expects = [await self._rebased(entry, place) for place in range(len(entry.steps))]
            answer = await self._store.commit(commit_of(entry, expects), self._view)
        except StorageError:
            raise  # it is not refused, it cannot be done now
        except DgentError as error:
            return await self._clash(entry, error)
        for written in answer.written:
            self._revs[entry.key, written.id] = written.rev
        return None

    async def _check_chain(self, entry: Entry, earlier: Trying) -> None:
        """Refuse what builds on something refused, and what may have happened without being known."""
        for id in entry.ids:
            if entry.seq < self._stopped.get(id, 0):
                raise _Stopped(f"an earlier pending change of {id!r} conflicts")
        old = entry.name in earlier.names and clock.now_us() - earlier.at > KEY_LIFE_US
        if old and await self._store.outcome(entry.key) is None:
            raise _Stopped(f"it was sent on {clock.text(clock.from_us(earlier.at))}, and may have arrived")

    async def _rebased(self, entry: Entry, place: int) -> Expect:
        """What to expect of the store: the version that the commit it builds on has made there."""
        step = entry.steps[place]
        if step.after is None or type(step.expect) is not int or step.expect == 0:
            return step.expect
        if (step.after, step.id) not in self._revs:
            answer = await self._store.outcome(step.after)
            for written in () if answer is None else answer.written:
                self._revs[step.after, written.id] = written.rev
        rev = self._revs.get((step.after, step.id))
        if rev is None:
            raise _Stopped(f"the change of {step.id!r} that it builds on did not happen")
        return rev

    async def _clash(self, entry: Entry, error: DgentError) -> Clash:
        for id in entry.ids:
            # From here on in this run; what comes to be pending later is not of this chain.
            self._stopped[id] = 2**62
        theirs: list[Datum | None] = await self._store.get_many(entry.ids)
        return Clash(entry, error.code, error.message, tuple(theirs))
