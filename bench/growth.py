"""How cost grows with the number of records, and how the disk grows with the number of changes."""

from __future__ import annotations

import os
import random
from statistics import median
from time import perf_counter

from bench.measure import Block, Growth, Row, interleave, say
from bench.plan import Plan, size_text
from bench.puts import remember_block
from bench.raw import Raw
from bench.reads import Ids, get_block, query_block
from bench.stores import VERSIONED, Stores, open_store
from dgent import Datum, Universe

CHANGES = 200
LARGE_BYTES = 50_000


async def growth(plan: Plan, stores: Stores) -> list[Growth]:
    """The same operations at each size, in turns; the puts come last, because they change the stores."""
    paths = {size_text(size): await stores.sized(size) for size in plan.sizes}
    say("  how cost grows")
    universes: dict[str, Universe] = {}
    works: dict[str, dict[str, Block]] = {}
    for size, path in paths.items():
        raw = Raw(path, "relaxed")
        wanted = Ids(raw, plan.gets)
        raw.close()
        universe = universes[size] = await open_store(path, "relaxed")
        blocks = {
            "get": get_block(universe, wanted),
            "query 50": query_block(universe, plan.queries),
            "get as_of": _as_of_block(universe, stores, plan.gets),
            "history (5 versions)": _history_block(universe, plan.gets // 5),
            "put, relaxed": remember_block(universe, plan.puts),
        }
        for work, block in blocks.items():
            works.setdefault(work, {})[size] = block
    found = []
    for work, systems in works.items():
        times = await interleave(systems, max(5, plan.rounds // 2))
        found.append(Growth(work, {size: median(times[size]) for size in systems}))
    for universe in universes.values():
        await universe.close()
    return found


def _as_of_block(universe: Universe, stores: Stores, count: int) -> Block:
    choose = random.Random(9)

    async def block() -> float:
        get, seq = universe.get, stores.second_seq
        batch = choose.choices(VERSIONED, k=count)
        began = perf_counter()
        for id in batch:
            await get(id, as_of=seq)
        return (perf_counter() - began) / count * 1e6

    return block


def _history_block(universe: Universe, count: int) -> Block:
    choose = random.Random(9)

    async def block() -> float:
        batch = choose.choices(VERSIONED, k=count)
        began = perf_counter()
        for id in batch:
            await universe.history(id)
        return (perf_counter() - began) / count * 1e6

    return block


async def history_on_disk(plan: Plan, stores: Stores) -> list[Row]:
    """The bytes of a 50 KB record that is changed a little 200 times, against keeping each version whole."""
    say("  a large record's history on disk")
    path = stores.path("history")
    choose = random.Random(10)
    lines = [f"{choose.getrandbits(128):032x}" for _ in range(LARGE_BYTES // 34)]
    async with open_store(path, "relaxed") as universe:
        datum = await universe.put(Datum(data={"lines": lines}))
    before = os.path.getsize(path)
    async with open_store(path, "relaxed") as universe:
        for _ in range(CHANGES):
            lines[choose.randrange(len(lines))] = f"{choose.getrandbits(128):032x}"
            await universe.put(datum.replace(data={"lines": list(lines)}))
        assert len(await universe.history(datum.id)) == CHANGES + 1
    grown = (os.path.getsize(path) - before) / 1e6
    whole = CHANGES * LARGE_BYTES / 1e6
    return [
        Row(
            f"disk: {LARGE_BYTES // 1000} KB changed a little {CHANGES} times (base: kept whole)",
            measured=grown,
            base=whole,
            ours=grown,
            unit="MB",
        )
    ]
