"""The caller's own tables, as a universe shows them: on any engine that has them, to partners only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from dgent.errors import Closed
from dgent.store.port.relational import IRelationalStore, Row, SQLRunner
from dgent.store.port.statement import Params

Make = Callable[[], IRelationalStore]


class RelationalTransaction:
    """An open transaction: `async with u.storage.relational.transaction() as tx`."""

    def __init__(self, runner: SQLRunner) -> None:
        self._runner = runner

    async def execute(self, query: str, params: Params | None = None) -> int:
        """Run one statement, or several, and return how many rows the last one changed."""
        return await self._runner.execute(query, params)

    async def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters; returns how many rows were given."""
        return await self._runner.execute_many(query, rows)

    async def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""
        return await self._runner.fetch_all(query, params)

    async def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""
        return await self._runner.fetch_one(query, params)


class RelationalStore:
    """The caller's own tables: `u.storage.relational`. Parameters are written `:name` and given by name.

    They are in the database that holds the store, unless the settings name another place. Tables of dgent
    itself cannot be read or written through it.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._store: IRelationalStore | None = None
        self._closed = False

    def _open(self) -> IRelationalStore:
        if self._closed:
            raise Closed("these tables are closed", hint="open the universe again")
        if self._store is None:
            self._store = self._make()
        return self._store

    async def execute(self, query: str, params: Params | None = None) -> int:
        """Run one statement, or several in one transaction, and return how many rows the last one changed."""
        return await (self._store or self._open()).execute(query, params)

    async def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters, all or none; returns how many rows were given."""
        return await (self._store or self._open()).execute_many(query, rows)

    async def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""
        return await (self._store or self._open()).fetch_all(query, params)

    async def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""
        return await (self._store or self._open()).fetch_one(query, params)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[RelationalTransaction]:
        """Run what is done inside in one transaction; an error inside undoes all of it.

        Statements of the store itself, run in the same task, are part of it. On SQLite nobody else writes to
        the file meanwhile, the universe included: keep it short.
        """
        async with self._open().transaction() as runner:
            yield RelationalTransaction(runner)

    def limit_to_reads(self) -> RelationalStore:
        """Return a handle on the same tables that only reads."""
        return RelationalStore(lambda: self._open().limit_to_reads())

    async def reopen(self) -> None:
        """Let go of the connections; the next statement opens new ones."""
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    async def close(self) -> None:
        """Close the tables; statements under way end first."""
        self._closed = True
        await self.reopen()
