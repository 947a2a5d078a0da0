"""A place of application tables: an SQLAlchemy engine on a universe's database, or on another one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.pool import NullPool

from dgent.config.secret import mask
from dgent.errors import InputError, TransactionConflict, Unsupported
from dgent.store import registry
from dgent.store.port.attached import BACK, MARK, Repeat
from dgent.store.port.relational import IRelationalStore
from dgent.store.port.statement import Dialect, Params, Statement, one
from dgent.tables import dbapi
from dgent.tables.dialect import DgentDialect
from dgent.tables.recorder import Recorder
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

        The session sees its own changes, and those of earlier sessions of `tx`. At the end of the block they
        are taken back, and handed to `tx`, which runs all statements again when it commits, those that read,
        too. If one then answers other rows, or changes another number of them, somebody else was faster:
        the commit fails with a TransactionConflict, and `u.transact` runs its function again. What the
        session rolled back is not made. It may not commit by itself, nor change which tables there are.
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
        recorder = Recorder(self.engine.dialect.name == "postgresql")
        try:
            async with self._record(tx, recorder) as session:
                yield session
        except SQLAlchemyError as error:
            if await self._is_outdated(recorder.done, error):
                raise TransactionConflict(
                    f"rows that this transaction read have changed since: {error}",
                    hint="run the transaction again",
                ) from error
            raise
        await tx.repeat(recorder.done)

    @asynccontextmanager
    async def _record(self, tx: Transaction, recorder: Recorder) -> AsyncIterator[AsyncSession]:
        """Give a session that is recorded, and taken back at the end."""
        async with self.engine.connect() as connection:
            await _repeat_earlier(connection, tx)
            recorder.listen(connection.sync_connection)
            try:
                async with AsyncSession(connection, expire_on_commit=False) as session:
                    try:
                        yield session
                        await session.flush()
                    finally:
                        recorder.stop(connection.sync_connection)  # the end of a session is a rollback, too
            finally:
                await connection.rollback()

    async def _is_outdated(self, done: Sequence[Repeat], error: SQLAlchemyError) -> bool:
        """Return whether an error comes from others, who changed what a session had read before it wrote."""
        if getattr(getattr(error, "orig", None), "sqlstate", None) in ("40001", "40P01"):
            return True
        reads = list(takewhile(lambda step: step.reads, done))
        async with self.engine.connect() as connection:
            for step in reads:
                assert isinstance(step.query, str)
                if step.answer is not None:
                    found = step.answer.hash()
                    found.add(await _run(connection, step.query, step.params[0]))
                    if found.digest() != step.answer.digest:
                        return True
        return False

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


async def _repeat_earlier(connection: AsyncConnection, tx: Transaction) -> None:
    """Run what earlier sessions of a transaction changed, so that a later one sees it."""
    raw = (await connection.get_raw_connection()).driver_connection
    if connection.dialect.name == "sqlite":
        raw.joined = True  # type: ignore[union-attr]
    undone = 0
    for each in tx._statements:
        undone += (each.statement is MARK) - (each.statement is BACK)
        if undone or each.is_mark or each.reads:
            continue
        for params in (each.params, *each.more):
            await _run(connection, each.statement, params)


async def _run(connection: AsyncConnection, query: str | Statement, params: Params | None) -> Sequence[Any]:
    """Run a statement that has its parameters by name, and return its rows as the driver gives them."""
    postgres = connection.dialect.name == "postgresql"
    statement = one(query, "postgres" if postgres else "sqlite") if isinstance(query, str) else query
    given: Any = params
    if postgres:
        given = tuple((params or {})[name] for name in statement.names)
    done = await connection.exec_driver_sql(statement.sql, given)
    return done.all() if done.returns_rows else ()


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
