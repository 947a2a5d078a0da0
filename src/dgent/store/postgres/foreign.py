"""Read the tables of another program in a Postgres database, all as of one moment, and change nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from dgent.config.secret import mask
from dgent.errors import Unavailable

TIMEOUT_S = 30.0


class ForeignTables:
    """Some tables of a database, with the names of their columns."""

    def __init__(self, connection: Any, columns: dict[str, list[str]]) -> None:
        self._connection, self.columns = connection, columns

    async def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        return int(await self._connection.fetchval(f'SELECT count(*) FROM "{table}"'))

    async def fetch(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Return the rows that a statement selects."""
        return [dict(each) for each in await self._connection.fetch(statement, *values)]

    async def read(self, table: str, order: Sequence[str], size: int) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the rows of a known table, some at a time."""
        sorting = ", ".join(f'"{name}"' for name in order if name in self.columns[table])
        cursor = await self._connection.cursor(f'SELECT * FROM "{table}" ORDER BY {sorting}')
        while rows := await cursor.fetch(size):
            yield [dict(each) for each in rows]


@asynccontextmanager
async def open_tables(url: str, names: Sequence[str]) -> AsyncIterator[ForeignTables]:
    """Open those of some tables that a database has, in a transaction that only reads."""
    settings = {"application_name": "dgent", "default_transaction_read_only": "on"}
    try:
        connection = await asyncpg.connect(url, timeout=TIMEOUT_S, server_settings=settings)
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise Unavailable(f"{mask(url)} cannot be read: {mask(str(error)):.200}") from None
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            rows = await connection.fetch(
                "SELECT table_name::text, column_name::text FROM information_schema.columns"
                " WHERE table_schema = ANY(current_schemas(false)) AND table_name = ANY($1::text[])"
                " ORDER BY ordinal_position",
                list(names),
            )
            columns: dict[str, list[str]] = {}
            for table, column in rows:
                columns.setdefault(table, []).append(column)
            yield ForeignTables(connection, columns)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError) as error:
        raise Unavailable(f"{mask(url)} cannot be read: {mask(str(error)):.200}") from None
    finally:
        await connection.close()
