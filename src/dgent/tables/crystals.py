"""Copy the rows of a table into crystals of a universe: as often as one likes, and verified."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import tuple_

from dgent.errors import DgentError, InputError
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.universe.current import get_universe

if TYPE_CHECKING:
    from dgent.system.progress import Progress
    from dgent.tables.adapter import TableAdapter
    from dgent.universe.universe import Universe

BATCH = 500
MAX_PROBLEMS = 100  # that are listed; all are counted


class Crystallized(msgspec.Struct, frozen=True):
    """The result of copying a table: rows seen, copied, the same as before, and refused, with the reasons.

    `verified` says that a second look found a crystal with the same data for every row that was not refused.
    `left_over` counts crystals of rows that are gone.
    """

    rows: int
    copied: int
    same: int
    refused: int
    left_over: int
    verified: bool
    problems: dict[str, str]


async def crystallize(
    adapter: TableAdapter[Any],
    schema: Schema[Any],
    universe: Universe | None = None,
    *,
    progress: Progress | None = None,
) -> Crystallized:
    """Copy the rows of a table into crystals of a schema, and look whether all of them are there.

    The crystal of a row has the id `<table>:<id of the row>`, and its time and cause. What is there and the
    same is left alone, so a copy that was interrupted goes on where it ended, and a later one brings what
    changed. A row that does not fit the contract is refused and named; the others are copied.
    """
    u = get_universe() if universe is None else universe
    if not isinstance(schema, Schema):
        raise InputError(f"crystallize takes a Schema, not {type(schema).__name__}", field="schema")
    u.register(schema)
    copied = same = 0
    problems: dict[str, str] = {}
    async for batch in _batches(adapter):
        made = await _leave_others(u, _make_all(adapter, schema, batch, problems), problems)
        changed = [datum for datum, is_there in await _compare(u, made) if not is_there]
        if changed:
            await u.put_many(changed)
        copied += len(changed)
        same += len(made) - len(changed)
        if progress is not None:
            progress(copied + same + len(problems), None)
    rows = found = 0
    verified = True
    async for batch in _batches(adapter):
        made = await _leave_others(u, _make_all(adapter, schema, batch, {}), {})
        verified = verified and all(is_there for _, is_there in await _compare(u, made))
        rows, found = rows + len(batch), found + len(made)
    stored = await u.count(Query(schema=schema.name, prefix=f"{adapter.table_name}:", limit=None))
    return Crystallized(
        rows=rows,
        copied=copied,
        same=same,
        refused=len(problems),
        left_over=max(0, stored - found),
        verified=verified and stored >= found,
        problems=dict(list(problems.items())[:MAX_PROBLEMS]),
    )


async def _batches(adapter: TableAdapter[Any]) -> AsyncIterator[Sequence[Datum]]:
    """Yield the rows in the order of their key, each batch in a short read of its own."""
    table = adapter.rows.table
    key = [adapter.rows.columns[name] for name in adapter.rows.key]
    asked = table.select().order_by(*key).limit(BATCH)
    last: tuple[Any, ...] | None = None
    while True:
        statement = asked
        if last is not None:
            statement = asked.where(key[0] > last[0] if len(key) == 1 else tuple_(*key) > tuple_(*last))
        async with adapter.session_factory() as session:
            rows = (await session.execute(statement)).all()
        if rows:
            yield [adapter.rows.make_datum(row) for row in rows]
        if len(rows) < BATCH:
            return
        last = tuple(rows[-1]._mapping[column] for column in key)


def _make_all(
    adapter: TableAdapter[Any], schema: Schema[Any], rows: Sequence[Datum], problems: dict[str, str]
) -> list[Datum]:
    made = []
    for row in rows:
        try:
            made.append(_make(adapter, schema, row))
        except DgentError as error:
            problems[row.id] = error.message
    return made


def _make(adapter: TableAdapter[Any], schema: Schema[Any], row: Datum) -> Datum:
    """Return the crystal of a row as a datum; columns that the contract does not know are kept."""
    data = schema.carry(row.data, schema.encode(schema.decode(row.data)))
    parent = None if row.parent_id is None else f"{adapter.table_name}:{row.parent_id}"
    return Datum(
        id=f"{adapter.table_name}:{row.id}",
        data=data,
        source=row.source,
        parent_id=parent,
        schema=schema.name,
        schema_version=schema.version,
        created_at=row.created_at,
    ).check()


async def _leave_others(universe: Universe, made: Sequence[Datum], problems: dict[str, str]) -> list[Datum]:
    """Return those whose ids are free or of crystals of the schema; a record of another schema stays."""
    stored = await universe.get_many([datum.id for datum in made], raw=True)
    kept = []
    for datum, found in zip(made, stored, strict=True):
        if found is None or found.schema == datum.schema:
            kept.append(datum)
        else:
            problems[datum.id] = f"{datum.id!r} is a record of {found.schema or 'no schema'}"
    return kept


async def _compare(universe: Universe, made: Sequence[Datum]) -> list[tuple[Datum, bool]]:
    """Return each datum with whether the universe has it with the same data."""
    stored = await universe.get_many([datum.id for datum in made], raw=True)
    return [
        (datum, found is not None and found.schema == datum.schema and found.data == datum.data)
        for datum, found in zip(made, stored, strict=True)
    ]
