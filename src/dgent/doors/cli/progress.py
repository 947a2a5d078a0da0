"""A line on standard error for work that takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType

AFTER_S = 1.0
EVERY_S = 0.1
_CELLS = 24


class Bar:
    """How much is done, how fast, and how long it will still take; nothing when nobody watches."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._began = time.monotonic()
        self._shown = 0.0
        self._watched = sys.stderr.isatty()

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def report(self, done: int, total: int | None) -> None:
        """Show how far the work is; called as often as the work likes."""
        now = time.monotonic()
        if not self._watched or now - self._began < AFTER_S or now - self._shown < EVERY_S:
            return
        self._shown = now
        sys.stderr.write(f"\r\x1b[K{line(self.name, done, total, now - self._began)}")
        sys.stderr.flush()

    def close(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = 0.0


def line(name: str, done: int, total: int | None, took_s: float) -> str:
    """One line of progress."""
    rate = done / took_s if took_s > 0 else 0.0
    if not total:
        return f"{name} {done:,}  {rate:,.0f}/s"
    part = min(done / total, 1.0)
    full = round(part * _CELLS)
    left = f"{_lasting((total - done) / rate)} left" if rate and done < total else "nearly done"
    bar = "#" * full + "." * (_CELLS - full)
    return f"{name} {bar} {part:4.0%}  {done:,} of {total:,}  {rate:,.0f}/s  {left}"


def _lasting(seconds: float) -> str:
    whole = max(int(seconds), 0)
    return f"{whole} s" if whole < 100 else f"{whole // 60} min" if whole < 6000 else f"{whole // 3600} h"
