"""The change feed: every commit in order, none missed, also those of other processes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from dgent.model.query import Query
from dgent.store.backend import Backend, Change, Item
from dgent.universe.contracts import Contracts

BATCH = 256
WAIT_S = 5.0


async def watch(
    backend: Backend, contracts: Contracts, since: int, query: Query | None
) -> AsyncIterator[Change]:
    """Changes after a seq, as they happen; with a query, only the records that match it.

    A deletion matches when the record did before it was deleted.
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
        item if item.datum is None else msgspec.structs.replace(item, datum=contracts.lenient(item.datum))
        for item in items
    )
    return msgspec.structs.replace(change, items=typed)


def _matches(contracts: Contracts, item: Item, query: Query) -> bool:
    datum = item.datum if item.op == "put" else item.last
    return datum is not None and query.matches(datum, contracts.shape(datum))
