"""Atomic folders: built under a temporary name, synced, then renamed.

An unfinished folder has a marker file that is locked while its process lives, which distinguishes a folder
that is being built from one that a crash left behind. The marker is renamed when the folder is finished, and
deleted when the folder has its final name.
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
from dgent.system.files import disk_errors, is_at, sync, try_lock
from dgent.system.progress import ProgressReporter
from dgent.system.threads import Stopped

MARKER, FINISHED = ".dgent-unfinished", ".dgent-finished"
PARTIAL, RESTORING, MAKING, DELETING = ".partial", ".restoring", ".making", ".deleting"
BACKUPS = "backups"
CHUNK = 1 << 20
_AT_FDCWD, _RENAME_EXCHANGE, _RENAME_SWAP = -100, 2, 2


class _Cancelled(Exception):
    """The caller of work on a thread was cancelled; never raised to a caller."""


# -- paths and errors ---------------------------------------------------------------------


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn OSError into DgentError; errors of a pipe or a time limit are not about a path and pass."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        with disk_errors(str(path)):
            raise error


def check_path(path: Path, field: str) -> Path:
    """Return the path; raises InputError unless it can be written as UTF-8 without NUL."""
    try:
        fine = b"\0" not in str(path).encode()
    except UnicodeEncodeError:
        fine = False
    if not fine:
        shown = str(path).encode("utf-8", "backslashreplace").decode()
        raise InputError(f"{shown!r} is not a path in UTF-8", hint="give another path", field=field)
    return path


# -- unfinished folders -------------------------------------------------------------------


@contextmanager
def build_folder(place: Path, taken: type[DgentError] = Busy) -> Iterator[Path]:
    """Create a folder under a temporary name; it is deleted at the end unless it was renamed.

    A folder that a crash left under that name is deleted if it has the marker, and otherwise renamed: without
    a marker it is a complete store. Raises `taken` while another process is building it.
    """
    with translate_errors(place):
        handle = _begin(place, taken)
    try:
        yield place
    finally:
        if is_at(handle, place / MARKER) or is_at(handle, place / FINISHED):
            _remove(place)
        os.close(handle)


def _begin(place: Path, taken: type[DgentError]) -> int:
    """Create the folder and its marker; return the handle that keeps the marker locked."""
    if not _clear(place):
        raise _make_busy_error(place, taken)
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        raise _make_busy_error(place, taken) from None
    handle = -1
    try:
        handle = os.open(place / MARKER, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        # Until it is locked, it looks like one that a crash left, and may be deleted as such.
        if try_lock(handle) and is_at(handle, place / MARKER):
            return handle
    except (FileNotFoundError, FileExistsError):
        pass
    except BaseException:
        with suppress(OSError):
            place.rmdir()
        raise
    if handle >= 0:
        os.close(handle)
    raise _make_busy_error(place, taken)


def _make_busy_error(place: Path, taken: type[DgentError]) -> DgentError:
    return taken(f"{place} is being written by another process", hint="wait for it to end")


def publish_folder(new: Path, target: Path) -> None:
    """Rename a finished folder to its final name, which must be free or an empty folder."""
    _finish(new)
    with translate_errors(target):
        try:
            new.rename(target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR) and os.path.lexists(target):
                raise Conflict(f"{target} was created meanwhile", hint="give another name") from None
            raise
    _remove_marker(target)


def replace_folder(new: Path, folder: Path) -> Path:
    """Put a finished folder in the place of another; return the new path of the other."""
    kept = free_name(folder, "before")
    _finish(new)
    swap_folders(new, folder)
    with translate_errors(kept):
        new.rename(kept)
    _remove_marker(folder)
    return kept


def _finish(new: Path) -> None:
    """Rename the marker: from here on a crash leaves a finished folder."""
    with translate_errors(new):
        os.rename(new / MARKER, new / FINISHED)
    sync(str(new))


def _remove_marker(target: Path) -> None:
    """Delete the marker of a folder that has its final name, and sync its parent."""
    with suppress(OSError):
        os.unlink(target / FINISHED)
    sync(str(target.parent))


def _clear(place: Path) -> bool:
    """Free the temporary name of a folder; False while another process is building one there."""
    if not os.path.lexists(place):
        return True
    if place.is_symlink() or not place.is_dir():
        raise InputError(f"{place} is in the way", hint="move it elsewhere")
    with _lock_marker(place) as free:
        if not free:
            return False
        if _is_removable(place):
            _remove(place)
            return True
        try:
            with suppress(FileNotFoundError):
                place.rmdir()
        except OSError:
            place.rename(free_name(place, "left"))
    return True


def _is_removable(place: Path) -> bool:
    """Check whether a folder can be deleted: it is unfinished, or a finished copy without its final name."""
    return (place / MARKER).exists() or (place.name.endswith(MAKING) and (place / FINISHED).exists())


@contextmanager
def _lock_marker(place: Path) -> Iterator[bool]:
    """Lock the marker of a folder, if it has one; yield False if its process is still alive."""
    with ExitStack() as held:
        for name in (MARKER, FINISHED):
            with suppress(FileNotFoundError):
                handle = os.open(place / name, os.O_RDWR)
                held.callback(os.close, handle)
                if not (try_lock(handle) and is_at(handle, place / name)):
                    yield False
                    return
        yield True


def _remove(place: Path) -> None:
    """Delete a folder as far as possible, its marker last, so that a rest still counts as leftover."""
    with suppress(OSError):
        for entry in os.scandir(place):
            if entry.name not in (MARKER, FINISHED):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)
        if not set(os.listdir(place)) - {MARKER, FINISHED}:
            shutil.rmtree(place, ignore_errors=True)


def find_leftovers(folder: Path) -> list[Path]:
    """Return folders left by killed processes, beside a constellation and among the backups."""
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
    """Delete leftovers, checking each again; return those that were deleted."""
    gone: list[Path] = []
    for path in paths:
        if _is_leftover(path):
            with translate_errors(path), _lock_marker(path) as free:
                if free and _is_removable(path):
                    _remove(path)
            if not os.path.lexists(path):
                gone.append(path)
    return gone


def _is_leftover(path: Path) -> bool:
    if not path.name.endswith((PARTIAL, RESTORING, MAKING, DELETING)) or path.is_symlink():
        return False
    try:
        with _lock_marker(path) as free:
            return free and _is_removable(path)
    except OSError:
        return False


def free_name(place: Path, why: str) -> Path:
    """Return a free name beside a folder, with the time in it."""
    stem = place.name.removesuffix(RESTORING).removesuffix(PARTIAL)
    base = f"{stem}.{why}-{clock.now():%Y%m%dT%H%M%S%f}Z"
    return place.with_name(base)


def swap_folders(new: Path, old: Path) -> None:
    """Swap two folders, atomically where the system can."""
    with translate_errors(old):
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
    """Swap two folders atomically; False if the system or the file system cannot."""
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


def hash_file(path: Path, pace: ProgressReporter, stopped: Stopped) -> tuple[int, str]:
    """Return size and SHA-256 of a plain file."""
    return _read_and_copy(path, None, pace, stopped)


def copy_file(source: Path, target: Path, pace: ProgressReporter, stopped: Stopped) -> tuple[int, str]:
    """Copy a plain file to a new synced one, readable by its owner only; return size and SHA-256."""
    make_folders(target.parent)
    return _read_and_copy(source, target, pace, stopped)


def make_folders(folder: Path) -> None:
    """Create a folder and its parents, accessible by their owner only."""
    with translate_errors(folder):
        if not folder.is_dir():
            make_folders(folder.parent)
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)


def _read_and_copy(
    source: Path, target: Path | None, pace: ProgressReporter, stopped: Stopped
) -> tuple[int, str]:
    if in_use_here(str(source)):
        raise Busy(f"{source} is in use by this process", hint="close it first", pid=os.getpid())
    hashed, size, out = hashlib.sha256(), 0, -1
    with translate_errors(target or source):
        here = os.open(source, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            if not stat.S_ISREG(os.fstat(here).st_mode):
                raise Corrupt(f"{source} is not a plain file")
            if target is not None:
                out = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            while chunk := os.read(here, CHUNK):
                hashed.update(chunk)
                size += len(chunk)
                write_all(out, chunk)
                pace.add(len(chunk))
                if stopped():
                    raise _Cancelled
            if out >= 0:
                os.fsync(out)
        finally:
            os.close(here)
            if out >= 0:
                os.close(out)
    return size, hashed.hexdigest()


def write_all(handle: int, chunk: bytes) -> None:
    """Write all of a chunk to a handle; do nothing if the handle is negative."""
    left = memoryview(chunk)
    while handle >= 0 and left:
        left = left[os.write(handle, left) :]


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield every file under a folder; anything that is neither file nor folder is refused."""
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in [*folders, *sorted(files)]:
            path = Path(place, name)
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue  # deleted meanwhile, so nothing refers to it any more
            if stat.S_ISREG(mode):
                yield path
            elif not stat.S_ISDIR(mode):
                raise InputError(f"{path} is neither a file nor a folder", hint="move it elsewhere")


def sync_folders(folder: Path) -> None:
    """Wait until all names under a folder are on the disk."""
    for place, _, _ in os.walk(folder):
        sync(place)
