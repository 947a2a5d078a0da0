"""A folder held open by its descriptor: names below it are resolved step by step, without links.

A path is looked up again each time it is used, and a part of it may have become a link by then. A descriptor
stays with the folder it was opened for: nothing outside of it is read, written, moved or removed.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_BY_DESCRIPTOR = os.open in os.supports_dir_fd
NEVER = "\0\\:" if os.name == "nt" else "\0"
LINK = "it is a link, which is not followed"


class LinkInside(OSError):
    """A step of a path is a link."""

    def __init__(self) -> None:
        super().__init__(errno.ELOOP, LINK)


class Directory:
    """A folder and what is below it, named by relative paths with /."""

    def __init__(self, path: Path, mode: int = 0o700) -> None:
        self.path, self._mode = path, mode  # the mode of folders that are made
        self._handle = -1
        # A thread whose caller was cancelled goes on, and must not use a descriptor that was reused since.
        self._using = threading.RLock()

    def open(self) -> None:
        """Open the folder itself, which may be given by a link; OSError when it does not exist."""
        self._handle = os.open(self.path, _FOLDER) if _BY_DESCRIPTOR else 0

    def close(self) -> None:
        """Close it; calls that still run fail."""
        with self._using:
            handle, self._handle = self._handle, -1
            if _BY_DESCRIPTOR and handle >= 0:
                os.close(handle)

    @contextmanager
    def at(self, name: str, make: bool = False) -> Iterator[tuple[int | None, str]]:
        """Yield the descriptor of the folder of a name, and its last step, for calls with `dir_fd`.

        `make` creates the folders on the way. Raises OSError where a step is a link, missing or not a folder.
        """
        *steps, last = split(name)
        with self._using:
            if self._handle < 0:
                raise FileNotFoundError(errno.ENOENT, "the folder is not there, or not open any more")
            if not _BY_DESCRIPTOR:
                yield None, str(self._check_path(steps, make) / last)
                return
            handle = os.dup(self._handle)
            try:
                for step in steps:
                    inner = _enter(handle, step, self._mode if make else None)
                    os.close(handle)
                    handle = inner
                yield handle, last
            finally:
                os.close(handle)

    @contextmanager
    def entries(self, name: str = "") -> Iterator[Iterator[os.DirEntry[str]]]:
        """Yield the entries of a folder below this one; raises the same errors as `at`."""
        here = self.at(f"{name}/." if name else ".")
        with here as (at, last), os.scandir(last if at is None else at) as found:
            yield found

    def exists(self, name: str) -> bool:
        """Check whether anything has this name, even a link."""
        try:
            with self.at(name) as (at, last):
                os.lstat(last, dir_fd=at)
        except OSError:
            return False
        return True

    def sync(self, name: str = "") -> None:
        """Flush the names in a folder to the disk, where the system can."""
        with suppress(OSError), self.at(f"{name}/." if name else ".") as (at, last):
            handle = os.open(last, _FOLDER, dir_fd=at)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def _check_path(self, steps: list[str], make: bool) -> Path:
        """Resolve the steps by paths, for a system without descriptors of folders."""
        here = self.path
        for step in steps:
            here = here / step
            if here.is_symlink():
                raise LinkInside
            if make:
                here.mkdir(mode=self._mode, exist_ok=True)
        return here


def split(name: str) -> list[str]:
    """Split a relative path into steps; OSError for one that could lead out of its folder."""
    steps = name.split("/")
    bad = {"", ".."} if steps[-1] == "." else {"", ".", ".."}
    if bad.intersection(steps) or any(sign in name for sign in NEVER):
        raise OSError(errno.EINVAL, "it is not a path inside of the folder")
    return steps


def _enter(handle: int, step: str, make: int | None) -> int:
    """Return the descriptor of a folder inside another, made with this mode if it is not there."""
    if make is not None:
        with suppress(FileExistsError):
            os.mkdir(step, make, dir_fd=handle)
    try:
        return os.open(step, _FOLDER | NO_LINK, dir_fd=handle)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR) and _is_link(handle, step):
            raise LinkInside from None
        raise


def _is_link(handle: int, step: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(step, dir_fd=handle).st_mode)
    except OSError:
        return False
