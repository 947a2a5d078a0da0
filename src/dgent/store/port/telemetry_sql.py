"""The statements over stored events, the same on SQLite and Postgres.

Both take `$1`, `$2` and so on, as long as each first appears in this order. Names of columns come from fixed
tables, never from callers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dgent import clock
from dgent.ids import check_id
from dgent.store.port.telemetry import (
    BUCKET_BITS,
    BUCKETED,
    COLUMNS,
    DAY_US,
    FIELDS,
    FILTERS,
    OVERHEAD_BYTES,
    Column,
    Retention,
    TelemetryEvent,
    TelemetryFilter,
    TelemetryPage,
    TelemetryStats,
    Usage,
    check_columns,
    check_filter,
    check_retention,
    event_of,
    usage_of,
)

PRUNED_AT_ONCE = 5000  # events that one transaction drops, so that an append beside it waits for little

_SELECTED = ", ".join(f"e.{name}" for name in FIELDS)
_BUCKETS = (
    "WITH RECURSIVE b(x, z) AS (SELECT (SELECT min(n) FROM {t}) >> {bits}, (SELECT max(n) FROM {t}) >> {bits}"
    " UNION ALL SELECT x + 1, z FROM b WHERE x < z) "
)


class TelemetrySQL:
    """The statements over one table; `lookup` joins its rows of one bucket, by one column, as `e`."""

    def __init__(self, table: str, lookup: str) -> None:
        self.table = table
        self._lookup = lookup
        size = f"length(data) + {OVERHEAD_BYTES}"
        self.page = f"SELECT e.n, {_SELECTED} FROM {table} e WHERE e.n > $1 ORDER BY e.n LIMIT $2"
        self.count = f"SELECT count(*) FROM {table}"
        self.count_kind = f"{self.count} WHERE kind = $1"
        self.ages = f"SELECT (SELECT min(at) FROM {table}), (SELECT max(at) FROM {table})"
        self.size = f"SELECT coalesce(sum({size}), 0) FROM {table}"
        some = f"SELECT n FROM {table} WHERE {{}} < $1 ORDER BY {{}} LIMIT {PRUNED_AT_ONCE}"
        self.drop_old = f"DELETE FROM {table} WHERE n IN ({some.format('at', 'at')})"
        self.drop_first = f"DELETE FROM {table} WHERE n IN ({some.format('n', 'n')})"
        # The newest that do not fit, with all that came before them, are beyond the size.
        self.beyond = (
            f"SELECT max(n) FROM (SELECT n, sum({size}) OVER (ORDER BY n DESC) AS total FROM {table}) AS sums"
            " WHERE total > $1"
        )
        self.count_prunable = f"SELECT count(*) FROM {table} WHERE at < $1 OR n <= $2"

    def select(self, asked: TelemetryFilter, limit: int) -> tuple[str, list[Any]]:
        """Return the statement of a query, and its values."""
        source, conditions, values = self._where(asked)
        values.append(limit)
        sql = f"{source}{conditions} ORDER BY e.at DESC, e.n DESC LIMIT ${len(values)}"
        return sql.replace("{selected}", _SELECTED), values

    def usage(self, by: Sequence[Column], asked: TelemetryFilter) -> tuple[str, list[Any]]:
        """Return the statement of the sums of each group, and its values."""
        source, conditions, values = self._where(asked)
        counted = "(e.model IS NOT NULL OR e.tool IS NOT NULL)"
        conditions += f" AND {counted}" if conditions else f" WHERE {counted}"
        grouped = ", ".join(f"e.at / {DAY_US}" if name == "day" else f"e.{name}" for name in by)
        sums = "count(*), sum(e.input), sum(e.output), sum(e.cost)"
        sql = source.replace("{selected}", f"{grouped}, {sums}" if by else sums) + conditions
        if by:
            places = ", ".join(str(place) for place in range(1, len(by) + 1))
            sql += f" GROUP BY {places} ORDER BY {places}"
        return sql, values

    def find(self, column: str) -> str:
        """Return the statement that gives the places of the events with a value in a bucketed column."""
        return f"{self._buckets()}SELECT e.n FROM {self._join(column)}"

    def _buckets(self) -> str:
        return _BUCKETS.format(t=self.table, bits=BUCKET_BITS)

    def _join(self, column: str) -> str:
        return self._lookup.format(t=self.table, column=column, bits=BUCKET_BITS)

    def _where(self, asked: TelemetryFilter) -> tuple[str, str, list[Any]]:
        """Return where the rows come from, the conditions on them, and the values of both."""
        wanted = {
            column: value for field, column in FILTERS.items() if (value := getattr(asked, field)) is not None
        }
        values: list[Any] = []
        source = f"SELECT {{selected}} FROM {self.table} e"
        for column in BUCKETED:
            if column in wanted:
                values.append(wanted.pop(column))
                source = f"{self._buckets()}SELECT {{selected}} FROM {self._join(column)}"
                break
        parts = []
        for column, value in wanted.items():
            values.append(value)
            parts.append(f"e.{column} = ${len(values)}")
        for sign, moment in ((">=", asked.since), ("<", asked.until)):
            if moment is not None:
                values.append(moment)
                parts.append(f"e.at {sign} ${len(values)}")
        return source, f" WHERE {' AND '.join(parts)}" if parts else "", values


class SQLTelemetry(ABC):
    """The reads of a telemetry store, which are statements."""

    sql: TelemetrySQL
    retention: Retention
    _closed = False

    @property
    @abstractmethod
    def place(self) -> str:
        """The place as text without secrets."""

    @abstractmethod
    async def _size_bytes(self) -> int:
        """Return how much room the events take."""

    @abstractmethod
    async def _drop(self, rule: Retention) -> int:
        """Drop the events that a rule does not keep, some at a time; return how many."""

    @abstractmethod
    async def _release(self) -> None:
        """Finish what was begun, and release files and connections."""

    @abstractmethod
    async def _fetch(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of a statement that reads."""

    async def query(
        self,
        span_id: str | None = None,
        trace: str | None = None,
        kind: str | None = None,
        since: datetime | str | None = None,
        limit: int = 100,
        *,
        until: datetime | str | None = None,
        datum_id: str | None = None,
        instance_id: str | None = None,
        project_hash: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        tool: str | None = None,
    ) -> list[TelemetryEvent]:
        """Return the newest events that meet all conditions; `until` is not included."""
        asked = check_filter(
            limit,
            span_id=span_id,
            trace=trace,
            kind=kind,
            since=since,
            until=until,
            datum_id=datum_id,
            instance_id=instance_id,
            project_hash=project_hash,
            agent=agent,
            model=model,
            tool=tool,
        )
        sql, values = self.sql.select(asked, limit)
        return [event_of(row) for row in await self._fetch(sql, values)]

    async def usage(
        self,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        by: Sequence[Column] = COLUMNS,
        *,
        agent: str | None = None,
        project_hash: str | None = None,
    ) -> list[Usage]:
        """Return calls, tokens and cost of the events with a model or a tool, oldest day first."""
        columns = check_columns(by)
        asked = check_filter(1, since=since, until=until, agent=agent, project_hash=project_hash)
        sql, values = self.sql.usage(columns, asked)
        return [usage_of(columns, row) for row in await self._fetch(sql, values) if row[-4]]

    async def count(self, kind: str | None = None) -> int:
        """Return the number of events."""
        sql, values = (
            (self.sql.count, []) if kind is None else (self.sql.count_kind, [check_id(kind, "kind")])
        )
        return int((await self._fetch(sql, values))[0][0])

    async def scan(self, after: int = 0, limit: int = 1000) -> TelemetryPage:
        """Return the next events in the order of their arrival, for copies."""
        rows = await self._fetch(self.sql.page, (after, limit))
        return TelemetryPage([event_of(row[1:]) for row in rows], rows[-1][0] if rows else after)

    async def stats(self) -> TelemetryStats:
        """Return the size and the age of the store."""
        ages = (await self._fetch(self.sql.ages, ()))[0]
        oldest, newest = (None if at is None else clock.from_us(at) for at in ages)
        return TelemetryStats(self.place, await self.count(), await self._size_bytes(), oldest, newest)

    async def prune(
        self,
        older_than_days: float | None = None,
        max_bytes: int | None = None,
        *,
        dry_run: bool = False,
    ) -> int:
        """Drop what is older, and then the first to arrive beyond a size; without both, the store's rule."""
        rule = check_retention(older_than_days, max_bytes, self.retention)
        if not dry_run:
            return await self._drop(rule)
        cutoff, beyond = rule.cutoff(), await self._find_beyond(rule)
        values = (-(2**62) if cutoff is None else cutoff, 0 if beyond is None else beyond)
        return int((await self._fetch(self.sql.count_prunable, values))[0][0])

    async def _find_beyond(self, rule: Retention) -> int | None:
        """Return the last to arrive that does not fit into the size of a rule; None where all do."""
        if rule.max_bytes is None or (await self._fetch(self.sql.size, ()))[0][0] <= rule.max_bytes:
            return None
        found: int | None = (await self._fetch(self.sql.beyond, (rule.max_bytes,)))[0][0]
        return found

    async def close(self) -> None:
        """Finish what was begun, and release the store."""
        self._closed = True
        await self._release()
