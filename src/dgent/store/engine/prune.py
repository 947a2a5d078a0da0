"""Delete data for good, prune history by its retention rules, and index old records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dgent import clock
from dgent.errors import Denied
from dgent.store.backend import EVERY_ROOM, KINDS, Keep, View
from dgent.store.engine import fold, vector_fold
from dgent.store.engine.catalog import (
    EMPTY,
    TEXT,
    VECTOR,
    Entry,
    IndexName,
    SchemaState,
    derive_keys,
    find_texts,
    high,
    is_declared,
    pack_keys,
    renew_texts,
    require_state,
    text_index,
)
from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import FORGET, IndexScan, Logged, Reading, Writing
from dgent.store.engine.owner import owner_of_schema
from dgent.store.engine.row import Row, datum_of

FILL_BATCH = 500
STALE_BATCH = 2_000
LOG_BATCH = 10_000
KEY_DAYS_US = 7 * 24 * 3600 * 1_000_000


def forget(
    ledger: Ledger,
    ids: Sequence[str],
    author: str,
    room: str | None,
    only_deleted: bool = False,
    at_us: int | None = None,
) -> tuple[int, int, int]:
    """Erase records and every trace of them; returns the seq, and how many records and versions."""
    kernel = ledger.kernel
    found = [row for row in map(kernel.head, dict.fromkeys(ids)) if row is not None]
    rows = [row for row in found if not (only_deleted and row.live)]
    for row in rows:
        _check_owner(kernel, row, room)
    if not rows:
        return kernel.tip.seq, 0, 0
    tip = kernel.tip
    tip.seq += 1
    tip.at = max(clock.now_us() if at_us is None else at_us, tip.at)
    versions = erase_rows(ledger, rows)
    ops = [(FORGET, row.record_key, row.rev) for row in rows]
    number = kernel.make_number(author)
    kernel.append(Logged(tip.seq, tip.at, number, KINDS.index("forget"), None, None, ops, None, None))
    return tip.seq, len(rows), versions


def erase_rows(ledger: Ledger, rows: Sequence[Row]) -> int:
    """Remove records and every trace of them, as of the newest seq; return how many versions there were."""
    kernel = ledger.kernel
    schemas = {old.schema for row in rows for old in (row, *kernel.past(row.record_key))}
    kernel.move_entries()  # those that wait hold values of the records
    entries = [entry for row in rows if row.live for entry in ledger.entries_of(row)]
    gone = {row.record_key for row in rows}
    for schema in schemas:
        state = require_state(kernel.state(kernel.name(schema)))
        fold.erase_texts(kernel, state, gone)
        vector_fold.erase_vectors(kernel, state, gone)
    versions = kernel.erase(rows, _commits_about(kernel, {row.record_key for row in rows}), kernel.tip.seq)
    kernel.remove_entries(entries)
    for row in rows:
        kernel.mark_unindexed(row.schema, row.record_key, False)
    for schema in schemas:
        _drop_traces(kernel, schema)
    return versions


def _check_owner(kernel: Writing, row: Row, room: str | None) -> None:
    owner = owner_of_schema(kernel, kernel.name(row.schema))
    if owner is not None and room not in (owner, EVERY_ROOM):
        raise Denied(f"{row.id!r} belongs to the room {owner!r}", id=row.id)


def _commits_about(kernel: Writing, record_keys: set[int]) -> list[int]:
    """Return the seqs of all commits that name some records, also those whose versions were pruned."""
    found: list[int] = []
    since = 0
    while batch := kernel.log(since, LOG_BATCH):
        found += [
            logged.seq
            for logged in batch
            if any(record_key in record_keys for _, record_key, _ in logged.ops)
        ]
        since = batch[-1].seq
    return found


def _drop_traces(kernel: Writing, schema: int) -> None:
    """Drop texts that forgotten records may have left: tags that no record has, and replaced indexes."""
    state = require_state(kernel.state(kernel.name(schema)))

    def is_wanted(name: IndexName) -> bool:
        if not is_declared(state, name):
            return False
        index = kernel.index_number(name)
        whole = None if index is None else IndexScan(index, (b"", -(2**63), 0), high(b"\xff"))
        return not name.tag or (whole is not None and kernel.size(whole, 1) > 0)

    while kernel.drop_indexes(schema, is_wanted, STALE_BATCH):
        pass
    if state.stale:
        kernel.set_state(msgspec.structs.replace(state, stale=False))


def compact_step(kernel: Writing, keep: Keep, after_key: int) -> tuple[int, int, int | None]:
    """Apply a retention rule to some records; returns removed versions and commits, and the next key."""
    batch = kernel.kept_after(after_key, 500)
    after = None if keep.after is None else clock.to_us(keep.after)
    removed, floor = _drop_versions(kernel, keep, after, batch)
    commits = 0
    done = len(batch) < 500
    if done and after is not None and keep.versions is None:
        floor = max(floor, kernel.seq_at(after))
    if keep.schema is not None:
        # Others keep their history and the feed; asking for a pruned version raises an error that says so.
        floor = 0
    if floor > kernel.floor():
        commits = kernel.raise_floor(floor)
    if done:
        kernel.expire_keys(clock.now_us() - KEY_DAYS_US)
    return removed, commits, None if done else batch[-1]


def _drop_versions(kernel: Writing, keep: Keep, after: int | None, batch: Iterable[int]) -> tuple[int, int]:
    """Drop the versions that a rule does not keep; return their number, and the last seq that needed one."""
    removed, floor = 0, 0
    for record_key in batch:
        head = kernel.row(record_key)
        if head is None or (keep.schema is not None and kernel.name(head.schema) != keep.schema):
            continue
        spans = [*kernel.spans(record_key), (head.rev, head.seq, head.at)]
        below = _first_kept(spans, keep.versions, after)
        if below > spans[0][0]:
            removed += kernel.drop_past(record_key, below)
            # The last removed version was current until its successor came.
            floor = max(floor, next(seq for rev, seq, _ in spans if rev >= below))
    return removed, floor


def _first_kept(spans: list[tuple[int, int, int]], versions: int | None, after: int | None) -> int:
    """Return the oldest rev that a rule keeps; both parts of a rule must agree to remove one."""
    below = spans[-1][0]
    if versions is not None:
        below = min(below, spans[max(0, len(spans) - 1 - versions)][0])
    if after is not None:
        by_then = [rev for rev, _, at in spans if at <= after]
        below = min(below, by_then[-1] if by_then else spans[0][0])
    return below


# -- indexing old records -----------------------------------------------------------------


def prepare_fill(reading: Reading, schema: str, view: View, prepared: fold.Prepared) -> None:
    """Work out before a write what the next step of `fill_step` needs, as far as that takes long."""
    reading.refresh()
    state = reading.state(schema)
    if state is not None and state.fill is None and state.text and renew_texts(state) is state:
        fold.prepare_step(reading, state, view, prepared)


def fill_step(ledger: Ledger, schema: str, view: View, prepared: fold.Prepared) -> bool:
    """Index one batch of a schema's old records; False when nothing is left to do.

    Two processes may do this at once: each batch starts at the stored mark, and writing an entry twice
    changes nothing.
    """
    kernel = ledger.kernel
    state = kernel.state(schema)
    if state is None:
        return False
    found = renew_texts(find_texts(state))
    if found is not state:
        kernel.set_state(found)
        kernel.make_index(text_index(found))
        return True
    if state.fill is not None and not state.is_known_to(view):
        return False
    if state.fill is not None:
        return _fill_batch(ledger, state, view)
    if state.text and fold.fold_step(ledger, state, view, prepared):
        return True
    if state.vector and vector_fold.fold_step(ledger, state):
        return True
    if state.stale:
        more = kernel.drop_indexes(state.number, lambda name: is_declared(state, name), STALE_BATCH)
        if not more:
            kernel.set_state(msgspec.structs.replace(state, stale=False))
        return more
    return False


def _fill_batch(ledger: Ledger, state: SchemaState, view: View) -> bool:
    kernel = ledger.kernel
    assert state.fill is not None
    kernel.move_entries()
    base = kernel.make_index(IndexName(state.number, 0, "", ""))
    created_at, record_key = state.fill
    scan = IndexScan(base, (b"", created_at, record_key + 1), high(b""))
    batch: list[Row] = []
    for _, row in kernel.walk(scan, False, False):
        batch.append(row)
        if len(batch) == FILL_BATCH:
            break
    entries: list[Entry] = []
    for row in batch:
        entries.extend(_fill_row(ledger, state, row, view))
        entries.extend(_note_missing(ledger, state, row))
    kernel.add_entries(sorted(entries))
    done = len(batch) < FILL_BATCH
    kernel.set_state(
        msgspec.structs.replace(
            state,
            fill=None if done else (batch[-1].created_at, batch[-1].record_key),
            ready=frozenset(state.indexed) if done else state.ready,
        )
    )
    return not done or state.stale or bool(state.text or state.vector)


def _note_missing(ledger: Ledger, state: SchemaState, row: Row) -> list[Entry]:
    """Return entries that say that a version waits for those indexes of texts or vectors that are new."""
    waiting = msgspec.structs.replace(
        state,
        text=() if TEXT in state.ready else state.text,
        vector=None if VECTOR in state.ready else state.vector,
    )
    return ledger.note_version(row, waiting)


def _fill_row(ledger: Ledger, state: SchemaState, row: Row, view: View) -> list[Entry]:
    kernel = ledger.kernel
    datum = datum_of(row, kernel.name)
    if datum.problem is not None:
        return _fill_damaged(ledger, state, row)
    if state.has_shape(row.schema_version):
        if row.field_keys is not None:
            kernel.set_keys(row.record_key, None)
            kernel.mark_unindexed(state.number, row.record_key, False)
        return ledger.entries_of(row._replace(field_keys=None))
    shape = view.upgrade(datum)
    if shape is None:
        # The upgrade failed, so it is looked at by every query until someone mends it.
        kernel.set_keys(row.record_key, EMPTY)
        kernel.mark_unindexed(state.number, row.record_key, True)
        return []
    field_keys = pack_keys(derive_keys(state, shape))
    entries = ledger.entries_of(row._replace(field_keys=field_keys))
    if row.field_keys:
        # It was indexed from another copy; what that one said must not be found any more.
        kernel.remove_entries(set(ledger.entries_of(row)) - set(entries))
    kernel.set_keys(row.record_key, field_keys)
    kernel.mark_unindexed(state.number, row.record_key, False)
    return entries


def _fill_damaged(ledger: Ledger, state: SchemaState, row: Row) -> list[Entry]:
    """Take a record that cannot be read out of the field indexes, and return the entries it keeps."""
    kernel = ledger.kernel
    old, bare = kernel.entries_at(row.record_key), ledger.entries_of(row._replace(field_keys=EMPTY))
    kernel.remove_entries(set(old) - set(bare))
    kernel.set_keys(row.record_key, EMPTY)
    kernel.mark_unindexed(state.number, row.record_key, True)
    return bare
