"""Rewrite the files of a folder without forgotten records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from dgent.store.jsonl import folder
from dgent.store.jsonl.damage import mark_of
from dgent.store.jsonl.line import CommitMark, RecordLine, seal
from dgent.store.jsonl.rewrite import FileRewrite
from dgent.store.jsonl.scan import parse_file

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel


def purge(kernel: JSONLKernel, ids: Sequence[str]) -> None:
    """Remove every line of forgotten records; unreadable lines with one of `ids` are removed too."""
    texts = [msgspec.json.encode(id)[1:-1] for id in ids]
    touched: dict[str, list[RecordLine]] = {}
    affected = []
    for name in filter(folder.holds_records, kernel.folder.stamps()):
        lines = [line for _, line, goes in _check_lines(kernel, name, texts) if goes]
        for line in lines:
            if line is not None and line.c is not None:
                touched.setdefault(line.c, []).append(line)
        if lines:
            affected.append(name)
    with FileRewrite(kernel) as files:
        if touched or kernel.folder.stamp(folder.COMMITS) is not None:
            files.write(folder.COMMITS, _rewrite_marks(kernel, touched, texts))
        for name in affected:
            files.write(name, (raw for raw, _, goes in _check_lines(kernel, name, texts) if not goes))
    kernel.cache.end_purge()


def is_forgotten(kernel: JSONLKernel, line: RecordLine) -> bool:
    """Check whether a line belongs to a forgotten record, not to a later one with the same id."""
    # A line written by hand is in no commit, and its author saw the current files.
    if line.c is None or not kernel.store.forgotten_rev(line.id):
        return False
    return kernel.cache.is_erased(kernel.cache.hash(line.id), line.after, line.sum)


def _check_lines(
    kernel: JSONLKernel, name: str, texts: Sequence[bytes]
) -> Iterator[tuple[bytes, RecordLine | None, bool]]:
    """Yield the lines of a file, as bytes and parsed, each with whether it must be removed."""
    for raw, line in parse_file(kernel.folder, name, RecordLine):
        # An unreadable line with the id in it may belong to the record.
        goes = _has_text(raw, texts) if line is None else is_forgotten(kernel, line)
        yield raw, line, goes


def _has_text(raw: bytes, texts: Sequence[bytes]) -> bool:
    return any(text in raw for text in texts)


def _rewrite_marks(
    kernel: JSONLKernel, touched: dict[str, list[RecordLine]], texts: Sequence[bytes]
) -> Iterator[bytes]:
    """Yield the marks without forgotten records; each commit that loses a line gets a mark."""
    marked: set[str] = set()
    for raw, mark in parse_file(kernel.folder, folder.COMMITS, CommitMark):
        if mark is not None:
            marked.add(mark.c)
            _remove_forgotten(kernel, mark)
            yield _seal_mark(mark, touched.get(mark.c, ()))
        elif not _has_text(raw, texts):
            yield raw
    for c, lines in touched.items():
        if c not in marked:
            kernel.cache.put_marks([(c, kernel.cache.seq_of(c) or 0)])
            yield _seal_mark(mark_of(min(lines, key=lambda line: line.i)), lines)


def _remove_forgotten(kernel: JSONLKernel, mark: CommitMark) -> None:
    """Remove the ids of forgotten records from a mark; their ops stay, without ids."""
    known = {id for id in _ids_in(mark) if kernel.store.head(id) is not None}
    mark.same = [(i, id if id in known else None, rev) for i, id, rev in mark.same]
    mark.drops = {id: rev for id, rev in mark.drops.items() if id in known}
    gone = [each for each in mark.past if each[1] not in known]
    if gone:
        mark.note = mark.digest = None
        mark.past = [each for each in mark.past if each[1] in known]
        mark.gone = sorted([*mark.gone, *((i, op, rev) for i, _, op, rev in gone)])


def _ids_in(mark: CommitMark) -> set[str]:
    ids = {id for _, id, _ in mark.same if id is not None} | mark.drops.keys()
    return ids | {id for _, id, _, _ in mark.past}


def _seal_mark(mark: CommitMark, lost: Sequence[RecordLine]) -> bytes:
    """Return a mark as a line; if its commit loses lines, without `n`, note and digest."""
    if lost:
        mark.n = mark.note = mark.digest = None
        mark.gone = sorted([*mark.gone, *((line.i, line.op, line.rev) for line in lost)])
    return seal(mark)
