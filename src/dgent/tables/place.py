"""A place of application tables: an SQLAlchemy engine on a universe's database, or on another one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.sql.elements import ReleaseSavepointClause, RollbackToSavepointClause, SavepointClause

from dgent.config.secret import mask
from dgent.errors import InputError, Unsupported
from dgent.store import registry
from dgent.store.port.relational import IRelationalStore
from dgent.store.port.statement import Dialect
from dgent.tables import dbapi
from dgent.tables.dialect import DgentDialect
from dgent.universe.relational import open_driver, open_session

if TYPE_CHECKING:
    from dgent.universe.transaction import Transaction
    from dgent.universe.universe import Universe

__all__ = ["DgentDialect", "Place", "connect"]


class Place:
    """Tables at one place: `.engine`, and `.sessions`, which makes sessions for a TableAdapter."""

    def __init__(
        self,
        engine: AsyncEngine,
        name: str,
        universe: Universe | None = None,
        store: IRelationalStore | None = None,
    ) -> None:
        self.engine, self.universe = engine, universe
        self.sessions = async_sessionmaker(engine, expire_on_commit=False)
        self._name, self._store = name, store
        self._closed = False

    def __repr__(self) -> str:
        return f"<Place {self._name}>"

    @property
    def shared(self) -> bool:
        """True if the tables are in the database that holds a universe's records."""
        if self.universe is None:
            return False
        elsewhere = "url" in self.universe._life.storage.get("relational", {})
        return not elsewhere and self.universe.backend.name in ("sqlite", "postgres")

    @asynccontextmanager
    async def transaction(self, tx: Transaction) -> AsyncIterator[AsyncSession]:
        """Give a session whose changes are part of a transaction of the universe: all of it happens, or none.

        The session sees its own changes. At the end of the block they are taken back, and handed to `tx`,
        which makes them again when it commits; where one then changes another number of rows than it did
        here, the commit is undone with a Conflict. A value that was read here and changed meanwhile is not
        noticed: compute it in the statement, or give the model a `version_id_col`. What the session rolled
        back is not made again. It may not commit by itself, nor change which tables there are.
        """
        if not self.shared or self.universe is None:
            raise Unsupported(
                f"the tables of {self._name} are not in the universe's database, and share no transaction",
                hint="use `dgent.tables.connect(u)`, or commit the two one after the other",
            )
        if tx._universe._life is not self.universe._life:
            raise InputError(
                "this is a transaction of another universe", hint="use that of the place's universe"
            )
        async with self.engine.connect() as connection:
            recorder = _Recorder()
            recorder.listen(connection.sync_connection)
            try:
                async with AsyncSession(connection, expire_on_commit=False) as session:
                    yield session
                    await session.flush()
                    done = list(recorder.done)  # the end of the session is a rollback, too
            finally:
                recorder.stop(connection.sync_connection)
                await connection.rollback()
        for query, params, rows in done:
            await tx.execute(query, params, rows=rows)

    async def close(self) -> None:
        """Close the connections; the universe stays open."""
        if not self._closed:
            self._closed = True
            await self.engine.dispose()
            if self._store is not None:
                await self._store.close()

    async def __aenter__(self) -> Place:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def connect(where: Universe | str) -> Place:
    """Return the tables of a universe's database, or those at a URL of SQLite or Postgres.

    Tables at a URL have their own database, and no transaction with a universe.
    """
    if isinstance(where, str):
        store: Any = registry.relational_for(_plain_url(where))
        return Place(_make_engine(store.dialect, store.connect_driver), mask(where), store=store)
    await where._ready()
    tables = where.storage.relational  # raises Denied below partner trust
    open_one = open_driver if tables.dialect == "postgres" else open_session
    return Place(_make_engine(tables.dialect, lambda: open_one(tables)), f"{where!r}", universe=where)


def _plain_url(url: str) -> str:
    """Return a URL without the name of a driver: `postgresql+asyncpg://…` is `postgresql://…`."""
    return re.sub(r"\A(sqlite|postgresql)\+\w+:", r"\1:", url)


def _make_engine(dialect: Dialect, open_one: Callable[[], Any]) -> AsyncEngine:
    """Return an engine whose connections are sessions of a store, or those of the driver on Postgres."""
    if dialect == "postgres":
        return create_async_engine("postgresql+asyncpg://", async_creator=open_one)
    # A session costs nothing to make, so none is kept.
    return create_async_engine(
        "sqlite+dgent://", creator=lambda: dbapi.connect(session=open_one()), poolclass=NullPool
    )


_WRITES = re.compile(r"\b(?:insert|update|delete|replace)\b", re.IGNORECASE)
_FIRST = re.compile(r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(\w*)", re.DOTALL)
_READS = ("select", "values", "pragma", "explain", "show")
_SAVEPOINTS = (SavepointClause, RollbackToSavepointClause, ReleaseSavepointClause)
_CHANGES = ("insert", "update", "delete", "replace", "with")


class _Recorder:
    """Records what a session changes: statements, parameters, and how many rows each of them changed.

    What the session takes back, it takes back here. It cannot commit: that is for the transaction to do.
    """

    def __init__(self) -> None:
        self.done: list[tuple[str, Any, int | None]] = []
        self._marks: list[int] = []
        self._events: dict[str, Callable[..., None]] = {
            "before_cursor_execute": self._check,
            "after_cursor_execute": self._record,
            "savepoint": self._mark,
            "rollback_savepoint": self._go_back,
            "rollback": self._clear,
            "commit": self._refuse,
        }

    def listen(self, connection: Any) -> None:
        for name, work in self._events.items():
            event.listen(connection, name, work)

    def stop(self, connection: Any) -> None:
        for name, work in self._events.items():
            event.remove(connection, name, work)

    def _check(
        self, connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
    ) -> None:
        first = _find_first(statement)
        if first in _READS or first in _CHANGES or _is_savepoint(context):
            return
        raise Unsupported(
            f"{first.upper()} cannot be part of a transaction of the universe",
            hint="run it before, with a session of `place.sessions`",
        )

    def _record(
        self, connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
    ) -> None:
        if _find_first(statement) not in _CHANGES or not _WRITES.search(statement):
            return
        _check_ids(context)
        rows = -1 if executemany else cursor.rowcount
        for each in parameters if executemany else [parameters]:
            query, params = (
                (statement, each) if isinstance(each, dict) else dbapi.name_places(statement, each)
            )
            self.done.append((query, params, None if rows < 0 else rows))

    def _mark(self, connection: Any, name: str | None) -> None:
        self._marks.append(len(self.done))

    def _go_back(self, connection: Any, name: str, context: Any) -> None:
        # Savepoints of a connection are named by their number, which `_mark` is not told.
        del self.done[self._marks[int(name.rpartition("_")[2]) - 1] :]

    def _clear(self, connection: Any) -> None:
        self.done.clear()

    def _refuse(self, connection: Any) -> None:
        raise InputError(
            "a session in a transaction of the universe cannot commit by itself",
            hint="leave the commit out: its changes are made when the transaction commits",
        )


def _find_first(statement: str) -> str:
    """Return the first word of a statement, in lower case."""
    found = _FIRST.match(statement)
    return found[1].lower() if found else ""


def _is_savepoint(context: Any) -> bool:
    """Return whether SQLAlchemy itself makes a savepoint, or ends one."""
    return isinstance(getattr(context.compiled, "statement", None), _SAVEPOINTS)


def _check_ids(context: Any) -> None:
    """Refuse an INSERT whose id the database makes: it would make another one when the commit runs."""
    table = getattr(getattr(context.compiled, "compile_state", None), "dml_table", None)
    if not context.isinsert or table is None or context.compiled.statement.select is not None:
        return
    for column in table.primary_key:
        for given in context.compiled_parameters:
            if given.get(column.key, given.get(f"{column.key}_m0")) is None:
                raise InputError(
                    f"the {column.name} of a row of {table.name} is made by the database, and would be"
                    " another one when the transaction commits",
                    hint=f"give the {column.name} with the row",
                    field=column.name,
                )
