"""Files of other programs, one JSON object a line: read with all that is wrong with them, written whole.

A line that is no JSON object is not lost: it is reported and kept as it is. Only a file with the marks of an
unresolved merge is refused, because both sides of it would be read as if they belonged together.
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
from dgent.system.progress import Pace
from dgent.system.threads import Stopped

MAX_LINE_BYTES = 48 * 1024 * 1024  # with what is noted about it, it fits into a record
_MARKS = (b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")
_DAMAGE = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)

_encode = msgspec.json.Encoder().encode
_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


class SourceLine(NamedTuple):
    """One line: its number, its bytes, and the object in it, or else what is wrong."""

    number: int
    raw: bytes
    given: dict[str, Any] | None
    wrong: str = ""


class SourceFile(NamedTuple):
    """All lines of a file, and when it was changed last."""

    name: str
    lines: list[SourceLine]
    changed_at: datetime


def read_lines(path: Path, pace: Pace, stopped: Stopped) -> SourceFile:
    """The lines of a file that are not empty."""
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
    """A plain file, open for reading; anything else is refused, and never waited for."""
    folders.check_path(path, "path")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"{path} is not a plain file", field="path")
        return open(path, "rb")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}", path=str(path)) from None


def _parse_line(path: Path, number: int, text: bytes) -> SourceLine:
    if text.startswith(_MARKS):
        raise Conflict(
            f"{path.name}, line {number} is the mark of a merge that was not finished",
            hint="resolve it, and import again",
            path=str(path),
            line=number,
        )
    try:
        given = _decode(text)
        if not isinstance(given, dict):
            return SourceLine(number, text, None, "it is no JSON object")
        # As deep as it will be in a record, at most.
        codec.plain([[[given]]])
    except InputError as error:
        return SourceLine(number, text, None, error.message)
    except _DAMAGE as error:
        return SourceLine(number, text, None, f"it is no JSON: {error}"[:200])
    return SourceLine(number, text, given)


# -- writing ------------------------------------------------------------------------------


def encode_line(fields: dict[str, Any]) -> bytes:
    """The line of an object: no spaces, its fields in their order, those inside of fields by name."""
    return _encode({key: _stable(value) for key, value in fields.items()})


def _stable(value: Any) -> Any:
    return msgspec.Raw(_sorted(value)) if isinstance(value, dict | list) else value


def write_lines(path: Path, lines: Iterable[bytes]) -> int:
    """Put a file of these lines in the place of what is there, in one step; returns its size."""
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
    """The rights of the file that is replaced; a new one is its owner's, as all of dgent's files."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return 0o600
