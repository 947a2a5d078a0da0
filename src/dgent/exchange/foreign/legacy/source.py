"""The files of a legacy folder: found without following links, opened as plain files only, and copied."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dgent import clock
from dgent.errors import InputError

MAX_FILES = 200_000
MAX_DEPTH = 40
CHUNK = 1 << 20
MAX_TEXT_BYTES = 256 << 20  # of a file that is read as JSON; a larger one becomes a blob
SQLITE = b"SQLite format 3\0"
BESIDE = ("-wal", "-shm", "-journal")
"""Ends of the names of files that belong to a SQLite file."""


class SourceFile(NamedTuple):
    """A file of a legacy folder; `name` is its path below the folder, as text that can be stored."""

    path: Path
    name: str
    size: int
    changed_at: datetime


class Left(NamedTuple):
    """Something that is not imported, and why."""

    name: str
    reason: str


def list_files(folder: Path, entry: str) -> Iterator[SourceFile | Left]:
    """Yield the plain files of an entry, a file or a folder, by name; the rest with the reason."""
    count = 0
    waiting = [(folder / entry, 0)]
    while waiting:
        path, depth = waiting.pop()
        name = text_of(path.relative_to(folder))
        try:
            found = os.lstat(path)
            inside = sorted(os.listdir(path), reverse=True) if stat.S_ISDIR(found.st_mode) else []
        except OSError as error:
            yield Left(name, f"it cannot be read: {error.strerror}")
            continue
        if stat.S_ISDIR(found.st_mode):
            if depth >= MAX_DEPTH:
                yield Left(name, f"it is more than {MAX_DEPTH} folders deep")
                continue
            waiting += [(path / each, depth + 1) for each in inside]
        elif stat.S_ISREG(found.st_mode):
            count += 1
            if count > MAX_FILES:
                yield Left(name, f"there are more than {MAX_FILES} files")
                return
            changed_at = clock.from_us(max(found.st_mtime_ns // 1000, 0))
            yield SourceFile(path, name, found.st_size, changed_at)
        else:
            kind = "a link, which is not followed" if stat.S_ISLNK(found.st_mode) else "not a plain file"
            yield Left(name, f"it is {kind}")


def text_of(path: str | Path) -> str:
    """Return a path as text that can be stored, also where it is not valid UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")


def open_file(path: Path) -> BinaryIO:
    """Open a plain file, and nothing behind a link."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    file = os.fdopen(handle, "rb")
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise InputError(f"{path} is not a plain file")
    return file


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal; of a database with a log, of both in a row."""
    digest = hashlib.sha256()
    for source in (path, path.with_name(path.name + "-wal")):
        if source == path or os.path.lexists(source):
            with open_file(source) as file:
                while part := file.read(CHUNK):
                    digest.update(part)
    return digest.hexdigest()


def begins_as_sqlite(path: Path) -> bool:
    """Return whether a file begins as a SQLite file does."""
    with open_file(path) as file:
        return file.read(len(SQLITE)) == SQLITE


def copy_database(path: Path, to: Path) -> None:
    """Copy a SQLite file with its log, so that reading it changes nothing beside the original."""
    for end in ("", "-wal"):
        source = path.with_name(path.name + end)
        if not os.path.lexists(source):
            continue
        with open_file(source) as file, open(f"{to}{end}", "xb") as made:
            while part := file.read(CHUNK):
                made.write(part)
