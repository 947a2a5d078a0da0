"""A block of blocking code inside an async context manager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dgent.sync.home import Home


class Block(AbstractContextManager[Any]):
    """What `with` enters in place of `async with`.

    One task of the loop enters the manager, waits for the thread's block to be over, and leaves it: as in
    async code, whatever the manager does meanwhile belongs to one task. If that goes wrong while the block
    runs, a thread cannot be stopped; it is told at the end of the block.
    """

    def __init__(
        self, home: Home, manager: AbstractAsyncContextManager[Any], wrap: Callable[[Any], Any]
    ) -> None:
        self._home = home
        self._manager = manager
        self._wrap = wrap
        # All of these are made and touched on the loop.
        self._entered: asyncio.Future[Any]
        self._left: asyncio.Future[BaseException | None]
        self._task: asyncio.Task[bool | None]

    def __enter__(self) -> Any:
        return self._wrap(self._home.begin().run(self._enter))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            call = self._home.begin()
        except BaseException:
            self._home.runner.submit_quietly(self._task.cancel)
            raise
        return call.run(self._leave, error)

    # -- on the loop --------------------------------------------------------------------------

    async def _enter(self) -> Any:
        loop = asyncio.get_running_loop()
        self._entered, self._left = loop.create_future(), loop.create_future()
        self._task = loop.create_task(self._main(), name="dgent-block")
        try:
            await asyncio.wait([self._task, self._entered], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the thread was interrupted before its block began
            self._task.cancel()
            await asyncio.wait([self._task])
            raise
        return self._entered.result() if self._entered.done() else self._task.result()

    async def _leave(self, error: BaseException | None) -> bool | None:
        if not self._left.done():
            self._left.set_result(error)
        await asyncio.wait([self._task])  # it goes on to its end, also when the thread is interrupted
        return self._task.result()

    async def _main(self) -> bool | None:
        self._entered.set_result(await self._manager.__aenter__())
        try:
            error = await self._left
        except asyncio.CancelledError as cut:
            if not await self._manager.__aexit__(type(cut), cut, cut.__traceback__):
                raise
            return None
        if error is None:
            return await self._manager.__aexit__(None, None, None)
        return await self._manager.__aexit__(type(error), error, error.__traceback__)
