"""Find the records whose declared refs hold an id."""

from __future__ import annotations

from dgent.model import order
from dgent.model.datum import Datum
from dgent.store.backend import View
from dgent.store.engine.catalog import REF, IndexName, SchemaState, high, low, ref_ids, unpack_keys
from dgent.store.engine.expiry import hides
from dgent.store.engine.kernel import IndexScan, Reading
from dgent.store.engine.row import Row, datum_of


def find_referrers(reading: Reading, id: str, limit: int | None, view: View) -> list[Datum]:
    """Return the live records whose declared refs hold an id, newest first."""
    key, _ = order.index_key(id)
    found: dict[int, Row] = {}
    for state in reading.states():
        if not state.refs:
            continue
        index = reading.index_number(IndexName(state.number, state.index_version, "", REF))
        rows: list[Row] = list(reading.unindexed_rows(state.number))
        if REF not in state.ready:
            base = reading.index_number(IndexName(state.number, 0, "", ""))
            rows += _rows(reading, base, b"")
        rows += _rows(reading, index, key)
        for row in rows:
            if row.extra is not None and hides(reading, row):
                continue
            if _refers(reading, state, row, id, view):
                found[row.record_key] = row
    newest = sorted(found.values(), key=lambda row: (row.created_at, row.record_key), reverse=True)
    return [datum_of(row, reading.name) for row in newest[:limit]]


def _refers(reading: Reading, state: SchemaState, row: Row, id: str, view: View) -> bool:
    keys = unpack_keys(row.field_keys) if row.field_keys else {}
    if REF in keys and (REF in state.ready or view.version(state.name) != state.index_version):
        # Indexed from an upgraded copy: the stored data may hold the ref elsewhere. Before the index
        # is built, the copy may be of an older version, so a caller that knows the newest checks again.
        return order.key(id) in keys[REF]
    return id in ref_ids(state, view.shape(datum_of(row, reading.name)))


def _rows(reading: Reading, index: int | None, key: bytes) -> list[Row]:
    if index is None:
        return []
    return [row for _, row in reading.walk(IndexScan(index, low(key), high(key)), True, True)]
