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
        here, the commit is undone with a Conflict.
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
            done: list[tuple[str, Any, int | None]] = []
            listen = _recorder(done)
            event.listen(connection.sync_connection, "after_cursor_execute", listen)
            try:
                async with AsyncSession(connection, expire_on_commit=False) as session:
                    yield session
                    await session.flush()
            finally:
                event.remove(connection.sync_connection, "after_cursor_execute", listen)
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


def _recorder(done: list[tuple[str, Any, int | None]]) -> Callable[..., None]:
    """Return a listener that records what writes, its parameters, and how many rows it changed."""

    def record(
        connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
    ) -> None:
        if not _WRITES.search(statement) or statement.lstrip()[:6].lower() == "select":
            return
        _check_ids(context)
        rows = -1 if executemany else cursor.rowcount
        for each in parameters if executemany else [parameters]:
            query, params = (
                (statement, each) if isinstance(each, dict) else dbapi.name_places(statement, each)
            )
            done.append((query, params, None if rows < 0 else rows))

    return record


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
