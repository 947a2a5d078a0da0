"""How cost grows with the number of records, and how the disk grows with the number of changes."""

from __future__ import annotations

import os
import random
from functools import partial
from statistics import median

from bench.measure import PAUSE_S, Block, Growth, Row, awaits, interleave, say
from bench.plan import Plan, size_text
from bench.puts import remember_block
from bench.raw import Raw
from bench.reads import draw_from, query_block, some_ids
from bench.stores import VERSIONED, VERSIONS, Stores, open_store
from dgent import Datum, Universe

CHANGES = 200
LARGE_BYTES = 50_000
_PUT = "put, relaxed"


async def growth(plan: Plan, stores: Stores) -> list[Growth]:
    """The same operations at each size, in turns; the puts come last, because they change the stores."""
    paths = {size_text(size): await stores.sized(size) for size in plan.sizes}
    say("  how cost grows")
    universes: dict[str, Universe] = {}
    works: dict[str, dict[str, Block]] = {}
    for size, path in paths.items():
        raw = Raw(path, "relaxed")
        ids = some_ids(raw)
        raw.close()
        universe = universes[size] = await open_store(path, "relaxed")
        blocks = {
            "get": awaits(universe.get, draw_from(ids, plan.gets)),
            "query 50": query_block(universe, plan.queries),
            "get as_of": awaits(
                partial(universe.get, as_of=stores.second_seq), draw_from(VERSIONED, plan.gets)
            ),
            f"history ({VERSIONS} versions)": awaits(universe.history, draw_from(VERSIONED, plan.queries)),
            _PUT: remember_block(universe, plan.puts),
        }
        for work, block in blocks.items():
            works.setdefault(work, {})[size] = block
    found = []
    for work, systems in works.items():
        reading = work != _PUT
        rounds = plan.read_rounds if reading else plan.rounds
        times = await interleave(systems, rounds // 2, pause_s=0 if reading else PAUSE_S)
        found.append(Growth(work, {size: median(times[size]) for size in systems}))
    for universe in universes.values():
        await universe.close()
    return found


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
