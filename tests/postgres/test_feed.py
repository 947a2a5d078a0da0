"""The feed has every commit, in order and once, whoever commits meanwhile and whatever is not heard."""

from __future__ import annotations

import asyncio
from collections import Counter
from urllib.parse import urlsplit

import asyncpg
import pytest

import dgent
from dgent.store.postgres import listen
from tests.fault.nursery import Nursery
from tests.postgres.load import LATE_S

PROCESSES = 8
TASKS = 8
EACH = 6


async def test_a_reader_follows_eight_writers(url: str) -> None:
    """It asks for what is after the last seq it saw, so a seq that appears late would be missed."""
    with Nursery("tests.postgres.jobs") as nursery:
        async with dgent.open(url) as by_asking, dgent.open(url) as by_watching:
            done = asyncio.Event()
            asking = asyncio.ensure_future(_ask(by_asking, done))
            watching = asyncio.ensure_future(_watch(by_watching, PROCESSES * TASKS * EACH))
            args = {"url": url, "tasks": TASKS, "each": EACH}
            workers = [nursery.start("crowd", name=f"p{i}", **args) for i in range(PROCESSES)]
            told = await asyncio.to_thread(nursery.finish, *workers)
            done.set()
            commits = sum(each["commits"] for each in told)
            assert commits == PROCESSES * TASKS * EACH
            for found in await asyncio.wait_for(asyncio.gather(asking, watching), 20):
                seqs = [seq for seq, _ in found]
                assert seqs == list(range(1, commits + 1)), "a commit was missed or came twice"
                ids = Counter(id for _, ids in found for id in ids)
                assert set(ids.values()) == {1} and len(ids) == await by_asking.count(dgent.Query())
                _check_whole(ids)
    print(f"\n{commits} commits of {PROCESSES} processes followed, none missed")


def _check_whole(ids: Counter[str]) -> None:
    per_task = Counter(id.rsplit(".", 2)[0] for id in ids if id.endswith(".0"))
    assert set(per_task.values()) == {EACH} and len(per_task) == PROCESSES * TASKS


async def _ask(u: dgent.Universe, done: asyncio.Event) -> list[tuple[int, list[str]]]:
    found: list[tuple[int, list[str]]] = []
    while True:
        last_round = done.is_set()
        changes = await u.changes(found[-1][0] if found else 0, limit=7)
        found += [(change.seq, [str(item.id) for item in change.items]) for change in changes]
        if last_round and not changes:
            return found
        await asyncio.sleep(0.001)


async def _watch(u: dgent.Universe, until: int) -> list[tuple[int, list[str]]]:
    found: list[tuple[int, list[str]]] = []
    async for change in u.watch(0):
        found.append((change.seq, [str(item.id) for item in change.items]))
        if change.seq == until:
            break
    return found


async def _listeners(admin: asyncpg.Connection, universe: str) -> list[int]:
    sql = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND query LIKE $1"
    return [pid for (pid,) in await admin.fetch(sql, f"%dgent_{universe}%")]


async def test_a_notification_that_is_not_heard(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever listens is cut off: the news come a little later, and soon as quickly as before."""
    universe = urlsplit(url).query.partition("=")[2]
    admin = await asyncpg.connect(url.partition("?")[0])
    async with dgent.open(url) as u, dgent.open(url) as other:
        waiting = asyncio.ensure_future(u.backend.wait(0, 3 * LATE_S))
        while not (pids := await _listeners(admin, universe)):
            await asyncio.sleep(0.01)
        assert len(pids) == 1
        await admin.execute("SELECT pg_terminate_backend($1)", pids[0])
        await other.put(dgent.Datum(id="1"))
        assert await asyncio.wait_for(waiting, LATE_S) == 1
        # Nobody listens for some seconds now; looking every now and then is enough.
        waiting = asyncio.ensure_future(u.backend.wait(1, 3 * LATE_S))
        await asyncio.sleep(0.05)
        await other.put(dgent.Datum(id="2"))
        assert await asyncio.wait_for(waiting, LATE_S) == 2
        u.backend._listener._retry_at = 0
        monkeypatch.setattr(listen, "LOOK_S", 10.0 * LATE_S)  # only the notification is quicker
        waiting = asyncio.ensure_future(u.backend.wait(2, 3 * LATE_S))
        while not await _listeners(admin, universe):
            await asyncio.sleep(0.01)
        await other.put(dgent.Datum(id="3"))
        assert await asyncio.wait_for(waiting, LATE_S) == 3
    await admin.close()
