"""The background thread whose event loop does the work: one per process, made on first use."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol, TypeVar, TypeVarTuple
from weakref import WeakSet

from dgent.errors import Closed, Unsupported

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

EXIT_S = 5.0  # how long the end of the program waits for stores that nobody closed


class BlockingWarning(RuntimeWarning):
    """A blocking call was made on a thread whose event loop has to wait for it."""


class Resident(Protocol):
    """Something that must be closed before the loop ends."""

    async def leave(self) -> None:
        """Close it; called on the loop."""
        ...


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that still serves threads which run on after the main thread has ended."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], R], *args: *Ts
    ) -> asyncio.Future[R]:
        """Run work in a pool; here and now when Python takes no more work for pools."""
        try:
            return super().run_in_executor(executor, func, *args)
        except RuntimeError:
            # From the end of the main thread on, every pool of the process refuses work.
            if self.is_closed():
                raise
        future: asyncio.Future[R] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class Runner:
    """An event loop in a daemon thread, and the rules for those who wait for it."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = _Loop()
        self.residents: set[Resident] = set()
        self.lost = False  # in a forked child there is the object, but no thread
        self.leaving = False  # the program is ending: nobody is answered any more
        self._over = False
        self._door = threading.Lock()
        self._thread = threading.Thread(target=self._main, name="dgent-sync", daemon=True)
        self._thread.start()
        self._ident = self._thread.ident

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._over:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # Raised by code of a contract; its call gets it, and the other calls go on.
                continue
        self.loop.close()

    # -- for those who call -----------------------------------------------------------------

    def check(self) -> None:
        """Refuse a call that could never be answered; warn of one that holds up another loop."""
        self.check_alive()
        if threading.get_ident() == self._ident:
            raise Unsupported(
                "a blocking call on the thread of dgent.sync would wait for itself",
                hint="call it from another thread, or hand the result in",
            )
        running = asyncio._get_running_loop()
        if running is not None and running is not self.loop:
            warn_of_blocking()

    def check_alive(self) -> None:
        """Refuse a call in a child process, and at the end of the program."""
        if self.lost or self.leaving:
            self._refuse()

    def submit(self, work: Callable[..., object], *args: Any) -> None:
        """Have something called on the loop's thread."""
        if not self.lost:  # its lock may have been held when the process forked
            with self._door:
                if not self.leaving:
                    self.loop.call_soon_threadsafe(work, *args)
                    return
        self._refuse()

    def submit_quietly(self, work: Callable[..., object], *args: Any) -> None:
        """Like `submit`, for a finalizer: it takes no lock, and does nothing when it is too late."""
        try:
            if not self.lost:
                self.loop.call_soon_threadsafe(work, *args)
        except RuntimeError:
            return

    def _refuse(self) -> None:
        if self.lost:
            raise Closed("this universe was opened before fork", hint="open it again in the child process")
        if threading.current_thread().daemon:
            # The program is over and this thread is about to be stopped: an error would only make noise.
            threading.Event().wait()
        raise Closed("the program is ending")

    # -- the end ----------------------------------------------------------------------------

    def leave(self, timeout_s: float) -> None:
        """Close what was left open and end the thread; give up when that takes too long."""
        with self._door:
            self.leaving = True
            self.loop.call_soon_threadsafe(self._begin_end)
        self._thread.join(timeout_s)

    def _begin_end(self) -> None:
        self._end = self.loop.create_task(self._wind_down())  # a loop alone does not keep its tasks

    async def _wind_down(self) -> None:
        try:
            closing = [resident.leave() for resident in list(self.residents)]
            await asyncio.gather(*closing, return_exceptions=True)
            others = asyncio.all_tasks() - {self._end}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self.loop.shutdown_asyncgens()
        finally:
            self._over = True
            self.loop.stop()


class GivenLoop(Runner):
    """The event loop of a universe that somebody else opened, with the rules of the background one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.residents = set()
        self.lost = self.leaving = False
        _given.add(self)

    def check(self) -> None:
        """Refuse a call that could never be answered; warn of one that holds up another loop."""
        self.check_alive()
        running = asyncio._get_running_loop()
        if running is self.loop:
            raise Unsupported(
                "a blocking call on the event loop of its universe would wait for itself",
                hint="use `await place.arun(...)` there, or give dgent.sync.anywhere a URL",
            )
        if running is not None:
            warn_of_blocking()

    def check_alive(self) -> None:
        """Refuse a call when nobody could answer it."""
        super().check_alive()
        if not self.loop.is_running():
            raise Closed(
                "the event loop of this universe is not running",
                hint="give dgent.sync.anywhere a URL instead of a universe",
            )

    def submit(self, work: Callable[..., object], *args: Any) -> None:
        """Have something called on the loop's thread."""
        self.check_alive()
        try:
            self.loop.call_soon_threadsafe(work, *args)
        except RuntimeError:
            self.check_alive()  # it was closed just now
            raise


_runner: Runner | None = None
_given: WeakSet[GivenLoop] = WeakSet()
_starting = threading.Lock()
_inherited: list[Runner] = []
_warned = False


def runner() -> Runner:
    """Return the runner of this process."""
    global _runner
    with _starting:
        if _runner is None:
            _runner = Runner()
        return _runner


def warn_of_blocking() -> None:
    """Warn, once in a process, that a call holds up the event loop of its thread."""
    global _warned
    if _warned:
        return
    _warned = True
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("dgent."):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        "a dgent.sync call blocks this thread's event loop until it is answered; "
        "in async code use `await` with dgent.open, or asyncio.to_thread",
        BlockingWarning,
        stacklevel=level,
    )


def _after_fork() -> None:
    global _runner, _starting
    _starting = threading.Lock()
    for given in _given:
        given.lost = True
    if _runner is not None:
        # Kept and never closed: its selector and its pipe are shared with the parent.
        _runner.lost = True
        _inherited.append(_runner)
        _runner = None


def _at_exit() -> None:
    if _runner is not None:
        _runner.leave(EXIT_S)


os.register_at_fork(after_in_child=_after_fork)
# Runs after the program's own threads have ended, so that none of them loses its store.
atexit.register(_at_exit)
