"""The state that a universe and everything made from it share: their loop, and whether it is closed."""

from __future__ import annotations

import asyncio
import functools
import operator
import threading
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, NoReturn
from weakref import WeakSet

from dgent.errors import Closed, DgentError
from dgent.sync import wording
from dgent.sync.call import BlockingCall
from dgent.sync.runner import Runner, runner
from dgent.sync.stream import Pump
from dgent.system.threads import visit
from dgent.universe.universe import Universe

WAITS = object()
"""The answer of `now` for a read that cannot be done without waiting."""


_send = operator.methodcaller("send", None)


class Begun:
    """A coroutine that was begun on another thread than the loop's.

    `waits_for` is what it waits for: the answer of a thread, or None if it is to go on on the loop.
    """

    __slots__ = ("left", "waits_for")

    def __init__(self, left: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self.left, self.waits_for = left, waits_for

    async def go_on(self, _universe: Universe) -> Any:
        """Return the result of the coroutine; runs on the loop."""
        return await _go_on(self.left, self.waits_for)


@coroutine
def _go_on(left: Any, waits_for: Any) -> Generator[Any, Any, Any]:
    if waits_for is not None:
        yield waits_for
    return (yield from left)


class LoopHome:
    """The state of one universe on the background loop."""

    def __init__(self, universe: Universe | None, on: Runner | None = None) -> None:
        self.runner = on or runner()
        self.universe = universe
        self.reads_now = universe is not None and hasattr(universe.backend, "get_now")
        self.pumps: WeakSet[Pump[Any]] = WeakSet()  # only touched on the loop
        self._closed = False
        self._closing = threading.Lock()
        self._reading: dict[int, threading.RLock] = {}

    # -- calls ------------------------------------------------------------------------------

    def begin(self) -> BlockingCall:
        """Return a call that may be made from this thread now."""
        self.runner.check()
        if self._closed:
            self._refuse()
        return BlockingCall(self.runner)

    def now(self, function: Callable[..., Coroutine[Any, Any, Any]], args: Any, kwargs: Any) -> Any:
        """Do a point read on this thread; WAITS when it is not one after all.

        The async method itself runs, driven by hand: on an engine with `get_now` it never waits, and so its
        checks, conversions and errors are the same without being written twice.
        """
        self.runner.check()
        return self.read_here(function, args, kwargs)

    def read_here(self, function: Callable[..., Coroutine[Any, Any, Any]], args: Any, kwargs: Any) -> Any:
        """Do a point read like `now`, on a thread that may run an event loop."""
        # A lock for each thread: readers do not wait for each other, only `close` waits for them.
        with self._reading.get(me := threading.get_ident()) or self._lock_of(me):
            if not self._closed:
                return self._step(functools.partial(function, *args, **kwargs))
        return self._refuse()

    def begin_here(self, patient: bool, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Begin a coroutine on this thread; returns its result, or what is left of it as `Begun`."""
        with self._reading.get(me := threading.get_ident()) or self._lock_of(me):
            if self._closed:
                self._refuse()
            return self.drive(function(*args, **kwargs), patient)

    def drive(self, left: Coroutine[Any, Any, Any], patient: bool) -> Any:
        """Go on with a coroutine on this thread until it is done, or waits."""
        before, away = asyncio._get_running_loop(), (visit.away, visit.patient)
        try:
            asyncio._set_running_loop(self.runner.loop)
            visit.away, visit.patient = True, patient
            return Begun(left, left.send(None))
        except StopIteration as done:
            return done.value
        finally:
            visit.away, visit.patient = away
            asyncio._set_running_loop(before)

    def _step(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        before, away = asyncio._get_running_loop(), visit.away
        try:
            asyncio._set_running_loop(self.runner.loop)
            visit.away = before is not self.runner.loop
            # Made and started by C code: an interrupt between the two would leave a coroutine that
            # never ran, and a warning about it. What waits after all is closed when it is dropped.
            next(map(_send, map(operator.call, (make,))))
        except StopIteration as done:
            return done.value
        except DgentError as error:
            error.hint = wording.blocking(error.hint)
            raise
        finally:
            visit.away = away
            asyncio._set_running_loop(before)
        return WAITS

    def _lock_of(self, thread: int) -> threading.RLock:
        return self._reading.setdefault(thread, threading.RLock())

    def _refuse(self) -> NoReturn:
        self.runner.check_alive()  # closed by the end of the program, perhaps: that is another matter
        raise self._closed_error()

    # -- the end ----------------------------------------------------------------------------

    def close_at_exit(self) -> None:
        """Have the store closed at the end of the program if nobody does it before."""
        self.runner.residents.add(self)

    def close(self) -> None:
        """Close the universe; a second caller waits for the first."""
        if self.runner.lost or self.runner.leaving:
            return  # it belongs to the process before fork, or is being closed by the end of this one
        self.runner.check()
        with self._closing:
            self._shut()
            # Not cancelled by an interrupt: a store that is half closed is of no use to anyone.
            BlockingCall(self.runner, whole=True).run(self.leave)

    async def leave(self) -> None:
        """Close the universe; called on the loop."""
        self._shut()
        for pump in list(self.pumps):
            pump.end(self._closed_error())
        try:
            await self._close_store()
        finally:
            self.runner.residents.discard(self)

    async def _close_store(self) -> None:
        if self.universe is not None:
            await self.universe.close()

    def _shut(self) -> None:
        self._closed = True
        for lock in list(self._reading.values()):
            with lock:
                pass  # a read that had begun is done

    def _closed_error(self) -> DgentError:
        """Return the error for a call after the end."""
        return Closed("this universe was closed", hint="call dgent.sync.open again")
