"""Checkpoint SQLite's log in the background, so that no commit has to wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import apsw

GROWN_PAGES = 4000  # checkpoint after the log grew by this much


class Checkpointer:
    """A thread with its own connection; woken when the log has grown.

    Most of the work runs beside readers and writers. Pages that they wrote meanwhile are checkpointed under
    the writer's lock: only a log that is checkpointed whole starts over, and appending to a file that does
    not grow is what makes a durable commit quick.
    """

    def __init__(self, connect: Callable[[], apsw.Connection], writer_lock: threading.Lock) -> None:
        self.lock = threading.Lock()  # held while this thread is inside SQLite; taken before the writer's
        self.connection: apsw.Connection | None = None
        self._connect = connect
        self._writer_lock = writer_lock
        self._wake = threading.Event()
        self._stopping = False
        self._done = 0  # pages of the log that the last checkpoint did
        self._thread = threading.Thread(target=self._run, name="dgent-checkpoint", daemon=True)
        self._thread.start()

    def grown(self, pages: int) -> None:
        """Record the length of the log; called after every commit."""
        if pages < self._done:
            self._done = 0  # it started over
        if pages - self._done >= GROWN_PAGES:
            self._done = pages
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
        run_checkpoint(self.connection)
        with self._writer_lock:
            run_checkpoint(self.connection)


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
