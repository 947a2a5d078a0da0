"""A primary and a standby that follows it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg

from tests.postgres.server import Server

SAFE = {"fsync": "off"}
# A standby that is killed is not waited for: only one that is there must have each commit.
FOLLOWED = {**SAFE, "wal_level": "replica", "max_wal_senders": "4", "wal_sender_timeout": "5s"}
SYNCHRONOUS = {**FOLLOWED, "synchronous_standby_names": "*"}


class Pair:
    """Two servers; `synchronous`: the primary acknowledges nothing that the standby does not have."""

    def __init__(self, synchronous: bool) -> None:
        self.primary = Server(SYNCHRONOUS if synchronous else FOLLOWED)
        self.standby = Server({**SAFE, "hot_standby": "on", "wal_receiver_status_interval": "1s"})

    def start(self) -> Pair:
        """Make the primary, copy it, and let the copy follow."""
        self.primary.create().start()
        self.standby.run(
            *("pg_basebackup", "-h", "127.0.0.1", "-p", str(self.primary.port), "-U", "postgres"),
            *("-D", str(self.standby.data), "-R", "-c", "fast", "-X", "stream", "--no-sync"),
        )
        self.standby.start()
        return self

    def promote(self) -> None:
        """Make the standby a primary."""
        self.standby.run("pg_ctl", "promote", "-D", str(self.standby.data), "-w")

    def remove(self) -> None:
        """Stop both and leave nothing behind."""
        self.standby.remove()
        self.primary.remove()

    @property
    def url(self) -> str:
        """Both of them, the primary first."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://postgres@{hosts}/postgres"


async def ask(server: Server, sql: str, *values: Any) -> Any:
    """The first value that a server answers."""
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(sql, *values)
    finally:
        await connection.close()


async def until(server: Server, sql: str, wanted: Any, timeout_s: float = 15) -> None:
    """Wait until a server answers so; a standby may not even have the table yet."""
    async with asyncio.timeout(timeout_s):
        while True:
            with suppress(asyncpg.UndefinedTableError):
                if await ask(server, sql) == wanted:
                    return
            await asyncio.sleep(0.02)
