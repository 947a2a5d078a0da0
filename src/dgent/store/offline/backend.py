"""A store that may be unavailable for a while: its engine while that can be reached, else the outbox.

No other store replaces it. While the engine cannot be reached, commits are kept in the outbox, and reads are
refused unless the caller accepts a partial answer (`at_hand`), as is everything else that needs the store.
When the engine is back, the pending commits are replayed there in order.
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
from dgent.model.vector import VectorSpec
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
from dgent.store.engine.check import check_declaration, check_ids
from dgent.store.offline import event, report
from dgent.store.offline.outbox import Outbox, OutboxOwner
from dgent.store.offline.overlay import AtHand, Overlay
from dgent.store.offline.pending import BATCH, AppendThrottle, OutboxReplay, keep_commit, pending_outcome
from dgent.store.offline.report import Degradation
from dgent.store.search import (
    EmbeddedSchema,
    GivenVector,
    SearchPage,
    SearchRequest,
    VectorPage,
    WaitingVector,
)
from dgent.store.tally import Counts, Tally
from dgent.store.upkeep import Upkeep, upkeep_of

R = TypeVar("R")

PROBE_S = (0.5, 30.0)  # the first and the longest pause between two attempts to reconnect
LOOK_S = 5.0  # how often to check for commits that another program left in the outbox
OPEN_S = 60.0


class Place(NamedTuple):
    """A store of the caller's list: a function that makes its backend, its URL without secrets, and a
    string that identifies it on this machine."""

    make: Callable[[], Backend]
    shown: str
    identity: str


class Outage(NamedTuple):
    """The time since which the preferred engine cannot be reached, and the reason."""

    since: datetime
    reason: str


def is_unreachable(error: StorageError) -> bool:
    """Check whether an error means that the store cannot be reached; a busy or full one can be."""
    return isinstance(error, Unavailable) and not isinstance(error, Busy | StorageFull)


class DegradableBackend:
    """The first store of a list, with an outbox and read-only fallbacks for when it is unavailable."""

    def __init__(self, places: Sequence[Place], outbox: Outbox, *, optimistic: bool = False) -> None:
        self._place, *self._fallbacks = places
        self._store = self._place.make()
        self.name, self.priority = self._store.name, self._store.priority
        self.outbox, self.optimistic = outbox, optimistic
        self.notices = event.LocalFeed()
        self.overlay = Overlay(outbox)
        self.back_seq = 0  # the newest seq of the store when it was last reached
        self._down: Outage | None = None
        self.declared: dict[str, Declaration] = {}
        self._view: View = STORED
        self._known = False  # whether the outbox knows the store's epoch
        self._gate = asyncio.Lock()  # held to add a commit to the outbox, and to switch back to the store
        self._throttle = AppendThrottle()
        self._reconnecting = asyncio.Lock()
        self._going_down = asyncio.Lock()
        self._went_down = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._index_builds: set[asyncio.Task[None]] = set()

    # -- lifecycle ------------------------------------------------------------------------

    async def is_available(self) -> bool:
        """Return True: `open` raises if something cannot be opened."""
        return True

    async def open(self) -> None:
        """Open the outbox and the store; if the store cannot be reached, warn and start degraded."""
        await self.outbox.open(self._place.identity)
        try:
            try:
                await self._connect()
                await self._drain()
            except StorageError as error:
                if not is_unreachable(error):
                    raise
                await self._go_down(error)
            self._watching = asyncio.get_running_loop().create_task(self._watch(), name="dgent-outbox")
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop the background work and close everything; pending commits stay in the outbox."""
        tasks = [task for task in (self._watching, *self._index_builds) if task is not None]
        self._watching = None
        while left := [task for task in tasks if not task.done()]:
            for task in left:
                task.cancel()
            # Again after a while: code below that swallows a cancel must not keep a store from closing.
            await asyncio.wait(left, timeout=1)
        try:
            await self._close_fallback()
            await self._store.close()
        finally:
            await self.outbox.close()

    async def _connect(self) -> None:
        """Open the store itself; raises if it cannot be reached or was replaced by an empty one."""
        store = self._place.make()
        home = await self.outbox.read_owner()
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
        """Refuse an empty store where one with records was: its disk may not be mounted."""
        epoch = getattr(store, "epoch", b"").hex()
        self.back_seq = await store.last_seq()
        if known not in ("", epoch) and self.back_seq == 0:
            raise NoBackendAvailable(
                f"the store at {self._place.shown} is empty, and not the one that was there",
                hint=self._reset_hint(),
            )
        self._known = known == epoch
        if self.back_seq and not self._known:
            await self._record_epoch(epoch)

    async def _record_epoch(self, epoch: str) -> None:
        await self.outbox.write_owner(OutboxOwner(self._place.identity, epoch))
        self._known = True

    def _reset_hint(self) -> str:
        return f"to start with an empty store, remove {self.outbox.path} first"

    # -- going down and coming back -------------------------------------------------------

    @property
    def degradation(self) -> Degradation | None:
        """The state of the outage; None while the store can be reached."""
        if self._down is None:
            return None
        pending, conflicts = len(self.outbox.pending), len(self.outbox.clashes)
        below = self.overlay.fallback
        return Degradation(
            *self._down, pending, conflicts, None if below is None else below.name, self.outbox.path
        )

    async def _go_down(self, error: DgentError) -> None:
        async with self._going_down:
            if self._down is not None:
                return
            for place in self._fallbacks:
                fallback = place.make()
                with suppress(StorageError):
                    if await fallback.is_available():
                        await fallback.open()
                        self.overlay.fallback = fallback
                        break
            self._down = Outage(clock.now(), error.message)
        self._went_down.set()
        self.notices.notify(event.make_state_change("degraded", error.message))
        report.warn_of_degrading(self._place.shown, self.outbox.path, error)

    async def _close_fallback(self) -> None:
        below, self.overlay.fallback = self.overlay.fallback, None
        if below is not None:
            await below.close()

    async def reconnect(self) -> None:
        """Reconnect to the store and replay the pending commits; raises while it cannot be reached."""
        async with self._reconnecting:
            if self._down is None:
                await self._drain()
                return
            with suppress(StorageError):
                await self._store.close()
            try:
                await self._connect()
                await self._drain()
            except StorageError as error:
                self._down = Outage(self._down.since, error.message)
                raise
            self.notices.notify(event.make_state_change("restored", self._place.shown))
            await self._close_fallback()

    async def _drain(self) -> None:
        """Replay all pending commits; only then is the store used directly again."""
        while await self._replay() and len(self.outbox.pending) > BATCH:
            pass  # at most half as many were added meanwhile
        async with self._gate:
            # New commits of this program wait for the gate.
            while await self._replay():
                pass
            self._down = None

    async def _replay(self) -> bool:
        """Replay the commits that are pending now; return False if there were none."""
        await self.outbox.refresh()
        if not self.outbox.pending:
            return False
        replay = OutboxReplay(self.outbox, self._store, self._view, self._throttle.step)
        try:
            async with self.outbox.exclusive_replay():
                with self._throttle.running():
                    await replay.run()
        finally:
            if replay.clashes:
                report.warn_of_clashes(replay.clashes)
        return True

    async def _watch(self) -> None:
        """Reconnect when the store is back, and replay commits that other programs left in the outbox."""
        pause = PROBE_S[0]
        while True:
            if self._down is None:
                pause = PROBE_S[0]
                # Not `wait_for`: when it is cancelled and done at once, it forgets that it was cancelled.
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._went_down.wait()
                self._went_down.clear()
            if self._down is not None:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, PROBE_S[1])
            try:
                if self._down is None:
                    await self.outbox.refresh()
                if self._down is not None or self.outbox.pending:
                    await self.reconnect()
            except DgentError as error:
                # `stats` reports it; tried again after a pause.
                if self._down is None and isinstance(error, StorageError) and is_unreachable(error):
                    await self._go_down(error)
            except Degraded:
                continue  # the program turns warnings into errors; the state is right
            except Exception as error:
                # A fault must not end this task; it is reported as the reason.
                if self._down is not None:
                    self._down = Outage(self._down.since, f"{type(error).__name__}: {error}")

    # -- calling the store ----------------------------------------------------------------

    async def _ask(self, ask: Callable[[Backend], Awaitable[R]]) -> R | None:
        """Return the store's answer; None if it cannot be reached."""
        while self._down is None:
            store = self._store
            try:
                return await ask(store)
            except Closed:
                if self._is_closed_by_caller(store):
                    raise
            except Unavailable as error:
                if not is_unreachable(error):
                    raise
                if store is self._store:
                    await self._go_down(error)
        return None

    def _is_closed_by_caller(self, store: Backend) -> bool:
        """Check whether the caller closed a store, and not this backend because it was unavailable."""
        return store is self._store and self._down is None

    async def ask_at_hand(
        self, ask: Callable[[Backend], Awaitable[R]], else_: Callable[[], Awaitable[R]]
    ) -> R:
        """Return the store's answer, or a partial one of `else_` while the store is unavailable."""
        while True:
            found = await self._ask(lambda store: _box(ask(store)))
            if found is not None:
                return found[0]
            fallback = self.overlay.fallback
            try:
                answer = await else_()
                if self.overlay.fallback is fallback:
                    return answer
                # It was opened or closed in the middle, so something may be missing: ask again.
            except Closed:
                if self._down is not None:
                    raise
                # The store came back, and the fallback was closed meanwhile: ask the store.
            except Unavailable:
                if self.overlay.fallback is None:
                    raise
                await self._close_fallback()  # it is unavailable too; pending commits can still be read

    async def ask_store(self, what: str, ask: Callable[[Backend], Awaitable[R]]) -> R:
        """Return the store's answer; raises Unavailable, naming `what` was asked, if it cannot be reached."""
        found = await self._ask(lambda store: _box(ask(store)))
        if found is None:
            self._refuse(what)
        return found[0]

    def _refuse(self, what: str) -> NoReturn:
        raise report.refusal(what, self._place.shown, self._down)

    # -- commits --------------------------------------------------------------------------

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do all ops or none; while the store cannot be reached, add the commit to the outbox as pending."""
        self._view = view
        if commit.key is None:
            # With a key, a commit whose answer is lost can be sent again without being done twice.
            commit = msgspec.structs.replace(commit, key=ids.new_id(), keep_idle=False)
        while True:
            unknown: OutcomeUnknown | None = None
            while self._down is None:
                store = self._store
                try:
                    done = await store.commit(commit, view)
                except Closed:
                    if self._is_closed_by_caller(store):
                        raise
                    unknown = OutcomeUnknown("the store became unavailable during the commit", key=commit.key)
                except Unavailable as error:
                    if not is_unreachable(error):
                        raise
                    unknown = error if isinstance(error, OutcomeUnknown) else unknown
                    if store is self._store:
                        await self._go_down(error)
                else:
                    if not self._known and done.seq:
                        with suppress(StorageError):  # the commit is done; the next one tries again
                            await self._record_epoch(getattr(store, "epoch", b"").hex())
                    return done
            await self._throttle.wait()
            async with self._gate:
                if self._down is None:
                    continue  # it came back while this waited
                try:
                    return await keep_commit(self, commit)
                except Unavailable:
                    if unknown is not None:
                        raise unknown from None
                    raise

    async def outcome(self, key: str) -> Committed | None:
        """Return the receipt of a keyed commit; pending while it is in the outbox."""
        await self.outbox.refresh()
        found = await self._ask(lambda store: _box(store.outcome(key)))
        if found is not None and found[0] is not None:
            return found[0]
        pending = await pending_outcome(self, ids.check_id(key, "key"))
        if pending is None and found is None:
            self._refuse("the outcome of a commit")
        return pending

    # -- reads ----------------------------------------------------------------------------

    @property
    def at_hand(self) -> AtHand:
        """The same store for callers who accept a partial answer while it is unavailable."""
        return AtHand(self)

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """Return the live version, or the one at a seq."""
        return await self.ask_store(report.A_READ, lambda store: store.get(id, as_of, lazy))

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """Return one record or None for each id."""
        return await self.ask_store(report.A_READ, lambda store: store.get_many(ids, as_of))

    async def ranks(self, ids: Sequence[str]) -> list[Rank | None]:
        """Return the rank of each record in the order of time."""
        return await self.ask_store("the order of records", lambda store: store.ranks(ids))

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """Return a page of matching records."""
        return await self.ask_store(report.A_READ, lambda store: store.query(query, view, as_of))

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        """Return the number of matching records."""
        return await self.ask_store(report.A_READ, lambda store: store.count(query, view, as_of))

    async def tally(self, tally: Tally, view: View, as_of: int | None = None) -> Counts:
        """Return values or tags with their counts."""
        return await self.ask_store(report.A_READ, lambda store: store.tally(tally, view, as_of))

    async def search(self, request: SearchRequest) -> SearchPage:
        """Return the matching records that have some of the words, best first."""
        return await self.ask_store(report.A_READ, lambda store: store.search(request))

    async def search_vectors(
        self,
        vector: bytes,
        query: Query,
        view: View,
        limit: int,
        as_of: int | None = None,
        spec: VectorSpec | None = None,
    ) -> VectorPage:
        """Return the matching records with the nearest vectors."""
        return await self.ask_store(
            report.A_READ, lambda store: store.search_vectors(vector, query, view, limit, as_of, spec)
        )

    async def waiting_vectors(self, schema: str, limit: int, after: bytes = b"") -> list[WaitingVector]:
        """Return versions that wait for a model to make their vectors."""
        return await self.ask_store(report.A_READ, lambda store: store.waiting_vectors(schema, limit, after))

    async def embedded_schemas(self, most: int = 1_000_000) -> list[EmbeddedSchema]:
        """Return the schemas whose texts a model embeds."""
        return await self.ask_store(report.A_READ, lambda store: store.embedded_schemas(most))

    async def store_vectors(self, schema: str, spec: VectorSpec, given: Sequence[GivenVector]) -> int:
        """Store vectors of versions that wait."""
        return await self.ask_store("storing vectors", lambda store: store.store_vectors(schema, spec, given))

    async def referrers(self, id: str, limit: int | None, view: View = STORED) -> list[Datum]:
        """Return records whose declared refs hold this id."""
        return await self.ask_store(report.A_READ, lambda store: store.referrers(id, limit, view))

    # -- calls that need the store --------------------------------------------------------

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """Return a record and its chain of parents."""
        return await self.ask_store(report.A_READ, lambda store: store.ancestors(id, limit))

    async def history(self, id: str, limit: int | None) -> list[Version]:
        """Return the kept versions of a record."""
        return await self.ask_store("history", lambda store: store.history(id, limit))

    async def changes(self, since: int, limit: int) -> list[Change]:
        """Return commits after a seq, in order."""
        return await self.ask_store("the log", lambda store: store.changes(since, limit))

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or after `timeout_s` seconds."""
        found = await self._ask(lambda store: _box(store.wait(since, timeout_s)))
        return since if found is None else found[0]

    async def states_before(self, seq: int) -> list[Reverted]:
        """Return the versions of a commit's records before it."""
        return await self.ask_store("undo", lambda store: store.states_before(seq))

    async def validate(self, guard: Guard, view: View) -> int:
        """Return the newest seq; raises TransactionConflict if the guard fails."""
        return await self.ask_store("a transaction", lambda store: store.validate(guard, view))

    async def last_seq(self) -> int:
        """Return the newest seq."""
        return await self.ask_store("the number of the newest commit", lambda store: store.last_seq())

    async def seq_at(self, moment: datetime) -> int:
        """Return the newest seq at a time."""
        return await self.ask_store("the past", lambda store: store.seq_at(moment))

    async def versions(self, schema: str) -> dict[int, int]:
        """Return the number of live records by stored schema version."""
        return await self.ask_store("the count of versions", lambda store: store.versions(schema))

    async def drop_index(self, schema: str, path: str) -> None:
        """Remove a declared index."""
        await self.ask_store("dropping an index", lambda store: _box(store.drop_index(schema, path)))

    async def forget(
        self,
        ids: Sequence[str],
        author: str,
        room: str | None,
        only_deleted: bool = False,
        at_us: int | None = None,
    ) -> Forgotten:
        """Erase records permanently, in the outbox too; refused if they have pending changes."""
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
        """Declare a schema to the store; if it is unavailable, when it is back."""
        declaration = check_declaration(declaration)
        self.declared[declaration.name] = declaration
        found = await self._ask(lambda store: store.declare(declaration))
        return Declared(False) if found is None else found

    async def _declare(self, store: Backend, declaration: Declaration) -> None:
        """Declare a schema to a store that came back, and build its indexes in the background."""
        if not (await store.declare(declaration)).filling:
            return

        async def build_index() -> None:
            with suppress(DgentError):
                while await store.fill(declaration.name, self._view):
                    await asyncio.sleep(0)

        task = asyncio.get_running_loop().create_task(build_index(), name=f"dgent-fill-{declaration.name}")
        self._index_builds.add(task)
        task.add_done_callback(self._index_builds.discard)

    async def fill(self, schema: str, view: View) -> bool:
        """Index one batch of old records; False if none are left or the store is unavailable."""
        return bool(await self._ask(lambda store: _box(store.fill(schema, view))) == (True,))

    @property
    def reachable_store(self) -> Backend:
        """The store itself; raises Unavailable while it cannot be reached."""
        if self._down is not None:
            self._refuse("maintenance")
        return self._store

    def upkeep(self) -> Upkeep:
        """Return the maintenance interface of the store."""
        return upkeep_of(self.reachable_store)

    @property
    def epoch(self) -> bytes:
        """The epoch of the store; empty while it cannot be reached."""
        return b"" if self._down is not None else getattr(self._store, "epoch", b"")

    @property
    def agent(self) -> str | None:
        """The agent that a server takes this program for; None if the store has no such."""
        return getattr(self._store, "agent", None) or None

    @property
    def holds_rooms(self) -> bool:
        """True unless the store is on a server."""
        return getattr(self._store, "holds_rooms", True)

    async def stats(self) -> BackendStats:
        """Return statistics of the store, or partial ones; `details["degraded"]` says which."""
        await self.outbox.refresh()
        found = await self.ask_at_hand(
            lambda store: store.stats(),
            lambda: report.partial_stats(self, self._place.shown, self._view),
        )
        if found.details.get("degraded"):
            return found
        conflicts, pending = len(self.outbox.clashes), len(self.outbox.pending)
        state = {"degraded": False, "pending": pending, "conflicts": conflicts, "outbox": self.outbox.path}
        return msgspec.structs.replace(found, details={**found.details, **state})


async def _box(answer: Awaitable[R]) -> tuple[R]:
    """Wrap an answer that may be None, so that it differs from no answer."""
    return (await answer,)
