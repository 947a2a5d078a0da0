"""The kernel of a JSONL store: a SQLite kernel whose transactions are made durable as lines of files.

A transaction takes the folder's lock, reads what others appended, is decided in the cache, appended
to the files, and only then committed in the cache. A process that dies between the two has written
a commit that the next one reads from the files.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dgent.errors import Busy, StorageError
from dgent.store.jsonl.cache import EMPTY, Cache, Known
from dgent.store.jsonl.compaction import Compacting, Wanted
from dgent.store.jsonl.folder import Folder, Stamp
from dgent.store.jsonl.journal import Journal
from dgent.store.jsonl.purge import purge
from dgent.store.jsonl.recording import Recording
from dgent.store.jsonl.replay import Replay
from dgent.store.jsonl.syncing import Policy, Syncing
from dgent.store.kernel import Wrap, Writing
from dgent.store.ledger import Ledger
from dgent.store.sqlite.kernel import SQLiteKernel
from dgent.store.sqlite.upkeep import disk_errors

UNKNOWN = -1


class JSONLKernel(SQLiteKernel):
    """The one writing kernel of a folder in this process."""

    def __init__(self, connection: Any, folder: Folder, policy: Policy) -> None:
        super().__init__(connection)
        self.folder = folder
        self.cache = Cache(self)
        self.syncing = Syncing(folder, policy)
        self.epoch = b""
        self.compacting: Wanted | None = None  # set by who wants a compaction after this transaction
        self.ready = False  # whether the files were looked at since this was made
        self.writing = False  # while this process has the lock and knows all that is in the files
        self._seen: dict[str, Stamp] = {}  # the files as the cache knows them
        self._seen_folder = UNKNOWN
        self._files: dict[str, Known] | None = None
        self._grown: dict[str, Known] = {}
        self._recording: Recording | None = None
        self.replaying: Ledger | None = None

    def behind(self, wrap: Wrap) -> Writing:
        """What is written is noted before it is wrapped, so that lines hold plain records."""
        self.replaying = Ledger(wrap(self))
        self._recording = Recording(wrap(self))
        return self._recording

    # -- the files ------------------------------------------------------------------------

    def known(self, name: str) -> Known:
        """How a file is now, as this transaction left it."""
        files = self._files
        if files is None:
            files = self._files = self.cache.files()
        return self._grown.get(name) or files.get(name, EMPTY)

    def grew(self, name: str, known: Known) -> None:
        """This transaction changed a file."""
        self._grown[name] = known
        self.cache.put_file(name, known)

    def changed(self) -> bool:
        """Whether the files are not as the cache knows them; asked by every read, so it only looks."""
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
        self._seen = {name: known.stamp for name, known in (self._files or {}).items()}
        if mtime != self._seen_folder:
            self._seen_folder = mtime if self.folder.stamps().keys() <= self._seen.keys() else UNKNOWN

    # -- the transaction ------------------------------------------------------------------

    def begin(self) -> None:
        """Take the folder's lock, bring the cache up to date, and start a transaction."""
        with disk_errors(self.folder.path):
            self.folder.lock.acquire(wait=self.patient)
            try:
                if not self.ready or self.changed():
                    if not self.patient:
                        raise Busy(f"{self.folder.path} was changed by others")
                    self._catch_up()
                self.writing = True
                super().begin()
            except BaseException:
                self._unlock()
                raise

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
        super().commit()
        self._settle()
        try:
            # It is committed, so nothing from here on can fail it.
            if recorded.erased:
                with suppress(StorageError):
                    self._purge([row.id for row in recorded.erased])
            if self.compacting is not None:
                self._compact(self.compacting)
        finally:
            self.compacting = None
            self._unlock()

    def rollback(self) -> None:
        """Undo the transaction, in the files too."""
        assert self._recording is not None
        self._recording.taken()
        self.cache.forget_numbers()
        self._grown = {}
        self._files = None
        try:
            self.folder.take_back()
        finally:
            try:
                super().rollback()
            finally:
                self._unlock()

    def _settle(self) -> None:
        """What was appended is in the cache now."""
        self.folder.appended()
        if self._files is None:
            self._files = {}
        self._files.update(self._grown)
        grew, self._grown = bool(self._grown), {}
        if grew:
            self._publish()

    def _unlock(self) -> None:
        self.writing = False
        self.folder.lock.release()

    def close(self) -> None:
        """Let go of the files."""
        try:
            self.syncing.close()
        finally:
            self.folder.close()
            super().close()

    # -- what others wrote ----------------------------------------------------------------

    def _catch_up(self) -> None:
        """Read what the files have and the cache has not; a transaction of its own."""
        assert self.replaying is not None
        self._in_cache(lambda: Replay(self, self.replaying).run())  # type: ignore[arg-type]
        self._publish()
        self.ready = True
        if self._all("SELECT 1 FROM meta WHERE name = 'purging'"):
            self._purge([])

    def _purge(self, ids: list[str]) -> None:
        """Leave no line of what was forgotten in any file."""

        def work() -> None:
            purge(self, ids)
            self._execute("DELETE FROM meta WHERE name = 'purging'")

        self._in_cache(work)
        self._publish()

    def _compact(self, wanted: Wanted) -> None:
        def work() -> None:
            with disk_errors(self.folder.path):
                wanted.compaction = Compacting(self).run()

        try:
            self._in_cache(work)
            self._publish()
        except Exception as error:
            wanted.error = error

    def _in_cache(self, work: Callable[[], None]) -> None:
        super().begin()
        try:
            self._files = self.cache.files()
            work()
            super().commit()
        except BaseException:
            self._grown, self._files, self.ready = {}, None, False
            self.cache.forget_numbers()
            try:
                self.folder.take_back()
            finally:
                super().rollback()
            raise
        self.folder.appended()
        self._grown, self._files = {}, self.cache.files()
