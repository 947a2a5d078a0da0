"""Folders for tests, in memory where there is room."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from tests.soak import SOAK

MEMORY = Path("/dev/shm")
ROOM = 1 << 30  # a test needs some megabytes


@cache
def find_memory(room: int = ROOM) -> Path | None:
    """Return a place for folders in memory; None where there is no room, and for a long look."""
    if SOAK > 1 or not os.access(MEMORY, os.W_OK | os.X_OK) or shutil.disk_usage(MEMORY).free < room:
        return None
    return MEMORY


@pytest.fixture
def memory() -> Path | None:
    """A place for folders in memory, where there is one."""
    return find_memory()


@pytest.fixture
def tmp_path(memory: Path | None) -> Iterator[Path]:
    """A folder for a test. Rules need not wait for the disk; what a disk does is tested in tests/fault."""
    folder = tempfile.TemporaryDirectory(prefix="dgent-test-", dir=memory)
    yield Path(folder.name)
    for _ in range(50):  # a program that a test killed may end a moment after it, and write until then
        with suppress(OSError):
            return folder.cleanup()
        time.sleep(0.1)
    folder.cleanup()


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """The folder of the test, by the name of what it is for."""
    return tmp_path
