"""Telemetry in a SQLite file of its own, by threads of its own: nothing of it waits for the memory."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import apsw

from dgent import clock
from dgent.errors import Closed, Corrupt, FormatTooNew, NoBackendAvailable
from dgent.ids import check_id
from dgent.store.port.telemetry import (
    FIELDS,
    Retention,
    Row,
    TelemetryEvent,
    event_of,
    rows_of,
)
from dgent.store.port.telemetry_sql import SQLTelemetry, TelemetrySQL
from dgent.store.sqlite import connection as waiting
from dgent.store.sqlite.connection import close_inherited, connect, reserve_index, translate, use_wal
from dgent.store.sqlite.shared import refuse_unsafe, watch_forks

R = TypeVar("R")

FORMAT = 1
APPLICATION_ID = 0x6467746C  # "dgtl"
PRUNE_EVERY_S = 600.0
IN_MEMORY = ":memory:"

TABLES = """
CREATE TABLE event (
    n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at INT NOT NULL, kind TEXT NOT NULL,
    trace TEXT, span TEXT, parent TEXT, instance TEXT, project TEXT, datum TEXT, agent TEXT, model TEXT,
    tool TEXT, input INT, output INT, cost REAL, data BLOB NOT NULL
);
CREATE INDEX event_at ON event (at);
CREATE INDEX event_kind ON event (kind, at);
CREATE INDEX event_trace ON event (n >> 14, trace) WHERE trace IS NOT NULL;
CREATE INDEX event_span ON event (n >> 14, span) WHERE span IS NOT NULL;
CREATE INDEX event_datum ON event (n >> 14, datum) WHERE datum IS NOT NULL;
CREATE INDEX event_usage ON event (at, agent, model, tool, input, output, cost)
    WHERE model IS NOT NULL OR tool IS NOT NULL;
"""

_SQL = TelemetrySQL("event", "b CROSS JOIN event e ON e.n >> {bits} = b.x AND e.{column} = $1")
_INSERT = f"INSERT OR IGNORE INTO event ({', '.join(FIELDS)}) VALUES ({', '.join('?' * len(FIELDS))})"


class SQLiteTelemetry(SQLTelemetry):
    """Keeps events in one SQLite file, which is made when it is first used; `:memory:` makes none.

    A killed process loses nothing that was appended; a power cut may lose the last moments. Any number of
    processes may append to one file.
    """

    sql = _SQL

    def __init__(self, path: str, retention: Retention | None = None) -> None:
        self.path = path if path == IN_MEMORY else os.path.realpath(path)
        self.retention = retention or Retention()
        self._file: _File | None = None
        self._next_prune = 0.0

    @property
    def place(self) -> str:
        """The place as text."""
        return "memory:" if self.path == IN_MEMORY else f"sqlite:///{self.path}"

    async def exists(self) -> bool:
        """Return whether there may be events here; makes nothing."""
        return self._file is not None if self.path == IN_MEMORY else os.path.exists(self.path)

    # -- events ---------------------------------------------------------------------------

    async def append(self, events: Iterable[TelemetryEvent]) -> int:
        """Store events, all or none; return how many are new. An id that is stored is left as it is."""
        given = list(events) if isinstance(events, Iterable) else events
        if not given:
            return 0
        added = await self._write(lambda connection: _insert(connection, rows_of(given)))
        self._prune_later()
        return added

    async def _fetch(self, sql: str, values: Sequence[Any]) -> list[Any]:
        return await self._read(lambda connection: _all(connection, sql, values))

    async def _size_bytes(self) -> int:
        return await self._read(_used_bytes)

    async def check(self, deep: bool = True) -> list[str]:
        """Return what is wrong with the store; `deep` reads every event."""
        try:
            return await self._read(_check if deep else _check_pages)
        except (Corrupt, FormatTooNew) as error:
            return [error.message]

    # -- retention ------------------------------------------------------------------------

    async def _drop(self, rule: Retention) -> int:
        steps, dropped = _Pruning(rule), 0
        while some := await self._write(steps.take):
            dropped += some
            await self._write(_shrink, transaction=False)
        return dropped

    def _prune_later(self) -> None:
        """Apply the rule in the background, now and then, between the appends."""
        now = time.monotonic()
        if now >= self._next_prune and self._file is not None:
            self._next_prune = now + PRUNE_EVERY_S
            self._file.prune(_Pruning(self.retention))

    async def forget(self, datum_ids: Sequence[str]) -> int:
        """Erase the events of records, without a trace in the files of the store; return how many."""
        wanted = [check_id(id, "datum_ids") for id in datum_ids]

        def find(connection: apsw.Connection) -> list[int]:
            return [n for id in wanted for (n,) in _all(connection, _SQL.find("datum"), (id,))]

        def erase(connection: apsw.Connection) -> int:
            connection.execute("PRAGMA secure_delete = ON")
            found = find(connection)
            connection.executemany("DELETE FROM event WHERE n = ?", [(n,) for n in found])
            return len(found)

        if not await self._read(find):
            return 0  # without waiting for others that write
        erased = await self._write(erase)
        if erased:
            await self._write(_scrub, transaction=False)
        return erased

    async def reopen(self) -> None:
        """Let go of the file; the next call opens it again. What is in memory stays."""
        if self.path != IN_MEMORY:
            await self._release()

    async def _release(self) -> None:
        file, self._file = self._file, None
        if file is not None and not file.inherited:
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, file.close))

    # -- threads --------------------------------------------------------------------------

    def _require_open(self) -> _File:
        if self._closed:
            raise Closed(f"the telemetry of {self.place} is closed")
        if self._file is None:
            self._file = _File(self.path)
        if self._file.inherited:
            raise Closed(f"{self.path} was opened before fork", hint="open it again in the child process")
        return self._file

    async def _write(self, work: Callable[[apsw.Connection], R], transaction: bool = True) -> R:
        return await asyncio.wrap_future(self._require_open().write(work, transaction))

    async def _read(self, work: Callable[[apsw.Connection], R]) -> R:
        return await asyncio.wrap_future(self._require_open().read(work))


class _File:
    """The connections to a file, each used by one thread: one writes, one reads."""

    def __init__(self, path: str) -> None:
        self.path, self.inherited = path, False
        self._writer = self._reader = _Thread(path, "dgent-telemetry")
        if path != IN_MEMORY:  # there, a second connection would be a second database
            self._reader = _Thread(path, "dgent-telemetry-reader")
        self._threads = list(dict.fromkeys((self._writer, self._reader)))
        watch_forks(self)

    def write(self, work: Callable[[apsw.Connection], R], transaction: bool) -> Future[R]:
        """Run work on the writer's thread, in a transaction of its own."""
        return self._writer.submit(lambda connection: _transact(connection, work, transaction))

    def read(self, work: Callable[[apsw.Connection], R]) -> Future[R]:
        """Run reads on the reader's thread."""
        return self._reader.submit(work)

    def prune(self, steps: _Pruning) -> None:
        """Take one step, and the next one behind the work that waits by then."""

        def go_on(step: Future[int]) -> None:
            if not step.cancelled() and step.exception() is None and step.result():
                with suppress(RuntimeError):  # closed meanwhile
                    self.write(_shrink, transaction=False)
                    self.prune(steps)

        # What fails is tried again later, and by the verb, which says what is wrong.
        self.write(steps.take, transaction=True).add_done_callback(go_on)

    def close(self) -> None:
        """Finish what is queued, and close; the last connection to a file empties its log."""
        for thread in reversed(self._threads):
            thread.close()

    # -- fork -----------------------------------------------------------------------------

    def pause(self, until: float) -> bool:
        """Keep the threads out of SQLite; False when one does not leave it in time."""
        for thread in self._threads:
            thread.paused = thread.lock.acquire(timeout=max(0.0, until - time.monotonic()))
        return all(thread.paused for thread in self._threads)

    def resume(self) -> None:
        """Let the threads go on."""
        for thread in self._threads:
            if thread.paused:
                thread.paused = False
                thread.lock.release()

    def close_inherited(self) -> None:
        """Close inherited connections in a forked child, without checkpointing the parent's log."""
        for thread in self._threads:
            if thread.connection is not None:
                close_inherited(thread.connection)


class _Thread:
    """One thread and its connection, which is opened when it is first needed."""

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.lock = threading.Lock()  # held while the thread is inside SQLite
        self.paused = False
        self.connection: apsw.Connection | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    def submit(self, work: Callable[[apsw.Connection], R]) -> Future[R]:
        """Run work with the connection, and translate the errors of the driver."""

        def run() -> R:
            with self.lock:
                try:
                    if self.connection is None:
                        self.connection = _open(self.path)
                    return work(self.connection)
                except (apsw.Error, UnicodeDecodeError) as error:
                    raise translate(error, self.path) from error

        return self._pool.submit(run)

    def close(self) -> None:
        """End the thread after what is queued."""
        self._pool.shutdown(wait=True)
        if self.connection is not None:
            self.connection.close(True)


# -- the file -----------------------------------------------------------------------------


def _connect(path: str) -> apsw.Connection:
    if path == IN_MEMORY:
        return apsw.Connection(IN_MEMORY)
    refuse_unsafe(path)
    if not os.path.isdir(os.path.dirname(path)):
        raise NoBackendAvailable(
            f"the folder of {path} does not exist", hint="make the folder, or correct the path"
        )
    connection = connect(path, "relaxed", wait=True)
    # No commit of the memory waits for this thread, so it may checkpoint by itself.
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    return connection


def _open(path: str) -> apsw.Connection:
    """Return a connection to the file, which is made or checked first."""
    connection = _connect(path)
    try:
        until = time.monotonic() + waiting.WAIT_S
        while True:
            try:
                _prepare(connection, path)
                return connection
            except apsw.BusyError:  # see `shared._prepare`
                if time.monotonic() > until:
                    raise
                time.sleep(clock.jitter(0.001, 0.01))
    except BaseException:
        connection.close()
        raise


def _prepare(connection: apsw.Connection, path: str) -> None:
    if _one(connection, "SELECT count(*) FROM sqlite_schema"):
        _check_kind(connection, path)
    else:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    if path != IN_MEMORY:
        use_wal(connection, path)
        reserve_index(path)
    if _one(connection, "PRAGMA user_version") != FORMAT:
        _transact(connection, lambda _: _create(connection, path), True)


def _create(connection: apsw.Connection, path: str) -> None:
    if _one(connection, "PRAGMA user_version"):
        return _check_kind(connection, path)  # another process was faster
    connection.execute(TABLES)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    return None


def _check_kind(connection: apsw.Connection, path: str) -> None:
    """Refuse a file of something else, and one of a newer dgent; nothing of it is changed."""
    if _one(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise Corrupt(f"{path} is a SQLite file, but not one of telemetry", hint="name another file")
    found = _one(connection, "PRAGMA user_version")
    if found > FORMAT:
        raise FormatTooNew(f"{path} has the telemetry format {found}; this dgent knows {FORMAT}")


def _transact(connection: apsw.Connection, work: Callable[[apsw.Connection], R], begin: bool) -> R:
    if not begin:
        return work(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if not connection.get_autocommit():
            connection.execute("ROLLBACK")
        raise
    return result


def _all(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    return connection.execute(sql, tuple(values)).fetchall()


def _one(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Any:
    return _all(connection, sql, values)[0][0]


def _change(connection: apsw.Connection, sql: str, values: Sequence[Any]) -> int:
    before = connection.total_changes()
    connection.execute(sql, tuple(values))
    return connection.total_changes() - before


def _insert(connection: apsw.Connection, rows: Sequence[Row]) -> int:
    before = connection.total_changes()
    connection.executemany(_INSERT, rows)
    return connection.total_changes() - before


def _used_bytes(connection: apsw.Connection) -> int:
    """Return the bytes of the file that hold something."""
    pages, free = (_one(connection, f"PRAGMA {name}_count") for name in ("page", "freelist"))
    return int((pages - free) * _one(connection, "PRAGMA page_size"))


class _Pruning:
    """Drops what a rule does not keep, in small transactions: an append meanwhile waits for one of them."""

    def __init__(self, rule: Retention) -> None:
        self.rule, self._cutoff = rule, rule.cutoff()
        self._beyond: int | None = None
        self._is_known = rule.max_bytes is None

    def take(self, connection: apsw.Connection) -> int:
        """Drop the next events; return how many, 0 when all is done."""
        dropped = 0
        if self._cutoff is not None:
            dropped = _change(connection, _SQL.drop_old, (self._cutoff,))
        if not dropped and not self._is_known:
            self._beyond, self._is_known = _find_beyond(connection, self.rule), True
        if not dropped and self._beyond is not None:
            dropped = _change(connection, _SQL.drop_first, (self._beyond + 1,))
        return dropped


def _find_beyond(connection: apsw.Connection, rule: Retention) -> int | None:
    """Return the place of the newest event that does not fit into the size; None when all do."""
    size = rule.max_bytes
    # No event takes less than half of what it is counted for, so this spares a look at all of them.
    if size is None or 2 * _used_bytes(connection) < size or _one(connection, _SQL.size) <= size:
        return None
    found: int | None = _one(connection, _SQL.beyond, (size,))
    return found


def _shrink(connection: apsw.Connection) -> None:
    """Give free pages back to the disk."""
    connection.execute("PRAGMA incremental_vacuum").fetchall()


def _scrub(connection: apsw.Connection) -> None:
    """Write the file anew and empty its log: SQLite leaves old copies of rows in the gaps of pages."""
    connection.execute("VACUUM")
    with suppress(apsw.Error):  # a reader of another process still needs it; the next checkpoint does it
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _check_pages(connection: apsw.Connection) -> list[str]:
    return [str(row[0]) for row in _all(connection, "PRAGMA quick_check(10)") if row[0] != "ok"]


def _check(connection: apsw.Connection) -> list[str]:
    wrong, after = _check_pages(connection), 0
    while not wrong and (rows := _all(connection, _SQL.page, (after, 1000))):
        for row in rows:
            try:
                event_of(row[1:])
            except Corrupt as error:
                wrong.append(error.message)
        after = rows[-1][0]
    return wrong
