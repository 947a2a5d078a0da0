"""Read and write files of other programs with one JSON object per line.

A line that is not a JSON object is reported and kept unchanged. Only a file with the markers of an unresolved
merge is refused, because both of its sides would be read.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from dgent import clock, codec
from dgent.errors import Conflict, InputError, NotFound
from dgent.exchange import folders
from dgent.system.files import sync
from dgent.system.progress import ProgressReporter
from dgent.system.threads import Stopped

MAX_LINE_BYTES = 48 * 1024 * 1024  # it fits into a record with its note
_MARKS = (b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")
_DAMAGE = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)

encode_line = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class SourceLine(NamedTuple):
    """One line: its number, its bytes, and the object in it, or else its problem."""

    number: int
    raw: bytes
    given: dict[str, Any] | None
    wrong: str = ""


class SourceFile(NamedTuple):
    """All lines of a file, and the time of its last change."""

    name: str
    lines: list[SourceLine]
    changed_at: datetime


def read_lines(path: Path, pace: ProgressReporter, stopped: Stopped) -> SourceFile:
    """Read the lines of a file that are not empty."""
    with folders.translate_errors(path), _open_plain_file(path) as file:
        changed_at = clock.from_us(os.fstat(file.fileno()).st_mtime_ns // 1000)
        found: list[SourceLine] = []
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            pace.add(len(raw))
            if stopped():
                raise InterruptedError
            if len(raw) > MAX_LINE_BYTES:
                raise InputError(
                    f"{path.name}, line {number} is longer than {MAX_LINE_BYTES} bytes", field="path"
                )
            text = raw.strip(b"\r\n\t ")
            if number == 1:
                text = text.removeprefix(b"\xef\xbb\xbf")
            if text:
                found.append(_parse_line(path, number, text))
    return SourceFile(path.name, found, changed_at)


def _open_plain_file(path: Path) -> BinaryIO:
    """Open a plain file for reading; anything else, such as a pipe, is refused without waiting."""
    folders.check_path(path, "path")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"{path} is not a plain file", field="path")
        return open(path, "rb")
    except FileNotFoundError:
        raise NotFound(f"the file {path} does not exist", path=str(path)) from None


def _parse_line(path: Path, number: int, text: bytes) -> SourceLine:
    if text.startswith(_MARKS):
        raise Conflict(
            f"{path.name}, line {number} is a marker of an unresolved merge",
            hint="resolve it, and import again",
            path=str(path),
            line=number,
        )
    try:
        given = _decode(text)
        if not isinstance(given, dict):
            return SourceLine(number, text, None, "it is not a JSON object")
        # It must not be nested too deeply for a record.
        codec.plain([[[given]]])
    except InputError as error:
        return SourceLine(number, text, None, error.message)
    except _DAMAGE as error:
        return SourceLine(number, text, None, f"it is not valid JSON: {error}"[:200])
    return SourceLine(number, text, given)


# -- writing ------------------------------------------------------------------------------


def write_lines(path: Path, lines: Iterable[bytes]) -> int:
    """Write the lines to a file, replacing it atomically; return its size."""
    size = 0
    with folders.translate_errors(path):
        handle, unfinished = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name[:100]}.", suffix=folders.PARTIAL
        )
        try:
            with os.fdopen(handle, "wb") as file:
                for line in lines:
                    size += file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.chmod(unfinished, _mode(path))
            os.replace(unfinished, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished)
            raise
    sync(str(path.parent))
    return size


def _mode(path: Path) -> int:
    """Return the mode of the file that is replaced; a new file is for its owner only."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return 0o600
