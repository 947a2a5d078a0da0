"""A part of one record, read and changed through a lens."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dgent import clock, ids
from dgent.errors import InputError, NotFound, VersionConflict
from dgent.model.crystal import Crystal
from dgent.model.lens import Lens

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

A = TypeVar("A")

WAIT_S = 30.0  # a count of attempts would starve the slower of two on a loaded machine


class Focus(Generic[A]):
    """The part of a record that a lens shows: of a crystal's value, or of a raw datum's data."""

    def __init__(self, universe: Universe, id: str, lens: Lens[Any, A]) -> None:
        self._universe = universe
        self.id = ids.check_id(id)
        if not isinstance(lens, Lens):
            raise InputError(f"focus takes a Lens, not {type(lens).__name__}", field="lens")
        self.lens = lens

    async def get(self) -> A:
        """Return the part as it is now."""
        found = await self._load()
        return self.lens.get(_whole(found))

    async def set(self, part: A) -> Any:
        """Change the part; tried again when someone else changes the record at the same time."""
        return await self.modify(lambda _: part)

    async def modify(self, change: Callable[[A], A | Awaitable[A]]) -> Any:
        """Change the part by a function of its value, plain or async; tried again like `set`."""
        # Those of this program wait for each other; only other programs can be faster then.
        async with self._universe.names.alone(f"focus on {self.id}"):
            began = time.monotonic()
            for attempt in count():
                # What is at hand will do: the store checks the version, also when it is back.
                found = await self._load(partial=True)
                part = change(self.lens.get(_whole(found)))
                whole = self.lens.set(_whole(found), await part if inspect.isawaitable(part) else part)
                made = {"value": whole} if isinstance(found, Crystal) else {"data": whole}
                try:
                    return await self._universe.store(found.replace(**made), expect=found.rev)
                except VersionConflict:
                    if time.monotonic() - began > WAIT_S:
                        raise
                    await asyncio.sleep(clock.jitter(0, 0.001 * 2 ** min(attempt, 6)))
        raise AssertionError("an attempt raises or returns")

    async def _load(self, partial: bool = False) -> Any:
        found = await self._universe.get(self.id, partial=partial)
        if found is None and partial:
            return await self._load()
        if found is None:
            raise NotFound(f"no record {self.id!r} to focus on", id=self.id)
        return found


def _whole(found: Any) -> Any:
    return found.value if isinstance(found, Crystal) else found.data
