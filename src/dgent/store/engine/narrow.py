"""Find the records that indexes leave of a query, before a search looks at any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dgent.model.query import Query
from dgent.store.backend import View
from dgent.store.engine.kernel import Reading
from dgent.store.engine.plan import make_plan

FEW_KEYS = 8_192  # so many records of an index are read before they are counted


class Narrowed(NamedTuple):
    """The keys of records that may match a query; `exact` if indexes prove that each does."""

    keys: Sequence[int]
    exact: bool


def narrow(reading: Reading, query: Query, view: View, most: int) -> Narrowed | None:
    """Return the records that indexes leave of a query; None if they are more than `most`, or not known."""
    plan = make_plan(reading, query.replace(limit=None), view)
    if plan.ids is not None:
        rows = reading.heads(plan.ids) if len(plan.ids) <= most else None
        return None if rows is None else Narrowed([row.record_key for row in rows if row is not None], False)
    if plan.prefix is not None or plan.lacking or any(map(reading.unindexed_rows, plan.unindexed)):
        return None
    few = min(most, FEW_KEYS)
    found = [key for scan in plan.scans for key in reading.find_keys(scan, few + 1)]
    if len(found) > few:
        if few == most or sum(reading.size(scan, most + 1) for scan in plan.scans) > most:
            return None
        found = [key for scan in plan.scans for key in reading.find_keys(scan, most + 1)]
    return Narrowed(list(set(found)) if len(plan.scans) > 1 or plan.repeats else found, plan.exact)
