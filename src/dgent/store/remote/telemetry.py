"""Telemetry of a store on a server: what its verbs can do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from dgent import clock
from dgent.errors import Unsupported
from dgent.store.port.telemetry import (
    COLUMNS,
    Column,
    ITelemetryStore,
    TelemetryEvent,
    TelemetryPage,
    TelemetryStats,
    Usage,
)

if TYPE_CHECKING:
    from dgent.store.remote.backend import RemoteBackend


class _Events(msgspec.Struct, frozen=True):
    items: list[TelemetryEvent]


class _Usage(msgspec.Struct, frozen=True):
    items: list[Usage]


class _Pruned(msgspec.Struct, frozen=True):
    dropped: int


class RemoteTelemetry(ITelemetryStore):
    """Events that a server keeps, as the agent of a token may see them: they are asked for and pruned.

    Programs append events where the store is.
    """

    def __init__(self, backend: RemoteBackend) -> None:
        self._backend = backend

    async def exists(self) -> bool:
        """Return whether there may be events here; the server knows."""
        return True

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
        if instance_id is not None:
            self._lack("a query by instance")
        given = {
            "span": span_id,
            "trace": trace,
            "kind": kind,
            "since": _text(since),
            "until": _text(until),
            "agent": agent,
            "model": model,
            "tool": tool,
            "datum": datum_id,
            "project": project_hash,
            "limit": limit,
        }
        found: _Events = await self._backend.call_verb("telemetry.query", given, _Events, reads=True)
        return found.items

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
        given: dict[str, Any] = {"since": _text(since), "until": _text(until), "by": list(by)}
        given |= {"agent": agent, "project": project_hash}
        found: _Usage = await self._backend.call_verb("telemetry.usage", given, _Usage, reads=True)
        return found.items

    async def prune(
        self, older_than_days: float | None = None, max_bytes: int | None = None, *, dry_run: bool = False
    ) -> int:
        """Drop what is older, and then the first to arrive beyond a size; without both, the store's rule."""
        given = {"days": older_than_days, "max_bytes": max_bytes, "dry_run": dry_run}
        found: _Pruned = await self._backend.call_verb("telemetry.prune", given, _Pruned, reads=False)
        return found.dropped

    async def append(self, events: Iterable[TelemetryEvent]) -> int:
        """Refuse: a server takes no events."""
        self._lack("appending events")

    async def count(self, kind: str | None = None) -> int:
        """Refuse: a server does not say."""
        self._lack("counting events")

    async def forget(self, datum_ids: Sequence[str]) -> int:
        """Refuse: a server erases the events of a record when that is forgotten."""
        self._lack("erasing events")

    async def scan(self, after: int = 0, limit: int = 1000) -> TelemetryPage:
        """Refuse: copies are made where the events are."""
        self._lack("copying events")

    async def stats(self) -> TelemetryStats:
        """Refuse: a server does not say."""
        self._lack("measuring events")

    async def check(self, deep: bool = True) -> list[str]:
        """Refuse: the doctor looks at events where they are."""
        self._lack("checking events")

    async def close(self) -> None:
        """Leave the connections to the store."""

    def _lack(self, what: str) -> NoReturn:
        raise Unsupported(
            f"{what} does not work over HTTP",
            hint="do it where the store is; query, usage and prune work",
        )


def _text(moment: datetime | str | None) -> str | None:
    return clock.text(moment) if isinstance(moment, datetime) else moment
