"""Settle what two copies of a folder wrote apart: merge versions, ask the rooms, and append the result.

What is appended depends on the lines that are merged and on nothing else, so two copies that settle the
same append the same lines, and merging those settles nothing again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from dgent import clock
from dgent.errors import DgentError, NotFound
from dgent.model.datum import Datum
from dgent.store.backend import KINDS
from dgent.store.engine import merge
from dgent.store.engine import row as rows
from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import DELETE, PUT, Logged, LoggedOp
from dgent.store.engine.merge import RecordTip, Rules
from dgent.store.engine.row import Row
from dgent.store.jsonl.cache import Seen
from dgent.store.jsonl.journal import Fields, Journal
from dgent.store.jsonl.lineage import Lineage

if TYPE_CHECKING:
    from dgent.store.jsonl.apply import Adopting
    from dgent.store.jsonl.kernel import JSONLKernel

MERGE = "merge"
CONTENT = "content"
UNREADABLE = (DgentError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a rule may raise over a record that is not of the shape that its schema says."""

Lineages = Callable[[Collection[str]], Mapping[str, Lineage]]
Ends = Mapping[str, tuple[Seen, Row]]
"""The newest lines of a record in several copies, by their sums."""


class Settling:
    """One settlement; a `merging.Settlement` for the rooms."""

    def __init__(self, kernel: JSONLKernel, adopting: Adopting, ends: Mapping[str, Ends]) -> None:
        self._kernel, self._adopting, self._store = kernel, adopting, adopting.store
        self._ends = ends
        self._changes: list[Mapping[str, Datum | None]] = []  # each of them written as one commit
        self._disputed: dict[str, Sequence[str]] = {}  # fields that somebody must look at, by id
        self._written: dict[str, Datum | None] = {}
        self.touched_ids: Mapping[str, set[str]] = adopting.touched
        self.diverged_tips: Mapping[str, Sequence[RecordTip]] = {}

    def run(self, lineages: Lineages) -> None:
        """Merge what diverged, let the rooms see to what depends on it, and append all of it."""
        found = lineages(self._ends) if self._ends else {}
        joint: dict[str, list[str]] = {}
        for id in sorted(self._ends):
            schema = self._schema(id)
            rules = merge.rules_of(schema)
            if rules is not None and schema in rules.joint:
                joint.setdefault(schema.partition(".")[0], []).append(id)
            else:
                self._merge(id, found[id])
        for room in sorted({schema.partition(".")[0] for schema in self.touched_ids} | joint.keys()):
            self._settle(merge.rules_of(room), joint.get(room, ()), found)
        self._write()

    def _schema(self, id: str) -> str:
        """The schema of a diverged record; that of the greatest name, where copies made it another one."""
        return max(self._store.name(row.schema) for _, row in self._ends[id].values())

    def _merge(self, id: str, lineage: Lineage) -> None:
        latest = max(self._ends[id], key=lineage.order)
        try:
            merged = lineage.merge(self._ends[id])
        except UNREADABLE:
            merged = merge.MergedRecord(self._version(id, latest, lineage), (CONTENT,))
        self._disputed[id] = merged.disputed
        self.put({id: merged.version})

    def _version(self, id: str, made: str, lineage: Lineage) -> Datum | None:
        """A newest version as its line says, or as it was read before, where the line cannot be read."""
        try:
            return lineage.version(made)
        except UNREADABLE:
            row = self._ends[id][made][1]
            return rows.datum_of(row, self._store.name) if row.live else None

    def _settle(self, rules: Rules | None, ids: Sequence[str], found: Mapping[str, Lineage]) -> None:
        if rules is None or rules.settle is None:
            return
        before = len(self._changes), dict(self._written)
        self.diverged_tips = {
            id: [
                RecordTip(self._version(id, made, found[id]), found[id].order(made))
                for made in sorted(self._ends[id], key=found[id].order)
            ]
            for id in ids
        }
        try:
            rules.settle(self)
        except UNREADABLE:
            # The room cannot read what it is to merge: the later version counts, and somebody must look.
            del self._changes[before[0] :]
            self._written = before[1]
        for id in ids:
            if id not in self._written:
                self._disputed[id] = (CONTENT,)
                self.put({id: self.diverged_tips[id][-1].version})

    # -- what a room asks -----------------------------------------------------------------

    def get(self, id: str) -> Datum | None:
        """The record as it is merged so far; None when there is none."""
        if id in self._written:
            return self._written[id]
        head = self._store.head(id)
        return None if head is None or not head.live else rows.datum_of(head, self._store.name)

    def records(self, schema: str) -> Iterable[Datum]:
        """All records of a schema as they are merged so far."""
        number = self._store.number(schema)
        sql = "SELECT id FROM datum WHERE schema = ? AND live = 1 AND trail = 0"
        ids = {id for (id,) in self._kernel._all(sql, number)} if number is not None else set()
        for id in sorted(ids | self._written.keys()):
            found = self.get(id)
            if found is not None and found.schema == schema:
                yield found

    def ids(self, prefix: str) -> list[str]:
        """The ids with a prefix, also of deleted records."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        sql = "SELECT id FROM datum WHERE id >= ? AND id < ? AND trail = 0 ORDER BY id"
        return [id for (id,) in self._kernel._all(sql, prefix, end)]

    def put(self, versions: Mapping[str, Datum | None], disputed: Collection[str] = ()) -> None:
        """Write versions (None deletes) that take effect together or not at all."""
        self._disputed |= dict.fromkeys(disputed, (CONTENT,))
        # A record that was merged by itself before is written once, as it is now.
        self._changes = [each for each in self._changes if len(each) > 1 or versions.keys().isdisjoint(each)]
        self._changes.append(versions)
        self._written.update(versions)

    # -- writing --------------------------------------------------------------------------

    def _write(self) -> None:
        journal = Journal(self._kernel)
        for change in self._changes:
            self._append(change, journal)
        journal.write()

    def _append(self, change: Mapping[str, Datum | None], journal: Journal) -> None:
        kernel, store, tip = self._kernel, self._store, self._kernel.tip
        ends = {id: self._ends_of(id) for id in sorted(change)}
        at = max((seen.at for each in ends.values() for seen, _ in each.values()), default=tip.at)
        tip.seq, tip.at = tip.seq + 1, max(tip.at, at)
        made = [self._row(id, change[id], ends[id]) for id in ends]
        c = _name(made, ends)
        about: Fields = {"by": MERGE, "kind": MERGE}
        alone = len(made) == 1
        ops: list[LoggedOp] = []
        for place, row in enumerate(made):
            decided: Fields = {"seq": None} if alone else {"seq": None, "i": place, "n": 0}
            ops.append(self._append_row(row, at, ends[row.id], journal, c, decided, about if alone else {}))
        if not alone:
            journal.add_mark({"c": c, "at": clock.from_us(at), "n": len(made), **about}, tip.seq)
        kernel.name_commit(tip.seq, c)
        kind = KINDS.index(MERGE)
        store.append(Logged(tip.seq, tip.at, store.make_number(MERGE), kind, None, None, ops, None, None))

    def _append_row(
        self, row: Row, at: int, ends: Ends, journal: Journal, c: str, decided: Fields, about: Fields
    ) -> LoggedOp:
        """Write one version here, and its line, which says nothing that only this copy knows."""
        store = self._store
        head, sums, disputed = store.head(row.id), sorted(ends), self._disputed.get(row.id, ())
        said = max((seen.said for seen, _ in ends.values()), default=row.rev - 1) + 1
        here = row._replace(rev=max(row.rev, said))
        keep = _kept(store.state(store.name(row.schema)))
        self._adopting.write(here, head, keep)
        prev = sums if len(sums) > 1 else next(iter(sums), None)
        line, told = row._replace(rev=said, at=at), {**about, "disputed": list(disputed)}
        journal.add_line(line, c, decided, told, prev, keep, local_rev=here.rev)
        if disputed:
            self._kernel.cache.put_conflict(here.dk, here.rev, sums, disputed)
        return self._adopting.op(here)

    def _ends_of(self, id: str) -> Ends:
        """The newest lines of a record; one where copies agree, none of a new record."""
        if id in self._ends:
            return self._ends[id]
        head = self._store.head(id)
        seen = None if head is None else self._kernel.cache.newest(head.dk)
        return {} if head is None or seen is None else {seen.sum: (seen, head)}

    def _row(self, id: str, version: Datum | None, ends: Ends) -> Row:
        """A version as a row over what is there, with the rev that is next here."""
        store, tip = self._store, self._kernel.tip
        head = store.head(id)
        if head is None:
            dk, rev = self._adopting.next_dk(), store.forgotten_rev(id) + 1
        else:
            dk, rev = head.dk, head.rev + 1
        if version is None:
            # As the latest deletion says it: what is the newest here may be another one elsewhere.
            deleted = [each for each in ends.values() if not each[1].live] or list(ends.values())
            gone = max(deleted, key=lambda each: (each[0].at, each[0].c))[1]
            return gone._replace(
                dk=dk,
                rev=rev,
                seq=tip.seq,
                at=tip.at,
                live=0,
                enc=0,
                fk=None,
                x=None,
                data=None,
                content=None,
            )
        try:
            made = rows.encode_datum(version, MERGE)
        except DgentError:  # it cannot be written as it was read: the later version stays as it is
            latest = max(ends.values(), key=lambda each: (each[0].at, each[0].c))[1]
            return latest._replace(dk=dk, rev=rev, seq=tip.seq, at=tip.at, enc=0, fk=None)
        state = self._adopting.schema_state(made.schema, made.sv)
        return Row(
            *(dk, id, rev, tip.seq, 1, made.t, tip.at, state.number, made.sv),
            store.make_number(made.author),
            None if made.source is None else store.make_number(made.source),
            *(made.parent, made.tags, 0, None, made.x, made.data, made.content),
        )


def accept(ledger: Ledger, id: str, author: str) -> int:
    """Write a record again as it is, which settles what was disputed of it; its new rev."""
    store = ledger.kernel
    head, tip = store.head(id), store.tip
    if head is None:
        raise NotFound(f"there is no record {id!r}")
    tip.seq, tip.at = tip.seq + 1, max(clock.now_us(), tip.at)
    row = head._replace(rev=head.rev + 1, seq=tip.seq, at=tip.at)
    store.archive(rows.pack_row(head, row))
    keep = _kept(store.state(store.name(row.schema)))
    if keep is not None:
        store.drop_past(row.dk, row.rev - keep)
    store.replace(row)
    ops: list[LoggedOp] = [(PUT if row.live else DELETE, row.dk, row.rev)]
    kind, number = KINDS.index(MERGE), store.make_number(author)
    store.append(Logged(tip.seq, tip.at, number, kind, "conflict settled", None, ops, None, None))
    return row.rev


def _kept(state: object) -> int | None:
    """How many older versions stay with a new one; None for all."""
    history = getattr(state, "history", "all")
    return 0 if history == "none" else history if type(history) is int else None


def _name(made: Sequence[Row], ends: Mapping[str, Ends]) -> str:
    """The name of a commit: the same for every copy that writes the same over the same lines."""
    told = [
        (row.id, sorted(ends[row.id]), row.live, row.t, row.sv, row.tags, row.x, row.data, row.content)
        for row in made
    ]
    return "merge-" + hashlib.sha256(msgspec.msgpack.encode(told)).hexdigest()[:32]
