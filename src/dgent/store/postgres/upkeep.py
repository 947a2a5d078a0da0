"""Looking after the server's side of a universe."""

from __future__ import annotations

import asyncpg

from dgent.store.postgres.format import PARTITIONS
from dgent.store.postgres.sql import Texts


async def sweep(connection: asyncpg.Connection, texts: Texts) -> bool:
    """Remove dead rows and their index entries from the tables that held forgotten records."""
    tables = [f"{table}_{part}" for table in ("datum", "past", "entry") for part in range(PARTITIONS)]
    for table in (*tables, "commits", "name", "ix", "lag"):
        await connection.execute(f"VACUUM (INDEX_CLEANUP ON) {texts.u}.{table}")
    return True
