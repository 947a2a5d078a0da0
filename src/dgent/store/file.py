"""A file, as the engines ask the system about it: who has it locked, whether it is still there, its size."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

if sys.platform != "win32":
    import fcntl


LITTLE = 1 << 20  # bytes; a commit needs some room for its log and the index of that

_GET_VERSION = 0x80087601  # FS_IOC_GETVERSION


class Lock(NamedTuple):
    """A lock that a process holds on a file, from one byte to another, or to the end."""

    kind: str
    mode: str
    pid: int
    first: int
    last: int | None


def try_lock(handle: int) -> bool:
    """Lock an open file against other processes, without waiting; False when one of them has it.

    The system ends the lock with its process. Where it has no such locks, everyone gets one: whoever
    cannot do without must not run there.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_at(handle: int, path: str | os.PathLike[str]) -> bool:
    """Whether a path still leads to the file that is open."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def locks_on(path: str) -> Iterator[Lock]:
    """The locks that are held on a file, where the system tells.

    By stat and /proc only: to open and close one of SQLite's files would drop this process's own locks.
    """
    try:
        inode = os.stat(path).st_ino
        with open("/proc/locks", encoding="ascii") as lines:
            for line in lines:
                parts = line.split()
                if len(parts) >= 8 and parts[5].endswith(f":{inode}"):
                    last = None if parts[7] == "EOF" else int(parts[7])
                    yield Lock(parts[1], parts[3], int(parts[4]), int(parts[6]), last)
    except (OSError, ValueError):
        return


def generation(handle: int) -> int:
    """A number that an open file does not share with one that had its inode before; 0 where none is known."""
    if sys.platform != "linux":
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(handle, _GET_VERSION, bytes(8)), sys.byteorder)
    except OSError:
        return 0


def is_alive(pid: int) -> bool:
    """Whether a process is running on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is another user's
    return True


def size(path: str) -> int:
    """The size of a file in bytes; 0 when there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def is_full(path: str) -> bool:
    """Whether the disk that a file is on has hardly any room left, where the system tells."""
    try:
        found = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except (OSError, AttributeError):
        return False
    return found.f_bavail * found.f_frsize < LITTLE
