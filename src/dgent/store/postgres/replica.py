"""A copy of the server that only answers reads, and may be a little behind."""

from __future__ import annotations

import asyncio

from dgent.errors import DgentError
from dgent.store.postgres import trouble
from dgent.store.postgres.pool import Pool
from dgent.store.postgres.sql import Texts

PATIENCE_S = 0.2  # so long a read waits for the replica before it goes to the primary
PAUSE_S = 0.01
LEAVE_S = 5.0  # a replica that failed is left alone for so long


class Replica:
    """Reads go here when it has what the reader already knows of."""

    def __init__(self, pool: Pool, texts: Texts) -> None:
        self.pool, self._texts = pool, texts
        self._seq = -1  # it never goes back, so what it had once it has now
        self._leave_until = 0.0

    async def reaches(self, seq: int) -> bool:
        """Whether the replica has this seq, now or very soon."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._leave_until:
            return False
        end = loop.time() + PATIENCE_S
        try:
            async with asyncio.timeout(PATIENCE_S * 2):
                while self._seq < seq:
                    self._seq = await self._look()
                    if self._seq < seq:
                        if loop.time() >= end:
                            return False
                        await asyncio.sleep(PAUSE_S)
        except (DgentError, *trouble.FAILURES):
            self._leave_until = loop.time() + LEAVE_S
            return False
        return True

    async def _look(self) -> int:
        connection = await self.pool.take()
        try:
            seq: int = await connection.fetchval(f"SELECT seq FROM {self._texts.u}.clock")
        except BaseException:
            self.pool.drop(connection)
            raise
        self.pool.give(connection)
        return seq
