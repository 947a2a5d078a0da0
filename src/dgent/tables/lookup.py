"""Find tables by name: the models that dgent ships, and all others at a place, by reflection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, MetaData, String, Table, inspect
from sqlalchemy.exc import NoSuchTableError

from dgent import ids
from dgent.errors import InputError, NotFound
from dgent.system.near import nearest
from dgent.tables.adapter import TableAdapter
from dgent.tables.migrate import OWN_VERSION_TABLE, VERSION_TABLE
from dgent.tables.models import MODELS
from dgent.tables.place import Place

_HIDDEN = frozenset((OWN_VERSION_TABLE, VERSION_TABLE))


class FoundTable(NamedTuple):
    """A table: the name that verbs have for it, its own, its columns, and whether it is there yet."""

    name: str
    table: str
    columns: list[str]
    ready: bool


async def list_tables(place: Place) -> list[FoundTable]:
    """Return the shipped models, then the other tables of a place by name."""

    def look(connection: Connection) -> dict[str, list[str]]:
        found = inspect(connection)
        names = sorted(set(found.get_table_names()) - _HIDDEN)
        return {name: [str(each["name"]) for each in found.get_columns(name)] for name in names}

    async with place.engine.connect() as opened:
        there = await opened.run_sync(look)
    shipped = [
        FoundTable(
            name,
            model.__tablename__,
            [column.key for column in model.__table__.columns],
            model.__tablename__ in there,
        )
        for name, model in MODELS.items()
    ]
    ours = {each.table for each in shipped}
    return shipped + [
        FoundTable(name, name, columns, True) for name, columns in there.items() if name not in ours
    ]


def find_id(adapter: TableAdapter[Any], data: Mapping[str, Any]) -> str:
    """Return the id of a row that is to be put: that of its data, or a new one where the key is a text."""
    rows = adapter.rows
    if all(data.get(name) is not None for name in rows.key):
        return rows.write_id([data[name] for name in rows.key])
    if len(rows.key) == 1 and isinstance(rows.columns[rows.key[0]].type, String):
        return ids.new_id()
    raise InputError(
        f"the data has no {', '.join(rows.key)}, which is the key of {rows.name}",
        hint="give it in the data, or the row's id",
        field=rows.key[0],
    )


async def find_adapter(place: Place, name: str) -> TableAdapter[Any]:
    """Return the adapter of a shipped model, or of any table of a place; NotFound names the nearest."""
    for short, model in MODELS.items():
        if name in (short, model.__tablename__):
            return TableAdapter(model, place.sessions)

    def reflect(connection: Connection) -> Table | None:
        try:
            return Table(name, MetaData(), autoload_with=connection)
        except NoSuchTableError:
            return None

    table = None
    # No engine takes NUL or half a character in a name.
    if name.isprintable() and name not in _HIDDEN and not name.startswith("sqlite_"):
        async with place.engine.connect() as opened:
            table = await opened.run_sync(reflect)
    if table is None:
        known = [each.name for each in await list_tables(place)]
        hint = nearest(name, known) or f"there are {', '.join(known)}"
        raise NotFound(f"there is no model or table {name!r}", hint=hint, model=name)
    return TableAdapter(table, place.sessions)
