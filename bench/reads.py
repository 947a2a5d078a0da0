"""Reading: by id, and the newest 50 by schema, tag and declared field."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from bench.measure import Block, Draw, Row, awaits, calls, compared, interleave, say
from bench.plan import Plan, size_text
from bench.raw import Raw
from bench.record import KINDS, SCHEMA, TOPICS, Note
from bench.stores import Stores, open_store
from dgent import Query, Universe

NEWEST = 50
CHECKED = (TOPICS[0], KINDS[0], NEWEST)


async def gets(plan: Plan, stores: Stores) -> list[Row]:
    """By id, one after another, in a store of the middle size."""
    path = await stores.sized(plan.sizes[len(plan.sizes) // 2])
    say("  get by id")
    raw = Raw(path, "full")
    ids = some_ids(raw)
    async with open_store(path, "full") as universe:
        systems = {
            "raw": calls(raw.get, draw_from(ids, plan.gets)),
            "whole row": calls(raw.get_all, draw_from(ids, plan.gets)),
            "dgent": awaits(universe.get, draw_from(ids, plan.gets)),
            "datum": awaits(partial(universe.get, raw=True), draw_from(ids, plan.gets)),
        }
        times = await interleave(systems, plan.read_rounds, pause_s=0)
    raw.close()
    return [
        compared("get by id", times, "dgent", "raw", 2.5),
        compared("  against raw that fetches the whole row", times, "dgent", "whole row"),
        compared("  u.get(raw=True) against that", times, "datum", "whole row"),
    ]


async def scans(plan: Plan, stores: Stores) -> list[Row]:
    """Schema + tag + declared field, newest 50, in the two largest stores."""
    paths = {size_text(size): await stores.sized(size) for size in plan.sizes[-2:]}
    say(f"  newest {NEWEST} by schema, tag and field")
    raws: dict[str, Raw] = {}
    universes: dict[str, Universe] = {}
    systems: dict[str, Block] = {}
    for size, path in paths.items():
        raw = raws[size] = Raw(path, "full")
        raw.add_side()
        universe = universes[size] = await open_store(path, "full")
        await check_answers(universe, raw.newest(*CHECKED))
        systems[f"raw {size}"] = calls(raw.newest, draw_pairs(plan.queries))
        systems[f"dgent {size}"] = query_block(universe, plan.queries)
        systems[f"datum {size}"] = query_block(universe, plan.queries, raw=True)
    times = await interleave(systems, plan.read_rounds, pause_s=0)
    for size in paths:
        await universes[size].close()
        raws[size].close()
    rows = []
    for size in paths:
        work = f"schema + tag + field, newest {NEWEST}, {size}"
        rows.append(compared(work, times, f"dgent {size}", f"raw {size}", 1.5))
        rows.append(compared("  the same with raw=True", times, f"datum {size}", f"raw {size}"))
    if len(paths) == 2:
        small, large = paths
        rows.append(compared(f"  {large} against {small}", times, f"dgent {large}", f"dgent {small}", 2.0))
    return rows


def query_block(universe: Universe, count: int, raw: bool = False) -> Block:
    """Queries with a tag and a value of their own; writing the query down is part of the work."""

    def query(tag: str, kind: str, limit: int) -> Any:
        wanted = Query(schema=SCHEMA.name, tags=frozenset((tag,)), where={"kind": kind}, limit=limit)
        return universe.query(wanted, raw=True) if raw else universe.recall(wanted)

    return awaits(query, draw_pairs(count))


def some_ids(raw: Raw) -> list[str]:
    """Random ids of a store."""
    choose = random.Random(5)
    picked = [(choose.randrange(1, raw.dk + 1),) for _ in range(5_000)]
    return [id for (id,) in raw.many("SELECT id FROM datum WHERE dk = ?", picked)]


def draw_from(ids: Sequence[str], count: int) -> Draw:
    """Random ones of the ids; the same ones for every system."""
    choose = random.Random(6)
    return lambda: [(id,) for id in choose.choices(ids, k=count)]


def draw_pairs(count: int) -> Draw:
    """The values of so many queries; the same ones for every system."""
    choose = random.Random(7)
    return lambda: [(choose.choice(TOPICS), choose.choice(KINDS), NEWEST) for _ in range(count)]


async def check_answers(universe: Universe, expected: Sequence[tuple[str, int, str, Note]]) -> None:
    """Refuse to compare unless dgent finds for CHECKED what the raw side found."""
    tag, kind, limit = CHECKED
    query = Query(schema=SCHEMA.name, tags=frozenset((tag,)), where={"kind": kind}, limit=limit)
    found = await universe.recall(query)
    assert [(c.id, c.value) for c in found] == [(row[0], row[3]) for row in expected], "both find the same"
