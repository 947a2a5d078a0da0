"""The one writer of a store in this process: a thread that commits everything waiting at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from dgent.errors import Closed, DgentError, OutcomeUnknown
from dgent.store.backend import View
from dgent.store.ledger import Ledger, Prepared
from dgent.store.sqlite.connection import Patience, connect, translate
from dgent.store.sqlite.kernel import SQLiteKernel

GROUP_COMMITS = 256
GROUP_BYTES = 1 << 20
CHECKPOINT_PAGES = 1000  # a passive checkpoint when idle
FORCED_PAGES = 8000  # one even when busy
TRUNCATE_BYTES = 64 << 20


class Job:
    """Something to do in a write transaction, and where the answer goes.

    `deliver` is called on the writer's thread, after the transaction is durable or has failed.
    """

    __slots__ = ("deliver", "dropped", "error", "prepared", "receiver", "result", "view", "work")

    def __init__(
        self,
        deliver: Callable[[Sequence[Job]], None],
        prepared: Prepared | None = None,
        view: View | None = None,
        work: Callable[[Ledger], Any] | None = None,
    ) -> None:
        self.deliver = deliver
        self.prepared, self.view, self.work = prepared, view, work
        self.dropped: Callable[[], bool] = _kept
        self.receiver: Any = None
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def size(self) -> int:
        """How much this adds to a group."""
        return GROUP_BYTES if self.prepared is None else self.prepared.size


def _kept() -> bool:
    return False


class Writer:
    """Owns the writing connection; used by its thread, or on the loop under `lock`."""

    def __init__(self, path: str, durability: str, prepare: Callable[[apsw.Connection, str], bytes]) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.connection = connect(path, durability, wait=True)
        try:
            self.epoch = prepare(self.connection, path)
        except BaseException:
            self.connection.close()
            raise
        self.kernel = SQLiteKernel(self.connection)
        self.ledger = Ledger(self.kernel)
        self.newest = 0
        self._pages = 0
        self._jobs: queue.SimpleQueue[Job | str | None] = queue.SimpleQueue()
        self._closed = False
        self.connection.set_wal_hook(self._count_pages)
        self._thread = threading.Thread(target=self._run, name="dgent-writer", daemon=True)
        self._thread.start()

    def _count_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._pages = pages
        return 0

    # -- called from other threads --------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Queue a job; it is answered after its transaction is durable."""
        if self._closed:
            raise Closed(f"{self.path} is closed")
        self._jobs.put(job)

    def try_now(self, jobs: Sequence[Job]) -> bool:
        """Run jobs on this thread if nobody else is writing; False to leave them to the thread."""
        if self._closed or not self.lock.acquire(blocking=False):
            return False
        try:
            self.connection.set_busy_handler(None)
            try:
                self._group(jobs)
            except apsw.BusyError:
                return False
            finally:
                self.connection.set_busy_handler(Patience())
        finally:
            self.lock.release()
        if self._pages >= CHECKPOINT_PAGES:
            self._jobs.put("checkpoint")
        return True

    def close(self) -> None:
        """Finish what is queued, checkpoint, and let go of the file."""
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        self._thread.join()

    # -- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        item = self._jobs.get()
        while item is not None:
            if isinstance(item, str):
                self._checkpoint("PASSIVE")
                item = self._next()
                continue
            group, item = self._gather(item)
            if group:
                with self.lock:
                    self._run_group(group)
                _deliver(group)
            if self._pages >= FORCED_PAGES:
                self._checkpoint("PASSIVE")
            if item is _IDLE:
                item = self._next()
        self._finish()

    def _next(self) -> Job | str | None:
        """The next item; a long log is folded into the file while there is nothing else to do."""
        if self._pages >= CHECKPOINT_PAGES and self._jobs.empty():
            self._checkpoint("PASSIVE")
        return self._jobs.get()

    def _gather(self, first: Job) -> tuple[list[Job], Any]:
        """Everything that waits, up to the size of a group; then the item that did not fit."""
        group: list[Job] = []
        size = 0
        item: Any = first
        while True:
            if not item.dropped():
                group.append(item)
                size += item.size
            if len(group) >= GROUP_COMMITS or size >= GROUP_BYTES:
                return group, _IDLE
            try:
                item = self._jobs.get_nowait()
            except queue.Empty:
                return group, _IDLE
            if item is None or isinstance(item, str):
                return group, item

    def _run_group(self, group: Sequence[Job]) -> None:
        try:
            self._group(group)
        except BaseException as error:
            if len(group) == 1:
                group[0].error = self._translated(error)
                return
            # One bad commit must not fail its neighbours, so each runs again by itself.
            for job in group:
                self._run_group([job])

    def _group(self, jobs: Sequence[Job]) -> None:
        """Run jobs in one transaction; a refused one fails alone, any other error undoes all."""
        kernel = self.kernel
        kernel.begin()
        try:
            for job in jobs:
                self._do(job)
            kernel.commit()
        except BaseException as error:
            self._undo(error)
            raise
        self.newest = kernel.tip.seq

    def _do(self, job: Job) -> None:
        job.error = None
        try:
            if job.prepared is not None:
                assert job.view is not None
                job.result = self.ledger.commit(job.prepared, job.view)
            else:
                assert job.work is not None
                job.result = job.work(self.ledger)
        except DgentError as error:
            # Raised by a check, and all checks come before the first write.
            job.error = error

    def _undo(self, error: BaseException) -> None:
        committing = self.connection.get_autocommit()
        try:
            self.kernel.rollback()
        except apsw.Error:
            if not committing:
                raise OutcomeUnknown(f"{self.path}: {error}") from error

    def _translated(self, error: BaseException) -> BaseException:
        return translate(error, self.path) if isinstance(error, apsw.Error) else error

    # -- checkpoints ----------------------------------------------------------------------

    def _checkpoint(self, mode: str) -> bool:
        """Fold the log into the file; readers may prevent part of it, which is fine."""
        with self.lock:
            return self.checkpoint(mode)

    def checkpoint(self, mode: str) -> bool:
        """Fold the log into the file; True when nothing is left in it. The caller holds `lock`."""
        code = apsw.SQLITE_CHECKPOINT_TRUNCATE if mode == "TRUNCATE" else apsw.SQLITE_CHECKPOINT_PASSIVE
        try:
            pages, moved = self.connection.wal_checkpoint(mode=code)
        except apsw.Error:
            return False
        self._pages = max(0, pages - moved)
        return self._pages == 0

    def _finish(self) -> None:
        with self.lock:
            while not self._jobs.empty():
                left = self._jobs.get()
                if isinstance(left, Job):
                    left.error = Closed(f"{self.path} was closed")
                    _deliver([left])
            self.connection.set_busy_handler(None)
            self.checkpoint("TRUNCATE")
            self.connection.close()


_IDLE = object()


def _deliver(group: Sequence[Job]) -> None:
    """Give answers, one call for each receiver: waking a loop is what costs."""
    by_receiver: dict[int, list[Job]] = {}
    for job in group:
        by_receiver.setdefault(id(job.deliver), []).append(job)
    for jobs in by_receiver.values():
        jobs[0].deliver(jobs)
