"""Run a block of blocking code inside an async context manager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dgent.sync.home import LoopHome


class Stay:
    """One task of the loop that enters a manager, waits until a block is over, and leaves it.

    Everything is touched on the loop only. It holds no reference to the `Entering`, which can therefore be
    garbage-collected.
    """

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self._manager = manager
        self._task: asyncio.Task[bool | None] | None = None
        self._entered: asyncio.Future[Any]
        self._left: asyncio.Future[BaseException | None]

    async def begin(self) -> Any:
        """Enter; returns what the manager gives."""
        loop = asyncio.get_running_loop()
        self._entered, self._left = loop.create_future(), loop.create_future()
        self._task = loop.create_task(self._main(), name="dgent-block")
        self._task.add_done_callback(_retrieve_error)
        await asyncio.wait([self._task, self._entered], return_when=asyncio.FIRST_COMPLETED)
        return self._entered.result() if self._entered.done() else self._task.result()

    async def finish(self, error: BaseException | None) -> bool | None:
        """Leave; returns whether the manager has dealt with the error."""
        assert self._task is not None
        self.release(error)
        await asyncio.wait([self._task])  # it goes on to its end, also when the thread is interrupted
        return self._task.result()

    def release(self, error: BaseException | None) -> None:
        """Have it leave by itself."""
        if self._task is not None and not self._left.done():
            self._left.set_result(error)

    def give_up(self) -> None:
        """Have it leave as if the block were cancelled; an entering under way is completed before."""
        self.release(asyncio.CancelledError())

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


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # raised where the block is left, if anybody still leaves it


class Entering(AbstractContextManager[Any]):
    """The context manager that `with` enters in place of `async with`.

    As in async code, all work of the manager belongs to one task. If that fails while the block runs, the
    thread cannot be stopped; the error is raised at the end of the block.
    """

    def __init__(
        self, home: LoopHome, manager: AbstractAsyncContextManager[Any], wrap: Callable[[Any], Any]
    ) -> None:
        self._home = home
        self._wrap = wrap
        self._stay = Stay(manager)
        self._inside = False

    def __enter__(self) -> Any:
        call = self._home.begin()
        self._inside = True
        try:
            return self._wrap(call.run(self._stay.begin))
        except BaseException:  # perhaps interrupted when it was entered already
            self._inside = False
            self._home.runner.submit_quietly(self._stay.give_up)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._inside = False
        try:
            return self._home.begin().run(self._stay.finish, error)
        except BaseException:  # perhaps interrupted before it was left; how the block ended is known
            self._home.runner.submit_quietly(self._stay.release, error)
            raise

    def __del__(self) -> None:
        if self._inside:
            self._home.runner.submit_quietly(self._stay.give_up)
