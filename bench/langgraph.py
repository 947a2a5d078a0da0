"""LangGraph's AsyncSqliteStore with the same records; its namespace stands for the schema."""

from __future__ import annotations

import dataclasses
import importlib.util
import random
from contextlib import AsyncExitStack
from itertools import islice
from time import perf_counter
from typing import Any

from bench.measure import Block, Row, compared, interleave, say
from bench.plan import Plan
from bench.puts import remember_block
from bench.record import SCHEMA, samples
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
        put_times = await interleave(
            {
                "langgraph": _aput_block(theirs, plan.puts),
                "full": remember_block(full, plan.puts),
                "relaxed": remember_block(relaxed, plan.puts),
            },
            plan.langgraph_rounds,
        )
        get_times = await interleave(
            {"langgraph": _aget_block(theirs, keys, plan.gets), "dgent": _get_block(full, keys, plan.gets)},
            plan.langgraph_rounds,
        )
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
    return f"its defaults: journal {journal}, sync {levels[level]}"


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


def _aput_block(theirs: Any, count: int) -> Block:
    source = samples(1)

    async def block() -> float:
        batch = [_content(value, tags) for value, tags in islice(source, count)]
        aput = theirs.aput
        began = perf_counter()
        for content in batch:
            await aput(_NAMESPACE, ids.new_id(), content)
        return (perf_counter() - began) / count * 1e6

    return block


def _aget_block(theirs: Any, keys: list[str], count: int) -> Block:
    choose = random.Random(8)

    async def block() -> float:
        batch = choose.choices(keys, k=count)
        aget = theirs.aget
        began = perf_counter()
        for key in batch:
            await aget(_NAMESPACE, key)
        return (perf_counter() - began) / count * 1e6

    return block


def _get_block(ours: Universe, keys: list[str], count: int) -> Block:
    choose = random.Random(8)
    assert ours.schema_for(SCHEMA.name) is SCHEMA, "gets are typed"

    async def block() -> float:
        batch = choose.choices(keys, k=count)
        get = ours.get
        began = perf_counter()
        for key in batch:
            await get(key)
        return (perf_counter() - began) / count * 1e6

    return block
