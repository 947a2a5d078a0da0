"""A few connections for many tasks: everybody gets a turn, and nobody waits past the timeout."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

import dgent
from dgent.errors import Busy, Closed, Unavailable
from tests.postgres.lease import ask_server
from tests.postgres.load import LATE_S, Load, set_timeout
from tests.postgres.server import Server, with_universe


@pytest.mark.parametrize("pool", [1, 3])
async def test_many_tasks_on_few_connections(url: str, pool: int) -> None:
    async with dgent.open(f"{url}&pool={pool}&timeout=10") as u:
        load = Load(u, f"pool{pool}").start(64)
        await load.reach(1000)
        assert u.backend._require_open().size <= pool
        await load.stop()
        assert not load.refused
        print("\n" + await load.check(u))


async def test_everybody_gets_a_turn(url: str) -> None:
    """One task that asks again at once must not keep the others out."""
    async with dgent.open(f"{url}&pool=1&timeout=5") as u:
        await u.put(dgent.Datum(id="x"))
        turns: Counter[int] = Counter()
        end = time.monotonic() + 0.5

        async def ask(task: int) -> None:
            while time.monotonic() < end:
                await (u.get("x", raw=True) if task % 2 else u.count(dgent.Query()))
                turns[task] += 1

        await asyncio.gather(*(ask(task) for task in range(20)))
        assert len(turns) == 20 and min(turns.values()) * 4 > max(turns.values()), turns


async def test_all_connections_are_taken(url: str) -> None:
    """Whoever finds none in time is told so, and the next one finds what was given back."""
    async with dgent.open(f"{url}&pool=2&timeout=30") as u:
        pool = u.backend._require_open()
        taken = [await pool.take(), await pool.take()]
        set_timeout(u, 1)
        calls = (u.get("x"), u.count(dgent.Query()), u.put(dgent.Datum(id="y")), u.changes(0))
        async with asyncio.timeout(LATE_S):  # nothing is given back before they end
            ends = await asyncio.gather(*calls, return_exceptions=True)
        set_timeout(u, 30)
        assert [type(end) for end in ends] == [Busy, Busy, Unavailable, Busy]
        assert not await asyncio.wait_for(_later(pool, taken, u), LATE_S), "refused, and it happened"
        taken = [await pool.take(), await pool.take()]
        assert "2 connections" in str(ends[0]) and "pool=" in str(ends[0])
        waiting = [asyncio.ensure_future(u.get("x")) for _ in range(3)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        for connection in taken:
            pool.give(connection)
        assert await asyncio.gather(*waiting[1:]) == [None, None]
        assert (await u.put(dgent.Datum(id="z"))).rev == 1 and pool.size == 2


async def _later(pool: Any, taken: list[Any], u: Any) -> bool:
    """Whether the put happens after all, once there are connections again."""
    for connection in taken:
        pool.give(connection)
    await u.put(dgent.Datum(id="after"))
    exists: bool = await u.exists("y")
    return exists


async def test_cancelled_while_waiting_for_a_turn(url: str) -> None:
    """A turn that comes to a task that has just left goes to the next one."""
    async with dgent.open(f"{url}&pool=1&timeout=60") as u:
        pool = u.backend._require_open()
        for giving in (pool.give, pool.drop):
            for turns in range(4):
                connection = await pool.take()
                first = asyncio.ensure_future(u.get("x"))
                second = asyncio.ensure_future(u.get("x"))
                await asyncio.sleep(0.01)
                giving(connection)
                for _ in range(turns):
                    await asyncio.sleep(0)
                first.cancel()
                await asyncio.wait_for(second, LATE_S)
                await asyncio.gather(first, return_exceptions=True)
                assert pool.size <= 1 and not pool._out and not pool._making


async def test_closed_while_others_wait(url: str) -> None:
    u = await dgent.open(f"{url}&pool=1&timeout=5").open()
    pool = u.backend._require_open()
    await pool.take()
    waiting = [asyncio.ensure_future(pool.take()) for _ in range(3)]
    await asyncio.sleep(0.01)
    await u.close()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [Closed] * 3


async def test_the_server_has_no_room(make_server: Callable[..., Server]) -> None:
    """More connections are wanted than the server has: the calls share what there is."""
    server = make_server(max_connections="6", superuser_reserved_connections="0", reserved_connections="0")
    url = with_universe(server.create().start().url, "u", timeout=15, pool=5)
    universes = [await dgent.open(url).open() for _ in range(3)]
    try:
        loads = [Load(u, f"{n}", pause_s=0.005).start(8) for n, u in enumerate(universes)]
        reads = [u.count(dgent.Query()) for u in universes for _ in range(10)]
        await asyncio.gather(*reads)
        for load in loads:
            await load.reach(50)
        for load in loads:
            await load.stop()
        for load in loads:
            assert not load.refused
            await load.check(universes[0])
    finally:
        for u in universes:
            await u.close()


async def test_types_are_asked_for_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the universe was dropped and made anew, when its types are others."""
    asked: list[int] = []
    ask = asyncpg.Connection._introspect_types

    async def count(connection: Any, typeoids: Any, timeout: float | None) -> Any:
        asked.append(len(typeoids))
        return await ask(connection, typeoids, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", count)
    own = with_universe(url.partition("?")[0], "types_once")
    for turn in range(2):
        for number in range(3):
            if number == 1:
                asked.clear()
            async with dgent.open(own) as u:
                await u.put(dgent.Datum(id=f"x{number}", data={"n": number}))
                found = await u.query(dgent.Query(limit=None))
                assert sorted(each.id for each in found) == [f"x{each}" for each in range(number + 1)], turn
        assert not asked
        ask_server("DROP SCHEMA types_once CASCADE")
