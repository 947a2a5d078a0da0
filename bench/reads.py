"""Reading: by id, and the newest 50 by schema, tag and declared field."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from bench.bare import Bare, Tagged
from bench.langgraph import SKIPPED, draw_items, open_peers
from bench.measure import Block, Draw, Row, awaits, calls, compared, interleave, say, timed
from bench.plan import Plan, size_text
from bench.record import KINDS, SCHEMA, TOPICS
from bench.stores import Stores, open_store
from dgent import Query, Universe

NEWEST = 50
IDS = 5_000
_NEWEST_FIRST = Query(schema=SCHEMA.name, limit=NEWEST)
_IN_ORDER = Query(schema=SCHEMA.name, order_by="kind", limit=NEWEST)
CHECKED = (TOPICS[0], KINDS[0], NEWEST)


async def gets(plan: Plan, stores: Stores) -> list[Row]:
    """By id, one after another, in a store of the middle size."""
    path, bare_path = await stores.sized(plan.middle), await stores.bare(plan.middle)
    say("  get by id")
    async with AsyncExitStack() as stack:
        bare = Bare(bare_path, "full")
        stack.callback(bare.close)
        universe = await stack.enter_async_context(open_store(path, "full"))
        peers = await open_peers(stack, stores, plan.middle, "full")
        ids = bare.some_ids(IDS)
        systems = {
            "bare": calls(bare.get, draw_from(ids, plan.gets)),
            "dgent": awaits(universe.get, draw_from(ids, plan.gets)),
            "datum": awaits(partial(universe.get, raw=True), draw_from(ids, plan.gets)),
        }
        times = await interleave(systems, plan.read_rounds, pause_s=0)
        keys = draw_items(IDS)()
        beside = {"dgent": systems["dgent"]}
        for name, peer in peers.items():
            await peer.put_many(keys)
            beside[name] = awaits(peer.get, draw_from([id for id, _ in keys], plan.gets))
        peer_times = await interleave(beside, plan.langgraph_rounds * 5, pause_s=0)
    return [
        compared("get by id, against a bare table", times, "dgent", "bare", 2.5),
        compared("  u.get(raw=True) against it", times, "datum", "bare"),
        *(compared(f"  against {name}", peer_times, "dgent", name, at_least=20) for name in peers),
        *SKIPPED,
    ]


async def scans(plan: Plan, stores: Stores) -> list[Row]:
    """Schema + tag + declared field, newest 50, in the two largest stores."""
    say(f"  newest {NEWEST} by schema, tag and field")
    systems: dict[str, Block] = {}
    ordered: dict[str, Block] = {}
    async with AsyncExitStack() as stack:
        for count in plan.sizes[-2:]:
            size, path = size_text(count), await stores.sized(count)
            bare = Bare(stores.copy(await stores.bare(count)), "full")
            stack.callback(bare.close)
            bare.add_index()
            universe = await stack.enter_async_context(open_store(path, "full"))
            await check_answers(universe, bare.newest(*CHECKED))
            systems[f"bare {size}"] = calls(bare.newest, draw_pairs(plan.queries))
            systems[f"dgent {size}"] = query_block(universe, plan.queries)
            systems[f"datum {size}"] = query_block(universe, plan.queries, raw=True)
            ordered[f"newest {size}"] = timed(partial(universe.recall, _NEWEST_FIRST))
            ordered[f"ordered {size}"] = timed(partial(universe.recall, _IN_ORDER))
        times = await interleave(systems, plan.read_rounds, pause_s=0)
        ordered_times = await interleave(ordered, plan.read_rounds // 5, pause_s=0)
    rows = []
    sizes = [size_text(count) for count in plan.sizes[-2:]]
    for size in sizes:
        work = f"schema + tag + field, newest {NEWEST}, {size}"
        rows.append(compared(work, times, f"dgent {size}", f"bare {size}", 1.5))
        rows.append(compared("  the same with raw=True", times, f"datum {size}", f"bare {size}"))
        work = f"{NEWEST} in the order of a declared field, against newest first, {size}"
        rows.append(compared(work, ordered_times, f"ordered {size}", f"newest {size}", 2.0))
    if len(sizes) == 2:
        small, large = sizes
        rows.append(compared(f"  {large} against {small}", times, f"dgent {large}", f"dgent {small}", 2.0))
    return rows


async def tallies(plan: Plan, stores: Stores) -> list[Row]:
    """Distinct values of a declared field, and tags, in a store of the middle size."""
    say("  distinct values and tags")
    async with open_store(await stores.sized(plan.middle), "full") as universe:
        name = SCHEMA.name
        systems = {
            "values": timed(partial(universe.values, name, "kind")),
            "tags": timed(partial(universe.tags, name)),
            "read": timed(partial(universe.values, name, "kind", author=universe.author)),
        }
        times = await interleave(systems, 5, pause_s=0)
    size = size_text(plan.middle)
    return [
        compared(f"values of a declared field, against reading them, {size}", times, "values", "read", 0.2),
        compared(f"tags of a schema, against reading them, {size}", times, "tags", "read", 0.2),
    ]


def query_block(universe: Universe, count: int, raw: bool = False) -> Block:
    """Queries with a tag and a value of their own; writing the query down is part of the work."""
    return awaits(partial(query_newest, universe, raw=raw), draw_pairs(count))


async def query_newest(universe: Universe, tag: str, kind: str, limit: int, raw: bool = False) -> Any:
    """The newest records with a tag and a kind."""
    wanted = Query(schema=SCHEMA.name, tags=frozenset((tag,)), where={"kind": kind}, limit=limit)
    return await (universe.query(wanted, raw=True) if raw else universe.recall(wanted))


def draw_from(ids: Sequence[str], count: int) -> Draw:
    """Random ones of the ids; the same ones for every system."""
    choose = random.Random(6)
    return lambda: [(id,) for id in choose.choices(ids, k=count)]


def draw_pairs(count: int) -> Draw:
    """The values of so many queries; the same ones for every system."""
    choose = random.Random(7)
    return lambda: [(choose.choice(TOPICS), choose.choice(KINDS), NEWEST) for _ in range(count)]


async def check_answers(universe: Universe, expected: Sequence[tuple[str, Tagged]]) -> None:
    """Refuse to compare unless dgent finds for CHECKED what the base found."""
    found = [
        (crystal.id, Tagged(**dataclasses.asdict(crystal.value), tags=tuple(sorted(crystal.tags))))
        for crystal in await query_newest(universe, *CHECKED)
    ]
    assert found == expected, "both find the same"
