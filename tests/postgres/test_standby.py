"""The primary is lost and the standby promoted: clients follow, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import dgent
from dgent.errors import Unavailable
from dgent.store.postgres.address import address_of, one_by_one
from tests.postgres.load import Load
from tests.postgres.pair import Pair, until
from tests.postgres.proxy import Proxy
from tests.postgres.server import with_universe

FOLLOWS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair(synchronous=True).start()
    yield pair
    pair.remove()


async def test_clients_follow_the_promoted_standby(pair: Pair) -> None:
    await until(pair.primary, FOLLOWS, 1)
    async with dgent.open(with_universe(pair.url, "u", timeout=20)) as u:
        load = Load(u, "standby").start()
        await load.reach(300)
        watching = asyncio.ensure_future(_watch(u, load))
        await asyncio.to_thread(pair.primary.kill)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(pair.promote)
        before = len(load.told)
        await load.reach(before + 300)
        await load.stop()
        assert not load.refused and load.longest_s < 20
        print(f"\n{before} acknowledged before the standby took over; {await load.check(u)}")
        await u.put(dgent.Datum(id="last"))  # the watcher looks whether all ended when something comes
        assert await watching, "the watcher missed a commit"
    # Whoever comes later finds the right one, too: the first of the URL is away.
    async with dgent.open(with_universe(pair.url, "u", timeout=20)) as u:
        await load.check(u)
        await u.put(dgent.Datum(id="later"))


async def _watch(u: dgent.Universe, load: Load) -> bool:
    """Follow the feed until it has all that was told."""
    seqs: set[int] = set()
    async for change in u.watch(0):
        seqs.add(change.seq)
        if load._stop and all(task.done() for task in load._tasks) and seqs >= set(load.told.values()):
            return seqs == set(range(1, change.seq + 1))
    return False


async def test_a_primary_that_falls_silent(pair: Pair) -> None:
    """Its machine is gone and nothing says so: connections are neither refused nor cut."""
    await until(pair.primary, FOLLOWS, 1)
    async with Proxy(pair.primary.url) as proxy:
        hosts = f"127.0.0.1:{proxy.port},127.0.0.1:{pair.standby.port}"
        url = with_universe(f"postgresql://postgres@{hosts}/postgres", "u", timeout=9)
        hasty = await dgent.open(with_universe(pair.url, "u", timeout=2)).open()
        async with dgent.open(url) as u:
            load = Load(u, "silent").start()
            await load.reach(200)
            async with proxy.hole(lose=True):
                await asyncio.to_thread(pair.primary.kill)
                await _nobody_takes_writes(hasty)
                await asyncio.to_thread(pair.promote)
                await load.reach(len(load.told) + 100)
                await load.stop()
                assert load.longest_s < 10.5
                print("\n" + await load.check(u))
                assert (await hasty.put(dgent.Datum(id="z"))).rev == 1
        await hasty.close()


async def _nobody_takes_writes(u: dgent.Universe) -> None:
    """With the primary away and nobody promoted, calls end in time with dgent's own error."""
    for call in (u.put(dgent.Datum(id="y")), u.get("x"), u.count(dgent.Query())):
        with pytest.raises(Unavailable):
            await asyncio.wait_for(call, 4)


def test_a_url_of_several_servers() -> None:
    address = address_of("postgresql://me:pw%40@h1:1,[::1]:2,h3/db?universe=u&sslmode=require")
    assert one_by_one(address.dsn) == [
        f"postgresql://me:pw%40@{host}/db?sslmode=require" for host in ("h1:1", "[::1]:2", "h3")
    ]
    assert "pw" not in address.place
