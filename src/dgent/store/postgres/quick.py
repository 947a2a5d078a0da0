"""Planning from what is cached, and reading in one round trip that tells whether the cache still holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from dgent.model.query import Query
from dgent.store import select
from dgent.store.backend import Page, View
from dgent.store.kernel import Scan
from dgent.store.postgres.bridge import run, wait
from dgent.store.postgres.reading import Catalogs, PostgresReading
from dgent.store.postgres.sql import Texts
from dgent.store.row import Row

Fetch: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs one statement that reads."""


class _Outdated(Exception):
    """What was cached is no longer so; plan again."""


class _NotQuick(Exception):
    """The plan has to weigh one index against another, so none gives exactly the rows."""


async def page(
    fetch: Fetch, texts: Texts, catalogs: Catalogs, query: Query, view: View, epoch: bytes
) -> Page | None:
    """A page in one round trip, if an index gives exactly its rows; None when it takes more."""

    def work() -> Page | None:
        reading = _QuickReading(fetch, texts, catalogs)
        return select.query(reading, query, view, None, epoch, only_short=True)

    for _ in range(2):
        try:
            return await run(work)
        except _Outdated:
            continue
        except _NotQuick:
            break
    return None


class _QuickReading(PostgresReading):
    """Reads that each see their own moment; only good for a plan of a single scan."""

    def __init__(self, fetch: Fetch, texts: Texts, catalogs: Catalogs) -> None:
        super().__init__(None, texts, catalogs)
        self._one = fetch
        self._minds_lag = False
        if self.catalog.version < 0:
            self.refresh()

    def _all(self, sql: str, *values: Any) -> list[Any]:
        found: list[Any] = wait(self._one(sql, *values))
        return found

    def size(self, scan: Scan, cap: int) -> int:
        raise _NotQuick

    def skip(self, scan: Scan, descending: bool, count: int) -> Scan | None:
        raise _NotQuick

    def size_ids(self, prefix: str, cap: int) -> int:
        raise _NotQuick

    def lagging(self, schema: int) -> list[Row]:
        """Believed to be none; `fetch` finds out."""
        self._minds_lag = True
        return []

    def fetch(self, scan: Scan, descending: bool, content: bool, limit: int) -> Sequence[tuple[Any, ...]]:
        found = self._all(*self.fetching(scan, descending, content, limit))
        version, lag, *_ = found[0]
        if version != self.catalog.version:
            self.refresh()  # for whoever plans next
            raise _Outdated
        if lag and self._minds_lag:
            raise _Outdated
        return [] if found[0][2] is None else [row[2:] for row in found]
