"""The folder on the disk: reading its files, writing them whole, and one sync at a time.

No link is followed, so nothing outside of the folder is read or written.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dgent.blocks.folder.content import MAX_BYTES, SUFFIXES
from dgent.blocks.folder.ledger import digest
from dgent.errors import Busy, InputError, StorageFull, Unavailable
from dgent.store.file import try_lock

OWN, SHARED = ".blocks", "shared"
LEDGER, LOCK = "ledger.json", "lock"
ASIDE = ".mine"
_IGNORE = "# What this folder knows of the store it was written from; it belongs to this copy alone.\n*\n"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_POLL_S = 0.02


@dataclass(frozen=True)
class File:
    """A file of the folder: its bytes, or what is wrong with it."""

    name: str
    content: bytes = b""
    problem: str = ""

    @property
    def digest(self) -> str:
        """What stands for its bytes."""
        return digest(self.content)

    @property
    def place(self) -> str:
        """Its name without what it ends with."""
        return self.name[: self.name.rindex(".")]

    @property
    def suffix(self) -> str:
        """What its name ends with."""
        return self.name[self.name.rindex(".") :]


class Disk:
    """A folder, in which files are named by their path with /."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # -- reading ----------------------------------------------------------------------------

    def scan(self) -> list[File]:
        """Every file that may be a block's content or its card."""
        found = []
        for name in (*self._names(""), *self._shared()):
            told = name.encode(errors="backslashreplace").decode()
            file = self.read(name) if told == name else File(told, problem="its name is not UTF-8")
            found += [] if file is None else [file]
        return found

    def _shared(self) -> Iterator[str]:
        for owner in self._folders(SHARED):
            yield from self._names(f"{SHARED}/{owner}/")

    def _folders(self, name: str) -> list[str]:
        above = self.folder / name
        if above.is_symlink() or not above.is_dir():
            return []
        with os.scandir(above) as found:
            return sorted(
                each.name for each in found if each.is_dir(follow_symlinks=False) and each.name[0] != "."
            )

    def _names(self, below: str) -> list[str]:
        with suppress(FileNotFoundError), os.scandir(self.folder / below) as found:
            return sorted(below + each.name for each in found if _is_ours(each))
        return []

    def read(self, name: str) -> File | None:
        """One file; None when it is not there."""
        path = self.folder / name
        try:
            # Not a link, which may lead anywhere, and not something that has to be waited for.
            handle = os.open(path, os.O_RDONLY | _PLAIN | getattr(os, "O_NONBLOCK", 0))
        except FileNotFoundError:
            return None
        except OSError as error:
            is_link = error.errno in (errno.ELOOP, errno.EMLINK)
            return File(name, problem="it is a link, which is not followed" if is_link else _said(error))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return File(name, problem="it is no file")
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return File(name, problem=f"it has more than {MAX_BYTES} bytes")
        return File(name, content)

    # -- writing ----------------------------------------------------------------------------

    def write(self, name: str, content: bytes) -> None:
        """Put a file in its place, whole; it is on the disk when this returns."""
        self.stage(name, content)
        self.place(name, name)

    def stage(self, key: str, content: bytes) -> None:
        """Have the bytes of a file ready on the disk, to be put in its place at once."""
        part = self._part(key)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _PLAIN, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def flush(self) -> None:
        """Have on the disk which files are ready."""
        _sync(self.folder / OWN)

    def is_staged(self, key: str) -> bool:
        """Whether the bytes of a file are still to be put in its place."""
        return os.path.lexists(self._part(key))

    def place(self, key: str, name: str) -> None:
        """Put a file in its place. That its bytes are not ready any more says that this was done."""
        path, part = self.folder / name, self._part(key)
        self._make(path.parent)
        with suppress(OSError):  # one that was there keeps its rights, a new one is its owner's
            os.chmod(part, stat.S_IMODE(os.stat(path, follow_symlinks=False).st_mode))
        os.replace(part, path)
        _sync(path.parent)

    def _part(self, key: str) -> Path:
        return self.folder / OWN / f"{digest(key.encode())[:32]}.part"

    def remove(self, name: str) -> None:
        """Remove a file, and the folder of another agent with its last one."""
        path = self.folder / name
        with suppress(FileNotFoundError):
            path.unlink()
        if path.parent != self.folder:
            with suppress(OSError):
                path.parent.rmdir()

    def move(self, name: str, to: str) -> None:
        """Give a file another name, if it is there; that must be free."""
        path, other = self.folder / name, self.folder / to
        if not os.path.lexists(path):
            return
        if os.path.lexists(other) and not os.path.samestat(os.lstat(path), os.lstat(other)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._make(other.parent)
        os.rename(path, other)
        _sync(other.parent)

    def set_aside(self, name: str, content: bytes) -> str:
        """Keep bytes beside a file, under a name that is never read; returns it."""
        number = 1
        while True:
            aside = f"{name}{ASIDE}" + ("" if number == 1 else f"-{number}")
            there = self.read(aside)
            if there is None:
                self.write(aside, content)
            if there is None or there.content == content:
                return aside
            number += 1

    def load(self) -> bytes | None:
        """What the folder knows of its files."""
        found = self.read(f"{OWN}/{LEDGER}")
        if found is not None and found.problem:
            raise Unavailable(f"{self.folder / OWN / LEDGER} cannot be read: {found.problem}")
        return None if found is None else found.content

    def save(self, content: bytes) -> None:
        """Keep what the folder knows of its files."""
        with translated(self.folder):
            self.write(f"{OWN}/{LEDGER}", content)

    def prepare(self) -> None:
        """Make the folder, with what it keeps for itself."""
        with translated(self.folder):
            own = self.folder / OWN
            if own.is_symlink():
                raise InputError(f"{own} is a link", hint="remove it")
            own.mkdir(parents=True, exist_ok=True)

    def tidy(self) -> None:
        """Remove what was made ready and is not wanted any more, and keep git away from this."""
        with translated(self.folder):
            own = self.folder / OWN
            for left in own.glob("*.part"):
                left.unlink(missing_ok=True)
            if not (own / ".gitignore").exists():
                self.write(f"{OWN}/.gitignore", _IGNORE.encode())

    def _make(self, folder: Path) -> None:
        for step in (folder.parent, folder):
            if step.is_symlink() and step != self.folder and self.folder in step.parents:
                raise OSError(errno.ELOOP, "it is a link, which is not followed")
        folder.mkdir(parents=True, exist_ok=True)


@asynccontextmanager
async def alone(disk: Disk, wait_s: float) -> AsyncIterator[None]:
    """Keep other syncs out of the folder; Busy when one does not end in time."""
    path = disk.folder / OWN / LOCK
    until = time.monotonic() + wait_s
    with translated(disk.folder):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _PLAIN, 0o600)
    try:
        while not try_lock(handle):
            if time.monotonic() >= until:
                raise Busy(f"another sync of {disk.folder} did not end within {wait_s:g} s")
            await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)


@asynccontextmanager
async def nobody() -> AsyncIterator[None]:
    """What stands for `alone` when nothing is changed."""
    yield


class translated:
    """Turns what the system says about the folder itself into an error of ours."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            kind = StorageFull if error.errno in _FULL else Unavailable
            raise kind(f"the folder {self._folder} cannot be used: {_said(error)}") from None


def _is_ours(found: os.DirEntry[str]) -> bool:
    """Whether a name is that of a block's file; what editors leave behind is not."""
    name = found.name
    return (
        name[0] not in ".~#"
        and name.endswith((*SUFFIXES, ".toml"))
        and not found.is_dir(follow_symlinks=False)
    )


def _said(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
