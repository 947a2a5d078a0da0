"""A store as it was at a commit, for handles that only read: `await u.at(seq)`.

The past stands between a universe and its backend, so that rooms see their records as they were without
knowing of it. Nothing can be written there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn

import msgspec

from dgent import clock
from dgent.errors import Denied, HistoryGone
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.vector import VectorSpec
from dgent.store.backend import STORED, Backend, BackendStats, Change, Guard, Page, PartView, Version, View
from dgent.store.search import SearchPage, SearchRequest, VectorPage
from dgent.store.tally import Counts, Tally

WRITES = ("commit", "forget", "compact", "drop_index", "store_vectors", "states_before")
SAME = (
    *("name", "priority", "epoch", "degradation", "holds_rooms", "agent", "open", "close", "is_available"),
    *("ranks", "embedded_schemas", "waiting_vectors", "outcome", "declare", "fill", "versions"),
)
"""The parts of a backend that are the same at any moment. All others an engine may have are left out."""


class Past:
    """A backend as of a commit; what has no past, such as its indexes and its size, is that of now.

    `at` is a time at which nothing after that commit was stored.
    """

    def __init__(self, inner: Backend, seq: int, at: datetime) -> None:
        self.inner, self.seq, self.at = inner, seq, at
        self._stats: BackendStats | None = None

    def __getattr__(self, name: str) -> Any:
        if name in WRITES:
            return self._refuse
        if name in SAME:
            return getattr(self.inner, name)
        if name == "at_hand":
            return Past(self.inner.at_hand, self.seq, self.at)  # type: ignore[attr-defined]
        raise AttributeError(name)

    async def _refuse(self, *_given: Any, **_named: Any) -> NoReturn:
        raise refuse_change(self.seq)

    def _earlier(self, as_of: int | None) -> int:
        return self.seq if as_of is None else min(self.seq, as_of)

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """Return the version of then."""
        return await self.inner.get(id, self._earlier(as_of), lazy)

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """Return one answer for each id."""
        return await self.inner.get_many(ids, self._earlier(as_of))

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """Return a page of the records that matched."""
        return await self.inner.query(query, view, self._earlier(as_of))

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        """Return how many records matched."""
        return await self.inner.count(query, view, self._earlier(as_of))

    async def tally(self, tally: Tally, view: View, as_of: int | None = None) -> Counts:
        """Return the values or tags that records had, with their counts."""
        return await self.inner.tally(tally, view, self._earlier(as_of))

    async def search(self, request: SearchRequest) -> SearchPage:
        """Return the records that had some of the words, best first."""
        return await self.inner.search(msgspec.structs.replace(request, as_of=self._earlier(request.as_of)))

    async def search_vectors(
        self,
        vector: bytes,
        query: Query,
        view: View,
        limit: int,
        as_of: int | None = None,
        spec: VectorSpec | None = None,
    ) -> VectorPage:
        """Return the records that had the nearest vectors."""
        return await self.inner.search_vectors(vector, query, view, limit, self._earlier(as_of), spec)

    async def referrers(self, id: str, limit: int | None, view: View = STORED) -> list[Datum]:
        """Return the records that referred to an id and still do, as they were."""
        now = await self.inner.referrers(id, None, view)
        then = await self.get_many([each.id for each in now])
        return [each for each in then if each is not None and _holds(each.data, id)][:limit]

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """Return a record, its parent, the parent's parent and so on, as they were."""
        found: dict[str, Datum] = {}
        wanted: str | None = id
        while wanted is not None and wanted not in found and len(found) < limit:
            datum = await self.get(wanted)
            if datum is None:
                break
            found[wanted] = datum
            wanted = datum.parent_id
        return list(found.values())

    async def history(self, id: str, limit: int | None) -> list[Version]:
        """Return the versions of a record up to then, newest first."""
        kept = [each for each in await self.inner.history(id, None) if each.seq <= self.seq]
        return kept[:limit]

    async def changes(self, since: int, limit: int) -> list[Change]:
        """Return commits after a seq up to then, in order."""
        found = await self.inner.changes(since, limit)
        return [each for each in found if each.seq is not None and each.seq <= self.seq]

    async def stats(self) -> BackendStats:
        """Return the counts of then, with the size and the indexes of now."""
        if self._stats is None:
            self._stats = await self._count_all()
        return self._stats

    async def _count_all(self) -> BackendStats:
        now = await self.inner.stats()
        view = PartView(STORED)  # of what was pruned since, there is nothing to count
        total = await self.inner.count(Query(limit=None), view, self.seq)
        counts = {
            each.name: await self.inner.count(Query(schema=each.name, limit=None), view, self.seq)
            for each in now.schemas
            if each.name
        }
        counts[""] = total - sum(counts.values())
        schemas = [msgspec.structs.replace(each, records=counts[each.name]) for each in now.schemas]
        return msgspec.structs.replace(now, records=total, seq=self.seq, schemas=tuple(schemas))

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return at once: nothing comes any more."""
        return self.seq

    async def validate(self, guard: Guard, view: View) -> int:
        """Return the commit: nothing that was read then can change."""
        return self.seq

    def known_seq(self) -> int | None:
        """Return the commit."""
        return self.seq

    async def last_seq(self) -> int:
        """Return the commit."""
        return self.seq

    async def seq_at(self, moment: datetime) -> int:
        """Return the newest seq committed at or before a time, and up to then."""
        return min(self.seq, await self.inner.seq_at(moment))


def refuse_change(seq: int) -> Denied:
    """Return the error of a change that was asked for in the past."""
    return Denied(
        f"this handle reads the store as of commit {seq}, where nothing can be changed",
        hint="change it in the present",
        seq=seq,
    )


async def find_past(backend: Backend, seq: int) -> Past:
    """Return the past of a store at a commit, or at its newest one if there is none of that number."""
    seq = min(seq, await backend.last_seq())
    try:
        following = [] if seq < 1 else await backend.changes(seq - 1, 1)
    except HistoryGone:
        following = await backend.changes(seq, 1)  # it is the last one that was pruned, or raises again
    at = following[0].at if following else clock.now()
    if following and following[0].seq != seq:
        at -= timedelta(microseconds=1)  # the commit itself is not shown: the one after it is later
    return Past(backend, seq, clock.EPOCH if seq < 1 else at)


def _holds(value: Any, id: str) -> bool:
    """Return whether an id is somewhere among some values."""
    if isinstance(value, dict):
        return any(_holds(each, id) for each in value.values())
    return any(_holds(each, id) for each in value) if isinstance(value, list | tuple) else value == id
