"""The SQLite engine: one file, any number of processes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import apsw

from dgent.errors import Closed, InputError, NoBackendAvailable
from dgent.model.datum import Datum
from dgent.store import select
from dgent.store.backend import Committed, View
from dgent.store.embedded import EmbeddedBackend, wait_by_polling
from dgent.store.kernel import Reading, Wrap, unwrapped
from dgent.store.ledger import Ledger, Prepared
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.connection import connect, translate, translated, use_wal
from dgent.store.sqlite.kernel import SQLiteReading
from dgent.store.sqlite.writer import LOOP_BUDGET_S, Job, Writer

R = TypeVar("R")

READERS = 4
POLL_S = 0.025  # how soon a commit of another process is noticed by `wait`
LOOP_BYTES = 1 << 18  # larger commits go to the writer thread
DURABILITIES = ("full", "relaxed")


class SQLiteBackend(EmbeddedBackend):
    """Keeps everything in one SQLite file in WAL mode.

    `durability="full"` (the default): a commit is on disk before its call returns. `"relaxed"`: a
    power cut may lose the last moments' commits, never part of one; a killed process loses nothing.
    """

    name = "sqlite"
    priority = 50

    def __init__(self, path: str, durability: str = "full", wrap: Wrap = unwrapped) -> None:
        if durability not in DURABILITIES:
            raise InputError(
                f"durability is {durability!r}; it is one of {', '.join(DURABILITIES)}", field="durability"
            )
        self.path = os.path.abspath(path)
        self.durability = durability
        self._wrap = wrap
        self.epoch = b""
        self._shared: _Shared | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[Job] = []
        self._deliver = self._answer  # one bound method, so that a group is answered at once

    # -- lifecycle ------------------------------------------------------------------------

    async def is_available(self) -> bool:
        """Whether the file, or its folder if there is none yet, can be written."""
        target = self.path if os.path.exists(self.path) else os.path.dirname(self.path)
        return os.path.isdir(os.path.dirname(self.path)) and os.access(target, os.R_OK | os.W_OK)

    async def open(self) -> None:
        """Open or create the file."""
        self._loop = asyncio.get_running_loop()
        self._shared = await self._loop.run_in_executor(None, _share, self.path, self.durability, self._wrap)
        self.epoch = self._shared.epoch

    async def close(self) -> None:
        """Finish what is queued and let go; the last handle folds the log into the file."""
        shared, self._shared = self._shared, None
        if shared is not None and self._loop is not None and shared.process == _process:
            await self._loop.run_in_executor(None, _release, shared)

    def _opened(self) -> _Shared:
        shared = self._shared
        if shared is None:
            raise Closed(f"{self.path} is not open")
        if shared.process != _process:
            raise Closed(f"{self.path} was opened before fork", hint="open it again in the child process")
        return shared

    # -- reads ----------------------------------------------------------------------------

    def get_now(self, id: str) -> Datum | None:
        """The live version, read on this thread without an event loop."""
        _, reading = self._opened().reader()
        try:
            return select.get(reading, id, None)
        except apsw.Error as error:
            raise translate(error, self.path) from error

    def _read_now(self, work: Callable[[Reading], R]) -> R:
        return self._opened().read(work)

    async def _read(self, work: Callable[[Reading], R]) -> R:
        shared = self._opened()
        assert self._loop is not None
        return await self._loop.run_in_executor(shared.pool, shared.read, work)

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or when time is up."""

        def newest() -> int:
            return self._read_now(lambda reading: reading.newest()[0])

        return await wait_by_polling(newest, since, timeout_s, POLL_S)

    # -- writes ---------------------------------------------------------------------------

    async def _commit(self, prepared: Prepared, view: View) -> Committed:
        result = await self._soon(Job(self._deliver, prepared, view))
        assert isinstance(result, Committed)
        return result

    async def _write(self, work: Callable[[Ledger], R]) -> R:
        result: R = await self._queued(Job(self._deliver, work=work))
        return result

    async def _queued(self, job: Job) -> Any:
        """Have the writer thread do a job; cancelled before it starts, it never happens."""
        shared = self._opened()
        assert self._loop is not None
        future = self._loop.create_future()
        job.receiver = future
        job.dropped = future.cancelled
        shared.writer.submit(job)
        return await future

    async def _soon(self, job: Job) -> Any:
        """Do a job at the end of this tick, together with all others of the tick."""
        self._opened()
        assert self._loop is not None
        future = self._loop.create_future()
        job.receiver = future
        job.dropped = future.cancelled
        self._waiting.append(job)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._flush)
        return await future

    def _flush(self) -> None:
        jobs = [job for job in self._waiting if not job.dropped()]
        self._waiting = []
        shared = self._shared
        writer = None if shared is None else shared.writer
        if jobs and writer is not None and self._fits_the_loop(jobs, writer) and writer.try_now(jobs):
            _settle(jobs)
            return
        for job in jobs:
            try:
                self._opened().writer.submit(job)
            except Closed as error:
                job.error = error
                _settle([job])

    def _fits_the_loop(self, jobs: Sequence[Job], writer: Writer) -> bool:
        """Whether a commit here would be over sooner than a thread could be woken and answer.

        A hop to the writer thread and back costs more than a quick disk needs for a durable commit.
        When several wait, or the disk is slow, the loop has better things to do than to wait.
        """
        if sum(job.size for job in jobs) > LOOP_BYTES:
            return False
        return self.durability == "relaxed" or (len(jobs) == 1 and writer.pace_s < LOOP_BUDGET_S)

    def _answer(self, jobs: Sequence[Job]) -> None:
        """Called on the writer's thread: wake the loop once for all of a group."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(_settle, jobs)
        except RuntimeError:
            # The loop is gone, and with it everyone who waited; the commits stand.
            return

    async def _erase_traces(self) -> bool:
        """Truncate the log: forgotten bytes are gone from the files only after that."""
        shared = self._opened()
        assert self._loop is not None
        return await self._loop.run_in_executor(None, shared.truncate)

    # -- what `stats` tells ---------------------------------------------------------------

    def _place(self) -> str:
        return self.path

    def _size_bytes(self) -> int:
        return sum(_size(self.path + suffix) for suffix in ("", "-wal"))

    def _details(self) -> dict[str, Any]:
        return {
            "sqlite": apsw.sqlite_lib_version(),
            "durability": self.durability,
            "wal_bytes": _size(self.path + "-wal"),
            "format": storage.FORMAT,
        }


def _settle(jobs: Sequence[Job]) -> None:
    for job in jobs:
        future = job.receiver
        if future is None or future.done():
            continue
        if job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(job.result)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# -- one real file, one writer in this process --------------------------------------------


class _Shared:
    """What all handles on one file share: the writer, and a reading connection for each thread."""

    def __init__(self, path: str, durability: str, wrap: Wrap) -> None:
        self.path, self.durability, self.wrap = path, durability, wrap
        self.process = _process
        self.handles = 0
        self.key: _Key | None = None
        with translated(path):
            self.writer = Writer(path, durability, _prepare, wrap)
        self.epoch = self.writer.epoch
        self.pool = ThreadPoolExecutor(READERS, thread_name_prefix="dgent-reader")
        self._local = threading.local()
        self._lock = threading.Lock()
        self._readers: list[apsw.Connection] = []

    def reader(self) -> tuple[apsw.Connection, Reading]:
        """This thread's connection and the reads on it."""
        reader: tuple[apsw.Connection, Reading] | None = getattr(self._local, "reader", None)
        if reader is None:
            with translated(self.path):
                connection = connect(self.path, self.durability, wait=True)
            reader = self._local.reader = (connection, self.wrap(SQLiteReading(connection)))
            with self._lock:
                self._readers.append(connection)
        return reader

    def read(self, work: Callable[[Reading], R]) -> R:
        """Run reads that all see one moment."""
        connection, reading = self.reader()
        with translated(self.path):
            connection.execute("BEGIN")
            try:
                return work(reading)
            finally:
                if not connection.get_autocommit():
                    connection.execute("COMMIT")

    def truncate(self) -> bool:
        """Empty the log; False when readers prevented it for five seconds."""
        for _ in range(100):
            if self.writer.truncate():
                return True
            time.sleep(0.05)
        return False

    def close(self) -> None:
        """Stop the threads and close every connection."""
        self.pool.shutdown(wait=True)
        with self._lock:
            for connection in self._readers:
                connection.close(True)
        self.writer.close()


_Key = tuple[int, int, str, Wrap]
_shared: dict[_Key, _Shared] = {}
_shared_lock = threading.Lock()
_process = 0  # counts forks: what was opened before one is not ours to use after it
_inherited: list[object] = []


def _prepare(connection: apsw.Connection, path: str) -> bytes:
    use_wal(connection, path)
    storage.prepare(connection, path)
    found: Any = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchall()
    return bytes(found[0][0])


def _share(path: str, durability: str, wrap: Wrap) -> _Shared:
    with _shared_lock:
        key = _key(path, durability, wrap)
        shared = None if key is None else _shared.get(key)
        if shared is None:
            if not os.path.isdir(os.path.dirname(path)):
                raise NoBackendAvailable(
                    f"the folder of {path} does not exist", hint="make the folder, or correct the path"
                )
            shared = _Shared(path, durability, wrap)
            shared.key = _key(path, durability, wrap)
            assert shared.key is not None, "the file exists once it is open"
            _shared[shared.key] = shared
        shared.handles += 1
        return shared


def _release(shared: _Shared) -> None:
    with _shared_lock:
        shared.handles -= 1
        if shared.handles:
            return
        if shared.key is not None and _shared.get(shared.key) is shared:
            del _shared[shared.key]
        shared.close()


def _key(path: str, durability: str, wrap: Wrap) -> _Key | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, durability, wrap


def _after_fork() -> None:
    global _process, _shared_lock
    _process += 1
    _shared_lock = threading.Lock()
    # Never closed here: closing would drop locks and fold a log that the parent still writes.
    _inherited.extend(_shared.values())
    _shared.clear()


os.register_at_fork(after_in_child=_after_fork)
