"""How cost grows with the number of records, and how the disk grows with the number of changes."""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial
from statistics import median

import apsw

from bench.bare import Bare
from bench.measure import PAUSE_S, Block, Growth, Row, awaits, interleave, say, verdict
from bench.plan import Plan, size_text
from bench.puts import TASKS, remember_block
from bench.reads import IDS, draw_from, query_block
from bench.record import datums
from bench.stores import VERSIONED, VERSIONS, Stores, open_store
from dgent import Datum, Universe

CHANGES = 200
LARGE_BYTES = 50_000
RECORD_BYTES = 480
_PUT = "put, relaxed"


async def growth(plan: Plan, stores: Stores) -> list[Growth]:
    """The same operations at each size, in turns; the puts come last, because they change the stores."""
    paths = {size_text(size): await stores.sized(size) for size in plan.sizes}
    say("  how cost grows")
    universes: dict[str, Universe] = {}
    works: dict[str, dict[str, Block]] = {}
    for count in plan.sizes:
        size, path = size_text(count), paths[size_text(count)]
        bare = Bare(await stores.bare(count), "relaxed")
        ids = bare.some_ids(IDS)
        bare.close()
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


async def disk(plan: Plan, stores: Stores) -> list[Row]:
    """Bytes of a record, and of a large one's history."""
    return [*await _bytes_of_record(plan, stores), *await _history(stores)]


async def _bytes_of_record(plan: Plan, stores: Stores) -> list[Row]:
    """Records that 64 tasks put, so that each has its commit; then as many as one commit has."""
    count = plan.middle
    say(f"  bytes of a record, in {size_text(count)}")
    batch = [_shorten(datum) for datum in datums(13, count)]
    single, bulk, by_hand = (stores.path(name) for name in ("single", "bulk", "by-hand"))
    async with open_store(single, "relaxed") as universe:
        for first in range(0, count, TASKS):
            await asyncio.gather(*map(universe.put, batch[first : first + TASKS]))
    async with open_store(bulk, "relaxed") as universe:
        await universe.put_many(batch)
    bare = Bare(by_hand, "relaxed")
    bare.put_many(batch)
    bare.close()
    base = _vacuum(by_hand) / count
    rows = []
    for work, path in ((f"put by {TASKS} tasks", single), ("put by put_many", bulk)):
        each = _vacuum(path) / count
        rows.append(
            Row(
                f"disk: bytes of a record of 300 bytes, {work} (base: bare table)",
                f"≤ {RECORD_BYTES} B",
                each,
                base=base,
                ours=each,
                verdict=verdict(each, each, each, RECORD_BYTES),
                unit="B",
            )
        )
    return rows


def _shorten(datum: Datum) -> Datum:
    """Make it 300 bytes with its id and its tags."""
    words = str(datum.data["body"]).split()
    return datum.replace(data=datum.data | {"body": " ".join(words[:7])})


def _vacuum(path: str) -> int:
    """The size of a closed file with no free pages."""
    connection = apsw.Connection(path)
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return os.path.getsize(path)


async def _history(stores: Stores) -> list[Row]:
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
