"""Reads from a replica: it answers when it has what the reader knows of, and the primary otherwise."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import dgent
from dgent.errors import Unavailable
from dgent.store.engine import fold
from tests.postgres.load import LATE_S
from tests.postgres.pair import Pair, ask, until
from tests.postgres.server import Server, with_universe


@pytest.fixture(scope="module")
def _pair() -> Iterator[Pair]:
    pair = Pair(synchronous=False).start()
    yield pair
    pair.remove()


@pytest.fixture
def pair(_pair: Pair) -> Iterator[Pair]:
    yield _pair
    # One that a test started on another thread ends with that thread.
    _pair.standby.kill()
    _pair.standby.start()


async def _busy(server: Server) -> int:
    """How many connections of dgent a server has."""
    count: int = await ask(server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dgent'")
    return count


def _url(pair: Pair, universe: str = "u", **options: Any) -> str:
    return with_universe(pair.primary.url, universe, read_url=quote(pair.standby.url, safe=""), **options)


async def test_read_your_writes(pair: Pair) -> None:
    """The replica follows, lags, is killed and comes back: every read has every write before it."""
    async with dgent.open(_url(pair, timeout=10)) as u:
        await u.put(dgent.Datum(id="x", data={"n": 0}))
        await until(pair.standby, "SELECT count(*) FROM pg_namespace WHERE nspname = 'u'", 1)
        for n in range(30):
            await u.put(dgent.Datum(id="x", data={"n": n}))
            await _sees(u, n)
        assert await _busy(pair.standby) > 0, "nothing was read from the replica"

        await ask(pair.standby, "SELECT pg_wal_replay_pause()")
        began = time.monotonic()
        for n in range(30, 33):
            await u.put(dgent.Datum(id="x", data={"n": n}))
            await _sees(u, n)
        assert time.monotonic() - began < 8, "a replica that lags must not hold up every read"
        # Who knows of nothing newer may be told what the replica has.
        async with dgent.open(_url(pair)) as other:
            assert (await other.get("x", raw=True)).data["n"] in (29, 32)
        await ask(pair.standby, "SELECT pg_wal_replay_resume()")

        await asyncio.to_thread(pair.standby.kill)
        began = time.monotonic()
        for n in range(33, 40):
            await u.put(dgent.Datum(id="x", data={"n": n}))
            await _sees(u, n)
        assert time.monotonic() - began < LATE_S, "a replica that is gone must not hold up every read"

        await asyncio.to_thread(pair.standby.start)
        u.backend._replica._leave_until = 0
        await until(pair.standby, 'SELECT seq FROM "u".clock', await u.seq())
        await _sees(u, 39)
        assert await _busy(pair.standby) > 0, "the replica that is back is not used"


async def _sees(u: Any, n: int) -> None:
    assert (await u.get("x", raw=True)).data == {"n": n}
    assert [each.data["n"] for each in await u.query(dgent.Query(where={"n": n}), raw=True)] == [n]
    assert await u.count(dgent.Query(where={"n": n})) == 1
    assert len(await u.changes(n)) >= 1


async def test_a_watcher_hears_at_once(pair: Pair) -> None:
    """What it is told of it can read, though the replica may not have it yet."""
    async with dgent.open(_url(pair, "w")) as u, dgent.open(with_universe(pair.primary.url, "w")) as writer:
        await writer.put(dgent.Datum(id="first"))
        heard: list[float] = []

        async def watch() -> None:
            async for change in u.watch(0):
                for item in change.items:
                    assert await u.exists(item.id)
                    heard.append(time.monotonic())
                if change.seq == 6:
                    return

        watching = asyncio.ensure_future(watch())
        told = []
        for n in range(5):
            await asyncio.sleep(0.1)
            told.append(time.monotonic())
            await writer.put(dgent.Datum(id=f"{n}"))
        await asyncio.wait_for(watching, 10)
        assert len(heard) == 6


async def test_a_standby_opened_by_itself(pair: Pair) -> None:
    """It can be read; a write is refused in time, in dgent's words."""
    async with dgent.open(with_universe(pair.primary.url, "s")) as u:
        await u.put(dgent.Datum(id="x", data={"n": 1}))
    await until(pair.standby, "SELECT seq FROM s.clock", 1)
    async with dgent.open(with_universe(pair.standby.url, "s", timeout=3)) as u:
        assert (await u.get("x", raw=True)).data == {"n": 1}
        assert len(await u.query(dgent.Query(where={"n": 1}), raw=True)) == 1 and len(await u.changes(0)) == 1
        with pytest.raises(Unavailable):
            await u.put(dgent.Datum(id="y"))


async def test_searches_from_a_replica(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two statements of a search may be answered by two servers: what is found is of one moment."""
    note = dgent.Schema("note", text=("body",))
    monkeypatch.setattr(fold, "RUN_LEAST", 4)
    async with dgent.open(_url(pair, "f", timeout=10)) as u:
        u.register(note)
        await u.schemas()
        await until(pair.standby, "SELECT count(*) FROM pg_namespace WHERE nspname = 'f'", 1)

        async def write_and_search(numbers: range) -> None:
            for number in numbers:
                body = f"shared words number{number}"
                await u.remember({"body": body}, schema="note", id=f"n{number}")
                await u.remember({"body": f"moving to place{number}"}, schema="note", id="mover")
                if number % 6 == 5:
                    await u.backend.fill("note", u.contracts)
                assert [hit.id for hit in await u.search(f"number{number}")] == [f"n{number}"]
                assert [hit.id for hit in await u.search(f"place{number} place{number - 1}")] == ["mover"]
                assert await u.search(f"place{number - 1}") == []
                found = [hit.id for hit in await u.search("shared", k=1000)]
                assert sorted(found) == sorted(f"n{each}" for each in range(number + 1))

        await write_and_search(range(20))
        assert await _busy(pair.standby) > 0, "nothing was read from the replica"
        await ask(pair.standby, "SELECT pg_wal_replay_pause()")
        await write_and_search(range(20, 23))
        await ask(pair.standby, "SELECT pg_wal_replay_resume()")
        await asyncio.to_thread(pair.standby.kill)
        await write_and_search(range(23, 28))
        await asyncio.to_thread(pair.standby.start)
        u.backend._replica._leave_until = 0
        await until(pair.standby, 'SELECT seq FROM "f".clock', await u.seq())
        await write_and_search(range(28, 32))
        assert await _busy(pair.standby) > 0, "the replica that is back is not used"


async def test_a_standby_opened_by_itself_is_searched(pair: Pair) -> None:
    """It cannot begin or fold an index; it finds what waits all the same."""
    note = dgent.Schema("note", text=("body",))
    async with dgent.open(with_universe(pair.primary.url, "g")) as u:
        u.register(note)
        for number in range(40):
            await u.remember({"body": f"shared number{number}"}, schema="note", id=f"n{number}")
            await u.put(dgent.Datum(id=f"p{number}", data={"text": f"plain number{number}"}))
        newest = await u.seq()
    await until(pair.standby, "SELECT seq FROM g.clock", newest)
    async with dgent.open(with_universe(pair.standby.url, "g", timeout=3)) as u:
        for _ in range(3):
            assert len(await u.search("shared", k=100)) == 40
            assert sorted(hit.id for hit in await u.search("number7")) == ["n7", "p7"]
