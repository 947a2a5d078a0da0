"""A table of SQLAlchemy as a store of datums: the bridge from application state to agents' memory."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    String,
    and_,
    bindparam,
    case,
    cast,
    exc,
    func,
    literal,
    null,
    or_,
    select,
    type_coerce,
    types,
    update,
)
from sqlalchemy import delete as delete_rows
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql import ColumnElement

from dgent.errors import Conflict, DgentError, InputError, QueryError, Unavailable
from dgent.model.datum import Datum
from dgent.model.lens import Lens
from dgent.model.query import Query
from dgent.tables.focus import TableFocus
from dgent.tables.rows import Rows

T = TypeVar("T")
A = TypeVar("A")

Sessions = Callable[[], AsyncSession]
MAX_CHAIN = 10_000
MAX_ROWS = 100_000  # that a query looks at


class TableAdapter(Generic[T]):
    """The rows of a table as datums: `TableAdapter(Note, place.sessions)`.

    The model is a mapped class or a Table, also a reflected one. A datum has the row as data,
    `serialize(row)` as content, the schema `table.<name>` and the source `alembic`. Its id is that of the
    row: the text of the key, or a JSON list where the key has several columns.
    """

    def __init__(
        self,
        model: type[T] | Any,
        session_factory: Sessions,
        id_field: str | Sequence[str] | None = None,
        serialize: Callable[[Any], bytes] | None = None,
        deserialize: Callable[[bytes], Any] | None = None,
        *,
        parent_field: str = "causal_parent",
    ) -> None:
        self.model, self.session_factory = model, session_factory
        self.serialize, self.deserialize = serialize, deserialize
        self.rows = Rows(model, id_field, parent_field)
        self.id_field: Any = self.rows.key[0] if len(self.rows.key) == 1 else self.rows.key
        table, columns = self.rows.table, self.rows.columns
        self._columns = [columns[name] for name in self.rows.key]
        self._is_row = and_(
            *(column == bindparam(f"key_{number}") for number, column in enumerate(self._columns))
        )
        self._select = select(*table.columns)
        self._get = self._select.where(self._is_row)
        self._delete = delete_rows(table).where(self._is_row)
        self._upserts: dict[tuple[str, frozenset[str], frozenset[str]], Any] = {}

    def __repr__(self) -> str:
        return f"<TableAdapter {self.table_name}>"

    @property
    def table_name(self) -> str:
        """The name of the table."""
        return self.rows.name

    def _key_of(self, id: str) -> dict[str, Any]:
        return {f"key_{number}": value for number, value in enumerate(self.rows.read_id(id))}

    def _make(self, row: Any) -> Datum:
        return self.rows.make_datum(row, self.serialize)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[AsyncSession]:
        try:
            async with self.session_factory() as session:
                yield session
        except exc.SQLAlchemyError as error:
            raise explain(error, self.table_name) from error
        except OSError as error:
            raise Unavailable(f"the database of {self.table_name} cannot be reached: {error}") from error

    # -- one row --------------------------------------------------------------------------

    async def get(self, id: str) -> Datum | None:
        """Return a row as a datum; None when there is none."""
        async with self._session() as session:
            row = (await session.execute(self._get, self._key_of(id))).first()
        return None if row is None else self._make(row)

    async def put(self, datum: Datum) -> Datum:
        """Insert or change the row of a datum, in one statement, and return the datum as it was given.

        Columns that its data does not name keep what they have, or get their defaults. A key that is not
        a column is refused.
        """
        if not isinstance(datum, Datum):
            raise InputError(f"put takes a Datum, not {type(datum).__name__}", field="datum")
        values = self.rows.read_datum(datum, self.deserialize)
        nulls = frozenset(name for name in self.rows.json if name in values and values[name] is None)
        time = self.rows.find_time(datum, values)
        async with self._session() as session:
            statement = self._upsert(session.get_bind().dialect.name, frozenset(values), nulls)
            given = {name: values[name] for name in values if name not in nulls}
            await session.execute(statement, {**time, **given})
            await session.commit()
        return datum

    def _upsert(self, dialect: str, names: frozenset[str], nulls: frozenset[str]) -> Any:
        key = dialect, names, nulls
        made = self._upserts.get(key)
        if made is None:
            if len(self._upserts) >= 64:
                self._upserts.clear()
            made = self._upserts[key] = self._make_upsert(dialect, names, nulls)
        return made

    def _make_upsert(self, dialect: str, names: frozenset[str], nulls: frozenset[str]) -> Any:
        table, columns = self.rows.table, self.rows.columns
        insert: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
        # JSON has a null of its own, and SQL has NULL: None is NULL, unless the column has the other one.
        given = {
            name: null() if name in nulls else bindparam(name, type_=columns[name].type) for name in names
        }
        if self.rows.created is not None and self.rows.created not in names:
            # A row that is there keeps its time.
            given[self.rows.created] = bindparam(self.rows.created, type_=columns[self.rows.created].type)
        statement = insert(table).values({columns[name]: value for name, value in given.items()})
        changed: dict[Any, Any] = {}
        for name in names - set(self.rows.key):
            column = columns[name]
            changed[column] = statement.excluded[column.key]
            if name in nulls:
                changed[column] = case((cast(column, String) == "null", column), else_=null())
        if not changed:
            return statement.on_conflict_do_nothing(index_elements=self._columns)
        return statement.on_conflict_do_update(index_elements=self._columns, set_=changed)

    async def delete(self, id: str) -> bool:
        """Delete a row; False when there was none."""
        async with self._session() as session:
            done: Any = await session.execute(self._delete, self._key_of(id))
            await session.commit()
            return bool(done.rowcount)

    async def exists(self, id: str) -> bool:
        """Return whether there is a row with this id."""
        async with self._session() as session:
            found = await session.execute(select(literal(1)).where(self._is_row), self._key_of(id))
            return found.first() is not None

    async def replace(
        self,
        id: str,
        old_data: Mapping[str, Any] | None,
        new_data: Mapping[str, Any],
        version_field: str | None = None,
    ) -> bool:
        """Change a row if it is still as in `old_data`, in one UPDATE; returns whether it was.

        With `version_field` only that column is compared, and it becomes one more unless `new_data` changes
        it. Without old data the row is inserted, if there is none.
        """
        if old_data is None:
            return await self._insert(id, new_data)
        old, new = self.rows.read_data(old_data), self.rows.read_data(new_data)
        if version_field is not None:
            if version_field not in old:
                raise InputError(
                    f"the old data has no {version_field!r}", hint="read the row first", field=version_field
                )
            if new.get(version_field, old[version_field]) == old[version_field]:
                new[version_field] = old[version_field] + 1
            compared = {version_field: old[version_field]}
        else:
            compared = {name: value for name, value in old.items() if name not in self.rows.key}
        changed = {name: value for name, value in new.items() if name not in self.rows.key}
        if not changed and not compared:
            return await self.exists(id)
        async with self._session() as session:
            dialect = session.get_bind().dialect.name
            same = [self._is_same(dialect, name, value) for name, value in compared.items()]
            columns = self.rows.columns
            values = {
                columns[name]: null() if value is None else value
                for name, value in (changed or compared).items()
            }
            statement = update(self.rows.table).where(self._is_row, *same).values(values)
            done: Any = await session.execute(statement, self._key_of(id))
            await session.commit()
            return bool(done.rowcount)

    async def _insert(self, id: str, data: Mapping[str, Any]) -> bool:
        datum = Datum(id=id, data=dict(data))
        values = self.rows.read_datum(datum, None)
        values |= self.rows.find_time(datum, values)
        async with self._session() as session:
            insert: Any = (
                postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
            )
            columns = self.rows.columns
            statement = insert(self.rows.table).values(
                {columns[name]: null() if value is None else value for name, value in values.items()}
            )
            done: Any = await session.execute(statement.on_conflict_do_nothing(index_elements=self._columns))
            await session.commit()
            return bool(done.rowcount)

    def _is_same(self, dialect: str, name: str, value: Any) -> ColumnElement[bool]:
        """Return the condition that a column has a value, however the database spells that."""
        column = self.rows.columns[name]
        if name in self.rows.json:
            if value is None:
                return or_(column.is_(null()), cast(column, String) == "null")
            if dialect == "postgresql":
                return cast(column, postgresql.JSONB) == cast(value, postgresql.JSONB)
            given = func.json(bindparam(None, value, type_=column.type))
            return and_(func.json(type_coerce(column, String)) == given)
        if value is None:
            return column.is_(null())
        if dialect == "sqlite" and isinstance(value, datetime) and not value.microsecond:
            # SQLite's own clock, which is a default of many tables, writes times without a fraction.
            return or_(column == value, func.datetime(column) == _spell_utc(value))
        return and_(column == value)

    # -- rows as states of agents ---------------------------------------------------------

    def to_data(self, row: T) -> dict[str, Any]:
        """Return the data of a row, as far as its columns are set."""
        return self.rows.to_data(row)

    def to_row(self, data: Mapping[str, Any]) -> T:
        """Return the row of some data, in no session."""
        found: T = self.rows.to_object(data)
        return found

    def find_id(self, data: Mapping[str, Any]) -> str | None:
        """Return the id of the row with this data; None where a column of its key is not set."""
        return self.rows.find_id(data)

    # -- many rows ------------------------------------------------------------------------

    async def list(
        self,
        prefix: str | None = None,
        *,
        after: datetime | float | None = None,
        limit: int | None = 100,
    ) -> builtins.list[Datum]:
        """Return rows, newest first, whose id has a prefix and that were created after a time.

        `after` is an aware time, or seconds since 1970. A table without `created_at` is in the order of ids.
        """
        statement = self._add_order(self._select)
        if prefix is not None:
            statement = statement.where(self._has_prefix(prefix))
        if after is not None:
            statement = statement.where(self._match_created_after(after))
        return await self._fetch(statement, limit)

    async def _fetch(self, statement: Any, limit: int | None) -> builtins.list[Datum]:
        if limit is not None:
            if type(limit) is not int or limit < 0:
                raise InputError(f"limit is a number from 0 on or None, not {limit!r}", field="limit")
            statement = statement.limit(limit)
        async with self._session() as session:
            return [self._make(row) for row in await session.execute(statement)]

    def _add_order(self, statement: Any) -> Any:
        order = [column.asc() for column in self._columns]
        if self.rows.created is not None:
            order.insert(0, self.rows.columns[self.rows.created].desc())
        return statement.order_by(*order)

    def _has_prefix(self, prefix: str) -> ColumnElement[bool]:
        if len(self._columns) > 1:
            raise QueryError(
                f"the key of {self.table_name} has several columns, so its ids have no prefix",
                hint="use query(where=…)",
                field="prefix",
            )
        column = self._columns[0]
        text = column if isinstance(column.type, types.String) else cast(column, String)
        # Not LIKE, which takes A for a on SQLite.
        return and_(func.substr(text, 1, len(prefix)) == prefix)

    def _match_created_after(self, after: datetime | float) -> ColumnElement[bool]:
        if self.rows.created is None:
            raise QueryError(
                f"the table {self.table_name} has no created_at, so nothing is known of the time of its rows",
                hint="leave out after=",
                field="after",
            )
        if isinstance(after, datetime):
            if after.tzinfo is None:
                raise InputError("after= has no time zone", hint="give an aware time", field="after")
            moment = after
        else:
            moment = datetime.fromtimestamp(after, UTC)
        created = self.rows.columns[self.rows.created]
        return and_(created > self.rows.read_value(self.rows.created, moment))

    async def query(self, query: Query | None = None, **filters: Any) -> builtins.list[Datum]:
        """Return the rows that match a query, as the universe would; `filters` are those of Query.

        Equal values at the top of `where` are asked of the database; the rest is tested here.
        """
        asked = _query_of(query, filters)
        found = [datum for datum in await self._select_candidates(asked) if asked.matches(datum)]
        found.sort(key=asked.sort_key, reverse=asked.descending)
        last = None if asked.limit is None else asked.offset + asked.limit
        return found[asked.offset : last]

    async def count(self, query: Query | None = None, **filters: Any) -> int:
        """Return how many rows there are, or match a query."""
        asked = _query_of(query, filters)
        if not asked.narrows and asked.schema is None and asked.allow is None:
            async with self._session() as session:
                return await session.scalar(select(func.count()).select_from(self.rows.table)) or 0
        return sum(asked.matches(datum) for datum in await self._select_candidates(asked))

    async def _select_candidates(self, query: Query) -> builtins.list[Datum]:
        """Return rows, all of those that match among them."""
        if query.cursor is not None:
            raise QueryError("rows of a table have no cursor", hint="use offset=", field="cursor")
        statement = self._add_order(self._select)
        for name, value in (query.where or {}).items():
            column = self.rows.columns.get(name) if isinstance(name, str) else None
            if column is not None and isinstance(column.type, types.String) and isinstance(value, str):
                statement = statement.where(column == self.rows.read_value(column.name, value))
        if query.prefix is not None:
            statement = statement.where(self._has_prefix(query.prefix))
        found = await self._fetch(statement, MAX_ROWS + 1)
        if len(found) > MAX_ROWS:
            raise QueryError(
                f"the query would look at more than {MAX_ROWS:,} rows of {self.table_name}",
                hint="narrow it by prefix= or an equal text in where=, or use SQL",
            )
        return found

    async def causal_chain(self, id: str, *, limit: int | None = MAX_CHAIN) -> builtins.list[Datum]:
        """Return a row and its causes, oldest first, by one recursive query; empty when there is no row.

        A cycle ends where it begins. Causes in other tables, and records, are found by `u.causal_chain`.
        """
        parent, key = self.rows.parent, self._columns
        if parent is None or len(key) > 1:
            found = await self.get(id)
            return [] if found is None else [found]
        most = MAX_CHAIN if limit is None else min(limit, MAX_CHAIN)
        column = self.rows.columns[parent]
        start = select(key[0].label("id"), column.label("cause")).where(self._is_row)
        chain = start.cte("chain", recursive=True)
        chain = chain.union(select(key[0], column).where(_refers(key[0], chain.c.cause, column)))
        statement = self._select.where(key[0].in_(select(chain.c.id)))
        async with self._session() as session:
            rows = [self._make(row) for row in await session.execute(statement, self._key_of(id))]
        left = {datum.id: datum for datum in rows}
        found_chain: builtins.list[Datum] = []
        at = left.pop(self.rows.write_id(self.rows.write_key(id)), None)
        while at is not None and len(found_chain) < most:
            found_chain.append(at)
            at = None if at.parent_id is None else left.pop(at.parent_id, None)
        found_chain.reverse()
        return found_chain

    # -- parts ----------------------------------------------------------------------------

    def focus(self, id: str, lens: Lens[Any, A]) -> TableFocus[A]:
        """Return a part of a row, read and changed through a lens on its data."""
        return TableFocus(self, id, lens)


def _refers(key: Any, cause: Any, column: Any) -> ColumnElement[bool]:
    """Return the condition that a cause names a key, by its index where both are of one type."""
    if isinstance(key.type, types.String) == isinstance(column.type, types.String):
        return and_(key == cause)
    return cast(key, String) == cast(cause, String)


def _query_of(query: Query | None, filters: Mapping[str, Any]) -> Query:
    if query is not None and filters:
        raise QueryError("give a Query or its fields, not both", hint="use query.replace(…)")
    return query if query is not None else Query(**filters)


def _spell_utc(value: datetime) -> str:
    return (value if value.tzinfo is None else value.astimezone(UTC)).strftime("%Y-%m-%d %H:%M:%S")


def explain(error: exc.SQLAlchemyError, table: str) -> DgentError:
    """Return dgent's error for one of SQLAlchemy's."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, DgentError):
            return found
        if isinstance(found, OSError):
            return Unavailable(f"the database of {table} cannot be reached: {found}")
        found = getattr(found, "orig", None) or found.__cause__
    text = " ".join(str(getattr(error, "orig", None) or error).split())
    if isinstance(error, exc.IntegrityError):
        return Conflict(text, hint="another row has it, or a rule of the table forbids it")
    if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
        return Unavailable(f"the database of {table} cannot be reached: {text}")
    if isinstance(error, exc.StatementError) and not isinstance(error, exc.DBAPIError):
        return InputError(text, hint="give the type that the column has")
    return QueryError(text, hint=f"look whether the table {table} is as its model says")
