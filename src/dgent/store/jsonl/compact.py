"""Rewrite a folder in canonical form: lines sorted by id, dropped versions left out.

Lines are moved unchanged, so that a line keeps its checksum and other copies of the folder recognize it.
Only a line that was edited by hand is sealed: it is written again with the right checksum.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from dgent import clock, ids
from dgent.errors import Conflict, Corrupt
from dgent.store.engine.history import version
from dgent.store.jsonl import folder
from dgent.store.jsonl.damage import SETTLE, mark_of
from dgent.store.jsonl.journal import Journal
from dgent.store.jsonl.line import (
    CommitMark,
    ParsedLine,
    RecordLine,
    SchemaLine,
    parse_line,
    seal,
    strip_line,
)
from dgent.store.jsonl.rewrite import FileRewrite
from dgent.store.jsonl.scan import T, is_marker, parse_file

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel

_LINES = (
    "SELECT l.sum, l.dk, l.rev, d.rev, d.live,"
    " EXISTS (SELECT 1 FROM past p WHERE p.dk = l.dk AND p.rev = l.rev)"
    " FROM j_line l JOIN datum d ON d.dk = l.dk AND d.trail = 0"
)
_UNREAD = "\U0010ffff"  # sorts after every id


class Compaction(msgspec.Struct, frozen=True):
    """The result of a compaction: lines written, dropped and sealed, and the size of all files."""

    lines: int
    dropped: int
    sealed: int
    size_bytes: int


class _CachedVersion(NamedTuple):
    """The version of a line in the cache; `kept` is whether it is stored as an old version."""

    record_key: int
    rev: int
    head_rev: int
    live: int
    kept: int


class _LinePlace(NamedTuple):
    """The place of a line in a file, sorted by id, then by rev."""

    id: str
    rev: int
    name: str
    offset: int
    size: int


class Compactor:
    """Rewrites all files once, under the folder's lock and in a transaction of the cache."""

    def __init__(self, kernel: JSONLKernel) -> None:
        self._kernel, self._folder = kernel, kernel.folder
        self._versions = {made: _CachedVersion(*rest) for made, *rest in kernel.cache.ask(_LINES)}
        self._targets: dict[str, list[_LinePlace]] = {}
        self._seen: set[str] = set()
        self._sealed: dict[tuple[str, int], bytes] = {}
        self._left: dict[str, int] = {}  # how many lines of a commit remain
        self._wanted: dict[str, RecordLine] = {}  # a line of it, which says how many it has
        # The log keeps these commits even if their lines are dropped.
        self._logged = kernel.cache.commits()
        self._past: dict[str, list[RecordLine]] = {}
        self.lines = self.dropped = 0

    def run(self) -> Compaction:
        """Rewrite every file, all of them as one step; raises Conflict if damaged commits are not settled."""
        damaged = len(self._kernel.cache.damaged_commits())
        if damaged:
            raise Conflict(f"{damaged} damaged commits are not settled", hint=SETTLE)
        names = [name for name in self._folder.stamps() if folder.holds_records(name)]
        with ExitStack() as stack, FileRewrite(self._kernel) as self._files:
            files = {name: stack.enter_context(self._folder.read(name)) for name in names}
            for name, file in files.items():
                self._sort_file(name, file)
            self._rewrite_marks()
            for name in sorted({*names, *self._targets}):
                # A file without lines stays, empty: git cannot merge a file that one side removed.
                places = sorted(self._targets.get(name, ()))
                self._files.write(name, self._read_places(places, files))
            self._rewrite_schemas()
        return Compaction(self.lines, self.dropped, len(self._sealed), self._folder.size())

    # -- lines ----------------------------------------------------------------------------

    def _sort_file(self, name: str, file: BinaryIO) -> None:
        offset = 0
        for raw in file:
            self._sort_line(name, raw, offset)
            offset += len(raw)

    def _sort_line(self, name: str, raw: bytes, offset: int) -> None:
        text = strip_line(raw)
        if not text or is_marker(text):
            return
        try:
            found = parse_line(text)
        except ValueError:
            self._add_to_target(name, _LinePlace(_UNREAD, 0, name, offset, len(raw)))
            return
        line: RecordLine = found.line
        if found.sum in self._seen:
            self.dropped += 1
            return
        self._seen.add(found.sum)
        known = self._versions.get(found.sum)
        if known is None:
            # Its commit is incomplete, or an edit by hand replaced it.
            self._add_to_target(name, _LinePlace(_UNREAD, 1, name, offset, len(raw)))
        elif known.kept or known.rev == known.head_rev:
            self._move_line(found, known, _LinePlace(line.id, known.rev, name, offset, len(raw)))
        else:
            self.dropped += 1
            if line.c is not None and line.c in self._logged:
                self._past.setdefault(line.c, []).append(line)

    def _move_line(self, found: ParsedLine, known: _CachedVersion, place: _LinePlace) -> None:
        """Add a line to the file that it belongs to, and seal it if it was edited by hand."""
        line: RecordLine = found.line
        is_newest = known.rev == known.head_rev
        # Deletions too stay in the file of their schema: git merges each file by itself, so a line that
        # one copy moved to another file would come back after the other copy dropped it.
        target = place.name if place.name == folder.DELETED else folder.file_of(line.schema or "")
        if found.hand and is_newest:
            self._seal_edited(line, known, (place.name, place.offset))
        elif line.c is not None:
            self._count_line(line)
        self._add_to_target(target, place)
        if target != place.name:
            self._kernel.cache.move_line(known.record_key, known.rev, target)

    def _add_to_target(self, target: str, place: _LinePlace) -> None:
        self._targets.setdefault(target, []).append(place)
        self.lines += 1

    def _count_line(self, line: RecordLine) -> None:
        assert line.c is not None
        if line.n is not None:
            self._left[line.c] = self._left.get(line.c, 0) + 1
            self._wanted[line.c] = line

    def _seal_edited(self, line: RecordLine, known: _CachedVersion, where: tuple[str, int]) -> None:
        """Seal a line that was edited by hand, as a commit with this line only."""
        store = self._kernel.replaying.kernel
        head = store.head(line.id)
        row = None if head is None else version(store, head, known.rev)
        if row is None:
            raise Corrupt(f"the cache has no version {known.rev} of {line.id!r}", id=line.id)
        journal = Journal(self._kernel)
        c = ids.new_id()
        made = journal.add_line(row, c, {}, {"by": "hand"}, line.sum)
        self._sealed[where] = journal.joined_lines()
        self._kernel.cache.seal_line(row, made, c)

    def _read_places(self, places: list[_LinePlace], files: Mapping[str, BinaryIO]) -> Iterator[bytes]:
        for place in places:
            again = self._sealed.get((place.name, place.offset))
            raw = again or os.pread(files[place.name].fileno(), place.size, place.offset)
            yield strip_line(raw) + b"\n"

    # -- commits and schemas --------------------------------------------------------------

    def _rewrite_marks(self) -> None:
        """Write the marks that are still needed.

        A commit that loses lines gets a mark without `n`, so that its remaining lines still count.
        """
        marks, others = self._read_lines(folder.COMMITS, CommitMark)
        kept = {mark.c: mark for mark in (self._trim_mark(mark) for mark in marks) if mark is not None}
        for c, left in self._left.items():
            line = self._wanted[c]
            if c not in kept and line.n and line.n != left:
                kept[c] = self._mark_shortened(c, line)
        for c, dropped in self._past.items():
            kept[c] = self._describe_dropped(kept.get(c), dropped)
        retention = self._make_retention_mark()
        if retention is not None:
            kept[retention.c] = retention
        lines = [seal(mark) for mark in sorted(kept.values(), key=lambda m: (m.at, m.seq or 0, m.c))]
        if lines or others or self._folder.stamp(folder.COMMITS) is not None:
            self._files.write(folder.COMMITS, [*lines, *others])

    def _mark_shortened(self, c: str, line: RecordLine) -> CommitMark:
        """Return a mark without `n` for a commit that loses lines and had no mark."""
        self._kernel.cache.put_marks([(c, self._logged.get(c, 0))])
        return CommitMark(c=c, seq=line.seq, at=line.at or clock.EPOCH, by=line.by, kind=line.kind)

    def _read_lines(self, name: str, kind: type[T]) -> tuple[list[T], list[bytes]]:
        """Return the lines of a file, and those that are unreadable; conflict markers are left out."""
        found = list(parse_file(self._folder, name, kind))
        others = [strip_line(raw) for raw, line in found if line is None]
        unreadable = [text + b"\n" for text in others if text and not is_marker(text)]
        return [line for _, line in found if line is not None], unreadable

    def _trim_mark(self, mark: CommitMark) -> CommitMark | None:
        """Return the part of a mark that is still needed; None if nothing is."""
        if mark.thins:
            return None
        left = self._left.get(mark.c, 0)
        seq = self._kernel.cache.find_mark_seq(mark.c)
        if seq is None or mark.forget:
            return mark  # its commit is incomplete, or it has forgotten ids, which must never be lost
        logged = self._kernel.store.read_commit(seq)
        if logged is not None and logged.key is None:
            mark.key = mark.digest = None
        if not left and logged is None:
            return None
        if mark.n is not None and mark.n != left:
            mark.n = None
            if logged is None:
                # The note may be about a record without lines, and could not be forgotten with it.
                mark.note = None
        return mark

    def _describe_dropped(self, mark: CommitMark | None, lines: list[RecordLine]) -> CommitMark:
        """Return the mark of a commit that loses lines, with the ops of these lines in `past`."""
        if mark is None:
            mark = mark_of(min(lines, key=lambda line: line.i))
            self._kernel.cache.put_marks([(mark.c, self._logged.get(mark.c, 0))])
        mark.n = None
        mark.quiet = sorted({*mark.quiet, *(line.i for line in lines if self._is_quiet(line))})
        mark.past = sorted({*mark.past, *((line.i, line.id, line.op, line.rev) for line in lines)})
        return mark

    def _is_quiet(self, line: RecordLine) -> bool:
        """Check whether the schema of a line stays off the feed."""
        state = self._kernel.store.state(line.schema or "")
        return state is not None and not state.feed

    def _make_retention_mark(self) -> CommitMark | None:
        floor, tip = self._kernel.store.floor(), self._kernel.tip
        if not floor:
            return None
        return CommitMark(c=ids.new_id(), seq=tip.seq, at=clock.from_us(tip.at), kind="compact", floor=floor)

    def _rewrite_schemas(self) -> None:
        declared, others = self._read_lines(folder.SCHEMAS, SchemaLine)
        newest = {line.schema: line for line in sorted(declared, key=lambda line: line.at)}
        lines = [seal(newest[name]) for name in sorted(newest)]
        if lines or others:
            self._files.write(folder.SCHEMAS, [*lines, *others])
