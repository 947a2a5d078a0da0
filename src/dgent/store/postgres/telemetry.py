"""Telemetry in a table of the universe's schema, by connections of its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from operator import methodcaller
from typing import Any, TypeVar

import asyncpg
import msgspec

from dgent.errors import Closed, Corrupt, DgentError
from dgent.ids import check_id
from dgent.store.port.telemetry import (
    FIELDS,
    Retention,
    TelemetryEvent,
    event_of,
    rows_of,
)
from dgent.store.port.telemetry_sql import SQLTelemetry, TelemetrySQL
from dgent.store.postgres import format as storage
from dgent.store.postgres.address import Address
from dgent.store.postgres.pool import Pool

R = TypeVar("R")

CONNECTIONS = 2
PRUNE_EVERY_S = 600.0
_LOCK = 0x6467746C  # "dgtl", beside the name of the schema: one append at a time, so places follow arrival

TABLES = """
CREATE TABLE IF NOT EXISTS {u}.telemetry (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE,
    at bigint NOT NULL, kind text COLLATE "C" NOT NULL, trace text COLLATE "C", span text COLLATE "C",
    parent text COLLATE "C", instance text COLLATE "C", project text COLLATE "C", datum text COLLATE "C",
    agent text COLLATE "C", model text COLLATE "C", tool text COLLATE "C", input bigint, output bigint,
    cost double precision, data bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS telemetry_at ON {u}.telemetry (at);
CREATE INDEX IF NOT EXISTS telemetry_kind ON {u}.telemetry (kind, at);
CREATE INDEX IF NOT EXISTS telemetry_trace ON {u}.telemetry ((n >> 14), trace) WHERE trace IS NOT NULL;
CREATE INDEX IF NOT EXISTS telemetry_span ON {u}.telemetry ((n >> 14), span) WHERE span IS NOT NULL;
CREATE INDEX IF NOT EXISTS telemetry_datum ON {u}.telemetry ((n >> 14), datum) WHERE datum IS NOT NULL;
CREATE INDEX IF NOT EXISTS telemetry_usage ON {u}.telemetry (at) WHERE model IS NOT NULL OR tool IS NOT NULL;
"""

_LOOKUP = "b CROSS JOIN LATERAL (SELECT * FROM {t} WHERE n >> {bits} = b.x AND {column} = $1 OFFSET 0) e"
_TYPES = {"at": "bigint", "input": "bigint", "output": "bigint", "cost": "double precision", "data": "bytea"}
_ARRAYS = ", ".join(f"${place}::{_TYPES.get(name, 'text')}[]" for place, name in enumerate(FIELDS, 1))


class PostgresTelemetry(SQLTelemetry):
    """Keeps events in one table, which is made when it is first used."""

    def __init__(self, address: Address, retention: Retention | None = None) -> None:
        self.address = address
        self.retention = retention or Retention()
        self._schema = f'"{address.universe}"'
        self.sql = TelemetrySQL(f"{self._schema}.telemetry", _LOOKUP)
        self._insert = (
            f"INSERT INTO {self.sql.table} ({', '.join(FIELDS)}) SELECT * FROM unnest({_ARRAYS})"
            " ON CONFLICT (id) DO NOTHING"
        )
        self._pool: Pool | None = None
        self._is_made = False
        self._pid = os.getpid()
        self._next_prune = 0.0
        self._pruning: asyncio.Task[None] | None = None

    @property
    def place(self) -> str:
        """The place as text without secrets."""
        return self.address.place

    async def exists(self) -> bool:
        """Return whether there may be events here; makes nothing."""
        if self._is_made:
            return True
        sql, table = "SELECT to_regclass($1)", self.sql.table
        return await self._run(lambda connection: connection.fetchval(sql, table)) is not None

    # -- events ---------------------------------------------------------------------------

    async def append(self, events: Iterable[TelemetryEvent]) -> int:
        """Store events, all or none; return how many are new. An id that is stored is left as it is."""
        rows = rows_of(events)
        if not rows:
            return 0
        columns = [list(column) for column in zip(*rows, strict=True)]

        async def insert(connection: asyncpg.Connection) -> int:
            async with connection.transaction():
                await connection.execute(
                    "SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, self.address.universe
                )
                return _count_changed(await connection.execute(self._insert, *columns))

        added = await self._call(insert)
        self._prune_later()
        return added

    async def _fetch(self, sql: str, values: Sequence[Any]) -> list[Any]:
        rows: list[Any] = await self._call(lambda connection: connection.fetch(sql, *values))
        return rows

    async def _size_bytes(self) -> int:
        sql = "SELECT pg_total_relation_size($1::text::regclass)"
        return int((await self._fetch(sql, (self.sql.table,)))[0][0])

    async def check(self, deep: bool = True) -> list[str]:
        """Return what is wrong with the store; `deep` reads every event."""
        wrong: list[str] = []
        after = 0
        while deep and not wrong and (rows := await self._fetch(self.sql.page, (after, 1000))):
            for row in rows:
                try:
                    event_of(row[1:])
                except Corrupt as error:
                    wrong.append(error.message)
            after = rows[-1][0]
        return wrong

    # -- retention ------------------------------------------------------------------------

    async def _drop(self, rule: Retention) -> int:
        cutoff, beyond = rule.cutoff(), await self._find_beyond(rule)
        dropped = 0 if cutoff is None else await self._drop_all(self.sql.drop_old, cutoff)
        if beyond is not None:
            dropped += await self._drop_all(self.sql.drop_first, beyond + 1)
        return dropped

    async def _drop_all(self, sql: str, end: int) -> int:
        dropped = 0
        while some := _count_changed(await self._call(lambda connection: connection.execute(sql, end))):
            dropped += some
        return dropped

    def _prune_later(self) -> None:
        """Apply the rule in the background, now and then."""
        now = time.monotonic()
        if now >= self._next_prune and (self._pruning is None or self._pruning.done()):
            self._next_prune = now + PRUNE_EVERY_S
            self._pruning = asyncio.get_running_loop().create_task(self._prune_quietly())

    async def _prune_quietly(self) -> None:
        with suppress(DgentError):  # tried again later, and by the verb, which says what is wrong
            await self.prune()

    async def forget(self, datum_ids: Sequence[str]) -> int:
        """Erase the events of records; the server reuses the space. Return how many they were."""
        erased = 0
        sql = f"DELETE FROM {self.sql.table} WHERE n IN ({self.sql.find('datum')})"
        for wanted in [check_id(id, "datum_ids") for id in datum_ids]:
            erased += _count_changed(await self._call(methodcaller("execute", sql, wanted)))
        if erased:
            await self._call(lambda connection: connection.execute(f"VACUUM {self.sql.table}"))
        return erased

    # -- connections ----------------------------------------------------------------------

    async def _call(self, work: Callable[[asyncpg.Connection], Awaitable[R]]) -> R:
        """Run work with a connection; again on another one when that breaks, so it may be done twice."""
        if not self._is_made:
            await self._run(self._make)
            self._is_made = True
        return await self._run(work)

    async def _run(self, work: Callable[[asyncpg.Connection], Awaitable[R]]) -> R:
        if self._closed:
            raise Closed(f"the telemetry of {self.place} is closed")
        if self._pid != os.getpid():
            raise Closed(f"{self.place} was opened before fork", hint="open it again in the child")
        if self._pool is None:
            self._pool = Pool(msgspec.structs.replace(self.address, pool=CONNECTIONS), self.address.dsn)
        return await self._pool.call(work, patient=self._is_made)

    async def _make(self, connection: asyncpg.Connection) -> None:
        if await connection.fetchval("SELECT to_regclass($1)", self.sql.table) is not None:
            return
        async with connection.transaction():
            # Two that make the same table at once would fail, in spite of IF NOT EXISTS.
            await storage.queue_up(connection, self.address.universe)
            if await connection.fetchval("SELECT to_regnamespace($1)", self._schema) is None:
                await connection.execute(f"CREATE SCHEMA {self._schema}")
            await connection.execute(TABLES.format(u=self._schema))

    async def reopen(self) -> None:
        """Let go of the connections; the next call makes new ones."""
        await self._release()

    async def _release(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None or self._pid != os.getpid():
            return
        if self._pruning is not None:
            self._pruning.cancel()
            await asyncio.gather(self._pruning, return_exceptions=True)
        await pool.close()


def _count_changed(status: str) -> int:
    """Return the number of rows in the server's answer, such as `INSERT 0 5` or `DELETE 5`."""
    return int(status.rpartition(" ")[2])
