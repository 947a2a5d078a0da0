"""A typed handle on the records of one schema."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dgent.errors import InputError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import AsOf, Change, Expect
from dgent.universe.contract import Recalled
from dgent.universe.search import Hits
from dgent.universe.write import Read

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

T = TypeVar("T")


class Collection(Generic[T]):
    """The records of one schema, with the type of its contract."""

    def __init__(self, universe: Universe, contract: type[T] | str) -> None:
        self._universe = universe
        self.schema: Schema[T] = universe.contracts.find(contract)

    async def remember(self, value: T, **fields: Any) -> Crystal[T]:
        """Store a new value."""
        return await self._universe.remember(value, schema=self.schema.name, **fields)

    async def update(
        self, crystal: Crystal[T], /, *, expect: Expect | Read = "read", **fields: Any
    ) -> Crystal[T]:
        """Store a crystal with fields of its value changed, unless its record changed since it was read."""
        if isinstance(crystal, Crystal) and crystal.schema_name != self.schema.name:
            raise InputError(f"this collection holds {self.schema.name!r}, not {crystal.schema_name!r}")
        return await self._universe.update(crystal, expect=expect, **fields)

    async def get(self, id: str, *, as_of: Any = None, partial: bool = False) -> Crystal[T] | None:
        """Return one record; None when there is none, or it is of another schema."""
        found = await self._universe.get(id, as_of=as_of, partial=partial)
        mine = isinstance(found, Crystal) and found.schema_name == self.schema.name
        return found if mine else None

    async def query(
        self, query: Query | None = None, *, partial: bool = False, **filters: Any
    ) -> Recalled[T]:
        """Return matching records, newest first: `marks.query(tags={"eureka"}, limit=10)`."""
        return await self._universe.recall(self._query(query, filters), partial=partial)

    async def search(
        self,
        text: str,
        query: Query | None = None,
        *,
        k: int = 10,
        as_of: AsOf = None,
        partial: bool = False,
        **filters: Any,
    ) -> Hits[T]:
        """Return the records of this schema whose texts fit the words best."""
        wanted = self._query(query, filters)
        return await self._universe.search(text, wanted, k=k, as_of=as_of, partial=partial)

    async def count(self, query: Query | None = None, *, partial: bool = False, **filters: Any) -> int:
        """Return how many records match."""
        return await self._universe.count(self._query(query, filters), partial=partial)

    def iterate(
        self, query: Query | None = None, *, partial: bool = False, **filters: Any
    ) -> AsyncIterator[Any]:
        """Yield all records that match, however many, as of now."""
        return self._universe.iterate(self._query(query, filters), partial=partial)

    def watch(
        self, since: int | None = None, query: Query | None = None, **filters: Any
    ) -> AsyncIterator[Change]:
        """Yield changes of records of this schema."""
        return self._universe.watch(since, query=self._query(query, filters))

    def _query(self, query: Query | None, filters: dict[str, Any]) -> Query:
        if query is None:
            return Query(schema=self.schema.name, **filters)
        if query.schema not in (None, self.schema.name):
            raise InputError(f"this collection holds {self.schema.name!r}, not {query.schema!r}")
        return query.replace(schema=self.schema.name, **filters)
