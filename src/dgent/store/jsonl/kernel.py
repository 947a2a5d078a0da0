"""The transactions of a JSONL store: each commit goes to the journal, and from there to the cache.

A transaction takes the folder's lock, reads what others appended, is decided with the cache's rows, appended
to the files, and only then committed in the cache. If a process dies between the two, its commit is in
the files, and the next process reads it from there.

So the cache may be written later. Small commits that only add records are held: their rows wait
in memory, with nothing locked, and are written to the cache in batches, at the latest before a read in this
process. Another process finds these rows in the files. If it has written them to the cache, or after
any error, the held rows are dropped and read from the files too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from dgent.errors import Busy, StorageError
from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import LogTip, Wrap, Writing, no_wrap
from dgent.store.jsonl.cache import Cache
from dgent.store.jsonl.folder import StoreFolder
from dgent.store.jsonl.forget import purge
from dgent.store.jsonl.fsync import Policy
from dgent.store.jsonl.journal import Journal, JournalFiles
from dgent.store.jsonl.lock import WAIT_S
from dgent.store.jsonl.recorder import RecordedChanges, RecordingKernel
from dgent.store.jsonl.replay import FileReplay
from dgent.store.sqlite.connection import translate_errors
from dgent.store.sqlite.kernel import SQLiteKernel
from dgent.system.files import disk_errors

R = TypeVar("R")
Rewrite: TypeAlias = Callable[["JSONLKernel"], Any]

HELD_COMMITS, HELD_BYTES = 32, 1 << 16  # limits for what is in the files and not yet in the cache
CLOSING_S = 1.0  # a close waits so long for the folder's lock; without it the next open reads more
HOLDING_ROOM = 64 << 20  # on a nearly full disk the lines might fit, and the cache not


class _CacheChanged(Exception):
    """Another process wrote to the cache: rows that wait may be in it, or be decided by old ones."""


class JSONLKernel:
    """The only writer of a folder in this process: the journal decides, the cache answers."""

    def __init__(self, connection: Any, folder: StoreFolder, policy: Policy, private: bool = False) -> None:
        self.private = private  # whether only this process uses the cache
        self.patient = self.final = True
        self.folder = folder
        self.files = JournalFiles(folder, policy)
        self.store = SQLiteKernel(connection)
        self.cache = Cache(self.store, lambda: self._recorder.enter())
        self.behind(no_wrap)
        self.epoch = b""
        self.wanted: tuple[Rewrite, Future[Any]] | None = None  # a rewrite to do after this transaction
        self.ready = False  # whether the files were read since this kernel was created
        self.writing = False  # True while this process has the lock and the cache matches the files
        self.late = False  # whether the cache lacks acknowledged commits
        self.held_at = 0.0  # when one was last held
        self.was_read = False  # since the last commit: a reader after each put would wait for the cache
        self._held = self._held_bytes = 0  # commits whose rows wait in memory
        self._carried = 0  # changes made by writing held rows

    def behind(self, wrap: Wrap) -> Writing:
        """Return a recording kernel above the wrapper, so that lines hold plain records."""
        self.replaying = Ledger(wrap(self.store))
        self._recorder = RecordingKernel(wrap(self.store), self.store.commit_names, self._begin_cache)
        return self._recorder

    @property
    def tip(self) -> LogTip:
        """The end of the log."""
        return self.store.tip

    def name_commit(self, seq: int, c: str) -> None:
        """Set the name of a commit that is appended to the log next."""
        self.store.commit_names[seq] = c

    # -- the transaction ------------------------------------------------------------------

    def begin(self) -> None:
        """Take the folder's lock, update the cache, and start a transaction.

        For a commit that may be held, the cache's transaction begins when the cache is first used:
        held commits need none, and under the lock nobody else changes the cache.
        """
        try:
            self.folder.lock.acquire(WAIT_S if self.patient else 0.0)
            if self.patient:
                self._write_held()
            if not self.ready or self.files.are_changed():
                if not self.patient:
                    raise Busy(f"{self.folder.path} was changed by others")
                self._catch_up()
            self.writing = True
            if self.patient or self.was_read:
                self._begin_cache(late=False)
            else:
                self._recorder.unbegun = True
                if not self._held:
                    self.store.notice_others()
        except BaseException as error:
            self._unlock()
            with disk_errors(self.folder.path):
                raise error

    def commit(self) -> None:
        """Append the lines, make them durable, and then show the commit to readers."""
        recorded = self._recorder.take_changes()
        self.store.end_walks()
        journal = Journal(self)
        journal.add(recorded)
        journal.write()
        if recorded.erased:
            self.cache.start_purge()
        if self.files.is_save_due():
            self.files.save(self.cache)
        if not self._hold(recorded):
            self._commit_cache()
        self.was_read = False
        self.files.confirm()
        try:
            # It is committed, so no later error may fail it.
            if recorded.erased:
                with suppress(StorageError), self._errors():
                    self._purge([row.id for row in recorded.erased])
            if self.wanted is not None:
                self._rewrite(*self.wanted)
        finally:
            self.wanted = None
            self._unlock()

    def rollback(self) -> None:
        """Undo the transaction, in the files too."""
        self._recorder.take_changes()
        self.wanted = None
        if not self.writing and self.store.connection.get_autocommit():
            return  # it never began; held commits stay held
        try:
            self.files.undo()
        finally:
            try:
                self.store.rollback()
            finally:
                if self._held:
                    self._drop_held()
                self._drop_waiting()
                self._unlock()

    def changes(self) -> tuple[int, int, int]:
        """Return a value that differs once the current work has written; rows advance the tip first."""
        total, seq, record_key = self.store.changes()
        return total - self._carried, seq, record_key

    def is_move_due(self) -> bool:
        """Check whether the cache moves index entries with its next commit."""
        return self.store.is_move_due()

    def close(self) -> None:
        """Release the files; raises if acknowledged commits may not be on the disk."""
        try:
            self.files.close()
        finally:
            try:
                # What the cache lacks, the next process to open it reads from the files.
                with suppress(StorageError), self._errors():
                    self._save_before_close()
            finally:
                self.folder.close()
                self.store.close()

    def _save_before_close(self) -> None:
        if not self.files.unsaved:
            return
        self.folder.lock.acquire(CLOSING_S)
        try:
            if not self.files.are_changed():
                with suppress(_CacheChanged):
                    self._in_cache(lambda: None)
        finally:
            self._unlock()

    def _unlock(self) -> None:
        self.writing = self._recorder.unbegun = self.files.unlocked = False
        self.folder.lock.release()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate errors of the system and of SQLite into dgent's."""
        with translate_errors(self.folder.path), disk_errors(self.folder.path):
            yield

    # -- the cache's transaction ----------------------------------------------------------

    def _begin_cache(self, *, late: bool = True) -> None:
        """Begin the cache's transaction; `late` is in the middle of a commit that needs it after all."""
        changed, before = self.store.begin(), self.store.connection.total_changes()
        if changed and (late or self._held):
            raise _CacheChanged
        if self._held:
            self.cache.flush()
        self._carried += self.store.connection.total_changes() - before

    def _commit_cache(self) -> None:
        self.cache.flush()
        self.store.commit()
        self._held, self._held_bytes, self.late = 0, 0, False

    def _in_cache(self, work: Callable[[], R]) -> R:
        """Run work in a transaction of the cache alone, and save the state of the files with it."""
        changed = self.store.begin()
        try:
            if changed and self._held:
                raise _CacheChanged
            self.cache.flush()
            self.files.save(self.cache)
            result = work()
            self.files.save(self.cache)
            known = self.cache.files()
            self._commit_cache()
        except BaseException:
            try:
                self.files.undo()
            finally:
                self._drop_held()
                self.store.rollback()
            raise
        self.files.reset(known)
        self.files.publish()
        return result

    # -- held commits ---------------------------------------------------------------------

    def _hold(self, recorded: RecordedChanges) -> bool:
        """Hold a commit in memory if it only adds records and the limits allow it.

        Only on an event loop, where commits come one after another: the writer's thread commits
        several together, while others read.
        """
        if not self._recorder.unbegun:
            return False
        if not recorded.commits:
            return True
        if not self._held and self.folder.free_bytes() < HOLDING_ROOM:
            return False
        self._held += len(recorded.commits)
        self._held_bytes += self.files.growth()
        if self._held > HELD_COMMITS or self._held_bytes > HELD_BYTES:
            return False
        self.late, self.held_at = True, monotonic()
        return True

    def _write_held(self) -> None:
        """Write held commits to the cache; drop them if another process wrote to it, and so has read them."""
        if self._held:
            with suppress(_CacheChanged):
                self._in_cache(lambda: None)

    def _drop_held(self) -> None:
        """Drop held commits and cached state; the files have them, and are read before anything else."""
        self._drop_waiting()
        self._held, self._held_bytes, self.ready = 0, 0, False
        self.files.reset({})

    def _drop_waiting(self) -> None:
        self._recorder.drop()
        self.cache.drop_waiting()

    # -- writes of others -----------------------------------------------------------------

    def catch_up(self, wait_s: float) -> None:
        """Update the cache from the files before a read; Busy if another process holds the lock too long.

        A private cache is shared with nobody, so it is then updated without the lock.
        """
        with self._errors():
            try:
                self.folder.lock.acquire(wait_s)
            except Busy:
                if not self.private or self.folder.is_switching():
                    raise
                self.files.unlocked = True
            try:
                if self.files.unlocked:
                    self._in_cache(self.read_files)
                    return
                self._write_held()
                if not self.ready or self.files.are_changed():
                    self._catch_up()
            finally:
                self._unlock()

    def _catch_up(self) -> None:
        """Read into the cache what it lacks of the files, in a separate transaction."""
        self.folder.finish_interrupted()
        self._in_cache(self.read_files)
        self.ready = True
        if self.cache.is_purging():
            self._purge([])

    def read_files(self) -> None:
        """Read what the cache lacks of the files, in a transaction of the cache."""
        FileReplay(self, self.replaying).run()

    def _purge(self, ids: list[str]) -> None:
        """Remove the lines of forgotten records from all files."""
        self._in_cache(lambda: purge(self, ids))

    def _rewrite(self, work: Rewrite, done: Future[Any]) -> None:
        try:
            with self._errors():
                result = self._in_cache(lambda: work(self))
            done.set_result(result)
        except Exception as error:
            done.set_exception(error)
