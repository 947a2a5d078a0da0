"""Statements on the caller's own tables, beside the same statements by hand on apsw and asyncpg."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import asyncpg

import dgent
from bench.measure import Row, awaits, compared, interleave, say
from bench.plan import Plan
from bench.postgres.databases import Databases
from bench.stores import Stores

_GOAL = 1.15
_ROWS, _EACH = 2_000, 300
_CREATE = "CREATE TABLE prices (id BIGINT PRIMARY KEY, item TEXT, cents BIGINT)"
_PUT = "INSERT INTO prices VALUES (:id, :item, :cents)"
_GET = "SELECT id, item, cents FROM prices WHERE id = :id"
_SET = "UPDATE prices SET cents = :cents WHERE id = :id"
_LINES = [{"id": n, "item": f"item {n}", "cents": n} for n in range(_ROWS)]

Call = Callable[[int], Awaitable[Any]]


async def relational(plan: Plan, stores: Stores) -> list[Row]:
    """Measure a statement that reads and one that writes, by the clock, with their waits."""
    say("  own tables")
    values = itertools.count(_ROWS)  # SQLite writes nothing where a row has the value already
    with TemporaryDirectory() as folder:
        async with dgent.open(f"sqlite:///{folder}/store.db") as u:
            tables = u.storage.relational
            await tables.execute(_CREATE)
            await tables.execute_many(_PUT, _LINES)
            hand = apsw.Connection(f"{folder}/hand.db", statementcachesize=128)
            hand.execute("PRAGMA journal_mode = WAL")
            hand.execute("PRAGMA synchronous = FULL")
            hand.execute(_CREATE)
            with hand:
                hand.executemany(_PUT, _LINES)

            async def get(n: int) -> Any:
                cursor = hand.execute(_GET, {"id": n})
                names = [column[0] for column in cursor.get_description()]
                return [dict(zip(names, row, strict=True)) for row in cursor]

            async def change(n: int) -> Any:
                return hand.execute(_SET, {"id": n, "cents": next(values)})

            rows = [
                await _compare(
                    plan, "a row by key / apsw by hand", lambda n: tables.fetch_all(_GET, {"id": n}), get
                ),
                await _compare(
                    plan,
                    "a row changed and durable / apsw by hand",
                    lambda n: tables.execute(_SET, {"id": n, "cents": next(values)}),
                    change,
                ),
            ]
            hand.close()
    return rows + await _on_postgres(plan)


async def _on_postgres(plan: Plan) -> list[Row]:
    values = itertools.count(_ROWS)
    async with Databases() as databases:
        url = await databases.copy()
        hand = await asyncpg.connect(url)
        async with dgent.open(url) as u:
            tables = u.storage.relational
            await tables.execute(_CREATE)
            await tables.execute_many(_PUT, _LINES)
            await hand.execute(_CREATE)
            await hand.executemany(
                "INSERT INTO prices VALUES ($1, $2, $3)", [tuple(n.values()) for n in _LINES]
            )

            async def get(n: int) -> Any:
                found = await hand.fetch("SELECT id, item, cents FROM prices WHERE id = $1", n)
                return [dict(row) for row in found]

            rows = [
                await _compare(
                    plan, "a row by key / asyncpg by hand", lambda n: tables.fetch_all(_GET, {"id": n}), get
                ),
                await _compare(
                    plan,
                    "a row changed and durable / asyncpg by hand",
                    lambda n: tables.execute(_SET, {"id": n, "cents": next(values)}),
                    lambda n: hand.execute("UPDATE prices SET cents = $1 WHERE id = $2", next(values), n),
                ),
            ]
        await hand.close()
    return rows


async def _compare(plan: Plan, work: str, ours: Call, hand: Call) -> Row:
    numbers = itertools.count()

    def draw() -> list[tuple[int]]:
        return [(next(numbers) % _ROWS,) for _ in range(_EACH)]

    times = await interleave({"dgent": awaits(ours, draw), "hand": awaits(hand, draw)}, plan.rounds)
    return compared(work, times, "dgent", "hand", _GOAL)
