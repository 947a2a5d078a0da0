"""Keeps those who write from outrunning a replay, which would then never come to an end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

SHARE = 2  # commits that a replay does for each one that may be added


class Pace:
    """While a replay runs, one commit may be kept for every two that it has done: it halves each time."""

    def __init__(self) -> None:
        self._running = 0
        self._done = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextmanager
    def running(self) -> Iterator[None]:
        """A replay is under way; whoever waits is let go when it ends, however it ends."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                while self._waiting:
                    self._let_one_go()

    def step(self) -> None:
        """A replay has done one more commit."""
        self._done += 1
        if self._done % SHARE == 0:
            self._let_one_go()

    async def turn(self) -> None:
        """Wait until one more commit may be kept; not at all while nothing is replayed."""
        if self._running:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def _let_one_go(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its caller was cancelled
                turn.set_result(None)
                return
