"""Tell damaged commits from commits that were interrupted while they were written.

An incomplete commit was either never acknowledged (its writer died) and must not count, or was
acknowledged and lost a line since: then its remaining lines count, and it is reported. The lines decide:

- the next writer after an interruption reuses the commit's seq, so a commit whose seq another commit
  has was never acknowledged, and one whose seq leaves a gap was;
- an interruption leaves the first lines of a commit, so a commit that lacks an earlier line was damaged;
- a mark is written after the lines it counts are on the disk, so a mark without its lines was damaged,
  unless they were removed here because the commit was incomplete and might hold what was erased.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from dgent import clock
from dgent.store.jsonl import folder
from dgent.store.jsonl.line import CommitMark, RecordLine, parse_line, previous_sums, seal
from dgent.store.jsonl.rewrite import FileRewrite
from dgent.store.jsonl.scan import FileScan, ScannedLine, parse_file

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel
    from dgent.store.jsonl.replay import CommitGroup

SETTLE = (
    "`dgent doctor --damaged accept` keeps their remaining lines, `dgent doctor --damaged drop` removes them"
)


class Evidence:
    """The evidence of one pass over the files about incomplete commits."""

    def __init__(
        self,
        kernel: JSONLKernel,
        scans: Mapping[str, FileScan],
        groups: Iterable[CommitGroup],
        once_whole: Container[str],
    ) -> None:
        self._kernel, self._scans, self._once_whole = kernel, scans, once_whole
        self._names: dict[int, set[str]] = {}  # the complete commits by seq
        self._followed: dict[str, set[str | None]] = {}  # the commits whose lines replace a line, by its sum
        self._orphans: set[int] = set()  # the seqs of marks without lines, or whose commit name was edited
        self._floor = kernel.store.floor()
        self._removed = kernel.cache.removed_commits()
        marks = scans.get(folder.COMMITS)
        self._edited = {found.read.line.c for found in marks.found if found.read.hand} if marks else set()
        for group in groups:
            self._add_group(group)
        for scan in scans.values():
            for found in scan.found if folder.holds_records(scan.name) else ():
                for each in previous_sums(found.read.line):
                    self._followed.setdefault(each, set()).add(found.read.line.c)
        self._last = max([kernel.tip.seq, *self._names], default=0)

    def _add_group(self, group: CommitGroup) -> None:
        mark, seq = group.mark, group.first.seq
        if mark is not None and mark.floor is not None:
            self._floor = max(self._floor, mark.floor)
        if seq is None or group.by_hand or (mark is not None and mark.thins):
            return
        if group.is_whole() and (group.lines or group.c not in self._edited):
            self._names.setdefault(seq, set()).add(group.c)
        elif not group.lines:
            self._orphans.add(seq)

    def add_damaged(self, group: CommitGroup) -> None:
        """Take a damaged commit for evidence about others: it was acknowledged, and so has its seq."""
        seq = group.first.seq
        if seq is not None:
            self._names.setdefault(seq, set()).add(group.c)
            self._last = max(self._last, seq)

    def is_damaged(self, group: CommitGroup) -> bool:
        """Check whether an incomplete commit was acknowledged once."""
        if not group.lines:
            return False  # no line of it remains
        if group.c in self._once_whole:
            return True
        if group.c in self._removed:
            return False
        if group.mark is not None:
            return True
        first: RecordLine = group.lines[0].read.line
        if any(self._is_followed(found) for found in group.lines):
            return True
        if first.n and _lacks_earlier(group):
            return True
        if first.seq is None or self._is_seq_taken(first.seq, group.c):
            return False
        if first.seq in self._orphans or self._floor < first.seq < self._last:
            return True
        return (
            self._has_damaged_mark(group, first.seq) if first.n == 0 else self._has_damaged_next_line(group)
        )

    def _is_followed(self, found: ScannedLine) -> bool:
        """Check whether a line of another commit replaces a line, which may have been edited since."""
        sums = {found.read.sum, found.read.line.sum or ""}
        return any(self._followed.get(each, set()) - {found.read.line.c} for each in sums)

    def _is_seq_taken(self, seq: int, c: str) -> bool:
        known = self._kernel.cache.commit_of(seq)
        return bool(self._names.get(seq, set()) - {c}) or known not in (None, c)

    def _has_damaged_mark(self, group: CommitGroup, seq: int) -> bool:
        """Check whether an unreadable mark names the commit or its seq."""
        scan = self._scans.get(folder.COMMITS)
        wanted = (group.c.encode(), b'"seq":%d,' % seq)
        return scan is not None and any(each in raw for raw in scan.bad.values() for each in wanted)

    def _has_damaged_next_line(self, group: CommitGroup) -> bool:
        """Check whether the line after the commit's last one has its newline and is unreadable."""
        last = max(group.lines, key=lambda found: found.number)
        return last.number + 1 in self._scans[last.name].bad


def _lacks_earlier(group: CommitGroup) -> bool:
    """Check whether a line of the commit is missing before one that is there."""
    places = {found.read.line.i for found in group.lines} | group.edited
    return places != set(range(len(places)))


def describe_damage(group: CommitGroup) -> str:
    """Describe how many lines of a damaged commit could be read."""
    wanted = group.mark.n if isinstance(group.mark, CommitMark) else group.lines[0].read.line.n
    many = f"{group.present} of {wanted}" if wanted else f"{group.present}"
    return f"only {many} lines of its commit could be read"


# -- settling -----------------------------------------------------------------------------


def settle_damaged(kernel: JSONLKernel, accept: bool) -> int:
    """Declare damaged commits complete, or remove their lines; return the number of such commits.

    The lines of incomplete commits are removed too; they never counted, so there is nothing to accept.
    """
    damaged = kernel.cache.damaged_commits()
    incomplete = set() if accept else kernel.cache.incomplete_commits()
    if not damaged and not incomplete:
        return 0
    with FileRewrite(kernel) as files:
        for name in kernel.folder.stamps():
            if folder.holds_records(name) and not accept:
                files.write(name, _remaining_lines(kernel, name, damaged, incomplete))
        files.write(folder.COMMITS, _rewritten_marks(kernel, damaged, accept))
    kernel.cache.invalidate()
    kernel.read_files()
    return len(damaged | incomplete)


def _remaining_lines(
    kernel: JSONLKernel, name: str, damaged: set[str], incomplete: set[str]
) -> Iterator[bytes]:
    for raw, line in parse_file(kernel.folder, name, RecordLine):
        # A line that was edited by hand counts without its commit.
        gone = line is not None and line.c in incomplete and not parse_line(raw).hand
        if line is None or not (gone or line.c in damaged):
            yield raw


def _rewritten_marks(kernel: JSONLKernel, damaged: set[str], accept: bool) -> Iterator[bytes]:
    """Yield the marks of all other commits; with `accept` also of these, without `n`, so that they count."""
    marked: set[str] = set()
    for raw, mark in parse_file(kernel.folder, folder.COMMITS, CommitMark):
        if mark is None or mark.c not in damaged:
            yield raw
        elif accept:
            mark.n = None
            marked.add(mark.c)
            yield seal(mark)
    if accept:
        for line in _first_lines(kernel, damaged - marked):
            yield seal(mark_of(line))


def _first_lines(kernel: JSONLKernel, commits: set[str]) -> Iterable[RecordLine]:
    """Return the first remaining line of each commit, which has the fields about the commit."""
    found: dict[str, RecordLine] = {}
    for name in filter(folder.holds_records, kernel.folder.stamps()):
        for _, line in parse_file(kernel.folder, name, RecordLine):
            if line is not None and line.c in commits:
                found[line.c] = min(found.get(line.c, line), line, key=lambda each: each.i)
    return found.values()


def mark_of(line: RecordLine) -> CommitMark:
    """Return a mark with the fields about the commit from its first line."""
    mark = CommitMark(c=line.c or "", seq=line.seq, at=line.at or clock.EPOCH, by=line.by or line.author)
    mark.kind, mark.of, mark.note = line.kind, line.of, line.note
    mark.key, mark.digest = line.key, line.digest
    return mark
