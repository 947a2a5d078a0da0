"""Know the newest commit: that of any answer, and the next as soon as it is made.

The server's notifications say when to look, the clock has the facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from dgent.errors import Unavailable
from dgent.store.postgres import errors
from dgent.store.postgres.address import Address
from dgent.store.postgres.format import channel
from dgent.store.postgres.pool import Pool

LOOK_S = 1.0  # so long at most a lost notification delays the news
POLL_S = 0.1  # how often to look where notifications do not come through
RETRY_S = 5.0


class NewestSeen:
    """The newest seq in any answer to this handle."""

    __slots__ = ("seq",)

    def __init__(self) -> None:
        self.seq = 0

    def advance(self, seq: int) -> None:
        """Record a seq from an answer."""
        if seq > self.seq:
            self.seq = seq


class CommitListener:
    """One connection that listens, from the first wait on, shared by all who wait."""

    def __init__(self, pool: Pool, address: Address, newest: Callable[[], Awaitable[int]]) -> None:
        self._pool, self._address, self._newest = pool, address, newest
        self._connection: asyncpg.Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._retry_at = 0.0

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or when time is up."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while True:
            if timeout_s > 0:
                self._listen()
            news = self._news
            seq = await self._look(since, max(end, loop.time() + LOOK_S))
            left = end - loop.time()
            if seq > since or left <= 0:
                return seq
            heard = self._connection is not None and not self._connection.is_closed()
            try:
                async with asyncio.timeout(min(left, LOOK_S if heard else POLL_S)):
                    await news.wait()
            except TimeoutError:
                pass

    async def _look(self, since: int, end: float) -> int:
        try:
            async with asyncio.timeout_at(end):
                return await self._newest()
        except (Unavailable, TimeoutError):
            return since  # asked again; callers need not know of every hiccup

    def _listen(self) -> None:
        """Start listening if nobody does; a pooler in between passes no notifications on."""
        loop = asyncio.get_running_loop()
        listening = self._connection is not None and not self._connection.is_closed()
        if self._address.pgbouncer or listening or self._connecting is not None:
            return
        if loop.time() >= self._retry_at:
            self._retry_at = loop.time() + RETRY_S
            self._connecting = loop.create_task(self._connect(), name="dgent-postgres-listen")

    async def _connect(self) -> None:
        try:
            connection = await self._pool.connect()
            try:
                await connection.add_listener(channel(self._address.universe), self._heard)
            except BaseException:
                connection.terminate()
                raise
            self._connection = connection
            self._wake()
        except errors.FAILURES:
            pass  # looking now and then is enough
        finally:
            self._connecting = None

    def _heard(self, *_: Any) -> None:
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def close(self) -> None:
        """Stop listening; waiting tasks look once more, and find the store closed."""
        self._wake()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._connection is not None:
            self._connection.terminate()
