"""The folder on the disk: reading its files, writing them whole, and one sync at a time.

No link is followed, so nothing outside of the folder is read or written.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dgent.blocks.folder.format import MAX_BYTES, MAX_DEPTH, SUFFIXES, normalize_name
from dgent.blocks.folder.state import SHARED, digest
from dgent.errors import Busy, InputError, StorageFull, Unavailable
from dgent.system.directory import LINK, NO_LINK, Directory, LinkInside
from dgent.system.files import try_lock

OWN = ".blocks"
LEDGER, LOCK = "ledger.json", "lock"
ASIDE = ".mine"
_IGNORE = "# What this folder knows of the store it was written from; it belongs to this copy alone.\n*\n"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_FOLDER = (FileNotFoundError, NotADirectoryError, LinkInside)
_PART = ".part"
_PLAIN = NO_LINK | getattr(os, "O_BINARY", 0)
_POLL_S = 0.02


@dataclass(frozen=True)
class FolderFile:
    """A file of the folder: its bytes, or the problem with it."""

    name: str
    content: bytes = b""
    problem: str = ""

    @property
    def digest(self) -> str:
        """The digest of its bytes."""
        return digest(self.content)

    @property
    def place(self) -> str:
        """Its name without the suffix."""
        return self.name[: self.name.rindex(".")]

    @property
    def suffix(self) -> str:
        """The suffix of its name, with the dot."""
        return self.name[self.name.rindex(".") :]


class Disk:
    """A folder whose files are named by their path with /; usable between `open` and `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._inside = Directory(folder)

    # -- reading ----------------------------------------------------------------------------

    def scan(self) -> list[FolderFile]:
        """Return every file that may be a block's content or its header."""
        found = []
        for name in (*self._walk("", MAX_DEPTH), *self._list_shared()):
            readable = name.encode(errors="backslashreplace").decode()
            file = (
                self.read(name) if readable == name else FolderFile(readable, problem="its name is not UTF-8")
            )
            found += [] if file is None else [file]
        return found

    def obstacles(self, names: Iterable[str]) -> list[FolderFile]:
        """Return those of some files that are not files, or that are behind a link."""
        found = [self.read(name) for name in sorted(names)]
        return [file for file in found if file is not None and file.problem]

    def _list_shared(self) -> Iterator[str]:
        for owner in self._folders(SHARED):
            yield from self._walk(f"{SHARED}/{owner}", MAX_DEPTH)

    def _walk(self, below: str, depth: int) -> Iterator[str]:
        """Yield the names of files in a folder and in the folders below it, which labels have made."""
        yield from self._names(below)
        for name in self._folders(below) if depth > 1 else ():
            if below or normalize_name(name) != SHARED:
                yield from self._walk(f"{below}/{name}" if below else name, depth - 1)

    def _folders(self, name: str) -> list[str]:
        with suppress(*_NO_FOLDER), self._inside.entries(name) as found:
            return sorted(
                each.name for each in found if each.is_dir(follow_symlinks=False) and each.name[0] != "."
            )
        return []

    def _names(self, below: str) -> list[str]:
        above = f"{below}/" if below else ""
        with suppress(*_NO_FOLDER), self._inside.entries(below) as found:
            return sorted(above + each.name for each in found if _is_ours(each))
        return []

    def read(self, name: str) -> FolderFile | None:
        """Read one file; None when it does not exist."""
        try:
            # Not a link, which may lead anywhere, and not a pipe, which may block.
            with self._inside.at(name) as (at, last):
                handle = os.open(last, os.O_RDONLY | _PLAIN | getattr(os, "O_NONBLOCK", 0), dir_fd=at)
        except FileNotFoundError:
            return None
        except OSError as error:
            is_link = error.errno in (errno.ELOOP, errno.EMLINK)
            return FolderFile(name, problem=LINK if is_link else _describe_error(error))
        if not stat.S_ISREG(os.fstat(handle).st_mode):  # checked first: a folder cannot be opened as a file
            os.close(handle)
            return FolderFile(name, problem="it is not a file")
        with os.fdopen(handle, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return FolderFile(name, problem=f"it has more than {MAX_BYTES} bytes")
        return FolderFile(name, content)

    # -- writing ----------------------------------------------------------------------------

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically; it is on the disk when this returns."""
        self.stage(name, content)
        self.place(name, name)

    def stage(self, key: str, content: bytes) -> None:
        """Write the bytes of a file to a temporary file, to be moved into place later."""
        with self._inside.at(_part(key)) as (at, last):
            with suppress(FileNotFoundError):
                # A file of this name may be hard-linked elsewhere: never write into it.
                os.unlink(last, dir_fd=at)
            handle = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, 0o600, dir_fd=at)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def flush(self) -> None:
        """Flush the names of the staged files to the disk."""
        self._inside.sync(OWN)

    def is_staged(self, key: str) -> bool:
        """Check whether a staged file has not been moved into place yet."""
        return self._inside.exists(_part(key))

    def place(self, key: str, name: str) -> None:
        """Move a staged file into place; that it is no longer staged shows that this was done."""
        with self._inside.at(_part(key)) as (here, part), self._inside.at(name, make=True) as (there, last):
            with suppress(OSError):  # an existing file keeps its mode, a new one is private
                mode = stat.S_IMODE(os.lstat(last, dir_fd=there).st_mode) & 0o777
                handle = os.open(part, os.O_RDONLY | _PLAIN, dir_fd=here)
                try:
                    os.chmod(handle, mode)
                finally:
                    os.close(handle)
            os.replace(part, last, src_dir_fd=here, dst_dir_fd=there)
        self._inside.sync(_folder(name))

    def remove(self, name: str) -> None:
        """Remove a file, and with the last file of a folder that folder."""
        with suppress(FileNotFoundError), self._inside.at(name) as (at, last):
            os.unlink(last, dir_fd=at)
        self._remove_empty(_folder(name))

    def _remove_empty(self, folder: str) -> None:
        """Remove a folder and those above it, as long as they are empty."""
        while folder and folder != SHARED:
            try:
                with self._inside.at(folder) as (at, last):
                    os.rmdir(last, dir_fd=at)
            except OSError:
                return
            folder = _folder(folder)

    def move(self, name: str, to: str) -> None:
        """Rename a file, if it exists; the new name must be free."""
        if not self._inside.exists(name):
            return
        with self._inside.at(name) as (here, old), self._inside.at(to, make=True) as (there, new):
            with suppress(FileNotFoundError):
                if not os.path.samestat(os.lstat(old, dir_fd=here), os.lstat(new, dir_fd=there)):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.rename(old, new, src_dir_fd=here, dst_dir_fd=there)
        self._inside.sync(_folder(to))
        if _folder(to) != _folder(name):
            self._remove_empty(_folder(name))

    def set_aside(self, name: str, content: bytes) -> str:
        """Keep bytes beside a file, under a name that is never read; returns that name."""
        number = 1
        while True:
            aside = f"{name}{ASIDE}" + ("" if number == 1 else f"-{number}")
            there = self.read(aside)
            if there is None:
                self.write(aside, content)
            if there is None or (there.content == content and not there.problem):
                return aside
            number += 1

    def load(self) -> bytes | None:
        """Return the bytes of the ledger; None when there is none."""
        found = self.read(f"{OWN}/{LEDGER}")
        if found is not None and found.problem:
            raise Unavailable(f"{self.folder / OWN / LEDGER} cannot be read: {found.problem}")
        return None if found is None else found.content

    def save(self, content: bytes) -> None:
        """Write the bytes of the ledger."""
        with translate_errors(self.folder):
            self.write(f"{OWN}/{LEDGER}", content)

    # -- opening and closing ------------------------------------------------------

    def open(self, make: bool) -> None:
        """Open the folder; `make` creates it, with the subfolder for the ledger."""
        with translate_errors(self.folder):
            if make:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif not self.folder.exists():
                return
            self._inside.open()
            try:
                if make:
                    with self._inside.at(f"{OWN}/.", make=True):
                        pass
            except OSError as error:
                self.close()
                if error.errno == errno.ELOOP:
                    raise InputError(f"{self.folder / OWN} is a link", hint="remove it") from None
                raise

    def close(self) -> None:
        """Close the folder."""
        self._inside.close()

    def open_lock(self) -> int:
        """Open the file that is locked by one sync at a time."""
        with translate_errors(self.folder), self._inside.at(f"{OWN}/{LOCK}") as (at, last):
            return os.open(last, os.O_RDWR | os.O_CREAT | _PLAIN, 0o600, dir_fd=at)

    def tidy(self) -> None:
        """Remove staged files that are no longer needed, and write a .gitignore for the ledger's folder."""
        with translate_errors(self.folder):
            with self._inside.entries(OWN) as found:
                left = [each.name for each in found if each.name.endswith(_PART)]
            for name in left:
                with suppress(FileNotFoundError), self._inside.at(f"{OWN}/{name}") as (at, last):
                    os.unlink(last, dir_fd=at)
            if not self._inside.exists(f"{OWN}/.gitignore"):
                self.write(f"{OWN}/.gitignore", _IGNORE.encode())


@asynccontextmanager
async def lock_folder(disk: Disk, wait_s: float) -> AsyncIterator[None]:
    """Keep other syncs out of the folder; raises Busy when one does not end in time."""
    until = time.monotonic() + wait_s
    handle = disk.open_lock()
    try:
        while not try_lock(handle):
            if time.monotonic() >= until:
                raise Busy(f"another sync of {disk.folder} did not end within {wait_s:g} s")
            await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)


@asynccontextmanager
async def skip_lock() -> AsyncIterator[None]:
    """Replace `lock_folder` when nothing is changed."""
    yield


class translate_errors:
    """Turns an OSError about the folder itself into an error of dgent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            kind = StorageFull if error.errno in _FULL else Unavailable
            raise kind(f"the folder {self._folder} cannot be used: {_describe_error(error)}") from None


def _is_ours(found: os.DirEntry[str]) -> bool:
    """Check whether a name is that of a block's file, and not one that editors leave behind."""
    name = found.name
    return (
        name[0] not in ".~#"
        and name.endswith((*SUFFIXES, ".toml"))
        and not found.is_dir(follow_symlinks=False)
    )


def _describe_error(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _folder(name: str) -> str:
    """Return the folder that a file is in."""
    return name.rpartition("/")[0]


def _part(key: str) -> str:
    """Return the name of the temporary file of a staged file."""
    return f"{OWN}/{digest(key.encode())[:32]}{_PART}"
