"""Searching for words on Postgres, against a column of words with a GIN index and `ts_rank`."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import asyncpg

from bench.measure import Block, Row, awaits, compared, interleave, say
from bench.plan import Plan
from bench.postgres.databases import Databases, open_postgres
from bench.search import DRAWS, TEXT, count_words, make_bodies, make_datum

_TABLE = "CREATE TABLE t (id bigint PRIMARY KEY, words tsvector)"
_FILL = (
    "INSERT INTO t SELECT n, to_tsvector('simple', body) FROM unnest($1::bigint[], $2::text[]) x (n, body)"
)
_FIND = (
    "SELECT id, ts_rank(words, q) FROM t, to_tsquery('simple', $1) q WHERE words @@ q"
    " ORDER BY ts_rank(words, q) DESC LIMIT 10"
)


async def search(plan: Plan, databases: Databases) -> list[Row]:
    """In a database of the middle size."""
    size = min(plan.middle, 100_000)
    say(f"  Postgres search, {size:,} records")
    bodies = list(itertools.islice(make_bodies(1), size))
    async with AsyncExitStack() as stack:
        url = await databases.copy()
        u = await stack.enter_async_context(open_postgres(url))
        u.register(TEXT)
        await u.put_many([make_datum(body) for body in bodies])
        while await u.backend.fill(TEXT.name, u.contracts):
            await asyncio.sleep(0)
        connection = await asyncpg.connect(await databases.copy(), server_settings={"jit": "off"})
        stack.push_async_callback(connection.close)
        await connection.execute(_TABLE)
        await connection.execute(_FILL, list(range(size)), bodies)
        await connection.execute("CREATE INDEX ON t USING gin (words)")
        await connection.execute("VACUUM ANALYZE t")
        find = await connection.prepare(_FIND)

        async def ask(words: list[str]) -> None:
            await find.fetch(" | ".join(words))

        async def ours(words: list[str]) -> None:
            await u.search(" ".join(words))

        def some(draw: Callable[[random.Random], list[str]]) -> Callable[[], list[tuple[list[str]]]]:
            choose = random.Random(3)
            return lambda: [(draw(choose),) for _ in range(3)]

        rows = []
        for count, (name, draw) in itertools.product((1, 3, 5), DRAWS.items()):
            systems: dict[str, Block] = {
                "gin": awaits(ask, some(partial(draw, count))),
                "dgent": awaits(ours, some(partial(draw, count))),
            }
            times = await interleave(systems, max(plan.read_rounds // 15, 10), pause_s=0)
            work = f"Postgres search for {count_words(count)} {name}, against `ts_rank` and GIN"
            rows.append(compared(work, times, "dgent", "gin", 0.2))
    return rows
