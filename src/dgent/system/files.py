"""Private files and folders, file locks and disk space; files that exist keep their permissions."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from dgent.errors import (
    DgentError,
    NoBackendAvailable,
    StorageFull,
    Unavailable,
)

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


def try_lock(handle: int, *, shared: bool = False) -> bool:
    """Lock an open file against other processes, without waiting; False when one of them has it.

    Several may have it `shared`, and then nobody has it alone. The system ends the lock with its process.
    Where it has no such locks, every caller gets one: code that needs a real lock must not run there.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_at(handle: int, path: str | os.PathLike[str]) -> bool:
    """Return whether a path still leads to the file that is open."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def locks_on(path: str) -> Iterator[Lock]:
    """Yield the locks that are held on a file, where the system reports them.

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
    """Return a number that differs from that of an earlier file with the same inode; 0 if unknown."""
    if sys.platform != "linux":
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(handle, _GET_VERSION, bytes(8)), sys.byteorder)
    except OSError:
        return 0


def is_alive(pid: int) -> bool:
    """Return whether a process is running on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is another user's
    return True


def size(path: str) -> int:
    """Return the size of a file in bytes; 0 when there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def free_bytes(path: str) -> int | None:
    """Return how much room the disk of a file has left; None where the system does not say."""
    try:
        found = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except (OSError, AttributeError):
        return None
    return found.f_bavail * found.f_frsize


def is_full(path: str) -> bool:
    """Return whether the disk of a file has hardly any room left; False where the system does not say."""
    free = free_bytes(path)
    return free is not None and free < LITTLE


FILE, FOLDER = 0o600, 0o700


def make_file(path: str) -> None:
    """Make an empty file, unless there is one; SQLite gives its log the same permissions.

    It gets its name after it was closed: closing a database in a process drops the locks that SQLite holds
    there. Where it cannot be made, nothing happens: the next open reports why.
    """
    if os.path.lexists(path):
        return
    import tempfile  # only a new store needs it

    folder, name = os.path.split(path)
    with suppress(OSError):
        handle, made = tempfile.mkstemp(dir=folder or ".", prefix=f".{name}.")
        os.close(handle)
        try:
            os.link(made, path)
        except FileExistsError:
            pass  # another process was faster
        except OSError:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE))  # no links on this disk
        finally:
            os.unlink(made)


def make_folder(path: str) -> bool:
    """Make a folder and those above it; False when it exists. OSError says why it cannot be made."""
    if os.path.isdir(path):
        return False
    above = os.path.dirname(os.path.abspath(path))
    if above != path:
        make_folder(above)
    try:
        os.mkdir(path, FOLDER)
    except FileExistsError:
        if os.path.isdir(path):  # another process was faster
            return False
        raise
    return True


def sync(path: str) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    with disk_errors(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def disk_errors(place: str) -> Iterator[None]:
    """Translate errors of the file system, like those of the driver."""
    try:
        yield
    except OSError as error:
        raise _our(error, place) from error


def _our(error: OSError, place: str) -> DgentError:
    text = f"{place}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no space left for {place}")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR):
        return NoBackendAvailable(text, hint="does the folder exist, and may you read and write there?")
    if error.errno in (errno.EIO, errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE):
        return Unavailable(text)
    return NoBackendAvailable(text)
