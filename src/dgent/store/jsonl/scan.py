"""Read a file of lines from an offset on, and report lines that are unreadable or unusual."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

from dgent.store.jsonl.cache import PIECE, FileState, Report, hash_piece
from dgent.store.jsonl.folder import COMMITS, SCHEMAS, Stamp, StoreFolder
from dgent.store.jsonl.line import CommitMark, ParsedLine, RecordLine, SchemaLine, parse_line, strip_line

T = TypeVar("T", RecordLine, CommitMark, SchemaLine)

_MARKERS = (b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>")

BAD, CUT, MARKER, HAND = "bad line", "cut off", "conflict marker", "edited by hand"
LINK = "not a plain file"
DAMAGED, INCOMPLETE = "damaged commit", "incomplete commit"


class ScannedLine(NamedTuple):
    """A readable line and its place."""

    name: str
    number: int
    read: ParsedLine


class FileScan:
    """The lines of a file after a known state, reports of unusual ones, and the new state."""

    def __init__(self, folder: StoreFolder, name: str, stamp: Stamp, after: FileState | None) -> None:
        self.name, self.stamp = name, stamp
        self.whole = after is None
        self.first_line = 0 if after is None else after.lines + 1
        self.found: list[ScannedLine] = []
        self.reports: list[Report] = []
        self.bad: dict[int, bytes] = {}  # the beginnings of unreadable complete lines, by number
        kind = {COMMITS: CommitMark, SCHEMAS: SchemaLine}.get(name, RecordLine)
        offset, number = (0, 0) if after is None else (after.offset, after.lines)
        head = tail = b""
        ended = True
        with folder.read(name) as file:
            if after is not None:
                head_size, head_hash = after.head_size, after.head
            else:
                head = file.read(PIECE)
                head_size, head_hash = len(head), hash_piece(head)
            file.seek(offset)
            for raw in file:
                if offset + len(raw) > stamp.size:
                    break  # under the lock only an editor can have appended
                number += 1
                ended = raw.endswith(b"\n")
                if not self._add_line(raw, number, kind, ended):
                    number -= 1
                    break
                offset += len(raw)
            start = max(0, offset - PIECE)
            file.seek(start)
            tail = file.read(offset - start)
        if head_size > offset:
            head_size, head_hash = 0, b""
        self.known = FileState(
            stamp, offset, number, ended, head_size, head_hash, len(tail), hash_piece(tail)
        )

    def _add_line(self, raw: bytes, number: int, kind: type, ended: bool) -> bool:
        """Add a line; return False for an incomplete last line, which may still be completed."""
        text = strip_line(raw)
        if not text:
            return True
        if is_marker(text):
            self._report(number, MARKER, text[:80].decode("utf-8", "replace"))
            return True
        try:
            found = parse_line(text, kind)
        except ValueError as error:
            self._report(number, BAD if ended else CUT, str(error))
            if ended:
                self.bad[number] = text[:PIECE]
            return ended
        if found.hand:
            self._report(number, HAND, "its checksum is not that of its text")
        self.found.append(ScannedLine(self.name, number, found))
        return True

    def _report(self, number: int, kind: str, text: str) -> None:
        self.reports.append(Report(self.name, number, kind, text))


def report_incomplete(found: ScannedLine) -> Report:
    """Return the report of a line whose commit is incomplete."""
    text = "other lines of its commit are missing, so it does not count"
    return Report(found.name, found.number, INCOMPLETE, text)


def is_marker(text: bytes) -> bool:
    """Check whether a line is one of git's conflict markers."""
    return text.startswith(_MARKERS)


def is_appended(folder: StoreFolder, name: str, known: FileState, stamp: Stamp) -> bool:
    """Check whether a file was only appended to since a known state."""
    if known.stamp.inode != stamp.inode or stamp.size < known.stamp.size or not known.tail_size:
        return False
    if stamp.size == known.stamp.size and stamp.mtime != known.stamp.mtime:
        return False
    file = folder.open(name)
    try:
        head = os.pread(file, known.head_size, 0)
        tail = os.pread(file, known.tail_size, known.offset - known.tail_size)
    finally:
        os.close(file)
    return hash_piece(head) == known.head and hash_piece(tail) == known.tail


def parse_file(folder: StoreFolder, name: str, kind: type[T]) -> Iterator[tuple[bytes, T | None]]:
    """Yield the lines of a file, each with a newline, and parsed; None for an unreadable line."""
    if folder.stamp(name) is None:
        return
    with folder.read(name) as file:
        for raw in file:
            line: T | None = None
            with suppress(ValueError):
                line = parse_line(raw, kind).line
            yield raw if raw.endswith(b"\n") else raw + b"\n", line
