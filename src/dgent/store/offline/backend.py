"""A store that may be away for a while: the preferred engine while it is there, else the outbox.

Nothing here takes another store in its place. While the engine cannot be reached, commits are kept in
the outbox, reads are refused unless the caller takes a partial answer (`at_hand`), and so is all else that
needs the truth. When the engine is back, the pending commits are done there in order, and all is as before.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, NoReturn, TypeVar

import msgspec

from dgent import clock, ids
from dgent.errors import (
    Busy,
    Closed,
    Degraded,
    DgentError,
    NoBackendAvailable,
    OutcomeUnknown,
    StorageError,
    StorageFull,
    Unavailable,
)
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import (
    STORED,
    Backend,
    BackendStats,
    Change,
    Commit,
    Committed,
    Compacted,
    Declaration,
    Declared,
    Forgotten,
    Guard,
    Keep,
    Page,
    Rank,
    Reverted,
    Version,
    View,
)
from dgent.store.engine.check import check_ids, checked_declaration
from dgent.store.offline import accept, event, report
from dgent.store.offline.outbox import Home, Outbox
from dgent.store.offline.overlay import AtHand, Overlay
from dgent.store.offline.replay import BATCH, Pace, Replay
from dgent.store.offline.report import Degradation
from dgent.store.upkeep import Upkeep, upkeep_of

R = TypeVar("R")

PROBE_S = (0.5, 30.0)  # the first and the longest pause between two looks whether it is back
LOOK_S = 5.0  # how often to look for commits that a program left in the outbox
OPEN_S = 60.0


class Place(NamedTuple):
    """A store of the caller's list: how to make its backend, its URL without secrets, and what tells it
    from any other store on this machine."""

    make: Callable[[], Backend]
    shown: str
    identity: str


class Down(NamedTuple):
    """Since when the preferred engine cannot be reached, and why."""

    since: datetime
    reason: str


def is_gone(error: StorageError) -> bool:
    """Whether an error means that the store cannot be reached: one that is busy or full is there."""
    return isinstance(error, Unavailable) and not isinstance(error, Busy | StorageFull)


class DegradableBackend:
    """The first place of a list, with an outbox for when it is away and stand-ins for reading then."""

    def __init__(self, places: Sequence[Place], outbox: Outbox, *, optimistic: bool = False) -> None:
        self._place, *self._stand_ins = places
        self._store = self._place.make()
        self.name, self.priority = self._store.name, self._store.priority
        self.outbox, self.optimistic = outbox, optimistic
        self.notices = event.Notices()
        self.overlay = Overlay(outbox)
        self.back_seq = 0  # where the store's log stood when it was last reached
        self._down: Down | None = None
        self.declared: dict[str, Declaration] = {}
        self._view: View = STORED
        self._known = False  # whether the outbox knows the store's epoch
        self._gate = asyncio.Lock()  # held while a commit goes to the outbox, and for the turn to normal
        self._pace = Pace()
        self._mending = asyncio.Lock()
        self._falling = asyncio.Lock()
        self._fell = asyncio.Event()
        self._tending: asyncio.Task[None] | None = None
        self._fills: set[asyncio.Task[None]] = set()

    # -- lifecycle ------------------------------------------------------------------------

    async def is_available(self) -> bool:
        """Always: `open` says what cannot be opened."""
        return True

    async def open(self) -> None:
        """Open the outbox and the store; without the store, go on degraded and say so."""
        await self.outbox.open(self._place.identity)
        try:
            try:
                await self._connect()
                await self._drain()
            except StorageError as error:
                if not is_gone(error):
                    raise
                await self._go_down(error)
            self._tending = asyncio.get_running_loop().create_task(self._tend(), name="dgent-outbox")
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop looking after the store and let go of everything; what is pending stays in the outbox."""
        tasks = [task for task in (self._tending, *self._fills) if task is not None]
        self._tending = None
        while left := [task for task in tasks if not task.done()]:
            for task in left:
                task.cancel()
            # Again after a while: whatever swallows a cancel below must not keep a store from closing.
            await asyncio.wait(left, timeout=1)
        try:
            await self._leave_stand_in()
            await self._store.close()
        finally:
            await self.outbox.close()

    async def _connect(self) -> None:
        """Open the store itself; raises when it cannot be reached, or another one is in its place."""
        store = self._place.make()
        home = await self.outbox.home()
        known = "" if home is None else home.epoch
        path = getattr(store, "path", None)
        if known and isinstance(path, str) and not os.path.lexists(path):
            raise NoBackendAvailable(f"the store is gone from {self._place.shown}", hint=self._reset_hint())
        if not await store.is_available():
            raise NoBackendAvailable(f"the {store.name} store cannot be opened at {self._place.shown}")
        try:
            async with asyncio.timeout(OPEN_S):
                await store.open()
        except TimeoutError:
            raise Unavailable(f"{self._place.shown} did not answer for {OPEN_S:.0f} s") from None
        try:
            await self._recognize(store, known)
            for declaration in self.declared.values():
                await self._declare(store, declaration)
        except BaseException:
            await store.close()
            raise
        self._store = store

    async def _recognize(self, store: Backend, known: str) -> None:
        """Refuse an empty store where one with records was: a disk may not be mounted, say."""
        epoch = getattr(store, "epoch", b"").hex()
        self.back_seq = await store.last_seq()
        if known not in ("", epoch) and self.back_seq == 0:
            raise NoBackendAvailable(
                f"an empty store is at {self._place.shown}, and not the one that was there",
                hint=self._reset_hint(),
            )
        self._known = known == epoch
        if self.back_seq and not self._known:
            await self._get_to_know(epoch)

    async def _get_to_know(self, epoch: str) -> None:
        await self.outbox.settle_in(Home(self._place.identity, epoch))
        self._known = True

    def _reset_hint(self) -> str:
        return f"if it is meant to begin anew, remove {self.outbox.path} first"

    # -- going down and coming back -------------------------------------------------------

    @property
    def degradation(self) -> Degradation | None:
        """How the store is away; None while it is there."""
        if self._down is None:
            return None
        pending, conflicts = len(self.outbox.pending), len(self.outbox.clashes)
        below = self.overlay.below
        return Degradation(
            *self._down, pending, conflicts, None if below is None else below.name, self.outbox.path
        )

    async def _go_down(self, error: DgentError) -> None:
        async with self._falling:
            if self._down is not None:
                return
            for place in self._stand_ins:
                stand_in = place.make()
                with suppress(StorageError):
                    if await stand_in.is_available():
                        await stand_in.open()
                        self.overlay.below = stand_in
                        break
            self._down = Down(clock.now(), error.message)
        self._fell.set()
        self.notices.tell(event.turned("degraded", error.message))
        report.warn_of_degrading(self._place.shown, self.outbox.path, error)

    async def _leave_stand_in(self) -> None:
        below, self.overlay.below = self.overlay.below, None
        if below is not None:
            await below.close()

    async def reconnect(self) -> None:
        """Look whether the store is back; if so, do there what is pending. Raises while it is not."""
        async with self._mending:
            if self._down is None:
                await self._drain()
                return
            with suppress(StorageError):
                await self._store.close()
            try:
                await self._connect()
                await self._drain()
            except StorageError as error:
                self._down = Down(self._down.since, error.message)
                raise
            self.notices.tell(event.turned("restored", self._place.shown))
            await self._leave_stand_in()

    async def _drain(self) -> None:
        """Do everything that is pending; only then is the store used directly again."""
        while await self._replay() and len(self.outbox.pending) > BATCH:
            pass  # what was kept meanwhile is half of it at most
        async with self._gate:
            # Commits of this program wait from here on.
            while await self._replay():
                pass
            self._down = None

    async def _replay(self) -> bool:
        """Do what is pending now; False when there was nothing."""
        await self.outbox.refresh()
        if not self.outbox.pending:
            return False
        replay = Replay(self.outbox, self._store, self._view, self._pace.step)
        try:
            async with self.outbox.alone():
                with self._pace.running():
                    await replay.run()
        finally:
            if replay.clashes:
                report.warn_of_clashes(replay.clashes)
        return True

    async def _tend(self) -> None:
        """Look whether a store that is away is back, and whether others left something in the outbox."""
        pause = PROBE_S[0]
        while True:
            if self._down is None:
                pause = PROBE_S[0]
                # Not `wait_for`: when it is cancelled and done at once, it forgets that it was cancelled.
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._fell.wait()
                self._fell.clear()
            if self._down is not None:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, PROBE_S[1])
            try:
                if self._down is None:
                    await self.outbox.refresh()
                if self._down is not None or self.outbox.pending:
                    await self.reconnect()
            except DgentError as error:
                # Said by `stats`, and tried again after a pause.
                if self._down is None and isinstance(error, StorageError) and is_gone(error):
                    await self._go_down(error)
            except Degraded:
                continue  # the program has made warnings errors; the state is as it should be
            except Exception as error:
                # A fault must not end the looking; it is told as the reason.
                if self._down is not None:
                    self._down = Down(self._down.since, f"{type(error).__name__}: {error}")

    # -- asking the store -----------------------------------------------------------------

    async def _asked(self, ask: Callable[[Backend], Awaitable[R]]) -> R | None:
        """The store's answer; None when it cannot be reached, now or since a while."""
        while self._down is None:
            store = self._store
            try:
                return await ask(store)
            except Closed:
                if self._is_ours(store):
                    raise
            except Unavailable as error:
                if not is_gone(error):
                    raise
                if store is self._store:
                    await self._go_down(error)
        return None

    def _is_ours(self, store: Backend) -> bool:
        """Whether a store that is closed was closed by the caller, and not because it was away."""
        return store is self._store and self._down is None

    async def ask_at_hand(
        self, ask: Callable[[Backend], Awaitable[R]], else_: Callable[[], Awaitable[R]]
    ) -> R:
        """The store's answer, or while it is away that of what is at hand."""
        while True:
            found = await self._asked(lambda store: _boxed(ask(store)))
            if found is not None:
                return found[0]
            try:
                return await else_()
            except Closed:
                if self._down is not None:
                    raise
                # The store came back, and the stand-in was let go meanwhile: ask the store.
            except Unavailable:
                if self.overlay.below is None:
                    raise
                await self._leave_stand_in()  # it is away too; what is pending is still at hand

    async def ask_store(self, what: str, ask: Callable[[Backend], Awaitable[R]]) -> R:
        """The store's answer; refused when it cannot be reached, because no other would be true."""
        found = await self._asked(lambda store: _boxed(ask(store)))
        if found is None:
            self._refuse(what)
        return found[0]

    def _refuse(self, what: str) -> NoReturn:
        raise report.refusal(what, self._place.shown, self._down)

    # -- commits --------------------------------------------------------------------------

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do all ops or none; kept in the outbox, and so pending, while the store cannot be reached."""
        self._view = view
        if commit.key is None:
            # So that one whose answer is lost can be sent again without being done twice.
            commit = msgspec.structs.replace(commit, key=ids.new_id(), keep_idle=False)
        while True:
            unknown: OutcomeUnknown | None = None
            while self._down is None:
                store = self._store
                try:
                    done = await store.commit(commit, view)
                except Closed:
                    if self._is_ours(store):
                        raise
                    unknown = OutcomeUnknown("the store went away under the commit", key=commit.key)
                except Unavailable as error:
                    if not is_gone(error):
                        raise
                    unknown = error if isinstance(error, OutcomeUnknown) else unknown
                    if store is self._store:
                        await self._go_down(error)
                else:
                    if not self._known and done.seq:
                        with suppress(StorageError):  # the commit stands; the next one tries again
                            await self._get_to_know(getattr(store, "epoch", b"").hex())
                    return done
            await self._pace.turn()
            async with self._gate:
                if self._down is None:
                    continue  # it came back while this waited
                try:
                    return await accept.keep(self, commit)
                except Unavailable:
                    if unknown is not None:
                        raise unknown from None
                    raise

    async def outcome(self, key: str) -> Committed | None:
        """What a keyed commit came to; pending while it is in the outbox."""
        await self.outbox.refresh()
        found = await self._asked(lambda store: _boxed(store.outcome(key)))
        if found is not None and found[0] is not None:
            return found[0]
        pending = await accept.pending_outcome(self, ids.check_id(key, "key"))
        if pending is None and found is None:
            self._refuse("what a commit came to")
        return pending

    # -- reads ----------------------------------------------------------------------------

    @property
    def at_hand(self) -> AtHand:
        """The same store for callers who take a partial answer while it is unavailable."""
        return AtHand(self)

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """The live version, or the one at a seq."""
        return await self.ask_store(report.A_READ, lambda store: store.get(id, as_of, lazy))

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """One answer for each id."""
        return await self.ask_store(report.A_READ, lambda store: store.get_many(ids, as_of))

    async def ranks(self, ids: Sequence[str]) -> list[Rank | None]:
        """The rank of each record in the order of time."""
        return await self.ask_store("the order of records", lambda store: store.ranks(ids))

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """A page of matching records."""
        return await self.ask_store(report.A_READ, lambda store: store.query(query, view, as_of))

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        """How many records match."""
        return await self.ask_store(report.A_READ, lambda store: store.count(query, view, as_of))

    async def referrers(self, id: str, limit: int | None, view: View = STORED) -> list[Datum]:
        """Records whose declared refs hold this id."""
        return await self.ask_store(report.A_READ, lambda store: store.referrers(id, limit, view))

    # -- what needs the truth -------------------------------------------------------------

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """A record and what caused it."""
        return await self.ask_store(report.A_READ, lambda store: store.ancestors(id, limit))

    async def history(self, id: str, limit: int | None) -> list[Version]:
        """The kept versions of a record."""
        return await self.ask_store("history", lambda store: store.history(id, limit))

    async def changes(self, since: int, limit: int) -> list[Change]:
        """Commits after a seq, in order."""
        return await self.ask_store("the log", lambda store: store.changes(since, limit))

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or when time is up."""
        found = await self._asked(lambda store: _boxed(store.wait(since, timeout_s)))
        return since if found is None else found[0]

    async def states_before(self, seq: int) -> list[Reverted]:
        """What the records of a commit were before it."""
        return await self.ask_store("undo", lambda store: store.states_before(seq))

    async def validate(self, guard: Guard, view: View) -> int:
        """The newest seq, or TransactionConflict."""
        return await self.ask_store("a transaction", lambda store: store.validate(guard, view))

    async def last_seq(self) -> int:
        """The newest seq."""
        return await self.ask_store("the number of the newest commit", lambda store: store.last_seq())

    async def seq_at(self, moment: datetime) -> int:
        """The newest seq at a time."""
        return await self.ask_store("the past", lambda store: store.seq_at(moment))

    async def versions(self, schema: str) -> dict[int, int]:
        """How many live records there are of each stored version."""
        return await self.ask_store("the count of versions", lambda store: store.versions(schema))

    async def drop_index(self, schema: str, path: str) -> None:
        """Forget a declared index."""
        await self.ask_store("dropping an index", lambda store: _boxed(store.drop_index(schema, path)))

    async def forget(
        self,
        ids: Sequence[str],
        author: str,
        room: str | None,
        only_deleted: bool = False,
        at_us: int | None = None,
    ) -> Forgotten:
        """Erase records for good, in the outbox too."""
        wanted = set(check_ids(ids))
        await self.outbox.refresh()
        if any(wanted.intersection(entry.ids) for entry in self.outbox.pending.values()):
            self._refuse("forgetting what has pending changes")
        done = await self.ask_store(
            "forgetting", lambda store: store.forget(ids, author, room, only_deleted, at_us)
        )
        await self.outbox.forget(ids)
        return done

    async def compact(self, keep: Keep) -> Compacted:
        """Apply a retention rule to the history."""
        return await self.ask_store("compacting", lambda store: store.compact(keep))

    # -- declarations and the rest --------------------------------------------------------

    async def declare(self, declaration: Declaration) -> Declared:
        """Make a schema known to the store; later, if it is away."""
        declaration = checked_declaration(declaration)
        self.declared[declaration.name] = declaration
        found = await self._asked(lambda store: store.declare(declaration))
        return Declared(False) if found is None else found

    async def _declare(self, store: Backend, declaration: Declaration) -> None:
        """Declare to a store that came back, and index what waited for it."""
        if not (await store.declare(declaration)).filling:
            return

        async def fill() -> None:
            with suppress(DgentError):
                while await store.fill(declaration.name, self._view):
                    await asyncio.sleep(0)

        task = asyncio.get_running_loop().create_task(fill(), name=f"dgent-fill-{declaration.name}")
        self._fills.add(task)
        task.add_done_callback(self._fills.discard)

    async def fill(self, schema: str, view: View) -> bool:
        """Index one batch of old records; nothing to do while the store is away."""
        return bool(await self._asked(lambda store: _boxed(store.fill(schema, view))) == (True,))

    @property
    def reached(self) -> Backend:
        """The store itself; refused while it cannot be reached."""
        if self._down is not None:
            self._refuse("looking after the store")
        return self._store

    def upkeep(self) -> Upkeep:
        """What inspects and copies the store."""
        return upkeep_of(self.reached)

    @property
    def epoch(self) -> bytes:
        """Which store this is; empty while it cannot be reached."""
        return b"" if self._down is not None else getattr(self._store, "epoch", b"")

    async def stats(self) -> BackendStats:
        """What the store holds, or what is at hand of it; `details["degraded"]` says which."""
        await self.outbox.refresh()
        found = await self.ask_at_hand(
            lambda store: store.stats(),
            lambda: report.partial_stats(self, self._place.shown, self._view),
        )
        if found.details.get("degraded"):
            return found
        conflicts, pending = len(self.outbox.clashes), len(self.outbox.pending)
        told = {"degraded": False, "pending": pending, "conflicts": conflicts, "outbox": self.outbox.path}
        return msgspec.structs.replace(found, details={**found.details, **told})


async def _boxed(answer: Awaitable[R]) -> tuple[R]:
    """An answer that may be None, told apart from none."""
    return (await answer,)
