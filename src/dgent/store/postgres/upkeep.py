"""Maintain a universe on Postgres while others use it: inspect, repair, sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from dgent.errors import Unsupported
from dgent.store.engine import fold, vector_check
from dgent.store.engine.catalog import Entry, IndexName, is_unsettled
from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import Reading, Wrap
from dgent.store.engine.row import Row, datum_of
from dgent.store.postgres import format as storage
from dgent.store.postgres.bridge import run
from dgent.store.postgres.kernel import PostgresKernel
from dgent.store.postgres.pool import Pool
from dgent.store.postgres.read import LAST_ID
from dgent.store.postgres.sql import Texts
from dgent.store.upkeep import Duplicate, Finding
from dgent.system.progress import Progress, ProgressReporter

if TYPE_CHECKING:
    from dgent.store.postgres.backend import PostgresBackend


R = TypeVar("R")


async def write(pool: Pool, texts: Texts, wrap: Wrap, work: Callable[[Ledger], R]) -> R:
    """Run work over a kernel that holds the clock; returns its result once all of it is committed."""
    writer = os.urandom(16)
    done: list[R] = []

    async def attempt(connection: asyncpg.Connection) -> R:
        async with connection.transaction():
            kernel = PostgresKernel(connection, texts)

            def do() -> R:
                kernel.begin()
                if done and kernel.was_committed(writer):
                    return done[0]  # the last attempt was committed; only the word of it was lost
                result = work(Ledger(wrap(kernel)))
                kernel.end(writer)
                return result

            result = await run(do)
            done[:] = [result]
        return result

    return await pool.call(attempt)


PAGE = 500
LONG_S = 300  # a transaction open for so long keeps the server from tidying up
_NOWHERE = -1  # a index that is not there


async def sweep(connection: asyncpg.Connection, texts: Texts) -> bool:
    """Remove dead rows and their index entries from the tables that held forgotten records."""
    for table in ("datum", "past", "entry", "commits", "name", "ix", "lag", "page", "doc", "vector"):
        await connection.execute(f"VACUUM (INDEX_CLEANUP ON) {texts.u}.{table}")
    return True


class PostgresUpkeep:
    """The upkeep of an open universe."""

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend

    async def universe_id(self) -> str:
        """Return the id that the store got when it was made."""
        sql = f"SELECT bytes FROM {self._backend._texts.u}.meta WHERE name = 'universe_id'"
        found: bytes = (await self._backend._fetch(sql))[0][0]
        return found.decode()

    async def copy_to(self, path: str, progress: Progress | None = None) -> Duplicate:
        """Refuse: a server has its own ways to be copied."""
        raise Unsupported(
            "a universe on Postgres is not backed up as a file",
            hint="use pg_dump of its schema, `dgent export`, or `dgent store copy` to a SQLite file",
        )

    async def inspect(
        self, *, deep: bool = False, fix: bool = False, progress: Progress | None = None
    ) -> list[Finding]:
        """Look for problems; `deep` checks every record, `fix` repairs what is safe to repair."""
        found = [
            await self._server(),
            Finding("ok", "universe", f"its id is {await self.universe_id()}"),
            Finding("ok", "format", f"storage format {storage.FORMAT}, the newest this dgent knows"),
            await self._clock(),
            await self._transactions(),
            *await self._indexes(),
        ]
        if deep:
            found += await self._records(fix, ProgressReporter(progress))
            found += await self._vectors(fix)
        return found

    # -- the server -----------------------------------------------------------------------

    async def _server(self) -> Finding:
        ((version, standby),) = await self._backend._fetch(
            "SELECT current_setting('server_version'), pg_is_in_recovery()"
        )
        role = "a standby, which only answers reads" if standby else "takes reads and writes"
        return Finding("warning" if standby else "ok", "server", f"Postgres {version}, {role}")

    async def _clock(self) -> Finding:
        """Check that the clock is at the end of the log; if it were behind, numbers would be given twice."""
        u = self._backend._texts.u
        ((seq, record_key, last, top),) = await self._backend._fetch(
            f"SELECT c.seq, c.dk, (SELECT coalesce(max(seq), 0) FROM {u}.commits),"
            f" (SELECT coalesce(max(dk), 0) FROM {u}.datum) FROM {u}.clock c"
        )
        if seq < last or record_key < top:
            stands, goes = f"seq {seq}, key {record_key}", f"{last}, the records to {top}"
            message = f"the clock stands at {stands}; the log goes to {goes}"
            return Finding("problem", "clock", message, "restore the whole universe from one backup")
        return Finding("ok", "clock", f"the newest commit is {seq:,}")

    async def _transactions(self) -> Finding:
        rows = await self._backend._fetch(
            "SELECT pid, application_name FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_xmin IS NOT NULL AND xact_start < now() - make_interval(secs => $1)",
            LONG_S,
        )
        if rows:
            who = ", ".join(f"{pid} ({name or 'unnamed'})" for pid, name in rows)
            hint = "dead rows stay in the tables until these end"
            return Finding("warning", "transactions", f"open for over {LONG_S // 60} minutes: {who}", hint)
        return Finding("ok", "transactions", "none has been open for long")

    # -- what it holds --------------------------------------------------------------------

    async def _indexes(self) -> list[Finding]:
        schemas = (await self._backend.stats()).schemas
        found = [
            Finding("note", "indexes", f"{s.name}: {', '.join(s.building)} not complete yet")
            for s in schemas
            if s.building
        ]
        found += [
            Finding("note", "indexes", f"{s.name}: {s.lagging:,} records are in no field index")
            for s in schemas
            if s.lagging
        ]
        return found or [Finding("ok", "indexes", "every index is complete")]

    async def _records(self, fix: bool, pace: ProgressReporter) -> list[Finding]:
        """Read every record and compare its index entries with those that it should have."""
        damaged = strays = 0
        last: str | None = ""
        while last is not None:
            looked = await self._backend._read(lambda reading, last=last: _look(reading, last))  # type: ignore[misc]
            damaged, strays = damaged + looked.damaged, strays + len(looked.wrong)
            if fix and looked.wrong:
                ids = looked.wrong
                await self._backend._write(lambda ledger, ids=ids: _mend(ledger, ids))  # type: ignore[misc]
            last = looked.last
            pace.add(looked.count)
        pace.end()
        found = []
        if damaged:
            found.append(
                Finding("problem", "records", f"{damaged:,} records are damaged", "restore a backup")
            )
        if strays:
            message = f"{strays:,} records have wrong index entries"
            found.append(
                Finding("problem", "entries", message, "" if fix else "run it again with fix", True, fix)
            )
        found += await self._texts(fix)
        return found or [Finding("ok", "records", "rows and indexes fit together")]

    async def _texts(self, fix: bool) -> list[Finding]:
        """Compare the text indexes with the texts of their records."""
        wrong = await self._backend._read(_find_text_damage)
        for schema, some in wrong.items() if fix else ():
            await self._backend._write(lambda ledger, of=schema, some=some: fold.mend(ledger, of, some))  # type: ignore[misc]
        if not wrong:
            return []
        names = ", ".join(schema or "records without a schema" for schema in wrong)
        message = f"the texts of {names} are to be indexed again"
        return [Finding("problem", "entries", message, "" if fix else "run it again with fix", True, fix)]

    async def _vectors(self, fix: bool) -> list[Finding]:
        """Compare vector indexes with the records."""

        def look(reading: Reading) -> dict[str, vector_check.VectorDamage]:
            reading.refresh()
            states = [state for state in reading.states() if state.vector]
            found = {state.name: vector_check.find_damage(reading, state) for state in states}
            return {name: damage for name, damage in found.items() if damage}

        wrong = await self._backend._read(look)
        for name, damage in wrong.items() if fix else ():
            await self._backend._write(
                lambda ledger, name=name, damage=damage: vector_check.mend(ledger, name, damage)  # type: ignore[misc]
            )
        hint = "" if fix else "run it again with fix"
        return [
            Finding("problem", "entries", f"the vectors of {name} are to be indexed again", hint, True, fix)
            for name in wrong
        ]


def _find_text_damage(reading: Reading) -> dict[str, set[int] | None]:
    found = {state.name: fold.find_damage(reading, state) for state in reading.states() if state.text}
    return {schema: wrong for schema, wrong in found.items() if wrong is None or wrong}


class _Looked:
    """The findings in some records."""

    def __init__(self) -> None:
        self.count = self.damaged = 0
        self.wrong: list[str] = []
        self.last: str | None = None


def _look(reading: Any, last: str) -> _Looked:
    """Check the next records by id; by an index, one that lost its entries would not be met."""
    looked = _Looked()
    found = reading._all(reading.texts.walk_ids[True], "", LAST_ID, last, PAGE)
    rows = [Row._make(record) for record in found]
    looked.count = len(rows)
    looked.last = rows[-1].id if len(rows) == PAGE else None
    ledger = Ledger(_InspectReading(reading))
    unsettled = _find_unsettled(reading)
    stand = _standing(reading, rows, unsettled)
    for row in rows:
        if datum_of(row, reading.name).problem is not None:
            looked.damaged += 1
        elif stand[row.record_key] != _settled_entries(ledger, row, unsettled):
            looked.wrong.append(row.id)
    return looked


def _find_unsettled(reading: Any) -> set[int]:
    """Return the indexes whose entries need not follow from the rows."""
    return {
        index
        for state in reading.states()
        for index, *name in reading._all(reading.texts.indexes, state.number)
        if is_unsettled(state, IndexName(*name))
    }


def _settled_entries(ledger: Ledger, row: Row, unsettled: Set[int]) -> set[Entry]:
    """Return the entries that a row must have."""
    state = ledger.kernel.state(ledger.kernel.name(row.schema))
    if state is not None and state.fill is not None:
        unsettled = {*unsettled, _NOWHERE}  # it may not be begun
    return {entry for entry in ledger.entries_of(row) if entry[0] not in unsettled}


def _standing(reading: Any, rows: Iterable[Row], unsettled: Set[int]) -> dict[int, set[Entry]]:
    """Return the entries that some records have in indexes that follow from the rows."""
    by_key: dict[int, set[Entry]] = {row.record_key: set() for row in rows}
    sql = f"SELECT ix, key, t, dk FROM {reading.texts.u}.entry WHERE dk = ANY ($1::bigint[])"
    for ix, key, created_at, record_key in reading._all(sql, list(by_key)):
        if ix not in unsettled:
            by_key[record_key].add((ix, key, created_at, record_key))
    return by_key


def _mend(ledger: Ledger, ids: list[str]) -> None:
    """Repair the index entries of records, as they are now."""
    kernel: Any = ledger.kernel
    unsettled = _find_unsettled(kernel)
    for id in ids:
        row = kernel.head(id)
        if row is None or not row.live:
            continue
        should = _settled_entries(ledger, row, unsettled)
        stands = {entry for entry in kernel.entries_at(row.record_key) if entry[0] not in unsettled}
        kernel.remove_entries(stands - should)
        kernel.add_entries(list(should - stands))


class _InspectReading:
    """A reading that the ledger may ask for indexes, and that makes none."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reading, name)

    def make_index(self, name: IndexName) -> int:
        """Return the index, or one that has no entries."""
        index = self._reading.index_number(name)
        return _NOWHERE if index is None else index
