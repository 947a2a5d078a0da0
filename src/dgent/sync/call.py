"""One call: a coroutine on the loop, and the thread or the task that waits for it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from dgent.errors import Closed, DgentError, InputError
from dgent.sync import wording
from dgent.sync.runner import Runner

R = TypeVar("R")

GRACE_S = 2.0  # how long an interrupted call is given to end

Request = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class BlockingCall:
    """Runs a coroutine on the loop and blocks this thread until it is done.

    Functions that the caller handed in are run here, by the waiting thread, while the coroutine waits
    for them: so they may make blocking calls themselves.
    """

    __slots__ = ("_inbox", "_runner", "_task", "_whole")

    def __init__(self, runner: Runner, *, whole: bool = False) -> None:
        self._runner = runner
        self._whole = whole  # goes on to its end, also when the waiting thread is interrupted
        self._inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._task: asyncio.Task[Any] | None = None

    # -- on the calling thread --------------------------------------------------------------

    def run(self, function: Callable[..., Awaitable[R]], /, *args: Any, **kwargs: Any) -> R:
        """Return the result of a coroutine function; when this thread is interrupted, it is cancelled."""
        try:
            # The coroutine is made over there: no interrupt can come between making and starting it.
            self._runner.submit(self._start, function, args, kwargs)
            while (request := self._inbox.get()) is not None:
                self._serve(*request)
        except BaseException:
            if not self._whole:
                self._abandon()
            raise
        task = self._task
        assert task is not None
        if task.cancelled():
            raise Closed("the call was cancelled because the universe is being closed")
        try:
            result: R = task.result()
            return result
        except DgentError as error:
            error.hint = wording.blocking(error.hint)
            raise
        finally:
            del task, self  # or an error would hold the frames that hold it

    def _serve(self, future: asyncio.Future[Any], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Run a function for the coroutine; one that is not an Exception ends the call instead."""
        result: Any = None
        error: Exception | None = None
        try:
            result = _plain(work(*args))
        except StopIteration as stop:
            # No coroutine can raise it; there, too, it would come out as this.
            error = RuntimeError("the function raised StopIteration")
            error.__cause__ = stop
        except Exception as raised:
            error = raised
        self._runner.submit(_settle, future, result, error)
        del error  # or it would hold the frame that holds it

    def _abandon(self) -> None:
        """Cancel the call and wait until it is over; a commit that has begun happens as a whole."""
        with suppress(queue.Empty, Closed):
            self._runner.submit(self._stop)
            while self._inbox.get(timeout=GRACE_S) is not None:
                pass

    # -- on the loop's thread ---------------------------------------------------------------

    def _start(self, function: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> None:
        async def main() -> Any:
            return await function(*args, **kwargs)

        self._task = self._runner.loop.create_task(main())
        self._task.add_done_callback(self._done)

    def _stop(self) -> None:
        if self._task is None or not self._task.cancel():
            # Interrupted even before it was handed over, or when the answer was there already.
            self._inbox.put(None)

    def _done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # seen, also when the waiting thread was interrupted
        if not self._runner.leaving:
            self._inbox.put(None)

    def asking(self, work: Callable[..., Any], wrap: Callable[[Any], Any]) -> Callable[..., Any]:
        """Return the async form of a caller's function: it has the waiting thread run it."""

        async def ask(*args: Any) -> Any:
            future = self._runner.loop.create_future()
            # In the coroutine's context, so that calls from inside the function know where they are.
            here = contextvars.copy_context()
            self._inbox.put((future, partial(here.run, work), tuple(map(wrap, args))))
            return await future

        return ask


class AwaitedCall:
    """Runs a coroutine on the loop of a store for a task of another loop, which waits without blocking."""

    __slots__ = ("_cancelled", "_done", "_loop", "_runner", "_task", "_whole")

    def __init__(self, runner: Runner, *, whole: bool = False) -> None:
        self._runner = runner
        self._whole = whole  # goes on to its end, also when the caller is cancelled
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    async def run(self, function: Callable[..., Awaitable[R]], *args: Any) -> R:
        """Return the result of a coroutine function; a cancelled caller waits until it is over, too.

        So nothing goes on in the background: what was under way has happened as a whole, or not at all.
        """
        self._runner.submit(self._start, function, args)
        try:
            await self._done
        except asyncio.CancelledError:
            self._done = self._loop.create_future()
            with suppress(Closed):
                self._runner.submit(self._check_end if self._whole else self._stop)
                await self._done
            raise
        assert self._task is not None
        if self._task.cancelled():
            raise Closed("the call was cancelled because the universe is being closed")
        try:
            result: R = self._task.result()
            return result
        finally:
            del self  # or an error would hold the frames that hold it

    def _start(self, function: Callable[..., Awaitable[Any]], args: Any) -> None:
        async def main() -> Any:
            return await function(*args)

        if self._cancelled:
            self._report()
            return
        self._task = self._runner.loop.create_task(main())
        self._task.add_done_callback(self._finish)

    def _stop(self) -> None:
        self._cancelled = True
        if self._task is not None and not self._task.cancel():
            self._report()

    def _check_end(self) -> None:
        if self._task is not None and self._task.done():
            self._report()

    def _finish(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # seen, also when the caller was cancelled
        self._report()

    def _report(self) -> None:
        with suppress(RuntimeError):  # the caller's loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if not self._done.done():
            self._done.set_result(None)


def _plain(result: Any) -> Any:
    if inspect.iscoroutine(result):
        result.close()
        raise InputError("dgent.sync takes plain functions, and this one is async", hint="use `def`")
    return result


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
