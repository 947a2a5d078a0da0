"""Telemetry: appending events in batches, one trace among many, and puts while events arrive."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bench.measure import Block, Row, compared, cpu_of, interleave, say, timed, within
from bench.plan import Plan, size_text
from bench.stores import Stores
from dgent import Datum
from dgent import open as open_universe
from dgent.store.port.telemetry import ITelemetryStore, Retention, TelemetryEvent
from dgent.store.registry import telemetry_for

BATCH = 1_000
SPANS = 20  # of a trace
PER_S = 5_000  # events a second that arrive while others put; a busy agent makes a hundred
PUTS = 100
CALL = {"gen_ai.request.model": "m1", "gen_ai.usage.input_tokens": 900, "gen_ai.usage.output_tokens": 80}


def _events(count: int) -> list[TelemetryEvent]:
    """Spans of traces, every fourth a call of a model."""
    made, trace = [], ""
    for n in range(count):
        if n % SPANS == 0:
            trace = f"{random.getrandbits(128):032x}"
        data = {"name": "chat", "duration_us": 1234, **(CALL if n % 4 == 0 else {})}
        span = f"{random.getrandbits(64):016x}"
        made.append(TelemetryEvent("span", data=data, agent="scout", trace_id=trace, span_id=span))
    return made


async def telemetry(plan: Plan, stores: Stores) -> list[Row]:
    """In a store of the largest size."""
    most = plan.sizes[-1]
    say(f"  telemetry, {size_text(most)} events")
    store = telemetry_for(f"sqlite:///{stores.path('telemetry')}", Retention(None, None))
    traces = []
    try:
        for _ in range(most // BATCH):
            events = _events(BATCH)
            traces.append(str(events[0].trace_id))
            await store.append(events)
        times = await interleave({"append": _append(store), "trace": _find(store, traces)}, plan.rounds)
    finally:
        await store.close()
    times = cpu_of(times)  # of the processor, in all threads: the store has threads of its own
    # 50,000 events a second are 20 ms for a thousand.
    return [
        within(f"append {BATCH:,} events to {size_text(most)}, processor", times["append"], [], 20),
        within(f"find a trace among {size_text(most)}, processor", times["trace"], [], 5),
        await _puts_beside(plan, stores),
    ]


def _append(store: ITelemetryStore) -> Block:
    batch: list[TelemetryEvent] = []

    async def append() -> None:
        await store.append(batch)

    block = timed(append)

    async def fresh() -> float:
        batch[:] = _events(BATCH)
        return await block()

    return fresh


def _find(store: ITelemetryStore, traces: list[str]) -> Block:
    async def find() -> None:
        found = await store.query(trace=random.choice(traces))
        assert len(found) == SPANS

    return timed(find)


async def _puts_beside(plan: Plan, stores: Stores) -> Row:
    """Puts while events arrive, against puts alone."""
    async with open_universe(f"sqlite:///{stores.path('beside')}") as u:
        store = telemetry_for(f"sqlite:///{stores.path('events')}", Retention(None, None))

        async def put() -> None:
            for n in range(PUTS):
                await u.put(Datum(data={"n": n}))

        alone = timed(put)

        async def beside() -> float:
            async with _arriving(store.append):
                return await alone()

        try:
            times = await interleave({"beside": beside, "alone": alone}, plan.rounds)
        finally:
            await store.close()
    return compared(f"puts while {PER_S:,} events a second arrive", times, "beside", "alone", at_most=1.1)


@asynccontextmanager
async def _arriving(append: Callable[[list[TelemetryEvent]], Awaitable[int]]) -> AsyncIterator[None]:
    ready = _events(100 * BATCH // 10)

    async def arrive() -> None:
        for start in range(0, len(ready), BATCH // 10):
            await append(ready[start : start + BATCH // 10])
            await asyncio.sleep(BATCH / 10 / PER_S)

    task = asyncio.create_task(arrive())
    await asyncio.sleep(0.01)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
