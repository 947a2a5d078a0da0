"""The table: get, set, delete and fetch for every kind of entity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from dgent import clock, codec, ids
from dgent.cupboard import errors
from dgent.cupboard.builtin import BORN
from dgent.cupboard.change import Changeset, check_entity_id
from dgent.cupboard.record import ROOM
from dgent.cupboard.tables.entity import SHARED, Entity, Memory, Propertied, Values, duplicate
from dgent.cupboard.tables.filter import Filter, read_filter, take_page
from dgent.errors import Conflict
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.order import same
from dgent.model.query import MAX_LIMIT, Query
from dgent.model.schema import Schema

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

E = TypeVar("E", bound=Entity)

ORDERED = {"created_at": "created_at", "id": "id"}
RESERVED = f"{ROOM}/"  # prefix of the ids that the room uses itself
TEXTS = ("name", "goal", "reason", "lesson", "description", "changed_by")
NAMING = {
    "id",
    "trail_id",
    "parent_id",
    "whole_id",
    "content_contains",
}  # filters that are not part of the store query
MAPS = ("properties", "extra")  # fields that are merged key by key


@dataclass(frozen=True)
class EntityVersion(Generic[E]):
    """One version of an entity and the commit that made it; `entity` is None for a deletion."""

    rev: int
    seq: int
    at: datetime
    author: str | None
    note: str | None
    entity: E | None


class Table(ABC, Generic[E]):
    """One kind of entity. `set(None, x)` creates, `set(id, x)` updates, or creates it under that id."""

    name: ClassVar[str]
    noun: ClassVar[str]
    entity: ClassVar[type[Any]]
    schema: ClassVar[Schema[Any]]
    columns: ClassVar[Mapping[str, str]]  # columns that `fetch` can filter by, and the kinds of their values
    alias: ClassVar[str]  # another name of the column `id`
    newest_first: ClassVar[bool] = False
    by_time: ClassVar[bool] = True  # `fetch` returns them by creation time
    built_in: ClassVar[Mapping[str, Any]] = {}  # records that exist before the first write
    short_ids: ClassVar[bool] = False  # its entities have short ids

    def __init__(self, cupboard: Cupboard) -> None:
        self._cupboard = cupboard

    # -- the four operations ----------------------------------------------------------------

    async def get(self, id: str) -> E:
        """Return the entity of an id; raises EntityNotFound."""
        universe = await self._cupboard._ready()
        found = self._find_builtins().get(check_entity_id(id)) or await universe.get(id)
        if found is None and self.short_ids:
            found = await universe.get(await self._cupboard._find_id(id, self))
        if not isinstance(found, Crystal) or found.schema_name != self.schema.name:
            raise self._make_not_found(id)
        return self._build(found)

    async def set(self, id: str | None, entity: E, *, expected_version: int | None = None) -> str:
        """Store an entity and return its id; only what was changed since it was read is written.

        The entity gets its id, its times and defaults. Raises Conflict, and writes nothing, if another caller
        changed the same part or deleted it meanwhile. `expected_version` is the version that the stored one
        must have: the version of a stash, the rev of others.
        """
        self._cupboard._check_attached()
        if not isinstance(entity, self.entity):
            raise errors.InvalidData(
                f"{self.name} holds {self.entity.__name__}s, not {type(entity).__name__}"
            )
        wanted = None if id is None or id == "" else await self._resolve(check_entity_id(id))

        async def work(changeset: Changeset) -> str:
            return await self._set(changeset, wanted, entity, expected_version)

        made, changeset = await self._cupboard._change(work, f"{self.noun} {entity_name(entity)}".strip())
        self._write_back(entity, made, changeset)
        return made

    async def delete(self, id: str, *, expected_version: int | None = None) -> None:
        """Delete an entity with everything that depends on it."""
        self._cupboard._check_attached()
        wanted = await self._resolve(check_entity_id(id))

        async def work(changeset: Changeset) -> None:
            old = await changeset.find(self.schema.shape.made, wanted)
            if old is None:
                raise self._make_not_found(wanted)
            if expected_version is not None:
                self._check_version(changeset, wanted, old, expected_version)
            await self._remove(changeset, wanted)

        await self._cupboard._change(work, f"delete {self.noun} {wanted}")

    async def fetch(self, filter: Mapping[str, Any] | None = None, **filters: Any) -> list[E]:
        """Return the entities that match a filter; all of them without one.

        `fetch({"states": ["ready"]})` or `fetch(states=["ready"])`. Unknown keys are ignored. For more than
        fits into memory use `iterate`.
        """
        self._cupboard._check_attached()
        wanted = self._parse_filter(filter, filters)
        found = await self._select(await self._cupboard._ready(), wanted)
        found.reverse()
        return [self._build(found.pop()) for _ in range(len(found))]  # frees each record as it goes

    async def iterate(self, filter: Mapping[str, Any] | None = None, **filters: Any) -> AsyncIterator[E]:
        """Yield the entities that `fetch` returns, as of one moment, reading a page at a time."""
        self._cupboard._check_attached()
        wanted = self._parse_filter(filter, filters)
        universe = await self._cupboard._ready()
        streams = self.by_time and wanted.limit != 0
        if not streams or self._find_builtins() or wanted.values.keys() & NAMING:
            for found in await self._select(universe, wanted):
                yield self._build(found)
            return
        query = _limit_query(await self._query(wanted), wanted)
        async for found in universe.iterate(query):
            if isinstance(found, Crystal):
                yield self._build(found)

    def _parse_filter(self, filter: Mapping[str, Any] | None, filters: dict[str, Any]) -> Filter:
        wanted = read_filter(filter, filters, self.columns)
        if self.alias in wanted.values:
            named = wanted.values.pop(self.alias)
            wanted.values["id"] = tuple(id for id in named if id in wanted.values.get("id", named))
        return wanted

    async def versions(self, id: str) -> list[EntityVersion[E]]:
        """Return every kept version of an entity, oldest first; none if it never existed."""
        universe = await self._cupboard._ready()
        editions: list[EntityVersion[E]] = []
        for version in reversed(await universe.history(await self._resolve(check_entity_id(id)))):
            found = None if version.datum is None else universe.contracts.lenient(version.datum)
            if found is not None and not (
                isinstance(found, Crystal) and found.schema_name == self.schema.name
            ):
                continue  # another kind of record then, or unreadable
            made = None if found is None else self._build(found)
            editions.append(
                EntityVersion(version.rev, version.seq, version.at, version.author, version.note, made)
            )
        return editions if any(each.entity is not None for each in editions) else []

    async def _resolve(self, id: str) -> str:
        """Return the id of the entity that has a short id; any other id as it is."""
        return await self._cupboard._find_id(id, self) if self.short_ids else id

    # -- overridden by each kind of entity --------------------------------------------------

    @abstractmethod
    async def _write(self, changeset: Changeset, id: str, entity: E, old: Any) -> None:
        """Check an entity and put its record into a changeset; `old` is the stored record, if any."""

    async def _new_id(self, changeset: Changeset, entity: E) -> str:
        """Choose the id of a new entity."""
        return ids.new_id()

    async def _remove(self, changeset: Changeset, id: str) -> None:
        """Delete a record with everything that depends on it."""
        changeset.drop(id)

    async def _where(self, wanted: Filter) -> dict[Any, Any]:
        """Return the condition of the query for a filter."""
        where: dict[Any, Any] = {}
        alternatives: list[dict[Any, Any]] = []
        for column, value in wanted.values.items():
            if column in ORDERED:
                continue
            if column != "properties":
                where[column] = {"$in": list(value)} if isinstance(value, tuple) else {"$eq": value}
                continue
            for name_or_id, wish in value.items():
                if isinstance(wish, set | frozenset):  # all of these items
                    for each in sorted(wish):
                        path, condition, _ = self._make_property_condition(name_or_id, each)
                        alternatives.append({path: condition})
                    continue
                path, condition, is_default = self._make_property_condition(name_or_id, wish)
                if is_default:
                    # Entities older than the property have no value of it, and so the default.
                    alternatives.append({"$or": [{path: condition}, {path: {"$exists": False}}]})
                else:
                    where[path] = condition
        return where if not alternatives else {"$and": [*([where] if where else []), *alternatives]}

    def _make_property_condition(self, name_or_id: str, value: Any) -> tuple[tuple[str, str], Any, bool]:
        """Return the path of a property's values, the condition for one, and whether it is the default."""
        definition = self._cupboard._definitions.find(self.entity.SCOPE, name_or_id)
        path = ("properties", definition.id)
        if definition.value_type == "list" and isinstance(value, str):
            return path, {"$contains": value}, False
        try:
            stored = definition.encode(value)
        except (errors.TypeMismatch, errors.InvalidCategory) as error:
            raise errors.InvalidFilter(error.message, hint=error.hint) from None
        return path, {"$eq": stored}, stored == definition.default()

    # -- shared steps -----------------------------------------------------------------------

    async def _set(self, changeset: Changeset, id: str | None, entity: E, expected: int | None) -> str:
        old = None
        if id is None:
            id = await self._new_id(changeset, entity)
        else:
            old = await changeset.find(self.schema.shape.made, id)
            if old is None and (id.startswith(RESERVED) or await changeset.exists(id)):
                raise errors.InvalidID(f"{id!r} is the id of another kind of record", id=id)
        if expected is not None:
            self._check_version(changeset, id, old, expected)
        await self._check_present(changeset, id, entity)
        await self._write(changeset, id, entity, old)
        return id

    async def _check_present(self, changeset: Changeset, id: str, entity: E) -> None:
        """Raise Conflict for an entity that was read or stored under this id and deleted since.

        A new one under the same id counts as another entity. An entity of another store may be copied here.
        """
        memory = entity._memory
        if memory is None or entity.id != id:
            return
        stored, ours = changeset.get_stored(id), memory.home == self._cupboard._home
        if stored is not None:
            gone = ours and stored.created_at != memory.created_at
        else:
            gone = ours or bool(await changeset.tx._universe.history(id, limit=1))
        if gone:
            raise Conflict(
                f"the {self.noun} {id!r} was deleted since it was read",
                hint=f"undo its deletion, or make a new {self.entity.__name__}",
                id=id,
            )

    def _check_version(self, changeset: Changeset, id: str, old: Any, expected: int) -> None:
        stored = changeset.get_stored(id)
        rev = 0 if stored is None else stored.rev
        if rev != expected:
            raise Conflict(f"the {self.noun} {id!r} is at version {rev}, not {expected}", id=id, version=rev)

    def _merge_fields(self, changeset: Changeset, id: str, entity: E, old: Any) -> dict[str, Any]:
        """Return the fields to store: the caller's changes on top of concurrent ones; raises Conflict.

        For an entity that was not read under this id, all its fields count as changed; only property values
        that it does not mention stay.
        """
        base = self._base(changeset, id, entity)
        out: dict[str, Any] = {}
        for name in entity.OWN:
            mine = duplicate(getattr(entity, name))
            if name in MAPS:
                mine = _check_map(name, mine)
            elif name in TEXTS and mine is not None and not isinstance(mine, str):
                kind = errors.InvalidName if name == "name" else errors.InvalidData
                raise kind(f"the {name} of a {self.noun} is text, not {mine!r:.80}", field=name)
            if old is None:
                out[name] = mine
                continue
            theirs = self._decode_field(changeset, name, getattr(old, name))
            if base is None:
                out[name] = {**theirs, **mine} if name in MAPS else mine
            elif name in MAPS:
                out[name] = self._merge_map(entity, name, mine, base[name], theirs)
            elif same(mine, base[name]):
                out[name] = theirs
            elif same(theirs, base[name]) or same(theirs, mine):
                out[name] = mine
            else:
                raise self._make_conflict(entity, name, theirs)
        return out

    def _base(self, changeset: Changeset, id: str, entity: E) -> dict[str, Any] | None:
        """Return the fields of an entity as they were read; None if it was not read under this id."""
        stored, memory = changeset.get_stored(id), entity._memory
        if entity.id != id or stored is None or memory is None:
            return None
        if memory.home != self._cupboard._home and entity.seq != stored.seq:
            raise Conflict(
                f"the {self.noun} {id!r} was read through another cupboard, and differs here",
                hint="get it from this one, and change that",
                id=id,
            )
        return entity._original_fields(memory.record)

    def _merge_map(self, entity: E, name: str, mine: Any, base: Any, theirs: Any) -> dict[str, Any]:
        out, base = dict(theirs), dict(base)
        for key in {**base, **mine}:
            was, want = base.get(key, _NOTHING), mine.get(key, _NOTHING)
            if same(want, was):
                continue
            now = out.get(key, _NOTHING)
            gone = (
                now is _NOTHING and name == "properties"
            )  # its definition was deleted: the check of values reports that
            if not gone and not same(now, was) and not same(now, want):
                raise self._make_conflict(entity, f"{name}.{key}", now)
            if want is _NOTHING:
                out.pop(key, None)
            else:
                out[key] = want
        return out

    def _make_conflict(self, entity: E, field: str, theirs: Any) -> Conflict:
        return Conflict(
            f"the {self.noun} {entity.id!r} was changed meanwhile: its {field} is now {theirs!r:.80}",
            hint="get it again, and decide",
            id=entity.id,
            field=field,
        )

    def _decode_field(self, changeset: Changeset, name: str, value: Any) -> Any:
        """Return a stored field as the entity has it, for comparison."""
        if name == "properties" and issubclass(self.entity, Propertied):
            return changeset.definitions.decode_values(self.entity.SCOPE, value)
        return value

    def _build(self, found: Crystal[Any]) -> E:
        entity: E = self.entity()
        self._fill(entity, found.value)
        self._remember(entity, found.id, found.value, found.created_at, found.seq)
        return entity

    def _remember(self, entity: E, id: str, record: Any, created_at: datetime, seq: int | None) -> None:
        """Set id and times of an entity, and record what it was read from or stored as."""
        cupboard, before = self._cupboard, entity._memory
        taken_by = before.taken_by if before is not None and before.id == id else None
        entity.id, entity.created_at, entity.seq = id, created_at, seq
        entity._memory = Memory(id, record, cupboard._home, created_at, seq, cupboard._definitions, taken_by)

    def _fill(self, entity: E, record: Any) -> None:
        """Set the fields of an entity from its record."""
        known = vars(record)
        for name in entity.__dataclass_fields__.keys() & known.keys():
            if name != "properties":
                value = known[name]
                setattr(entity, name, value if type(value) in SHARED else duplicate(value))
        if isinstance(entity, Propertied):
            definitions = self._cupboard._definitions
            filled = definitions.decode_values(entity.SCOPE, record.properties)
            entity.properties = Values(filled, definitions.names(entity.SCOPE))

    def _write_back(self, entity: E, id: str, changeset: Changeset) -> None:
        """Set id, times and defaults of an entity as they were stored."""
        record = changeset.record(id)
        self._fill(entity, record)
        self._remember(entity, id, record, changeset.created_at(id), changeset.seq(id))

    async def _select(self, universe: Any, wanted: Filter) -> list[Crystal[Any]]:
        """Return the matching records in order."""
        if born := self._find_builtins():
            named = wanted.values.get("id", born)
            test = await self._query(wanted)
            kept = [each for id, each in born.items() if id in named and test.matches(each.datum)]
            return take_page(self._sort(kept), wanted)
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
            return take_page(self._sort(kept), wanted)
        return list(await universe.recall(_limit_query(await self._query(wanted), wanted)))

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

    def _sort(self, found: list[Crystal[Any]]) -> list[Crystal[Any]]:
        return sorted(found, key=lambda each: (each.created_at, each.id), reverse=self.newest_first)

    def _find_builtins(self) -> dict[str, Crystal[Any]]:
        """Return the built-in records, until the first change has written them."""
        if not self.built_in or self._cupboard._catalog_rev:
            return {}
        return {id: _build_crystal(self.schema, id, record) for id, record in self.built_in.items()}

    def _make_not_found(self, id: str) -> errors.EntityNotFound:
        return errors.EntityNotFound(f"no {self.noun} has the id {id!r}", id=id)


_NOTHING = object()


def _check_map(name: str, value: Any) -> dict[str, Any]:
    """Return a field that maps texts to values as a plain map; raises InvalidData."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise errors.InvalidData(
            f"expected a map from text to values for {name!r}, got {value!r:.80}", field=name
        )
    return dict(value) if name == "properties" else cast(dict[str, Any], codec.plain(dict(value)))


def _build_crystal(schema: Schema[Any], id: str, record: Any) -> Crystal[Any]:
    data, value = schema.shape.settle(record)
    datum = Datum(id, data=data, created_at=BORN, schema=schema.name, schema_version=schema.version)
    return Crystal(datum, value, schema.name, schema.version)


def entity_name(entity: Any) -> str:
    """Return the name of an entity for a commit note."""
    return str(getattr(entity, "name", "") or getattr(entity, "link_type", "") or "")[:80]


def _limit_query(query: Query, wanted: Filter) -> Query:
    """Return a query for the wanted part of its answer; no store has more records than the bounds allow."""
    limit = None if wanted.limit is None else min(wanted.limit, MAX_LIMIT)
    return query.replace(limit=limit, offset=min(wanted.offset, MAX_LIMIT))
