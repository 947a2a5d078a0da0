"""The change feed: every commit in order, none missed, also those of other processes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Change, Item
from dgent.universe.contracts import Contracts

BATCH = 256
WAIT_S = 5.0


async def watch(
    backend: Backend, contracts: Contracts, since: int, query: Query | None
) -> AsyncGenerator[Change, None]:
    """Changes after a seq, as they happen; with a query, only the records that match it.

    A deletion matches when the record did before it was deleted, or when that is no longer known
    (a schema with `history="none"`): a deletion too many does no harm, a missed one does.
    """
    while True:
        newest = await backend.last_seq()
        changes = await backend.changes(since, BATCH)
        for change in changes:
            since = change.seq
            shown = _shown(contracts, change, query)
            if shown.items:
                yield shown
        if not changes:
            # Commits of schemas that stay off the feed move the seq on without showing.
            since = max(since, newest)
            await backend.wait(since, WAIT_S)


def _shown(contracts: Contracts, change: Change, query: Query | None) -> Change:
    items = [item for item in change.items if query is None or _matches(contracts, item, query)]
    typed = tuple(
        msgspec.structs.replace(item, datum=_value(contracts, item.datum), last=_value(contracts, item.last))
        for item in items
    )
    return msgspec.structs.replace(change, items=typed)


def _value(contracts: Contracts, datum: Datum | None) -> Any:
    return None if datum is None else contracts.lenient(datum)


def _matches(contracts: Contracts, item: Item, query: Query) -> bool:
    datum = item.datum if item.op == "put" else item.last
    if datum is None:
        known = item.op == "delete" and query.schema in (None, item.schema)
        return known and (item.id or "").startswith(query.prefix or "")
    return query.matches(datum, contracts.shape(datum))
