"""Iterators over items from the loop: a page ahead, and closed when they are given up."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dgent.errors import Closed

if TYPE_CHECKING:
    from dgent.sync.home import LoopHome

T = TypeVar("T")

AHEAD = 256  # items that are fetched before anyone asks for them


class Pump(Generic[T]):
    """Moves items from an async iterator to where another thread takes them.

    Everything but `items` is touched on the loop only. It holds no reference to the `Stream`, which can
    therefore be garbage-collected.
    """

    def __init__(self, source: AsyncIterator[T]) -> None:
        self.items: deque[T] = deque()
        self.over = False
        self.error: BaseException | None = None
        self._source = source
        self._task: asyncio.Task[None] | None = None
        self._filled = asyncio.Event()
        self._room = asyncio.Event()

    async def more(self, home: LoopHome) -> None:
        """Wait for an item, or for the end."""
        if self._task is None and not self.over:
            self._task = asyncio.get_running_loop().create_task(self._run())
            home.pumps.add(self)
        self._room.set()
        while not self.items and not self.over:
            self._filled.clear()
            await self._filled.wait()

    async def _run(self) -> None:
        try:
            async for item in self._source:
                self.items.append(item)
                self._filled.set()
                if len(self.items) >= AHEAD:
                    self._room.clear()
                    await self._room.wait()
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.over = True
            self._filled.set()
            await _aclose(self._source)

    def end(self, error: BaseException | None = None) -> asyncio.Task[None] | None:
        """Stop; a consumer that still asks gets the error, or the plain end."""
        if not self.over:
            self.over = True
            self.error = error
            self.items.clear()
            self._filled.set()
            if self._task is not None:
                self._task.cancel()
        return self._task

    async def close(self) -> None:
        """Stop and wait until the source is closed."""
        task = self.end()
        if task is not None:
            await asyncio.wait([task])


async def _aclose(source: AsyncIterator[Any]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


class Stream(Iterator[T]):
    """A blocking iterator; leaving the loop early is fine, and `close` or `with` end it at once."""

    def __init__(self, home: LoopHome, source: AsyncIterator[T]) -> None:
        self._home = home
        self._pump: Pump[T] = Pump(source)

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> T:
        pump, home = self._pump, self._home
        while True:
            if home.runner.lost:
                home.runner.check()
            try:
                return pump.items.popleft()
            except IndexError:
                pass
            if not pump.over:
                home.begin().run(pump.more, home)
            elif not pump.items:
                error, pump.error = pump.error, None
                if error is None:
                    raise StopIteration
                home.runner.check()  # no error at the end of the program
                raise error

    def close(self) -> None:
        """Give up the rest."""
        if not self._pump.over and not self._home.runner.lost:
            with contextlib.suppress(Closed):  # closing the universe closes this, too
                self._home.begin().run(self._pump.close)

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._pump.over:
            self._home.runner.submit_quietly(self._pump.end)
