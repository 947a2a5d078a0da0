"""Statements of a driver of SQL on a SQLite file: a transaction begins with the first one that writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from dgent.errors import Busy, Conflict, Denied
from dgent.store.port.relational import Answer, Isolation, SQLSession
from dgent.store.port.statement import Params, Statement, bind, one
from dgent.store.sqlite.connection import WAIT_S
from dgent.store.sqlite.relational import SQLiteRelational, SQLTransaction, find_open

_READS = frozenset(("select", "values", "with", "pragma", "explain"))


class SQLiteSession(SQLSession):
    """A session on the connections of a store; see `SQLSession`."""

    def __init__(self, store: SQLiteRelational) -> None:
        self._store = store
        self._transaction: SQLTransaction | None = None
        self.isolation: Isolation = "READ COMMITTED"

    @property
    def is_open(self) -> bool:
        """True while a transaction is open."""
        return self._transaction is not None

    @property
    def own_names(self) -> frozenset[str]:
        """The names of dgent's own tables, in lower case."""
        return self._store.own_names

    async def run(self, query: str, params: Params | None = None) -> Answer:
        """Run one statement; the first one that writes begins a transaction."""
        statement = one(query, "sqlite")
        given = bind(statement, params)
        if self._transaction is None and self.isolation != "SERIALIZABLE":
            found = await self._read(statement, given)
            if found is not None:
                return found
        transaction = await self._begin()
        answer = await transaction.answer(statement, given)
        if self.isolation == "AUTOCOMMIT":
            await self.commit()
        return answer

    async def _read(self, statement: Statement, params: Params | None) -> Answer | None:
        """Return the answer of a statement that only reads; None for one that writes."""
        if statement.writes or statement.first not in _READS:
            return None
        try:
            return await self._store.read(statement.sql, lambda reader: reader.answer(statement, params))
        except Denied:
            if self._store.learn(statement):
                return None
            raise

    async def run_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters and return how many rows they changed."""
        statement = one(query, "sqlite")
        given = [bind(statement, row) for row in rows]
        transaction = await self._begin()
        changed = await transaction.answer_many(statement, given)
        if self.isolation == "AUTOCOMMIT":
            await self.commit()
        return changed

    async def mark(self, step: Literal["SAVEPOINT", "RELEASE", "ROLLBACK TO"], name: str) -> None:
        """Make, release or go back to a savepoint; the first one begins a transaction."""
        await (await self._begin()).mark(step, name)

    async def _begin(self) -> SQLTransaction:
        if self._transaction is not None:
            return self._transaction
        if find_open(self._store) is not None:
            raise Conflict(
                "this task has another transaction open on the same tables, which would wait for itself",
                hint="end that one first, or use its session here, too",
            )
        try:
            async with asyncio.timeout(WAIT_S):
                self._transaction = await self._store.begin()
        except TimeoutError:
            raise Busy(
                f"another transaction of this program was open for {WAIT_S:g} s",
                hint="keep transactions short, and end those that only read, too",
            ) from None
        return self._transaction

    async def commit(self) -> None:
        """Commit the transaction, if one is open; one that cannot be committed is undone."""
        if self._transaction is not None:
            try:
                await self._transaction.commit()
            finally:
                self.rollback()

    def rollback(self) -> None:
        """Undo the transaction, if one is open; waits for nothing."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.end()
