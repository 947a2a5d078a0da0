"""Report how far long work has come, about ten times a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the work done and its total (None: not known), about ten times a second, on any thread."""


TICK_S = 0.1


class ProgressReporter:
    """Reports progress about ten times a second, and always its end."""

    def __init__(self, progress: Progress | None, total: int | None = None) -> None:
        self.total = total
        self._progress = progress
        self.done = 0
        self._due = 0.0

    def add(self, done: int) -> None:
        """Report so much more done."""
        self.at(self.done + done)

    def at(self, done: int) -> None:
        """Report so much done in all."""
        self.done = done
        if self._progress is None:
            return
        now = time.monotonic()
        if now >= self._due:
            self._due = now + TICK_S
            self._progress(done, self.total)

    def end(self) -> None:
        """Report the end, also where the total was a guess."""
        if self._progress is not None:
            self._progress(self.done, self.done)
