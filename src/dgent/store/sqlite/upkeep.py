"""Maintain a SQLite store while others use it: inspect, repair, copy.

All of it runs on separate threads and connections. A long look at the store is one read
transaction: it stops nobody from writing, and only the log cannot start over meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import apsw

from dgent.errors import (
    Conflict,
    Corrupt,
    Unavailable,
)
from dgent.store.sqlite import format as storage
from dgent.store.sqlite import shared
from dgent.store.sqlite.connection import Patience, translate_errors
from dgent.store.upkeep import Contents, Duplicate, Finding
from dgent.system.files import disk_errors, sync
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import Stopped, in_thread

if TYPE_CHECKING:
    from dgent.store.sqlite.backend import SQLiteBackend

R = TypeVar("R")

COPY_PAGES = 1024  # one step of a copy: 4 MiB
INTERRUPT_STEPS = 50_000  # how many of SQLite's own steps pass between two looks at `stopped`

_SEQ = (
    "SELECT max((SELECT coalesce(max(seq), 0) FROM commits), (SELECT value FROM meta WHERE name = 'floor'))"
)
_RECORDS = "SELECT count(*) FROM datum WHERE live = 1 AND trail = 0"


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
    with disk_errors(path):
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise Conflict(f"{path} exists already", hint="give a path where nothing is yet") from None
    try:
        with looking(source) as here, translate_errors(path), closing(apsw.Connection(path)) as there:
            # Nothing to return to if this fails: the file is removed.
            for pragma in ("journal_mode = OFF", "synchronous = OFF", "trusted_schema = OFF"):
                there.execute(f"PRAGMA {pragma}").fetchall()
            # An open read pins the moment; without it, every commit of others would start the copy over.
            here.execute("BEGIN")
            here.execute("SELECT count(*) FROM sqlite_schema").fetchall()
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
    with translate_errors(path), _still(path) as peek:
        storage.check(peek, path)
        storage.check_meta(peek, path)
        said = one(peek, "PRAGMA quick_check(1)")
        if said != "ok":
            raise Corrupt(f"{path} is damaged: {said}")
        return contents(peek)


def read_copy(path: str, limit: int, stopped: Stopped) -> tuple[Contents, tuple[str, ...]]:
    """Return the contents of a checked copy, and the first ids of its records that cannot be read."""
    from dgent.store.sqlite.verify import unreadable  # loads when it is used

    with translate_errors(path), _still(path) as peek:
        peek.set_progress_handler(stopped, INTERRUPT_STEPS)
        return contents(peek), tuple(islice(unreadable(peek), limit))


def _still(path: str) -> closing[apsw.Connection]:
    # `immutable` reads the file alone: no log, no locks, nothing beside it is made or removed.
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return closing(apsw.Connection(f"{storage.uri(path)}?immutable=1", flags=flags))


def contents(connection: apsw.Connection) -> Contents:
    rows: Any = connection.execute("SELECT name, value FROM meta").fetchall()
    meta: dict[str, Any] = dict(rows)
    return Contents(
        str(meta["universe_id"]), meta["format"], one(connection, _SEQ), one(connection, _RECORDS)
    )
