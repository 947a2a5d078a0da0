"""A part of one row, read and changed through a lens."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dgent import clock
from dgent.errors import Conflict, InputError, NotFound
from dgent.model.datum import Datum
from dgent.model.lens import Lens

if TYPE_CHECKING:
    from dgent.tables.adapter import TableAdapter

A = TypeVar("A")

WAIT_S = 30.0


class TableFocus(Generic[A]):
    """The part of a row's data that a lens shows."""

    def __init__(self, adapter: TableAdapter[Any], id: str, lens: Lens[Any, A]) -> None:
        if not isinstance(lens, Lens):
            raise InputError(f"focus takes a Lens, not {type(lens).__name__}", field="lens")
        self._adapter, self.id, self.lens = adapter, id, lens

    async def get(self) -> A:
        """Return the part as it is now."""
        return self.lens.get((await self._load()).data)

    async def set(self, part: A) -> Datum:
        """Change the part; tried again when someone else changes the row at the same time."""
        return await self.modify(lambda _: part)

    async def modify(self, change: Callable[[A], A | Awaitable[A]]) -> Datum:
        """Change the part by a function of its value, plain or async; tried again like `set`."""
        began = monotonic()
        for attempt in count():
            found = await self._load()
            part = change(self.lens.get(found.data))
            whole = self.lens.set(found.data, await part if inspect.isawaitable(part) else part)
            if await self._adapter.replace(self.id, found.data, whole):
                return await self._load()
            if monotonic() - began > WAIT_S:
                raise Conflict(
                    f"the row {self.id!r} of {self._adapter.table_name} never stayed as it was read"
                )
            await asyncio.sleep(clock.jitter(0, 0.001 * 2 ** min(attempt, 6)))
        raise AssertionError("an attempt raises or returns")

    async def _load(self) -> Datum:
        found = await self._adapter.get(self.id)
        if found is None:
            raise NotFound(f"no row {self.id!r} in {self._adapter.table_name} to focus on", id=self.id)
        return found
