"""Rewriting the files of a folder without the records that were forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from dgent import clock
from dgent.store.jsonl import folder
from dgent.store.jsonl.line import Line, Mark, fields_of, read, sealed
from dgent.store.jsonl.rewrite import rewriting
from dgent.store.jsonl.scan import raw_lines

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel


def purge(kernel: JSONLKernel, ids: Sequence[str]) -> None:
    """Drop every line of a forgotten record; `ids` are known when it is forgotten just now."""
    names = [name for name in kernel.folder.stamps() if folder.holds_records(name)]
    texts = [msgspec.json.encode(id)[1:-1] for id in ids]
    touched: dict[str, list[Line]] = {}
    affected = []
    for name in names:
        lines = list(_dropped(kernel, name, texts))
        for line in lines:
            if line is not None and line.c is not None:
                touched.setdefault(line.c, []).append(line)
        if lines:
            affected.append(name)
    with rewriting(kernel) as files:
        if touched or kernel.folder.stamp(folder.COMMITS) is not None:
            files.write(folder.COMMITS, _marks(kernel, touched, texts))
        for name in affected:
            files.write(name, _kept(kernel, name, texts))
    kernel._execute("DELETE FROM j_line WHERE dk NOT IN (SELECT dk FROM datum)")


def is_forgotten(kernel: JSONLKernel, line: Line) -> bool:
    """Whether a line is of a record that was forgotten, and not of one made anew under its id."""
    # What somebody wrote by hand is in no commit, and was written knowing what is there.
    if line.c is None or not kernel.forgotten_rev(line.id):
        return False
    return kernel.cache.is_erased(kernel._hash(line.id), line.after, line.sum)


def _judged(kernel: JSONLKernel, raw: bytes, texts: Sequence[bytes]) -> tuple[bool, Line | None]:
    """Whether a line goes, and the line if it can be read."""
    try:
        line: Line = read(raw).line
    except ValueError:
        # It cannot be read, so whatever has the id in it might be about the record.
        return any(text in raw for text in texts), None
    return is_forgotten(kernel, line), line


def _dropped(kernel: JSONLKernel, name: str, texts: Sequence[bytes]) -> Iterator[Line | None]:
    for raw in raw_lines(kernel.folder, name):
        goes, line = _judged(kernel, raw, texts)
        if goes:
            yield line


def _kept(kernel: JSONLKernel, name: str, texts: Sequence[bytes]) -> Iterator[bytes]:
    for raw in raw_lines(kernel.folder, name):
        if not _judged(kernel, raw, texts)[0]:
            yield raw if raw.endswith(b"\n") else raw + b"\n"


def _marks(kernel: JSONLKernel, touched: dict[str, list[Line]], texts: Sequence[bytes]) -> Iterator[bytes]:
    """The lines of commits, without what they say of forgotten records; one for each that lost a line."""
    told: set[str] = set()
    there = kernel.folder.stamp(folder.COMMITS) is not None
    for raw in raw_lines(kernel.folder, folder.COMMITS) if there else ():
        try:
            mark: Mark = read(raw, Mark).line
        except ValueError:
            if not any(text in raw for text in texts):
                yield raw if raw.endswith(b"\n") else raw + b"\n"
            continue
        told.add(mark.c)
        known = {id for _, id, _ in mark.same if id is not None} | mark.drops.keys()
        known |= {id for _, id, _, _ in mark.past}
        known = {id for id in known if kernel.head(id) is not None}
        mark.same = [(i, id if id in known else None, rev) for i, id, rev in mark.same]
        mark.drops = {id: rev for id, rev in mark.drops.items() if id in known}
        gone = [each for each in mark.past if each[1] not in known]
        if gone:
            mark.note = mark.digest = None
            mark.past = [each for each in mark.past if each[1] in known]
            mark.gone = sorted([*mark.gone, *((i, op, rev) for i, _, op, rev in gone)])
        yield _sealed(mark, touched.get(mark.c, ()))
    for c, lines in touched.items():
        if c not in told:
            first = min(lines, key=lambda line: line.i)
            mark = Mark(c=c, seq=first.seq, at=first.at or clock.EPOCH, by=first.by or first.author)
            mark.kind, mark.of, mark.key = first.kind, first.of, first.key
            kernel.cache.put_marks([(c, kernel.cache.seq_of(c) or 0)])
            yield _sealed(mark, lines)


def _sealed(mark: Mark, lost: Sequence[Line]) -> bytes:
    """A mark as a line; one that lost lines says no longer how many it has, nor why it was made."""
    if lost:
        mark.n = mark.note = mark.digest = None
        mark.gone = sorted([*mark.gone, *((line.i, line.op, line.rev) for line in lost)])
    return sealed(fields_of(mark))[0]
