"""Update the cache from the files: appends of others, merges and edits, or a full rebuild."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from dgent import clock
from dgent.store.backend import KINDS
from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import DELETE, FORGET, PUT, QUIET, SAME, Logged, LoggedOp
from dgent.store.jsonl import folder
from dgent.store.jsonl.apply import LineApplier
from dgent.store.jsonl.cache import FileState, Report
from dgent.store.jsonl.damage import Evidence, describe_damage
from dgent.store.jsonl.folder import Stamp
from dgent.store.jsonl.forget import names_erased
from dgent.store.jsonl.line import CommitMark, ParsedLine, RecordLine, previous_sums
from dgent.store.jsonl.lineage import Lineage
from dgent.store.jsonl.scan import DAMAGED, FileScan, ScannedLine, is_appended, report_incomplete
from dgent.store.jsonl.validate import BY_HAND

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel

HAND = "hand"
LAST = 2**63
_PLACE = attrgetter("read.line.i")
_CODES = {"put": PUT, "delete": DELETE}


class _Vanished(Exception):
    """The newest version of a record is missing from all files, so the cache must be rebuilt."""


class CommitGroup(NamedTuple):
    """The lines of one commit; `present` counts its lines, including those edited by hand."""

    c: str
    lines: list[ScannedLine]
    mark: CommitMark | None
    present: int
    edited: set[int]  # the places (`i`) of lines that were edited by hand

    @property
    def by_hand(self) -> bool:
        """True for a line edited by hand, which is a commit by itself."""
        return self.c.startswith(BY_HAND)

    @property
    def first(self) -> RecordLine | CommitMark:
        """The line with the fields about the commit."""
        return self.mark or self.lines[0].read.line

    @property
    def place(self) -> tuple[int, int, int, str]:
        """The sort key of the commit: its time, which never decreases within one copy, then its seq."""
        first = self.first
        if self.by_hand:
            return LAST, LAST, 0, self.c
        thins = isinstance(first, CommitMark) and first.thins
        return _us(first.at), LAST if first.seq is None else first.seq, int(thins), self.c

    def is_whole(self) -> bool:
        """Check whether all its lines are there."""
        if self.mark is not None:
            return self.mark.n is None or self.present >= self.mark.n
        wanted = self.lines[0].read.line.n
        return self.by_hand or wanted is None or (wanted > 0 and self.present >= wanted)


def _us(moment: datetime | None) -> int:
    return 0 if moment is None else clock.to_us(moment)


class FileReplay:
    """Updates the cache once, from the files that changed."""

    def __init__(self, kernel: JSONLKernel, ledger: Ledger) -> None:
        self._kernel, self._cache, self._folder = kernel, kernel.cache, kernel.folder
        self._store, self._ledger = kernel.store, ledger
        self._stamps: dict[str, Stamp] = {}
        self._logged: dict[str, int] = {}
        self._seqs: dict[str, int] = {}  # of the commits that this pass applied
        self._once_whole: set[str] = set()  # commits that the cache had before it was emptied
        self._damaged: dict[str, str] = {}  # damaged commits that count, with a description
        self._cut_off: list[ScannedLine] = []  # lines of incomplete commits without a mark
        self._merged = False  # whether another copy made a commit without knowing all commits here
        self._dropped: set[str] = set()  # newest lines in the cache that others have compacted

    def run(self) -> None:
        """Read the files that changed; all of them if the cache is new or cannot be updated."""
        cache, self._stamps = self._cache, self._folder.stamps()
        if cache.is_current(self._folder.format):
            known = cache.files()
            changed = [name for name, stamp in self._stamps.items() if self._differs(name, known)]
            gone = known.keys() - self._stamps.keys()
            if changed or gone:
                try:
                    self._update_cache(changed, gone, known)
                    return
                except _Vanished:
                    self._once_whole = cache.commits().keys() - cache.damaged_commits()
            else:
                self._kernel.epoch = cache.epoch()
                return
        self._kernel.epoch = cache.wipe(self._folder.format)
        self._update_cache(list(self._stamps), set(), {})

    def _differs(self, name: str, known: dict[str, FileState]) -> bool:
        return name not in known or known[name].stamp != self._stamps[name]

    # -- reading files --------------------------------------------------------------------

    def _update_cache(self, changed: list[str], gone: set[str], known: dict[str, FileState]) -> None:
        scans = {name: self._scan_file(name, known) for name in changed}
        self._rescan_waiting(scans)
        self._dropped = self._find_dropped(scans, gone)
        for name in gone:
            self._cache.drop_file(name)
            self._cache.clear_reports(name)
        for name, scan in scans.items():
            self._cache.clear_reports(name, scan.first_line)
            for report in scan.reports:
                self._cache.put_report(report)
            self._kernel.files.set_state(name, scan.known)
        if not known:
            self._store.reload_everywhere()
        self._apply(scans, not known)
        self._kernel.epoch = self._cache.epoch()

    def _scan_file(self, name: str, known: dict[str, FileState]) -> FileScan:
        stamp = self._stamps[name]
        before = known.get(name)
        after = before if before is not None and is_appended(self._folder, name, before, stamp) else None
        return FileScan(self._folder, name, stamp, after)

    def _rescan_waiting(self, scans: dict[str, FileScan]) -> None:
        """Read files again from the start if they have lines of commits that may be complete now."""
        pending = self._cache.pending()
        if not pending:
            return
        others = [scan for name, scan in scans.items() if name != folder.SCHEMAS]
        news = {found.read.line.c for scan in others for found in scan.found}
        names = {name for c in pending.keys() & news for name in pending[c]}
        for name in names & self._stamps.keys():
            if name not in scans or not scans[name].whole:
                scans[name] = FileScan(self._folder, name, self._stamps[name], None)
        self._cache.clear_pending(name for name, scan in scans.items() if scan.whole)

    def _find_dropped(self, scans: dict[str, FileScan], gone: set[str]) -> set[str]:
        """Return the newest lines in the cache that are missing because newer ones came.

        Raises _Vanished if one is missing that was neither forgotten nor compacted.
        """
        whole = [name for name, scan in scans.items() if scan.whole and folder.holds_records(name)]
        there: set[str | None] = set()
        newest: dict[str, int] = {}  # an old line may be gone because a newer one came and it was compacted
        for found in _lines(scans):
            line: RecordLine = found.read.line
            there.update((found.read.sum, line.sum))
            newest[line.id] = max(line.rev, newest.get(line.id, 0))
        forgotten: dict[str, int] = {}  # the last rev of a forgotten record, by the hash of its id
        for mark in _marks(scans):
            revs = {hashed: rev for hashed, rev in mark.forget if hashed not in mark.lines}
            forgotten |= {hashed: max(rev, forgotten.get(hashed, 0)) for hashed, rev in revs.items()}
            there.update(*mark.lines.values())
        dropped: set[str] = set()
        for name in (*whole, *gone):
            for made, id, said, after in self._cache.heads_in(name):
                # One that was created again after its id was forgotten is not the forgotten one.
                if made in there or forgotten.get(self._cache.hash(id).hex(), 0) > after:
                    continue
                if newest.get(id, 0) <= said:
                    raise _Vanished
                dropped.add(made)
        return dropped

    # -- applying -------------------------------------------------------------------------

    def _apply(self, scans: dict[str, FileScan], rebuilt: bool) -> None:
        if folder.SCHEMAS in scans:
            self._declare_schemas(scans[folder.SCHEMAS])
        applier = LineApplier(self._kernel, self._ledger)
        applier.dropped = self._dropped
        for mark in _marks(scans):
            applier.past |= {(mark.c, id, rev) for _, id, _, rev in mark.past}
            gone = [*((id, rev) for _, id, _, rev in mark.past), *mark.drops.items()]
            applier.compacted |= {id: max(rev, applier.compacted.get(id, 0)) for id, rev in gone}
            applier.floor = max(mark.floor or 0, applier.floor)
            if mark.removed:
                self._cache.put_removed(mark.removed)
        applier.superseded = {each for found in _lines(scans) for each in previous_sums(found.read.line)}
        news = self._find_new_commits(scans, applier)
        for group in news:
            if group.mark is not None and group.mark.forget:
                applier.erase_records(group.mark.forget, group.mark.lines)
        if any(names_erased(self._kernel, found.read.line) for found in self._cut_off):
            self._cache.start_purge()
        for group in sorted(news, key=lambda group: group.place):
            self._apply_group(group, applier)
        applier.finish(lambda ids: self._read_lineages(scans, ids), rebuilt, self._merged)

    def _read_lineages(self, scans: dict[str, FileScan], ids: Collection[str]) -> dict[str, Lineage]:
        """Return the lineages of some records, with all their lines in the files."""
        reads: dict[str, list[ParsedLine]] = {id: [] for id in ids}
        for name, stamp in self._stamps.items():
            scan = scans.get(name)
            if folder.holds_records(name) and (scan is None or not scan.whole):
                scan = FileScan(self._folder, name, stamp, None)
            for found in scan.found if scan is not None and folder.holds_records(name) else ():
                if found.read.line.id in reads:
                    reads[found.read.line.id].append(found.read)
        return {id: Lineage(some) for id, some in reads.items()}

    def _find_new_commits(self, scans: dict[str, FileScan], applier: LineApplier) -> list[CommitGroup]:
        """Return the commits that count and are not in the cache yet."""
        sums = self._cache.sums() if any(scan.whole for scan in scans.values()) else None
        lines: dict[str, list[ScannedLine]] = {}
        seen: set[str] = set()
        count: Counter[str | None] = Counter()
        edited: dict[str | None, set[int]] = {}
        for found in _lines(scans):
            made = found.read.sum
            if made not in seen and not self._is_known(found, sums):
                seen.add(made)
                count[found.read.line.c] += 1
                c = found.read.line.c
                own = c is None or applier.is_newest_edit(found)
                if own:
                    edited.setdefault(c, set()).add(found.read.line.i)
                lines.setdefault(f"{BY_HAND}{made}" if own or c is None else c, []).append(found)
        marks = {mark.c: mark for mark in _marks(scans)}
        if self._cache.damaged_commits() & (lines.keys() | marks.keys()):
            raise _Vanished  # the damaged commit may be complete now
        groups = [
            CommitGroup(c, sorted(lines.get(c, ()), key=_PLACE), marks.get(c), count[c], edited.get(c, set()))
            for c in [*lines, *(c for c in marks if c not in lines)]
        ]
        return self._select_counting(scans, groups)

    def _select_counting(self, scans: dict[str, FileScan], groups: list[CommitGroup]) -> list[CommitGroup]:
        """Return the commits that count; record the others as pending until their lines arrive."""
        whole: list[CommitGroup] = []
        broken: list[CommitGroup] = []
        for group in groups:
            if group.mark is not None and not group.lines and self._is_logged(group.mark):
                continue
            known = group.is_whole() or self._cache.seq_of(group.c) is not None
            (whole if known else broken).append(group)
        evidence = Evidence(self._kernel, scans, groups, self._once_whole) if broken else None
        # The newest first: that one was acknowledged proves that those before it were.
        for group in sorted(broken, key=lambda group: group.place, reverse=True):
            if evidence is not None and evidence.is_damaged(group):
                evidence.add_damaged(group)
                self._count_damaged(group)
                whole.append(group)
            else:
                self._wait_for(group)
        return whole

    def _count_damaged(self, group: CommitGroup) -> None:
        self._damaged[group.c] = describe_damage(group)
        self._cache.put_damaged(group.c)
        for found in group.lines:
            text = f"{found.read.line.id!r} counts, but {describe_damage(group)}"
            self._cache.put_report(Report(found.name, found.number, DAMAGED, text))

    def _is_logged(self, mark: CommitMark) -> bool:
        """Check whether the commit of a mark is in the cache, also if its log entry was removed."""
        if self._cache.find_mark_seq(mark.c) is not None:
            return True
        if not self._logged:
            self._logged = self._cache.commits()
        seq = self._logged.get(mark.c)
        if seq is not None:
            self._cache.put_marks([(mark.c, seq)])
            return True
        # Its seq may be another copy's, so a mark with forgotten ids or a key is never skipped by it.
        lasting = mark.forget or mark.key is not None
        return not lasting and (mark.seq or LAST) <= self._store.floor()

    def _is_known(self, found: ScannedLine, sums: set[str] | None) -> bool:
        if sums is not None:
            return found.read.sum in sums
        head = self._store.head(found.read.line.id)
        return head is not None and found.read.sum in self._cache.lines_of(head.record_key)

    def _wait_for(self, group: CommitGroup) -> None:
        self._cache.put_pending(group.c, {found.name for found in group.lines} | {folder.COMMITS})
        for found in group.lines:
            self._cache.put_report(report_incomplete(found))
        if group.mark is None:  # with its mark there, the rest is still arriving
            self._cut_off += group.lines

    def _declare_schemas(self, scan: FileScan) -> None:
        declarations = sorted((found.read.line for found in scan.found), key=lambda line: line.at)
        for declared in {line.schema: line for line in declarations}.values():
            LineApplier(self._kernel, self._ledger).declare(declared)

    def _apply_group(self, group: CommitGroup, applier: LineApplier) -> None:
        tip, mark, first = self._store.tip, group.mark, group.first
        if mark is not None and mark.thins:
            applier.apply_retention(mark)
            return
        before = tip.seq, tip.at
        self._advance_tip(group)
        ops: list[tuple[int, LoggedOp]] = []
        for found in group.lines:
            op = applier.apply_line(found, group.c)
            if op is not None:
                ops.append((found.read.line.i, op))
        if mark is not None:
            ops += self._ops_of_mark(mark, applier)
        if not ops:
            tip.seq, tip.at = before
            return
        author = HAND if group.by_hand else first.by or getattr(first, "author", None) or "system"
        self._log_commit(group, author, [op for _, op in sorted(ops, key=lambda each: each[0])])

    def _advance_tip(self, group: CommitGroup) -> None:
        """Set the tip to the seq and time of a commit, or to the next seq if its own is taken."""
        tip, first = self._store.tip, group.first
        if group.by_hand:
            tip.seq, tip.at = tip.seq + 1, max(tip.at, clock.now_us())
            return
        seq = first.seq or 0
        self._merged = self._merged or seq <= tip.seq
        tip.seq, tip.at = max(seq, tip.seq + 1), max(tip.at, _us(first.at))

    def _ops_of_mark(self, mark: CommitMark, applier: LineApplier) -> Iterable[tuple[int, LoggedOp]]:
        """Yield the ops of a commit that have no line, with their places."""
        for i, known, rev in mark.same:
            head = None if known is None else self._store.head(known)
            yield i, (SAME, 0, 0) if head is None else (SAME, head.record_key, rev)
        for i, id, name, rev in mark.past:
            quiet = QUIET if i in mark.quiet else 0
            yield i, (_CODES[name] | quiet, applier.reserve_record_key(id), rev)
        for i, name, rev in mark.gone:
            yield i, (_CODES[name], applier.new_record_key(), rev)
        for i, (_, rev) in enumerate(mark.forget):
            yield i, (FORGET, applier.new_record_key(), rev)

    def _log_commit(self, group: CommitGroup, author: str, ops: list[LoggedOp]) -> None:
        store, tip, first = self._store, self._store.tip, group.first
        key = None if first.key is None else bytes.fromhex(first.key)
        if key is not None and store.find_by_key(key) is not None:
            key = None  # two copies used the key; the first commit keeps it
        of = None if first.of is None else self._seqs.get(first.of) or self._cache.seq_of(first.of)
        kind = KINDS.index(first.kind) if first.kind in KINDS else 0
        digest = None if first.digest is None else bytes.fromhex(first.digest)
        number = store.make_number(author)
        note = first.note
        if group.c in self._damaged:
            note = f"{DAMAGED}: {self._damaged[group.c]}" + (f"; {note}" if note else "")
        self._kernel.name_commit(tip.seq, group.c)
        store.append(Logged(tip.seq, tip.at, number, kind, note, of, ops, key, digest))
        if group.mark is not None:
            self._cache.put_marks([(group.c, tip.seq)])
        self._seqs[group.c] = tip.seq


def _lines(scans: dict[str, FileScan]) -> Iterable[ScannedLine]:
    return (found for name, scan in scans.items() if folder.holds_records(name) for found in scan.found)


def _marks(scans: dict[str, FileScan]) -> list[CommitMark]:
    scan = scans.get(folder.COMMITS)
    return [] if scan is None else [found.read.line for found in scan.found]
