"""Run the storage polynomial: operations of the ports begin and end by it, and errors lead to a recovery.

It is the only state machine of a provider. That a store is unavailable is known by the store itself
(`store/offline`), and only read here.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from dgent.errors import (
    Busy,
    Corrupt,
    DgentError,
    NoBackendAvailable,
    StorageError,
    StorageFull,
    Unavailable,
    Unsupported,
)
from dgent.model.polynomial import STORAGE_POLYNOMIAL, Phase, StorageOp, StorageState
from dgent.store.migration import find_migration, make_migrating_error, mark_migration
from dgent.store.port.relational import USUAL
from dgent.store.upkeep import upkeep_of

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

P = TypeVar("P")

_END = {
    StorageOp.READ: StorageOp.READ_DONE,
    StorageOp.WRITE: StorageOp.WRITE_DONE,
    StorageOp.MIGRATE: StorageOp.MIGRATE_DONE,
}
READS = frozenset(
    (
        *("fetch_all", "fetch_one", "get", "info", "exists", "list", "references", "query", "usage"),
        *("count", "scan", "stats", "check", "search"),
    )
)
"""Calls of ports that only read; any other one writes."""


_INDEX = {op: place for place, op in enumerate(StorageOp)}
LOOK_S, LOOK_SERVER_S = 0.01, 1.0  # so often a call looks whether another process migrates the store


class _Node:
    """A state, and the state after each input once that was worked out: most calls repeat the same steps."""

    __slots__ = ("after", "state")

    def __init__(self, state: StorageState) -> None:
        self.state = state
        self.after: list[_Node | None] = [None] * len(_INDEX)


_NODES: dict[StorageState, _Node] = {}


def _node(state: StorageState) -> _Node:
    return _NODES.setdefault(state, _Node(state))


class StorageReport(msgspec.Struct, frozen=True):
    """The position of the storage machine, what runs, and why it does not go on."""

    state: str
    reads: int = 0
    writes: int = 0
    reason: str = ""


class StorageMachine:
    """The state of a provider; every call of its ports begins and ends here."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._at = _node(StorageState.IDLE)
        self._look_at = 0.0
        self._may_degrade = hasattr(universe.backend, "degradation")
        self._error: DgentError | None = None
        self._recovering = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()  # held: a loop keeps no hold on its tasks
        self.reopen: list[Callable[[], Awaitable[None]]] = []  # how ports let go of their connections

    @property
    def _state(self) -> StorageState:
        return self._at.state

    @property
    def state(self) -> StorageState:
        """The state now: recovering, too, while the store itself says that it is unavailable."""
        if self._universe.degraded is not None and not self._state.recovering:
            return STORAGE_POLYNOMIAL.transition(self._state, StorageOp.ERROR)[0]
        return self._state

    def report(self) -> StorageReport:
        """Return the position, what runs, and the reason of a recovery."""
        state, down = self.state, self._universe.degraded
        reason = self._error.message if self._error is not None else "" if down is None else down.reason
        pid = find_migration(self._store) if state.phase is Phase.IDLE else None
        if pid is not None:
            return StorageReport(Phase.MIGRATING.value, reason=make_migrating_error(pid).message)
        return StorageReport(str(state), state.reads, state.writes, reason if state.recovering else "")

    @property
    def _backend(self) -> Any:
        return self._universe.backend

    @property
    def _store(self) -> Any:
        """The store itself, where it is behind an outbox; raises Unavailable while it cannot be reached."""
        return getattr(self._backend, "reachable_store", self._backend)

    def _step(self, op: StorageOp) -> None:
        after, _ = STORAGE_POLYNOMIAL.invoke(self._at.state, op)
        found = self._at.after[_INDEX[op]] = _node(after)
        self._at = found

    # -- operations -----------------------------------------------------------------------

    def try_begin(self, place: int) -> bool:
        """Begin an operation, by its place among the inputs, if nothing can stand in its way."""
        after = self._at.after[place]
        if after is None or self._may_degrade or monotonic() >= self._look_at:
            return False
        self._at = after
        return True

    def try_end(self, place: int) -> bool:
        """End an operation that went well, if no recovery waits for it."""
        after = self._at.after[place]
        if after is None or after.state.recovering:
            return False
        self._at = after
        return True

    async def begin(self, op: StorageOp) -> None:
        """Begin an operation; raises a retryable error while a migration or a recovery excludes it."""
        if self._state.recovering:
            await self.recover()
        if op not in STORAGE_POLYNOMIAL.directions(self.state):
            self._refuse()
        if op is not StorageOp.MIGRATE and monotonic() >= self._look_at:
            await self._look()
        self._step(op)

    async def _look(self) -> None:
        """Raise Busy while another process migrates the store; a server is asked less often than a disk."""
        store = self._store
        on_server = hasattr(store, "find_migration")
        pid = await store.find_migration() if on_server else find_migration(store)
        if pid is not None:
            raise make_migrating_error(pid)
        self._look_at = monotonic() + (LOOK_SERVER_S if on_server else LOOK_S)

    async def end(self, op: StorageOp, error: BaseException | None = None) -> None:
        """End an operation; an error of the store itself leads to a recovery, by the last that ends."""
        if isinstance(error, StorageError) and _is_failure(error):
            self._error = error
            self._step(StorageOp.ERROR)
        self._step(_END[op])
        if self._state.recovering:
            with suppress(DgentError):  # the error itself is raised; the next call tries again
                await self.recover()

    def end_soon(self, op: StorageOp) -> None:
        """End an operation where nothing can be awaited; what waits for its end goes on in a task."""
        if not self.try_end(_INDEX[_END[op]]):
            task = asyncio.get_running_loop().create_task(self.end(op))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    @asynccontextmanager
    async def running(self, op: StorageOp) -> AsyncIterator[None]:
        """Run what is inside as one operation."""
        await self.begin(op)
        failed: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failed = error
            raise
        finally:
            await self.end(op, failed)

    def _refuse(self) -> NoReturn:
        state = self.state
        if state.phase is Phase.RECOVERING:
            reason = self.report().reason
            if isinstance(self._error, Corrupt):
                raise Corrupt(reason, hint="run `dgent doctor`, or restore a backup; nothing was overwritten")
            raise Unavailable(f"the store is recovering: {reason}", hint="try again in a moment")
        if state.phase is Phase.MIGRATING:
            raise Busy("this store is being migrated by this program", hint="try again when it is done")
        raise Busy(
            f"a migration needs the store for itself, and {state.reads} reads and {state.writes} writes run",
            hint="try again when they are done",
        )

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[None]:
        """Exclude every other operation, of this process and of others, while something is migrated."""
        async with self.running(StorageOp.MIGRATE):
            store = self._store
            if hasattr(store, "mark_migration"):
                async with store.mark_migration():
                    yield
            else:
                with mark_migration(store):
                    yield

    # -- recovery -------------------------------------------------------------------------

    async def recover(self, *, by_doctor: bool = False) -> None:
        """Reopen the ports, check the store, replay the outbox; raises what is still wrong.

        A damaged store stays as it is until the doctor finds it healthy.
        """
        async with self._recovering:
            if StorageOp.RECOVERED not in STORAGE_POLYNOMIAL.directions(self._state):
                return  # done meanwhile, or others that ran when the error came have not ended
            if isinstance(self._error, Corrupt) and not by_doctor and self._error.details.get("checked"):
                self._refuse()
            try:
                for reopen in self.reopen:
                    await reopen()
                if (reconnect := getattr(self._backend, "reconnect", None)) is not None:
                    await reconnect()
                await self._check()
            except StorageError as error:
                self._error = error
                raise
            self._step(StorageOp.RECOVERED)
            self._error = None

    async def _check(self) -> None:
        """Raise Corrupt if a look at the store finds a problem."""
        await self._backend.last_seq()
        try:
            found = await upkeep_of(self._backend).inspect()
        except Unsupported:
            return
        for each in found:
            if each.level == "problem" and each.subject != "disk":  # a full disk damages nothing
                raise Corrupt(f"{each.subject}: {each.message}", checked=True)


def _is_failure(error: StorageError) -> bool:
    """Return whether an error is one of the store itself; a busy or full one works again by itself."""
    passing = isinstance(error, Busy | StorageFull | NoBackendAvailable)
    return isinstance(error, Unavailable | Corrupt) and not passing


def machine_of(universe: Universe) -> StorageMachine:
    """Return the one storage machine of a store that is open."""
    life = universe._life
    if life.machine is None:
        life.machine = StorageMachine(universe._unlimited())
    found: StorageMachine = life.machine
    return found


def obey(port: P, machine: StorageMachine) -> P:
    """Have every call of a port begin and end by the machine; returns the port."""
    if getattr(port, "_machine", None) is machine:
        return port
    for name in dir(type(port)):
        member = getattr(type(port), name)
        if name.startswith("_") or name in ("close", "reopen"):
            continue
        op = StorageOp.READ if name in READS else StorageOp.WRITE
        if inspect.iscoroutinefunction(member):
            guarded = _guard(getattr(port, name), machine, op)
            now = getattr(port, f"_{name}_now", None)
            setattr(port, name, guarded if now is None else _hasten(guarded, now, machine, op))
        elif name == "transaction":
            setattr(port, name, _guard_block(getattr(port, name), machine))
    reopen = getattr(port, "reopen", None)
    if reopen is not None:
        machine.reopen.append(reopen)
    port._machine = machine  # type: ignore[attr-defined]  # found above by the next call
    return port


def _guard(call: Callable[..., Awaitable[Any]], machine: StorageMachine, op: StorageOp) -> Callable[..., Any]:
    begins, ends = _INDEX[op], _INDEX[_END[op]]

    @functools.wraps(call)
    async def guarded(*args: Any, **named: Any) -> Any:
        if not machine.try_begin(begins):
            await machine.begin(op)
        try:
            found = await call(*args, **named)
        except BaseException as error:
            await machine.end(op, error)
            raise
        if not machine.try_end(ends):
            await machine.end(op)
        return found

    return guarded


def _hasten(
    guarded: Callable[..., Any], now: Callable[..., Any], machine: StorageMachine, op: StorageOp
) -> Callable[..., Any]:
    """Try first to do without waiting: what begins and ends in one step of the loop changes no state."""
    place = _INDEX[op]

    @functools.wraps(guarded)
    async def hastened(query: str, params: Any = None) -> Any:
        # Whether it could begin right now, as in `try_begin`; a call more would be a tenth of the statement.
        if (
            machine._at.after[place] is not None
            and not machine._may_degrade
            and monotonic() < machine._look_at
        ):
            found = now(query, params)
            if found is not USUAL:
                return found
        return await guarded(query, params)

    return hastened


def _guard_block(
    call: Callable[..., AbstractAsyncContextManager[Any]], machine: StorageMachine
) -> Callable[..., AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def guarded(*args: Any, **named: Any) -> AsyncIterator[Any]:
        async with machine.running(StorageOp.WRITE), call(*args, **named) as inner:
            yield inner

    return guarded
