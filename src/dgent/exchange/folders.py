"""Folders that appear whole or not at all: made beside their place, synced, then renamed.

A folder under way holds a marker that is locked as long as its maker lives. So whoever comes next
can tell a folder that someone is making now from one that a crash left behind. The marker changes its
name when the folder is finished, and goes when the folder has its own name.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dgent import clock
from dgent.errors import Busy, Conflict, Corrupt, DgentError, InputError
from dgent.store.sqlite.upkeep import in_use_here
from dgent.system import files as file
from dgent.system.files import disk_errors, sync
from dgent.system.progress import ProgressReporter
from dgent.system.threads import Stopped

MARKER, FINISHED = ".dgent-unfinished", ".dgent-finished"
PARTIAL, RESTORING, MAKING, DELETING = ".partial", ".restoring", ".making", ".deleting"
BACKUPS = "backups"
CHUNK = 1 << 20
_AT_FDCWD, _RENAME_EXCHANGE, _RENAME_SWAP = -100, 2, 2


class _Cut(Exception):
    """The caller of work on a thread is gone; never seen outside."""


# -- paths and errors ---------------------------------------------------------------------


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn errors of the file system into ours; those of a pipe or a time limit are not about a path."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        with disk_errors(str(path)):
            raise error


def usable(path: Path, field: str) -> Path:
    """The path as it is; InputError when it is no text, so that it could be neither told nor written down."""
    try:
        fine = b"\0" not in str(path).encode()
    except UnicodeEncodeError:
        fine = False
    if not fine:
        told = str(path).encode("utf-8", "backslashreplace").decode()
        raise InputError(f"{told!r} is not a path in UTF-8", hint="give another path", field=field)
    return path


# -- folders under way --------------------------------------------------------------------


@contextmanager
def unfinished(place: Path, taken: type[DgentError] = Busy) -> Iterator[Path]:
    """A new folder under a name for unfinished ones; removed again unless it was moved away.

    What a crash left under that name is removed if it carries the marker, and otherwise kept under
    another name: without a marker it is a store that was complete. `taken` is raised when another
    process is making it.
    """
    with translated(place):
        handle = _begin(place, taken)
    try:
        yield place
    finally:
        if file.is_at(handle, place / MARKER) or file.is_at(handle, place / FINISHED):
            _remove(place)
        os.close(handle)


def _begin(place: Path, taken: type[DgentError]) -> int:
    """Make the folder and its marker; the handle that keeps the marker locked."""
    if not _clear(place):
        raise _taken(place, taken)
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        raise _taken(place, taken) from None
    handle = -1
    try:
        handle = os.open(place / MARKER, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        # Until it is locked, it looks like one that a crash left, and may be removed as such.
        if file.try_lock(handle) and file.is_at(handle, place / MARKER):
            return handle
    except (FileNotFoundError, FileExistsError):
        pass
    except BaseException:
        with suppress(OSError):
            place.rmdir()
        raise
    if handle >= 0:
        os.close(handle)
    raise _taken(place, taken)


def _taken(place: Path, taken: type[DgentError]) -> DgentError:
    return taken(f"{place} is being written by another process", hint="wait for it to end")


def put(new: Path, target: Path) -> None:
    """Give a finished folder its name, which nothing has yet, or an empty folder."""
    _finish(new)
    with translated(target):
        try:
            new.rename(target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR) and os.path.lexists(target):
                raise Conflict(f"{target} came to be meanwhile", hint="give another name") from None
            raise
    _settle(target)


def put_instead(new: Path, folder: Path) -> Path:
    """Put a finished folder in the place of another; where that one is now."""
    kept = free_name(folder, "before")
    _finish(new)
    swap(new, folder)
    with translated(kept):
        new.rename(kept)
    _settle(folder)
    return kept


def _finish(new: Path) -> None:
    """Change the marker: from here on a crash leaves a folder that is not taken for half of one."""
    with translated(new):
        os.rename(new / MARKER, new / FINISHED)
    sync(str(new))


def _settle(target: Path) -> None:
    """The folder has its name: on disk, and without a marker."""
    with suppress(OSError):
        os.unlink(target / FINISHED)
    sync(str(target.parent))


def _clear(place: Path) -> bool:
    """Make room under a name for unfinished folders; False when somebody is making one there."""
    if not os.path.lexists(place):
        return True
    if place.is_symlink() or not place.is_dir():
        raise InputError(f"{place} is in the way", hint="move it elsewhere")
    with _owned(place) as free:
        if not free:
            return False
        if _half(place):
            _remove(place)
            return True
        try:
            with suppress(FileNotFoundError):
                place.rmdir()
        except OSError:
            place.rename(free_name(place, "left"))
    return True


def _half(place: Path) -> bool:
    """Whether nobody can miss it: it was never finished, or nobody was told of it and it was a copy."""
    return (place / MARKER).exists() or (place.name.endswith(MAKING) and (place / FINISHED).exists())


@contextmanager
def _owned(place: Path) -> Iterator[bool]:
    """Hold the marker of a folder, if it has one, so that its maker is known to be gone."""
    with ExitStack() as held:
        for name in (MARKER, FINISHED):
            with suppress(FileNotFoundError):
                handle = os.open(place / name, os.O_RDWR)
                held.callback(os.close, handle)
                if not (file.try_lock(handle) and file.is_at(handle, place / name)):
                    yield False
                    return
        yield True


def _remove(place: Path) -> None:
    """Remove a folder as far as possible, its marker last: what is left then still is a leftover."""
    with suppress(OSError):
        for entry in os.scandir(place):
            if entry.name not in (MARKER, FINISHED):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)
        if not set(os.listdir(place)) - {MARKER, FINISHED}:
            shutil.rmtree(place, ignore_errors=True)


def leftovers(folder: Path) -> list[Path]:
    """What was killed while it was being made or deleted, beside a constellation and among the backups."""
    beside = Path(os.path.abspath(folder)).parent
    found: list[Path] = []
    for place in (beside, beside.parent / BACKUPS):
        try:
            names = sorted(os.listdir(place))
        except OSError:
            continue
        found += [place / name for name in names if _is_leftover(place / name)]
    return found


def clear_leftovers(paths: Iterable[Path]) -> list[Path]:
    """Remove leftovers, each looked at again; those that are gone now."""
    gone: list[Path] = []
    for path in paths:
        if _is_leftover(path):
            with translated(path), _owned(path) as free:
                if free and _half(path):
                    _remove(path)
            if not os.path.lexists(path):
                gone.append(path)
    return gone


def _is_leftover(path: Path) -> bool:
    if not path.name.endswith((PARTIAL, RESTORING, MAKING, DELETING)) or path.is_symlink():
        return False
    try:
        with _owned(path) as free:
            return free and _half(path)
    except OSError:
        return False


def free_name(place: Path, why: str) -> Path:
    """A name beside a folder that nothing has yet, with the time in it."""
    stem = place.name.removesuffix(RESTORING).removesuffix(PARTIAL)
    base = f"{stem}.{why}-{clock.now():%Y%m%dT%H%M%S%f}Z"
    return place.with_name(base)


def swap(new: Path, old: Path) -> None:
    """Let two folders trade places, in one step where the system can."""
    with translated(old):
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


def digest(path: Path, pace: ProgressReporter, stopped: Stopped) -> tuple[int, str]:
    """Size and SHA-256 of a plain file."""
    return _pass_through(path, None, pace, stopped)


def copy(source: Path, target: Path, pace: ProgressReporter, stopped: Stopped) -> tuple[int, str]:
    """Copy a plain file to a new one, for its owner only, on disk when this returns; size and SHA-256."""
    make_folders(target.parent)
    return _pass_through(source, target, pace, stopped)


def make_folders(folder: Path) -> None:
    """A folder and those above it, for their owner only."""
    with translated(folder):
        if not folder.is_dir():
            make_folders(folder.parent)
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)


def _pass_through(
    source: Path, target: Path | None, pace: ProgressReporter, stopped: Stopped
) -> tuple[int, str]:
    if in_use_here(str(source)):
        raise Busy(f"{source} is in use by this process", hint="close it first", pid=os.getpid())
    hashed, size, out = hashlib.sha256(), 0, -1
    with translated(target or source):
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
