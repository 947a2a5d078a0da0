"""The folder of a JSONL store: its format file, what its files look like from outside, and appending."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from typing import BinaryIO, NamedTuple

import msgspec

from dgent import clock, ids
from dgent.errors import Corrupt, FormatTooNew, NoBackendAvailable, OutcomeUnknown
from dgent.store.jsonl.lock import FolderLock
from dgent.system import files
from dgent.system.files import disk_errors

SUFFIX = ".jsonl"
COMMITS, SCHEMAS, DELETED, NONE = (name + SUFFIX for name in ("_commits", "_schemas", "_deleted", "_none"))
FORMAT_FILE = "dgent.json"

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*")
_MAX = 100  # bytes of a plain name; most file systems take 255
_READABLE = 60
# Names that some systems give to devices, whatever follows the first dot.
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}


@lru_cache(4096)
def file_of(schema: str) -> str:
    """The file of a schema; "" is the one of records without a schema.

    A name that is not plain gets a hash, so that names which differ in case, or in what cannot be in
    a file's name, have files of their own.
    """
    if not schema:
        return NONE
    if len(schema) <= _MAX and _PLAIN.fullmatch(schema) and schema.partition(".")[0] not in _DEVICES:
        return schema + SUFFIX
    readable = re.sub(r"[^a-z0-9_-]+", "-", schema.lower())[:_READABLE].strip("-_") or "x"
    return f"{readable}~{hashlib.sha256(schema.encode()).hexdigest()[:12]}{SUFFIX}"


def is_data(name: str) -> bool:
    """Whether a file of the folder has lines that belong to the store."""
    return name.endswith(SUFFIX) and not name.startswith(".")


def holds_records(name: str) -> bool:
    """Whether a file has lines of records."""
    return is_data(name) and name not in (COMMITS, SCHEMAS)


FORMAT = 1
LOCK, CACHE, TEMPORARY = ".lock", ".cache", ".tmp"
MANIFEST = f".manifest{TEMPORARY}"
IGNORED = f"{LOCK}\n{CACHE}/\n*{TEMPORARY}\n"
MAX_OPEN = 256
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # nor wait for the other end of a pipe


class Format(msgspec.Struct, frozen=True):
    """The format file: which store this is. It is the same in every copy of a folder."""

    dgent: str
    format: int
    universe_id: str
    created_at: datetime
    salt: str  # for the hashes of forgotten ids


class Stamp(NamedTuple):
    """What tells that a file has changed without reading it."""

    size: int
    mtime: int
    inode: int


class Folder:
    """The files of one store. Everything that changes them happens under `lock`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = FolderLock(os.path.join(path, LOCK))
        self._open: dict[str, tuple[int, int]] = {}
        self._before: dict[str, int] = {}  # how long files were before what is being appended
        self.format = self._prepared()

    # -- the format file ------------------------------------------------------------------

    def _prepared(self) -> Format:
        with disk_errors(self.path):
            if not os.path.isdir(self.path):
                if not os.path.isdir(os.path.dirname(self.path)):
                    raise NoBackendAvailable(
                        f"the folder of {self.path} does not exist", hint="make it, or correct the path"
                    )
                with suppress(FileExistsError):
                    os.mkdir(self.path, files.FOLDER)
            found = self._format()
            if found is not None:
                return found
            self.lock.acquire()
            try:
                return self._format() or self._create()
            finally:
                self.lock.release()

    def _format(self) -> Format | None:
        try:
            with self.read(FORMAT_FILE) as file:
                raw = file.read(1 << 16)
        except FileNotFoundError:
            return None
        place = self.file(FORMAT_FILE)
        try:
            number = msgspec.json.decode(raw)["format"]
            if type(number) is int and number > FORMAT:
                raise FormatTooNew(f"{self.path} has format {number}; this dgent reads up to {FORMAT}")
            found = msgspec.json.decode(raw, type=Format)
            bytes.fromhex(found.salt)
        except (msgspec.MsgspecError, TypeError, KeyError, ValueError) as error:
            raise Corrupt(f"{place} is damaged: {error}", hint="bring it back; nothing was changed") from None
        return found

    def _create(self) -> Format:
        if any(is_data(name) for name in os.listdir(self.path)):
            raise Corrupt(
                f"{self.path} has .jsonl files, but no {FORMAT_FILE}",
                hint="bring that file back, or give another folder; nothing was changed",
            )
        made = Format("jsonl", FORMAT, ids.new_id(), clock.now(), os.urandom(16).hex())
        if not os.path.lexists(self.file(".gitignore")):
            self.replace(".gitignore", [IGNORED.encode()])
        self.replace(FORMAT_FILE, [msgspec.json.format(msgspec.json.encode(made), indent=2), b"\n"])
        return made

    # -- looking --------------------------------------------------------------------------

    def file(self, name: str) -> str:
        """The path of a file."""
        return os.path.join(self.path, name)

    def stamp(self, name: str) -> Stamp | None:
        """How a file looks from outside; None when there is none."""
        try:
            found = os.lstat(f"{self.path}/{name}")
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode) and name != ".":
            return None
        return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)

    def stamps(self) -> dict[str, Stamp]:
        """How all files with lines look from outside."""
        found = {name: self.stamp(name) for name in sorted(os.listdir(self.path)) if is_data(name)}
        return {name: stamp for name, stamp in found.items() if stamp is not None}

    def strange(self) -> list[str]:
        """Names of data files that are not plain files: neither read nor written, wherever a link leads."""
        return [
            name
            for name in sorted(os.listdir(self.path))
            if is_data(name) and not stat.S_ISREG(os.lstat(self.file(name)).st_mode)
        ]

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open one of its files; a link is not followed."""
        return os.open(self.file(name), flags | NO_LINK | os.O_CLOEXEC, files.FILE)

    def read(self, name: str) -> BinaryIO:
        """A file to read; a link is not followed."""
        return open(self.open(name), "rb")

    def size(self) -> int:
        """The bytes of all files with lines."""
        return sum(stamp.size for stamp in self.stamps().values())

    def room(self) -> int:
        """The bytes that are free on its disk."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    # -- appending ------------------------------------------------------------------------

    def append(self, name: str, chunk: bytes, size: int, inode: int, ended: bool) -> Stamp:
        """Add lines to a file that is so long now; `ended` is whether it ends with a line's end."""
        file = self._opened(name, inode)
        self._before.setdefault(name, size)
        left = memoryview(chunk if ended else b"\n" + chunk)
        while left:
            left = left[os.write(file, left) :]
        found = os.fstat(file)
        return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)

    def appended(self) -> None:
        """What was appended stays."""
        self._before = {}

    def take_back(self) -> dict[str, Stamp]:
        """Remove what was just appended and failed; how the files look now, and those that are gone not.

        Under the lock nobody else can have appended meanwhile. OutcomeUnknown when that fails too.
        """
        before, self._before = self._before, {}
        stamps = {}
        try:
            for name, size in before.items():
                if not size:
                    os.unlink(self.file(name))
                    continue
                os.truncate(self.file(name), size)
                self.sync_apart([name])
                found = os.stat(self.file(name))
                stamps[name] = Stamp(found.st_size, found.st_mtime_ns, found.st_ino)
        except OSError as error:
            raise OutcomeUnknown(f"{self.path}: {error.strerror}") from error
        return stamps

    def sync(self, names: Iterable[str]) -> None:
        """Wait until what was just appended to files is on the disk."""
        for name in names:
            found = self._open.get(name)
            if found is None:  # so many were appended to at once that it was closed again
                self.sync_apart([name])
            else:
                os.fdatasync(found[0])

    def sync_apart(self, names: Iterable[str]) -> None:
        """The same from any thread: with files of its own."""
        for name in names:
            with suppress(FileNotFoundError):
                file = self.open(name, os.O_RDWR)
                try:
                    os.fdatasync(file)
                finally:
                    os.close(file)

    def _opened(self, name: str, inode: int) -> int:
        """A file to append to; `inode` is that of the file which is there now, 0 when there is none."""
        found = self._open.get(name)
        if found is not None:
            if found[1] == inode:
                return found[0]
            os.close(self._open.pop(name)[0])
        while len(self._open) >= MAX_OPEN:
            os.close(self._open.pop(next(iter(self._open)))[0])
        file = self.open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._open[name] = file, os.fstat(file).st_ino
        if not inode:
            self._sync_names()
        return file

    # -- rewriting ------------------------------------------------------------------------

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        """Put another file in the place of one, all at once and durably."""
        temporary = self.stage(name, chunks)
        with disk_errors(self.path):
            os.rename(self.file(temporary), self.file(name))
            self._sync_names()

    def stage(self, name: str, chunks: Iterable[bytes]) -> str:
        """Write a file durably beside the one that it may replace later; returns its name."""
        staged = f".{name}.{os.getpid()}{TEMPORARY}"
        temporary = self.file(staged)
        like = self._like(name)
        with (
            disk_errors(self.path),
            _removed_on_failure(temporary),
            open(temporary, "wb", opener=like) as file,
        ):
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        return staged

    def unstage(self, staged: Iterable[str]) -> None:
        """Remove staged files, as far as they are there."""
        for name in staged:
            with suppress(OSError):
                os.unlink(self.file(name))

    def switch(self, staged: Mapping[str, str]) -> None:
        """Put staged files in the place of others, by their names: all of them, whoever dies meanwhile."""
        if not staged:
            return
        with disk_errors(self.path):
            self._sync_names()
            self.replace(MANIFEST, [msgspec.json.encode(staged)])
            self._finish(staged)

    def _finish(self, staged: Mapping[str, str]) -> None:
        for name, temporary in staged.items():
            with suppress(FileNotFoundError):  # it was put in place before
                os.rename(self.file(temporary), self.file(name))
        self._sync_names()
        os.unlink(self.file(MANIFEST))
        self._sync_names()

    def _manifest(self) -> dict[str, str] | None:
        """What a rewriting that was cut short had decided; None when it decided nothing."""
        try:
            with self.read(MANIFEST) as file:
                staged = msgspec.json.decode(file.read(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError):
            return None
        valid = all(is_data(name) and _is_temporary(file) for name, file in staged.items())
        return staged if valid and not any("/" in name for name in staged) else None

    def is_switching(self) -> bool:
        """Whether a rewriting is under way, or was cut short."""
        return os.path.lexists(self.file(MANIFEST))

    def _like(self, name: str) -> Callable[[str, int], int]:
        """Makes a file with the permissions of one that is there, or for the user alone."""
        try:
            there = os.lstat(self.file(name)).st_mode
            mode = stat.S_IMODE(there) if stat.S_ISREG(there) else files.FILE
        except OSError:
            mode = files.FILE

        def make(path: str, flags: int) -> int:
            handle = os.open(path, flags | NO_LINK | os.O_CLOEXEC, files.FILE)
            os.fchmod(handle, mode)
            return handle

        return make

    def tidy(self) -> None:
        """Finish or undo what a process left that died while it rewrote files."""
        staged = self._manifest()
        if staged is not None:
            self._finish(staged)
        for name in os.listdir(self.path):
            if _is_temporary(name):
                os.unlink(self.file(name))

    def _sync_names(self) -> None:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Let go of every file."""
        for file, _ in self._open.values():
            os.close(file)
        self._open = {}
        self.lock.close()


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY) and "/" not in name


@contextmanager
def _removed_on_failure(path: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
