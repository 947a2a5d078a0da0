"""A SQLite file that this process only reads: without a writer, and without files beside it where it can be.

A file that nobody else has open has no log. It is read as it is (`immutable`): no locks, nothing made beside
it, also on a disk that cannot be written. Where its log or its time of change shows that somebody began to
write, what was read meanwhile is dropped and read again through SQLite's locks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

import apsw

from dgent.errors import StorageError
from dgent.model.datum import Datum
from dgent.store.engine.kernel import Reading, Wrap
from dgent.store.read_only import make_missing_error, refuse_write
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.connection import check_library, set_up, translate_errors
from dgent.store.sqlite.reading import SQLiteReading
from dgent.store.sqlite.shared import READERS, Opening, ReaderConnection, Shared, refuse_unsafe, watch_forks
from dgent.system import files

R = TypeVar("R")
State = tuple[int, int, int] | None


def state_of(path: str) -> State:
    """Return what changes whenever a file without a log is written to; None while it has one."""
    if files.size(path + "-wal"):
        return None
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


class ReadOnlyConnection(ReaderConnection):
    """One thread's connection to a file that is only read."""

    def __init__(self, path: str, wrap: Wrap) -> None:
        check_library()
        self.lock = threading.Lock()
        self.path = path
        self.state = state_of(path)  # before it is opened: what changes after this is noticed
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOMUTEX
        how = "mode=ro" if self.state is None else "mode=ro&immutable=1"
        connection = apsw.Connection(f"{storage.uri(path)}?{how}", flags=flags, statementcachesize=128)
        self.own = SQLiteReading(set_up(connection, "full", wait=True))
        self.reading: Reading = wrap(self.own)

    def is_current(self) -> bool:
        """Return whether what was read is what is stored: nobody wrote past this connection."""
        return self.state is None or self.state == state_of(self.path)


class ReadOnlyShared(Shared):
    """The reading connections of one handle on a file that is only read."""

    def __init__(self, path: str, wrap: Wrap) -> None:
        self.path, self.durability, self.wrap = path, "full", wrap
        self.handles, self.inherited, self.key = 1, False, None
        self._local, self._lock = threading.local(), threading.Lock()
        self._readers: WeakSet[ReaderConnection] = WeakSet()
        self._paused: list[threading.Lock] = []
        refuse_unsafe(path)
        if not files.size(path):
            raise make_missing_error(path)
        storage.refuse_foreign(path)
        self.pool = ThreadPoolExecutor(READERS, thread_name_prefix="dgent-reader")
        watch_forks(self)
        try:
            self.epoch = self._settled(self._check)
        except BaseException:
            self.close()
            raise

    @property
    def writer(self) -> NoReturn:  # type: ignore[override]
        """Raise: nothing is written here."""
        refuse_write()

    def _check(self) -> bytes:
        with translate_errors(self.path):
            connection = self._reader().own.connection
            if not storage.check_current(connection, self.path):
                raise make_missing_error(self.path)
            return storage.check_meta(connection, self.path)

    def _reader(self) -> ReadOnlyConnection:
        reader: ReadOnlyConnection | None = getattr(self._local, "reader", None)
        if reader is None or not reader.is_current():
            with self._lock, translate_errors(self.path):
                if reader is not None:
                    reader.own.connection.close(True)
                reader = self._local.reader = ReadOnlyConnection(self.path, self.wrap)
                self._readers.add(reader)
        return reader

    def _settled(self, work: Callable[[], R]) -> R:
        """Return what is read of a file that nobody writes to meanwhile; else it is read with locks."""
        while True:
            reader = self._reader()
            try:
                found = work()
            except StorageError:
                if reader.is_current():
                    raise
                continue
            if reader.is_current():
                return found

    def get(self, id: str, lazy: bool) -> Datum | None:
        """Return the live version of a record."""
        return self._settled(lambda: super(ReadOnlyShared, self).get(id, lazy))

    def get_many(self, ids: Sequence[str]) -> list[Datum | None] | None:
        """Return the live versions of some records, read by one statement; None if that does not do."""
        return self._settled(lambda: super(ReadOnlyShared, self).get_many(ids))

    def read(self, work: Callable[[Reading], R]) -> R:
        """Run reads that all see one moment."""
        return self._settled(lambda: super(ReadOnlyShared, self).read(work))

    def close(self) -> None:
        """Stop the threads and close every connection."""
        self.pool.shutdown(wait=True)
        self._close_readers()

    def _writer_locks(self) -> list[threading.Lock]:
        return []

    def _writer_connections(self) -> list[Any]:
        return []


class ReadOnlyOpening(Opening):
    """Opens a file for reading, on another thread."""

    def _share(self) -> Shared:
        path, _, wrap, _ = self._asked
        return ReadOnlyShared(path, wrap)
