"""Open SQLite connections, wait for other processes, and translate driver errors."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import apsw

from dgent import clock
from dgent.errors import (
    Busy,
    Closed,
    Conflict,
    Corrupt,
    DgentError,
    InputError,
    NoBackendAvailable,
    StorageError,
    StorageFull,
    Unavailable,
    Unsupported,
)
from dgent.system import files

WAIT_S = 30.0
FLOOR = (3, 51, 3)  # with older ones, several writers at once have damaged a file
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WRITES = (apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_SHMSIZE)
_WRITE_LOCK_BYTE = 120  # where SQLite's WAL index keeps the writer's lock
# SQLite allocates the file of its WAL index by one byte for each 4 KiB. Where blocks are smaller, the rest of
# them is allocated when it is first used; on a full disk that ends the process.
SAFE_BLOCK = 4096
INDEX_PART = 32768  # by so much it grows, for 4,096 pages of the log each
INDEX_PARTS = 8  # more than the log has before it is checkpointed
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE of Linux


holds_file: ContextVar[Callable[[str], bool] | None] = ContextVar("dgent_holds_file", default=None)
"""Returns whether an open transaction of this task, on the caller's own tables, holds a file."""


def check_library() -> None:
    """Refuse a SQLite build that can damage a store; apsw may be built with another than its own."""
    found = apsw.sqlite_lib_version()
    if tuple(int(part) for part in found.split(".")[:3]) < FLOOR:
        wanted = ".".join(map(str, FLOOR))
        raise Unsupported(
            f"SQLite {found} can damage a store that several processes write to; {wanted} is the oldest that"
            " is used",
            hint=f"pip install --upgrade 'apsw>={wanted}'",
        )


def connect(path: str, durability: str, *, wait: bool) -> apsw.Connection:
    """Return a connection to the store's file; with `wait` it lets other processes finish, up to 30 s."""
    check_library()
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_NOMUTEX
    _check_index_room(path)
    files.make_file(path)
    connection = apsw.Connection(path, flags=flags, statementcachesize=128)
    return set_up(connection, durability, wait=wait)


def set_up(connection: apsw.Connection, durability: str, *, wait: bool) -> apsw.Connection:
    """Return a connection with the settings of a store; it is closed if they cannot be made."""
    try:
        connection.set_busy_handler(Patience() if wait else None)
        # Plans that do not depend on the bound values: without this, statements are prepared anew
        # whenever values are bound, because apsw's SQLite can look at the statistics of values.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA mmap_size = 0")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -16384")
        level = "FULL" if durability == "full" else "NORMAL"
        connection.execute(f"PRAGMA synchronous = {level}")
        # Checkpoints are made by the writer thread, so that no commit has to wait for one.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def use_wal(connection: apsw.Connection, place: str) -> None:
    """Turn on write-ahead logging, which lets readers and the writer work at once."""
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
    if mode != "wal":
        raise NoBackendAvailable(
            f"{place} is on a file system that cannot share memory between processes",
            hint="put the store on a local disk",
        )


def _check_index_room(path: str) -> None:
    """Raise StorageFull where the WAL index has no blocks yet and would get none; see `reserve_index`."""
    if not _has_small_blocks(path):
        return
    allocated = 0
    with suppress(OSError):
        allocated = os.stat(path + "-shm").st_blocks * 512
    found = os.statvfs(os.path.dirname(os.path.abspath(path)))
    if allocated < INDEX_PART and found.f_bavail * found.f_frsize < 2 * INDEX_PART:
        raise StorageFull(f"no space left for {path}-shm")


def reserve_index(path: str) -> None:
    """Allocate the blocks of the WAL index on a disk with small blocks.

    There SQLite makes the file with holes, and using a hole on a full disk ends the process with SIGBUS.
    It is done by SQLite's own descriptor: opening and closing the file would release its locks.
    """
    if not _has_small_blocks(path) or (handle := _descriptor_of(path + "-shm")) is None:
        return
    import ctypes  # rarely needed, and slow to load

    # Not `os.posix_fallocate`: where the file system has no such call, that writes to the file.
    reserve: Any = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if reserve is None:
        return
    for parts in (INDEX_PARTS, 1):
        if reserve(handle, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(parts * INDEX_PART)) == 0:
            return
    if ctypes.get_errno() in _FULL:
        raise StorageFull(f"no space left for {path}-shm")


def _has_small_blocks(path: str) -> bool:
    try:
        return os.statvfs(os.path.dirname(os.path.abspath(path))).f_frsize < SAFE_BLOCK
    except (OSError, AttributeError):
        return False


def _descriptor_of(path: str) -> int | None:
    """Return an open descriptor of a file in this process; None where the system does not say."""
    try:
        wanted = os.stat(path)
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # closed meanwhile
                found = os.fstat(int(name))
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return int(name)
    except OSError:
        pass
    return None


class Patience:
    """A busy handler: short random pauses, so that no process starves, and 30 s in all.

    `since` is the start of the wait, where that was before SQLite was first asked; `none` is for callers
    that may not wait at all. `is_over` says when nobody wants the outcome any more.
    """

    def __init__(self) -> None:
        self.none = False
        self.looks = -1  # at the time that a brief statement takes, which waits for nobody; -1: it is none
        self.is_over: Callable[[], bool] | None = None
        self.since: float | None = None
        self._began = 0.0

    def __call__(self, attempts: int) -> bool:
        if self.none or self.looks >= 0:
            return False
        now = time.monotonic()
        if attempts == 0:
            self._began = now if self.since is None else self.since
        if now - self._began > WAIT_S or (self.is_over is not None and self.is_over()):
            return False
        time.sleep(clock.jitter(0.0002, 0.002))
        return True


def lock_holder(path: str) -> int | None:
    """Return the pid of the process that holds the store's write lock, where the system reports it."""
    for lock in files.locks_on(path + "-shm"):
        past = lock.last is not None and lock.last < _WRITE_LOCK_BYTE
        if lock.mode == "WRITE" and lock.first <= _WRITE_LOCK_BYTE and not past:
            return lock.pid
    return None


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Translate each driver error into one of dgent's, with a hint."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as error:
        raise translate(error, place) from error


def translate(error: apsw.Error | UnicodeDecodeError, place: str, number: int = 0) -> DgentError:
    """Return dgent's error for a driver error; `number` is the system's errno for the file, where known."""
    text = f"{place}: {error}"
    if isinstance(error, UnicodeDecodeError):
        return Corrupt(f"{place} holds a text that is damaged: {error}")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        pid = lock_holder(place)
        who = f"process {pid}" if pid else "another process"
        return Busy(f"{place} was locked by {who} for more than {WAIT_S:.0f} s", pid=pid)
    if isinstance(error, apsw.FullError):
        return StorageFull(f"no space left for {place}")
    if isinstance(error, apsw.CantOpenError | apsw.PermissionsError | apsw.AuthError):
        return NoBackendAvailable(
            f"cannot open {text}", hint="does the folder exist, and may you write there?"
        )
    if isinstance(error, apsw.ReadOnlyError):
        return Unavailable(f"{place} can only be read", hint="check its permissions")
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return Corrupt(text)
    if isinstance(error, apsw.IOError):
        # A quota that is used up, and no room for the index of the log, are not called "full" by SQLite.
        if getattr(error, "extendedresult", 0) in _WRITES and (number in _FULL or files.is_full(place)):
            return StorageFull(f"no space left for {place}")
        reason = f"{error}, {os.strerror(number)}" if number else str(error)
        return Unavailable(f"the disk failed: {place}: {reason}")
    if isinstance(error, apsw.ConnectionClosedError | apsw.ForkingViolationError):
        return Closed(f"{place} was closed")
    if isinstance(error, apsw.ConstraintError) and "FOREIGN KEY" in text:  # only tables of callers have some
        return Conflict(str(error), hint="the row that it refers to is not there, or is still referred to")
    if isinstance(error, apsw.TooBigError):
        return InputError("the record is too large")
    return StorageError(text)


def close_inherited(connection: apsw.Connection) -> None:
    """Close a connection in a forked child, without checkpointing the log of the parent, who goes on."""
    with suppress(apsw.ConnectionClosedError):  # closed before the fork, and not yet thrown away
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close(True)
