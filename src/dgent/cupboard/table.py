"""The table: get, set, delete and fetch, the same for every kind of entity."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from dgent import clock, ids
from dgent.cupboard import errors
from dgent.cupboard.builtin import BORN
from dgent.cupboard.draft import Draft, check_entity_id
from dgent.cupboard.entity import Entity, Propertied, Values
from dgent.cupboard.filter import Filter, page, read
from dgent.errors import Conflict
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import MAX_OFFSET, Query
from dgent.model.schema import Schema

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

E = TypeVar("E", bound=Entity)

ORDERED = {"created_at": "created_at", "id": "id"}


@dataclass(frozen=True)
class Edition(Generic[E]):
    """One version of an entity, and the commit that made it; `entity` is None for a deletion."""

    rev: int
    seq: int
    at: datetime
    author: str | None
    note: str | None
    entity: E | None


class Table(Generic[E]):
    """One kind of entity. `set(None, x)` creates, `set(id, x)` updates, or creates it under that id."""

    name: ClassVar[str]
    noun: ClassVar[str]
    entity: ClassVar[type[Any]]
    schema: ClassVar[Schema[Any]]
    columns: ClassVar[Mapping[str, str]]  # what `fetch` can filter by, and the kinds of the values
    alias: ClassVar[str]  # what the id is called among the columns, besides `id`
    newest_first: ClassVar[bool] = False
    built_in: ClassVar[Mapping[str, Any]] = {}  # what is there before anything was written

    def __init__(self, cupboard: Cupboard) -> None:
        self._cupboard = cupboard

    # -- the four operations ----------------------------------------------------------------

    async def get(self, id: str) -> E:
        """The entity of an id."""
        universe = await self._cupboard._ready()
        found = self._born().get(check_entity_id(id)) or await universe.get(id)
        if not isinstance(found, Crystal) or found.schema_name != self.schema.name:
            raise self._missing(id)
        return self._made(found)

    async def set(self, id: str | None, entity: E, *, expected_version: int | None = None) -> str:
        """Store an entity and return its id; what was changed since it was read is what is written.

        The entity gets its id, its times and defaults. If somebody else changed the same part of it
        meanwhile, that is a Conflict and nothing is written. `expected_version` is the version that the
        stored one must have: that of a stash, of others the rev.
        """
        if not isinstance(entity, self.entity):
            raise errors.InvalidData(
                f"{self.name} holds {self.entity.__name__}s, not {type(entity).__name__}"
            )
        wanted = None if id is None or id == "" else check_entity_id(id)

        async def work(draft: Draft) -> str:
            return await self._set(draft, wanted, entity, expected_version)

        made, draft = await self._cupboard._change(work, f"{self.noun} {entity_name(entity)}".strip())
        self._write_back(entity, made, draft)
        return made

    async def delete(self, id: str) -> None:
        """Remove an entity, with all that goes with it."""
        wanted = check_entity_id(id)

        async def work(draft: Draft) -> None:
            if await draft.find(self.schema.contract, wanted) is None:
                raise self._missing(wanted)
            await self._remove(draft, wanted)

        await self._cupboard._change(work, f"delete {self.noun} {wanted}")

    async def fetch(self, filter_: Mapping[str, Any] | None = None, /, **filters: Any) -> list[E]:
        """The entities that match all of a filter; all of them without one.

        `fetch({"states": ["ready"]})` or `fetch(states=["ready"])`. Unknown keys are ignored.
        """
        wanted = read({**(filter_ or {}), **filters} if filters else filter_, self.columns)
        if self.alias in wanted.values:
            named = wanted.values.pop(self.alias)
            wanted.values["id"] = tuple(id for id in named if id in wanted.values.get("id", named))
        universe = await self._cupboard._ready()
        return [self._made(found) for found in await self._select(universe, wanted)]

    async def versions(self, id: str) -> list[Edition[E]]:
        """Every kept version of an entity, oldest first; none when there never was such an entity."""
        universe = await self._cupboard._ready()
        editions: list[Edition[E]] = []
        for version in reversed(await universe.history(check_entity_id(id))):
            found = None if version.datum is None else universe.contracts.lenient(version.datum)
            if found is not None and not (
                isinstance(found, Crystal) and found.schema_name == self.schema.name
            ):
                continue  # it was something else then, or cannot be read
            made = None if found is None else self._made(found)
            editions.append(Edition(version.rev, version.seq, version.at, version.author, version.note, made))
        return editions if any(each.entity is not None for each in editions) else []

    # -- what each kind of entity adds ------------------------------------------------------

    async def _write(self, draft: Draft, id: str, entity: E, old: Any) -> None:
        """Judge an entity and put its record into a draft; `old` is the stored record, if there is one."""
        raise NotImplementedError

    async def _remove(self, draft: Draft, id: str) -> None:
        """Take a record out, with what goes with it."""
        draft.drop(id)

    async def _where(self, wanted: Filter) -> dict[str, Any]:
        """The query's condition for a filter."""
        where: dict[str, Any] = {}
        for column, value in wanted.values.items():
            if column in ORDERED:
                continue
            where[column] = {"$in": list(value)} if isinstance(value, tuple) else value
        return where

    # -- how it goes ------------------------------------------------------------------------

    async def _set(self, draft: Draft, id: str | None, entity: E, expected: int | None) -> str:
        old = None
        if id is None:
            id = ids.new_id()
        else:
            old = await draft.find(self.schema.contract, id)
            if old is None and await draft.exists(id):
                raise errors.InvalidID(f"{id!r} is the id of something else", id=id)
        if expected is not None:
            self._check_version(draft, id, old, expected)
        await self._write(draft, id, entity, old)
        return id

    def _check_version(self, draft: Draft, id: str, old: Any, expected: int) -> None:
        stored = draft.stored(id)
        rev = 0 if stored is None else stored.rev
        if rev != expected:
            raise Conflict(f"the {self.noun} {id!r} is at version {rev}, not {expected}", id=id, version=rev)

    def _merged(self, entity: E, old: Any, names: Mapping[str, str] = {}) -> dict[str, Any]:
        """The fields to store: those the caller changed, on top of what others changed meanwhile."""
        base = entity._base
        out: dict[str, Any] = {}
        for name in entity.OWN:
            mine = copy.deepcopy(getattr(entity, name))
            field = names.get(name, name)
            if old is None or base is None:
                out[field] = mine
                continue
            theirs = self._native(name, getattr(old, field))
            if mine == base[name]:
                out[field] = theirs
            elif name in ("properties", "extra"):
                out[field] = self._merged_map(entity, name, mine, base[name], theirs)
            elif theirs in (base[name], mine):
                out[field] = mine
            else:
                raise self._clash(entity, name, theirs)
        return out

    def _merged_map(self, entity: E, name: str, mine: Any, base: Any, theirs: Any) -> dict[str, Any]:
        out = dict(theirs)
        for key in {**base, **mine}:
            was, want = base.get(key, _NOTHING), mine.get(key, _NOTHING)
            if want == was:
                continue
            if out.get(key, _NOTHING) not in (was, want):
                raise self._clash(entity, f"{name}.{key}", out.get(key))
            if want is _NOTHING:
                out.pop(key, None)
            else:
                out[key] = want
        return out

    def _clash(self, entity: E, field: str, theirs: Any) -> Conflict:
        return Conflict(
            f"the {self.noun} {entity.id!r} was changed meanwhile: its {field} is now {theirs!r:.80}",
            hint="get it again, and decide",
            id=entity.id,
            field=field,
        )

    def _native(self, name: str, value: Any) -> Any:
        """A stored field as the entity has it, for comparison."""
        if name == "properties" and issubclass(self.entity, Propertied):
            return self._cupboard._definitions.filled(self.entity.SCOPE, value)
        return value

    def _made(self, found: Crystal[Any]) -> E:
        entity: E = self.entity()
        self._fill(entity, found.value)
        entity.id, entity.created_at, entity.seq = found.id, found.created_at, found.seq
        entity._remember()
        return entity

    def _fill(self, entity: E, record: Any) -> None:
        """Give an entity what its record says."""
        known = vars(record)
        for field in fields(entity):
            if field.name in known and field.name != "properties":
                setattr(entity, field.name, copy.deepcopy(known[field.name]))
        if isinstance(entity, Propertied):
            definitions = self._cupboard._definitions
            names = {defined.name: defined.id for defined in definitions.of(entity.SCOPE)}
            entity._definitions = definitions
            entity.properties = Values(definitions.filled(entity.SCOPE, record.properties), names)

    def _write_back(self, entity: E, id: str, draft: Draft) -> None:
        """Give an entity its id, times and defaults, as they were stored."""
        self._fill(entity, draft.record(id))
        entity.id, entity.created_at, entity.seq = id, draft.created_at(id), draft.seq(id)
        entity._remember()

    async def _select(self, universe: Any, wanted: Filter) -> list[Crystal[Any]]:
        """The records that match, in order."""
        if born := self._born():
            named = wanted.values.get("id", born)
            test = await self._query(wanted)
            kept = [each for id, each in born.items() if id in named and test.matches(each.datum)]
            return page(self._sorted(kept), wanted)
        if "id" in wanted.values:
            found = await universe.get_many(list(wanted.values["id"]))
            rest = Filter({k: v for k, v in wanted.values.items() if k != "id"}, None, 0)
            test = await self._query(rest)
            kept = [
                each
                for each in found
                if isinstance(each, Crystal)
                and each.schema_name == self.schema.name
                and test.matches(each.datum)
            ]
            return page(self._sorted(kept), wanted)
        query = await self._query(wanted)
        if wanted.offset <= MAX_OFFSET:
            query = query.replace(limit=wanted.limit, offset=wanted.offset)
            found = await universe.recall(query)
            return list(found)
        return page(list(await universe.recall(query)), wanted)

    async def _query(self, wanted: Filter) -> Query:
        where = await self._where(wanted)
        times: dict[str, Any] = {}
        if (moment := wanted.values.get("created_at")) is not None:
            times = {"since": moment, "until": clock.from_us(clock.to_us(moment) + 1)}
        return Query(
            schema=self.schema.name,
            where=where or None,
            descending=self.newest_first,
            limit=None,
            **times,
        )

    def _sorted(self, found: list[Crystal[Any]]) -> list[Crystal[Any]]:
        return sorted(found, key=lambda each: (each.created_at, each.id), reverse=self.newest_first)

    def _born(self) -> dict[str, Crystal[Any]]:
        """What is built in, as long as the first change has not written it."""
        if not self.built_in or self._cupboard._catalog_rev:
            return {}
        return {id: _crystal(self.schema, id, record) for id, record in self.built_in.items()}

    def _missing(self, id: str) -> errors.EntityNotFound:
        return errors.EntityNotFound(f"there is no {self.noun} {id!r}", id=id)


_NOTHING = object()


def _crystal(schema: Schema[Any], id: str, record: Any) -> Crystal[Any]:
    data, value = schema.shape.settle(record)
    datum = Datum(id, data=data, created_at=BORN, schema=schema.name, schema_version=schema.version)
    return Crystal(datum, value, schema.name, schema.version)


def entity_name(entity: Any) -> str:
    """What to call an entity in a note."""
    return str(getattr(entity, "name", "") or getattr(entity, "link_type", "") or "")[:80]
