"""The telemetry port: events of agents, kept beside the memory so that their load never reaches it.

An event is what happened at one time: a span of a trace, a log line, a heartbeat. It is stored once by its
id, is never changed, and is dropped by a retention rule or by `forget`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from math import isfinite
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from dgent import clock, codec
from dgent.errors import Corrupt, InputError
from dgent.ids import check_id, check_name, new_id

MAX_DATA_BYTES = 1 << 20
MAX_LIMIT = 100_000
OVERHEAD_BYTES = 200  # of an event beside its data, with its share of the indexes
DAY_US = 24 * 3600 * 1_000_000

Column: TypeAlias = Literal["day", "agent", "model", "tool"]
COLUMNS: tuple[Column, ...] = ("day", "agent", "model", "tool")

# What these spans count was counted by the calls inside them.
_SUMS = ("invoke_agent", "create_agent", "invoke_workflow")


class TelemetryEvent(msgspec.Struct, frozen=True):
    """One event. `timestamp` is aware, and kept in UTC; text in ISO form with a zone is read.

    `datum_id` names the record that the event is about: forgetting the record erases the event.
    `agent` is read from `gen_ai.agent.name` in `data` where it is left out.
    """

    kind: str
    timestamp: datetime = msgspec.field(default_factory=clock.now)
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    instance_id: str | None = None
    project_hash: str | None = None
    span_id: str | None = None
    trace_id: str | None = None
    parent_id: str | None = None
    agent: str | None = None
    datum_id: str | None = None
    id: str = msgspec.field(default_factory=new_id)

    def __post_init__(self) -> None:
        """Refuse a time without a zone, and keep any other in UTC."""
        if type(self.timestamp) is not datetime or self.timestamp.tzinfo is not UTC:
            msgspec.structs.force_setattr(self, "timestamp", check_time(self.timestamp, "timestamp"))


class Usage(msgspec.Struct, frozen=True):
    """Calls, tokens and cost of one group of events; a column that was not grouped by is None."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    day: date | None = None
    agent: str | None = None
    model: str | None = None
    tool: str | None = None


class TelemetryStats(msgspec.Struct, frozen=True):
    """The size and the age of a telemetry store."""

    place: str
    events: int
    size_bytes: int
    oldest: datetime | None = None
    newest: datetime | None = None


class TelemetryPage(NamedTuple):
    """Events in the order in which they arrived, and the place to go on from."""

    events: list[TelemetryEvent]
    after: int


class Retention(msgspec.Struct, frozen=True):
    """The rule by which events are dropped: older than so many days, or beyond so many bytes in all."""

    keep_days: float | None = 90.0
    max_bytes: int | None = 1 << 30

    def __post_init__(self) -> None:
        """Refuse numbers that no rule can have."""
        for name in ("keep_days", "max_bytes"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value >= 0):
                raise InputError(f"{name} must be 0 or more, not {value!r}", field=name)

    def cutoff(self) -> int | None:
        """Return the time, in microseconds, before which events are too old."""
        return None if self.keep_days is None else clock.now_us() - int(self.keep_days * DAY_US)


class TelemetryFilter(NamedTuple):
    """The conditions of a query, checked; None means any. Times are in microseconds."""

    span_id: str | None
    trace: str | None
    datum_id: str | None
    kind: str | None
    instance_id: str | None
    project_hash: str | None
    agent: str | None
    model: str | None
    tool: str | None
    since: int | None
    until: int | None


@runtime_checkable
class ITelemetryStore(Protocol):
    """A place for events, apart from the memory."""

    async def exists(self) -> bool:
        """Return whether there may be events here; makes nothing."""
        ...

    async def append(self, events: Iterable[TelemetryEvent]) -> int:
        """Store events, all or none; return how many are new. An id that is stored is left as it is."""
        ...

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
        ...

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
        ...

    async def count(self, kind: str | None = None) -> int:
        """Return the number of events."""
        ...

    async def prune(
        self,
        older_than_days: float | None = None,
        max_bytes: int | None = None,
        *,
        dry_run: bool = False,
    ) -> int:
        """Drop what is older, and then the first to arrive beyond a size; without both, the store's rule."""
        ...

    async def forget(self, datum_ids: Sequence[str]) -> int:
        """Erase the events of records, without a trace in the files of the store; return how many."""
        ...

    async def scan(self, after: int = 0, limit: int = 1000) -> TelemetryPage:
        """Return the next events in the order of their arrival, for copies."""
        ...

    async def stats(self) -> TelemetryStats:
        """Return the size and the age of the store."""
        ...

    async def check(self, deep: bool = True) -> list[str]:
        """Return what is wrong with the store; `deep` reads every event."""
        ...

    async def close(self) -> None:
        """Finish what was begun, and release the place."""
        ...


# -- checks -------------------------------------------------------------------------------


def check_time(value: object, field: str) -> datetime:
    """Return a time in UTC; InputError for text that is not a time, and for a time without a zone."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InputError(
                f"{field} is {value!r}, which is not a time",
                hint="write it like 2026-11-17T08:30:00Z",
                field=field,
            ) from None
    if not isinstance(value, datetime):
        raise InputError(f"{field} must be a datetime, not {type(value).__name__}", field=field)
    if value.tzinfo is None or value.utcoffset() is None:
        raise InputError(
            f"{field} {value.isoformat()} has no time zone",
            hint="use datetime.now(UTC), or end the text with Z",
            field=field,
        )
    return clock.from_us(clock.to_us(value))


def check_filter(limit: int, **wanted: Any) -> TelemetryFilter:
    """Return the conditions of a query; InputError names the one that is wrong."""
    if type(limit) is not int or not 0 < limit <= MAX_LIMIT:
        raise InputError(f"limit must be from 1 to {MAX_LIMIT}, not {limit!r}", field="limit")
    for name in ("since", "until"):
        if wanted.get(name) is not None:
            wanted[name] = clock.to_us(check_time(wanted[name], name))
    for name, value in wanted.items():
        if value is not None and name not in ("since", "until"):
            check_id(value, name)
    return TelemetryFilter(**{name: wanted.get(name) for name in TelemetryFilter._fields})


def check_columns(by: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns to group by, in their own order."""
    if isinstance(by, str) or not set(by) <= set(COLUMNS):
        raise InputError(f"by is {by!r}; it lists some of {', '.join(COLUMNS)}", field="by")
    return tuple(name for name in COLUMNS if name in by)


def check_retention(days: float | None, size: int | None, default: Retention) -> Retention:
    """Return the rule for one prune: the given one, or that of the store."""
    return default if days is None and size is None else Retention(days, size)


# -- rows ---------------------------------------------------------------------------------

FIELDS = (
    *("id", "at", "kind", "trace", "span", "parent", "instance", "project", "datum"),
    *("agent", "model", "tool", "input", "output", "cost", "data"),
)
"""The columns of a stored event, in the order of a row."""

FILTERS = {
    "span_id": "span",
    "trace": "trace",
    "datum_id": "datum",
    "kind": "kind",
    "instance_id": "instance",
    "project_hash": "project",
    "agent": "agent",
    "model": "model",
    "tool": "tool",
}
"""The column of each condition that asks for one value."""

BUCKETED = ("span", "trace", "datum")
"""Columns of random values. Their indexes begin with the number of a bucket of arrivals, so that a batch
touches a few pages of each index however many events there are; a look-up asks every bucket."""

BUCKET_BITS = 14

Row: TypeAlias = tuple[Any, ...]


def rows_of(events: Iterable[TelemetryEvent]) -> list[Row]:
    """Return the rows of events; InputError names the event and the field that cannot be stored."""
    if not isinstance(events, Iterable):
        raise InputError(f"append takes events, not {type(events).__name__}", field="events")
    rows = []
    for index, event in enumerate(events):
        if type(event) is not TelemetryEvent:
            raise InputError(f"events[{index}] is a {type(event).__name__}, not a TelemetryEvent")
        try:
            rows.append(_row(event))
        except InputError as error:
            error.message = f"events[{index}]: {error.message}"
            error.args = (error.message,)
            raise
    return rows


def _row(event: TelemetryEvent) -> Row:
    data = event.data
    if type(data) is not dict:
        raise InputError(f"data must be a dict, not {type(data).__name__}", field="data")
    body = codec.encode(codec.plain(data))
    if len(body) > MAX_DATA_BYTES:
        raise InputError(f"data is {len(body)} bytes; at most {MAX_DATA_BYTES} are stored", field="data")
    for field in ("span_id", "trace_id", "parent_id", "instance_id", "project_hash", "agent"):
        value = getattr(event, field)
        if value is not None:
            check_name(value, field)
    if event.datum_id is not None:
        check_id(event.datum_id, "datum_id")
    return (
        check_name(event.id, "id"),
        (event.timestamp - clock.EPOCH) // _MICROSECOND,
        check_name(event.kind, "kind"),
        event.trace_id,
        event.span_id,
        event.parent_id,
        event.instance_id,
        event.project_hash,
        event.datum_id,
        *_usage(event.agent, data),
        body,
    )


_MICROSECOND = timedelta(microseconds=1)
_NO_USAGE = (None, None, None, None, None)


def _usage(agent: str | None, data: dict[str, Any]) -> tuple[Any, ...]:
    """Return agent, model, tool, tokens and cost, by the names that OpenTelemetry has for them."""
    get = data.get
    agent = agent or _name(get("gen_ai.agent.name")) or _name(get("gen_ai.agent.id"))
    operation = get("gen_ai.operation.name")
    if operation in _SUMS:
        return (agent, *_NO_USAGE)
    model = _name(get("gen_ai.response.model")) or _name(get("gen_ai.request.model"))
    tool = _name(get("gen_ai.tool.name"))
    if model is None and tool is None:
        return (agent, *_NO_USAGE)
    received, sent = get("gen_ai.usage.input_tokens"), get("gen_ai.usage.output_tokens")
    cost = get("gen_ai.usage.cost")
    return (
        agent,
        model,
        tool,
        _tokens(get("gen_ai.usage.prompt_tokens") if received is None else received),
        _tokens(get("gen_ai.usage.completion_tokens") if sent is None else sent),
        float(cost) if isinstance(cost, int | float) else None,
    )


def _name(value: object) -> str | None:
    """Return an attribute that names something; None when it cannot be a column."""
    return value[:128] if isinstance(value, str) and value and "\0" not in value else None


def _tokens(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**47 else None


def event_of(row: Sequence[Any]) -> TelemetryEvent:
    """Return the event of a row; Corrupt when it is not what was written."""
    id, at, kind, trace, span, parent, instance, project, datum, agent, *_, body = row
    try:
        data = codec.decode(bytes(body))
        if type(data) is not dict:
            raise Corrupt("its data is not a map")
        moment = clock.from_us(at)
    except (Corrupt, InputError, TypeError) as error:
        raise Corrupt(f"the telemetry event {id!r:.80} is damaged: {error}") from None
    return TelemetryEvent(kind, moment, data, instance, project, span, trace, parent, agent, datum, id)


def usage_of(by: Sequence[Column], row: Sequence[Any]) -> Usage:
    """Return the usage of a row: the columns that it was grouped by, and then the four sums."""
    *group, calls, received, sent, cost = row
    named: dict[str, Any] = dict(zip(by, group, strict=True))
    if "day" in named:
        named["day"] = clock.from_us(named["day"] * DAY_US).date()
    return Usage(int(calls), int(received or 0), int(sent or 0), float(cost or 0.0), **named)
