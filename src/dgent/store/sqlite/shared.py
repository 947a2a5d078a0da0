"""One file, one writer in this process: the state that all handles on a file share, also across fork.

SQLite keeps one table of file locks per process. Fork copies the table without the locks, so a
child that opened the file on top of that copy would write without holding any. Therefore a fork
waits until no thread is inside SQLite, and the child first closes what it inherited, which leaves
the parent's locks and log alone. Where a thread does not pause in time, the child may not open
that file at all.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol, TypeAlias, TypeVar
from weakref import WeakSet

import apsw

from dgent import clock
from dgent.errors import Closed, DgentError, NoBackendAvailable
from dgent.model.datum import Datum
from dgent.store.engine import read
from dgent.store.engine.kernel import Reading, Wrap
from dgent.store.sqlite import connection as waiting
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.connection import connect, reserve_index, translate, translate_errors, use_wal
from dgent.store.sqlite.damage import explain
from dgent.store.sqlite.kernel import SQLiteKernel
from dgent.store.sqlite.reading import AT_ONCE, SQLiteReading
from dgent.store.sqlite.writer import Transactions, WriterThread

R = TypeVar("R")
Make: TypeAlias = Callable[[apsw.Connection], Transactions]
"""Makes the transactions over a connection. Equal ones make the same, so that handles can share it."""

READERS = 4
SCRUB_S = 5.0
PAUSE_S = 1.0  # how long a fork waits for reads and commits under way


class ReaderConnection:
    """One thread's connection; its lock is held while a statement runs."""

    def __init__(self, path: str, durability: str, wrap: Wrap) -> None:
        self.lock = threading.Lock()
        # An event loop must not wait: what is busy there is read again on another thread.
        self.own = SQLiteReading(connect(path, durability, wait=not _on_a_loop()))
        self.reading: Reading = wrap(self.own)


class Shared:
    """The writer of a file, and a reading connection for each thread that reads it."""

    def __init__(self, path: str, durability: str, wrap: Wrap, make: Make = SQLiteKernel) -> None:
        self.path, self.durability, self.wrap = path, durability, wrap
        self.handles = 0
        self.inherited = False  # opened by the process that this one was forked from
        self.key: _Key | None = None
        storage.refuse_foreign(path)
        with translate_errors(path):
            self.writer = WriterThread(path, durability, _prepare, wrap, make)
        self.epoch = self.writer.epoch
        self.pool = ThreadPoolExecutor(READERS, thread_name_prefix="dgent-reader")
        self._local = threading.local()
        self._lock = threading.Lock()
        # Held by the threads alone: when one ends, its connection is closed.
        self._readers: WeakSet[ReaderConnection] = WeakSet()
        self._paused: list[threading.Lock] = []
        _every.add(self)

    # -- reading --------------------------------------------------------------------------

    def _reader(self) -> ReaderConnection:
        """Return this thread's connection and the reads on it."""
        reader: ReaderConnection | None = getattr(self._local, "reader", None)
        if reader is None:
            with self._lock, translate_errors(self.path):
                reader = self._local.reader = ReaderConnection(self.path, self.durability, self.wrap)
                kernel = self.writer.kernel
                if isinstance(kernel, SQLiteKernel):  # the cache of a journal may have other rows in a place
                    reader.own.recent = kernel.recent
                self._readers.add(reader)
        return reader

    def get(self, id: str, lazy: bool) -> Datum | None:
        """Return the live version of a record."""
        reader = self._reader()
        with reader.lock:
            try:
                if lazy:
                    return read.get_lazily(reader.reading, id)
                return read.get(reader.reading, id, None)
            except (apsw.Error, UnicodeDecodeError) as error:
                raise translate(error, self.path) from error
            except Exception:
                # Two statements are two moments: a name may have been forgotten between them. If it is
                # something else, the same shows again below.
                pass
        return self.read(lambda reading: read.get(reading, id, None))

    def get_many(self, ids: Sequence[str]) -> list[Datum | None] | None:
        """Return the live versions of some records, read by one statement; None if that does not do.

        A name that was forgotten after it, or a damaged record, must be read in a transaction.
        """
        reader = self._reader()
        if len(ids) > AT_ONCE:
            return None
        with reader.lock:
            try:
                found = read.look_up_all(reader.reading, ids, None)
            except (apsw.Error, UnicodeDecodeError) as error:
                raise translate(error, self.path) from error
            except Exception:
                return None
        return None if any(each is not None and each.problem is not None for each in found) else found

    def read(self, work: Callable[[Reading], R]) -> R:
        """Run reads that all see one moment."""
        reader = self._reader()
        own = reader.own
        with reader.lock:
            try:
                own.begin_read()
                try:
                    return work(reader.reading)
                finally:
                    own.end_read()
            except (apsw.Error, UnicodeDecodeError) as error:
                raise translate(error, self.path) from error
            except DgentError:
                raise
            except Exception as error:
                raise explain(error, self.path) from error

    def scrub(self) -> bool:
        """Leave forgotten bytes in no file; False when readers or writers prevented it for five seconds."""
        until = time.monotonic() + SCRUB_S
        while not self.writer.scrub():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def close(self) -> None:
        """Stop the threads and close every connection."""
        self.pool.shutdown(wait=True)
        self._close_readers()
        self.writer.close()

    def _close_readers(self) -> None:
        with self._lock:
            for reader in list(self._readers):
                with reader.lock:
                    reader.own.connection.close(True)

    def _writer_locks(self) -> list[threading.Lock]:
        return self.writer.locks()

    def _writer_connections(self) -> list[apsw.Connection]:
        return self.writer.connections()

    # -- fork -----------------------------------------------------------------------------

    def pause(self, until: float) -> bool:
        """Keep every thread out of SQLite; False when one does not leave it in time."""
        if not self._pause(self._lock, until):
            return False
        inside = [*(reader.lock for reader in self._readers), *self._writer_locks()]
        return all(self._pause(lock, until) for lock in inside)

    def _pause(self, lock: threading.Lock, until: float) -> bool:
        held = lock.acquire(timeout=max(0.0, until - time.monotonic()))
        if held:
            self._paused.append(lock)
        return held

    def resume(self) -> None:
        """Let the threads go on."""
        while self._paused:
            self._paused.pop().release()

    def close_inherited(self) -> None:
        """Close inherited connections in a forked child, without checkpointing the parent's log."""
        for connection in (*(reader.own.connection for reader in self._readers), *self._writer_connections()):
            waiting.close_inherited(connection)


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _prepare(connection: apsw.Connection, path: str) -> bytes:
    """Prepare a file for use; tried again while other processes are doing the same.

    Turning on the log needs exclusive access, and SQLite gives up on that without asking the busy
    handler when it sees that waiting could end in a deadlock.
    """
    until = time.monotonic() + waiting.WAIT_S
    while True:
        try:
            return _try_prepare(connection, path)
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(clock.jitter(0.001, 0.01))


def _try_prepare(connection: apsw.Connection, path: str) -> bytes:
    storage.check_current(connection, path)  # before anything of the file changes
    use_wal(connection, path)
    reserve_index(path)
    storage.prepare(connection, path)
    return storage.check_meta(connection, path)


# -- opening and closing ------------------------------------------------------------------

_Key = tuple[int, int, str, Wrap, Make]
_open: dict[_Key, Shared] = {}
_every: WeakSet[Forkable] = WeakSet()
_beginning: set[str] = set()  # paths that are being opened, which may take as long as someone holds a lock
_lock = threading.Lock()


def share(path: str, durability: str, wrap: Wrap, make: Make = SQLiteKernel) -> Shared:
    """Return the one `Shared` of a file in this process, opened if it is not yet."""
    with _lock:
        refuse_unsafe(path)
        key = _key(path, durability, wrap, make)
        shared = None if key is None else _open.get(key)
        if shared is None:
            if not os.path.isdir(os.path.dirname(path)):
                raise NoBackendAvailable(
                    f"the folder of {path} does not exist", hint="make the folder, or correct the path"
                )
            _beginning.add(path)
            try:
                shared = Shared(path, durability, wrap, make)
            finally:
                _beginning.discard(path)
            shared.key = _key(path, durability, wrap, make)
            if shared.key is None:
                shared.close()
                raise NoBackendAvailable(f"{path} was moved while it was being opened")
            _open[shared.key] = shared
        shared.handles += 1
        return shared


def release(shared: Shared) -> None:
    """Release one handle; the last one closes."""
    with _lock:
        shared.handles -= 1
        if shared.handles or shared.inherited:
            return
        if shared.key is not None and _open.get(shared.key) is shared:
            del _open[shared.key]
        shared.close()


def _release_quietly(shared: Shared) -> None:
    """Release a store that nobody waits for any more, and that nothing was written through."""
    with suppress(DgentError):
        release(shared)


class Opening:
    """An open that runs on another thread; if its caller is gone by the end of it, it is closed again."""

    def __init__(self, path: str, durability: str, wrap: Wrap, make: Make = SQLiteKernel) -> None:
        self._asked = path, durability, wrap, make
        self._lock = threading.Lock()
        self._shared: Shared | None = None
        self._disowned = False

    def run(self) -> Shared:
        """Open the store; runs on the thread for it."""
        shared = self._share()
        with self._lock:
            self._shared = shared
            disowned = self._disowned
        if disowned:
            _release_quietly(shared)
        return shared

    def _share(self) -> Shared:
        return share(*self._asked)

    def disown(self) -> None:
        """Stop waiting for the open; the close that follows may take a while, so it has a thread too."""
        with self._lock:
            self._disowned = True
            shared = self._shared
        if shared is not None:
            threading.Thread(target=_release_quietly, args=(shared,), name="dgent-close").start()


def _key(path: str, durability: str, wrap: Wrap, make: Make) -> _Key | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, durability, wrap, make


# -- fork ---------------------------------------------------------------------------------


class Forkable(Protocol):
    """Connections to a file that a fork must not find at work, as `Shared` explains for its own."""

    path: str
    inherited: bool

    def pause(self, until: float) -> bool: ...
    def resume(self) -> None: ...
    def close_inherited(self) -> None: ...


def refuse_unsafe(path: str) -> None:
    """Raise Closed for a file that a thread was using while this process was forked."""
    with suppress(FileNotFoundError):
        found = os.stat(path)
        if (found.st_dev, found.st_ino) in _unsafe:
            raise Closed(
                f"{path} was in use when this process was forked",
                hint="open it after the fork only, or start processes by spawn",
            )


def watch_forks(connections: Forkable) -> None:
    """Pause these connections while this process is forked, and close them in the child."""
    with _lock:
        _every.add(connections)


_unsafe: set[tuple[int, int]] = set()  # files that were in use while this process was forked
_inherited: list[Forkable] = []  # never closed: a thread of the parent was in the middle of something


class _Fork(threading.local):
    """The stores that the fork under way on this thread has paused."""

    def __init__(self) -> None:
        self.paused: list[Forkable] = []
        self.lock: threading.Lock | None = None


_fork = _Fork()


def _before_fork() -> None:
    until = time.monotonic() + PAUSE_S
    _fork.paused = []
    _fork.lock = _lock if _lock.acquire(timeout=PAUSE_S) else None
    if _fork.lock is not None:
        _fork.paused = [shared for shared in list(_every) if shared.pause(until)]


def _after_fork_in_parent() -> None:
    if _fork.lock is not None:
        for shared in list(_every):
            shared.resume()
        _fork.lock.release()
    _fork.paused, _fork.lock = [], None


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    unsafe = set(_beginning)
    for shared in list(_every):
        shared.inherited = True
        if shared in _fork.paused:
            shared.close_inherited()
        else:
            unsafe.add(shared.path)
            _inherited.append(shared)
    for path in unsafe:
        with suppress(FileNotFoundError):
            found = os.stat(path)
            _unsafe.add((found.st_dev, found.st_ino))
    _open.clear()
    _every.clear()
    _beginning.clear()
    _fork.paused, _fork.lock = [], None


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
