"""Versions that a search looks at itself, in place of those that its indexes have.

One rule serves earlier moments, transactions and the outbox: the indexes are not asked about these records,
and the versions that count are split into words in the search.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TypeAlias

from dgent.model.datum import Datum
from dgent.store.backend import View
from dgent.store.engine.history import check_floor, find_changed
from dgent.store.engine.kernel import Reading
from dgent.store.engine.row import datum_of
from dgent.store.search import OwnVersions

Overrides: TypeAlias = Mapping[int, Datum | None]
"""The versions that count instead of the newest stored ones, by record key; None where there is none."""

NO_OVERRIDES: Overrides = MappingProxyType({})
NEW = 2**62  # the keys of records that are not stored yet begin here, after all others


def find_overrides(
    reading: Reading, schemas: Collection[str], view: View, as_of: int | None, own: OwnVersions
) -> Overrides:
    """Return the versions of an earlier seq and the caller's own; raises HistoryGone as a query does.

    What no search of these schemas finds need not have a history.
    """
    found: dict[int, Datum | None] = {}
    if as_of is not None:
        check_floor(reading, as_of)
        for record_key, row in find_changed(reading, schemas, view, as_of).items():
            found[record_key] = None if row is None else datum_of(row, reading.name)
    for number, (id, datum) in enumerate(own.items()):
        head = reading.head(id)
        found[NEW + number if head is None else head.record_key] = datum
    return found
