"""What all handles on one store in memory have in common; a named one is shared by a whole process."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import Writing

if TYPE_CHECKING:
    from dgent.store.memory.blob import MemoryContents


class SharedMemory:
    """The records of one store, the lock that every read and write holds, and those who wait for a commit."""

    def __init__(self, kernel: Writing) -> None:
        self.kernel = kernel
        self.ledger = Ledger(kernel)
        self.epoch = os.urandom(8)
        self.lock = threading.RLock()  # handles of other loops and threads use the same dictionaries
        self.handles = 0
        self._waiting: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}

    @cached_property
    def blobs(self) -> MemoryContents:
        """The contents of blobs of this store."""
        from dgent.store.memory.blob import MemoryContents  # loads when it is used

        with self.lock:
            found: MemoryContents = self.__dict__.setdefault("blobs", MemoryContents())
            return found

    def watch(self, since: int) -> asyncio.Event | None:
        """Return an event of this loop that the next commit sets; None if there was one after `since`."""
        with self.lock:
            if self.kernel.tip.seq > since:
                return None
            return self._waiting.setdefault(asyncio.get_running_loop(), asyncio.Event())

    def wake(self) -> None:
        """Wake everyone who waits for a commit."""
        if not self._waiting:
            return
        with self.lock:
            waiting, self._waiting = self._waiting, {}
        here = asyncio._get_running_loop()
        for loop, event in waiting.items():
            if loop is here:
                event.set()
                continue
            with suppress(RuntimeError):  # a loop that has ended
                loop.call_soon_threadsafe(event.set)


_named: dict[str, SharedMemory] = {}
_lock = threading.Lock()


def acquire(name: str, own: SharedMemory) -> SharedMemory:
    """Return the store of a name for one more handle; the first one brings it."""
    with _lock:
        found = _named.setdefault(name, own)
        found.handles += 1
        return found


def release(name: str, shared: SharedMemory) -> None:
    """Give up a handle; with the last one, the store of the name is gone."""
    with _lock:
        shared.handles -= 1
        if not shared.handles and _named.get(name) is shared:
            del _named[name]


def _after_fork() -> None:
    # A name stands for one store of one process: a child begins with none.
    global _lock
    _lock = threading.Lock()
    _named.clear()


os.register_at_fork(after_in_child=_after_fork)
