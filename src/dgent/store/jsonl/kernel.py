"""The kernel of a JSONL store: a SQLite kernel whose transactions are made durable as lines of files.

A transaction takes the folder's lock, reads what others appended, is decided in the cache, appended
to the files, and only then committed in the cache. If a process dies between the two, its commit is in
the files, and the next process reads it from there.

So the cache may be written later. Small commits that only add records are held: their rows wait
in memory, with nothing locked, and are written to the cache in batches, at the latest before a read in this
process. Another process finds these rows in the files. If it has written them to the cache, or after
any error, the held rows are dropped and read from the files too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from dgent import ids
from dgent.errors import Busy, StorageError
from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import Wrap, Writing
from dgent.store.jsonl.cache import EMPTY, PUT_LINE, Cache, FileState
from dgent.store.jsonl.damage import settle_damaged
from dgent.store.jsonl.folder import Stamp, StoreFolder
from dgent.store.jsonl.forget import purge
from dgent.store.jsonl.fsync import Policy, Syncer
from dgent.store.jsonl.journal import Journal, RecordedChanges, RecordingKernel
from dgent.store.jsonl.lock import WAIT_S
from dgent.store.jsonl.replay import FileReplay
from dgent.store.sqlite.connection import translate_errors
from dgent.store.sqlite.kernel import SQLiteKernel
from dgent.system.files import disk_errors

UNKNOWN = -1
UNSAVED = 1 << 18  # bytes of a file that may be read again after a crash
HELD_COMMITS, HELD_BYTES = 32, 1 << 16  # limits for what is in the files and not yet in the cache
CLOSING_S = 1.0  # a close waits so long for the folder's lock; without it the next open reads more
HOLDING_ROOM = 64 << 20  # on a nearly full disk the lines might fit, and the cache not


class RewriteRequest:
    """A rewrite of files to do after the current transaction, with its result or error."""

    def __init__(self, work: Callable[[JSONLKernel], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None


class _CacheChanged(Exception):
    """Another process has written the held rows to the cache; a patient caller starts again from there."""


class JSONLKernel(SQLiteKernel):
    """The only writing kernel of a folder in this process."""

    _append = SQLiteKernel._append.replace("digest)", "digest, cid)").replace("?)", "?, ?)")
    _tombstones_wait = False  # a rebuilt cache may lack rows, and this one holds back enough already

    def __init__(self, connection: Any, folder: StoreFolder, policy: Policy, private: bool = False) -> None:
        super().__init__(connection)
        self.private = private  # whether only this process uses the cache
        self.unlocked = False  # True while the files are read without the lock, and must not be written
        self.folder = folder
        self.cache = Cache(self)
        self.syncing = Syncer(folder, policy)
        self.epoch = b""
        self.wanted: RewriteRequest | None = None  # a rewrite to do after this transaction
        self.ready = False  # whether the files were read since this kernel was created
        self.writing = False  # True while this process has the lock and the cache matches the files
        self._seen: dict[str, Stamp] = {}  # the files as the cache knows them
        self._seen_folder = UNKNOWN
        self._files: dict[str, FileState] = {}
        self._grown: dict[str, FileState] = {}  # the files that this transaction changed
        self._unsaved: dict[str, int] = {}  # files whose state in the cache is old, and their size then
        self._commit_ids: dict[int, str] = {}
        self._recording: RecordingKernel | None = None
        self.replaying: Ledger | None = None
        self.late = False  # whether the cache lacks acknowledged commits
        self.held_at = 0.0  # when one was last held
        self.was_read = False  # since the last commit: a reader after each put would wait for the cache
        self._held = self._held_bytes = 0  # commits whose rows wait in memory
        self._new_lines: list[tuple[Any, ...]] = []
        self._unbegun = False  # in a transaction that has not used the cache yet
        self._brought = 0  # changes made by writing held rows

    def behind(self, wrap: Wrap) -> Writing:
        """Return a recording kernel above the wrapper, so that lines hold plain records."""
        self.replaying = Ledger(wrap(self))
        self._recording = RecordingKernel(wrap(self))
        return self._recording

    # -- the files ------------------------------------------------------------------------

    def file_state(self, name: str) -> FileState:
        """Return the state of a file, with the changes of this transaction."""
        return self._grown.get(name) or self._files.get(name, EMPTY)

    def set_file_state(self, name: str, known: FileState) -> None:
        """Record that this transaction changed a file."""
        self._grown[name] = known

    def save_files(self) -> None:
        """Write to the cache how far the files are read.

        Not needed with every commit: lines after that are read again, and known lines change nothing.
        """
        for name, known in {**self._files, **self._grown}.items():
            if name in self._unsaved or name in self._grown:
                self.cache.put_file(name, known)
        self._unsaved = {}

    def commit_id(self, seq: int) -> str:
        """Return the name of a commit, which is the same in every copy of the folder."""
        return self._commit_ids[seq]

    def name_commit(self, seq: int, c: str) -> None:
        """Set the name of a commit that another copy made."""
        self._commit_ids[seq] = c

    def _more(self, seq: int) -> tuple[Any, ...]:
        return (self._commit_ids.setdefault(seq, ids.new_id()),)

    def is_behind_files(self) -> bool:
        """Check whether the files changed since the cache read them; quick, because every read calls it."""
        try:
            return self._looks_changed()
        except OSError as error:
            with disk_errors(self.folder.path):
                raise error

    def _looks_changed(self) -> bool:
        stamp = self.folder.stamp
        for name, seen in self._seen.items():
            if stamp(name) != seen:
                return True
        mtime = self._folder_mtime()
        if mtime == self._seen_folder:
            return False
        if self.folder.stamps() != self._seen:
            return True
        self._seen_folder = mtime
        return False

    def _folder_mtime(self) -> int:
        found = self.folder.stamp(".")
        return -2 if found is None else found.mtime

    def _publish(self) -> None:
        """Tell readers that the cache is up to date."""
        mtime = self._folder_mtime()  # read first: a later change makes it differ
        self._seen = {name: known.stamp for name, known in self._files.items()}
        if mtime != self._seen_folder:
            self._seen_folder = mtime if self.folder.stamps().keys() <= self._seen.keys() else UNKNOWN

    # -- held commits ---------------------------------------------------------------------

    def note_lines(self, lines: list[tuple[Any, ...]]) -> None:
        """Queue appended lines, to be written to the cache with their rows."""
        self._new_lines += lines

    def _write_waiting(self) -> None:
        if self._unbegun:
            self._unbegun = False
            self._at_once("BEGIN IMMEDIATE")
            if not self.patient and self._is_cache_changed():
                raise _CacheChanged
            before = self.connection.total_changes()
            self._flush()
            self._brought += self.connection.total_changes() - before
        elif self._new_log or self._new or self._new_entries or self._new_lines:
            self._flush()

    def _flush(self) -> None:
        lines, self._new_lines = self._new_lines, []
        super()._flush()
        if lines:
            self._many_at_once(PUT_LINE, lines)

    def changes(self) -> tuple[int, int, int]:
        """Return a value that differs once the current work has written; rows advance the tip first."""
        return self.connection.total_changes() - self._brought, self.tip.seq, self.tip.dk

    def _hold(self, recorded: RecordedChanges) -> bool:
        """Hold a commit in memory if it only adds records and the limits allow it.

        Only on an event loop, where commits come one after another: the writer's thread commits
        several together, while others read.
        """
        if self.patient or not self._unbegun or not recorded.commits:
            return False
        if not self._held and self.folder.free_bytes() < HOLDING_ROOM:
            return False
        sizes = ((self._files.get(name, EMPTY), known) for name, known in self._grown.items())
        self._held += len(recorded.commits)
        self._held_bytes += sum(known.stamp.size - before.stamp.size for before, known in sizes)
        if self._held > HELD_COMMITS or self._held_bytes > HELD_BYTES:
            return False
        self.late, self.held_at, self._unbegun = True, monotonic(), False
        return True

    def _is_cache_changed(self) -> bool:
        """Check whether another process wrote to the cache, and so has read the held rows from the files."""
        return self._held > 0 and self._version() != self._data_version

    def _drop_held(self) -> None:
        """Drop held rows and cached state; the files have them, and are read before anything else."""
        self._drop_new()
        self._new_lines, self._held, self._held_bytes = [], 0, 0
        self._grown, self._files, self._unsaved, self._commit_ids = {}, {}, {}, {}
        self._data_version = self.catalog.version = -1
        self.catalog.generation += 1
        self.cache.forget_numbers()
        self.ready = False

    def _clear_held(self) -> None:
        """Reset the counters of held commits: the cache has all of them."""
        self._held, self._held_bytes, self.late = 0, 0, False

    # -- the transaction ------------------------------------------------------------------

    def begin(self) -> None:
        """Take the folder's lock, update the cache, and start a transaction.

        For a commit that may be held, the cache's transaction begins when the cache is first used:
        held commits need none, and under the lock nobody else changes the cache.
        """
        try:
            self.folder.lock.acquire(WAIT_S if self.patient else 0.0)
            # Otherwise checked when the cache is used: most commits are held without it.
            if self.patient and self._is_cache_changed():
                self._drop_held()
            if not self.ready or self.is_behind_files():
                if not self.patient:
                    raise Busy(f"{self.folder.path} was changed by others")
                self._catch_up()
            self.writing = self._unbegun = True
            if self.patient or self.was_read:
                self._write_waiting()
            if not self._held:
                self._notice_others()
        except BaseException as error:
            self._unlock()
            with disk_errors(self.folder.path):
                raise error

    def catch_up(self, wait_s: float) -> None:
        """Update the cache from the files before a read; Busy if another process holds the lock too long.

        A private cache is shared with nobody, so it is then updated without the lock.
        """
        with self._errors():
            self._catch_up_if_behind(wait_s)

    def _catch_up_if_behind(self, wait_s: float) -> None:
        try:
            self.folder.lock.acquire(wait_s)
        except Busy:
            if not self.private or self.folder.is_switching():
                raise
            self._catch_up_unlocked()
            return
        try:
            if self._is_cache_changed():
                self._drop_held()
            if not self.ready or self.is_behind_files():
                self._catch_up()
            elif self._held:
                self._in_cache(lambda: None)
        finally:
            self._unlock()

    def _catch_up_unlocked(self) -> None:
        self.unlocked = True
        try:
            self._replay()
        finally:
            self.unlocked = False

    def commit(self) -> None:
        """Append the lines, make them durable, and then show the commit to readers."""
        assert self._recording is not None
        recorded = self._recording.take_changes()
        self.end_walks()
        journal = Journal(self)
        journal.add(recorded)
        journal.write()
        if recorded.erased:
            self._execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('purging', 1)")
        if any(self.file_state(name).stamp.size - size > UNSAVED for name, size in self._unsaved.items()):
            self.save_files()
        if not self._hold(recorded):
            super().commit()
            self._clear_held()
        self.was_read = False
        self._confirm_appended()
        try:
            # It is committed, so no later error may fail it.
            if recorded.erased:
                with suppress(StorageError), self._errors():
                    self._purge([row.id for row in recorded.erased])
            if self.wanted is not None:
                self._rewrite(self.wanted)
        finally:
            self.wanted = None
            self._unlock()

    def rollback(self) -> None:
        """Undo the transaction, in the files too."""
        assert self._recording is not None
        self._recording.take_changes()
        if not self.writing and self.connection.get_autocommit():
            return  # it never began; held commits stay held
        self.cache.forget_numbers()
        self._grown, self._commit_ids, self._unbegun = {}, {}, False
        try:
            # Only their times have changed.
            for name, stamp in self.folder.undo_append().items():
                self._files[name] = self._files[name]._replace(stamp=stamp)
                self._seen[name] = stamp
                self._unsaved.setdefault(name, stamp.size)
        finally:
            try:
                self._new_lines = []
                super().rollback()
            finally:
                if self._held:
                    self._drop_held()
                self._unlock()

    def _confirm_appended(self) -> None:
        """Confirm the appended lines: they are in the cache now."""
        self.folder.confirm_appended()
        self._commit_ids = {}
        if self._grown:
            new = self._grown.keys() - self._files.keys()
            for name, known in self._grown.items():
                self._unsaved.setdefault(name, self._files.get(name, EMPTY).stamp.size)
                self._files[name] = known
                if name not in new:  # readers iterate over it, so it must not grow
                    self._seen[name] = known.stamp
            self._grown = {}
            if new:
                self._publish()

    def _unlock(self) -> None:
        self.writing = self._unbegun = False
        self.folder.lock.release()

    def close(self) -> None:
        """Release the files; raises if acknowledged commits may not be on the disk."""
        try:
            self.syncing.close()
        finally:
            try:
                # What the cache lacks, the next process to open it reads from the files.
                with suppress(StorageError), self._errors():
                    self._save_before_close()
            finally:
                self.folder.close()
                super().close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate errors of the system and of SQLite into dgent's."""
        with translate_errors(self.folder.path), disk_errors(self.folder.path):
            yield

    def _save_before_close(self) -> None:
        if not self._unsaved:
            return
        self.folder.lock.acquire(CLOSING_S)
        try:
            if self._is_cache_changed():
                self._drop_held()
            elif not self.is_behind_files():
                self._in_cache(lambda: None)
        finally:
            self._unlock()

    # -- writes of others -----------------------------------------------------------------

    def _catch_up(self) -> None:
        """Read into the cache what it lacks of the files, in a separate transaction."""
        self.folder.finish_interrupted()
        self._replay()
        self.ready = True
        if self._all("SELECT 1 FROM meta WHERE name = 'purging'"):
            self._purge([])

    def _replay(self) -> None:
        assert self.replaying is not None
        self._in_cache(lambda: FileReplay(self, self.replaying).run())  # type: ignore[arg-type]
        self._publish()

    def _purge(self, ids: list[str]) -> None:
        """Remove the lines of forgotten records from all files."""

        def work() -> None:
            purge(self, ids)
            self._execute("DELETE FROM meta WHERE name = 'purging'")

        self._in_cache(work)
        self._publish()

    def _rewrite(self, wanted: RewriteRequest) -> None:
        def work() -> None:
            wanted.result = wanted.work(self)

        try:
            with self._errors():
                self._in_cache(work)
                self._publish()
        except Exception as error:
            wanted.error = error

    def settle_damaged(self, accept: bool) -> int:
        """Accept or drop the lines of damaged commits, read all files again; return the number of commits."""
        assert self.replaying is not None
        many = settle_damaged(self, accept)
        if many:
            self.cache.invalidate()
            FileReplay(self, self.replaying).run()
        return many

    def _in_cache(self, work: Callable[[], None]) -> None:
        """Run work in a transaction of the cache alone, and save the state of the files with it."""
        super().begin()
        try:
            self.save_files()
            work()
            self.save_files()
            files = self.cache.files()
            super().commit()
        except BaseException:
            self._drop_held()
            try:
                self.folder.undo_append()
            finally:
                super().rollback()
            raise
        self._clear_held()
        self.folder.confirm_appended()
        self._grown, self._files, self._commit_ids = {}, files, {}
