"""Let code that was written once, without `await`, wait for answers from the network.

The commit, plan and read code are plain functions over a kernel. Here the kernel's primitives are round
trips. `run` calls such a function in a greenlet; where the kernel calls `wait`, the greenlet steps aside,
the event loop goes on, and the answer is handed back in.

`Begun` is for a coroutine that should not wait for the loop to come round before it starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from greenlet import getcurrent, greenlet

R = TypeVar("R")


async def run(work: Callable[[], R]) -> R:
    """Call a function that may `wait`; it runs on this thread, between other tasks."""
    side = greenlet(work)
    side.gr_context = copy_context()
    awaited: Any = side.switch()
    while not side.dead:
        try:
            answer = await awaited
        except BaseException as error:
            awaited = side.throw(error)
        else:
            awaited = side.switch(answer)
    result: R = awaited
    return result


def wait(awaitable: Awaitable[R]) -> R:
    """Return the result of an awaitable, inside a function called by `run`."""
    parent = getcurrent().parent
    assert parent is not None, "only a function called by `run` can wait"
    answer: R = parent.switch(awaitable)
    return answer


class Begun(Generic[R]):
    """A coroutine that has run up to its first wait; awaited later, by a task, it goes on from there.

    Until then it has no task, so nothing in its beginning may ask for the current one.
    """

    def __init__(self, work: Coroutine[Any, Any, R]) -> None:
        self._work = work
        self._first: Any = None
        self._ended: BaseException | None = None  # it never waited: its end, with a result or an error
        try:
            self._first = work.send(None)
        except BaseException as end:
            self._ended = end

    def __await__(self) -> Generator[Any, Any, R]:
        if self._ended is not None:
            if isinstance(self._ended, StopIteration):
                result: R = self._ended.value
                return result
            raise self._ended
        waited = self._first
        try:
            while True:
                try:
                    answer = yield waited
                except BaseException as error:
                    waited = self._work.throw(error)
                else:
                    waited = self._work.send(answer)
        except StopIteration as end:
            result = end.value
            return result
