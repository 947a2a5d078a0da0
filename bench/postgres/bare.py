"""The base on Postgres: one table of an id and a blob, as anybody writes it by hand with asyncpg.

Beside it is the best index for queries by tag and kind, over the records that the database began with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from bench.bare import Tagged, decode, encode
from bench.record import Sample
from dgent import Datum, ids

_TABLES = """
CREATE TABLE IF NOT EXISTS bare (id text PRIMARY KEY, data bytea);
CREATE TABLE IF NOT EXISTS tagged (tag text, kind text, n bigint, id text, PRIMARY KEY (tag, kind, n));
"""
# One statement for any number of rows: one round trip and one transaction.
_PUT = "INSERT INTO bare SELECT * FROM unnest($1::text[], $2::bytea[])"
_GET = "SELECT data FROM bare WHERE id = $1"
_NEWEST = """
SELECT id, data FROM (SELECT id, n FROM tagged WHERE tag = $1 AND kind = $2 ORDER BY n DESC LIMIT $3) found
JOIN bare USING (id) ORDER BY n DESC
"""


class BarePostgres:
    """One connection and its prepared statements."""

    def __init__(self, connection: asyncpg.Connection, put: Any, get: Any, newest: Any) -> None:
        self._connection, self._put, self._get, self._newest = connection, put, get, newest

    @classmethod
    async def open(cls, url: str) -> BarePostgres:
        """Connect, to a database that `fill` has made the tables in."""
        connection = await asyncpg.connect(url, server_settings={"jit": "off"})
        return cls(connection, *[await connection.prepare(sql) for sql in (_PUT, _GET, _NEWEST)])

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def put_together(self, samples: Sequence[Sample]) -> None:
        """Many records in one transaction."""
        await self._put.fetch([ids.new_id() for _ in samples], [encode(*sample) for sample in samples])

    async def get(self, id: str) -> Tagged:
        """A record."""
        return decode(await self._get.fetchval(id))

    async def newest(self, tag: str, kind: str, limit: int) -> list[tuple[str, Tagged]]:
        """The newest records with a tag and a kind."""
        return [(id, decode(data)) for id, data in await self._newest.fetch(tag, kind, limit)]

    async def some_ids(self, count: int) -> list[str]:
        """Random ids, the same ones each time."""
        found = await self._connection.fetch("SELECT id FROM bare ORDER BY md5(id) LIMIT $1", count)
        return [id for (id,) in found]


async def fill(connection: asyncpg.Connection, datums: Sequence[Datum], first: int) -> None:
    """Add records to the table and to its index; the first of them has this number."""
    await connection.execute(_TABLES)
    rows = [(each.id, encode(each.data, each.tags)) for each in datums]
    await connection.copy_records_to_table("bare", records=rows)
    entries = [
        (tag, each.data["kind"], n, each.id) for n, each in enumerate(datums, first) for tag in each.tags
    ]
    await connection.copy_records_to_table("tagged", records=entries)
