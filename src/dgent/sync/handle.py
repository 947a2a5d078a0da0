"""A handle for any thread and any event loop, also after a fork: what bridges to frameworks stand on."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from dgent.config.url import resolve_url
from dgent.errors import Closed, DgentError, InputError, StorageError
from dgent.model.schema import Schema
from dgent.sync import wording
from dgent.sync.call import GRACE_S, AwaitedCall, BlockingCall
from dgent.sync.home import WAITS, Begun, LoopHome
from dgent.sync.runner import GivenLoop, runner
from dgent.sync.stream import Pump, Stream
from dgent.sync.twin import Twin
from dgent.universe import universe as universes
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from dgent.sync import Universe as BlockingUniverse

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

POINT_READS: tuple[Any, ...] = (Universe.get, Universe.exists)
"""Calls that an engine with `get_now` answers on the caller's own thread."""


def begin_anywhere(function: F) -> F:
    """Mark an async function that handles may begin on the thread of their caller.

    It gets records, queries and commits, and awaits nothing else: no locks, tasks or pauses. Where the engine
    allows it, short work is then done there, without two changes of threads; what has to wait goes on on the
    loop of the store, from where it is.
    """
    function.may_begin_anywhere = True  # type: ignore[attr-defined]
    return function


class SharedStore:
    """One store of this process, open for all handles with the same place and options."""

    def __init__(self, universe: Universe, home: LoopHome | None = None) -> None:
        self.universe = universe
        self.process = _process
        self.handles = 0
        self.home = home  # made on first use: a program that only forks gets no thread
        self.is_open = self.is_given = universe._life.loop is not None

    @property
    def is_near(self) -> bool:
        """True if functions with the mark begin on the thread of their caller."""
        universe = self.universe
        return self.is_open and getattr(universe.backend, "any_thread", False) and not universe._undeclared

    def reach(self) -> LoopHome:
        """Return the home on the loop that answers calls."""
        if self.home is None:
            with _lock:
                self.home = self.home or LoopHome(self.universe)
        return self.home

    async def call(self, function: Callable[..., Awaitable[R]], args: Any, kwargs: Any) -> R:
        """Call a function with the universe, opened on the first call; runs on the loop."""
        if not self.is_open:
            assert self.home is not None
            await self.universe.open()
            self.home.close_at_exit()
            self.is_open = True
        try:
            return await function(self.universe, *args, **kwargs)
        except asyncio.CancelledError:
            # A commit that has begun goes on without its caller; afterwards its outcome can be read.
            settle = getattr(self.universe.backend, "settle_commits", None)
            if settle is not None:
                with suppress(StorageError):
                    await settle()
            raise

    def wait(self, answer: Future[Any]) -> None:
        """Block until a thread has answered; when interrupted, until the commit is over."""
        try:
            wait([answer])
        except BaseException:
            answer.cancel()
            wait([self._settle()], GRACE_S)
            raise

    async def await_(self, answer: Future[Any]) -> None:
        """Wait until a thread has answered; a cancelled caller, until the commit is over."""
        try:
            await _until_done(answer)
        except asyncio.CancelledError:
            answer.cancel()
            with suppress(StorageError):
                await asyncio.shield(_until_done(self._settle()))
            raise

    def _settle(self) -> Future[None]:
        settled: Future[None] = self.universe.backend.settle_here()  # type: ignore[attr-defined]
        return settled

    async def iterate(
        self, function: Callable[..., AsyncIterator[R]], args: Any, kwargs: Any
    ) -> AsyncIterator[R]:
        """Return an async iterator over something of the universe; runs on the loop."""

        async def start(universe: Universe) -> AsyncIterator[R]:
            return function(universe, *args, **kwargs)

        return await self.call(start, (), {})

    def try_here(self, home: LoopHome, patient: bool, function: Any, args: Any, kwargs: Any) -> Any:
        """Do a call on this thread, or begin it there; WAITS when that is not possible."""
        universe = self.universe
        if not self.is_open:
            return WAITS
        if getattr(function, "may_begin_anywhere", False):
            return home.begin_here(patient, function, (universe, *args), kwargs) if self.is_near else WAITS
        if function in POINT_READS and home.reads_now and kwargs.get("as_of") is None:
            return home.read_here(function, (universe, *args), kwargs)
        return WAITS


_lock = threading.RLock()  # a finalizer may close a handle while its thread is in here
_process = 0  # counts the forks between the first process and this one
_stores: dict[object, SharedStore] = {}


def _after_fork() -> None:
    global _lock, _process, _stores
    _lock, _stores = threading.RLock(), {}
    _process += 1


os.register_at_fork(after_in_child=_after_fork)


class Anywhere:
    """A handle on a store with blocking and async calls, for any thread and any event loop.

    `place.run(function, *args)` blocks, `await place.arun(function, *args)` waits. Both call an async
    function with the universe as its first argument, such as `Universe.get`, on one loop that answers
    everybody. A forked child opens the store again on first use.
    """

    def __init__(
        self, key: object, make: Callable[[], SharedStore], schemas: Sequence[Schema[Any]] = ()
    ) -> None:
        self._key = key
        self._make = make
        self._schemas = list(schemas)
        self._closed = False
        self._store = self._acquire()

    def _acquire(self) -> SharedStore:
        with _lock:
            store = _stores.get(self._key)
            if store is None:
                store = _stores[self._key] = self._make()
            store.handles += 1
        store.universe.register(*self._schemas)
        return store

    def _reach(self) -> SharedStore:
        store = self._store
        if self._closed:
            raise Closed("this handle was closed", hint="call dgent.sync.anywhere again")
        if store.process != _process:
            store = self._acquire()
            with _lock:
                if self._store.process == _process:  # another thread was faster
                    store.handles -= 1
                self._store = store
        return store

    def register(self, *schemas: Schema[Any]) -> None:
        """Register schemas, also for the child processes that use this handle."""
        self._reach().universe.register(*schemas)
        self._schemas += schemas

    @property
    def is_near(self) -> bool:
        """True if functions with the mark `begin_anywhere` now begin on the thread of their caller."""
        return self._reach().is_near

    # -- blocking ---------------------------------------------------------------------------

    def run(
        self, function: Callable[Concatenate[Universe, P], Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return the result of an async function of the universe; blocks this thread until it is there."""
        store = self._reach()
        home = store.reach()
        home.runner.check()
        try:
            found = store.try_here(home, True, function, args, kwargs)
            while isinstance(found, Begun) and isinstance(found.waits_for, Future):
                store.wait(found.waits_for)
                found = home.drive(found.left, True)
        except DgentError as error:
            error.hint = wording.blocking(error.hint)
            raise
        if found is WAITS:
            found = BlockingCall(home.runner).run(store.call, function, args, kwargs)
        elif isinstance(found, Begun):
            found = BlockingCall(home.runner).run(store.call, found.go_on, (), {})
        result: R = found
        return result

    def stream(
        self,
        function: Callable[Concatenate[Universe, P], AsyncIterator[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Stream[R]:
        """Return a blocking iterator over an async one of the universe, such as `Universe.iterate`."""
        store = self._reach()
        home = store.reach()
        home.runner.check()
        return Stream(home, BlockingCall(home.runner).run(store.iterate, function, args, kwargs))

    # -- for event loops --------------------------------------------------------------------

    async def arun(
        self, function: Callable[Concatenate[Universe, P], Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return the result of an async function of the universe; the caller's event loop goes on meanwhile.

        A cancelled call is over when the cancellation arrives: it has happened as a whole, or not at all.
        """
        store = self._reach()
        home = store.reach()
        if asyncio.get_running_loop() is home.runner.loop:  # asked by a function that runs there already
            return await store.call(function, args, kwargs)
        found = store.try_here(home, False, function, args, kwargs)
        while isinstance(found, Begun) and isinstance(found.waits_for, Future):
            await store.await_(found.waits_for)
            found = home.drive(found.left, False)
        if found is WAITS:
            found = await _await(home, store.call, function, args, kwargs)
        elif isinstance(found, Begun):
            found = await _await(home, store.call, found.go_on, (), {})
        result: R = found
        return result

    async def astream(
        self,
        function: Callable[Concatenate[Universe, P], AsyncIterator[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> AsyncIterator[R]:
        """Yield the items of an async iterator of the universe, such as `Universe.watch`."""
        store = self._reach()
        home = store.reach()
        pump = Pump(await _await(home, store.iterate, function, args, kwargs))
        try:
            while not (pump.over and not pump.items):
                while pump.items:
                    yield pump.items.popleft()
                if not pump.over:
                    await _await(home, pump.more, home)
            if pump.error is not None:
                raise pump.error
        finally:
            if not pump.over:
                await _await(home, pump.close)

    # -- the end ----------------------------------------------------------------------------

    def _release(self) -> LoopHome | None:
        """Give up this handle; returns what is to be closed with it, if it was the last one."""
        with _lock:
            store, closed = self._store, self._closed
            self._closed = True
            if closed or store.process != _process:
                return None
            store.handles -= 1
            if store.handles:
                return None
            _stores.pop(self._key, None)
            return None if store.is_given else store.home

    def close(self) -> None:
        """Close this handle, and the store with the last handle of its place; blocks until that is done.

        A universe that was given open stays open. A second call does nothing.
        """
        home = self._release()
        if home is not None:
            home.close()

    async def aclose(self) -> None:
        """Close like `close`, while the caller's event loop goes on."""
        home = self._release()
        if home is not None and not home.runner.leaving:
            await _await(home, home.leave, whole=True)

    def __enter__(self) -> Self:
        self.run(_do_nothing)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self.arun(_do_nothing)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _await(home: LoopHome, function: Callable[..., Awaitable[R]], *args: Any, whole: bool = False) -> R:
    if asyncio.get_running_loop() is home.runner.loop:
        return await function(*args)  # asked by a function that runs there already
    return await AwaitedCall(home.runner, whole=whole).run(function, *args)


async def _until_done(answer: Future[Any]) -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    def wake(_answer: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle)

    answer.add_done_callback(wake)
    await done


async def _do_nothing(_universe: Universe) -> None:
    """Open the store, which every call does."""


def anywhere(
    place: str | Sequence[str] | Universe | BlockingUniverse | Anywhere | None = None, **options: Any
) -> Anywhere:
    """Return a handle for any thread and any event loop, on a URL, a universe or what another handle has.

    Options are those of `dgent.open`. The store opens on first use; handles with the same URL and options
    share it, and the last one to be closed closes it. A child process opens it again; a universe that was
    given belongs to the process that opened it, and stays open.
    """
    if isinstance(place, Anywhere):
        _refuse_options(options)
        return Anywhere(place._key, place._make, place._schemas)
    if isinstance(place, Universe | Twin):
        _refuse_options(options)
        return Anywhere(place, _lending(place))
    urls = _resolve(place)
    key: object = (urls, frozenset(options.items())) if _is_shared(urls, options) else object()
    return Anywhere(key, lambda: SharedStore(universes.open(urls, **options)))


def _resolve(place: Any) -> Any:
    """Return URLs whose relative paths mean the same later, and in children."""
    if isinstance(place, str):
        return resolve_url(place, Path(os.getcwd()), inside=False)
    return tuple(map(_resolve, place)) if isinstance(place, Sequence) else place


def _is_shared(place: Any, options: dict[str, Any]) -> bool:
    try:
        hash((place, *options.values()))
    except TypeError:
        return False
    return bool(place != "memory:")


def _lending(given: Any) -> Callable[[], SharedStore]:
    """Return the function that shares a universe of somebody else, in this process only."""
    process = _process

    def make() -> SharedStore:
        if process != _process:
            raise Closed("this universe was opened before fork", hint="open it again in the child process")
        if isinstance(given, Twin):
            return SharedStore(given._source, given._home)
        loop = given._life.loop
        if loop is None or loop is runner().loop:
            return SharedStore(given, LoopHome(given))
        return SharedStore(given, LoopHome(given, GivenLoop(loop)))

    return make


def _refuse_options(options: dict[str, Any]) -> None:
    if options:
        raise InputError(
            f"a store that is there already takes no options, and got {', '.join(sorted(options))}",
            hint="give them with a URL",
        )
