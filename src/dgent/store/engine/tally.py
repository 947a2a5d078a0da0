"""Count distinct values and tags: from an index where one has exactly the records, else by reading them."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

from dgent.model import order
from dgent.model import path as paths
from dgent.store.backend import View
from dgent.store.engine.catalog import UNLISTED, SchemaState, after_prefix, field_index, high, low
from dgent.store.engine.expiry import may_hide
from dgent.store.engine.kernel import IndexScan, Reading
from dgent.store.engine.plan import are_fields_usable, make_plan
from dgent.store.engine.read import find
from dgent.store.engine.row import datum_of
from dgent.store.tally import Counts, Tally, count_records, count_tags, values_at

_ALL = 2**62


def count_values(reading: Reading, tally: Tally, view: View, as_of: int | None) -> Counts:
    """Return the values or tags that a tally asks for, in order, with their counts."""
    query = tally.everything()
    now = as_of is None or as_of >= reading.newest()[0]
    if query.schema is None:
        states = reading.states()
    else:
        state = reading.state(query.schema)
        states = [] if state is None else [state]
    if now and not query.narrows and query.allow is None and not query.expired:
        if not states:
            return []
        if not may_hide(reading, states):
            if tally.path is None:
                return _count_tags(reading, tally, states)
            found = _count_by_index(reading, tally, view, states[0]) if len(states) == 1 else None
            if found is not None:
                return found
    plan = make_plan(reading, query, view)
    rows = find(reading, query, view, plan, None if now else as_of, None)
    return count_records(tally, view, (datum or datum_of(row, reading.name) for *_, row, datum in rows))


def _count_tags(reading: Reading, tally: Tally, states: list[SchemaState]) -> Counts:
    counts: Counter[str] = Counter()
    for tag, index in chain.from_iterable(reading.tag_indexes(state.number) for state in states):
        if tag.startswith(tally.prefix or ""):
            counts[tag] += reading.size(IndexScan(index, low(b""), high(b"")), _ALL)
    return count_tags(tally, counts)


def _count_by_index(reading: Reading, tally: Tally, view: View, state: SchemaState) -> Counts | None:
    """Return the values in the index of a field; None when it does not have exactly those of the records."""
    assert tally.path is not None
    parsed = paths.parse(tally.path)
    path, inside = paths.text(parsed), paths.list_path(tally.path)
    lookup = view.lookup(state.name)
    kind, defaults = (
        (None, ()) if lookup is None else (lookup.kind(parsed), lookup.defaults(inside or parsed))
    )
    if path not in state.ready or kind != state.kinds.get(path) or defaults != ():
        return None
    if not are_fields_usable(state, view) or reading.unindexed_rows(state.number):
        return None
    index = reading.index_number(field_index(state, path))
    if index is None:
        return []
    first, last = UNLISTED + b"\0", b"\xff"
    if tally.prefix is not None:
        first = (order.FIRST_TEXT + tally.prefix.encode())[: order.CUT]
        last = after_prefix(first) or last
    # Below a cut beginning there may be texts that begin otherwise.
    limit = None if len(first) >= order.CUT else tally.limit
    out: Counts = []
    for key, count in reading.groups(IndexScan(index, low(first), low(last)), limit):
        known, value = order.value_of_key(key) if kind is None else (False, None)
        if not known:
            out += _count_run(reading, tally, view, index, key)
        elif tally.prefix is None or str(value).startswith(tally.prefix):
            out.append((value, count))
    return out[: tally.limit]


def _count_run(reading: Reading, tally: Tally, view: View, index: int, key: bytes) -> list[tuple[Any, int]]:
    """Return the values under one key that does not say them: long ones, lists and maps, times."""
    found: dict[tuple[bytes, bytes], list[Any]] = {}
    for _, row in reading.walk(IndexScan(index, low(key), high(key)), False, False):
        for place, value in values_at(view.shape(datum_of(row, reading.name)), tally).items():
            if place[0][: order.CUT] == key:
                found.setdefault(place, [value, 0])[1] += 1
    return [(value, count) for _, (value, count) in sorted(found.items(), key=lambda each: each[0])]
