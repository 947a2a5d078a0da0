"""Pause Python's garbage collector while a large batch is made.

A batch adds many objects and drops none, so the collector goes through all of them again and again and finds
nothing: a tenth of the time of a batch.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LARGE = 1_000  # batches of so many records are worth a pause

_lock = threading.Lock()
_pauses = 0  # how many are under way, on all threads
_resume = False  # whether the collector was on before the first of them


@contextmanager
def pause(size: int) -> Iterator[None]:
    """Keep the collector off inside `with`, for a batch of so many records; a small one leaves it alone."""
    global _pauses, _resume
    if size < LARGE:
        yield
        return
    with _lock:
        if not _pauses:
            _resume = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses and _resume:
                gc.enable()
