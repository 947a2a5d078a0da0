"""The server is stopped, killed and started again while tasks write: they go on as if nothing happened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import dgent
from dgent.errors import Unavailable
from tests.postgres.load import LATE_S, Load, set_timeout
from tests.postgres.server import Server, with_universe


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_restarted_under_load(server: Server, how: str) -> None:
    url = with_universe(server.url, how, timeout=30)
    async with dgent.open(url) as u:
        load = Load(u, how).start()
        for turn in range(1, 4):
            await load.reach(turn * 200)
            await asyncio.to_thread(getattr(server, how))
            await asyncio.sleep(0.2)
            await asyncio.to_thread(server.start)
        await load.reach(len(load.told) + 200)
        await load.stop()
        assert not load.refused, "an outage shorter than the timeout is nobody's business"
        assert load.longest_s < 30
        print("\n" + await load.check(u))
    async with dgent.open(url) as u:
        await load.check(u)


async def test_reads_across_a_restart(server: Server) -> None:
    async with dgent.open(with_universe(server.url, "reads", timeout=30)) as u:
        await u.put_many([dgent.Datum(id=f"{i}", data={"n": i}) for i in range(20)])
        await asyncio.to_thread(server.stop)
        reads = [
            asyncio.ensure_future(call)
            for call in (
                u.get("3", raw=True),
                u.query(dgent.Query(limit=50), raw=True),
                u.count(dgent.Query()),
                u.changes(0),
                u.history("3"),
                u.seq(),
            )
        ]
        await asyncio.sleep(0.1)
        await asyncio.to_thread(server.start)
        one, page, count, changes, history, seq = await asyncio.gather(*reads)
        assert one.data == {"n": 3} and len(page) == 20 and count == 20
        assert len(changes) == 1 and len(history) == 1 and seq == 1


async def test_a_server_that_stays_away(server: Server) -> None:
    """Every call ends in time, says so in dgent's words, and works again when the server is back."""
    async with dgent.open(with_universe(server.url, "away", timeout=30)) as u:
        await u.put(dgent.Datum(id="before"))
        set_timeout(u, 1)
        await asyncio.to_thread(server.stop)
        calls = {
            "get": lambda: u.get("before"),
            "put": lambda: u.put(dgent.Datum(id="x")),
            "query": lambda: u.query(dgent.Query(limit=5)),
            "count": lambda: u.count(dgent.Query()),
            "changes": lambda: u.changes(0),
            "forget": lambda: u.forget("nobody"),
            "seq": u.seq,
        }
        took = await asyncio.gather(*(_fails(call) for call in calls.values()))
        assert max(took) < LATE_S, dict(zip(calls, took, strict=True))
        set_timeout(u, 30)
        await asyncio.to_thread(server.start)
        assert (await u.get("before", raw=True)).rev == 1
        assert not await u.exists("x")


async def _fails(call: Callable[[], Awaitable[Any]]) -> float:
    """How long it took to fail."""
    began = time.monotonic()
    with pytest.raises(Unavailable):
        await call()
    return time.monotonic() - began
