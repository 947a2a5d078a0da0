"""Run work on threads, and stop it when its caller is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class _Visit(threading.local):
    away = False
    patient = False


visit = _Visit()
"""`away` is True while this thread does work of an event loop that runs on another thread.

`patient` is True if nobody else waits for this thread, so that it may do what takes a while.
"""


@coroutine
def _pass_on(waits_for: Future[Any] | None = None) -> Generator[Future[Any] | None, None, None]:
    yield waits_for


async def return_to_loop() -> None:
    """Continue on the thread of the loop, where a coroutine may wait; does nothing there."""
    if visit.away:
        await _pass_on()  # whoever drives the coroutine hands it over to the loop


async def wait_away(answer: Future[R]) -> R:
    """Wait for what another thread answers, while this one does work of a loop that runs elsewhere."""
    await _pass_on(answer)  # whoever drives the coroutine waits, each in its own way
    return answer.result()


def on_loop(work: Callable[..., object], *args: object) -> bool:
    """Have work done on the thread of the running loop if this is another one; False if it is not."""
    if visit.away:
        asyncio.get_running_loop().call_soon_threadsafe(work, *args)
    return visit.away


class Stopped:
    """A flag that the caller of long work is gone; threads check it."""

    def __init__(self) -> None:
        self.now = False

    def __call__(self) -> bool:
        return self.now


async def in_thread(work: Callable[[Stopped], R], release: Callable[[R], object] | None = None) -> R:
    """Run work on a thread; a cancelled caller waits until the work noticed and tidied up.

    `release` closes what the work returned for a caller who was cancelled, such as an open file.
    """
    stopped = Stopped()
    future = asyncio.get_running_loop().run_in_executor(None, work, stopped)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stopped.now = True
        if release is not None:  # by the future itself: the caller may be cancelled once more
            future.add_done_callback(partial(_release_result, release))
        with suppress(BaseException):
            await asyncio.shield(future)
        raise


def _release_result(release: Callable[[R], object], done: asyncio.Future[R]) -> None:
    if not done.cancelled() and done.exception() is None:
        release(done.result())


async def in_daemon_thread(work: Callable[[], R]) -> R:
    """Run work on a thread that neither a cancelled caller nor the end of the process waits for.

    For code of strangers that may never return, and must not keep a loop from closing.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[R | None, BaseException | None]] = loop.create_future()

    def settle(result: R | None, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="dgent-call", daemon=True).start()
    result, error = await ended
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # without an error there is a result
