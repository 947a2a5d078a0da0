"""The Postgres engine: one universe in a schema of a database, any number of processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg
import msgspec

from dgent import ids as ids_
from dgent.errors import Closed, Corrupt, Denied, FormatTooOld
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import BackendStats, Committed, Guard, Page, Rank, View
from dgent.store.engine import read
from dgent.store.engine.backend import KernelBackend
from dgent.store.engine.check import check_as_of, check_ids, check_limit, check_seq
from dgent.store.engine.commit import Ledger, Prepared
from dgent.store.engine.expiry import drop_expired
from dgent.store.engine.fresh import FreshKind
from dgent.store.engine.kernel import Reading, Wrap, no_wrap
from dgent.store.engine.row import AUTHOR, EXTRA, SCHEMA, SOURCE, datum_of, datums_of, whole_of
from dgent.store.migration import make_migrating_error
from dgent.store.port.attached import BoundStatement, check_attached
from dgent.store.port.own_tables import OwnTables
from dgent.store.port.relational import IRelationalStore
from dgent.store.port.statement import Params
from dgent.store.postgres import errors
from dgent.store.postgres import format as storage
from dgent.store.postgres import upgrade as upgrading
from dgent.store.postgres.address import Address
from dgent.store.postgres.bridge import run
from dgent.store.postgres.listen import CommitListener, NewestSeen
from dgent.store.postgres.pool import ATTEMPTS, Pool, Replica
from dgent.store.postgres.read import Catalogs, PostgresReading, read_page
from dgent.store.postgres.search import RecentSearches, search_quickly
from dgent.store.postgres.sql import Texts
from dgent.store.postgres.upkeep import PostgresUpkeep, sweep, write
from dgent.store.postgres.writer import GroupWriter
from dgent.store.search import SearchPage, SearchRequest
from dgent.store.upgrade import Upgrade, check_policy
from dgent.system.progress import Progress

R = TypeVar("R")

_MIGRATION = """
SELECT l.pid FROM pg_locks l, unnest($1::text[]) AS k(name)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND l.classid::bigint = (hashtextextended(k.name, 0) >> 32) & 4294967295
AND l.objid::bigint = hashtextextended(k.name, 0) & 4294967295 LIMIT 1
"""

SHORT = 1000  # a page of more rows is read in parts


class PostgresBackend(KernelBackend):
    """Keeps a universe in its own schema on a Postgres server.

    `durability="full"` (the default): the server says a commit is durable before the call returns.
    `"relaxed"`: a crash of the server may lose the last moments' commits, never part of one.

    A universe of an older storage format is upgraded when it is opened; `upgrade="never"` raises
    FormatTooOld instead.
    """

    name = "postgres"
    priority = 10
    remains = "free space of the server's tables until it is reused, its log, archives, replicas and backups"

    def __init__(self, address: Address, wrap: Wrap = no_wrap, upgrade: str = "backup") -> None:
        self.address = address
        self._upgrade_policy = "never" if address.read_only else check_policy(upgrade)
        self.upgraded: Upgrade | None = None  # the upgrade of the format that `open` made
        self.epoch = b""
        self._wrap = wrap
        self._plain = wrap is no_wrap
        self._texts = Texts(address.universe, address.timeout / ATTEMPTS)
        self._catalogs = Catalogs()
        self._searches = RecentSearches()
        self._pool: Pool | None = None
        self._replica: Replica | None = None
        self._runs_statements = False  # once the role for statements of callers is known to be there
        self._writer: GroupWriter | None = None
        self._listener: CommitListener | None = None
        self._closing: asyncio.Future[None] | None = None
        self._pid = 0
        self._now: Callable[[], float] = float  # the loop's clock, once it is open
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seen = NewestSeen()

    # -- lifecycle ------------------------------------------------------------------------

    async def is_available(self) -> bool:
        """Return whether the server can be reached now; only `open` can say why not."""
        return True

    async def open(self) -> None:
        """Connect, and make or update the universe's tables if need be."""
        if self._pool is not None:
            raise Closed(f"{self.address.place} is open already", hint="make another backend")
        pool = Pool(self.address, self.address.dsn)
        try:
            try:
                self.epoch = await self._prepare(pool)
            except FormatTooOld:
                if self._upgrade_policy == "never":
                    raise
                self.upgraded = await upgrading.upgrade(pool, self.address)
                self.epoch = await self._prepare(pool)
        except BaseException:
            await pool.close()
            raise
        pool.types_of = self.address.place
        self._pool, self._pid = pool, os.getpid()
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._writer = GroupWriter(pool, self._texts, self._catalogs, self._wrap, self._seen)
        self._listener = CommitListener(pool, self.address, self._primary_seq)
        if self.address.read_dsn is not None:
            self._replica = Replica(Pool(self.address, self.address.read_dsn, writes=False), self._texts)

    async def _prepare(self, pool: Pool) -> bytes:
        return await pool.call(
            lambda connection: storage.prepare(
                connection, self.address.universe, create=not self.address.read_only
            ),
            patient=False,
        )

    async def upgrade(
        self, *, backup: bool = True, dry_run: bool = False, progress: Progress | None = None
    ) -> Upgrade:
        """Upgrade the format of the universe's tables; no backup is made, since the server has its own."""
        pool = Pool(self.address, self.address.dsn)
        try:
            if dry_run:
                return msgspec.structs.replace(await upgrading.plan_upgrade(pool, self.address), dry_run=True)
            return await upgrading.upgrade(pool, self.address)
        finally:
            await pool.close()

    async def close(self) -> None:
        """Finish submitted commits and close the connections."""
        pool, self._pool = self._pool, None
        if self._pid != os.getpid():
            return  # what was inherited by a fork belongs to the parent
        if pool is not None:
            self._closing = asyncio.ensure_future(self._close_pool(pool))
        if self._closing is not None:
            await asyncio.shield(self._closing)  # a caller that gives up waiting does not stop it

    async def _close_pool(self, pool: Pool) -> None:
        assert self._writer is not None and self._listener is not None
        try:
            await self._writer.close()
            await self._listener.close()
        finally:
            if self._replica is not None:
                await self._replica.pool.close()
            await pool.close()

    def _require_open(self) -> Pool:
        if self._pool is None:
            raise Closed(f"{self.address.place} is not open")
        if self._pid != os.getpid():
            raise Closed(f"{self.address.place} was opened before fork", hint="open it again in the child")
        return self._pool

    # -- where work runs ------------------------------------------------------------------

    async def _ask(self, work: Callable[[asyncpg.Connection], Awaitable[R]], quick: bool = False) -> R:
        """Read from a replica that has caught up with what this handle has seen, or from the primary."""
        pool = self._require_open()
        if self._replica is None:
            return await pool.call(work, quick=quick)
        return await self._replica.ask(self._seen.seq, work, lambda: pool.call(work, quick=quick))

    async def _read(self, work: Callable[[Reading], R]) -> R:
        async def moment(connection: asyncpg.Connection) -> R:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                reading = PostgresReading(connection, self._texts, self._catalogs)
                wrapped = self._wrap(reading)

                def do() -> R:
                    reading.begin()
                    return work(wrapped)

                return await run(do)

        return await self._ask(moment)

    async def _write(self, work: Callable[[Ledger], R]) -> R:
        return await write(self._require_open(), self._texts, self._wrap, work)

    def _commit(self, prepared: Prepared, view: View) -> asyncio.Future[Committed]:
        self._require_open()
        assert self._writer is not None
        self._searches.is_steady = False
        return self._writer.commit(prepared, view)

    async def settle_commits(self) -> None:
        """Wait until every commit whose call was cancelled has happened or never will."""
        if self._writer is not None:
            await self._writer.settle_commits()

    def has_company(self) -> bool:
        """Return whether others may commit in this turn of the loop."""
        writer = self._writer
        return writer is not None and (writer.has_queue or bool(getattr(self._loop, "_ready", False)))

    def put_fresh(
        self, kind: FreshKind, data: dict[str, Any], tags: frozenset[Any]
    ) -> asyncio.Future[Datum | None] | None:
        """Put a new record together with others of its kind; None if it has to go the usual way.

        The future gives None if that turns out later; then nothing was written.
        """
        self._require_open()
        assert self._writer is not None
        return self._writer.put_fresh(kind, data, tags)

    async def _fetch(self, sql: str, *values: Any) -> Any:
        """Run one statement that reads, which by itself sees one moment."""
        if self._replica is not None:
            return await self._ask(lambda connection: connection.fetch(sql, *values), quick=True)
        pool = self._require_open()
        end = None
        now, timeout = self._now(), self.address.timeout
        connection = pool.take_idle(now + timeout / ATTEMPTS)
        if connection is not None:
            # The common case, without the machinery for when it goes wrong.
            end = now + timeout
            try:
                found = await connection.fetch(sql, *values)
            except Exception as error:
                # Once it is closed, any error of the driver is about that.
                gone = connection.is_closed() or errors.is_gone(error)
                pool.drop(connection)
                if not gone:
                    if isinstance(error, errors.FAILURES):
                        raise errors.translate(error, self.address.place) from None
                    raise
            except BaseException:
                pool.drop(connection)
                raise
            else:
                pool.give(connection)
                return found
        return await pool.call(lambda connection: connection.fetch(sql, *values), quick=True, end=end)

    # -- quick reads ----------------------------------------------------------------------

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """Return the live version, or the one at a seq."""
        check_as_of(as_of)
        if as_of is not None or not self._plain:
            return await self._read(lambda reading: read.get(reading, id, as_of))
        found = await self._fetch(self._texts.brief, ids_.check_id(id))
        if found and found[0][EXTRA] is not None:
            found = drop_expired(found)
        if not found:
            return None
        row, known = found[0], self._catalogs.names
        name: Callable[[int], str]
        if row[SCHEMA] in known and row[AUTHOR] in known and row[SOURCE] is None:
            name = known.__getitem__  # what nearly every record comes to, without another call
        else:
            name = await self._names(found)
        datum = datums_of(found, name)[0] if lazy else datum_of(whole_of(tuple(row)), name)
        if datum.problem is not None:
            raise Corrupt(datum.problem, id=datum.id)
        return datum

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """Return one answer for each id, read at one moment."""
        if as_of is not None or not self._plain:
            return await super().get_many(ids, as_of)
        wanted = check_ids(ids)
        rows = drop_expired(await self._fetch(self._texts.briefs, wanted))
        names = await self._names(rows)
        by_id = {datum.id: datum for datum in (datum_of(whole_of(tuple(row)), names) for row in rows)}
        return [by_id.get(id) for id in wanted]

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """Return a record and its causes, nearest first, in one round trip."""
        if not self._plain:
            return await super().ancestors(id, limit)
        check_limit(limit)
        rows = drop_expired(await self._fetch(self._texts.ancestors, ids_.check_id(id), limit))
        name = await self._names(rows)
        found = {datum.id: datum for datum in (datum_of(whole_of(tuple(row)), name) for row in rows)}
        chain: list[Datum] = []
        datum = found.pop(id, None)
        while datum is not None:
            chain.append(datum)
            datum = None if datum.parent_id is None else found.pop(datum.parent_id, None)
        return chain

    async def ranks(self, ids: Sequence[str]) -> list[Rank | None]:
        """Return the rank of each record in the order of time, in one round trip."""
        wanted = check_ids(ids)
        rows = await self._fetch(self._texts.ranks, wanted)
        found = {id: Rank(record_key, created_us) for id, record_key, created_us in rows}
        return [found.get(id) for id in wanted]

    async def _names(self, rows: Sequence[Any]) -> Callable[[int], str]:
        """Return a function from numbers in some brief rows to texts; unknown ones are fetched at once."""
        known = self._catalogs.names
        missing = {
            number
            for row in rows
            for number in (row[SCHEMA], row[AUTHOR], row[SOURCE])
            if number is not None and number not in known
        }
        if missing:
            known.update(await self._fetch(self._texts.names, sorted(missing)))

        def name(number: int) -> str:
            text = known.get(number)
            if text is None:
                raise Corrupt(f"a record uses the name {number}, which is not stored")
            return text

        return name

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """Return a page of matching records in order."""
        check_as_of(as_of)
        if self._plain and as_of is None and query.limit is not None and query.offset + query.limit <= SHORT:
            page = await read_page(self._fetch, self._texts, self._catalogs, query, view, self.epoch)
            if page is not None:
                return page
        return await self._read(lambda reading: self._query(reading, query, view, as_of))

    async def search(self, request: SearchRequest) -> SearchPage:
        """Return the matching records that have some of the words, best first."""
        if self._plain and request.as_of is None and not request.own and request.wanted:
            found = await search_quickly(
                self._fetch,
                self._texts,
                self._catalogs,
                self._searches,
                self._words.pages,
                request,
                self._search,
            )
            if found is not None:
                return found
        return await super().search(request)

    async def validate(self, guard: Guard, view: View) -> int:
        """Return the newest seq; raises TransactionConflict when something in the guard was touched."""
        check_seq(guard.since, "since")
        seq = await self.last_seq()
        return seq if seq == guard.since else await super().validate(guard, view)

    async def last_seq(self) -> int:
        """Return the newest seq."""
        seq: int = (await self._fetch(self._texts.clock))[0][0]
        self._seen.advance(seq)
        return seq

    async def _primary_seq(self) -> int:
        """Return the newest seq of the primary, where commits happen and notifications come from."""
        pool = self._require_open()
        found = await pool.call(lambda connection: connection.fetch(self._texts.clock), quick=True)
        seq: int = found[0][0]
        self._seen.advance(seq)
        return seq

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or when time is up."""
        check_seq(since, "since")
        self._require_open()
        assert self._listener is not None
        return await self._listener.wait(since, timeout_s)

    # -- migrations -----------------------------------------------------------------------

    async def find_migration(self) -> int | None:
        """Return the server's process for a program that migrates or upgrades this universe; None if none."""
        keys = [f"dgent.{self.address.universe}", f"dgent.migrating.{self.address.universe}"]
        pid: int | None = await self._require_open().call(
            lambda connection: connection.fetchval(_MIGRATION, keys), quick=True
        )
        return pid

    @asynccontextmanager
    async def mark_migration(self) -> AsyncIterator[None]:
        """Tell other programs that this universe is migrated; Busy when another one does that."""
        connection = await self._require_open().connect()
        try:
            async with connection.transaction():
                sql = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
                if not await connection.fetchval(sql, f"dgent.migrating.{self.address.universe}"):
                    raise make_migrating_error(await self.find_migration())
                yield
        finally:
            connection.terminate()

    # -- upkeep ---------------------------------------------------------------------------

    async def _erase_traces(self) -> bool:
        """Have the server reuse the space; see the guide for what that leaves in its files."""
        try:
            return await self._require_open().call(lambda connection: sweep(connection, self._texts))
        except Denied:
            return False  # only the owner of the tables may; the records are gone for every reader

    def upkeep(self) -> PostgresUpkeep:
        """The upkeep of this store."""
        return PostgresUpkeep(self)

    async def check_statement(self, query: str, params: Params | None, reads: bool = False) -> BoundStatement:
        """Return a statement on the caller's own tables that a commit may run; makes their role first."""
        from dgent.store.postgres.relational import check_statement, prepare  # loads when it is used

        universe = self.address.universe
        bound = check_attached(query, params, "postgres", reads)
        check_statement(bound.statement, universe)
        if not self._runs_statements:
            await self._require_open().call(lambda connection: prepare(connection, universe))
            self._runs_statements = True
        return bound

    def relational(self) -> IRelationalStore:
        """Return the caller's own tables in this database; the caller closes them."""
        from dgent.store.postgres.relational import PostgresRelational  # loads when it is used

        return PostgresRelational(self.address, self._require_open())

    def own_tables(self) -> OwnTables:
        """Return the caller's own tables as a whole; the caller closes them."""
        from dgent.store.postgres.relational import PostgresRelational
        from dgent.store.postgres.tables import PostgresTables

        pool = self._require_open()
        return PostgresTables(PostgresRelational(self.address, pool), pool, self.address.universe)

    async def stats(self) -> BackendStats:
        """Return the contents and the condition of the store."""
        found = await super().stats()
        size = (await self._fetch(self._texts.bytes, self.address.universe))[0][0]
        version = (await self._fetch("SHOW server_version"))[0][0]
        pool = self._require_open()
        details = {
            "server": version,
            "universe": self.address.universe,
            "durability": self.address.durability,
            "format": storage.FORMAT,
            "connections": pool.size,
        }
        return msgspec.structs.replace(found, size_bytes=size, details=details)

    def _place(self) -> str:
        return self.address.place
