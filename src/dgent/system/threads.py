"""Run work on threads, and stop it when its caller is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

R = TypeVar("R")


class Stopped:
    """A flag that the caller of long work is gone; threads check it."""

    def __init__(self) -> None:
        self.now = False

    def __call__(self) -> bool:
        return self.now


async def in_thread(work: Callable[[Stopped], R]) -> R:
    """Run work on a thread; a cancelled caller waits until the work noticed and tidied up."""
    stopped = Stopped()
    future = asyncio.get_running_loop().run_in_executor(None, work, stopped)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stopped.now = True
        with suppress(BaseException):
            await asyncio.shield(future)
        raise
