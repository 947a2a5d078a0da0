"""Writing: one after another, 64 tasks at once, and 100,000 in one commit."""

from __future__ import annotations

import asyncio
from itertools import islice
from time import perf_counter
from typing import Any

from bench.measure import Block, Draw, Row, awaits, calls, compared, interleave, say
from bench.plan import Plan
from bench.raw import Raw
from bench.record import AUTHOR, SCHEMA, Note, Sample, datums, samples
from bench.stores import Stores, check_same, open_store
from dgent import Datum, Universe

TASKS = 64
_LIMITS = {"full": 1.6, "relaxed": 2.0}


async def one_by_one(plan: Plan, stores: Stores) -> list[Row]:
    """Each put waits for the one before it."""
    rows = []
    base = await stores.sized(plan.sizes[0])
    for durability, limit in _LIMITS.items():
        say(f"  put, one after another, {durability}")
        raw_path, path = stores.copy(base), stores.copy(base)
        await _check_sides(raw_path, path, durability)
        raw = Raw(raw_path, durability)
        async with open_store(path, durability) as universe:
            systems = {
                "raw": calls(raw.put, draw_samples(plan.puts)),
                "dgent": remember_block(universe, plan.puts),
                "datum": awaits(universe.put, _draw_datums(plan.puts)),
            }
            times = await interleave(systems, plan.rounds)
        raw.close()
        rows.append(compared(f"put, one after another, {durability}", times, "dgent", "raw", limit))
        rows.append(compared(f"  the same with u.put(Datum), {durability}", times, "datum", "raw"))
    return rows


async def together(plan: Plan, stores: Stores) -> list[Row]:
    """64 tasks put at the same time; the raw side commits 64 rows in one transaction."""
    rows = []
    base = await stores.sized(plan.sizes[0])
    for durability in _LIMITS:
        say(f"  put, {TASKS} tasks at once, {durability}")
        raw = Raw(stores.copy(base), durability)
        async with open_store(stores.copy(base), durability) as universe:

            async def by_tasks(group: list[Sample], universe: Universe = universe) -> None:
                await asyncio.gather(*[universe.remember(value, tags=tags) for value, tags in group])

            systems = {
                "raw": per_task(calls(raw.put_together, draw_groups(plan.batches))),
                "dgent": per_task(awaits(by_tasks, draw_groups(plan.batches))),
            }
            times = await interleave(systems, plan.rounds)
        raw.close()
        rows.append(compared(f"put, {TASKS} tasks at once, {durability}", times, "dgent", "raw", 1.6))
    return rows


async def many(plan: Plan, stores: Stores) -> list[Row]:
    """All in one commit, into a store of the smallest size, a fresh copy each time."""
    base = await stores.sized(plan.sizes[0])
    batch = datums(7, plan.many, plan.sizes[-1])
    say(f"  put_many, {plan.many:,}")

    async def by_raw() -> float:
        raw = Raw(stores.copy(base), "full")
        began = perf_counter()
        raw.put_many(batch)
        took = perf_counter() - began
        raw.close()
        return took / plan.many * 1e6

    async def by_dgent() -> float:
        async with open_store(stores.copy(base), "full") as universe:
            await universe.schemas()  # declared before the clock starts
            began = perf_counter()
            await universe.put_many(batch)
            return (perf_counter() - began) / plan.many * 1e6

    times = await interleave({"raw": by_raw, "dgent": by_dgent}, plan.many_rounds, warm=0)
    return [compared(f"put_many, {plan.many:,}", times, "dgent", "raw", 3.0)]


def remember_block(universe: Universe, count: int) -> Block:
    """Typed puts, one after another."""
    return awaits(lambda value, tags: universe.remember(value, tags=tags), draw_samples(count))


def draw_samples(count: int, seed: int = 1) -> Draw:
    """The next samples; the same ones for all who start with the same seed."""
    source = samples(seed)
    return lambda: list(islice(source, count))


def _draw_datums(count: int) -> Draw:
    source = samples(1)

    def draw() -> list[tuple[Datum]]:
        return [
            (
                Datum(
                    data=SCHEMA.encode(value), tags=tags, author=AUTHOR, schema=SCHEMA.name, schema_version=1
                ),
            )
            for value, tags in islice(source, count)
        ]

    return draw


def draw_groups(batches: int) -> Draw:
    """The next groups of a sample for each task."""
    source = samples(2)
    return lambda: [(list(islice(source, TASKS)),) for _ in range(batches)]


def per_task(block: Block) -> Block:
    """The same block, counted by tasks instead of by groups."""

    async def divided() -> float:
        return await block() / TASKS

    return divided


async def _check_sides(raw_path: str, path: str, durability: str) -> None:
    value, tags = next(samples(0))
    raw = Raw(raw_path, durability)
    raw_id = raw.put(value, tags)
    raw.close()
    async with open_store(path, durability) as universe:
        stored = await universe.remember(value, tags=tags)
    check_same(raw_path, raw_id, path, stored.id)
    async with open_store(raw_path, durability) as universe:
        found: Any = await universe.get(raw_id)
        assert isinstance(found.value, Note) and found.value == value, "dgent reads what the raw side wrote"
