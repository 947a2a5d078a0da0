"""Writing: one after another, 64 tasks at once, and 100,000 in one commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from bench.bare import Bare
from bench.langgraph import DEFAULTS, SAME, SKIPPED, Item, Peer, draw_items, items_of, open_peers
from bench.measure import Block, Draw, Row, Stopwatch, Times, awaits, calls, compared, interleave, say
from bench.plan import Plan
from bench.record import AUTHOR, SCHEMA, Sample, datums, samples
from bench.stores import Stores, open_store
from dgent import Datum, Universe

TASKS = 64
_ONE_BY_ONE = {"relaxed": 3.0, "full": 1.3}
_TOGETHER = 2.5
_MANY = 3.0

Put = Callable[[list[Sample]], Awaitable[Any]]


class Sides(NamedTuple):
    """All systems, each with a copy of the same number of records."""

    bare: Bare
    universe: Universe
    peers: dict[str, Peer]


@asynccontextmanager
async def open_sides(plan: Plan, stores: Stores, durability: str) -> AsyncIterator[Sides]:
    """All of them, in stores of the middle size."""
    size = plan.middle
    async with AsyncExitStack() as stack:
        bare = Bare(stores.copy(await stores.bare(size)), durability)
        stack.callback(bare.close)
        opened = open_store(stores.copy(await stores.sized(size)), durability)
        universe = await stack.enter_async_context(opened)
        await universe.schemas()  # declared before a clock starts
        yield Sides(bare, universe, await open_peers(stack, stores, size, durability))


async def one_by_one(plan: Plan, stores: Stores) -> list[Row]:
    """Each put waits for the one before it."""
    rows: list[Row] = []
    for durability, limit in _ONE_BY_ONE.items():
        say(f"  put, one after another, {durability}")
        async with open_sides(plan, stores, durability) as (bare, universe, peers):
            systems = {
                "bare": calls(bare.put, draw_samples(plan.stream)),
                "dgent": remember_block(universe, plan.stream),
                "datum": awaits(universe.put, _draw_datums(plan.stream)),
            }
            # A default put takes so long that fewer say as much.
            counts = {SAME: plan.stream, DEFAULTS: plan.stream // 4}
            systems |= {name: awaits(peer.put, draw_items(counts[name])) for name, peer in peers.items()}
            times = await interleave(systems, plan.peer_rounds)
        work = f"put, one after another, {durability}"
        rows += _against_all(work, times, limit, faster=2.5)
        rows.append(compared("  u.put(Datum) against the bare table", times, "datum", "bare"))
    return rows + SKIPPED


async def together(plan: Plan, stores: Stores) -> list[Row]:
    """64 tasks put at the same time; the bare table gets 64 rows in one transaction."""
    rows: list[Row] = []
    for durability in _ONE_BY_ONE:
        say(f"  put, {TASKS} tasks at once, {durability}")
        async with open_sides(plan, stores, durability) as (bare, universe, peers):
            systems = {
                "bare": calls(bare.put_together, draw_groups(plan.groups), TASKS),
                "dgent": awaits(by_tasks(universe), draw_groups(plan.groups), TASKS),
            }
            systems |= {
                name: awaits(peer.put_together, _draw_item_groups(plan.groups), TASKS)
                for name, peer in peers.items()
            }
            times = await interleave(systems, plan.peer_rounds)
        rows += _against_all(f"put, {TASKS} tasks at once, {durability}", times, _TOGETHER, faster=1)
    return rows + SKIPPED


async def many(plan: Plan, stores: Stores) -> list[Row]:
    """All at once, into a fresh copy each time."""
    batch = datums(7, plan.many, plan.sizes[-1])
    items = items_of(batch)
    say(f"  put_many, {plan.many:,}")

    def fresh(put: Callable[[Sides], Awaitable[object] | None]) -> Block:
        async def block() -> float:
            async with open_sides(plan, stores, "full") as sides:
                watch = Stopwatch()
                waiting = put(sides)
                if waiting is not None:
                    await waiting
                return watch.each(plan.many)

        return block

    systems = {
        "bare": fresh(lambda sides: sides.bare.put_many(batch)),
        "dgent": fresh(lambda sides: sides.universe.put_many(batch)),
    }
    if not SKIPPED:
        systems |= {name: fresh(partial(_put_many, name=name, items=items)) for name in (SAME, DEFAULTS)}
    times = await interleave(systems, plan.many_rounds, warm=0)
    return _against_all(f"put_many, {plan.many:,}, full", times, _MANY, faster=1) + SKIPPED


async def _put_many(sides: Sides, name: str, items: Sequence[Item]) -> None:
    await sides.peers[name].put_many(items)


def _against_all(work: str, times: Times, limit: float, faster: float) -> list[Row]:
    """Against the bare table, and against LangGraph as far as it is here."""
    rows = [compared(f"{work}, against a bare table", times, "dgent", "bare", limit)]
    for name in (SAME, DEFAULTS):
        if name in times:
            rows.append(compared(f"  against {name}", times, "dgent", name, at_least=faster))
    return rows


def by_tasks(universe: Universe) -> Put:
    """One task for each sample."""

    async def put(group: list[Sample]) -> None:
        await asyncio.gather(*[universe.remember(value, tags=tags) for value, tags in group])

    return put


def remember_block(universe: Universe, count: int) -> Block:
    """Typed puts, one after another."""
    return awaits(lambda value, tags: universe.remember(value, tags=tags), draw_samples(count))


def draw_samples(count: int, seed: int = 1) -> Draw:
    """The next samples; the same ones for all who start with the same seed."""
    source = samples(seed)
    return lambda: list(islice(source, count))


def _draw_datums(count: int) -> Draw:
    source = samples(1)
    fixed: Mapping[str, Any] = {"author": AUTHOR, "schema": SCHEMA.name, "schema_version": 1}

    def draw() -> list[tuple[Datum]]:
        return [
            (Datum(data=SCHEMA.encode(value), tags=tags, **fixed),) for value, tags in islice(source, count)
        ]

    return draw


def draw_groups(groups: int) -> Draw:
    """The next groups of a sample for each task."""
    source = samples(2)
    return lambda: [(list(islice(source, TASKS)),) for _ in range(groups)]


def _draw_item_groups(groups: int) -> Draw:
    draw = draw_items(TASKS, seed=2)
    return lambda: [(draw(),) for _ in range(groups)]
