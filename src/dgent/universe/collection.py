"""A typed handle on the records of one schema."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dgent.errors import InputError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import AsOf, Change, Expect, Page, Version
from dgent.universe.check import query_of, since_after
from dgent.universe.contract import Recalled
from dgent.universe.search import Hits
from dgent.universe.write import Read

if TYPE_CHECKING:
    from dgent.model.datum import Datum
    from dgent.model.lens import Lens
    from dgent.universe.focus import Focus
    from dgent.universe.meaning import Mode
    from dgent.universe.relation import Association, Resolved
    from dgent.universe.universe import Universe
    from dgent.universe.upgrade import Upgraded

T = TypeVar("T")
F = TypeVar("F")


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
        return await self._universe.update(self._mine(crystal), expect=expect, **fields)

    async def store(self, crystal: Crystal[T], **options: Any) -> Crystal[T]:
        """Store a changed crystal of this schema."""
        stored: Crystal[T] = await self._universe.store(self._mine(crystal), **options)
        return stored

    async def delete(self, id: str, **options: Any) -> bool:
        """Delete a record of this schema; False when there is none."""
        found: Datum | None = await self._universe.get(id, raw=True)
        if found is None or found.schema != self.schema.name:
            return False
        # Exactly this version: the id may become a record of another schema meanwhile.
        return await self._universe.delete(id, **{"expect": found.rev, **options})

    async def get(self, id: str, *, as_of: Any = None, partial: bool = False) -> Crystal[T] | None:
        """Return one record; None when there is none, or it is of another schema."""
        found = await self._universe.get(id, as_of=as_of, partial=partial)
        return found if self._holds(found) else None

    async def get_many(
        self, ids: Sequence[str], *, as_of: AsOf = None, partial: bool = False
    ) -> builtins.list[Crystal[T] | None]:
        """Return one answer for each id, as `get` does, all of one moment."""
        found = await self._universe.get_many(ids, as_of=as_of, partial=partial)
        return [each if self._holds(each) else None for each in found]

    async def exists(self, id: str, *, partial: bool = False) -> bool:
        """Return whether a record of this schema has this id."""
        found: Datum | None = await self._universe.get(id, raw=True, partial=partial)
        return found is not None and found.schema == self.schema.name

    async def history(self, id: str, *, limit: int | None = None) -> builtins.list[Version]:
        """Return the kept versions of a record, newest first."""
        return await self._universe.history(id, limit=limit)

    def focus(self, id: str, lens: Lens[T, F]) -> Focus[F]:
        """Return a view of a part of a record's value, which can be changed by itself."""
        return self._universe.focus(id, lens)

    async def recall(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> Recalled[T]:
        """Return matching records, newest first, now or as of an earlier moment."""
        return await self._universe.recall(self._query(query, filters), as_of=as_of, partial=partial)

    async def page(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> Page:
        """Return matching records with a cursor for the next page."""
        return await self._universe.page(self._query(query, filters), as_of=as_of, partial=partial)

    async def query(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> Recalled[T]:
        """Return matching records, newest first: `marks.query(tags={"eureka"}, limit=10)`."""
        return await self._universe.recall(self._query(query, filters), as_of=as_of, partial=partial)

    async def search(
        self,
        text: str,
        query: Query | None = None,
        *,
        k: int = 10,
        mode: Mode = "auto",
        as_of: AsOf = None,
        partial: bool = False,
        **filters: Any,
    ) -> Hits[T]:
        """Return the records of this schema that fit the words, their meaning, or both, best."""
        wanted = self._query(query, filters)
        return await self._universe.search(text, wanted, k=k, mode=mode, as_of=as_of, partial=partial)

    async def surface(
        self,
        text: str | None = None,
        query: Query | None = None,
        *,
        seed: int | str = 0,
        entropy: float = 0.7,
        k: int = 1,
        seen: Mapping[str, datetime] | None = None,
        rest: timedelta = timedelta(days=1),
        now: datetime | None = None,
        **filters: Any,
    ) -> builtins.list[Crystal[T]]:
        """Return records of this schema that are related to a text, old, and were not seen within `rest`."""
        wanted = self._query(query, filters)
        return await self._universe.surface(
            text, wanted, seed=seed, entropy=entropy, k=k, seen=seen, rest=rest, now=now
        )

    async def count(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> int:
        """Return how many records match."""
        return await self._universe.count(self._query(query, filters), as_of=as_of, partial=partial)

    async def list(
        self, prefix: str | None = None, *, after: datetime | None = None, limit: int | None = 100
    ) -> Recalled[T]:
        """Return records, newest first, whose id has a prefix and that were created after a time."""
        since = None if after is None else since_after(after)
        if since is None and after is not None:
            return Recalled()
        return await self.recall(prefix=prefix or None, since=since, limit=limit)

    def iterate(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> AsyncIterator[Any]:
        """Yield all records that match, however many, as of one moment."""
        if query is None:
            filters = {"limit": None, **filters}
        return self._universe.iterate(self._query(query, filters), as_of=as_of, partial=partial)

    def watch(
        self, since: int | None = None, query: Query | None = None, **filters: Any
    ) -> AsyncIterator[Change]:
        """Yield changes of records of this schema."""
        return self._universe.watch(since, query=self._query(query, filters))

    # -- what belongs to a record, whatever is at its other end --------------------------------

    async def causal_chain(self, id: str, *, limit: int | None = 10_000) -> builtins.list[Any]:
        """Return a record of this schema and its causes, of any schema, oldest first."""
        return await self._universe.causal_chain(id, limit=limit) if await self.exists(id) else []

    async def resolve(self, crystal: Crystal[T]) -> Resolved:
        """Load all records that a crystal of this schema refers to, in one batch."""
        return await self._universe.resolve(self._mine(crystal))

    async def referrers(self, id: str, *, limit: int | None = 100) -> builtins.list[Any]:
        """Return the records, of any schema, that refer to an id, newest first."""
        return await self._universe.referrers(id, limit=limit)

    async def associate(
        self, a: Any, b: Any, kind: str = "related", weight: float = 1.0
    ) -> Crystal[Association]:
        """Link a record to one of any schema, or change the weight of their link."""
        return await self._universe.associate(a, b, kind, weight)

    async def associated(self, id: Any, kind: str | None = None) -> builtins.list[Crystal[Association]]:
        """Return the links of a record at either end, heaviest first."""
        return await self._universe.associated(id, kind)

    async def dissociate(self, a: Any, b: Any, kind: str = "related") -> bool:
        """Remove the link from one record to another; False when there was none."""
        return await self._universe.dissociate(a, b, kind)

    # -- upkeep of the schema ------------------------------------------------------------------

    async def versions(self) -> dict[int, int]:
        """Return how many live records there are of each stored version of the schema."""
        return await self._universe.versions(self.schema.name)

    async def upgrade_all(
        self,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], Awaitable[None] | None] | None = None,
    ) -> Upgraded:
        """Rewrite every record of an older version in the newest; safe to stop and run again."""
        return await self._universe.upgrade_all(self.schema.name, dry_run=dry_run, progress=progress)

    def _holds(self, found: Any) -> bool:
        return isinstance(found, Crystal) and found.schema_name == self.schema.name

    def _mine(self, crystal: Crystal[T]) -> Crystal[T]:
        """Return a crystal of this schema; raises InputError for one of another."""
        if isinstance(crystal, Crystal) and not self._holds(crystal):
            raise InputError(f"this collection holds {self.schema.name!r}, not {crystal.schema_name!r}")
        return crystal

    def _query(self, query: Query | None, filters: dict[str, Any]) -> Query:
        made = query_of(query, filters)
        if made.schema not in (None, self.schema.name):
            raise InputError(f"this collection holds {self.schema.name!r}, not {made.schema!r}")
        return made.replace(schema=self.schema.name)
