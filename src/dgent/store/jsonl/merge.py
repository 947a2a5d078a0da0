"""Merging three versions of a file of lines, as git asks a merge driver to do.

A line is known by its checksum, a line about a commit by its commit. What one side added is taken,
what one side removed is left out, and lines that both sides have are there once. Two versions of one
record that replace the same one are both kept; the store settles and reports that when it is opened.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from dgent.errors import InputError
from dgent.store.engine import merge
from dgent.store.jsonl import folder
from dgent.store.jsonl.line import Line, Mark, Read, fields_of, prevs, read, sealed
from dgent.store.jsonl.lineage import Lineage
from dgent.store.jsonl.scan import is_marker
from dgent.store.jsonl.settle import UNREADABLE
from dgent.system.files import disk_errors


class Merged(msgspec.Struct, frozen=True):
    """What a merge came to: how many lines there are, how many came from the other side, and the ids
    of records that both sides changed in the same fields."""

    path: str
    lines: int
    added: int
    conflicts: list[str]


class _Entry(NamedTuple):
    key: str | bytes
    raw: bytes
    line: Line | Mark | None


def merge_files(base: str, ours: str, theirs: str, path: str) -> Merged:
    """Merge into `ours`; `path` is the name of the file in the repository."""
    for given in (base, ours, theirs):
        if not os.path.isfile(given):
            raise InputError(f"{given} is no file", hint="git calls this with %O %A %B %P")
    with disk_errors(ours):
        name = os.path.basename(path)
        known, mine, other = (_entries(file, name) for file in (base, ours, theirs))
        merged = _united(known, mine, other)
        # In place: git looks at this very file.
        with open(ours, "wb") as file:
            file.writelines(entry.raw for entry in merged)
        added = [entry for entry in merged if entry.key not in mine]
        return Merged(path, len(merged), len(added), _disputed(merged, _changed(known, mine, other)))


def _entries(file: str, name: str) -> dict[str | bytes, _Entry]:
    with open(file, "rb") as opened:
        return {entry.key: entry for entry in (_entry(raw, name) for raw in opened) if entry is not None}


def _entry(raw: bytes, name: str) -> _Entry | None:
    text = raw.strip()
    if not text or is_marker(text):
        return None
    ended = raw.rstrip(b"\r\n") + b"\n"
    if name == folder.SCHEMAS:
        return _Entry(text, ended, None)
    try:
        found = read(text, Mark if name == folder.COMMITS else Line)
    except ValueError:
        return _Entry(text, ended, None)
    return _Entry(found.line.c if name == folder.COMMITS else found.sum, ended, found.line)


def _united(
    base: dict[str | bytes, _Entry], ours: dict[str | bytes, _Entry], theirs: dict[str | bytes, _Entry]
) -> list[_Entry]:
    """Ours in its order, then what is new in theirs; without what either side removed."""
    merged: list[_Entry] = []
    for key, entry in ours.items():
        other = theirs.get(key)
        if other is not None:
            merged.append(_agreed(base.get(key), entry, other))
        elif key not in base or _lasts(entry):
            merged.append(entry)
    merged += [
        entry for key, entry in theirs.items() if key not in ours and (key not in base or _lasts(entry))
    ]
    return merged


def _agreed(base: _Entry | None, ours: _Entry, theirs: _Entry) -> _Entry:
    """One line of two about the same commit: what either side took away from it is gone."""
    if base is not None and ours.raw == base.raw:
        return theirs
    left, right = ours.line, theirs.line
    if ours.raw == theirs.raw or (base is not None and theirs.raw == base.raw):
        return ours
    if not isinstance(left, Mark) or not isinstance(right, Mark):
        return ours
    for name in ("n", "note", "key", "digest"):
        if getattr(right, name) is None:
            setattr(left, name, None)
    left.gone = sorted({*left.gone, *right.gone})
    gone = {(i, op, rev) for i, op, rev in left.gone}
    left.past = sorted(e for e in {*left.past, *right.past} if (e[0], e[2], e[3]) not in gone)
    left.quiet = sorted({*left.quiet, *right.quiet})
    left.drops = {id: max(rev, right.drops[id]) for id, rev in left.drops.items() if id in right.drops}
    known = {(i, id) for i, id, _ in right.same}
    left.same = [(i, id if (i, id) in known else None, rev) for i, id, rev in left.same]
    return _Entry(ours.key, sealed(fields_of(left))[0], left)


def _lasts(entry: _Entry) -> bool:
    """Whether no side can remove a line: what was forgotten stays forgotten.

    Nor what says that the lines of a commit are all: the other side may have moved some to another file.
    """
    mark = entry.line
    return isinstance(mark, Mark) and (bool(mark.forget) or (mark.n is None and not mark.thins))


def _disputed(merged: list[_Entry], ids: Collection[str]) -> list[str]:
    """The records of some that no rule merges: those that the store will report when it is opened."""
    found: dict[str, list[Read]] = {id: [] for id in ids}
    for entry in merged:
        if isinstance(entry.line, Line) and isinstance(entry.key, str) and entry.line.id in found:
            found[entry.line.id].append(Read(entry.line, entry.key, False))
    return [id for id in sorted(found) if _is_disputed(found[id])]


def _is_disputed(reads: list[Read]) -> bool:
    replaced = {each for read in reads for each in prevs(read.line)}
    tips = [read for read in reads if read.sum not in replaced]
    schemas = {read.line.schema or "" for read in tips}
    rules = merge.rules_of(max(schemas, default=""))
    if len(tips) < 2 or (rules is not None and not schemas.isdisjoint(rules.joint)):
        return False
    try:
        return bool(Lineage(reads).merge(read.sum for read in tips).disputed)
    except UNREADABLE:
        return True


def _changed(
    base: dict[str | bytes, _Entry], ours: dict[str | bytes, _Entry], theirs: dict[str | bytes, _Entry]
) -> list[str]:
    """The records that both sides changed, each from the same version on."""
    sides = [dict(_roots(base, side, other)) for side, other in ((ours, theirs), (theirs, ours))]
    return sorted({id for prev, id in sides[0].items() if sides[1].get(prev) == id})


def _roots(
    base: dict[str | bytes, _Entry], side: dict[str | bytes, _Entry], other: dict[str | bytes, _Entry]
) -> Iterator[tuple[str, str]]:
    """What a side's new lines replace that was there before, with the record."""
    for key, entry in side.items():
        if key not in base and key not in other and isinstance(entry.line, Line):
            for prev in prevs(entry.line) or (f"new {entry.line.id}",):
                yield prev, entry.line.id
