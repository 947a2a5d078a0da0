"""Copy telemetry from one store to another, whatever their engines."""

from __future__ import annotations

from dgent.errors import Denied, Unsupported
from dgent.store.port.telemetry import ITelemetryStore
from dgent.store.upkeep import Finding
from dgent.universe.telemetry import telemetry_of
from dgent.universe.universe import Universe

BATCH = 2000


async def find_telemetry(universe: Universe) -> ITelemetryStore | None:
    """Return the telemetry of a store; None where there is none, or none that this handle may use."""
    try:
        found = telemetry_of(universe)
    except (Denied, Unsupported):
        return None
    return found if await found.exists() else None


async def copy_events(source: Universe, target: Universe, after: int) -> int:
    """Copy the events that arrived after a place; return the place of the last one.

    An event that is there already stays as it is, so a copy that was interrupted is simply made again.
    """
    events = await find_telemetry(source)
    return after if events is None else await send_events(events, telemetry_of(target), after)


async def send_events(source: ITelemetryStore, target: ITelemetryStore, after: int = 0) -> int:
    """Append the events of a store to another one, in the order of their arrival."""
    while True:
        page = await source.scan(after, BATCH)
        if not page.events:
            return after
        await target.append(page.events)
        after = page.after


async def inspect_telemetry(universe: Universe, deep: bool) -> list[Finding]:
    """Return the findings on the telemetry of a store; none where there is none."""
    found = await find_telemetry(universe)
    if found is None:
        return []
    wrong = await found.check(deep)
    hint = "move the file away: a new one is made by the next event"
    if wrong:
        return [Finding("problem", "telemetry", message, hint) for message in wrong]
    stats = await found.stats()
    noun = "event" if stats.events == 1 else "events"
    return [Finding("ok", "telemetry", f"{stats.events:,} {noun} in {stats.size_bytes:,} bytes")]
