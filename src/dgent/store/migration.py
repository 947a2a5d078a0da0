"""Tell other processes that a store is being migrated: by a locked file beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from dgent.errors import Busy
from dgent.store.backend import Backend
from dgent.system import files

SUFFIX = ".migrating"


def marker_of(backend: Backend) -> str | None:
    """Return the path of the file that marks a migration; None for a store that is not a file or folder."""
    store: Any = backend
    place: str | None = getattr(store, "folder", None) or getattr(store, "path", None)
    return None if place is None else place + SUFFIX


@contextmanager
def mark_migration(backend: Backend) -> Iterator[None]:
    """Mark a store as being migrated; Busy, naming the process, when another one does that."""
    path = marker_of(backend)
    # Where no file can be made there is no store, or one that cannot be migrated: its own error says more.
    handle = None if path is None else _make(path)
    if path is None or handle is None:
        yield
        return
    try:
        if not files.try_lock(handle):
            raise make_migrating_error(find_migration(backend))
        os.truncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        try:
            yield
        finally:
            with suppress(OSError):
                os.unlink(path)
    finally:
        os.close(handle)


def _make(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, files.FILE)
    except OSError:
        return None


def find_migration(backend: Backend) -> int | None:
    """Return the process that migrates a store now; None when none does. 0 is one that did not say."""
    path = marker_of(backend)
    if path is None or not os.path.exists(path):
        return None
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return None  # it has just ended
    try:
        if files.try_lock(handle):
            return None  # left by a process that was killed
        return int(os.read(handle, 20) or b"0")
    except ValueError:
        return 0
    finally:
        os.close(handle)


def make_migrating_error(pid: int | None) -> Busy:
    """Return the error for a store that another process migrates."""
    who = f"process {pid}" if pid else "another process"
    return Busy(f"{who} is migrating this store", hint="try again when it is done", pid=pid)
