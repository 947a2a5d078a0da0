"""Looking after a SQLite store while others use it: inspecting, mending, copying, taking it out of use.

All of it runs on threads and connections of its own. A long look at the store is one read
transaction: it stops nobody from writing, and only the log cannot start over meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import apsw

from dgent.errors import (
    Busy,
    Conflict,
    Corrupt,
    DgentError,
    NoBackendAvailable,
    StorageFull,
    Unavailable,
)
from dgent.store.sqlite import format as storage
from dgent.store.sqlite import shared as sharing
from dgent.store.sqlite.connection import connect, translated
from dgent.store.upkeep import Contents, Copied, Finding, Pace, Progress

if TYPE_CHECKING:
    from dgent.store.sqlite.backend import SQLiteBackend

R = TypeVar("R")

COPY_PAGES = 1024  # one step of a copy: 4 MiB
INTERRUPT_STEPS = 50_000  # how many of SQLite's own steps pass between two looks at `stopped`

_SEQ = (
    "SELECT max((SELECT coalesce(max(seq), 0) FROM commits), (SELECT value FROM meta WHERE name = 'floor'))"
)
_RECORDS = "SELECT count(*) FROM datum WHERE live = 1 AND trail = 0"

_SALT = "SELECT value FROM meta WHERE name = 'forget_salt'"
_KEEP = (
    "INSERT INTO forgotten (h, last_rev, seq) VALUES (?, ?, ?)"
    " ON CONFLICT (h) DO UPDATE SET last_rev = max(last_rev, excluded.last_rev)"
)

Forgotten = Mapping[bytes, tuple[int, int]]
"""Salted hash of a forgotten id: its last rev, and the seq of the forget."""


class SQLiteUpkeep:
    """The upkeep of an open store."""

    def __init__(self, backend: SQLiteBackend) -> None:
        self._backend = backend

    async def inspect(
        self, *, deep: bool = False, fix: bool = False, progress: Progress | None = None
    ) -> list[Finding]:
        """Look for what is wrong; `deep` looks at every record, `fix` mends what is safe to mend."""
        from dgent.store.sqlite.health import inspect  # loads when it is used

        return await inspect(self._backend, deep, fix, Pace(progress))

    async def copy_to(self, path: str, progress: Progress | None = None) -> Copied:
        """Write a copy of one moment to a new file, checked before this returns."""
        self._backend._opened()  # a closed handle says so
        source = self._backend.path
        return await in_thread(lambda stopped: _copy_store(source, path, Pace(progress), stopped))

    async def universe_id(self) -> str:
        """The id that the store got when it was made; copies have the same."""
        self._backend._opened()
        return (await in_thread(lambda _: _ask(self._backend.path, contents))).universe_id


# -- threads and connections --------------------------------------------------------------


class Stopped:
    """Whether the caller of a long piece of work is still there."""

    def __init__(self) -> None:
        self.now = False

    def __call__(self) -> bool:
        return self.now


async def in_thread(work: Callable[[Stopped], R]) -> R:
    """Run work on a thread; a cancelled caller waits until it noticed and tidied up."""
    stopped = Stopped()
    future = asyncio.get_running_loop().run_in_executor(None, work, stopped)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stopped.now = True
        with suppress(BaseException):
            await asyncio.shield(future)
        raise


@contextmanager
def looking(path: str, stopped: Stopped | None = None) -> Iterator[apsw.Connection]:
    """A connection for one long read of an existing file; no driver error leaves it."""
    with translated(path):
        connection = connect(path, "full", wait=True)
        try:
            connection.execute("PRAGMA query_only = ON")
            if stopped is not None:
                connection.set_progress_handler(stopped, INTERRUPT_STEPS)
            yield connection
        finally:
            connection.close(True)


def _ask(path: str, question: Callable[[apsw.Connection], R]) -> R:
    with looking(path) as connection:
        return question(connection)


def _one(connection: apsw.Connection, sql: str) -> Any:
    return connection.execute(sql).fetchall()[0][0]


def in_use_here(path: str) -> bool:
    """Whether this process has the file open: reading it past SQLite would drop SQLite's locks."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return any(key[:2] == (found.st_dev, found.st_ino) for key in list(sharing._open))


# -- copying ------------------------------------------------------------------------------


def _copy_store(source: str, path: str, pace: Pace, stopped: Stopped) -> Copied:
    copy_database(source, path, pace, stopped)
    try:
        stand_alone(path)
        found = check_copy(path)
        sync(path)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    return Copied(path, found.seq, found.records, os.stat(path).st_size)


def copy_database(source: str, path: str, pace: Pace, stopped: Stopped) -> None:
    """Copy any SQLite file as of one moment, while others write to it, to a new file of ours alone."""
    with disk_errors(path):
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise Conflict(f"{path} exists already", hint="give a path where nothing is yet") from None
    try:
        with looking(source) as here, translated(path), closing(apsw.Connection(path)) as there:
            # Nothing to return to if this fails: the file is removed.
            for pragma in ("journal_mode = OFF", "synchronous = OFF", "trusted_schema = OFF"):
                there.execute(f"PRAGMA {pragma}").fetchall()
            # An open read pins the moment; without it, every commit of others would start the copy over.
            here.execute("BEGIN")
            here.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            with there.backup("main", here, "main") as copying:
                while not copying.done:
                    copying.step(COPY_PAGES)
                    pace.total = copying.page_count
                    pace.at(copying.page_count - copying.remaining)
                    if stopped():
                        raise Unavailable("the copy was stopped")
        pace.end()
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def stand_alone(path: str) -> None:
    """Make a copy readable without a log, and leave out what was forgotten and not yet erased."""
    with translated(path), closing(apsw.Connection(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        if connection.execute("SELECT 1 FROM meta WHERE name = 'erasing'").fetchall():
            connection.execute("DELETE FROM meta WHERE name = 'erasing'").fetchall()
            connection.execute("VACUUM").fetchall()


def check_copy(path: str) -> Contents:
    """What a file that nobody writes holds; Corrupt when SQLite finds it damaged. Changes nothing."""
    # `immutable` reads the file alone: no log, no locks, nothing beside it is made or removed.
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with translated(path), closing(apsw.Connection(f"file:{quote(path)}?immutable=1", flags=flags)) as peek:
        storage.check(peek, path)
        said = _one(peek, "PRAGMA quick_check(1)")
        if said != "ok":
            raise Corrupt(f"{path} is damaged: {said}")
        return contents(peek)


def contents(connection: apsw.Connection) -> Contents:
    rows: Any = connection.execute("SELECT name, value FROM meta").fetchall()
    meta: dict[str, Any] = dict(rows)
    return Contents(
        str(meta["universe_id"]), meta["format"], _one(connection, _SEQ), _one(connection, _RECORDS)
    )


def sync(path: str) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    with disk_errors(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def disk_errors(place: str) -> Iterator[None]:
    """Turn errors of the file system into ours, as the driver's are."""
    try:
        yield
    except OSError as error:
        raise _our(error, place) from error


def _our(error: OSError, place: str) -> DgentError:
    text = f"{place}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"there is no room left for {place}")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR):
        return NoBackendAvailable(text, hint="does the folder exist, and may you read and write there?")
    return Unavailable(text)


# -- taking a store out of use ------------------------------------------------------------


@contextmanager
def alone(path: str) -> Iterator[apsw.Connection]:
    """Have a store to oneself; Busy, naming the process, when anyone has it open, be it idle.

    In WAL mode every connection keeps a shared lock on the file as long as it is open, also between
    transactions. A connection in SQLite's exclusive mode needs that lock for itself, and while it has
    it nobody else can open the store. It never folds or removes the log, which may have moved.
    """
    flags = apsw.SQLITE_OPEN_READWRITE
    with translated(path), closing(apsw.Connection(path, flags=flags)) as connection:
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
    """Fold the log of a store that one has alone, and make it a file that stands alone.

    Whoever waits to open it has the file already and will look for its log beside the path, where
    another store's may be by then. Without a log there is none to mistake, and SQLite itself refuses
    to begin one for a file that was moved.
    """
    with translated(connection.filename):
        connection.execute("COMMIT")
        mode = connection.execute("PRAGMA journal_mode = DELETE").fetchall()[0][0]
        if mode != "delete":
            raise Busy(f"{connection.filename} cannot be taken out of use now")
        # The change itself left a journal, done with and still open; in memory it needs no file.
        connection.execute("PRAGMA journal_mode = MEMORY").fetchall()
    with suppress(FileNotFoundError):
        os.unlink(connection.filename + "-journal")


def holder(path: str) -> int | None:
    """The pid of a process that has the store open, where the system tells."""
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
    """The salt of a store of this universe, and what it keeps of forgotten ids; nothing of another one."""
    with translated(connection.filename):
        try:
            if _one(connection, "SELECT value FROM meta WHERE name = 'universe_id'") != universe_id:
                return None, {}
        except (apsw.SQLError, IndexError) as error:
            raise Corrupt(f"{connection.filename} is not a whole store: {error}") from error
        return bytes(_one(connection, _SALT)), _forgotten(connection)


def _forgotten(connection: apsw.Connection) -> Forgotten:
    rows: Any = connection.execute("SELECT h, last_rev, seq FROM forgotten").fetchall()
    return {bytes(h): (rev, seq) for h, rev, seq in rows}


def forgotten_since(path: str, salt: bytes, forgotten: Forgotten) -> list[tuple[str, str]]:
    """Id and schema of the records in a store that another one of the same universe has forgotten.

    A record that both forgot alike, and that is there again, was made anew afterwards.
    """
    from dgent.store.sqlite.kernel import SQLiteReading

    with looking(path) as connection:
        own_salt, known = bytes(_one(connection, _SALT)), _forgotten(connection)
        news = {h for h, entry in forgotten.items() if known.get(h) != entry}
        if own_salt != salt or not news:
            return []
        reading = SQLiteReading(connection)
        reading.refresh()
        sql = "SELECT d.id, n.text FROM datum d JOIN name n ON n.n = d.schema WHERE d.trail = 0"
        return [(id, schema) for id, schema in connection.execute(sql) if reading._hash(id) in news]


def settle_restored(path: str, salt: bytes | None, forgotten: Forgotten) -> None:
    """Make a restored file a store of its own: old cursors do not fit it, and nothing forgotten is lost."""
    with translated(path), closing(connect(path, "full", wait=True)) as connection, connection:
        ask = connection.execute
        ask("UPDATE meta SET value = ? WHERE name = 'epoch'", (os.urandom(8),))
        if salt is not None and bytes(_one(connection, _SALT)) == salt and forgotten:
            connection.executemany(_KEEP, [(h, rev, seq) for h, (rev, seq) in forgotten.items()])
            ask("UPDATE meta SET value = 1 WHERE name = 'forgot'")
        ask("UPDATE meta SET value = value + 1 WHERE name = 'catalog'")
