"""Verbs for the tables of the cupboard as they are: get, set, list and delete, the same for each.

Keys are written as in `CrumbID`, and read in either spelling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, TypeAlias

import msgspec

from dgent.cupboard import Cupboard, Table, errors
from dgent.cupboard.tables.entity import Propertied
from dgent.cupboard.tables.filter import normalize_key
from dgent.errors import Conflict, InputError, NotFound
from dgent.system.near import nearest
from dgent.verbs import parse
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.cupboard.answer import Removed
from dgent.verbs.registry import Ask, Items, argument, option, verb

Row: TypeAlias = dict[str, Any]
TableName = Annotated[
    str,
    argument("crumbs, trails, links, properties, categories, stashes, metadata or schemas", complete="table"),
]
ADDED = ("crumbs", "trails", "stashes", "metadata")  # a new one of these changes nothing that is there
GIVEN = ("id", "short_id", "lease_until", "holder", "token", "crumbs", "seq", "last_operation")


class CupboardInfo(msgspec.Struct, frozen=True):
    """A cupboard: where it is, and how much each of its tables holds."""

    place: str
    tables: dict[str, int]


class Init(Ask):
    """Input of `cupboard.init`."""

    prefix: Annotated[str | None, option("the beginning of new short ids, such as web for web-a3f8")] = None


def _only_adds(ask: Init) -> Effect | None:
    """Only appends without a prefix."""
    return "append" if ask.prefix is None else None


@verb("cupboard.init", effect="write", errors=(InputError,), lighter=_only_adds, makes=True)
async def init(context: Context, ask: Init) -> CupboardInfo:
    """Make the cupboard, with what is built in; what is there stays as it is."""
    cupboard = await input.cupboard_of(context)
    await cupboard.prepare()
    if ask.prefix is not None:
        await cupboard.set_prefix(ask.prefix)
    names = ("crumbs", "trails", "links", "properties", "categories", "stashes", "metadata", "schemas")
    counts = {name: await cupboard.universe.count(schema=cupboard.table(name).schema.name) for name in names}
    return CupboardInfo((await cupboard.universe.stats()).place, counts)


class GetRow(Ask):
    """Input of `cupboard.get` and `cupboard.delete`."""

    table: TableName
    id: Annotated[str, argument("the id, or the beginning of it")]


@verb("cupboard.get", effect="read", errors=(InputError, NotFound))
async def get(context: Context, ask: GetRow) -> Row:
    """Show an entity of a table."""
    cupboard = await input.cupboard_of(context)
    return _row(cupboard.table(ask.table), await input.find_entity(cupboard, ask.table, ask.id))


class SetRow(Ask):
    """Input of `cupboard.set`."""

    table: TableName
    id: Annotated[str, argument('the id; "" makes a new one')]
    data: Annotated[Any, argument("what to change, as a JSON object; - reads it", words=True)]


def _adds(ask: SetRow) -> Effect | None:
    """Only appends without an id, except to tables whose entities affect others."""
    return "append" if not ask.id and ask.table in ADDED else None


@verb("cupboard.set", effect="write", errors=(InputError, NotFound, Conflict), lighter=_adds, makes=True)
async def set_(context: Context, ask: SetRow) -> Row:
    """Store an entity in a table; what is not given stays as it is."""
    given = ask.data if isinstance(ask.data, dict) else parse.mapping(str(ask.data), "data")
    cupboard = await input.cupboard_of(context)
    table = cupboard.table(ask.table)
    entity = table.entity()
    if ask.id:
        # The whole id: the beginning of another one would be an update of that.
        with suppress(errors.EntityNotFound):
            entity = await table.get(ask.id)
    _fill(table, entity, given, new=not entity.id)
    await table.set(ask.id or None, entity)
    return _row(table, entity)


class ListRows(Ask):
    """Input of `cupboard.list`."""

    table: TableName
    filter: Annotated[tuple[str, ...], argument("state=ready, Name=Alpha, limit=5 …; all must hold")] = ()


@verb("cupboard.list", effect="read", errors=(InputError, NotFound))
async def list_(context: Context, ask: ListRows) -> Items[Row]:
    """List the entities of a table that match all of some filters."""
    cupboard = await input.cupboard_of(context)
    table = cupboard.table(ask.table)
    filters = await _filters(cupboard, table, ask.filter)
    return Items([_row(table, each) for each in await table.fetch(filters)])


@verb("cupboard.delete", effect="write", errors=(InputError, NotFound, Conflict))
async def delete(context: Context, ask: GetRow) -> Removed:
    """Remove an entity of a table, with what goes with it; undo brings it back."""
    cupboard = await input.cupboard_of(context)
    table = cupboard.table(ask.table)
    entity = await input.find_entity(cupboard, ask.table, ask.id)
    await table.delete(entity.id)
    return Removed(ask.table, entity.id, str(getattr(entity, "name", "")))


# -- entities as rows, and rows as entities ---------------------------------------------------


def _key(name: str) -> str:
    """Spell a field as rows do: `crumb_id` becomes CrumbID."""
    return "".join("ID" if part == "id" else part.capitalize() for part in name.split("_"))


def _row(table: Table[Any], entity: Any) -> Row:
    alias = table.alias if table.alias.endswith("_id") else "id"
    row: Row = {_key(alias): entity.id}
    for field in fields(entity):
        if field.name.startswith("_") or field.name in ("id", "properties", "seq", "extra"):
            continue
        row[_key(field.name)] = getattr(entity, field.name)
    if isinstance(entity, Propertied):
        row["Properties"] = entity.readable()
    return row | ({"Extra": entity.extra} if entity.extra else {})


def _fill(table: Table[Any], entity: Any, given: Mapping[str, Any], new: bool) -> None:
    """Set the fields of an entity from a row; leaves the fields alone that the store sets."""
    known = {
        normalize_key(field.name): field.name for field in fields(entity) if not field.name.startswith("_")
    }
    known[normalize_key(table.alias)] = "id" if table.alias.endswith("_id") else "name"
    for key, value in given.items():
        name = known.get(normalize_key(key))
        if name is None:
            hint = nearest(key, [_key(each) for each in known.values()])
            raise errors.InvalidData(f"{table.name} have no {key!r}", hint=hint, field=key)
        if name in GIVEN or (not new and name in ("created_at", "updated_at", "version")):
            continue
        if name == "properties":
            _set_properties(entity, value)
        elif name == "state" and table.name == "crumbs" and isinstance(value, str):
            entity.state = input.state_of(value)
        else:
            setattr(entity, name, _moment(value, key) if _is_time(entity, name) else value)


def _is_time(entity: Any, name: str) -> bool:
    return "datetime" in str(type(entity).__dataclass_fields__[name].type)


def _set_properties(entity: Any, values: Any) -> None:
    if not isinstance(values, dict):
        raise errors.InvalidData("Properties is a JSON object", field="Properties")
    for name, value in values.items():
        entity.set_property(name, value)


def _moment(value: Any, key: str) -> datetime | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise errors.InvalidData(f"{key} is a time as text, not {value!r:.80}", field=key)
    return parse.ahead(value, key) if normalize_key(key) == "deferuntil" else parse.moment(value, key)


async def _filters(cupboard: Cupboard, table: Table[Any], given: Iterable[str]) -> dict[str, Any]:
    """Parse filters given as key=value; a key that is a property's name looks for its value."""
    kinds = {normalize_key(column): kind for column, kind in table.columns.items()}
    definitions = await cupboard.definitions()
    named = (
        {normalize_key(each.name): each for each in definitions.of("crumb")} if table.name == "crumbs" else {}
    )
    filters: dict[str, Any] = {}
    for each in given:
        key, sign, raw = each.partition("=")
        if not sign or not key.strip():
            raise errors.InvalidFilter(f"{each!r} is not a filter", hint="write key=value", field="filter")
        kind, value = kinds.get(normalize_key(key.strip())), parse.value(raw)
        if kind in ("text", "texts", "time") and not isinstance(value, str | list):
            value = raw
        if table.name == "crumbs" and normalize_key(key.strip()) in ("state", "states"):
            value = input.states_of(value if isinstance(value, list) else [value])
        defined = named.get(normalize_key(key.strip()))
        if kind is None and defined is not None:
            wanted = input.filters_of({defined.name: input.parse_value(defined, raw)})
            filters["properties"] = filters.get("properties", {}) | wanted
        else:
            filters[key.strip()] = value
    return filters
