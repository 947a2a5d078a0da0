"""Git and the files of a store: set up the merge driver, and merge three versions of a file of lines.

A record line is identified by its checksum, a mark by its commit. Lines that one side added are added,
lines that one side removed are removed, and lines of both sides appear once. Two versions of one record
that replace the same one are both kept; the store settles and reports them when it is opened.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from dgent.errors import InputError, NotFound, StorageError, Unsupported
from dgent.store.engine import merge
from dgent.store.jsonl import folder
from dgent.store.jsonl.line import (
    CommitMark,
    ParsedLine,
    RecordLine,
    fields_of,
    parse_line,
    previous_sums,
    seal_line,
)
from dgent.store.jsonl.lineage import Lineage
from dgent.store.jsonl.scan import is_marker
from dgent.system.files import disk_errors


class FileMerge(msgspec.Struct, frozen=True):
    """The result of a merge: how many lines there are, how many came from the other side, and the ids
    of records that both sides changed in the same fields."""

    path: str
    lines: int
    added: int
    conflicts: list[str]


class _KeyedLine(NamedTuple):
    key: str | bytes
    raw: bytes
    line: RecordLine | CommitMark | None


def merge_files(base: str, ours: str, theirs: str, path: str) -> FileMerge:
    """Merge into `ours`; `path` is the name of the file in the repository."""
    for given in (base, ours, theirs):
        if not os.path.isfile(given):
            raise InputError(f"{given} is not a file", hint="git calls this with %O %A %B %P")
    with disk_errors(ours):
        name = os.path.basename(path)
        known, mine, other = (_read_lines(file, name) for file in (base, ours, theirs))
        merged = _merge_lines(known, mine, other)
        # In place: git reads the result from this file.
        with open(ours, "wb") as file:
            file.writelines(entry.raw for entry in merged)
        added = [entry for entry in merged if entry.key not in mine]
        return FileMerge(
            path, len(merged), len(added), _find_disputed(merged, _find_changed_by_both(known, mine, other))
        )


def _read_lines(file: str, name: str) -> dict[str | bytes, _KeyedLine]:
    with open(file, "rb") as opened:
        return {entry.key: entry for entry in (_parse(raw, name) for raw in opened) if entry is not None}


def _parse(raw: bytes, name: str) -> _KeyedLine | None:
    text = raw.strip()
    if not text or is_marker(text):
        return None
    ended = raw.rstrip(b"\r\n") + b"\n"
    if name == folder.SCHEMAS:
        return _KeyedLine(text, ended, None)
    try:
        found = parse_line(text, CommitMark if name == folder.COMMITS else RecordLine)
    except ValueError:
        return _KeyedLine(text, ended, None)
    return _KeyedLine(found.line.c if name == folder.COMMITS else found.sum, ended, found.line)


def _merge_lines(
    base: dict[str | bytes, _KeyedLine],
    ours: dict[str | bytes, _KeyedLine],
    theirs: dict[str | bytes, _KeyedLine],
) -> list[_KeyedLine]:
    """Return our lines in order, then new ones of theirs, without lines that either side removed."""
    merged: list[_KeyedLine] = []
    for key, entry in ours.items():
        other = theirs.get(key)
        if other is not None:
            merged.append(_merge_line(base.get(key), entry, other))
        elif key not in base or _is_permanent(entry):
            merged.append(entry)
    merged += [
        entry
        for key, entry in theirs.items()
        if key not in ours and (key not in base or _is_permanent(entry))
    ]
    return merged


def _merge_line(base: _KeyedLine | None, ours: _KeyedLine, theirs: _KeyedLine) -> _KeyedLine:
    """Merge two lines with the same key: the changed one wins, and marks that both changed are merged."""
    if base is not None and ours.raw == base.raw:
        return theirs
    left, right = ours.line, theirs.line
    if ours.raw == theirs.raw or (base is not None and theirs.raw == base.raw):
        return ours
    if not isinstance(left, CommitMark) or not isinstance(right, CommitMark):
        return ours
    _merge_marks(left, right)
    return _KeyedLine(ours.key, seal_line(fields_of(left))[0], left)


def _merge_marks(left: CommitMark, right: CommitMark) -> None:
    """Merge one mark into another; a field that either side removed stays removed."""
    for name in ("n", "note", "key", "digest"):
        if getattr(right, name) is None:
            setattr(left, name, None)
    left.gone = sorted({*left.gone, *right.gone})
    gone = set(left.gone)
    left.past = sorted(e for e in {*left.past, *right.past} if (e[0], e[2], e[3]) not in gone)
    left.removed = sorted({*left.removed, *right.removed})
    left.quiet = sorted({*left.quiet, *right.quiet})
    left.drops = {id: max(rev, right.drops[id]) for id, rev in left.drops.items() if id in right.drops}
    known = {(i, id) for i, id, _ in right.same}
    left.same = [(i, id if (i, id) in known else None, rev) for i, id, rev in left.same]


def _is_permanent(entry: _KeyedLine) -> bool:
    """Check whether a line stays even if one side removed it.

    This holds for marks with forgotten ids, and for marks without `n`: the other side may have moved lines of
    the commit to another file.
    """
    mark = entry.line
    return isinstance(mark, CommitMark) and (bool(mark.forget) or (mark.n is None and not mark.thins))


def _find_disputed(merged: list[_KeyedLine], ids: Collection[str]) -> list[str]:
    """Return those of some records that the store will report as conflicts when it is opened."""
    found: dict[str, list[ParsedLine]] = {id: [] for id in ids}
    for entry in merged:
        if isinstance(entry.line, RecordLine) and isinstance(entry.key, str) and entry.line.id in found:
            found[entry.line.id].append(ParsedLine(entry.line, entry.key, False))
    return [id for id in sorted(found) if _is_disputed(found[id])]


def _is_disputed(reads: list[ParsedLine]) -> bool:
    replaced = {each for parsed in reads for each in previous_sums(parsed.line)}
    tips = [parsed for parsed in reads if parsed.sum not in replaced]
    schemas = {parsed.line.schema or "" for parsed in tips}
    rules = merge.rules_of(max(schemas, default=""))
    if len(tips) < 2 or (rules is not None and not schemas.isdisjoint(rules.joint)):
        return False
    try:
        return bool(Lineage(reads).merge_tips(parsed.sum for parsed in tips).disputed)
    except merge.UNREADABLE:
        return True


def _find_changed_by_both(
    base: dict[str | bytes, _KeyedLine],
    ours: dict[str | bytes, _KeyedLine],
    theirs: dict[str | bytes, _KeyedLine],
) -> list[str]:
    """Return the ids of records that both sides changed, starting from the same version."""
    sides = [dict(_replaced_lines(base, side, other)) for side, other in ((ours, theirs), (theirs, ours))]
    return sorted({id for prev, id in sides[0].items() if sides[1].get(prev) == id})


def _replaced_lines(
    base: dict[str | bytes, _KeyedLine],
    side: dict[str | bytes, _KeyedLine],
    other: dict[str | bytes, _KeyedLine],
) -> Iterator[tuple[str, str]]:
    """Yield the sum that each new line of a side replaces, with the id of its record."""
    for key, entry in side.items():
        if key not in base and key not in other and isinstance(entry.line, RecordLine):
            for prev in previous_sums(entry.line) or (f"new {entry.line.id}",):
                yield prev, entry.line.id


DRIVER = "dgent"
ATTRIBUTES = f"*.jsonl merge={DRIVER} -text\n"


class GitSetup(msgspec.Struct, frozen=True):
    """The git configuration of a folder: repository, attributes file and merge driver command."""

    repository: str
    attributes: str
    driver: str
    changed: bool


def set_up_git(folder: str) -> GitSetup:
    """Set the folder's attributes and its repository's merge driver, so that git merges lines.

    The attributes are committed with the repository; the command of the driver is set in each clone.
    """
    top = find_repository(folder)
    if top is None:
        raise NotFound(
            f"{folder} is not in a git repository", hint="run `git init`, or use a folder in a clone"
        )
    command = f"{_dgent_command()} jsonl merge-driver %O %A %B %P"
    before = _ask_git(folder, "config", "--get", f"merge.{DRIVER}.driver")
    _run_git(folder, "config", f"merge.{DRIVER}.name", "lines of a dgent store")
    _run_git(folder, "config", f"merge.{DRIVER}.driver", command)
    path = os.path.join(folder, ".gitattributes")
    added = _add_attributes(path)
    return GitSetup(top, path, command, added or before != command)


def find_repository(folder: str) -> str | None:
    """Return the top folder of the git repository around a folder; None outside of one, or without git."""
    return _ask_git(folder, "rev-parse", "--show-toplevel") if shutil.which("git") else None


def is_set_up(folder: str) -> bool | None:
    """Check whether git merges the folder's files by lines; None outside a git repository."""
    if find_repository(folder) is None:
        return None
    attribute = _ask_git(folder, "check-attr", "merge", "x.jsonl") or ""
    return attribute.endswith(f": {DRIVER}") and bool(
        _ask_git(folder, "config", "--get", f"merge.{DRIVER}.driver")
    )


def _dgent_command() -> str:
    """Return the command that runs this installation of dgent."""
    found = os.path.join(os.path.dirname(sys.executable), "dgent")
    if os.access(found, os.X_OK):
        return shlex.quote(found)
    return f"{shlex.quote(sys.executable)} -c 'from dgent.doors.cli.main import main; main()'"


def _add_attributes(path: str) -> bool:
    with disk_errors(path):
        text = ""
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                text = file.read()
        if ATTRIBUTES in text:
            return False
        with open(path, "a", encoding="utf-8") as file:
            file.write(("\n" if text and not text.endswith("\n") else "") + ATTRIBUTES)
        return True


def _ask_git(folder: str, *words: str) -> str | None:
    """Run git and return its output; None if it fails."""
    if shutil.which("git") is None:
        raise Unsupported("git is not installed here")
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _run_git(folder: str, *words: str) -> None:
    if _ask_git(folder, *words) is None:
        raise StorageError(f"git {' '.join(words)} failed in {folder}")
