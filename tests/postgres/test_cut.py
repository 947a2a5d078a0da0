"""The network between fails: connections are cut, bytes are held back, bytes are lost."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

import dgent
from dgent.errors import Unavailable
from tests.postgres.load import LATE_S, Load, set_timeout
from tests.postgres.proxy import Proxy


async def test_connections_cut_under_load(url: str) -> None:
    async with Proxy(url) as proxy, dgent.open(proxy.url) as u:
        load = Load(u, "cut").start()
        reads = [asyncio.ensure_future(_reading(u, load)) for _ in range(4)]
        cuts = 0
        for turn in range(40):
            await load.reach(turn * 10)
            await asyncio.sleep(random.uniform(0, 0.03))
            cuts += proxy.cut()
        await load.reach(len(load.told) + 100)
        await load.stop()
        slowest = max(await asyncio.gather(*reads))
        assert cuts >= 40 and slowest < 5 and not load.refused
        print(f"\n{cuts} connections cut; {await load.check(u)}")


@pytest.mark.parametrize("lose", [False, True], ids=["held", "lost"])
async def test_a_black_hole_of_three_seconds(url: str, lose: bool) -> None:
    """Whether the bytes come late or never, the calls that were under way come to an end."""
    async with Proxy(url) as proxy, dgent.open(f"{proxy.url}&timeout=6") as u:
        load = Load(u, "hole").start()
        await load.reach(100)
        reads = [asyncio.ensure_future(_reading(u, load)) for _ in range(4)]
        await asyncio.sleep(0.05)
        async with proxy.hole(lose=lose):
            await asyncio.sleep(3)
        before = len(load.told)
        await load.reach(before + 100)
        await load.stop()
        slowest = max(await asyncio.gather(*reads))
        assert max(load.longest_s, slowest) < 7.5
        assert not load.refused, "the hole was shorter than the timeout"
        print(f"\n{await load.check(u)}, longest read {slowest:.2f} s")


async def _reading(u: dgent.Universe, load: Load) -> float:
    """Read until the load ends; the longest that one read took."""
    longest = 0.0
    while not load._stop:
        began = time.monotonic()
        await random.choice((lambda: u.get("hole.1.2"), u.seq, lambda: u.query(dgent.Query(limit=3))))()
        longest = max(longest, time.monotonic() - began)
        await asyncio.sleep(0.01)
    return longest


async def test_connecting_into_a_black_hole(url: str) -> None:
    """An attempt to connect that is not answered is not the end of the call's time."""
    async with Proxy(url) as proxy, dgent.open(f"{proxy.url}&timeout=3") as u:
        await u.put(dgent.Datum(id="x"))
        u.backend._require_open().drop_idle()
        async with proxy.hole(lose=True):
            calls = (u.get("x"), u.count(dgent.Query()), u.put(dgent.Datum(id="y")))
            ends = asyncio.gather(*calls)
            await asyncio.sleep(1.3)
        crystal, count, put = await ends
        assert crystal is not None and count in (1, 2) and put.rev == 1


async def test_a_black_hole_for_good(url: str) -> None:
    """No call hangs past its timeout, nor does closing; what was not acknowledged happened once at most."""
    async with dgent.open(url) as direct:
        async with Proxy(url) as proxy:
            u = await dgent.open(proxy.url).open()
            set_timeout(u, 1)
            load = Load(u, "gone").start(32)
            await load.reach(100)
            async with proxy.hole(lose=True):
                await asyncio.sleep(0.1)
                calls = (
                    u.get("x"),
                    u.count(dgent.Query()),
                    u.changes(0),
                    u.forget("x"),
                    u.query(dgent.Query()),
                )
                began = time.monotonic()
                ends = await asyncio.gather(*calls, return_exceptions=True)
                took = time.monotonic() - began
                assert [type(end) for end in ends] == [Unavailable] * 5 and took < LATE_S
                load._stop = True
                await asyncio.sleep(1.1)
                for task in load._tasks:
                    task.cancel()
                await asyncio.gather(*load._tasks, return_exceptions=True)
                assert load.longest_s < LATE_S
                await asyncio.wait_for(u.close(), LATE_S)
        seqs = await _feed_of(direct, load)
        assert load.told.keys() <= seqs.keys() and all(len(found) == 1 for found in seqs.values())


async def _feed_of(u: dgent.Universe, load: Load) -> dict[str, list[int]]:
    seqs: dict[str, list[int]] = {}
    for change in await u.changes(0, limit=10_000):
        for item in change.items:
            seqs.setdefault(str(item.id), []).append(change.seq)
    return seqs


async def test_waiting_through_a_black_hole(url: str) -> None:
    """A watcher is not stuck: it waits no longer than it said, and hears again afterwards."""
    async with (
        Proxy(url) as proxy,
        dgent.open(f"{proxy.url}&timeout={3 * LATE_S}") as u,
        dgent.open(url) as other,
    ):
        assert await u.backend.wait(0, 0.05) == 0
        async with proxy.hole(lose=True):
            assert await asyncio.wait_for(u.backend.wait(0, 0.5), LATE_S) == 0
            await other.put(dgent.Datum(id="news"))
        assert await asyncio.wait_for(u.backend.wait(0, 3 * LATE_S), LATE_S) == 1


async def test_a_store_that_never_answers(url: str) -> None:
    """Opening ends in time, too."""
    async with Proxy(url) as proxy, proxy.hole():
        with pytest.raises(Unavailable):
            await asyncio.wait_for(dgent.open(f"{proxy.url}&timeout=1").open(), LATE_S)


async def test_a_silent_read_is_asked_again_elsewhere(url: str) -> None:
    """Reads have no timers of their own: one look over all of them breaks what is silent too long."""
    async with Proxy(url) as proxy, dgent.open(f"{proxy.url}&timeout=30&pool=4") as u:
        await u.put(dgent.Datum(id="x"))
        await asyncio.gather(*(u.get("x") for _ in range(8)))
        pool = u.backend._require_open()
        set_timeout(u, 6)
        began = time.monotonic()
        async with proxy.hole(lose=True):
            reads = [asyncio.ensure_future(u.get("x")) for _ in range(4)]
            await asyncio.sleep(0.3)
            assert not any(read.done() for read in reads) and len(pool._out) == 4
        # A third of the timeout, then another connection: past the whole of it they would raise.
        found = await asyncio.gather(*reads)
        assert [each.id for each in found] == ["x"] * 4 and time.monotonic() - began > 1.9
        assert not pool._out
        await asyncio.sleep(2.3)  # a look that was due for a read long since answered breaks nothing
        kept = set(pool._idle)
        assert not pool._looking
        assert (await u.get("x")).id == "x" and set(pool._idle) == kept


async def test_a_transaction_in_a_black_hole(url: str) -> None:
    """To leave it the driver would wait for the server to hear of that: not longer than the call has."""
    async with Proxy(url) as proxy, AsyncExitStack() as holes, dgent.open(proxy.url) as u:
        set_timeout(u, 1)

        async def work(connection: Any) -> None:
            async with connection.transaction():
                await holes.enter_async_context(proxy.hole(lose=True))
                await connection.fetch("SELECT 1")

        with pytest.raises(Unavailable):
            await asyncio.wait_for(u.backend._require_open().call(work), LATE_S)
        await asyncio.wait_for(u.close(), LATE_S)
