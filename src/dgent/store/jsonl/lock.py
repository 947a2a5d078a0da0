"""The lock of a folder: one process at a time appends to its files."""

from __future__ import annotations

import fcntl
import os
import random
import time

from dgent.errors import Busy
from dgent.system import files

WAIT_S = 30.0


class FolderLock:
    """An advisory lock on a separate file, which the system releases when the process ends."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: int | None = None
        self._which = (0, 0)  # device and inode of the lock file

    def acquire(self, wait_s: float = WAIT_S) -> None:
        """Take the lock; raises Busy, naming the holder, if that takes longer than `wait_s` seconds."""
        began = time.monotonic()
        while True:
            if self._try():
                return
            if time.monotonic() - began >= wait_s:
                pid = self._holder()
                who = f"process {pid}" if pid else "another process"
                raise Busy(f"{os.path.dirname(self.path)} was locked by {who} for too long", pid=pid)
            time.sleep(random.uniform(0.0002, 0.002))

    def _try(self) -> bool:
        if self._file is None:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, files.FILE)
            here = os.fstat(self._file)
            self._which = here.st_dev, here.st_ino
        if not files.try_lock(self._file):
            return False
        if self._is_current():
            return True
        # The lock file was removed, and others lock a new one.
        self.close()
        return False

    def _is_current(self) -> bool:
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == self._which

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        if self._file is not None:
            # Unlock explicitly: a forked child has the file open too, so closing it would not be enough.
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock file, which releases the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _holder(self) -> int | None:
        return next((lock.pid for lock in files.locks_on(self.path) if lock.kind == "FLOCK"), None)
