"""On Postgres: 64 tasks that put, eight processes of them, by id, and the newest 50."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

from bench.measure import Block, Row, awaits, compared, interleave, say
from bench.plan import Plan, size_text
from bench.postgres import langgraph
from bench.postgres.bare import BarePostgres
from bench.postgres.databases import Databases, open_postgres
from bench.processes import PROCESSES, measure_teams, per_second, warm_up
from bench.puts import TASKS, Put, by_tasks, draw_groups
from bench.reads import CHECKED, IDS, NEWEST, check_answers, draw_from, draw_pairs, query_block


async def together(plan: Plan, databases: Databases) -> list[Row]:
    """64 tasks put at the same time, into a database each; the bare table gets 64 rows in one transaction."""
    say(f"  Postgres put, {TASKS} tasks at once")
    base = await databases.sized(plan.sizes[0])
    async with AsyncExitStack() as stack:
        bare = await BarePostgres.open(await databases.copy(base))
        stack.push_async_callback(bare.close)
        universe = await stack.enter_async_context(open_postgres(await databases.copy(base)))
        puts: dict[str, Put] = {"bare": bare.put_together, "dgent": by_tasks(universe)}
        peer = await langgraph.open_peer(stack, databases)
        if peer is not None:
            await langgraph.preload(peer, plan.sizes[0])
            puts["langgraph"] = langgraph.by_tasks(peer)
        for put in puts.values():
            await warm_up(put)
        systems = {name: awaits(put, draw_groups(plan.groups), TASKS) for name, put in puts.items()}
        times = await interleave(systems, plan.peer_rounds, warm=2)
    work = f"Postgres put, {TASKS} tasks at once"
    rows = [compared(f"{work}, against a bare table", times, "dgent", "bare")]
    if peer is not None:
        rows.append(compared("  against LangGraph, its defaults", times, "dgent", "langgraph", at_least=1))
    return rows


async def processes(plan: Plan, databases: Databases) -> list[Row]:
    """The same by eight processes at once."""
    say(f"  Postgres put, {PROCESSES} processes")
    base = await databases.sized(plan.sizes[0])
    times = await measure_teams({name: await databases.copy(base) for name in ("bare", "dgent")}, plan)
    work = f"Postgres put, {PROCESSES} processes of {TASKS} tasks, against a bare table"
    return [compared(work, times, "dgent", "bare"), per_second("  of all processes together", times)]


async def gets(plan: Plan, databases: Databases) -> list[Row]:
    """By id, one after another, in a universe of the middle size."""
    url = databases.url(await databases.sized(plan.middle))
    say("  Postgres get by id")
    bare = await BarePostgres.open(url)
    ids = await bare.some_ids(IDS)
    async with open_postgres(url) as universe:
        systems = {
            "bare": awaits(bare.get, draw_from(ids, plan.gets)),
            "dgent": awaits(universe.get, draw_from(ids, plan.gets)),
            "datum": awaits(partial(universe.get, raw=True), draw_from(ids, plan.gets)),
        }
        times = await interleave(systems, plan.read_rounds, warm=20, pause_s=0)
    await bare.close()
    return [
        compared("Postgres get by id", times, "dgent", "bare", 1.5),
        compared("  the same with raw=True", times, "datum", "bare"),
    ]


async def scans(plan: Plan, databases: Databases) -> list[Row]:
    """Schema + tag + declared field, newest 50, in the two largest universes."""
    urls = {size_text(size): databases.url(await databases.sized(size)) for size in plan.sizes[-2:]}
    say(f"  Postgres newest {NEWEST} by schema, tag and field")
    systems: dict[str, Block] = {}
    async with AsyncExitStack() as stack:
        for size, url in urls.items():
            bare = await BarePostgres.open(url)
            stack.push_async_callback(bare.close)
            universe = await stack.enter_async_context(open_postgres(url))
            await check_answers(universe, await bare.newest(*CHECKED))
            systems[f"bare {size}"] = awaits(bare.newest, draw_pairs(plan.queries))
            systems[f"dgent {size}"] = query_block(universe, plan.queries)
        times = await interleave(systems, plan.read_rounds // 2, warm=20, pause_s=0)
    return [
        compared(
            f"Postgres schema + tag + field, newest {NEWEST}, {size}",
            times,
            f"dgent {size}",
            f"bare {size}",
            1.5,
        )
        for size in urls
    ]
