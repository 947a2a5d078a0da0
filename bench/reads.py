"""Reading: by id, and the newest 50 by schema, tag and declared field."""

from __future__ import annotations

import random
from time import perf_counter

from bench.measure import Block, Row, compared, interleave, say
from bench.plan import Plan, size_text
from bench.raw import Raw
from bench.record import KINDS, SCHEMA, TOPICS
from bench.stores import Stores, open_store
from dgent import Query, Universe

NEWEST = 50


async def gets(plan: Plan, stores: Stores) -> list[Row]:
    """By id, one after another, in a store of the middle size."""
    path = await stores.sized(plan.sizes[len(plan.sizes) // 2])
    say("  get by id")
    raw = Raw(path, "full")
    async with open_store(path, "full") as universe:
        wanted = Ids(raw, plan.gets)
        systems = {
            "raw": _raw_gets(raw, wanted),
            "whole row": _raw_whole_gets(raw, wanted),
            "dgent": get_block(universe, wanted),
            "datum": _datum_gets(universe, wanted),
        }
        times = await interleave(systems, plan.rounds)
    raw.close()
    return [
        compared("get by id", times, "dgent", "raw", 2.5),
        compared("  against raw that fetches the whole row", times, "dgent", "whole row"),
        compared("  u.get(raw=True) against that", times, "datum", "whole row"),
    ]


async def scans(plan: Plan, stores: Stores) -> list[Row]:
    """Schema + tag + declared field, newest 50, in the two largest stores."""
    sizes = plan.sizes[-2:]
    paths = {size_text(size): await stores.sized(size) for size in sizes}
    say(f"  newest {NEWEST} by schema, tag and field")
    raws: dict[str, Raw] = {}
    universes: dict[str, Universe] = {}
    systems: dict[str, Block] = {}
    for size, path in paths.items():
        raws[size] = Raw(path, "full")
        raws[size].add_side()
        universes[size] = await open_store(path, "full")
        await _check_answers(universes[size], raws[size])
        systems[f"raw {size}"] = _raw_scans(raws[size], plan.queries)
        systems[f"dgent {size}"] = query_block(universes[size], plan.queries)
        systems[f"datum {size}"] = _datum_scans(universes[size], plan.queries)
    times = await interleave(systems, plan.rounds)
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


class Ids:
    """Random ids of a store, other ones for every block, the same ones for every system."""

    def __init__(self, raw: Raw, count: int) -> None:
        choose = random.Random(5)
        picked = ((choose.randrange(1, raw.dk + 1),) for _ in range(20 * count))
        self.all: list[str] = [id for (id,) in raw.many("SELECT id FROM datum WHERE dk = ?", picked)]
        self.count = count

    def block(self, turn: int) -> list[str]:
        """The ids of one round."""
        start = turn * self.count % len(self.all)
        return self.all[start : start + self.count]


def get_block(universe: Universe, wanted: Ids) -> Block:
    """Typed gets."""
    turn = 0

    async def block() -> float:
        nonlocal turn
        turn += 1
        get = universe.get
        batch = wanted.block(turn)
        began = perf_counter()
        for id in batch:
            await get(id)
        return (perf_counter() - began) / len(batch) * 1e6

    return block


def _datum_gets(universe: Universe, wanted: Ids) -> Block:
    turn = 0

    async def block() -> float:
        nonlocal turn
        turn += 1
        get = universe.get
        batch = wanted.block(turn)
        began = perf_counter()
        for id in batch:
            await get(id, raw=True)
        return (perf_counter() - began) / len(batch) * 1e6

    return block


def _raw_gets(raw: Raw, wanted: Ids) -> Block:
    return _sync_gets(raw.get, wanted)


def _raw_whole_gets(raw: Raw, wanted: Ids) -> Block:
    return _sync_gets(raw.get_all, wanted)


def _sync_gets(get, wanted: Ids) -> Block:  # type: ignore[no-untyped-def]
    turn = 0

    async def block() -> float:
        nonlocal turn
        turn += 1
        batch = wanted.block(turn)
        began = perf_counter()
        for id in batch:
            get(id)
        return (perf_counter() - began) / len(batch) * 1e6

    return block


def _pairs(count: int, choose: random.Random) -> list[tuple[str, str]]:
    return [(choose.choice(TOPICS), choose.choice(KINDS)) for _ in range(count)]


def query_block(universe: Universe, count: int) -> Block:
    """Typed queries, each with a tag and a value of its own; writing the query down is part of the work."""
    choose = random.Random(6)

    async def block() -> float:
        recall, name = universe.recall, SCHEMA.name
        pairs = _pairs(count, choose)
        began = perf_counter()
        for tag, kind in pairs:
            await recall(Query(schema=name, tags={tag}, where={"kind": kind}, limit=NEWEST))
        return (perf_counter() - began) / count * 1e6

    return block


def _datum_scans(universe: Universe, count: int) -> Block:
    choose = random.Random(6)

    async def block() -> float:
        query, name = universe.query, SCHEMA.name
        pairs = _pairs(count, choose)
        began = perf_counter()
        for tag, kind in pairs:
            await query(Query(schema=name, tags={tag}, where={"kind": kind}, limit=NEWEST), raw=True)
        return (perf_counter() - began) / count * 1e6

    return block


def _raw_scans(raw: Raw, count: int) -> Block:
    choose = random.Random(6)

    async def block() -> float:
        newest = raw.newest
        pairs = _pairs(count, choose)
        began = perf_counter()
        for tag, kind in pairs:
            newest(tag, kind, NEWEST)
        return (perf_counter() - began) / count * 1e6

    return block


async def _check_answers(universe: Universe, raw: Raw) -> None:
    tag, kind = TOPICS[0], KINDS[0]
    found = await universe.recall(Query(schema=SCHEMA.name, tags={tag}, where={"kind": kind}, limit=NEWEST))
    expected = raw.newest(tag, kind, NEWEST)
    assert [(c.id, c.value) for c in found] == [(row[0], row[3]) for row in expected], "both find the same"
