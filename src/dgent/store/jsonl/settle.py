"""Settle records that two copies of a folder changed: merge versions, run rooms' rules, append the result.

The appended lines depend only on the merged lines, so two copies that settle the same conflict append the
same lines, and merging those needs no further settlement.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dgent import clock
from dgent.errors import DgentError, NotFound
from dgent.ids import packed_range
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.store.backend import KINDS
from dgent.store.engine import merge
from dgent.store.engine import row as rows
from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import DELETE, FORGET, PUT, Logged, LoggedOp
from dgent.store.engine.merge import RecordTip
from dgent.store.engine.row import Row
from dgent.store.jsonl.cache import CachedLine
from dgent.store.jsonl.journal import Fields, Journal
from dgent.store.jsonl.lineage import Lineage
from dgent.store.sqlite.scan import ID_TEXT

if TYPE_CHECKING:
    from dgent.store.jsonl.apply import LineApplier
    from dgent.store.jsonl.kernel import JSONLKernel

MERGE = "merge"
CONTENT = "content"
REASON = "content: "
"""The beginning of a disputed field that says why somebody must look at the record."""

Lineages = Callable[[Collection[str]], Mapping[str, Lineage]]
Ends = Mapping[str, tuple[CachedLine, Row]]
"""The newest lines of a record in several copies, by their sums."""


class _Change(NamedTuple):
    """Versions that are written as one commit, and the ids of records that are erased with it."""

    versions: Mapping[str, Datum | None]
    erased: Collection[str]


class LineSettlement:
    """Settles diverged records once; implements `merge.Settlement` for the rules of rooms."""

    def __init__(self, kernel: JSONLKernel, applier: LineApplier, ends: Mapping[str, Ends]) -> None:
        self._kernel, self._applier, self._store = kernel, applier, applier.store
        self._ends = ends
        self._changes: list[_Change] = []
        self._disputed: dict[str, Sequence[str]] = {}  # disputed fields by id
        self._written: dict[str, Datum | None] = {}
        self.touched_ids: Mapping[str, set[str]] = applier.touched
        self.diverged_tips: Mapping[str, Sequence[RecordTip]] = {}

    def run(self, lineages: Lineages) -> None:
        """Merge diverged records, run the rules of rooms on them, and append the result."""
        found = lineages(self._ends) if self._ends else {}
        joint: dict[str, list[str]] = {}
        for id in sorted(self._ends):
            schema = self._schema(id)
            if merge.is_joint(schema):
                joint.setdefault(reserved.OWNERS[schema], []).append(id)
            else:
                self._merge(id, found[id])
        touched = {reserved.OWNERS[schema] for schema in self.touched_ids if schema in reserved.OWNERS}
        for room in sorted(touched | joint.keys()):
            self._settle_room(room, joint.get(room, ()), found)
        self._write(lineages)

    def _schema(self, id: str) -> str:
        """Return the schema of a diverged record; if copies disagree, the one with the greatest name."""
        return max(self._store.name(row.schema) for _, row in self._ends[id].values())

    def _merge(self, id: str, lineage: Lineage) -> None:
        latest = max(self._ends[id], key=lineage.order)
        try:
            merged = lineage.merge_tips(self._ends[id])
        except merge.UNREADABLE:
            merged = merge.MergedRecord(self._version(id, latest, lineage), (CONTENT,))
        self._disputed[id] = merged.disputed
        self.put({id: merged.version})

    def _version(self, id: str, made: str, lineage: Lineage) -> Datum | None:
        """Return a newest version from its line, or from the cache if the line is unreadable."""
        try:
            return lineage.version(made)
        except merge.UNREADABLE:
            row = self._ends[id][made][1]
            return rows.datum_of(row, self._store.name) if row.live else None

    def _settle_room(self, room: str, ids: Sequence[str], found: Mapping[str, Lineage]) -> None:
        rules = merge.rules_of_room(room)
        if rules.settle is None:
            return
        before = len(self._changes), dict(self._written), dict(self._disputed)
        self.diverged_tips = {
            id: [
                RecordTip(self._version(id, made, found[id]), found[id].order(made))
                for made in sorted(self._ends[id], key=found[id].order)
            ]
            for id in ids
        }
        try:
            rules.settle(self)
        except merge.UNREADABLE as error:
            # The rule failed on an unreadable record: the later version counts, and is reported as disputed.
            del self._changes[before[0] :]
            self._written, self._disputed = before[1:]
            self._report_failure(room, error)
        for id in ids:
            if id not in self._written:
                self._disputed[id] = (CONTENT,)
                self.put({id: self.diverged_tips[id][-1].version})

    def _report_failure(self, room: str, error: Exception) -> None:
        """Dispute a record of a room whose records could not be settled together."""
        schemas = (schema for schema in sorted(self.touched_ids) if reserved.OWNERS.get(schema) == room)
        ids = (id for schema in schemas for id in sorted(self.touched_ids[schema]))
        id = next((id for id in ids if self.get(id) is not None), None)
        if id is not None:
            self.put({id: self.get(id)}, {id: f"the records of {room!r} cannot be merged: {error!r}"})

    # -- the interface for rooms ----------------------------------------------------------

    def get(self, id: str) -> Datum | None:
        """Return a record as merged so far; None if it is missing or deleted."""
        if id in self._written:
            return self._written[id]
        head = self._store.head(id)
        return None if head is None or not head.live else rows.datum_of(head, self._store.name)

    def records(self, schema: str) -> Iterable[Datum]:
        """Yield all records of a schema as merged so far, by id."""
        number = self._store.number(schema)
        sql = f"SELECT {ID_TEXT} FROM datum d WHERE d.schema = ? AND d.live = 1 AND d.trail = 0"
        ids = {id for (id,) in self._kernel.cache.ask(sql, number)} if number is not None else set()
        for id in sorted(ids | self._written.keys()):
            found = self.get(id)
            if found is not None and found.schema == schema:
                yield found

    def ids(self, prefix: str) -> list[str]:
        """Return the ids with a prefix, also of deleted records."""
        ask, end = self._kernel.cache.ask, prefix[:-1] + chr(ord(prefix[-1]) + 1)
        sql = f"SELECT {ID_TEXT} FROM datum d WHERE d.id >= ? AND d.id {{}} ? AND d.trail = 0"
        found = ask(sql.format("<"), prefix, end)
        packed = packed_range(prefix)
        if packed is not None:
            found += ask(sql.format("<="), *packed)
        return sorted(id for (id,) in found)

    def put(
        self,
        versions: Mapping[str, Datum | None],
        disputed: Mapping[str, str] = MappingProxyType({}),
        erased: Collection[str] = (),
    ) -> None:
        """Add versions (None deletes) and erasures that are written as one commit."""
        for id, reason in disputed.items():
            self._disputed[id] = (*self._disputed.get(id, ()), REASON + " ".join(reason.split()))
        # A record that was merged alone before is written once, with this version.
        self._changes = [
            each
            for each in self._changes
            if len(each.versions) > 1 or each.erased or versions.keys().isdisjoint(each.versions)
        ]
        self._changes.append(_Change(versions, erased))
        self._written |= {**dict.fromkeys(erased), **versions}

    # -- writing --------------------------------------------------------------------------

    def _write(self, lineages: Lineages) -> None:
        journal = Journal(self._kernel)
        for change in self._changes:
            erased = lineages(change.erased) if change.erased else {}
            self._append_change(change.versions, erased, journal)
        journal.write()

    def _append_change(
        self, change: Mapping[str, Datum | None], erased: Mapping[str, Lineage], journal: Journal
    ) -> None:
        kernel, store, tip = self._kernel, self._store, self._kernel.tip
        ends = {id: self._ends_of(id) for id in sorted(change)}
        # Later than all that it follows: commits are read in the order of their times.
        at = max((seen.at + 1 for each in ends.values() for seen, _ in each.values()), default=tip.at)
        tip.seq, tip.at = tip.seq + 1, max(tip.at, at)
        forgotten = self._erase(erased) if erased else {}
        made = [self._make_row(id, change[id], ends[id]) for id in ends]
        c = _commit_name(made, ends, forgotten)
        about: Fields = {"by": MERGE, "kind": MERGE}
        alone = len(made) == 1 and not erased
        ops: list[LoggedOp] = []
        for place, row in enumerate(made):
            decided: Fields = {"seq": None} if alone else {"seq": None, "i": place, "n": 0}
            ops.append(self._append_row(row, at, ends[row.id], journal, c, decided, about if alone else {}))
        if not alone:
            mark = {"c": c, "at": clock.from_us(at), "n": len(made), **about, **forgotten}
            journal.add_mark(mark, tip.seq)
        ops += [(FORGET, self._applier.new_record_key(), rev) for _, rev in forgotten.get("forget", ())]
        kernel.name_commit(tip.seq, c)
        kind = KINDS.index(MERGE)
        store.append(Logged(tip.seq, tip.at, store.make_number(MERGE), kind, None, None, ops, None, None))

    def _erase(self, records: Mapping[str, Lineage]) -> Fields:
        """Erase records with their lines in the files, and return the fields of the mark that say so."""
        hashes = {id: self._kernel.cache.hash(id).hex() for id in sorted(records)}
        forget = [(hashes[id], records[id].last_rev) for id in hashes]
        lines = {hashes[id]: records[id].sums for id in hashes}
        self._applier.erase_records(forget, lines)
        return {"forget": forget, "lines": lines}

    def _append_row(
        self, row: Row, at: int, ends: Ends, journal: Journal, c: str, decided: Fields, about: Fields
    ) -> LoggedOp:
        """Write one version to the cache, and its line, which has no values that differ between copies."""
        store = self._store
        head, sums, disputed = store.head(row.id), sorted(ends), self._disputed.get(row.id, ())
        said = max((seen.said for seen, _ in ends.values()), default=row.rev - 1) + 1
        here = row._replace(rev=max(row.rev, said))
        keep = _versions_to_keep(store.state(store.name(row.schema)))
        self._applier.write_row(here, head, keep)
        prev = sums if len(sums) > 1 else next(iter(sums), None)
        line, fields = row._replace(rev=said, at=at), {**about, "disputed": list(disputed)}
        journal.add_line(line, c, decided, fields, prev, keep, local_rev=here.rev)
        if disputed:
            self._kernel.cache.put_conflict(here.record_key, here.rev, sums, disputed)
        return self._applier.log_op(here)

    def _ends_of(self, id: str) -> Ends:
        """Return the newest lines of a record: several if copies diverge, none for a new record."""
        if id in self._ends:
            return self._ends[id]
        head = self._store.head(id)
        seen = None if head is None else self._kernel.cache.find_newest_line(head.record_key)
        return {} if head is None or seen is None else {seen.sum: (seen, head)}

    def _make_row(self, id: str, version: Datum | None, ends: Ends) -> Row:
        """Return the row of a version, with the next rev in this copy."""
        store, tip = self._store, self._kernel.tip
        head = store.head(id)
        if head is None:
            record_key, rev = self._applier.new_record_key(), store.forgotten_rev(id) + 1
        else:
            record_key, rev = head.record_key, head.rev + 1
        if version is None:
            # From the latest deletion: the newest row may differ between copies.
            deleted = [each for each in ends.values() if not each[1].live] or list(ends.values())
            gone = max(deleted, key=lambda each: (each[0].at, each[0].c))[1]
            return gone._replace(
                record_key=record_key,
                rev=rev,
                seq=tip.seq,
                at=tip.at,
                live=0,
                enc=0,
                field_keys=None,
                extra=None,
                data=None,
                content=None,
            )
        try:
            made = rows.encode_datum(version, MERGE)
        except DgentError:  # the merged version cannot be stored: the later one stays unchanged
            latest = max(ends.values(), key=lambda each: (each[0].at, each[0].c))[1]
            return latest._replace(
                record_key=record_key, rev=rev, seq=tip.seq, at=tip.at, enc=0, field_keys=None
            )
        author = store.make_number(made.author)
        state = self._applier.schema_state(made.schema, made.schema_version, author)
        return Row(
            *(record_key, id, rev, tip.seq, 1, made.created_at, tip.at, state.number, made.schema_version),
            author,
            None if made.source is None else store.make_number(made.source),
            *(made.parent, made.tags, 0, None, made.extra, made.data, made.content),
        )


def accept_record(ledger: Ledger, id: str, author: str) -> int:
    """Write a record again unchanged, which settles its conflict, and return its new rev."""
    store = ledger.kernel
    head, tip = store.head(id), store.tip
    if head is None:
        raise NotFound(f"record {id!r} does not exist")
    tip.seq, tip.at = tip.seq + 1, max(clock.now_us(), tip.at)
    row = head._replace(rev=head.rev + 1, seq=tip.seq, at=tip.at)
    store.archive(rows.pack_row(head, row))
    keep = _versions_to_keep(store.state(store.name(row.schema)))
    if keep is not None:
        store.drop_past(row.record_key, row.rev - keep)
    store.replace(row)
    ops: list[LoggedOp] = [(PUT if row.live else DELETE, row.record_key, row.rev)]
    kind, number = KINDS.index(MERGE), store.make_number(author)
    store.append(Logged(tip.seq, tip.at, number, kind, "conflict settled", None, ops, None, None))
    return row.rev


def _versions_to_keep(state: object) -> int | None:
    """Return how many older versions a schema keeps; None for all."""
    history = getattr(state, "history", "all")
    return 0 if history == "none" else history if type(history) is int else None


def _commit_name(made: Sequence[Row], ends: Mapping[str, Ends], forgotten: Fields) -> str:
    """Return the name of a commit: the same in every copy that writes the same over the same lines."""
    identity = [
        (
            row.id,
            sorted(ends[row.id]),
            row.live,
            row.created_at,
            row.schema_version,
            row.tags,
            row.extra,
            row.data,
            row.content,
        )
        for row in made
    ]
    parts = [identity, sorted(forgotten["lines"].items())] if forgotten else identity
    return "merge-" + hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()[:32]
