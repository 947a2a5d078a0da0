"""Verbs for telemetry: find events, add up tokens and cost, drop what is old."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from dgent.errors import InputError
from dgent.store.port.telemetry import COLUMNS, ITelemetryStore, TelemetryEvent, Usage
from dgent.universe.telemetry import telemetry_for_caller
from dgent.verbs.context import Context
from dgent.verbs.data.record import DryRun
from dgent.verbs.parse import moment
from dgent.verbs.registry import Ask, Items, argument, option, verb

Since = Annotated[str | None, option("from this time on: 2026-01-31, or 2h, 3d, 1w ago")]
Until = Annotated[str | None, option("before this time")]
Agent = Annotated[
    str | None, option("only those of this agent; without full trust, they are always your own", name="of")
]
Project = Annotated[str | None, option("only those of the project with this hash")]


class FindEvents(Ask):
    """Input of `telemetry.query`."""

    span: Annotated[str | None, argument("the id of a span")] = None
    trace: Annotated[str | None, option("the id of a trace", short="t")] = None
    kind: Annotated[str | None, option("the kind of event, such as span", short="k")] = None
    since: Since = None
    until: Until = None
    agent: Agent = None
    model: Annotated[str | None, option("only calls of this model")] = None
    tool: Annotated[str | None, option("only calls of this tool")] = None
    datum: Annotated[str | None, option("only those about the record with this id")] = None
    project: Project = None
    limit: Annotated[int, option("at most so many", short="n")] = 50


@verb("telemetry.query", effect="read", errors=(InputError,))
async def query(context: Context, ask: FindEvents) -> Items[TelemetryEvent]:
    """Find telemetry events, the newest first."""
    found, own = await _find_store(context)
    if found is None:
        return Items([])
    return Items(
        await found.query(
            ask.span,
            ask.trace,
            ask.kind,
            _time(ask.since, "since"),
            ask.limit,
            until=_time(ask.until, "until"),
            datum_id=ask.datum,
            project_hash=ask.project,
            agent=own or ask.agent,
            model=ask.model,
            tool=ask.tool,
        )
    )


class SumUsage(Ask):
    """Input of `telemetry.usage`."""

    since: Since = "30d"
    until: Until = None
    by: Annotated[
        tuple[Literal["day", "agent", "model", "tool"], ...],
        option("a column to add up by; may be given more than once; without it, all of them", short="b"),
    ] = ()
    agent: Agent = None
    project: Project = None


class UsageTable(msgspec.Struct, frozen=True):
    """Calls, tokens and cost of agents, by the columns asked for, and all together."""

    by: tuple[str, ...]
    items: list[Usage]
    total: Usage


@verb("telemetry.usage", effect="read", errors=(InputError,))
async def usage(context: Context, ask: SumUsage) -> UsageTable:
    """Add up calls, tokens and cost of models and tools, by day and agent."""
    by = ask.by or COLUMNS
    found, own = await _find_store(context)
    items = []
    if found is not None:
        since, until = _time(ask.since, "since"), _time(ask.until, "until")
        items = await found.usage(since, until, by, agent=own or ask.agent, project_hash=ask.project)
    total = Usage(
        sum(each.calls for each in items),
        sum(each.input_tokens for each in items),
        sum(each.output_tokens for each in items),
        sum(each.cost for each in items),
    )
    return UsageTable(tuple(by), items, total)


class PruneEvents(Ask):
    """Input of `telemetry.prune`."""

    days: Annotated[
        int | None, option("drop events older than so many days; without days and bytes, as the settings say")
    ] = None
    max_bytes: Annotated[
        int | None, option("drop the first to arrive, until the rest has at most so many bytes", name="bytes")
    ] = None
    dry_run: DryRun = False


class PruneResult(msgspec.Struct, frozen=True):
    """The number of events that were dropped, and of those that are left."""

    dropped: int
    left: int
    dry_run: bool = False


@verb("telemetry.prune", effect="destroy", errors=(InputError,))
async def prune(context: Context, ask: PruneEvents) -> PruneResult:
    """Drop telemetry events by age and size."""
    found, _ = await _find_store(context)
    if found is None:
        return PruneResult(0, 0, ask.dry_run)
    dropped = await found.prune(ask.days, ask.max_bytes, dry_run=ask.dry_run)
    left = await found.count()
    return PruneResult(dropped, left - dropped if ask.dry_run else left, ask.dry_run)


async def _find_store(context: Context) -> tuple[ITelemetryStore | None, str | None]:
    """Return the telemetry of the store, None where nothing was ever written to it, and whose to read."""
    found, own = telemetry_for_caller(await context.universe())
    return (found if await found.exists() else None), own


def _time(text: str | None, field: str) -> datetime | None:
    return None if text is None else moment(text, field)
