"""Folders that appear whole or not at all: made beside their place, synced, then renamed.

A folder under way holds a marker that is locked as long as its maker lives. So whoever comes next
can tell a folder that someone is making now from one that a crash left behind.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dgent import clock
from dgent.errors import Busy, Corrupt, InputError
from dgent.store.sqlite.upkeep import Stopped, disk_errors, in_use_here, sync
from dgent.store.upkeep import Pace

if sys.platform != "win32":
    import fcntl

MARKER = ".dgent-unfinished"
CHUNK = 1 << 20
_AT_FDCWD, _RENAME_EXCHANGE, _RENAME_SWAP = -100, 2, 2


class _Cut(Exception):
    """The caller of work on a thread is gone; never seen outside."""


@contextmanager
def unfinished(place: Path) -> Iterator[Path]:
    """A new folder under a name for unfinished ones; removed again unless it was moved away.

    What a crash left under that name is removed if it carries the marker, and otherwise kept under
    another name: without a marker it is a store that was complete.
    """
    with disk_errors(str(place)):
        _clear(place)
        place.mkdir(mode=0o700)
        handle = os.open(place / MARKER, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        with disk_errors(str(place)):
            _lock(handle)
        yield place
    finally:
        if (place / MARKER).exists():
            shutil.rmtree(place, ignore_errors=True)
        os.close(handle)


def put(new: Path, target: Path) -> None:
    """Give a finished folder its name, which nothing has yet, or an empty folder."""
    _finish(new)
    try:
        with disk_errors(str(target)):
            new.rename(target)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    sync(str(target.parent))


def put_instead(new: Path, folder: Path) -> Path:
    """Put a finished folder in the place of another; where that one is now."""
    kept = free_name(folder, "before")
    _finish(new)
    try:
        swap(new, folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    with disk_errors(str(kept)):
        new.rename(kept)
    sync(str(folder.parent))
    return kept


def _finish(new: Path) -> None:
    """Take the marker away: from here on a crash leaves a folder that is never removed as a leftover."""
    with disk_errors(str(new)):
        os.unlink(new / MARKER)
    sync(str(new))


def _clear(place: Path) -> None:
    if not os.path.lexists(place):
        return
    if place.is_symlink() or not place.is_dir():
        raise InputError(f"{place} is in the way", hint="move it elsewhere")
    marker = place / MARKER
    if not marker.exists():
        if os.listdir(place):
            place.rename(free_name(place, "left"))
        else:
            place.rmdir()
        return
    handle = os.open(marker, os.O_RDWR)
    try:
        _lock(handle)
        shutil.rmtree(place)
    except BlockingIOError:
        raise Busy(f"{place} is being written by another process", hint="wait for it to end") from None
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    if sys.platform != "win32":
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def free_name(place: Path, why: str) -> Path:
    """A name beside a folder that nothing has yet, with the time in it."""
    stem = place.name.removesuffix(".restoring").removesuffix(".partial")
    base = f"{stem}.{why}-{clock.now():%Y%m%dT%H%M%S%f}Z"
    return place.with_name(base)


def swap(new: Path, old: Path) -> None:
    """Let two folders trade places, in one step where the system can."""
    with disk_errors(str(old)):
        if _exchange(new, old):
            return
        aside = free_name(old, "before")
        old.rename(aside)
        try:
            new.rename(old)
        except BaseException:
            aside.rename(old)
            raise
        aside.rename(new)


def _exchange(one: Path, other: Path) -> bool:
    """Whether the system has a call for it and its file system knows it."""
    if sys.platform == "win32":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if hasattr(libc, "renameat2"):
        done = libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    elif hasattr(libc, "renamex_np"):
        done = libc.renamex_np(*names, _RENAME_SWAP)
    else:
        return False
    if done == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


# -- files --------------------------------------------------------------------------------


def digest(path: Path, pace: Pace, stopped: Stopped) -> tuple[int, str]:
    """Size and SHA-256 of a plain file."""
    return _pass_through(path, None, pace, stopped)


def copy(source: Path, target: Path, pace: Pace, stopped: Stopped) -> tuple[int, str]:
    """Copy a plain file to a new one, for its owner only, on disk when this returns; size and SHA-256."""
    make_folders(target.parent)
    return _pass_through(source, target, pace, stopped)


def make_folders(folder: Path) -> None:
    """A folder and those above it, for their owner only."""
    if not folder.is_dir():
        make_folders(folder.parent)
        with disk_errors(str(folder)), suppress(FileExistsError):
            folder.mkdir(mode=0o700)


def _pass_through(source: Path, target: Path | None, pace: Pace, stopped: Stopped) -> tuple[int, str]:
    if in_use_here(str(source)):
        raise Busy(f"{source} is in use by this process", hint="close it first", pid=os.getpid())
    hashed, size, out = hashlib.sha256(), 0, -1
    with disk_errors(str(target or source)):
        here = os.open(source, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            if not stat.S_ISREG(os.fstat(here).st_mode):
                raise Corrupt(f"{source} is not a plain file")
            if target is not None:
                out = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            while chunk := os.read(here, CHUNK):
                hashed.update(chunk)
                size += len(chunk)
                write(out, chunk)
                pace.add(len(chunk))
                if stopped():
                    raise _Cut
            if out >= 0:
                os.fsync(out)
        finally:
            os.close(here)
            if out >= 0:
                os.close(out)
    return size, hashed.hexdigest()


def write(handle: int, chunk: bytes) -> None:
    """Write all of a chunk; nowhere if there is no handle."""
    left = memoryview(chunk)
    while handle >= 0 and left:
        left = left[os.write(handle, left) :]


def plain_files(folder: Path) -> Iterator[Path]:
    """Every file under a folder; anything that is neither file nor folder is refused."""
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in [*folders, *sorted(files)]:
            path = Path(place, name)
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue  # removed meanwhile, so nothing refers to it any more
            if stat.S_ISREG(mode):
                yield path
            elif not stat.S_ISDIR(mode):
                raise InputError(f"{path} is neither a file nor a folder", hint="move it elsewhere")


def sync_folders(folder: Path) -> None:
    """Wait until all names under a folder are on the disk."""
    for place, _, _ in os.walk(folder):
        sync(place)
