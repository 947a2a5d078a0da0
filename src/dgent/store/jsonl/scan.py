"""Reading a file of lines from some place on, whatever is in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from dgent.store.jsonl import folder as filename
from dgent.store.jsonl.cache import PIECE, Known, Report, piece
from dgent.store.jsonl.folder import Folder, Stamp
from dgent.store.jsonl.line import Declared, Line, Mark, Read, read, stripped

_MARKERS = (b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>")

BAD, CUT, MARKER, HAND = "bad line", "cut off", "conflict marker", "edited by hand"
LINK = "not a plain file"


class Found(NamedTuple):
    """A line that can be read, and where it is."""

    name: str
    number: int
    read: Read


class Scan:
    """One pass over a file: what it has from a place on, what is odd in it, and how far it goes."""

    def __init__(self, folder: Folder, name: str, stamp: Stamp, after: Known | None) -> None:
        self.name, self.stamp = name, stamp
        self.whole = after is None
        self.first_line = 0 if after is None else after.lines + 1
        self.found: list[Found] = []
        self.reports: list[Report] = []
        self.bad: dict[int, bytes] = {}  # the beginnings of lines that were ended and cannot be read
        kind = {filename.COMMITS: Mark, filename.SCHEMAS: Declared}.get(name, Line)
        offset, number = (0, 0) if after is None else (after.offset, after.lines)
        head = tail = b""
        ended = True
        with folder.read(name) as file:
            if after is not None:
                head_size, head_hash = after.head_size, after.head
            else:
                head = file.read(PIECE)
                head_size, head_hash = len(head), piece(head)
            file.seek(offset)
            for raw in file:
                if offset + len(raw) > stamp.size:
                    break  # nobody appends while this holds the lock; an editor may
                number += 1
                ended = raw.endswith(b"\n")
                if not self._take(raw, number, kind, ended):
                    number -= 1
                    break
                offset += len(raw)
            start = max(0, offset - PIECE)
            file.seek(start)
            tail = file.read(offset - start)
        if head_size > offset:
            head_size, head_hash = 0, b""
        self.known = Known(stamp, offset, number, ended, head_size, head_hash, len(tail), piece(tail))

    def _take(self, raw: bytes, number: int, kind: type, ended: bool) -> bool:
        """Keep a line; False for one that was cut off, which may still be completed."""
        text = stripped(raw)
        if not text:
            return True
        if is_marker(text):
            self._report(number, MARKER, text[:80].decode("utf-8", "replace"))
            return True
        try:
            found = read(text, kind)
        except ValueError as error:
            self._report(number, BAD if ended else CUT, str(error))
            if ended:
                self.bad[number] = text[:PIECE]
            return ended
        if found.hand:
            self._report(number, HAND, "its checksum is not that of its text")
        self.found.append(Found(self.name, number, found))
        return True

    def _report(self, number: int, kind: str, text: str) -> None:
        self.reports.append(Report(self.name, number, kind, text))


def is_marker(text: bytes) -> bool:
    """Whether a line is what git puts between two sides that it could not merge."""
    return text.startswith(_MARKERS)


def continues(folder: Folder, name: str, known: Known, stamp: Stamp) -> bool:
    """Whether a file is what it was with something appended."""
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
    return piece(head) == known.head and piece(tail) == known.tail


def raw_lines(folder: Folder, name: str) -> Iterator[bytes]:
    """The lines of a file as bytes, ends and all."""
    with folder.read(name) as file:
        yield from file
