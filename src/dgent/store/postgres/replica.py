"""A copy of the server that only answers reads, and may be a little behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

import asyncpg

from dgent.errors import StorageError
from dgent.store.postgres.pool import ATTEMPTS, Pool
from dgent.store.postgres.sql import Texts

R = TypeVar("R")

PATIENCE_S = 0.2  # so long a read waits for the replica to catch up before it goes to the primary
PAUSE_S = 0.01
REACH_S = 1.0  # so long it may take to get a connection that has caught up
LEAVE_S = 5.0  # a replica that failed is left alone for so long


class _Behind(Exception):
    """The replica cannot answer this now; ask the primary."""


class Replica:
    """Reads go here when it has what the reader already knows of."""

    def __init__(self, pool: Pool, texts: Texts) -> None:
        self.pool, self._texts = pool, texts
        # By connection: behind one name there may be several servers, each with a past of its own.
        self._seqs: WeakKeyDictionary[asyncpg.Connection, int] = WeakKeyDictionary()
        self._leave_until = 0.0

    async def ask(
        self,
        seq: int,
        work: Callable[[asyncpg.Connection], Awaitable[R]],
        instead: Callable[[], Awaitable[R]],
    ) -> R:
        """Read here if this seq is known here, now or very soon; else do it `instead`."""
        try:
            return await self._ask(seq, work)
        except _Behind:
            return await instead()

    async def _ask(self, seq: int, work: Callable[[asyncpg.Connection], Awaitable[R]]) -> R:
        loop = asyncio.get_running_loop()
        if loop.time() < self._leave_until:
            raise _Behind

        async def caught_up(connection: asyncpg.Connection) -> R:
            await self._catch_up(connection, seq)
            limit.reschedule(loop.time() + self.pool.address.timeout / ATTEMPTS)
            return await work(connection)

        try:
            async with asyncio.timeout(REACH_S) as limit:
                return await self.pool.call(caught_up)
        except (StorageError, TimeoutError):
            self._leave_until = loop.time() + LEAVE_S
            raise _Behind from None

    async def _catch_up(self, connection: asyncpg.Connection, seq: int) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        while self._seqs.get(connection, -1) < seq:
            found = self._seqs[connection] = await connection.fetchval(
                f"SELECT seq FROM {self._texts.u}.clock"
            )
            if found < seq:
                if loop.time() >= end:
                    raise _Behind
                await asyncio.sleep(PAUSE_S)
