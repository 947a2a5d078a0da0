"""Maintain a SQLite store: inspect, repair and copy it while others use it, or replace it.

All of it runs on separate threads and connections. A long look at the store is one read
transaction: it stops nobody from writing, and only the log cannot start over meanwhile. A store is
replaced under an exclusive lock, and what must outlive it is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import apsw

from dgent.errors import (
    Busy,
    Conflict,
    Corrupt,
    Unavailable,
)
from dgent.store.sqlite import format as storage
from dgent.store.sqlite import shared
from dgent.store.sqlite.connection import Patience, connect, translate_errors
from dgent.store.sqlite.reading import SQLiteReading
from dgent.store.sqlite.scan import ID_TEXT
from dgent.store.upkeep import Contents, Duplicate, Finding
from dgent.system.files import disk_errors, sync
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import Stopped, in_thread

if TYPE_CHECKING:
    from dgent.store.sqlite.backend import SQLiteBackend


R = TypeVar("R")

COPY_PAGES = 1024  # one step of a copy: 4 MiB
INTERRUPT_STEPS = 50_000  # how many of SQLite's own steps pass between two looks at `stopped`

SEQ = "SELECT max((SELECT coalesce(max(seq), 0) FROM commits), (SELECT value FROM meta WHERE name = 'floor'))"
_RECORDS = "SELECT count(*) FROM datum WHERE live = 1 AND trail = 0"
_SALT = "SELECT value FROM meta WHERE name = 'forget_salt'"
_KEEP = (
    "INSERT INTO forgotten (h, last_rev, seq) VALUES (?, ?, ?)"
    " ON CONFLICT (h) DO UPDATE SET last_rev = max(last_rev, excluded.last_rev)"
)

Held = apsw.Connection
"""The connection of a caller that has a store to itself."""
Forgotten = Mapping[bytes, tuple[int, int]]
"""Salted hash of a forgotten id: its last rev, and the seq of the forget."""


class SQLiteUpkeep:
    """The upkeep of an open store."""

    def __init__(self, backend: SQLiteBackend) -> None:
        self._backend = backend

    async def inspect(
        self, *, deep: bool = False, fix: bool = False, progress: Progress | None = None
    ) -> list[Finding]:
        """Look for problems; `deep` checks every record, `fix` repairs what is safe to repair."""
        from dgent.store.sqlite.inspect import inspect  # loads when it is used

        return await inspect(self._backend, deep, fix, ProgressReporter(progress))

    async def copy_to(self, path: str, progress: Progress | None = None) -> Duplicate:
        """Write a copy of one moment to a new file, checked before this returns."""
        self._backend._require_open()  # a closed handle says so
        source = self._backend.path
        return await in_thread(lambda stopped: _copy_store(source, path, ProgressReporter(progress), stopped))

    async def universe_id(self) -> str:
        """Return the id that the store got when it was made; copies have the same."""
        self._backend._require_open()
        return (await in_thread(lambda _: _ask(self._backend.path, contents))).universe_id


# -- threads and connections --------------------------------------------------------------


class _Inside:
    """Makes a fork refuse the file in the child, as long as a thread here may be inside SQLite with it.

    Fork copies SQLite's table of locks without the locks, so a child must not open a file that was open
    here. `shared` asks its stores to pause; this one never can.
    """

    inherited = False

    def __init__(self, path: str) -> None:
        self.path = path

    def pause(self, until: float) -> bool:
        """Return False: it never pauses."""
        return False

    def resume(self) -> None:
        """Do nothing: nothing was paused."""


@contextmanager
def unforkable(path: str) -> Iterator[None]:
    """Hold a separate connection on a file that `shared` may have open too; a forked child may not use it."""
    known: WeakSet[Any] = shared._every
    inside = _Inside(path)
    with shared._lock:
        known.add(inside)
    try:
        yield
    finally:
        known.discard(inside)


@contextmanager
def looking(path: str, stopped: Stopped | None = None) -> Iterator[apsw.Connection]:
    """Open a connection for one long read of an existing file; driver errors are translated."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX  # a file that is gone is not made anew
    with unforkable(path), translate_errors(path):
        connection = apsw.Connection(path, flags=flags)
        try:
            connection.set_busy_handler(Patience())
            for setting in ("trusted_schema = OFF", "mmap_size = 0", "wal_autocheckpoint = 0"):
                connection.execute(f"PRAGMA {setting}").fetchall()
            connection.execute("PRAGMA query_only = ON")
            if stopped is not None:
                connection.set_progress_handler(stopped, INTERRUPT_STEPS)
            yield connection
        finally:
            connection.close(True)  # also in the middle of a walk


def _ask(path: str, question: Callable[[apsw.Connection], R]) -> R:
    with looking(path) as connection:
        return question(connection)


def one(connection: apsw.Connection, sql: str) -> Any:
    """Return the one value that a statement gives."""
    return connection.execute(sql).fetchall()[0][0]


def in_use_here(path: str) -> bool:
    """Return whether this process has the file open: reading it past SQLite would drop SQLite's locks."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return any(key[:2] == (found.st_dev, found.st_ino) for key in list(shared._open))


# -- copying ------------------------------------------------------------------------------


def _copy_store(source: str, path: str, pace: ProgressReporter, stopped: Stopped) -> Duplicate:
    copy_database(source, path, pace, stopped)
    try:
        stand_alone(path)
        found = check_copy(path)
        sync(path)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    return Duplicate(path, found.seq, found.records, os.stat(path).st_size)


def copy_database(source: str, path: str, pace: ProgressReporter, stopped: Stopped) -> None:
    """Copy any SQLite file as of one moment, while others write to it, to a new private file."""
    with looking(source) as here:
        # An open read pins the moment; without it, every commit of others would start the copy over.
        here.execute("BEGIN")
        here.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        copy_pages(here, path, pace, stopped)


def copy_pages(here: apsw.Connection, path: str, pace: ProgressReporter, stopped: Stopped) -> None:
    """Copy all that a connection sees to a new private file, which is removed again if that fails."""
    with disk_errors(path):
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise Conflict(f"{path} exists already", hint="give a path where nothing is yet") from None
    try:
        with translate_errors(path), closing(apsw.Connection(path)) as there:
            # Nothing to return to if this fails: the file is removed.
            for pragma in ("journal_mode = OFF", "synchronous = OFF", "trusted_schema = OFF"):
                there.execute(f"PRAGMA {pragma}").fetchall()
            page_size = one(here, "PRAGMA page_size")
            with there.backup("main", here, "main") as copying:
                while not copying.done:
                    copying.step(COPY_PAGES)
                    pace.total = copying.page_count * page_size
                    pace.at(pace.total - copying.remaining * page_size)
                    if stopped():
                        raise Unavailable("the copy was stopped")
        pace.end()
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def stand_alone(path: str) -> None:
    """Make a copy readable without a log, and leave out bytes that were forgotten and not yet erased."""
    with translate_errors(path), closing(apsw.Connection(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        if connection.execute("SELECT 1 FROM meta WHERE name = 'erasing'").fetchall():
            connection.execute("DELETE FROM meta WHERE name = 'erasing'").fetchall()
            connection.execute("VACUUM").fetchall()


def check_copy(path: str) -> Contents:
    """Return the contents of a file that nobody writes; Corrupt if SQLite finds damage. Changes nothing."""
    with translate_errors(path), still(path) as peek:
        storage.check(peek, path)
        storage.check_meta(peek, path)
        said = one(peek, "PRAGMA quick_check(1)")
        if said != "ok":
            raise Corrupt(f"{path} is damaged: {said}")
        return contents(peek)


def read_copy(path: str, limit: int, stopped: Stopped) -> tuple[Contents, tuple[str, ...]]:
    """Return the contents of a checked copy, and the first ids of its records and blobs that are damaged."""
    from dgent.store.sqlite.verify import find_damaged_blobs, unreadable  # loads when it is used

    with translate_errors(path), still(path) as peek:
        peek.set_progress_handler(stopped, INTERRUPT_STEPS)
        return contents(peek), tuple(islice(chain(unreadable(peek), find_damaged_blobs(peek)), limit))


def still(path: str) -> closing[apsw.Connection]:
    """Open a file that nobody writes, to read it."""
    # `immutable` reads the file alone: no log, no locks, nothing beside it is made or removed.
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return closing(apsw.Connection(f"{storage.uri(path)}?immutable=1", flags=flags))


def contents(connection: apsw.Connection) -> Contents:
    """Return the description that a store holds of itself."""
    rows: Any = connection.execute("SELECT name, value FROM meta").fetchall()
    meta: dict[str, Any] = dict(rows)
    return Contents(str(meta["universe_id"]), meta["format"], one(connection, SEQ), one(connection, _RECORDS))


# -- replacing a store ----------------------------------------------------------------------


@contextmanager
def alone(path: str) -> Iterator[apsw.Connection]:
    """Hold a store exclusively; Busy names the process when anyone has it open, even idle.

    In WAL mode every connection keeps a shared lock on the file as long as it is open, also between
    transactions. A connection in SQLite's exclusive mode needs that lock for itself, and while it has
    it nobody else can open the store. It never checkpoints or removes the log, which may have moved.
    """
    flags = apsw.SQLITE_OPEN_READWRITE
    with unforkable(path), translate_errors(path), closing(apsw.Connection(path, flags=flags)) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except (apsw.BusyError, apsw.LockedError):
            connection.close()  # or its own lock would be among those that `holder` sees
            pid = holder(path)
            who = "this process" if pid == os.getpid() else f"process {pid}" if pid else "another process"
            raise Busy(
                f"{path} is in use by {who}", hint="end or close what uses it, then try again", pid=pid
            ) from None
        yield connection


def retire(connection: apsw.Connection) -> None:
    """Checkpoint the log of a store that is held exclusively, and make the file complete without it.

    A process that waits to open it has the file already and will look for its log beside the path, where
    another store's may be by then. Without a log there is none to mistake, and SQLite itself refuses
    to begin one for a file that was moved.
    """
    with translate_errors(connection.filename):
        connection.execute("COMMIT")
        mode = connection.execute("PRAGMA journal_mode = DELETE").fetchall()[0][0]
        if mode != "delete":
            raise Busy(f"{connection.filename} cannot be taken out of use now")
        # The change itself left a journal, done with and still open; in memory it needs no file.
        connection.execute("PRAGMA journal_mode = MEMORY").fetchall()
    with suppress(FileNotFoundError):
        os.unlink(connection.filename + "-journal")


def holder(path: str) -> int | None:
    """Return the pid of a process that has the store open, where the system reports it."""
    pids: set[int] = set()
    try:
        # stat and /proc only: opening one of SQLite's files here would drop this process's locks.
        inodes = {os.stat(name).st_ino for name in (path, path + "-shm") if os.path.exists(name)}
        with open("/proc/locks", encoding="ascii") as locks:
            for line in locks:
                parts = line.split()
                if len(parts) >= 8 and parts[1] != "->" and int(parts[5].rsplit(":", 1)[1]) in inodes:
                    pids.add(int(parts[4]))
    except (OSError, ValueError, IndexError):
        return None
    others = pids - {os.getpid()}
    return min(others or pids, default=None)


# -- what was forgotten -------------------------------------------------------------------


def forgotten_in(connection: apsw.Connection, universe_id: str) -> tuple[bytes | None, Forgotten]:
    """Return the salt of a store of this universe, and its hashes of forgotten ids; none of another one."""
    with translate_errors(connection.filename):
        storage.check(connection, connection.filename)
        try:
            if one(connection, "SELECT value FROM meta WHERE name = 'universe_id'") != universe_id:
                return None, {}
        except (apsw.SQLError, IndexError) as error:
            raise Corrupt(f"{connection.filename} is not a whole store: {error}") from error
        return bytes(one(connection, _SALT)), _forgotten(connection)


def _forgotten(connection: apsw.Connection) -> Forgotten:
    rows: Any = connection.execute("SELECT h, last_rev, seq FROM forgotten").fetchall()
    return {bytes(h): (rev, seq) for h, rev, seq in rows}


def forgotten_since(path: str, salt: bytes, forgotten: Forgotten) -> list[tuple[str, str]]:
    """Return id and schema of a store's records that another store of the same universe has forgotten.

    A record that both forgot alike, and that is there again, was made anew afterwards.
    """
    with looking(path) as connection:
        own_salt, known = bytes(one(connection, _SALT)), _forgotten(connection)
        news = {h for h, entry in forgotten.items() if known.get(h) != entry}
        if own_salt != salt or not news:
            return []
        reading = SQLiteReading(connection)
        reading.refresh()
        # As bytes: an id that is damaged is none that was forgotten, and hides no other.
        sql = (
            f"SELECT CAST({ID_TEXT} AS BLOB), n.text FROM datum d JOIN name n ON n.n = d.schema"
            " WHERE d.trail = 0"
        )
        rows: Any = connection.execute(sql)
        ids = ((id.decode("utf-8", "replace"), schema) for id, schema in rows)
        return [(id, schema) for id, schema in ids if reading.catalog.hash(id) in news]


def live_records(
    connection: apsw.Connection, schema: str, prefix: str = ""
) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield id, data and content of the live records of a schema in an exclusively held store, by id."""
    sql = (
        f"SELECT {ID_TEXT} AS spelled, d.data, d.content FROM datum d JOIN name n ON n.n = d.schema"
        " WHERE n.text = ? AND d.live = 1 AND d.trail = 0 AND substr(spelled, 1, ?) = ? ORDER BY spelled"
    )
    with translate_errors(connection.filename):
        for id, data, content in connection.execute(sql, (schema, len(prefix), prefix)):
            yield id, bytes(data), bytes(content or b"")


def settle_restored(path: str, salt: bytes | None, forgotten: Forgotten) -> None:
    """Make a restored file a new store: old cursors do not fit it, and forgotten ids stay forgotten."""
    with translate_errors(path), closing(connect(path, "full", wait=True)) as connection, connection:
        ask = connection.execute
        ask("UPDATE meta SET value = ? WHERE name = 'epoch'", (os.urandom(8),))
        if salt is not None and bytes(one(connection, _SALT)) == salt and forgotten:
            connection.executemany(_KEEP, [(h, rev, seq) for h, (rev, seq) in forgotten.items()])
            ask("UPDATE meta SET value = 1 WHERE name = 'forgot'")
        ask("UPDATE meta SET value = value + 1 WHERE name = 'catalog'")
