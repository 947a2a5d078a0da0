"""Standard input and output as a program's own, which others in the process cannot touch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def divert(standard: int, path: str | None) -> Iterator[int]:
    """Give a private copy of a standard file, which is another one meanwhile: at a path, or error output."""
    private = os.dup(standard)
    try:
        other = os.dup(2) if path is None else os.open(path, os.O_RDONLY)
        os.dup2(other, standard)
        os.close(other)
        yield private
    finally:
        os.dup2(private, standard)
        os.close(private)
