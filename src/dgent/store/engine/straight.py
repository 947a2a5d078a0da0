"""Read a page that is one run of an index: its rows are exactly those of the query, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dgent import codec
from dgent.model import order
from dgent.model import path as paths
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Page, View
from dgent.store.engine.cursor import Cursor, encode_cursor
from dgent.store.engine.kernel import IndexScan, Reading
from dgent.store.engine.plan import Plan
from dgent.store.engine.row import (
    DAMAGE,
    DATA,
    SCHEMA,
    SCHEMA_VERSION,
    Brief,
    datum_of,
    rows_of,
    whole_of,
)

READ_ALONG = 100  # so many rows before a page are read with it, which spares a second statement
PART = 4096  # so many rows are fetched at once
ALL = 2**62
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_straight(
    reading: Reading,
    q: Query,
    view: View,
    plan: Plan,
    start: Cursor | None,
    epoch: bytes,
    as_of: int | None = None,
) -> Page | None:
    """Return the page if one scan gives exactly the requested rows in their order, else None."""
    if not _is_one_scan(reading, plan) or (start is not None and len(start.key) >= order.CUT):
        return None
    scan = plan.scans[0] if start is None else cut_before(plan.scans[0], q, start)
    rows = _fetch_page(reading, q, view, scan, q.offset if start is None else 0)
    if rows is None:
        return None
    more = q.limit is not None and len(rows) > q.limit
    if more:
        rows = rows[: q.limit]
    name = reading.name
    kept = rows_of(rows, name, reading.names_at_hand()) if view.lazy else None
    made = [] if kept is not None else [datum_of(whole_of(row), name) for row in rows]

    def further() -> str:
        # Most callers never ask. This runs after the moment has ended, so it may not read anything.
        datum = made[-1] if kept is None else kept.datum(rows[-1])
        return encode_cursor(_cursor_of(q, view, rows[-1], datum, as_of), epoch, q.digest())

    return Page(made, plan.explain, further if more else None, kept)


def _is_one_scan(reading: Reading, plan: Plan) -> bool:
    """Return whether one scan has exactly the rows of a query, in their order."""
    if not (plan.exact and plan.ordered and len(plan.scans) == 1) or plan.repeats or plan.lapsing:
        return False
    if plan.unindexed and any(map(reading.unindexed_rows, plan.unindexed)):
        return False
    return not plan.lacking or not any(reading.size(each.scan, 1) for each in plan.lacking)


def cut_before(scan: IndexScan, q: Query, start: Cursor) -> IndexScan:
    """Return the rest of a scan after the row of a cursor."""
    key = scan.low[0] if q.order_path is None else start.key
    if q.descending:
        return scan._replace(high=min(scan.high, (key, start.created_at, start.record_key)))
    return scan._replace(low=max(scan.low, (key, start.created_at, start.record_key + 1)))


def _fetch_page(
    reading: Reading, q: Query, view: View, scan: IndexScan, offset: int
) -> Sequence[tuple[Any, ...]] | None:
    """Return the rows after the offset, in parts if they are many; None if one may have a cut key.

    A short offset is read along, a long one skipped in the index.
    """
    if offset > READ_ALONG:
        rest = reading.skip(scan, q.descending, offset)
        if rest is None:
            return []
        scan, offset = rest, 0
    wanted = ALL if q.limit is None else offset + q.limit + 1
    rows: list[tuple[Any, ...]] = []
    numbers = q.order_path is not None and _has_numbers_alone(reading, q, scan)
    while True:
        part = reading.fetch(scan, q.descending, q.content, min(wanted - len(rows), PART))
        if q.order_path is not None and not (numbers or _are_keys_whole(reading, q, view, part)):
            return None
        rows += part
        if len(part) < PART or len(rows) == wanted:
            return rows[offset:] if offset else rows
        last = datum_of(whole_of(part[-1]), reading.name)
        scan = cut_before(scan, q, _cursor_of(q, view, part[-1], last, None))


def _has_numbers_alone(reading: Reading, q: Query, scan: IndexScan) -> bool:
    """Return whether all keys of a scan are those of integers and floats, which are never cut."""
    state = None if q.schema is None else reading.state(q.schema)
    if state is None or q.order_path is None or paths.text(q.order_path) in state.kinds:
        return False  # a decimal may have many digits
    return scan.low[0] >= order.FIRST_NUMBER and scan.high[0] <= order.FIRST_TEXT


def _are_keys_whole(reading: Reading, q: Query, view: View, rows: Sequence[tuple[Any, ...]]) -> bool:
    """Return whether no row has a cut key, whose place among equal keys only its whole value can say.

    The keys themselves are not read. A record that is not stored in the shape of the index may have any.
    """
    if not rows:
        return True
    assert q.order_path is not None
    top, version = q.order_path[0], view.version(reading.name(rows[0][SCHEMA]))
    for row in rows:
        data = row[DATA]
        if version is not None and row[SCHEMA_VERSION] != version:
            return False
        try:
            if len(data) >= order.CUT and len(_fields_decoder.decode(data).get(top, b"")) >= order.CUT:
                key, _ = order.index_key(paths.read(codec.decode(data), q.order_path))
                if len(key) >= order.CUT:
                    return False
        except DAMAGE:
            return False
    return True


def _cursor_of(q: Query, view: View, row: tuple[Any, ...], datum: Datum, as_of: int | None) -> Cursor:
    """Return the place of a brief row whose key is not cut."""
    last = Brief._make(row)
    key = b"" if q.order_path is None else q.order_key(view.shape(datum))
    return Cursor(key, last.created_at, last.record_key, -1 if as_of is None else as_of)
