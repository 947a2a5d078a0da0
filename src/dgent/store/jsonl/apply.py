"""Apply lines that other copies or people wrote to the cache, and find records that diverged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dgent import clock, codec
from dgent.errors import InputError
from dgent.model.datum import Datum
from dgent.store.engine import row as rows
from dgent.store.engine.catalog import (
    EMPTY,
    KEYS,
    T_MIN,
    FieldKeys,
    SchemaState,
    add_seen,
    derive_keys,
    is_declared,
    require_state,
)
from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import DELETE, PUT, QUIET, LoggedOp
from dgent.store.engine.merge import is_internal
from dgent.store.engine.prune import erase_rows
from dgent.store.engine.row import Row
from dgent.store.jsonl.cache import CachedLine, Report
from dgent.store.jsonl.forget import is_forgotten
from dgent.store.jsonl.line import CommitMark, RecordLine, SchemaLine, previous_sums
from dgent.store.jsonl.scan import BAD, ScannedLine
from dgent.store.jsonl.settle import Lineages, LineSettlement
from dgent.store.sqlite.scan import ID_TEXT

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel

BATCH = 20_000


class LineApplier:
    """Applies lines to the cache one after the other; `finish` settles the records that diverged."""

    def __init__(self, kernel: JSONLKernel, ledger: Ledger) -> None:
        self._kernel, self._cache = kernel, kernel.cache
        self._ledger, self.store = ledger, ledger.kernel
        self.superseded: set[str] = set()  # the sums of lines that another line replaces
        self.dropped: set[str] = set()  # the sums of newest lines that are no longer in the files
        self.past: set[tuple[str, str, int]] = set()  # versions whose lines a copy compacted: commit, id, rev
        self.compacted: dict[str, int] = {}  # the last rev of a record whose line was compacted, by id
        self.floor = 0  # the newest seq whose history was compacted, in the copy that did it
        self._reserved_keys: dict[str, int] = {}
        # The newest lines of diverging records, by id.
        self._tips: dict[str, dict[str, tuple[CachedLine, Row]]] = {}
        self._unsure: set[str] = set()  # of these, records that diverged only if two copies were merged
        self.touched: dict[str, set[str]] = {}  # the ids of records that lines were read of, by schema

    # -- versions -------------------------------------------------------------------------

    def is_newest_edit(self, found: ScannedLine) -> bool:
        """Check whether a line was edited by hand and no other line replaces it."""
        return found.read.hand and found.read.line.sum not in self.superseded

    def apply_line(self, found: ScannedLine, c: str) -> LoggedOp | None:
        """Make a line the newest version of its record; None when the line does not become a version."""
        line: RecordLine = found.read.line
        head = self.store.head(line.id)
        if is_forgotten(self._kernel, line):
            self._cache.start_purge()
            return None
        known = {} if head is None else self._cache.lines_of(head.record_key)
        hand = self.is_newest_edit(found)
        made = found.read.sum
        if found.read.hand and not hand:
            if line.sum in known:
                return None  # an old version was edited; the newer version stays
            made = line.sum or made
        fresh = self._make_row(found, head, hand)
        if fresh is None:
            return None
        self._track_tips(line, known, head, hand)
        self.write_row(fresh, head, line.keep)
        at = fresh.at if hand or line.at is None else clock.to_us(line.at)
        file, said = self._cache.number(found.name), fresh.rev if hand else line.rev
        cached = CachedLine(fresh.record_key, fresh.rev, made, c, at, file, said, line.after)
        self._put_line(line, cached)
        if line.id in self._tips:
            self._tips[line.id][made] = cached, fresh
        if not hand and _is_disputed(line):
            self._cache.put_conflict(fresh.record_key, fresh.rev, previous_sums(line), line.disputed or ())
        return self.log_op(fresh)

    def _put_line(self, line: RecordLine, cached: CachedLine) -> None:
        self._cache.add_lines([cached])
        self.touched.setdefault(line.schema or "", set()).add(line.id)

    def log_op(self, row: Row) -> LoggedOp:
        """Return the log entry of a version."""
        state = self.store.state(self.store.name(row.schema))
        quiet = 0 if state is None or state.feed else QUIET
        return (PUT if row.live else DELETE) | quiet, row.record_key, row.rev

    def _track_tips(
        self, line: RecordLine, known: dict[str, CachedLine], head: Row | None, hand: bool
    ) -> None:
        """Record that two copies changed a record, when a line does not follow its newest line.

        The lines between the two may be missing. The copy that compacted them has dropped the newest line
        too, if it had it: if that is still in the files, both copies changed the record.
        """
        if head is None:
            return
        newest = max(known.values(), key=lambda seen: seen.rev, default=None)
        before = previous_sums(line)
        if line.id in self._tips:
            for each in before:
                self._tips[line.id].pop(each, None)
            return
        if newest is None or newest.sum in before or hand:
            return
        if line.rev > newest.said + 1 and known.keys().isdisjoint(before):
            # A line that one copy dropped is back if another one moved it to the file of deletions.
            if newest.sum in self.dropped or (newest.c, line.id, newest.said) in self.past:
                return
            if self.compacted.get(line.id, 0) <= newest.said and (line.seq or 0) > self.floor:
                self._unsure.add(line.id)
        self._tips[line.id] = {newest.sum: (newest, head)}

    def _make_row(self, found: ScannedLine, head: Row | None, hand: bool) -> Row | None:
        line: RecordLine = found.read.line
        store, tip = self.store, self._kernel.tip
        try:
            data, extra, tags = self._encode_body(line, found.read.hand)
        except InputError as error:
            self._cache.put_report(Report(found.name, found.number, BAD, str(error)))
            return None
        live = line.op == "put"
        schema_version = (line.schema_version or 0) if line.schema else 0
        author = store.make_number(line.author or "hand")
        state = self.schema_state(line.schema or "", schema_version, author)
        record_key, least = self._next_version(line.id, head)
        at = tip.at
        created_at = line.created_at or line.at
        return Row(
            record_key,
            line.id,
            max(least, line.rev + hand),
            tip.seq,
            int(live),
            at if created_at is None else clock.to_us(created_at),
            at,
            state.number,
            schema_version,
            author,
            None if line.source is None else store.make_number(line.source),
            line.parent_id,
            tags,
            0,
            None,
            extra if live else None,
            data if live else None,
            (line.content or None) if live else None,
        )

    def _next_version(self, id: str, head: Row | None) -> tuple[int, int]:
        """Return the key of a record, and the least rev of its next version."""
        if head is not None:
            return head.record_key, head.rev + 1
        key = self.reserve_record_key(id)
        self._reserved_keys.pop(id, None)
        return key, self.store.forgotten_rev(id) + 1

    def _encode_body(self, line: RecordLine, hand: bool) -> tuple[bytes, bytes | None, str]:
        """Return data, extra and tags as stored bytes; check them if the line was edited by hand."""
        if not hand:
            extra = codec.encode(line.extra) if line.extra else None
            tags = codec.encode(sorted(line.tags)).decode() if line.tags else "[]"
            return bytes(line.data), extra, tags
        made = rows.encode_datum(
            Datum(
                id=line.id,
                created_at=line.created_at or line.at or clock.now(),
                data=msgspec.json.decode(line.data),
                content=line.content,
                tags=frozenset(line.tags),
                author=line.author,
                source=line.source,
                parent_id=line.parent_id,
                schema=line.schema,
                schema_version=line.schema_version if line.schema else None,
                extra=line.extra,
            ),
            "hand",
        )
        return made.data, made.extra, made.tags

    def schema_state(self, schema: str, schema_version: int, author: int) -> SchemaState:
        """Return the state of a schema, and record that it has records of this version."""
        state = self.store.state(schema)
        if state is None:
            state = SchemaState(schema, self.store.make_number(schema))
        if schema_version not in state.seen:
            state = add_seen(state, schema_version, author)
            self.store.set_state(state)
        return state

    def write_row(self, row: Row, head: Row | None, keep: int | None) -> None:
        """Store a version with its index entries, and archive the version that it replaces."""
        ledger, store = self._ledger, self.store
        row, new = self._index_row(row)
        if head is None:
            store.insert([row])
            store.add_entries([*sorted(new), *ledger.note_change(None, row)])
        else:
            store.add_entries(ledger.note_change(head, row))
            ledger.change_entries(set(ledger.entries_of(head)) if head.live else set(), new)
            store.archive(rows.pack_row(head, row))
            if keep is not None:
                store.drop_past(head.record_key, row.rev - keep)
            if head.field_keys == EMPTY and head.live:
                store.mark_unindexed(head.schema, head.record_key, False)
            store.replace(row)
        if row.field_keys == EMPTY and row.field_keys is not None:
            store.mark_unindexed(row.schema, row.record_key, True)

    def _index_row(self, row: Row) -> tuple[Row, set[Any]]:
        """Return the row, marked if its fields cannot be indexed here, and its index entries."""
        ledger, store = self._ledger, self.store
        if not row.live:
            return row, set()
        ledger._notice_changes()
        state = ledger.note_expiry(require_state(store.state(store.name(row.schema))), row.extra)
        keys: FieldKeys = {}
        if state.paths or state.refs:
            try:
                if row.schema_version != state.index_version:
                    raise ValueError("its version is not the indexed one, and lines have no migrations")
                keys = derive_keys(state, rows.data_of(row))
            except rows.DAMAGE:
                row = row._replace(field_keys=EMPTY)
        return row, set(ledger.entries(row, rows.tags_of(row), state, keys))

    def reserve_record_key(self, id: str) -> int:
        """Return the key of a record; reserve one if its first line is not applied yet."""
        head = self.store.head(id)
        if head is not None:
            return head.record_key
        if id not in self._reserved_keys:
            self._reserved_keys[id] = self.new_record_key()
        return self._reserved_keys[id]

    def new_record_key(self) -> int:
        """Return a key that no record has had."""
        self._kernel.tip.record_key += 1
        return self._kernel.tip.record_key

    # -- conflicts ------------------------------------------------------------------------

    def finish(self, lineages: Lineages, rebuilt: bool, merged: bool) -> None:
        """Settle diverged records; rooms check records that were read only if two copies were `merged`."""
        ends = {id: tips for id, tips in self._tips.items() if len(tips) > 1}
        if not merged:  # a line between two others is missing because it was damaged or removed by hand
            self.touched = {}
            ends = {id: tips for id, tips in ends.items() if id not in self._unsure}
        if ends or self.touched:
            LineSettlement(self._kernel, self, ends).run(lineages)
        self._cache.raise_key_floor(self._kernel.tip.record_key)
        if rebuilt:
            self._restart_index_builds()

    def _restart_index_builds(self) -> None:
        """Restart index builds, for a program with the migrations of records not indexed here."""
        for state in self.store.states():
            if self._cache.has_unindexed(state.number):
                again = msgspec.structs.replace(state, ready=frozenset[str](), fill=(T_MIN, 0))
                self.store.set_state(again)

    # -- forgetting, retention, schemas ---------------------------------------------------

    def erase_records(self, hashes: Iterable[tuple[str, int]], lines: Mapping[str, Sequence[str]]) -> None:
        """Erase records by the hashes of their ids, and refuse their lines from now on.

        Where `lines` has a hash, only a record whose newest line is among them is erased.
        """
        cache, wanted = self._cache, dict(hashes)
        cache.put_erased(wanted.items(), lines)
        ids = cache.ask(f"SELECT {ID_TEXT} FROM datum d WHERE d.trail = 0")
        known = [(self.store.head(id), wanted.get(cache.hash(id).hex())) for (id,) in ids]
        found = [
            row
            for row, rev in known
            if row is not None and rev is not None and self._is_forgotten_record(row, rev, lines)
        ]
        # The revs of the marks, not of this copy: all copies must refuse the same lines.
        revs = [*cache.forgotten_revs(), *((bytes.fromhex(hashed), rev) for hashed, rev in wanted.items())]
        if found:
            erase_rows(self._ledger, found)
            cache.start_purge()
        cache.set_forgotten_revs(revs)

    def _is_forgotten_record(self, row: Row, rev: int, lines: Mapping[str, Sequence[str]]) -> bool:
        """Check whether a record is the one forgotten at a rev, not a later one with the same id."""
        alone = lines.get(self._cache.hash(row.id).hex())
        if alone is None:
            return not self._cache.is_recreated_after(row.record_key, rev)
        newest = self._cache.find_newest_line(row.record_key)
        return newest is not None and newest.sum in alone

    def apply_retention(self, mark: CommitMark) -> None:
        """Apply a retention rule that another copy applied."""
        store = self.store
        for id, below in mark.drops.items():
            head = store.head(id)
            # A diverged record has other revs in each copy, so both versions stay.
            if head is not None and (id not in self._tips or id in self._unsure):
                store.drop_past(head.record_key, min(below, head.rev))
        floor = min(mark.floor or 0, self._kernel.tip.seq)
        if floor > store.floor():
            store.raise_floor(floor)
        if mark.expired is not None:
            store.expire_keys(clock.to_us(mark.expired))

    def declare(self, declared: SchemaLine) -> None:
        """Set the state of a schema to its declaration."""
        store = self.store
        state = store.state(declared.schema)
        if state is None:
            state = SchemaState(declared.schema, store.make_number(declared.schema))
        new = msgspec.structs.replace(
            state,
            index_version=declared.version,
            paths=declared.indexes,
            refs=declared.refs,
            history=declared.history,
            feed=declared.feed,
            owner=declared.owner,
            digest=declared.digest,
            text=declared.text,
            tokenizer=declared.tokenizer,
            dates=declared.dates,
            thread=declared.thread,
            vector=declared.vector,
        )
        if _index_facts(new) != _index_facts(state):
            ready = frozenset[str]() if state.seen else frozenset(new.indexed)
            new = msgspec.structs.replace(new, ready=ready)
            new = msgspec.structs.replace(new, fill=(T_MIN, 0) if new.building else None)
            # Lines do not hold `kinds`; a program that knows the schema's contract declares them again.
            known = state.kinds if new.index_version == state.index_version else {}
            kinds = {path: kind for path, kind in known.items() if path in new.paths}
            new = msgspec.structs.replace(new, kinds=kinds, keys=KEYS)
            while store.drop_indexes(new.number, lambda name: is_declared(new, name), BATCH):
                pass
        if new != state or store.state(declared.schema) is None:
            store.set_state(new)


def _index_facts(state: SchemaState) -> tuple[object, ...]:
    return (
        state.index_version,
        state.paths,
        state.refs,
        state.text,
        state.tokenizer,
        state.dates,
        state.vector,
    )


def _is_disputed(line: RecordLine) -> bool:
    """Check whether a line leaves fields in conflict, which a merge by an older dgent does not say."""
    if line.disputed is None:
        return isinstance(line.prev, list) and not is_internal(line.schema or "")
    return bool(line.disputed)
