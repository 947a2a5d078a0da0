"""LangGraph's AsyncSqliteStore with the same records; its namespace stands for the schema."""

from __future__ import annotations

import dataclasses
import importlib.util
from contextlib import AsyncExitStack
from itertools import islice
from typing import Any

from bench.measure import Draw, Row, awaits, compared, interleave, say
from bench.plan import Plan
from bench.puts import remember_block
from bench.reads import draw_from
from bench.record import samples
from bench.stores import Stores, open_store
from dgent import Universe, ids

_PRELOADED = 2_000
_NAMESPACE = ("bench", "note")


async def against_langgraph(plan: Plan, stores: Stores) -> list[Row]:
    """Put at its own durability, and get."""
    if importlib.util.find_spec("langgraph") is None or importlib.util.find_spec("aiosqlite") is None:
        reason = "skipped: pip install 'dgent[bench]' brings langgraph-checkpoint-sqlite"
        return [Row("LangGraph AsyncSqliteStore", verdict=reason)]
    say("  LangGraph AsyncSqliteStore")
    from langgraph.store.sqlite.aio import AsyncSqliteStore

    async with AsyncExitStack() as stack:
        connection = AsyncSqliteStore.from_conn_string(stores.path("langgraph"))
        theirs = await stack.enter_async_context(connection)
        await theirs.setup()
        settings = await _settings(theirs)
        full = await stack.enter_async_context(open_store(stores.path("full"), "full"))
        relaxed = await stack.enter_async_context(open_store(stores.path("relaxed"), "relaxed"))
        keys = await _preload(full, theirs)
        puts = {
            "langgraph": awaits(theirs.aput, _draw_items(plan.puts)),
            "full": remember_block(full, plan.puts),
            "relaxed": remember_block(relaxed, plan.puts),
        }
        gets = {
            "langgraph": awaits(lambda key: theirs.aget(_NAMESPACE, key), draw_from(keys, plan.gets)),
            "dgent": awaits(full.get, draw_from(keys, plan.gets)),
        }
        put_times = await interleave(puts, plan.langgraph_rounds)
        get_times = await interleave(gets, plan.langgraph_rounds * 10, pause_s=0)
        await _stop(theirs)
    return [
        compared("LangGraph get", get_times, "dgent", "langgraph", at_least=20),
        compared(f"LangGraph put ({settings}), dgent full", put_times, "full", "langgraph", at_least=5),
        compared("LangGraph put, dgent relaxed", put_times, "relaxed", "langgraph", at_least=5),
    ]


async def _settings(theirs: Any) -> str:
    levels = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
    async with theirs.conn.execute("PRAGMA journal_mode") as cursor:
        (journal,) = await cursor.fetchone()
    async with theirs.conn.execute("PRAGMA synchronous") as cursor:
        (level,) = await cursor.fetchone()
    return f"its own: journal {journal}, sync {levels[level]}"


async def _stop(theirs: Any) -> None:
    """End its background task, or closing the loop would complain."""
    task = getattr(theirs, "_task", None)
    if task is not None:
        task.cancel()


def _content(value: Any, tags: frozenset[str]) -> dict[str, Any]:
    return dataclasses.asdict(value) | {"tags": sorted(tags)}


async def _preload(ours: Universe, theirs: Any) -> list[str]:
    from langgraph.store.base import PutOp

    keys, operations = [], []
    for value, tags in islice(samples(3), _PRELOADED):
        stored = await ours.remember(value, tags=tags)
        keys.append(stored.id)
        operations.append(PutOp(_NAMESPACE, stored.id, _content(value, tags)))
    await theirs.abatch(operations)
    return keys


def _draw_items(count: int) -> Draw:
    source = samples(1)
    return lambda: [(_NAMESPACE, ids.new_id(), _content(*sample)) for sample in islice(source, count)]
