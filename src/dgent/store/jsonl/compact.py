"""The canonical form of a folder: lines sorted by id, what no longer counts left out.

Lines are moved, never written anew, so that a line keeps its checksum, and other copies of the
folder know it again. Only a line that was edited by hand is sealed: it gets the right checksum.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from dgent import clock, ids
from dgent.errors import Conflict, Corrupt
from dgent.store.engine.read import version
from dgent.store.jsonl import folder
from dgent.store.jsonl.damage import SETTLE
from dgent.store.jsonl.journal import Journal
from dgent.store.jsonl.line import Declared, Line, Mark, fields_of, read, sealed, stripped
from dgent.store.jsonl.rewrite import rewriting
from dgent.store.jsonl.scan import is_marker

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel

_LINES = (
    "SELECT l.sum, l.dk, l.rev, d.rev, d.live,"
    " EXISTS (SELECT 1 FROM past p WHERE p.dk = l.dk AND p.rev = l.rev)"
    " FROM j_line l JOIN datum d ON d.dk = l.dk AND d.trail = 0"
)
_UNREAD = "\U0010ffff"  # sorts after every id


class Compaction(msgspec.Struct, frozen=True):
    """What a compaction came to."""

    lines: int
    dropped: int
    sealed: int
    size_bytes: int


class _Version(NamedTuple):
    """What the cache says of a line."""

    dk: int
    rev: int
    head_rev: int
    live: int
    kept: int


class _Place(NamedTuple):
    """Where a line is, and where it belongs: by id, then by rev."""

    id: str
    rev: int
    name: str
    offset: int
    size: int


class Compacting:
    """One rewriting of all files; runs under the folder's lock, in a transaction of the cache."""

    def __init__(self, kernel: JSONLKernel) -> None:
        self._kernel, self._folder = kernel, kernel.folder
        self._versions = {made: _Version(*rest) for made, *rest in kernel._all(_LINES)}
        self._targets: dict[str, list[_Place]] = {}
        self._seen: set[str] = set()
        self._sealed: dict[tuple[str, int], bytes] = {}
        self._left: dict[str, int] = {}  # how many lines of a commit stay
        self._wanted: dict[str, Line] = {}  # a line of it, which says how many it has
        # The log tells of these, whatever becomes of their lines.
        self._logged = dict(kernel._all("SELECT cid, seq FROM commits WHERE cid IS NOT NULL"))
        self._past: dict[str, list[Line]] = {}
        self.lines = self.dropped = 0

    def run(self) -> Compaction:
        """Rewrite every file, all of them as one step."""
        damaged = len(self._kernel.cache.damaged())
        if damaged:
            raise Conflict(f"{damaged} damaged commits are not settled", hint=SETTLE)
        names = [name for name in self._folder.stamps() if folder.holds_records(name)]
        with ExitStack() as stack, rewriting(self._kernel) as self._files:
            files = {name: stack.enter_context(self._folder.read(name)) for name in names}
            for name, file in files.items():
                self._sort(name, file)
            self._rewrite_marks()
            for name in sorted({*names, *self._targets}):
                # One that has no lines left stays, empty: git merges no file that one side removed.
                places = sorted(self._targets.get(name, ()))
                self._files.write(name, self._written(places, files))
            self._rewrite_schemas()
        return Compaction(self.lines, self.dropped, len(self._sealed), self._folder.size())

    # -- lines ----------------------------------------------------------------------------

    def _sort(self, name: str, file: BinaryIO) -> None:
        offset = 0
        for raw in file:
            self._take(name, raw, offset)
            offset += len(raw)

    def _take(self, name: str, raw: bytes, offset: int) -> None:
        text = stripped(raw)
        if not text or is_marker(text):
            return
        try:
            found = read(text)
        except ValueError:
            self._place(name, _Place(_UNREAD, 0, name, offset, len(raw)))
            return
        line: Line = found.line
        if found.sum in self._seen:
            self.dropped += 1
            return
        self._seen.add(found.sum)
        known = self._versions.get(found.sum)
        if known is None:
            # Of a commit that is not whole, or a version that an edit took the place of.
            self._place(name, _Place(_UNREAD, 1, name, offset, len(raw)))
            return
        if not known.kept and known.rev != known.head_rev:
            self.dropped += 1
            if line.c is not None and line.c in self._logged:
                self._past.setdefault(line.c, []).append(line)
            return
        target = folder.file_of(line.schema or "")
        if known.rev == known.head_rev and not known.live:
            target = folder.DELETED
        if found.hand and known.rev == known.head_rev:
            self._seal(line, known, (name, offset))
        elif line.c is not None:
            self._count(line)
        self._place(target, _Place(line.id, known.rev, name, offset, len(raw)))
        if target != name:
            number = self._kernel.cache.number(target)
            values = (number, known.dk, known.rev)
            self._kernel._execute("UPDATE j_line SET file = ? WHERE dk = ? AND rev = ?", values)

    def _place(self, target: str, place: _Place) -> None:
        self._targets.setdefault(target, []).append(place)
        self.lines += 1

    def _count(self, line: Line) -> None:
        assert line.c is not None
        if line.n is not None:
            self._left[line.c] = self._left.get(line.c, 0) + 1
            self._wanted[line.c] = line

    def _seal(self, line: Line, known: _Version, where: tuple[str, int]) -> None:
        """Write what was edited by hand as a version of its own."""
        kernel = self._kernel
        assert kernel.replaying is not None
        store = kernel.replaying.kernel
        head = store.head(line.id)
        row = None if head is None else version(store, head, known.rev)
        if row is None:
            raise Corrupt(f"the cache has no version {known.rev} of {line.id!r}", id=line.id)
        journal = Journal(kernel)
        c = ids.new_id()
        made = journal.add_line(row, c, {}, {"by": "hand"}, line.sum)
        self._sealed[where] = journal.taken()
        kernel._execute(
            "UPDATE j_line SET sum = ?, c = ? WHERE dk = ? AND rev = ?", (made, c, row.dk, row.rev)
        )
        kernel._execute("UPDATE commits SET cid = ? WHERE seq = ?", (c, row.seq))

    def _written(self, places: list[_Place], files: Mapping[str, BinaryIO]) -> Iterator[bytes]:
        for place in places:
            again = self._sealed.get((place.name, place.offset))
            raw = again or os.pread(files[place.name].fileno(), place.size, place.offset)
            yield stripped(raw) + b"\n"

    # -- commits and schemas --------------------------------------------------------------

    def _rewrite_marks(self) -> None:
        """Keep of commits what still decides or tells something.

        A commit that loses lines is sealed first: it says no longer how many it has.
        """
        others: list[bytes] = []
        marks: list[Mark] = []
        for raw in self._raw(folder.COMMITS):
            try:
                marks.append(read(raw, Mark).line)
            except ValueError:
                others.append(raw + b"\n")
        kept = {mark.c: mark for mark in (self._mark(mark) for mark in marks) if mark is not None}
        for c, left in self._left.items():
            line = self._wanted[c]
            if c not in kept and line.n and line.n != left:
                kept[c] = Mark(c=c, seq=line.seq, at=line.at or clock.EPOCH, by=line.by, kind=line.kind)
                self._kernel.cache.put_marks([(c, self._logged.get(c, 0))])
        for c, dropped in self._past.items():
            kept[c] = self._remembered(kept.get(c), dropped)
        thinned = self._thinned()
        if thinned is not None:
            kept[thinned.c] = thinned
        lines = [
            sealed(fields_of(mark))[0]
            for mark in sorted(kept.values(), key=lambda m: (m.at, m.seq or 0, m.c))
        ]
        if lines or others or self._folder.stamp(folder.COMMITS) is not None:
            self._files.write(folder.COMMITS, [*lines, *others])

    def _raw(self, name: str) -> list[bytes]:
        if self._folder.stamp(name) is None:
            return []
        with self._folder.read(name) as file:
            lines = map(stripped, file)
            return [line for line in lines if line and not is_marker(line)]

    def _mark(self, mark: Mark) -> Mark | None:
        """What stays of a mark."""
        if mark.thins:
            return None
        left = self._left.get(mark.c, 0)
        seq = self._kernel.cache.marked(mark.c)
        if seq is None or mark.forget:
            return mark  # of a commit that is not whole, or one that must never be lost
        logged = self._kernel.read_commit(seq)
        if logged is not None and logged.key is None:
            mark.key = mark.digest = None
        if not left and logged is None:
            return None
        if mark.n is not None and mark.n != left:
            mark.n = None
            if logged is None:
                # It may be about a record whose line is gone, and could not be forgotten with it.
                mark.note = None
        return mark

    def _remembered(self, mark: Mark | None, lines: list[Line]) -> Mark:
        """The mark of a commit that lost lines, which tells what they told."""
        if mark is None:
            first = min(lines, key=lambda line: line.i)
            mark = Mark(
                c=first.c or "", seq=first.seq, at=first.at or clock.EPOCH, by=first.by or first.author
            )
            mark.kind, mark.note, mark.of = first.kind, first.note, first.of
            mark.key, mark.digest = first.key, first.digest
            self._kernel.cache.put_marks([(mark.c, self._logged.get(mark.c, 0))])
        mark.n = None
        mark.quiet = sorted({*mark.quiet, *(line.i for line in lines if self._is_quiet(line))})
        mark.past = sorted({*mark.past, *((line.i, line.id, line.op, line.rev) for line in lines)})
        return mark

    def _is_quiet(self, line: Line) -> bool:
        """Check whether the schema of a line stays off the feed."""
        state = self._kernel.state(line.schema or "")
        return state is not None and not state.feed

    def _thinned(self) -> Mark | None:
        floor, tip = self._kernel.floor(), self._kernel.tip
        if not floor:
            return None
        return Mark(c=ids.new_id(), seq=tip.seq, at=clock.from_us(tip.at), kind="compact", floor=floor)

    def _rewrite_schemas(self) -> None:
        newest: dict[str, Declared] = {}
        others: list[bytes] = []
        for raw in self._raw(folder.SCHEMAS):
            try:
                declared: Declared = read(raw, Declared).line
            except ValueError:
                others.append(raw + b"\n")
                continue
            before = newest.get(declared.schema)
            if before is None or before.at <= declared.at:
                newest[declared.schema] = declared
        lines = [sealed(fields_of(newest[name]))[0] for name in sorted(newest)]
        if lines or others:
            self._files.write(folder.SCHEMAS, [*lines, *others])
