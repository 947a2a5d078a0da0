"""Snapshot: read all records as of one commit, each once, while others write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from dgent.exchange import lines
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import PartView
from dgent.universe.reader import PAGE
from dgent.universe.universe import Universe


class Snapshot:
    """The records of a universe as of a commit, read once.

    A record without history that changes meanwhile no longer has its version of that commit. It is left out
    of the pages, and yielded at the end as it is then, unless it was read before it changed.
    """

    def __init__(self, universe: Universe, seq: int) -> None:
        self._backend, self._contracts, self._seq = universe.backend, universe.contracts, seq
        self._met: set[bytes] = set()

    async def size(self, query: Query) -> int:
        """Return the number of records to read, without those that changed since and keep no history."""
        count = await self._backend.count(query, PartView(self._contracts), self._seq)
        return count if query.limit is None else min(count, query.limit)

    async def records(self, query: Query) -> AsyncGenerator[Datum]:
        """Yield every matching record in order; last, those whose version of the commit is gone."""
        left = query.limit
        async with aclosing(self._as_they_were(query)) as found:
            async for datum in found:
                self._met.add(lines.hash_id(datum.id))
                yield datum
                left = None if left is None else left - 1
        if left == 0 or await self._backend.last_seq() == self._seq:
            return
        async with aclosing(self._as_they_are(query)) as found:
            async for datum in found:
                yield datum
                left = None if left is None else left - 1
                if left == 0:
                    return

    async def _as_they_were(self, query: Query) -> AsyncGenerator[Datum]:
        left, view = query.limit, PartView(self._contracts)
        while True:
            limit = PAGE if left is None else min(PAGE, left)
            page = await self._backend.query(query.replace(limit=limit), view, self._seq)
            for datum in page.items:
                yield datum
            left = None if left is None else left - len(page.items)
            if page.cursor is None or left == 0:
                return
            query = query.replace(cursor=page.cursor, offset=0)
            await asyncio.sleep(0)

    async def _as_they_are(self, query: Query) -> AsyncGenerator[Datum]:
        """Yield the records whose version of the commit is gone and that were not read before.

        They are found by one query. A version that is gone stays gone, so each record of the commit was read
        before or is among them, wherever it is in the order now.
        """
        everywhere = query.replace(limit=None, offset=0, cursor=None)
        gone = PartView(self._contracts, gone=True)
        page = await self._backend.query(everywhere.replace(content=False), gone, self._seq)
        missed = [datum.id for datum in page.items if lines.hash_id(datum.id) not in self._met]
        for start in range(0, len(missed), PAGE):
            for datum in await self._backend.get_many(missed[start : start + PAGE]):
                if datum is not None and self._is_wanted(datum, everywhere):
                    yield datum

    def _is_wanted(self, datum: Datum, query: Query) -> bool:
        """Check whether a record matches as it is now; a damaged one does, so that it is not skipped."""
        return datum.problem is not None or query.matches(datum, self._contracts.shape(datum))
