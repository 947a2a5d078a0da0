"""The universe of this process, for code that is not handed one."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from dgent.errors import InputError, NoUniverse
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.universe.universe import Universe

T = TypeVar("T")

_current: Universe | None = None


def set_universe(universe: Universe | None) -> Universe | None:
    """Set the universe of this process; returns the one before."""
    global _current
    if universe is not None and not isinstance(universe, Universe):
        raise InputError(f"this takes a Universe, not {type(universe).__name__}", field="universe")
    before, _current = _current, universe
    return before


def get_universe() -> Universe:
    """Return the universe of this process; raises NoUniverse if none is set."""
    if _current is None:
        raise NoUniverse("no universe is set for this process")
    return _current


class DataMixin:
    """Gives an agent class a memory: `self.data`, `self.remember`, `self.recall`."""

    @property
    def data(self) -> Universe:
        """The universe of this process."""
        return get_universe()

    @overload
    async def remember(self, value: dict[str, Any], *, schema: None = None, **fields: Any) -> Datum: ...
    @overload
    async def remember(self, value: T, **fields: Any) -> Crystal[T]: ...
    async def remember(self, value: T, **fields: Any) -> Crystal[T] | Datum:
        """Store a value; a dict without a schema becomes a plain datum."""
        return await self.data.remember(value, **fields)

    async def recall(self, query: Query) -> list[Crystal[Any]]:
        """Find typed values."""
        return await self.data.recall(query)
