"""Check that the reads of a transaction still hold."""

from __future__ import annotations

from dgent.errors import HistoryGone, TransactionConflict
from dgent.store.backend import Guard, View
from dgent.store.engine.history import version_at
from dgent.store.engine.kernel import FORGET, QUIET, SAME, Reading
from dgent.store.engine.row import Row, datum_of


def check_guard(reading: Reading, guard: Guard, view: View) -> None:
    """Raise TransactionConflict when a commit after `guard.since` touched what the guard names.

    The current version of each touched record is enough: one that stopped matching a query was in
    its result, so its id is among the ids.
    """
    if guard.since < reading.floor():
        raise TransactionConflict("the history this transaction relies on was compacted meanwhile")
    touched: dict[int, int] = {}
    for logged in reading.log(guard.since, None):
        for code, record_key, _rev in logged.ops:
            if code & ~QUIET == FORGET:
                raise TransactionConflict("records were forgotten while this transaction ran")
            if code == SAME:
                continue
            touched[record_key] = logged.seq
    for record_key, seq in touched.items():
        head = reading.row(record_key)
        named = head is None or (head.id in guard.ids and _shows(reading, head, guard))
        if named or (head is not None and _matches_any(reading, head, guard, view)):
            id = None if head is None else head.id
            raise TransactionConflict(f"{id!r} was changed by commit {seq}", id=id, seq=seq)


def _matches_any(reading: Reading, head: Row, guard: Guard, view: View) -> bool:
    if not head.live or not guard.queries:
        return False
    datum = datum_of(head, reading.name)
    if guard.sees is not None and not guard.sees(head.id, datum.schema, datum):
        return False
    return any(query.matches(datum, view.shape) for query in guard.queries)


def _shows(reading: Reading, head: Row, guard: Guard) -> bool:
    """Return whether a record may be seen as it is, or could be when the transaction read it."""
    if guard.sees is None:
        return True
    try:
        before = version_at(reading, head, guard.since)
    except HistoryGone:
        before = None
    kept = [datum_of(row, reading.name) for row in (head, before) if row is not None and row.live]
    if not kept:
        return guard.sees(head.id, reading.name(head.schema), None)
    return any(guard.sees(head.id, datum.schema, datum) for datum in kept)
