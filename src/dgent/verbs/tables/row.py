"""Verbs for rows of tables: models that dgent ships, tables of the caller's own, registered adapters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec

from dgent import tables
from dgent.errors import Conflict, Denied, InputError, NotFound, QueryError, Unsupported
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.verbs import parse
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, Items, NoInput, argument, option, verb

ATTEMPTS = 8  # to change a row that others change, too
ERRORS = (InputError, NotFound, Denied, Unsupported)

Model = Annotated[str, argument("the model, such as crystal, or the name of a table")]
RowId = Annotated[str, argument("the row's id; a JSON list where the key has several columns")]
Where = Annotated[
    tuple[str, ...],
    option("a condition such as access_count>3, or JSON; may be given more than once", short="w"),
]
Limit = Annotated[int, option("at most so many", short="n")]


class TableRow(msgspec.Struct, frozen=True):
    """A row: its table, its id, and its columns as JSON; `parent` is the row or record that caused it."""

    table: str
    id: str
    data: dict[str, Any]
    parent: str | None = None


class TableModel(msgspec.Struct, frozen=True):
    """A table that the verbs know by a name, with its columns; `ready` once a revision has made it."""

    name: str
    table: str
    columns: list[str]
    ready: bool


class RowCount(msgspec.Struct, frozen=True):
    """A number of rows."""

    count: int


class RowPresence(msgspec.Struct, frozen=True):
    """The answer to whether a row exists."""

    id: str
    exists: bool


@verb("table.models", effect="read", errors=ERRORS, partner=True, makes=True)
async def models(context: Context, ask: NoInput) -> Items[TableModel]:
    """List the tables: models that dgent ships, and tables of your own."""
    async with await tables.connect(await context.universe()) as place:
        return Items([TableModel(*each) for each in await tables.list_tables(place)])


class GetRow(Ask):
    """Input of `table.get`, `table.exists`, `table.delete` and `table.chain`."""

    model: Model
    id: RowId


@verb("table.get", effect="read", errors=ERRORS, partner=True)
async def get(context: Context, ask: GetRow) -> TableRow:
    """Show a row."""
    async with _find(context, ask.model) as adapter:
        found = await adapter.get(ask.id)
        if found is None:
            raise _missing(ask)
        return _row(adapter, found)


@verb("table.exists", effect="read", errors=ERRORS, partner=True)
async def exists(context: Context, ask: GetRow) -> RowPresence:
    """Say whether a row exists."""
    async with _find(context, ask.model) as adapter:
        return RowPresence(ask.id, await adapter.exists(ask.id))


class PutRow(Ask):
    """Input of `table.put`."""

    model: Model
    data: Annotated[Any, argument("the columns as a JSON object; - reads it", words=True)]
    id: Annotated[str | None, option("the row's id; without it, that of the data")] = None


@verb("table.put", effect="write", errors=(*ERRORS, Conflict), partner=True)
async def put(context: Context, ask: PutRow) -> TableRow:
    """Insert a row, or change the named columns of one that is there."""
    data = parse.mapping(ask.data, "data") if isinstance(ask.data, str) else ask.data
    if not isinstance(data, dict):
        raise InputError("a row is a JSON object of its columns", field="data")
    async with _find(context, ask.model) as adapter:
        id = tables.find_id(adapter, data) if ask.id is None else ask.id
        for _ in range(ATTEMPTS):
            old = await adapter.get(id)
            # Compared with what was read, so that nobody's change of another column is lost.
            if await adapter.replace(
                id, None if old is None else old.data, {**(old.data if old else {}), **data}
            ):
                found = await adapter.get(id)
                if found is not None:
                    return _row(adapter, found)
        raise Conflict(f"the row {id!r} of {ask.model} is changed all the time", hint="try again")


@verb("table.delete", effect="destroy", errors=(*ERRORS, Conflict), partner=True)
async def delete(context: Context, ask: GetRow) -> RowPresence:
    """Delete a row; tables keep no history."""
    async with _find(context, ask.model) as adapter:
        if not await adapter.delete(ask.id):
            raise _missing(ask)
        return RowPresence(ask.id, False)


@verb("table.chain", effect="read", errors=ERRORS, partner=True)
async def chain(context: Context, ask: GetRow) -> Items[TableRow]:
    """List a row and what caused it in the same table, the first cause first."""
    async with _find(context, ask.model) as adapter:
        return Items([_row(adapter, each) for each in await adapter.causal_chain(ask.id)])


class ListRows(Ask):
    """Input of `table.list`."""

    model: Model
    prefix: Annotated[str | None, argument("how the ids begin")] = None
    after: Annotated[str | None, option("made after this time: 2026-01-31, or 2h, 3d, 1w ago")] = None
    limit: Limit = 20


@verb("table.list", effect="read", errors=(*ERRORS, QueryError), partner=True)
async def list_rows(context: Context, ask: ListRows) -> Items[TableRow]:
    """List rows, the newest first; by id where the table has no times."""
    after = None if ask.after is None else parse.moment(ask.after, "after")
    async with _find(context, ask.model) as adapter:
        found = await adapter.list(ask.prefix, after=after, limit=ask.limit)
        return Items([_row(adapter, each) for each in found])


class QueryRows(Ask):
    """Input of `table.query`."""

    model: Model
    where: Where = ()
    order_by: Annotated[str, option("created_at, or a column")] = "created_at"
    ascending: Annotated[bool, option("oldest or smallest first")] = False
    limit: Limit = 20
    offset: Annotated[int, option("leave out so many first")] = 0


@verb("table.query", effect="read", errors=(*ERRORS, QueryError), partner=True)
async def query(context: Context, ask: QueryRows) -> Items[TableRow]:
    """Find rows by conditions on their columns."""
    asked = Query(
        where=parse.where(ask.where),
        order_by=ask.order_by,
        descending=not ask.ascending,
        limit=ask.limit,
        offset=ask.offset,
    )
    async with _find(context, ask.model) as adapter:
        return Items([_row(adapter, each) for each in await adapter.query(asked)])


class CountRows(Ask):
    """Input of `table.count`."""

    model: Model
    where: Where = ()


@verb("table.count", effect="read", errors=(*ERRORS, QueryError), partner=True)
async def count(context: Context, ask: CountRows) -> RowCount:
    """Count rows."""
    asked = Query(where=parse.where(ask.where), limit=None) if ask.where else None
    async with _find(context, ask.model) as adapter:
        return RowCount(await adapter.count(asked))


@asynccontextmanager
async def _find(context: Context, name: str) -> AsyncIterator[Any]:
    """Give the adapter of a model or table: one that the program has registered, or one on its place."""
    universe = await context.universe()
    if name in universe.adapters:
        yield universe.adapters.get(name)
        return
    async with await tables.connect(universe) as place:
        yield await tables.find_adapter(place, name)


def _row(adapter: Any, datum: Datum) -> TableRow:
    return TableRow(adapter.table_name, datum.id, datum.data, datum.parent_id)


def _missing(ask: GetRow) -> NotFound:
    return NotFound(
        f"there is no row {ask.id!r} in {ask.model}",
        hint=f"`dgent table list {ask.model}` shows what there is",
    )
