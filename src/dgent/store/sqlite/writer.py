"""The one writer of a store in this process: a thread that commits everything waiting at once.

A second thread checkpoints the log in the background, so that no commit has to wait for it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from copy import copy
from time import monotonic, perf_counter
from typing import Any, Protocol

import apsw

from dgent.errors import Busy, Closed, DgentError, OutcomeUnknown, VersionConflict
from dgent.store.backend import View
from dgent.store.engine.commit import Ledger, Prepared
from dgent.store.engine.fresh import FreshGroup
from dgent.store.engine.kernel import Wrap, Writing
from dgent.store.port.attached import has_reads, split_reads
from dgent.store.sqlite.authorizer import AttachedStatements
from dgent.store.sqlite.connection import Patience, connect, translate, translate_errors
from dgent.store.sqlite.damage import explain
from dgent.store.sqlite.kernel import SQLiteKernel
from dgent.system.collector import pause

GROWN_PAGES = 4000  # checkpoint after the log grew by this much
FEW_PAGES = 256  # a checkpoint of so many is short enough to keep writers waiting for it
MOST_PASSES = 6  # of a checkpoint that writers do not wait for
PATIENCE_S = 0.05  # of a checkpoint, for a writer of own tables
GROUP_COMMITS = 256
GROUP_BYTES = 1 << 20
SCRUB_IN_MEMORY = 256 << 20
LOOP_BUDGET_S = 0.001  # commits that lately took longer than this do not run on an event loop
HICCUP_S = 2 * LOOP_BUDGET_S  # one commit that took longer says nothing of the next; three in a row do


class Transactions(Protocol):
    """The transactions of a writer: those of a SQLite kernel, or of an engine that writes more files."""

    final: bool  # whether an error goes to the caller: the transaction is not tried again
    patient: bool  # whether a transaction may wait for another process to end its own

    def behind(self, wrap: Wrap) -> Writing: ...
    def begin(self) -> object: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def changes(self) -> tuple[int, int, int]: ...
    def is_move_due(self) -> bool: ...
    def close(self) -> None: ...


class WriteJob:
    """Work to do in a write transaction, and the future of its answer.

    `deliver` is called on the writer's thread, after the transaction is durable or has failed.
    """

    __slots__ = (
        *(
            "answer",
            "commits",
            "deliver",
            "error",
            "is_barrier",
            "prepared",
            "result",
            "since",
            "size",
            "view",
            "work",
        ),
    )

    def __init__(
        self,
        deliver: Callable[[Sequence[WriteJob]], None],
        answer: asyncio.Future[Any] | Future[Any] | FreshGroup,
        prepared: Prepared | None = None,
        view: View | None = None,
        work: Callable[[Ledger], Any] | None = None,
    ) -> None:
        self.deliver, self.answer = deliver, answer
        self.prepared, self.view, self.work = prepared, view, work
        self.is_barrier = prepared is None and work is None  # answered when all before it is over
        self.size = GROUP_BYTES if prepared is None else prepared.size  # the bytes that it adds to a group
        self.commits = 1  # that it makes
        self.since = monotonic()
        self.result: Any = None
        self.error: BaseException | None = None


class WriterThread:
    """Owns the writing connection; used by its thread, or on the loop under `lock`."""

    def __init__(
        self,
        path: str,
        durability: str,
        prepare: Callable[[apsw.Connection, str], bytes],
        wrap: Wrap,
        make: Callable[[apsw.Connection], Transactions] = SQLiteKernel,
    ) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.connection = connect(path, durability, wait=True)
        try:
            self.epoch = prepare(self.connection, path)
        except BaseException:
            # A refused file stays as it is, so its log is not checkpointed either.
            if os.path.exists(path + "-wal") and os.path.getsize(path + "-wal"):
                self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self.connection.close()
            raise
        self._patience = Patience()
        self.connection.set_busy_handler(self._patience)
        try:
            self.kernel = make(self.connection)
            self.ledger = Ledger(self.kernel.behind(wrap))
        except BaseException:
            self.connection.close()
            raise
        self.pace_s = LOOP_BUDGET_S  # how long commits take lately
        self._jobs: queue.SimpleQueue[Sequence[WriteJob] | None] = queue.SimpleQueue()
        self._left: deque[WriteJob] = deque()  # what the thread took over and has not begun
        self._attached: AttachedStatements | None = None  # once a commit had statements
        self._closed = False
        self._failure: BaseException | None = None  # what went wrong on the thread while nobody waited
        self._checkpointer = Checkpointer(lambda: connect(path, durability, wait=False), self.lock)
        self.connection.set_wal_hook(self._grown)
        self._thread = threading.Thread(target=self._run, name="dgent-writer", daemon=True)
        self._thread.start()

    def _grown(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._checkpointer.grown(pages)
        return 0

    def checkpoint_soon(self, other: threading.Lock) -> None:
        """Have the log checkpointed: another writer, whose lock this is, let it grow."""
        self._checkpointer.wake(other)

    # -- called from other threads --------------------------------------------------------

    def submit(self, jobs: Sequence[WriteJob]) -> None:
        """Queue jobs, all at once so that they share a group; answered after their transaction is durable."""
        if self._closed:
            raise Closed(f"{self.path} is closed")
        self._jobs.put(jobs)

    def try_now(self, jobs: Sequence[WriteJob]) -> bool:
        """Run jobs on this thread if nobody else is writing; False to leave them to the thread.

        Never waits: not for another thread, not for another process. A job that fails here is undone
        and left to the thread too, which finds out whose fault it is.
        """
        if self._closed or self._left or not self._jobs.empty() or not self.lock.acquire(blocking=False):
            return False
        if self.kernel.is_move_due():
            self.lock.release()
            return False
        try:
            self._patience.none, self.kernel.patient, self.kernel.final = True, False, False
            try:
                self._group(jobs)
            except Exception:
                return False
            finally:
                self._patience.none, self.kernel.patient, self.kernel.final = False, True, True
        finally:
            self.lock.release()
        return True

    def known_seq(self) -> int | None:
        """Return the newest seq if it is known here without a read of any record; None if it is not.

        Never waits. It is known while nobody is writing here, and nobody else has written since.
        """
        if self._closed or self._left or not self._jobs.empty() or not self.lock.acquire(blocking=False):
            return None
        try:
            self._patience.none = True
            kernel = self.kernel
            return kernel.known_seq() if isinstance(kernel, SQLiteKernel) else None
        except apsw.Error:
            return None  # whoever reads gets the reason
        finally:
            self._patience.none = False
            self.lock.release()

    def run_alone(self, work: Callable[[], None], wait_s: float) -> None:
        """Run work on this thread while nobody writes here; Busy when somebody does for too long."""
        if not self.lock.acquire(timeout=wait_s):
            raise Busy(f"{self.path} was being written for more than {wait_s:g} s")
        try:
            if self._closed:
                raise Closed(f"{self.path} is closed")
            self._patience.since = None
            with translate_errors(self.path):
                work()
        finally:
            self.lock.release()

    def close(self) -> None:
        """Finish queued jobs, checkpoint, and release the file; raises what failed meanwhile."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def locks(self) -> list[threading.Lock]:
        """Return the locks that keep every thread out of SQLite, in the order to take them."""
        return [self._checkpointer.lock, self.lock]

    def connections(self) -> list[apsw.Connection]:
        """Return every connection that is open here."""
        others = self._checkpointer.connection
        return [self.connection] if others is None else [self.connection, others]

    # -- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        """Serve until the end. No error is lost: `close` raises it."""
        for work in (self._serve, self._finish):
            try:
                work()
            except BaseException as error:
                self._closed = True
                self._failure = self._failure or _closing_error(error, self.path)

    def _serve(self) -> None:
        ended = False
        while self._left or not ended:
            ended = self._take() or ended
            group = self._next_group()
            if group:
                records = sum([0 if job.prepared is None else len(job.prepared.drafts) for job in group])
                with self.lock, pause(records):
                    self._run_group(group)
                    self._patience.is_over = None
                _deliver(group)

    def _take(self) -> bool:
        """Take the submitted jobs, waiting for some when there are none; True at the end."""
        wait = not self._left
        while True:
            try:
                jobs = self._jobs.get(block=wait)
            except queue.Empty:
                return False
            if jobs is None:
                return True
            self._left.extend(jobs)
            wait = False

    def _next_group(self) -> list[WriteJob]:
        """Return the oldest waiting jobs, up to the size of a group."""
        group: list[WriteJob] = []
        commits = size = 0
        while self._left and commits < GROUP_COMMITS and size < GROUP_BYTES:
            job = self._left.popleft()
            if job.is_barrier:
                if group:
                    self._left.appendleft(job)
                    break
                _deliver([job])
            elif not job.answer.cancelled():
                group.append(job)
                commits += job.commits
                size += job.size
        return group

    def _run_group(self, group: Sequence[WriteJob]) -> None:
        # The wait is counted from when the oldest was handed in, so waits do not add up in the queue.
        self._patience.since = group[0].since
        # A program that ends must not wait for a lock on behalf of callers who gave up.
        self._patience.is_over = lambda: all(job.answer.cancelled() for job in group)
        self.kernel.final = len(group) == 1
        try:
            self._group(group)
        except (apsw.BusyError, OutcomeUnknown) as error:
            # Every one of them has waited, or may be done: none is tried again.
            # Who holds the lock is looked up once; an error of its own for each, since each is raised apart.
            refusal = self._translate(error)
            for job in group:
                job.error = copy(refusal)
        except BaseException as error:
            if len(group) == 1:
                group[0].error = self._translate(error)
                return
            # One bad commit must not fail its neighbours, so each runs again by itself.
            for job in group:
                self._run_group([job])

    def _group(self, jobs: Sequence[WriteJob]) -> None:
        """Run jobs in one transaction; a refused one fails alone, any other error undoes all."""
        kernel = self.kernel
        started = perf_counter()
        for job in jobs:
            if self._attached is None and job.prepared is not None and job.prepared.commit.statements:
                self._attached = AttachedStatements(self.connection, self.path)
        try:
            kernel.begin()
            if len(jobs) == 1 or not self._put_together(jobs):
                for job in jobs:
                    self._do(job)
            kernel.commit()
        except BaseException as error:
            self._undo(error)
            raise
        took = min(perf_counter() - started, HICCUP_S)
        self.pace_s += (took - self.pace_s) / 8

    def _put_together(self, jobs: Sequence[WriteJob]) -> bool:
        """Run commits that only add records at once; False to run each by itself."""
        group = [
            job.prepared for job in jobs if job.prepared is not None and not job.prepared.commit.statements
        ]
        done = self.ledger.put_together(group) if len(group) == len(jobs) else None
        for job, result in zip(jobs, done or (), strict=False):
            job.result, job.error = result, None
        return done is not None

    def _do(self, job: WriteJob) -> None:
        job.error = None
        before = self.kernel.changes()
        within = not self.connection.get_autocommit()
        try:
            if job.prepared is not None:
                assert job.view is not None
                self._commit(job, job.prepared, job.view)
            else:
                assert job.work is not None
                job.result = job.work(self.ledger)
        except DgentError as error:
            if self.kernel.changes() != before or (within and self.connection.get_autocommit()):
                raise  # by a statement that wrote, or that ended the transaction of the whole group
            # Raised by a check, before the first write.
            job.error = error

    def _commit(self, job: WriteJob, prepared: Prepared, view: View) -> None:
        commit = prepared.commit
        if not commit.statements:
            job.result = self.ledger.commit(prepared, view)
            return
        assert self._attached is not None
        # Reads are compared before anything is written, so that a conflict costs the other commits of its
        # group nothing. Where a key tells that it has happened, they were compared then.
        reads, rest = split_reads(commit.statements) if commit.key is None else ((), commit.statements)
        if reads:
            self._attached.run(reads)
        try:
            job.result = self.ledger.commit(prepared, view)
        except VersionConflict:
            if has_reads(rest):
                self._attached.run(rest)  # what it expected may rest on rows that have changed: try again
            raise
        if rest and not job.result.repeated:
            self._attached.run(rest)

    def _undo(self, error: BaseException) -> None:
        committing = self.connection.get_autocommit()
        try:
            self.kernel.rollback()
        except apsw.Error:
            if not committing:
                raise OutcomeUnknown(f"{self.path}: {error}") from error

    def _translate(self, error: BaseException) -> BaseException:
        if not isinstance(error, apsw.Error | UnicodeDecodeError):
            return explain(error, self.path)
        return translate(error, self.path, self.connection.system_errno)

    # -- the end --------------------------------------------------------------------------

    def scrub(self) -> bool:
        """Write the file anew, without the free space that still holds forgotten bytes.

        Zeroing deleted rows is not enough: SQLite leaves old copies of rows in the gaps of pages
        that it rearranged earlier.
        """
        with self.lock:
            self.connection.set_busy_handler(None)
            try:
                ask = self.connection.execute
                found: Any = ask("SELECT value FROM meta WHERE name = 'erasing'").fetchall()
                if not found:
                    return True
                if found[0][0]:
                    self._rewrite()
                    # 0 is: only the log is left to empty. Not if another process forgot more meanwhile.
                    ask("UPDATE meta SET value = 0 WHERE name = 'erasing' AND value = ?", found[0])
                if not run_checkpoint(self.connection, truncate=True):
                    return False
                ask("DELETE FROM meta WHERE name = 'erasing' AND value = 0")
            except (apsw.Error, OSError):
                return False
            finally:
                self.connection.set_busy_handler(self._patience)
        return True

    def _rewrite(self) -> None:
        # A large copy does not belong into memory.
        place = "FILE" if os.path.getsize(self.path) > SCRUB_IN_MEMORY else "MEMORY"
        self.connection.execute(f"PRAGMA temp_store = {place}")
        self.connection.execute("VACUUM")

    def truncate(self) -> bool:
        """Empty the log; False when a reader still needs it. Waits for no one."""
        with self.lock:
            self.connection.set_busy_handler(None)
            try:
                return run_checkpoint(self.connection, truncate=True)
            finally:
                self.connection.set_busy_handler(self._patience)

    def _finish(self) -> None:
        with self.lock:
            late, self._left = list(self._left), deque()
            while not self._jobs.empty():
                late += self._jobs.get() or ()
            for job in late:
                job.error = self._failure or Closed(f"{self.path} was closed")
            _deliver(late)
        self._checkpointer.stop()
        try:
            self.scrub()  # what a forget that was cut short has left undone
            self.truncate()
        finally:
            self.kernel.close()


def _closing_error(error: BaseException, path: str) -> BaseException:
    # Without asking the connection for more: it may be closed.
    return translate(error, path) if isinstance(error, apsw.Error | UnicodeDecodeError) else error


def _deliver(group: Sequence[WriteJob]) -> None:
    """Deliver answers, one call for each receiver: waking a loop is expensive."""
    by_receiver: dict[int, list[WriteJob]] = {}
    for job in group:
        by_receiver.setdefault(id(job.deliver), []).append(job)
    for jobs in by_receiver.values():
        jobs[0].deliver(jobs)


# -- checkpoints --------------------------------------------------------------------------


class Checkpointer:
    """A thread with its own connection; woken when the log has grown.

    Most of the work runs beside readers and writers, in passes: each takes what was written during the last
    one, until that is little. That rest is checkpointed under the writer's lock: only a log that is
    checkpointed whole starts over, and appending to a file that does not grow is what makes a durable commit
    quick.
    """

    def __init__(self, connect: Callable[[], apsw.Connection], writer_lock: threading.Lock) -> None:
        self.lock = threading.Lock()  # held while this thread is inside SQLite; taken before the writer's
        self.connection: apsw.Connection | None = None
        self._connect = connect
        self._writer_lock = writer_lock
        self._wake = threading.Event()
        self._stopping = False
        self._done = 0  # pages of the log that the last checkpoint did
        self._other: threading.Lock | None = None  # of another writer of this process to the file
        self._thread = threading.Thread(target=self._run, name="dgent-checkpoint", daemon=True)
        self._thread.start()

    def grown(self, pages: int) -> None:
        """Record the length of the log; called after every commit."""
        if pages < self._done:
            self._done = 0  # it started over
        if pages - self._done >= GROWN_PAGES:
            self._done = pages
            self._wake.set()

    def wake(self, other: threading.Lock) -> None:
        """Checkpoint now; for the end of it another writer has to wait, too."""
        self._other = other
        self._wake.set()

    def stop(self) -> None:
        """End the thread; the writer checkpoints the rest when it closes."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            with self.lock:
                if self._stopping:
                    if self.connection is not None:
                        self.connection.close(True)
                    return
                self._run_checkpoint()

    def _run_checkpoint(self) -> None:
        try:
            self.connection = self.connection or self._connect()
        except apsw.Error:
            return  # tried again when the log has grown further
        length = 0
        for _ in range(MOST_PASSES):
            last, length = length, _checkpoint_some(self.connection)
            if length - last <= FEW_PAGES:
                break
        with _hold(self._other), self._writer_lock:
            run_checkpoint(self.connection)


@contextmanager
def _hold(lock: threading.Lock | None) -> Iterator[None]:
    """Hold a lock if it can soon be had; the holder may be a long transaction."""
    held = lock is not None and lock.acquire(timeout=PATIENCE_S)
    try:
        yield
    finally:
        if held and lock is not None:
            lock.release()


def _checkpoint_some(connection: apsw.Connection) -> int:
    """Checkpoint beside writers; return how many pages the log had when it began, 0 if that is not known."""
    try:
        return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)[0]
    except apsw.Error:
        return 0


def run_checkpoint(connection: apsw.Connection, truncate: bool = False) -> bool:
    """Checkpoint as much as is possible now; True when nothing is left in the log.

    Nothing is lost while the log is not checkpointed, so a full disk or a busy reader is not an error here.
    """
    mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if truncate else apsw.SQLITE_CHECKPOINT_PASSIVE
    try:
        pages, done = connection.wal_checkpoint(mode=mode)
    except apsw.Error:
        return False
    return pages == done
