"""Folders for stores whose files no test looks at."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak import SOAK

MEMORY = Path("/dev/shm")
ROOM = 1 << 30  # a test needs some megabytes


@pytest.fixture(scope="session")
def memory() -> Iterator[Path | None]:
    """A folder in memory, where there is room; a long look stays on the disk."""
    if SOAK > 1 or not os.access(MEMORY, os.W_OK | os.X_OK) or shutil.disk_usage(MEMORY).free < ROOM:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="dgent-test-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def store_path(request: pytest.FixtureRequest, memory: Path | None) -> Iterator[Path]:
    """A folder for a store, in memory: rules that hold on every engine need not wait for the disk.

    A test that asks for `tmp_path` too looks at files, and has its store there, on the disk.
    """
    if memory is None or "tmp_path" in request.fixturenames:
        yield request.getfixturevalue("tmp_path")
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)
