"""The table: get, set, delete and fetch, the same for every kind of entity."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from dgent import clock, codec, ids
from dgent.cupboard import errors
from dgent.cupboard.builtin import BORN
from dgent.cupboard.change import Draft, check_entity_id
from dgent.cupboard.record import ROOM
from dgent.cupboard.tables.entity import Entity, Propertied, Values, duplicate
from dgent.cupboard.tables.filter import Filter, page, read
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
RESERVED = f"{ROOM}/"  # how the ids begin under which the room itself keeps things
TEXTS = ("name", "goal", "reason", "lesson", "description", "changed_by")
NAMING = {"id", "trail_id", "parent_id", "content_contains"}  # filters that are no query of the store
MAPS = ("properties", "extra")  # fields of which every key is changed by itself


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
    by_time: ClassVar[bool] = True  # whether `fetch` gives them in the order in which they were made
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
        meanwhile, or deleted it, that is a Conflict and nothing is written. `expected_version` is the version
        that the stored one must have: that of a stash, of others the rev.
        """
        self._cupboard._check()
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

    async def delete(self, id: str, *, expected_version: int | None = None) -> None:
        """Remove an entity, with all that goes with it."""
        self._cupboard._check()
        wanted = check_entity_id(id)

        async def work(draft: Draft) -> None:
            old = await draft.find(self.schema.contract, wanted)
            if old is None:
                raise self._missing(wanted)
            if expected_version is not None:
                self._check_version(draft, wanted, old, expected_version)
            await self._remove(draft, wanted)

        await self._cupboard._change(work, f"delete {self.noun} {wanted}")

    async def fetch(self, filter: Mapping[str, Any] | None = None, **filters: Any) -> list[E]:
        """The entities that match all of a filter; all of them without one.

        `fetch({"states": ["ready"]})` or `fetch(states=["ready"])`. Unknown keys are ignored. `iterate` gives
        the same one by one, for more than fit into memory.
        """
        self._cupboard._check()
        wanted = self._wanted(filter, filters)
        found = await self._select(await self._cupboard._ready(), wanted)
        found.reverse()
        return [self._made(found.pop()) for _ in range(len(found))]  # each makes room for the next

    async def iterate(self, filter: Mapping[str, Any] | None = None, **filters: Any) -> AsyncIterator[E]:
        """The entities that `fetch` gives, as of one moment, a page at a time."""
        self._cupboard._check()
        wanted = self._wanted(filter, filters)
        universe = await self._cupboard._ready()
        streams = self.by_time and wanted.limit != 0
        if not streams or self._born() or wanted.values.keys() & NAMING:
            for found in await self._select(universe, wanted):
                yield self._made(found)
            return
        query = _page_of(await self._query(wanted), wanted)
        async for found in universe.iterate(query):
            if isinstance(found, Crystal):
                yield self._made(found)

    def _wanted(self, filter: Mapping[str, Any] | None, filters: dict[str, Any]) -> Filter:
        wanted = read(filter, filters, self.columns)
        if self.alias in wanted.values:
            named = wanted.values.pop(self.alias)
            wanted.values["id"] = tuple(id for id in named if id in wanted.values.get("id", named))
        return wanted

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

    async def _new_id(self, draft: Draft, entity: E) -> str:
        """Choose the id of a new entity."""
        return ids.new_id()

    async def _remove(self, draft: Draft, id: str) -> None:
        """Take a record out, with what goes with it."""
        draft.drop(id)

    async def _where(self, wanted: Filter) -> dict[Any, Any]:
        """The query's condition for a filter."""
        where: dict[Any, Any] = {}
        alternatives = []
        for column, value in wanted.values.items():
            if column in ORDERED:
                continue
            if column != "properties":
                where[column] = {"$in": list(value)} if isinstance(value, tuple) else {"$eq": value}
                continue
            for name_or_id, wish in value.items():
                path, condition, is_default = self._property(name_or_id, wish)
                if is_default:
                    # What was made before the property was has no value of its own, and so the default.
                    alternatives.append({"$or": [{path: condition}, {path: {"$exists": False}}]})
                else:
                    where[path] = condition
        return where if not alternatives else {"$and": [*([where] if where else []), *alternatives]}

    def _property(self, name_or_id: str, value: Any) -> tuple[tuple[str, str], Any, bool]:
        """The path of a property's values, the condition for one, and whether it is the default."""
        defined = self._cupboard._definitions.find(self.entity.SCOPE, name_or_id)
        path = ("properties", defined.id)
        if defined.value_type == "list" and isinstance(value, str):
            return path, {"$contains": value}, False
        try:
            stored = defined.stored(value)
        except (errors.TypeMismatch, errors.InvalidCategory) as error:
            raise errors.InvalidFilter(error.message, hint=error.hint) from None
        return path, {"$eq": stored}, stored == defined.default()

    # -- how it goes ------------------------------------------------------------------------

    async def _set(self, draft: Draft, id: str | None, entity: E, expected: int | None) -> str:
        old = None
        if id is None:
            id = await self._new_id(draft, entity)
        else:
            old = await draft.find(self.schema.contract, id)
            if old is None and (id.startswith(RESERVED) or await draft.exists(id)):
                raise errors.InvalidID(f"{id!r} is the id of something else", id=id)
        if expected is not None:
            self._check_version(draft, id, old, expected)
        await self._check_present(draft, id, entity)
        await self._write(draft, id, entity, old)
        return id

    async def _check_present(self, draft: Draft, id: str, entity: E) -> None:
        """Raise Conflict for an entity that was read or stored under this id and was deleted since.

        One that was made anew under the id is another one. An entity of another store may be copied here.
        """
        if entity._base is None or entity.id != id:
            return
        stored, ours = draft.stored(id), entity._home == self._cupboard._home
        if stored is not None:
            gone = ours and stored.created_at != entity._born
        else:
            gone = ours or bool(await draft.tx._universe.history(id, limit=1))
        if gone:
            raise Conflict(
                f"the {self.noun} {id!r} is gone: it was deleted since it was read",
                hint=f"undo its deletion, or make a new {self.entity.__name__}",
                id=id,
            )

    def _check_version(self, draft: Draft, id: str, old: Any, expected: int) -> None:
        stored = draft.stored(id)
        rev = 0 if stored is None else stored.rev
        if rev != expected:
            raise Conflict(f"the {self.noun} {id!r} is at version {rev}, not {expected}", id=id, version=rev)

    def _merged(self, draft: Draft, id: str, entity: E, old: Any) -> dict[str, Any]:
        """The fields to store: those the caller changed, on top of what others changed meanwhile.

        Of an entity that is not what was read under this id, everything counts as changed; only the values
        that it does not mention stay as they are.
        """
        base = self._base(draft, id, entity)
        out: dict[str, Any] = {}
        for name in entity.OWN:
            mine = duplicate(getattr(entity, name))
            if name in MAPS:
                mine = _map(name, mine)
            elif name in TEXTS and mine is not None and not isinstance(mine, str):
                kind = errors.InvalidName if name == "name" else errors.InvalidData
                raise kind(f"the {name} of a {self.noun} is text, not {mine!r:.80}", field=name)
            if old is None:
                out[name] = mine
                continue
            theirs = self._native(draft, name, getattr(old, name))
            if base is None:
                out[name] = {**theirs, **mine} if name in MAPS else mine
            elif name in MAPS:
                out[name] = self._merged_map(entity, name, mine, base[name], theirs)
            elif same(mine, base[name]):
                out[name] = theirs
            elif same(theirs, base[name]) or same(theirs, mine):
                out[name] = mine
            else:
                raise self._clash(entity, name, theirs)
        return out

    def _base(self, draft: Draft, id: str, entity: E) -> dict[str, Any] | None:
        """What an entity was when it was read as this one; None when it was not."""
        stored = draft.stored(id)
        if entity.id != id or stored is None:
            return None
        if entity._base is not None and entity._home != self._cupboard._home and entity.seq != stored.seq:
            raise Conflict(
                f"the {self.noun} {id!r} was read through another cupboard, and is not the same here",
                hint="get it from this one, and change that",
                id=id,
            )
        return None if entity._base is None else entity._was()

    def _merged_map(self, entity: E, name: str, mine: Any, base: Any, theirs: Any) -> dict[str, Any]:
        out, base = dict(theirs), dict(base)
        for key in {**base, **mine}:
            was, want = base.get(key, _NOTHING), mine.get(key, _NOTHING)
            if same(want, was):
                continue
            now = out.get(key, _NOTHING)
            gone = now is _NOTHING and name == "properties"  # its definition: that is said when it is judged
            if not gone and not same(now, was) and not same(now, want):
                raise self._clash(entity, f"{name}.{key}", now)
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

    def _native(self, draft: Draft, name: str, value: Any) -> Any:
        """A stored field as the entity has it, for comparison."""
        if name == "properties" and issubclass(self.entity, Propertied):
            return draft.definitions.filled(self.entity.SCOPE, value)
        return value

    def _made(self, found: Crystal[Any]) -> E:
        entity: E = self.entity()
        self._fill(entity, found.value)
        entity.id, entity.created_at, entity.seq = found.id, found.created_at, found.seq
        entity._remember(self._cupboard._home, found.value)
        return entity

    def _fill(self, entity: E, record: Any) -> None:
        """Give an entity what its record says."""
        known = vars(record)
        for name in entity.__dataclass_fields__.keys() & known.keys():
            if name != "properties":
                setattr(entity, name, duplicate(known[name]))
        if isinstance(entity, Propertied):
            definitions = self._cupboard._definitions
            entity._definitions = definitions
            filled = definitions.filled(entity.SCOPE, record.properties)
            entity.properties = Values(filled, definitions.names(entity.SCOPE))

    def _write_back(self, entity: E, id: str, draft: Draft) -> None:
        """Give an entity its id, times and defaults, as they were stored."""
        self._fill(entity, draft.record(id))
        entity.id, entity.created_at, entity.seq = id, draft.created_at(id), draft.seq(id)
        entity._remember(self._cupboard._home, draft.record(id))

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
        return list(await universe.recall(_page_of(await self._query(wanted), wanted)))

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


def _map(name: str, value: Any) -> dict[str, Any]:
    """A field that maps texts to values, as a plain map."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise errors.InvalidData(f"{name} maps texts to values; {value!r:.80} does not", field=name)
    return dict(value) if name == "properties" else cast(dict[str, Any], codec.plain(dict(value)))


def _crystal(schema: Schema[Any], id: str, record: Any) -> Crystal[Any]:
    data, value = schema.shape.settle(record)
    datum = Datum(id, data=data, created_at=BORN, schema=schema.name, schema_version=schema.version)
    return Crystal(datum, value, schema.name, schema.version)


def entity_name(entity: Any) -> str:
    """What to call an entity in a note."""
    return str(getattr(entity, "name", "") or getattr(entity, "link_type", "") or "")[:80]


def _page_of(query: Query, wanted: Filter) -> Query:
    """The part of a query's answer that is wanted; no store has more records than the bounds allow."""
    limit = None if wanted.limit is None else min(wanted.limit, MAX_LIMIT)
    return query.replace(limit=limit, offset=min(wanted.offset, MAX_LIMIT))
