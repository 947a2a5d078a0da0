"""Contents of blobs as chunks in tables of the universe's own schema.

An upload stores its chunks under a random number, and the content is the row that leads from a hash to that
number. The uploader then locks that row, in a transaction that stays open until the key is stored too; a
collection passes over locked rows. The server ends the transaction of a process that was killed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import asyncpg

from dgent.errors import Busy, StorageError, Unavailable
from dgent.store.backend import Op
from dgent.store.port.blob import CHUNK, Content, is_gone, make_damage_error
from dgent.store.postgres import errors
from dgent.store.postgres.address import Address
from dgent.store.postgres.pool import Pool

R = TypeVar("R")

IDLE = "1 hour"
"""An upload that wrote nothing for so long is taken for one of a process that ended."""

TABLES = """
CREATE SCHEMA IF NOT EXISTS {u};
CREATE TABLE IF NOT EXISTS {u}.blob_content (
    sha256 bytea PRIMARY KEY, size bigint NOT NULL, upload bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS {u}.blob_upload (upload bytea PRIMARY KEY, at timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS {u}.blob_chunk (
    upload bytea NOT NULL, n int NOT NULL, data bytea NOT NULL, PRIMARY KEY (upload, n)
);
ALTER TABLE {u}.blob_chunk ALTER COLUMN data SET STORAGE EXTERNAL;
"""


class PostgresContents:
    """Keeps contents in Postgres, with connections of its own."""

    def __init__(self, address: Address) -> None:
        self.place = address.place
        self.u = '"' + address.universe + '"'
        self._address = address
        self._pool: Pool | None = None
        self._made = False

    async def pool(self) -> Pool:
        """Return the connections; the tables are there when it returns."""
        if self._pool is None:
            self._pool = Pool(self._address, self._address.dsn)
        if not self._made:
            await self._pool.call(self._make)
            self._made = True
        return self._pool

    async def _make(self, connection: asyncpg.Connection) -> None:
        if await connection.fetchval("SELECT to_regclass($1)", f"{self.u}.blob_chunk") is not None:
            return  # without the lock, and without the right to make tables
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "dgent.blob")
            await connection.execute(TABLES.replace("{u}", self.u))

    async def call(self, work: Callable[[asyncpg.Connection], Awaitable[R]]) -> R:
        """Run work that may be done twice in a transaction."""

        async def run(connection: asyncpg.Connection) -> R:
            async with connection.transaction():
                return await work(connection)

        return await (await self.pool()).call(run)

    async def note_user(self, user: str) -> list[str]:
        """Note that a store keeps contents here, in a table made for that; return the others that do."""

        async def note(connection: asyncpg.Connection) -> list[str]:
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "dgent.blob")
            await connection.execute(f"CREATE TABLE IF NOT EXISTS {self.u}.blob_user (name text PRIMARY KEY)")
            await connection.execute(
                f"INSERT INTO {self.u}.blob_user VALUES ($1) ON CONFLICT DO NOTHING", user
            )
            found = [row["name"] for row in await connection.fetch(f"SELECT name FROM {self.u}.blob_user")]
            gone = [each for each in found if is_gone(each)]
            await connection.execute(f"DELETE FROM {self.u}.blob_user WHERE name = ANY ($1)", gone)
            return sorted({*found} - {user, *gone})

        return await self.call(note)

    @asynccontextmanager
    async def upload(self) -> AsyncIterator[PostgresUpload]:
        """Begin an upload; it ends with the context, and so does its hold on the content."""
        made = PostgresUpload(self)
        try:
            yield made
        finally:
            await made.release()

    @asynccontextmanager
    async def hold(self, contents: Sequence[Content]) -> AsyncIterator[dict[str, Sequence[Op]]]:
        """Keep contents that are stored here from being removed until the context ends."""
        holder = PostgresUpload(self)
        try:
            sizes = await holder.lock([each.sha256 for each in contents])
            yield {each.sha256: () for each in contents if sizes.get(each.sha256) == each.size}
        finally:
            await holder.release()

    async def read(self, sha256: str, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes]:
        """Yield the bytes from `start` to before `end`; Corrupt where there are none."""
        pool = await self.pool()
        found = await pool.call(
            lambda connection: connection.fetchrow(
                f"SELECT upload, size FROM {self.u}.blob_content WHERE sha256 = $1", bytes.fromhex(sha256)
            )
        )
        if found is None:
            raise make_damage_error(sha256, f"it is not in {self.place}")
        last = found["size"] if end is None else min(end, found["size"])
        while start < last:
            number, offset = divmod(start, CHUNK)
            wanted = min(CHUNK - offset, last - start)
            part = await pool.call(
                lambda connection: connection.fetchval(
                    f"SELECT substring(data from $3 for $4) FROM {self.u}.blob_chunk"
                    " WHERE upload = $1 AND n = $2",
                    *(found["upload"], number, offset + 1, wanted),  # noqa: B023
                )
            )
            if not part:
                raise make_damage_error(sha256, f"its part {number} is missing")
            yield part
            start += len(part)

    async def size(self, sha256: str) -> int | None:
        """Return how many bytes a content has; None where it is missing."""
        sql = f"SELECT size FROM {self.u}.blob_content WHERE sha256 = $1"
        found: int | None = await (await self.pool()).call(
            lambda connection: connection.fetchval(sql, bytes.fromhex(sha256))
        )
        return found

    async def stamp(self, sha256: str) -> object:
        """Return the rows of the content and who wrote them; None where it is missing."""
        sql = (
            f"SELECT c.upload, sum(k.xmin::text::bigint) FROM {self.u}.blob_content c"
            f" JOIN {self.u}.blob_chunk k USING (upload) WHERE c.sha256 = $1 GROUP BY c.upload"
        )
        found = await (await self.pool()).call(
            lambda connection: connection.fetchrow(sql, bytes.fromhex(sha256))
        )
        return None if found is None else tuple(found)

    async def list(self, after: str = "", limit: int = 500) -> list[str]:
        """Return hashes after one, in order."""
        sql = f"SELECT sha256 FROM {self.u}.blob_content WHERE sha256 > $1 ORDER BY sha256 LIMIT $2"
        found = await (await self.pool()).call(
            lambda connection: connection.fetch(sql, bytes.fromhex(after), limit)
        )
        return [row[0].hex() for row in found]

    async def remove(self, sha256: str, is_used: Callable[[], Awaitable[bool]]) -> bool:
        """Remove a content unless an upload holds it, or it is used."""

        async def work(connection: asyncpg.Connection) -> bool:
            sql = f"SELECT upload FROM {self.u}.blob_content WHERE sha256 = $1 FOR UPDATE SKIP LOCKED"
            upload = await connection.fetchval(sql, bytes.fromhex(sha256))
            if upload is None or await is_used():
                return False
            await connection.execute(
                f"DELETE FROM {self.u}.blob_content WHERE sha256 = $1", bytes.fromhex(sha256)
            )
            await connection.execute(f"DELETE FROM {self.u}.blob_chunk WHERE upload = $1", upload)
            return True

        return await self.call(work)

    async def sweep(self) -> int:
        """Remove the chunks of uploads that have been idle for an hour."""

        async def work(connection: asyncpg.Connection) -> int:
            sql = (
                f"DELETE FROM {self.u}.blob_upload WHERE upload IN (SELECT upload FROM {self.u}.blob_upload"
                f" WHERE at < now() - interval '{IDLE}' FOR UPDATE SKIP LOCKED) RETURNING upload"
            )
            gone = [row[0] for row in await connection.fetch(sql)]
            await connection.execute(f"DELETE FROM {self.u}.blob_chunk WHERE upload = ANY($1)", gone)
            return len(gone)

        return await self.call(work)

    async def close(self) -> None:
        """Close the connections."""
        pool, self._pool, self._made = self._pool, None, False
        if pool is not None:
            await pool.close()


class PostgresUpload:
    """One upload; its chunks have `CHUNK` bytes each, but for the last one."""

    ops: Sequence[Op] = ()

    def __init__(self, contents: PostgresContents) -> None:
        self._contents, self._u = contents, contents.u
        self._number = os.urandom(16)
        self._hash, self._size, self._chunks = hashlib.sha256(), 0, 0
        self._waiting = bytearray()
        self._published = False
        self._held: tuple[Pool, asyncpg.Connection, Any] | None = None

    async def write(self, part: bytes) -> None:
        """Add bytes; sends them when there are enough for a chunk."""
        self._waiting += part
        while len(self._waiting) >= CHUNK:
            chunk = bytes(self._waiting[:CHUNK])
            del self._waiting[:CHUNK]
            await self._contents.call(lambda connection: self._store(connection, chunk))  # noqa: B023
            self._count(chunk)

    def _count(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self._size += len(chunk)
        self._chunks += 1

    async def _store(self, connection: asyncpg.Connection, chunk: bytes) -> None:
        if self._chunks:
            sql = f"UPDATE {self._u}.blob_upload SET at = now() WHERE upload = $1 RETURNING 1"
            if not await connection.fetchval(sql, self._number):
                raise Unavailable("the upload of a blob was idle for too long", hint="store it again")
        else:
            sql = f"INSERT INTO {self._u}.blob_upload VALUES ($1, now()) ON CONFLICT DO NOTHING"
            await connection.execute(sql, self._number)
        if chunk:
            # Twice where the first answer was lost: the same bytes under the same number.
            sql = f"INSERT INTO {self._u}.blob_chunk VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
            await connection.execute(sql, self._number, self._chunks, chunk)

    async def publish(self) -> tuple[Content, bool]:
        """Let the hash lead to the chunks, and hold that; True if they were stored before."""
        chunk = bytes(self._waiting)
        await self._contents.call(lambda connection: self._store(connection, chunk))
        self._waiting.clear()
        self._count(chunk)
        content = Content(self._hash.hexdigest(), self._size)
        made = await self._contents.call(lambda connection: self._name(connection, content))
        self._published = made
        await self._hold(content.sha256)
        if not made and not await self._is_whole(content):
            await self._contents.call(lambda connection: self._replace(connection, content))
            self._published = True
        return content, not made

    async def _name(self, connection: asyncpg.Connection, content: Content) -> bool:
        sql = f"INSERT INTO {self._u}.blob_content VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
        key = bytes.fromhex(content.sha256)
        await connection.execute(sql, key, content.size, self._number)
        sql = f"SELECT upload FROM {self._u}.blob_content WHERE sha256 = $1"
        if await connection.fetchval(sql, key) != self._number:
            return False
        await connection.execute(f"DELETE FROM {self._u}.blob_upload WHERE upload = $1", self._number)
        return True

    async def _hold(self, sha256: str) -> None:
        if sha256 not in await self.lock([sha256]):
            raise Busy(f"a collection removed the content {sha256} before its key was stored")

    async def lock(self, hashes: Sequence[str]) -> dict[str, int]:
        """Lock the rows of contents in a transaction that stays open until `release`; return their sizes."""
        pool = await self._contents.pool()
        try:
            connection = await pool.take()
            transaction = connection.transaction()
            self._held = pool, connection, transaction
            await transaction.start()
            sql = f"SELECT sha256, size FROM {self._u}.blob_content WHERE sha256 = ANY($1) FOR KEY SHARE"
            found = await connection.fetch(sql, [bytes.fromhex(each) for each in hashes])
        except errors.FAILURES as error:
            raise errors.translate(error, self._contents.place) from None
        return {row["sha256"].hex(): row["size"] for row in found}

    async def _is_whole(self, content: Content) -> bool:
        found, size = hashlib.sha256(), 0
        try:
            async for part in self._contents.read(content.sha256):
                found.update(part)
                size += len(part)
        except errors.FAILURES as error:
            raise errors.translate(error, self._contents.place) from None
        except Exception as error:
            if getattr(error, "code", "") != "corrupt":
                raise
            return False
        return found.hexdigest() == content.sha256 and size == content.size

    async def _replace(self, connection: asyncpg.Connection, content: Content) -> None:
        """Let the hash lead to this upload instead of damaged chunks."""
        sql = f"SELECT upload FROM {self._u}.blob_content WHERE sha256 = $1"
        damaged = await connection.fetchval(sql, bytes.fromhex(content.sha256))
        sql = f"UPDATE {self._u}.blob_content SET upload = $2, size = $3 WHERE sha256 = $1"
        await connection.execute(sql, bytes.fromhex(content.sha256), self._number, content.size)
        await connection.execute(f"DELETE FROM {self._u}.blob_upload WHERE upload = $1", self._number)
        if damaged != self._number:
            await connection.execute(f"DELETE FROM {self._u}.blob_chunk WHERE upload = $1", damaged)

    async def release(self) -> None:
        """End the hold, and remove chunks that nothing leads to."""
        if self._held is not None:
            pool, connection, transaction = self._held
            self._held = None
            try:
                await transaction.rollback()
            except (*errors.FAILURES, TimeoutError):
                pool.drop(connection)
            except BaseException:
                pool.drop(connection)
                raise
            else:
                pool.give(connection)
        if not self._published and self._chunks:
            with suppress(StorageError):  # a sweep removes them
                await self._contents.call(self._discard)

    async def _discard(self, connection: asyncpg.Connection) -> None:
        for table in ("blob_chunk", "blob_upload"):
            await connection.execute(f"DELETE FROM {self._u}.{table} WHERE upload = $1", self._number)
