"""Letting code that was written once, without `await`, wait for answers from the network.

The ledger, the planner and the reader are plain functions over a kernel. Here the kernel's
primitives are round trips. `run` calls such a function in a greenlet; where the kernel says `wait`,
the greenlet steps aside, the event loop goes on, and the answer is handed back in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

R = TypeVar("R")


async def run(work: Callable[[], R]) -> R:
    """Call a function that may `wait`; it runs on this thread, between other tasks."""
    side = greenlet(work)
    side.gr_context = copy_context()
    told: Any = side.switch()
    while not side.dead:
        try:
            answer = await told
        except BaseException as error:
            told = side.throw(error)
        else:
            told = side.switch(answer)
    result: R = told
    return result


def wait(awaitable: Awaitable[R]) -> R:
    """The result of an awaitable, inside a function called by `run`."""
    parent = getcurrent().parent
    assert parent is not None, "only a function called by `run` can wait"
    answer: R = parent.switch(awaitable)
    return answer
