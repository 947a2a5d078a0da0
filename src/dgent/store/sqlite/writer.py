"""The one writer of a store in this process: a thread that commits everything waiting at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import apsw

from dgent.errors import Closed, DgentError, OutcomeUnknown
from dgent.store.backend import View
from dgent.store.kernel import Wrap
from dgent.store.ledger import Ledger, Prepared
from dgent.store.sqlite.checkpoint import Checkpointer, fold
from dgent.store.sqlite.connection import Patience, connect, translate
from dgent.store.sqlite.kernel import SQLiteKernel

GROUP_COMMITS = 256
GROUP_BYTES = 1 << 20
LOOP_BUDGET_S = 0.001  # commits that lately took longer than this do not run on an event loop


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

    def __init__(
        self, path: str, durability: str, prepare: Callable[[apsw.Connection, str], bytes], wrap: Wrap
    ) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.connection = connect(path, durability, wait=True)
        try:
            self.epoch = prepare(self.connection, path)
        except BaseException:
            self.connection.close()
            raise
        self.kernel = SQLiteKernel(self.connection)
        self.ledger = Ledger(wrap(self.kernel))
        self.pace_s = LOOP_BUDGET_S  # how long commits take lately
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._closed = False
        self._checkpointer = Checkpointer(lambda: connect(path, durability, wait=False), self.lock)
        self.connection.set_wal_hook(self._grown)
        self._thread = threading.Thread(target=self._run, name="dgent-writer", daemon=True)
        self._thread.start()

    def _grown(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._checkpointer.grown(pages)
        return 0

    # -- called from other threads --------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Queue a job; it is answered after its transaction is durable."""
        if self._closed:
            raise Closed(f"{self.path} is closed")
        self._jobs.put(job)

    def try_now(self, jobs: Sequence[Job]) -> bool:
        """Run jobs on this thread if nobody else is writing; False to leave them to the thread.

        Never waits: not for another thread, not for another process. Whatever fails here is undone
        and left to the thread too, which finds out whose fault it is.
        """
        if self._closed or not self._jobs.empty() or not self.lock.acquire(blocking=False):
            return False
        try:
            self.connection.set_busy_handler(None)
            try:
                self._group(jobs)
            except Exception:
                return False
            finally:
                self.connection.set_busy_handler(Patience())
        finally:
            self.lock.release()
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
            group, item = self._gather(item)
            if group:
                with self.lock:
                    self._run_group(group)
                _deliver(group)
            if item is _NOTHING:
                item = self._jobs.get()
        self._finish()

    def _gather(self, first: Job) -> tuple[list[Job], Any]:
        """Everything that waits, up to the size of a group; None after it when the end was reached."""
        group: list[Job] = []
        size = 0
        item: Any = first
        while True:
            if not item.dropped():
                group.append(item)
                size += item.size
            if len(group) >= GROUP_COMMITS or size >= GROUP_BYTES:
                return group, _NOTHING
            try:
                item = self._jobs.get_nowait()
            except queue.Empty:
                return group, _NOTHING
            if item is None:
                return group, None

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
        started = perf_counter()
        kernel.begin()
        try:
            for job in jobs:
                self._do(job)
            kernel.commit()
        except BaseException as error:
            self._undo(error)
            raise
        self.pace_s += (perf_counter() - started - self.pace_s) / 8

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

    # -- the end --------------------------------------------------------------------------

    def truncate(self) -> bool:
        """Empty the log; False when a reader still needs it. Waits for no one."""
        with self.lock:
            self.connection.set_busy_handler(None)
            try:
                return fold(self.connection, truncate=True)
            finally:
                self.connection.set_busy_handler(Patience())

    def _finish(self) -> None:
        with self.lock:
            while not self._jobs.empty():
                left = self._jobs.get()
                if isinstance(left, Job):
                    left.error = Closed(f"{self.path} was closed")
                    _deliver([left])
        self._checkpointer.stop()
        try:
            self.truncate()
        finally:
            self.connection.close()


_NOTHING = object()


def _deliver(group: Sequence[Job]) -> None:
    """Give answers, one call for each receiver: waking a loop is what costs."""
    by_receiver: dict[int, list[Job]] = {}
    for job in group:
        by_receiver.setdefault(id(job.deliver), []).append(job)
    for jobs in by_receiver.values():
        jobs[0].deliver(jobs)
