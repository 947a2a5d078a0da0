"""The kernel of a JSONL store: a SQLite kernel whose transactions are made durable as lines of files.

A transaction takes the folder's lock, reads what others appended, is decided in the cache, appended
to the files, and only then committed in the cache. A process that dies between the two has written
a commit that the next one reads from the files.

So the cache may come later. Small commits that add records and nothing else are held: their rows wait
in memory, with nothing locked, and reach the cache some at a time, at the latest before anyone here
reads. Who finds the cache without them reads them from the files. If that was another process, or if
anything went wrong, what is held here is dropped, and the files are asked as well.
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
from dgent.store.jsonl.cache import EMPTY, PUT_LINE, Cache, Known
from dgent.store.jsonl.damage import settle
from dgent.store.jsonl.folder import Folder, Stamp
from dgent.store.jsonl.forget import purge
from dgent.store.jsonl.fsync import Policy, Syncing
from dgent.store.jsonl.journal import Journal, Recorded, Recording
from dgent.store.jsonl.lock import WAIT_S
from dgent.store.jsonl.replay import Replay
from dgent.store.sqlite.connection import translate_errors
from dgent.store.sqlite.kernel import SQLiteKernel
from dgent.system.files import disk_errors

UNKNOWN = -1
UNSAVED = 1 << 18  # so much of a file may be read again after a crash
HELD_COMMITS, HELD_BYTES = 32, 1 << 16  # so much may be in the files and not yet in the cache
CLOSING_S = 1.0  # so long a close waits for the folder's lock, only to spare the next one some reading
HOLDING_ROOM = 64 << 20  # a disk that is nearly full might take the lines, and then not the cache


class Wanted:
    """A rewriting of files that someone waits for, and how it ended."""

    def __init__(self, work: Callable[[JSONLKernel], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None


class _Overtaken(Exception):
    """Others read from the files what is held here; who may wait begins anew with what they made of it."""


class JSONLKernel(SQLiteKernel):
    """The one writing kernel of a folder in this process."""

    _append = SQLiteKernel._append.replace("digest)", "digest, cid)").replace("?)", "?, ?)")
    _tombstones_wait = False  # a cache may have holes, and this one holds back enough already

    def __init__(self, connection: Any, folder: Folder, policy: Policy, private: bool = False) -> None:
        super().__init__(connection)
        self.private = private  # whether the cache is this process's alone
        self.unlocked = False  # while the files are read without the lock: nothing may be written to them
        self.folder = folder
        self.cache = Cache(self)
        self.syncing = Syncing(folder, policy)
        self.epoch = b""
        self.wanted: Wanted | None = None  # set by who wants files rewritten after this transaction
        self.ready = False  # whether the files were looked at since this was made
        self.writing = False  # while this process has the lock and knows all that is in the files
        self._seen: dict[str, Stamp] = {}  # the files as the cache knows them
        self._seen_folder = UNKNOWN
        self._files: dict[str, Known] = {}
        self._grown: dict[str, Known] = {}  # what this transaction changed of them
        self._unsaved: dict[str, int] = {}  # files that the cache knows as they were, and how long they were
        self._commit_ids: dict[int, str] = {}
        self._recording: Recording | None = None
        self.replaying: Ledger | None = None
        self.late = False  # whether the cache lacks commits that were answered
        self.held_at = 0.0  # when one was last held
        self.was_read = False  # since the last commit: who reads after each put would wait for the cache
        self._held = self._held_bytes = 0  # commits whose rows wait in memory
        self._new_lines: list[tuple[Any, ...]] = []
        self._unbegun = False  # inside a transaction that has not asked the cache for anything yet
        self._brought = 0  # changes made by bringing what was held

    def behind(self, wrap: Wrap) -> Writing:
        """What is written is noted before it is wrapped, so that lines hold plain records."""
        self.replaying = Ledger(wrap(self))
        self._recording = Recording(wrap(self))
        return self._recording

    # -- the files ------------------------------------------------------------------------

    def known(self, name: str) -> Known:
        """How a file is now, as this transaction left it."""
        return self._grown.get(name) or self._files.get(name, EMPTY)

    def grew(self, name: str, known: Known) -> None:
        """This transaction changed a file."""
        self._grown[name] = known

    def save_files(self) -> None:
        """Let the cache know how far the files are read.

        Not with every commit: what the cache does not know to be read is read again, and known lines
        change nothing.
        """
        for name, known in {**self._files, **self._grown}.items():
            if name in self._unsaved or name in self._grown:
                self.cache.put_file(name, known)
        self._unsaved = {}

    def commit_id(self, seq: int) -> str:
        """The name of a commit, the same in every copy of the folder."""
        return self._commit_ids[seq]

    def name_commit(self, seq: int, c: str) -> None:
        """The commit of a seq was made elsewhere, and has its name."""
        self._commit_ids[seq] = c

    def _more(self, seq: int) -> tuple[Any, ...]:
        return (self._commit_ids.setdefault(seq, ids.new_id()),)

    def changed(self) -> bool:
        """Whether the files are not as the cache knows them; asked by every read, so it only looks."""
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
        """Let readers know that the cache is up to date."""
        mtime = self._folder_mtime()  # before looking: what comes later makes it another
        self._seen = {name: known.stamp for name, known in self._files.items()}
        if mtime != self._seen_folder:
            self._seen_folder = mtime if self.folder.stamps().keys() <= self._seen.keys() else UNKNOWN

    # -- what is held ---------------------------------------------------------------------

    def note_lines(self, lines: list[tuple[Any, ...]]) -> None:
        """Note lines that were appended, in turn with the rows that they are of."""
        self._new_lines += lines

    def _write_waiting(self) -> None:
        if self._unbegun:
            self._unbegun = False
            self._at_once("BEGIN IMMEDIATE")
            if not self.patient and self._is_overtaken():
                raise _Overtaken
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
        """Differs as soon as the work at hand has written something; its rows move the tip on first."""
        return self.connection.total_changes() - self._brought, self.tip.seq, self.tip.dk

    def _hold(self, recorded: Recorded) -> bool:
        """Let a commit wait in memory, if that is all there is to it and not too much waits already.

        Only on an event loop, where one commit comes after another: whoever has a thread for it commits
        together with others, and reads beside it.
        """
        if self.patient or not self._unbegun or not recorded.commits:
            return False
        if not self._held and self.folder.room() < HOLDING_ROOM:
            return False
        sizes = ((self._files.get(name, EMPTY), known) for name, known in self._grown.items())
        self._held += len(recorded.commits)
        self._held_bytes += sum(known.stamp.size - before.stamp.size for before, known in sizes)
        if self._held > HELD_COMMITS or self._held_bytes > HELD_BYTES:
            return False
        self.late, self.held_at, self._unbegun = True, monotonic(), False
        return True

    def _is_overtaken(self) -> bool:
        """Whether someone else wrote to the cache, and so has read from the files what is held here."""
        return self._held > 0 and self._version() != self._data_version

    def _drop_held(self) -> None:
        """Know only what the cache knows: the files have the rest, and are read before anything else."""
        self._drop_new()
        self._new_lines, self._held, self._held_bytes = [], 0, 0
        self._grown, self._files, self._unsaved, self._commit_ids = {}, {}, {}, {}
        self._data_version = self.catalog.version = -1
        self.catalog.generation += 1
        self.cache.forget_numbers()
        self.ready = False

    def _brought_all(self) -> None:
        """The cache has everything."""
        self._held, self._held_bytes, self.late = 0, 0, False

    # -- the transaction ------------------------------------------------------------------

    def begin(self) -> None:
        """Take the folder's lock, bring the cache up to date, and start a transaction.

        For a commit that may be held, the cache's own part of it begins when the cache is first asked:
        what is held needs none, and the lock is enough to know that nobody changes the cache meanwhile.
        """
        try:
            self.folder.lock.acquire(WAIT_S if self.patient else 0.0)
            # Who may not wait finds out when the cache is needed: most commits are held without it.
            if self.patient and self._is_overtaken():
                self._drop_held()
            if not self.ready or self.changed():
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

    def look(self, wait_s: float) -> None:
        """Bring the cache up to the files, for who reads; Busy when another process does not release them.

        A private cache takes nothing from others, so it is brought up without the lock then.
        """
        with self._errors():
            self._look(wait_s)

    def _look(self, wait_s: float) -> None:
        try:
            self.folder.lock.acquire(wait_s)
        except Busy:
            if not self.private or self.folder.is_switching():
                raise
            self._catch_up_unlocked()
            return
        try:
            if self._is_overtaken():
                self._drop_held()
            if not self.ready or self.changed():
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
        """Append what was written, make it durable, and then let readers see it."""
        assert self._recording is not None
        recorded = self._recording.taken()
        self.end_walks()
        journal = Journal(self)
        journal.add(recorded)
        journal.write()
        if recorded.erased:
            self._execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('purging', 1)")
        if any(self.known(name).stamp.size - size > UNSAVED for name, size in self._unsaved.items()):
            self.save_files()
        if not self._hold(recorded):
            super().commit()
            self._brought_all()
        self.was_read = False
        self._settle()
        try:
            # It is committed, so nothing from here on can fail it.
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
        self._recording.taken()
        if not self.writing and self.connection.get_autocommit():
            return  # it never began; what is held is held
        self.cache.forget_numbers()
        self._grown, self._commit_ids, self._unbegun = {}, {}, False
        try:
            # They are as they were, and only their times tell otherwise.
            for name, stamp in self.folder.take_back().items():
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

    def _settle(self) -> None:
        """What was appended is in the cache now."""
        self.folder.appended()
        self._commit_ids = {}
        if self._grown:
            new = self._grown.keys() - self._files.keys()
            for name, known in self._grown.items():
                self._unsaved.setdefault(name, self._files.get(name, EMPTY).stamp.size)
                self._files[name] = known
                if name not in new:  # readers walk along it, so it never grows under them
                    self._seen[name] = known.stamp
            self._grown = {}
            if new:
                self._publish()

    def _unlock(self) -> None:
        self.writing = self._unbegun = False
        self.folder.lock.release()

    def close(self) -> None:
        """Release the files; raises when what was answered may not be on the disk."""
        try:
            self.syncing.close()
        finally:
            try:
                # What the cache does not get, the next one who opens it reads from the files.
                with suppress(StorageError), self._errors():
                    self._save_at_the_end()
            finally:
                self.folder.close()
                super().close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Let no error of the system or of the cache out that is not ours."""
        with translate_errors(self.folder.path), disk_errors(self.folder.path):
            yield

    def _save_at_the_end(self) -> None:
        if not self._unsaved:
            return
        self.folder.lock.acquire(CLOSING_S)
        try:
            if self._is_overtaken():
                self._drop_held()
            elif not self.changed():
                self._in_cache(lambda: None)
        finally:
            self._unlock()

    # -- what others wrote ----------------------------------------------------------------

    def _catch_up(self) -> None:
        """Read what the files have and the cache has not; a transaction of its own."""
        self.folder.tidy()
        self._replay()
        self.ready = True
        if self._all("SELECT 1 FROM meta WHERE name = 'purging'"):
            self._purge([])

    def _replay(self) -> None:
        assert self.replaying is not None
        self._in_cache(lambda: Replay(self, self.replaying).run())  # type: ignore[arg-type]
        self._publish()

    def _purge(self, ids: list[str]) -> None:
        """Leave no line of what was forgotten in any file."""

        def work() -> None:
            purge(self, ids)
            self._execute("DELETE FROM meta WHERE name = 'purging'")

        self._in_cache(work)
        self._publish()

    def _rewrite(self, wanted: Wanted) -> None:
        def work() -> None:
            wanted.result = wanted.work(self)

        try:
            with self._errors():
                self._in_cache(work)
                self._publish()
        except Exception as error:
            wanted.error = error

    def settle_damaged(self, accept: bool) -> int:
        """Accept or drop what is left of damaged commits, and read everything anew; how many there were."""
        assert self.replaying is not None
        many = settle(self, accept)
        if many:
            self.cache.invalidate()
            Replay(self, self.replaying).run()
        return many

    def _in_cache(self, work: Callable[[], None]) -> None:
        """Run work in a transaction of the cache alone, with all it must know of the files."""
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
                self.folder.take_back()
            finally:
                super().rollback()
            raise
        self._brought_all()
        self.folder.appended()
        self._grown, self._files, self._commit_ids = {}, files, {}
