"""On Postgres: 64 tasks that put, eight processes of them, by id, and the newest 50."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from typing import Any

from bench.measure import Block, Row, awaits, compared, interleave, quartiles, say
from bench.plan import Plan, size_text
from bench.postgres.databases import Databases, open_postgres
from bench.postgres.processes import PROCESSES, Team, by_tasks, warm_up
from bench.postgres.raw import RawPostgres, check_same
from bench.puts import TASKS, draw_groups, per_task
from bench.reads import CHECKED, NEWEST, check_answers, draw_from, draw_pairs, query_block
from bench.record import Note, samples

_IDS = 5_000


async def together(plan: Plan, databases: Databases) -> list[Row]:
    """64 tasks put at the same time; the raw side commits 64 rows in one transaction."""
    say(f"  Postgres put, {TASKS} tasks at once")
    base = await databases.sized(plan.sizes[0])
    raw_url, url = await databases.copy(base), await databases.copy(base)
    await _check_sides(raw_url, url)
    raw = await RawPostgres.open(raw_url, apart=1)
    async with open_postgres(url) as universe:
        await warm_up(raw.put_together)
        await warm_up(by_tasks(universe))
        systems = {
            "raw": per_task(awaits(raw.put_together, draw_groups(plan.batches))),
            "dgent": per_task(awaits(by_tasks(universe), draw_groups(plan.batches))),
        }
        times = await interleave(systems, plan.rounds, warm=2)
    await raw.close()
    return [compared(f"Postgres put, {TASKS} tasks at once", times, "dgent", "raw", 1.4)]


async def processes(plan: Plan, databases: Databases) -> list[Row]:
    """The same by eight processes at once, each side in a database of its own."""
    say(f"  Postgres put, {PROCESSES} processes")
    base = await databases.sized(plan.sizes[0])
    async with AsyncExitStack() as stack:
        systems: dict[str, Block] = {}
        for system in ("raw", "dgent"):
            team = Team(system, await databases.copy(base), plan.batches)
            systems[system] = (await stack.enter_async_context(team)).block
        times = await interleave(systems, plan.rounds // 2, warm=2)
    reached = {name: [1e6 / took for took in taken] for name, taken in times.items()}
    low, middle, high = quartiles(reached["dgent"])
    return [
        compared(f"Postgres put, {PROCESSES} processes of {TASKS} tasks", times, "dgent", "raw"),
        Row(
            "  that is, of all processes together",
            measured=middle,
            low=low,
            high=high,
            base=median(reached["raw"]),
            ours=middle,
            unit="puts/s",
        ),
    ]


async def gets(plan: Plan, databases: Databases) -> list[Row]:
    """By id, one after another, in a universe of the middle size."""
    url = databases.url(await databases.sized(plan.sizes[len(plan.sizes) // 2]))
    say("  Postgres get by id")
    raw = await RawPostgres.open(url)
    ids = await raw.some_ids(_IDS)
    async with open_postgres(url) as universe:
        systems = {
            "raw": awaits(raw.get, draw_from(ids, plan.gets)),
            "dgent": awaits(universe.get, draw_from(ids, plan.gets)),
            "datum": awaits(partial(universe.get, raw=True), draw_from(ids, plan.gets)),
        }
        times = await interleave(systems, plan.read_rounds, warm=20, pause_s=0)
    await raw.close()
    return [
        compared("Postgres get by id", times, "dgent", "raw", 1.5),
        compared("  the same with raw=True", times, "datum", "raw"),
    ]


async def scans(plan: Plan, databases: Databases) -> list[Row]:
    """Schema + tag + declared field, newest 50, in the two largest universes."""
    urls = {size_text(size): databases.url(await databases.sized(size)) for size in plan.sizes[-2:]}
    say(f"  Postgres newest {NEWEST} by schema, tag and field")
    systems: dict[str, Block] = {}
    async with AsyncExitStack() as stack:
        for size, url in urls.items():
            raw = await RawPostgres.open(url)
            stack.push_async_callback(raw.close)
            universe = await stack.enter_async_context(open_postgres(url))
            await check_answers(universe, await raw.newest(*CHECKED))
            systems[f"raw {size}"] = awaits(raw.newest, draw_pairs(plan.queries))
            systems[f"dgent {size}"] = query_block(universe, plan.queries)
        times = await interleave(systems, plan.read_rounds // 2, warm=20, pause_s=0)
    return [
        compared(
            f"Postgres schema + tag + field, newest {NEWEST}, {size}",
            times,
            f"dgent {size}",
            f"raw {size}",
            1.5,
        )
        for size in urls
    ]


async def _check_sides(raw_url: str, url: str) -> None:

    value, tags = next(samples(0))
    raw, ours = await RawPostgres.open(raw_url, apart=2), await RawPostgres.open(url)
    (raw_id,) = await raw.put_together([(value, tags)])
    async with open_postgres(url) as universe:
        stored = await universe.remember(value, tags=tags)
    await check_same(raw, raw_id, ours, stored.id)
    async with open_postgres(raw_url) as universe:
        found: Any = await universe.get(raw_id)
        assert isinstance(found.value, Note) and found.value == value, "dgent reads what the raw side wrote"
    await raw.close()
    await ours.close()
