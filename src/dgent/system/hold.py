"""Take hold of something, and release it again when the caller was cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

R = TypeVar("R")


async def hold_or_release(taking: Coroutine[Any, Any, R], release: Callable[[R], Awaitable[Any]]) -> R:
    """Return what was taken; a caller that is cancelled waits until it is taken and released again.

    A commit that is cancelled may still happen, and then nobody would know of the lease that it wrote.
    """
    task = asyncio.ensure_future(taking)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:

        async def undo() -> None:
            with suppress(Exception):  # the caller is gone: a lease that stays ends by itself
                await release(await task)

        await asyncio.shield(asyncio.ensure_future(undo()))  # goes on if the caller is cancelled again
        raise
