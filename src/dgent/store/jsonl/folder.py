"""The folder of a JSONL store: its format file, stamps of its files, appending and replacing files."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import BinaryIO, NamedTuple

import msgspec

from dgent import clock, ids
from dgent.errors import Corrupt, FormatTooNew, NoBackendAvailable
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
    """Return the file name of a schema; "" means records without a schema.

    A name that is not plain gets a hash, so that names which differ only in case, or in characters that
    a file name cannot have, get different files.
    """
    if not schema:
        return NONE
    if len(schema) <= _MAX and _PLAIN.fullmatch(schema) and schema.partition(".")[0] not in _DEVICES:
        return schema + SUFFIX
    readable = re.sub(r"[^a-z0-9_-]+", "-", schema.lower())[:_READABLE].strip("-_") or "x"
    return f"{readable}~{hashlib.sha256(schema.encode()).hexdigest()[:12]}{SUFFIX}"


def is_data_file(name: str) -> bool:
    """Check whether a file of the folder holds lines of the store, by its name."""
    return name.endswith(SUFFIX) and not name.startswith(".")


def holds_records(name: str) -> bool:
    """Check whether a file holds lines of records, by its name."""
    return is_data_file(name) and name not in (COMMITS, SCHEMAS)


FORMAT = 1
LOCK, CACHE, TEMPORARY = ".lock", ".cache", ".tmp"
MANIFEST = f".manifest{TEMPORARY}"
IGNORED = f"{LOCK}\n{CACHE}/\ntelemetry.db*\n*{TEMPORARY}\n"
MAX_OPEN = 256
# Also never waits for the other end of a pipe.
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Format(msgspec.Struct, frozen=True):
    """The format file, which identifies the store; it is the same in every copy of a folder."""

    dgent: str
    format: int
    universe_id: str
    created_at: datetime
    salt: str  # for the hashes of forgotten ids


class Stamp(NamedTuple):
    """Size, time and inode of a file: if one differs, the file has changed."""

    size: int
    mtime: int
    inode: int


class StoreFolder:
    """The files of one store. They are only changed under `lock`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = FolderLock(os.path.join(path, LOCK))
        self._open: dict[str, tuple[int, int]] = {}
        self.format = self._prepare()

    # -- the format file ------------------------------------------------------------------

    def _prepare(self) -> Format:
        with disk_errors(self.path):
            if not os.path.isdir(self.path):
                if not os.path.isdir(os.path.dirname(self.path)):
                    raise NoBackendAvailable(
                        f"the folder of {self.path} does not exist", hint="create it, or correct the path"
                    )
                with suppress(FileExistsError):
                    os.mkdir(self.path, files.FOLDER)
            found = self._read_format()
            if found is not None:
                return found
            self.lock.acquire()
            try:
                return self._read_format() or self._create()
            finally:
                self.lock.release()

    def _read_format(self) -> Format | None:
        try:
            with self.read(FORMAT_FILE) as file:
                raw = file.read(1 << 16)
        except FileNotFoundError:
            return None
        place = self.path_of(FORMAT_FILE)
        try:
            number = msgspec.json.decode(raw)["format"]
            if type(number) is int and number > FORMAT:
                raise FormatTooNew(f"{self.path} has format {number}; this dgent reads up to {FORMAT}")
            found = msgspec.json.decode(raw, type=Format)
            bytes.fromhex(found.salt)
        except (msgspec.MsgspecError, TypeError, KeyError, ValueError) as error:
            raise Corrupt(
                f"{place} is damaged: {error}", hint="restore it from a backup; nothing was changed"
            ) from None
        return found

    def _create(self) -> Format:
        if any(is_data_file(name) for name in os.listdir(self.path)):
            raise Corrupt(
                f"{self.path} has .jsonl files, but no {FORMAT_FILE}",
                hint="restore that file from a backup, or use another folder; nothing was changed",
            )
        made = Format("jsonl", FORMAT, ids.new_id(), clock.now(), os.urandom(16).hex())
        if not os.path.lexists(self.path_of(".gitignore")):
            self.replace(".gitignore", [IGNORED.encode()])
        self.replace(FORMAT_FILE, [msgspec.json.format(msgspec.json.encode(made), indent=2), b"\n"])
        return made

    # -- reading --------------------------------------------------------------------------

    def path_of(self, name: str) -> str:
        """Return the path of a file."""
        return os.path.join(self.path, name)

    def stamp(self, name: str) -> Stamp | None:
        """Return the stamp of a file; None if it is missing or not a regular file."""
        try:
            found = os.lstat(f"{self.path}/{name}")
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode) and name != ".":
            return None
        return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)

    def stamps(self) -> dict[str, Stamp]:
        """Return the stamps of all files with lines, sorted by name."""
        found = {name: self.stamp(name) for name in sorted(os.listdir(self.path)) if is_data_file(name)}
        return {name: stamp for name, stamp in found.items() if stamp is not None}

    def irregular_files(self) -> list[str]:
        """Return the names of data files that are not regular files; they are neither read nor written."""
        return [
            name
            for name in sorted(os.listdir(self.path))
            if is_data_file(name) and not stat.S_ISREG(os.lstat(self.path_of(name)).st_mode)
        ]

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a file of the folder and return its descriptor; a link is not followed."""
        return os.open(self.path_of(name), flags | NO_LINK | os.O_CLOEXEC, files.FILE)

    def read(self, name: str) -> BinaryIO:
        """Open a file for reading; a link is not followed."""
        return open(self.open(name), "rb")

    def size(self) -> int:
        """Return the total size of all files with lines, in bytes."""
        return sum(stamp.size for stamp in self.stamps().values())

    def free_bytes(self) -> int:
        """Return the free bytes on its disk."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    # -- appending ------------------------------------------------------------------------

    def append(self, file: int, chunk: bytes) -> Stamp:
        """Append to a file that is open for it, and return its stamp."""
        left = memoryview(chunk)
        while left:
            left = left[os.write(file, left) :]
        found = os.fstat(file)
        return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)

    def truncate(self, name: str, size: int) -> Stamp | None:
        """Cut a file to an earlier size, durably, and return its stamp; a file that was new is removed."""
        if size:
            os.truncate(self.path_of(name), size)
            self.sync_from_any_thread([name])
        else:
            os.unlink(self.path_of(name))
        return self.stamp(name)

    def sync(self, names: Iterable[str]) -> None:
        """Wait until the current append to files is on the disk."""
        for name in names:
            found = self._open.get(name)
            if found is None:  # it was closed to stay below MAX_OPEN
                self.sync_from_any_thread([name])
            else:
                os.fdatasync(found[0])

    def sync_from_any_thread(self, names: Iterable[str]) -> None:
        """Wait until files are on the disk; opens them itself, so any thread may call it."""
        for name in names:
            with suppress(FileNotFoundError):
                file = self.open(name, os.O_RDWR)
                try:
                    os.fdatasync(file)
                finally:
                    os.close(file)

    def open_for_append(self, name: str, inode: int) -> int:
        """Return the descriptor of a file to append to; `inode` is that of the current file, 0 for none."""
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
        """Replace a file atomically and durably."""
        temporary = self.stage(name, chunks)
        with disk_errors(self.path):
            os.rename(self.path_of(temporary), self.path_of(name))
            self._sync_names()

    def stage(self, name: str, chunks: Iterable[bytes]) -> str:
        """Write a file durably beside the one that it may replace later, and return its name."""
        staged = f".{name}.{os.getpid()}{TEMPORARY}"
        like = self._opener_like(name)
        try:
            with disk_errors(self.path), open(self.path_of(staged), "wb", opener=like) as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            self.unstage([staged])
            raise
        return staged

    def unstage(self, staged: Iterable[str]) -> None:
        """Remove staged files; missing ones are ignored."""
        for name in staged:
            with suppress(OSError):
                os.unlink(self.path_of(name))

    def switch(self, staged: Mapping[str, str]) -> None:
        """Replace files by staged ones as one step, which `finish_interrupted` completes after a crash."""
        if not staged:
            return
        with disk_errors(self.path):
            self._sync_names()
            self.replace(MANIFEST, [msgspec.json.encode(staged)])
            self._finish_switch(staged)

    def _finish_switch(self, staged: Mapping[str, str]) -> None:
        for name, temporary in staged.items():
            with suppress(FileNotFoundError):  # it was renamed before a crash
                os.rename(self.path_of(temporary), self.path_of(name))
        self._sync_names()
        os.unlink(self.path_of(MANIFEST))
        self._sync_names()

    def _read_manifest(self) -> dict[str, str] | None:
        """Return the staged files of an interrupted `switch`; None if it left no valid manifest."""
        try:
            with self.read(MANIFEST) as file:
                staged = msgspec.json.decode(file.read(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError):
            return None
        valid = all(is_data_file(name) and _is_temporary(file) for name, file in staged.items())
        return staged if valid and not any("/" in name for name in staged) else None

    def is_switching(self) -> bool:
        """Check whether a `switch` is running or was interrupted."""
        return os.path.lexists(self.path_of(MANIFEST))

    def _opener_like(self, name: str) -> Callable[[str, int], int]:
        """Return an opener that creates files like an existing one: with its permissions, else user-only."""
        try:
            there = os.lstat(self.path_of(name)).st_mode
            mode = stat.S_IMODE(there) if stat.S_ISREG(there) else files.FILE
        except OSError:
            mode = files.FILE

        def make(path: str, flags: int) -> int:
            handle = os.open(path, flags | NO_LINK | os.O_CLOEXEC, files.FILE)
            os.fchmod(handle, mode)
            return handle

        return make

    def finish_interrupted(self) -> None:
        """Finish or undo the rewrite of a process that died."""
        staged = self._read_manifest()
        if staged is not None:
            self._finish_switch(staged)
        for name in os.listdir(self.path):
            if _is_temporary(name):
                os.unlink(self.path_of(name))

    def _sync_names(self) -> None:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Close every file and the lock."""
        for file, _ in self._open.values():
            os.close(file)
        self._open = {}
        self.lock.close()


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY) and "/" not in name
