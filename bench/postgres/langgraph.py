"""LangGraph's AsyncPostgresStore with the same records; its namespace stands for the schema."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import AsyncExitStack
from itertools import islice
from typing import Any

from bench.langgraph import NAMESPACE
from bench.measure import Row, awaits, compared, interleave, say
from bench.plan import Plan, size_text
from bench.postgres.bare import BarePostgres
from bench.postgres.databases import Databases, open_postgres
from bench.puts import Put
from bench.reads import CHECKED, IDS, NEWEST, draw_from, draw_pairs, query_block
from bench.record import Note, Sample, samples
from dgent import ids

MOST = 100_000  # its search reads all records of a namespace, so a larger one says nothing new
_AT_ONCE = 4_000  # operations in a batch while loading; more would be too many parameters


async def open_peer(stack: AsyncExitStack, databases: Databases) -> Any:
    """One of its stores in a database of its own, as it is by default; None when it is not installed."""
    try:
        from langgraph.store.postgres.aio import AsyncPostgresStore
    except ImportError:  # of the package, or of psycopg without its library
        return None
    connected = AsyncPostgresStore.from_conn_string(await databases.copy())
    theirs: Any = await stack.enter_async_context(connected)
    stack.callback(_stop, theirs)
    await theirs.setup()
    return theirs


async def against_langgraph(plan: Plan, databases: Databases) -> list[Row]:
    """Get, and search with a filter."""
    size = max((size for size in plan.sizes if size <= MOST), default=plan.sizes[0])
    url = databases.url(await databases.sized(size))
    say("  LangGraph AsyncPostgresStore")
    async with AsyncExitStack() as stack:
        theirs = await open_peer(stack, databases)
        if theirs is None:
            reason = "skipped: pip install 'dgent[bench]' brings langgraph-checkpoint-postgres"
            return [Row("LangGraph AsyncPostgresStore", verdict=reason)]
        keys = await preload(theirs, size)
        await _check_search(theirs)
        bare = await BarePostgres.open(url)
        some = await bare.some_ids(IDS)
        await bare.close()
        ours = await stack.enter_async_context(open_postgres(url))
        gets = {
            "langgraph": awaits(lambda key: theirs.aget(NAMESPACE, key), draw_from(keys, plan.gets)),
            "dgent": awaits(ours.get, draw_from(some, plan.gets)),
        }
        queries = {
            "langgraph": awaits(lambda *pair: _search(theirs, *pair), draw_pairs(plan.queries)),
            "dgent": query_block(ours, plan.queries),
        }
        get_times = await interleave(gets, plan.langgraph_rounds * 10, warm=3, pause_s=0)
        query_times = await interleave(queries, plan.langgraph_rounds, warm=3, pause_s=0)
    return [
        compared("LangGraph Postgres get", get_times, "dgent", "langgraph", at_least=4),
        compared(
            f"LangGraph Postgres search, newest {NEWEST}, {size_text(size)}",
            query_times,
            "dgent",
            "langgraph",
            at_least=4,
        ),
    ]


def _content(value: Note, tags: frozenset[str]) -> dict[str, Any]:
    """A filter compares whole values of top-level keys, so each tag is one."""
    return dataclasses.asdict(value) | dict.fromkeys(sorted(tags), True)


def by_tasks(theirs: Any) -> Put:
    """One task for each sample."""

    async def put(group: list[Sample]) -> None:
        await asyncio.gather(*[theirs.aput(NAMESPACE, ids.new_id(), _content(*sample)) for sample in group])

    return put


async def _search(theirs: Any, tag: str, kind: str, limit: int) -> Any:
    return await theirs.asearch(NAMESPACE, filter={tag: True, "kind": kind}, limit=limit)


async def preload(theirs: Any, count: int) -> list[str]:
    """Store so many records, and tell the planner about them as it is told about ours; some keys."""
    from langgraph.store.base import PutOp

    keys: list[str] = []
    source = samples(3)
    for first in range(0, count, _AT_ONCE):
        made = [ids.new_id() for _ in range(min(_AT_ONCE, count - first))]
        await theirs.abatch(
            [PutOp(NAMESPACE, key, _content(*sample)) for key, sample in zip(made, source, strict=False)]
        )
        keys += made
    await theirs.conn.execute("VACUUM ANALYZE store")
    return keys[:: max(1, count // IDS)]


async def _check_search(theirs: Any) -> None:
    tag, kind, limit = CHECKED
    found = await _search(theirs, tag, kind, limit)
    assert len(found) == limit, "it finds as many"
    assert all(item.value["kind"] == kind and item.value[tag] for item in islice(found, 5)), (
        "and the right ones"
    )


def _stop(theirs: Any) -> None:
    """End its background task, or closing the loop would complain."""
    task = getattr(theirs, "_task", None)
    if task is not None:
        task.cancel()
