"""A Postgres server of the run's own, and databases of some sizes on it."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from types import TracebackType

import asyncpg

import dgent
from bench.measure import say
from bench.postgres.bare import fill
from bench.record import SCHEMA, datums
from bench.stores import CHUNK
from dgent import Universe
from tests.postgres.server import Server, with_universe

UNIVERSE = "bench"

# What the server is asked for: every commit on the disk before it is answered, as by default.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
}


class Databases:
    """The server of a run. Databases hold a universe and a bare table, or what another system makes."""

    def __init__(self) -> None:
        self.server = Server(SETTINGS)
        self._made: dict[int, str] = {}
        self._count = 0

    async def __aenter__(self) -> Databases:
        try:
            self.server.create().start()
        except BaseException:
            self.server.remove()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.remove()

    def url(self, database: str) -> str:
        """How to reach a database."""
        return f"{self.server.url.rpartition('/')[0]}/{database}"

    async def copy(self, database: str = "template1") -> str:
        """The URL of a copy of a database that nobody uses now; of an empty one by default."""
        self._count += 1
        name = f"copy_{self._count}"
        await self._run(f"CREATE DATABASE {name} TEMPLATE {database} STRATEGY FILE_COPY", "CHECKPOINT")
        return self.url(name)

    async def sized(self, count: int) -> str:
        """The name of a database whose universe has so many records, for reading and copying."""
        if count not in self._made:
            self._made[count] = await self._build(count)
        return self._made[count]

    async def _build(self, count: int) -> str:
        smaller = max((n for n in self._made if n < count), default=0)
        name = f"sized_{count}"
        base = self._made.get(smaller, "template1")
        await self._run(f"CREATE DATABASE {name} TEMPLATE {base} STRATEGY FILE_COPY")
        took = 0.0
        async with AsyncExitStack() as stack:
            universe = await stack.enter_async_context(open_postgres(self.url(name)))
            connection = await asyncpg.connect(self.url(name))
            stack.push_async_callback(connection.close)
            for first in range(smaller, count, CHUNK):
                batch = datums(first, min(CHUNK, count - first), first)
                began = time.perf_counter()
                await universe.put_many(batch)
                took += time.perf_counter() - began
                await fill(connection, batch, first)
        per_row = took / (count - smaller) * 1e6
        await self._run("VACUUM (FREEZE, ANALYZE)", "CHECKPOINT", database=name)
        size = await self._value(f"SELECT pg_database_size('{name}')") / 1e6
        say(f"  built {count:,} records ({size:.0f} MB): {per_row:.0f} µs a record")
        return name

    async def _run(self, *statements: str, database: str = "postgres") -> None:
        connection = await asyncpg.connect(self.url(database))
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def _value(self, statement: str) -> int:
        connection = await asyncpg.connect(self.server.url)
        try:
            value: int = await connection.fetchval(statement)
            return value
        finally:
            await connection.close()


def open_postgres(url: str) -> Universe:
    """The universe in a database, with the schema of the records."""
    universe = dgent.open(with_universe(url, UNIVERSE), durability="full")
    universe.register(SCHEMA)
    return universe
