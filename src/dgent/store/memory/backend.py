"""The memory engine: the reference the others are compared with; gone when the process ends."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from dgent.errors import Closed
from dgent.model.datum import Datum
from dgent.store.backend import Committed, View
from dgent.store.engine import read
from dgent.store.engine.check import check_seq
from dgent.store.engine.commit import Ledger, Prepared
from dgent.store.engine.embedded import EmbeddedBackend
from dgent.store.engine.kernel import Reading, Wrap, Writing, no_wrap
from dgent.store.memory.kernel import MemoryKernel

R = TypeVar("R")


class MemoryBackend(EmbeddedBackend):
    """Keeps everything in dictionaries of this process."""

    name = "memory"
    priority = 100

    def __init__(self, wrap: Wrap = no_wrap) -> None:
        self.epoch = os.urandom(8)
        self._kernel: Writing = wrap(MemoryKernel())
        self._ledger = Ledger(self._kernel)
        # The blocking twin reads from other threads while the loop's thread writes.
        self._lock = threading.RLock()
        self._opened = False
        self._changed = asyncio.Event()

    async def is_available(self) -> bool:
        """Return True: memory is always there."""
        return True

    async def open(self) -> None:
        """Start; there is nothing to open."""
        if self._opened:
            raise Closed("this memory store is open already", hint="make another backend")
        self._opened = True

    async def close(self) -> None:
        """Refuse further use; the data goes with the object."""
        self._opened = False
        self._wake()

    def _read_now(self, work: Callable[[Reading], R]) -> R:
        self._check_open()
        with self._lock:
            return work(self._kernel)

    async def _read(self, work: Callable[[Reading], R]) -> R:
        return self._read_now(work)

    async def _write(self, work: Callable[[Ledger], R]) -> R:
        self._check_open()
        with self._lock:
            result = work(self._ledger)
        self._wake()
        return result

    def _wake(self) -> None:
        """Wake everyone who waits for a commit."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _commit(self, prepared: Prepared, view: View) -> Committed:
        return await self._write(lambda ledger: ledger.commit(prepared, view))

    def get_now(self, id: str, lazy: bool = False) -> Datum | None:
        """Return the live version, read on this thread without an event loop."""
        if lazy:
            return self._read_now(lambda reading: read.get_lazily(reading, id))
        return self._read_now(lambda reading: read.get(reading, id, None))

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or when time is up."""
        check_seq(since, "since")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            self._check_open()
            left = deadline - loop.time()
            if self._kernel.tip.seq > since or left <= 0:
                return self._kernel.tip.seq
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    def _check_open(self) -> None:
        if not self._opened:
            raise Closed("this memory store is not open")
