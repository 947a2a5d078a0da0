"""Planning from what is cached, and reading in one round trip that tells whether the cache still holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dgent.store.kernel import Scan
from dgent.store.postgres.bridge import wait
from dgent.store.postgres.reading import Catalogs, PostgresReading
from dgent.store.postgres.sql import Texts
from dgent.store.row import Row


class Outdated(Exception):
    """What was cached is no longer so; plan again."""


class QuickReading(PostgresReading):
    """Reads that each see their own moment; only good for a plan of a single scan."""

    def __init__(self, fetch: Callable[..., Awaitable[Any]], texts: Texts, catalogs: Catalogs) -> None:
        super().__init__(None, texts, catalogs)
        self._one = fetch
        self._minds_lag = False
        if self.catalog.version < 0:
            self.refresh()

    def _all(self, sql: str, *values: Any) -> list[Any]:
        found: list[Any] = wait(self._one(sql, *values))
        return found

    def lagging(self, schema: int) -> list[Row]:
        """Believed to be none; `fetch` finds out."""
        self._minds_lag = True
        return []

    def fetch(self, scan: Scan, descending: bool, content: bool, limit: int) -> Sequence[tuple[Any, ...]]:
        found = self._all(*self.fetching(scan, descending, content, limit))
        version, lag, *_ = found[0]
        if version != self.catalog.version:
            self.refresh()  # for whoever plans next
            raise Outdated
        if lag and self._minds_lag:
            raise Outdated
        return [] if found[0][2] is None else [row[2:] for row in found]
