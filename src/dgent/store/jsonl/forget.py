"""Rewrite the files of a folder without forgotten records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dgent.store.engine.kernel import Reading
from dgent.store.engine.merge import is_joint
from dgent.store.jsonl import folder
from dgent.store.jsonl.cache import FIND_INCOMPLETE
from dgent.store.jsonl.damage import mark_of
from dgent.store.jsonl.folder import StoreFolder
from dgent.store.jsonl.line import CommitMark, RecordLine, parse_line, seal, strip_line
from dgent.store.jsonl.rewrite import FileRewrite
from dgent.store.jsonl.scan import BAD, CUT, is_marker, parse_file

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel

_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*")')
_FIRST_ID = re.compile(rb"\{\s*" + _ID.pattern)
_LINE = re.compile(_FIRST_ID.pattern + rb'\s*,\s*"rev"')


def purge(kernel: JSONLKernel, ids: Sequence[str]) -> None:
    """Remove every line of forgotten records, and lines that do not count and may hold some of their text.

    These are incomplete commits about one of the records, or about the block that it is part of, and
    unreadable lines of a record with one of `ids` or of the ids in removed lines, as far as can be known.
    """
    found = _Removal(kernel, ids)
    kernel.cache.remove_incomplete(found.commits)
    with FileRewrite(kernel) as files:
        if found.touched or kernel.folder.stamp(folder.COMMITS) is not None:
            files.write(folder.COMMITS, _rewrite_marks(kernel, found))
        for name in sorted(found.affected):
            files.write(name, found.remaining_lines(name))
    kernel.cache.end_purge()


class _Removal:
    """The lines that a purge removes, found in one pass over all files."""

    def __init__(self, kernel: JSONLKernel, ids: Sequence[str]) -> None:
        self._kernel = kernel
        self._incomplete = kernel.cache.incomplete_commits()
        self.touched: dict[str, list[RecordLine]] = {}  # lines of forgotten records, by commit
        # The lines of damaged commits that stay, by commit.
        self.left: dict[str | None, set[str | None]] = {c: set() for c in kernel.cache.damaged_commits()}
        self.affected: set[str] = set()  # the files that lose lines
        self._ids, self._roots = set(ids), set[str]()  # roots: the blocks that erased records are parts of
        self._unreadable: set[str] = set()  # files with lines that cannot be read
        self._waiting: dict[str, list[_WaitingLine]] = {}  # lines of incomplete commits
        for name in filter(folder.holds_records, kernel.folder.stamps()):
            for raw, line in parse_file(kernel.folder, name, RecordLine):
                self._add_line(name, raw, line)
        self.commits = {c for c, lines in self._waiting.items() if any(map(self._may_hold_erased, lines))}
        self.affected.update(each.name for c in self.commits for each in self._waiting[c])
        names = [*self._ids, *(f"{root}/" for root in self._roots)]
        self._texts = [msgspec.json.encode(each)[1:-1] for each in names]
        self.affected.update(filter(self._has_named_line, self._unreadable - self.affected))

    def _add_line(self, name: str, raw: bytes, line: RecordLine | None) -> None:
        if line is None:
            self._unreadable.add(name)
        elif self._is_incomplete(raw, line):
            erased = names_erased(self._kernel, line)
            self._waiting.setdefault(line.c or "", []).append(_WaitingLine(name, line.id, erased))
            if erased:
                self._add_erased(line)
        elif self._is_forgotten(line):
            self.affected.add(name)
            self._add_erased(line)
            # A mark for a commit whose name was edited would look like a commit of another copy.
            if line.c and (not parse_line(raw).hand or self._kernel.cache.has_commit(line.c)):
                self.touched.setdefault(line.c, []).append(line)
        elif line.c in self.left:
            self.left[line.c].add(line.sum)

    def _is_forgotten(self, line: RecordLine) -> bool:
        """Check whether a line is of a forgotten record; one written by hand is if no later one exists."""
        store = self._kernel.store
        if line.c is None and store.forgotten_rev(line.id):
            return store.head(line.id) is None
        return is_forgotten(self._kernel, line)

    def _add_erased(self, line: RecordLine) -> None:
        self._ids.add(line.id)
        if is_joint(line.schema or ""):
            self._roots.add(_root_of(line.id))

    def _is_incomplete(self, raw: bytes, line: RecordLine) -> bool:
        # A line that was edited by hand counts without its commit.
        return line.c in self._incomplete and not parse_line(raw).hand

    def _may_hold_erased(self, line: _WaitingLine) -> bool:
        return line.erased or _root_of(line.id) in self._roots

    def _has_named_line(self, name: str) -> bool:
        lines = parse_file(self._kernel.folder, name, RecordLine)
        return any(line is None and self._is_named(raw) for raw, line in lines)

    def _is_named(self, raw: bytes) -> bool:
        """Check whether an unreadable line may be of a record or a commit that is removed.

        It is not if it begins with the id of another record. It may be two lines in one, so ids are looked
        for in all of it; of a line without an id at its beginning nothing is known, but what it contains.
        """
        text = strip_line(raw)
        if is_marker(text):
            return False
        if any(c.encode() in text for c in self.commits) or any(map(self._is_removed, _find_ids(text))):
            return True
        return _find_id(text) is None and any(each in text for each in self._texts)

    def _is_removed(self, id: str | None) -> bool:
        return id is not None and (id in self._ids or ("/" in id and _root_of(id) in self._roots))

    def is_mark_named(self, raw: bytes) -> bool:
        """Check whether an unreadable mark may be of a commit that loses lines, or has the id of a record."""
        ids = (each if each.endswith(b"/") else each + b'"' for each in self._texts)
        commits = (c.encode() for c in (*self.commits, *self.touched))
        return any(each in raw for each in (*(b'"' + id for id in ids), *commits))

    def remaining_lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file that stay."""
        for raw, line in parse_file(self._kernel.folder, name, RecordLine):
            if line is None:
                goes = self._is_named(raw)
            elif self._is_incomplete(raw, line):
                goes = line.c in self.commits
            else:
                goes = self._is_forgotten(line)
            if not goes:
                yield raw


class _WaitingLine(NamedTuple):
    """A line of an incomplete commit: its file, its record, and whether it names an erased one."""

    name: str
    id: str
    erased: bool


def _root_of(id: str) -> str:
    """Return the id of the record that a record is part of."""
    return id.partition("/")[0]


def is_forgotten(kernel: JSONLKernel, line: RecordLine) -> bool:
    """Check whether a line belongs to a forgotten record, not to a later one with the same id."""
    # A line written by hand is in no commit, and its author saw the current files.
    if line.c is None or not kernel.store.forgotten_rev(line.id):
        return False
    return kernel.cache.is_erased(kernel.cache.hash(line.id), line.after, line.sum)


def names_erased(kernel: JSONLKernel, line: RecordLine) -> bool:
    """Check whether a line was written without knowing that a record with its id was forgotten."""
    return line.c is not None and kernel.store.forgotten_rev(line.id) > line.after


def has_unknown_records(files: StoreFolder, reading: Reading, ask: Callable[..., list[Any]]) -> bool:
    """Check whether lines that do not count may hold records that nobody knows by an id.

    Whoever was interrupted while creating a record may have created it again, under another id: what is
    erased there is still in these lines. `ask` runs a statement on the cache.
    """
    incomplete = ask(FIND_INCOMPLETE)
    commits = {c for c, _ in incomplete}
    unreadable = ask("SELECT DISTINCT name FROM j_report WHERE kind IN (?, ?)", BAD, CUT)
    for name in filter(folder.holds_records, {name for *_, name in (*incomplete, *unreadable)}):
        for raw, line in parse_file(files, name, RecordLine):
            if line is not None:
                unknown = line.c in commits and not _is_known(reading, line.id)
            else:  # without a quote it holds no text: zeros after a power cut, a marker of git
                ids = [_find_id(raw), *map(_decode_id, _LINE.findall(raw))]
                unknown = b'"' in raw and not all(_is_known(reading, id) for id in ids)
            if unknown:
                return True
    return False


def _is_known(reading: Reading, id: str | None) -> bool:
    """Check whether there is a record with an id, or one that it is part of."""
    return id is not None and any(reading.head(each) is not None for each in (id, _root_of(id)))


def _find_id(raw: bytes) -> str | None:
    """Return the id at the beginning of an unreadable line; None if it cannot be read either."""
    found = _FIRST_ID.match(strip_line(raw))
    return None if found is None else _decode_id(found[1])


def _find_ids(raw: bytes) -> Iterator[str | None]:
    """Yield all values of the key `id` in an unreadable line; None for one that cannot be read either."""
    return (_decode_id(found[1]) for found in _ID.finditer(raw))


def _decode_id(text: bytes) -> str | None:
    try:
        return msgspec.json.decode(text, type=str)
    except (msgspec.MsgspecError, ValueError):
        return None


def _rewrite_marks(kernel: JSONLKernel, found: _Removal) -> Iterator[bytes]:
    """Yield the marks without forgotten records; each commit that loses a line gets a mark.

    An incomplete commit gets none, which would make it count. That it was removed is said by a mark
    with forgotten ids, because these are never removed.
    """
    marked: set[str] = set()
    last = _find_last_forget(kernel) if found.commits else None
    for raw, mark in parse_file(kernel.folder, folder.COMMITS, CommitMark):
        if mark is not None:
            marked.add(mark.c)
            _remove_forgotten(kernel, mark)
            if mark.c == last:
                mark.removed = sorted({*mark.removed, *found.commits})
            if mark.c in found.touched:
                _remove_lines(mark, found)
            yield seal(mark)
        elif not found.is_mark_named(raw):
            yield raw
    for c, lines in found.touched.items():
        if c not in marked:
            kernel.cache.put_marks([(c, kernel.cache.seq_of(c) or 0)])
            mark = mark_of(min(lines, key=lambda line: line.i))
            _remove_lines(mark, found)
            yield seal(mark)


def _find_last_forget(kernel: JSONLKernel) -> str | None:
    """Return the last commit in the file of marks that has forgotten ids."""
    last = None
    for _, mark in parse_file(kernel.folder, folder.COMMITS, CommitMark):
        last = mark.c if mark is not None and mark.forget else last
    return last


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


def _remove_lines(mark: CommitMark, found: _Removal) -> None:
    """Remove the lines that a commit loses from its mark, with `n`, note and digest.

    A damaged commit keeps `n`, so that it is still known to be damaged.
    """
    lost = {line.sum: line for line in found.touched[mark.c]}.values()
    left = len(found.left.get(mark.c, ()))
    wanted = mark.n or max(line.n or 0 for line in lost)
    # If its mark was lost, nobody knows how many lines it had.
    mark.n = max(wanted - len(lost), left + 1) if left else None
    mark.note = mark.digest = None
    mark.gone = sorted([*mark.gone, *((line.i, line.op, line.rev) for line in lost)])
