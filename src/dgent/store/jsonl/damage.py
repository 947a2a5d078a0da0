"""Tell a commit that was damaged from one that was cut off while it was written.

A commit that is not whole was either never acknowledged (its writer died) and must not count, or was
acknowledged and lost a line since: then what is left of it counts, and is reported. The lines decide:

- whoever writes next after a cut gives the commit's seq away again, so a seq that another commit has
  was never acknowledged, and a gap in the seqs was;
- a cut leaves the first lines of a commit, so a commit that lacks an earlier line was damaged;
- a mark is written after the lines it counts are on the disk, so a mark without its lines was damaged.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from dgent import clock
from dgent.store.jsonl import folder
from dgent.store.jsonl.line import Line, Mark, fields_of, prevs, read, sealed
from dgent.store.jsonl.rewrite import rewriting
from dgent.store.jsonl.scan import Scan, raw_lines

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel
    from dgent.store.jsonl.replay import Group

T = TypeVar("T", Line, Mark)

DAMAGED = "damaged commit"
SETTLE = (
    "`dgent doctor --damaged accept` keeps what is left of them, `dgent doctor --damaged drop` removes it"
)


class Evidence:
    """What one pass over the files says about commits that are not whole."""

    def __init__(
        self,
        kernel: JSONLKernel,
        scans: Mapping[str, Scan],
        groups: Iterable[Group],
        once_whole: Container[str],
    ) -> None:
        self._kernel, self._scans, self._once_whole = kernel, scans, once_whole
        self._names: dict[int, set[str]] = {}  # the whole commits that have a seq
        self._followed: dict[str, set[str | None]] = {}  # the commits whose lines replace a line
        self._orphans: set[int] = set()  # the seqs of marks without lines, or with a name that was edited
        self._floor = kernel.floor()
        marks = scans.get(folder.COMMITS)
        self._edited = {found.read.line.c for found in marks.found if found.read.hand} if marks else set()
        for group in groups:
            self._note(group)
        for scan in scans.values():
            for found in scan.found if folder.holds_records(scan.name) else ():
                for each in prevs(found.read.line):
                    self._followed.setdefault(each, set()).add(found.read.line.c)
        self._last = max([kernel.tip.seq, *self._names], default=0)

    def _note(self, group: Group) -> None:
        mark, seq = group.mark, group.first.seq
        if mark is not None and mark.floor is not None:
            self._floor = max(self._floor, mark.floor)
        if seq is None or group.by_hand or (mark is not None and mark.thins):
            return
        if group.is_whole() and (group.lines or group.c not in self._edited):
            self._names.setdefault(seq, set()).add(group.c)
        elif not group.lines:
            self._orphans.add(seq)

    def is_damaged(self, group: Group) -> bool:
        """Whether a commit that is not whole was acknowledged once."""
        if not group.lines:
            return False  # nothing of it is left
        if group.c in self._once_whole or group.mark is not None:
            return True
        first: Line = group.lines[0].read.line
        if any(self._followed.get(found.read.sum, set()) - {group.c} for found in group.lines):
            return True
        if first.n and _lacks_earlier(group):
            return True
        if first.seq is None or self._has_other(first.seq, group.c):
            return False
        if first.seq in self._orphans or self._floor < first.seq < self._last:
            return True
        return self._lost_mark(group, first.seq) if first.n == 0 else self._lost_next(group)

    def _has_other(self, seq: int, c: str) -> bool:
        known = self._kernel.cache.commit_of(seq)
        return bool(self._names.get(seq, set()) - {c}) or known not in (None, c)

    def _lost_mark(self, group: Group, seq: int) -> bool:
        """Check whether a mark that cannot be read speaks of the commit."""
        scan = self._scans.get(folder.COMMITS)
        wanted = (group.c.encode(), b'"seq":%d,' % seq)
        return scan is not None and any(each in raw for raw in scan.bad.values() for each in wanted)

    def _lost_next(self, group: Group) -> bool:
        """Check whether the line after the last one of the commit was ended and cannot be read."""
        last = max(group.lines, key=lambda found: found.number)
        return last.number + 1 in self._scans[last.name].bad


def _lacks_earlier(group: Group) -> bool:
    """Check whether a line is there and an earlier one of the commit is not."""
    places = {found.read.line.i for found in group.lines} | group.edited
    return places != set(range(len(places)))


def describe(group: Group) -> str:
    """Say how much of a damaged commit could be read."""
    wanted = group.mark.n if isinstance(group.mark, Mark) else group.lines[0].read.line.n
    many = f"{group.present} of {wanted}" if wanted else f"{group.present}"
    return f"only {many} lines of its commit could be read"


# -- settling -----------------------------------------------------------------------------


def settle(kernel: JSONLKernel, accept: bool) -> int:
    """Declare what is left of damaged commits whole, or remove it; how many commits there were."""
    damaged = kernel.cache.damaged()
    if not damaged:
        return 0
    with rewriting(kernel) as files:
        for name in kernel.folder.stamps():
            if folder.holds_records(name) and not accept:
                files.write(name, _kept(kernel, name, damaged))
        files.write(folder.COMMITS, _marks(kernel, damaged, accept))
    return len(damaged)


def _kept(kernel: JSONLKernel, name: str, damaged: set[str]) -> Iterator[bytes]:
    for raw, line in _read(kernel, name, Line):
        if line is None or line.c not in damaged:
            yield raw


def _marks(kernel: JSONLKernel, damaged: set[str], accept: bool) -> Iterator[bytes]:
    """The marks of all other commits; with `accept` also of these: a mark without `n` is always whole."""
    marked: set[str] = set()
    for raw, mark in _read(kernel, folder.COMMITS, Mark):
        if mark is None or mark.c not in damaged:
            yield raw
        elif accept:
            mark.n = None
            marked.add(mark.c)
            yield sealed(fields_of(mark))[0]
    if accept:
        for line in _first_lines(kernel, damaged - marked):
            yield sealed(fields_of(mark_of(line)))[0]


def _first_lines(kernel: JSONLKernel, commits: set[str]) -> Iterable[Line]:
    """The first line that is left of some commits: it says what is known of them."""
    found: dict[str, Line] = {}
    for name in filter(folder.holds_records, kernel.folder.stamps()):
        for _, line in _read(kernel, name, Line):
            if line is not None and line.c in commits:
                found[line.c] = min(found.get(line.c, line), line, key=lambda each: each.i)
    return found.values()


def mark_of(line: Line) -> Mark:
    """A mark that says of a commit what its first line says."""
    mark = Mark(c=line.c or "", seq=line.seq, at=line.at or clock.EPOCH, by=line.by or line.author)
    mark.kind, mark.of, mark.note = line.kind, line.of, line.note
    mark.key, mark.digest = line.key, line.digest
    return mark


def _read(kernel: JSONLKernel, name: str, kind: type[T]) -> Iterator[tuple[bytes, T | None]]:
    """The lines of a file, ended, with what they say where they can be read."""
    if kernel.folder.stamp(name) is None:
        return
    for raw in raw_lines(kernel.folder, name):
        ended = raw if raw.endswith(b"\n") else raw + b"\n"
        try:
            yield ended, read(raw, kind).line
        except ValueError:
            yield ended, None
