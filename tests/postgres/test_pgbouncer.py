"""Behind PgBouncer in transaction mode: each transaction may meet another connection of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import InputError
from tests.postgres.bouncer import Bouncer, program
from tests.postgres.known_gaps import skip
from tests.postgres.lease import url_for
from tests.postgres.load import LATE_S, Load


@pytest.fixture
def bouncer(tmp_path: Path) -> Iterator[Bouncer]:
    if program() is None:
        skip("pgbouncer")
    bouncer = Bouncer(url_for(tmp_path)).start()
    yield bouncer
    bouncer.remove()


async def test_load_through_a_pooler(bouncer: Bouncer) -> None:
    """More tasks and connections than the pooler has, from two handles; then it is killed and is back."""
    async with dgent.open(bouncer.url) as u, dgent.open(bouncer.url) as other:
        loads = [Load(u, "one").start(), Load(other, "two").start()]
        reads = asyncio.gather(*(_read_along(u, loads[0]) for _ in range(6)))
        for turn in range(1, 3):
            for load in loads:
                await load.reach(turn * 100)
            await asyncio.to_thread(bouncer.stop)
            await asyncio.sleep(0.1)
            await asyncio.to_thread(bouncer.start)
        for load in loads:
            await load.reach(len(load.told) + 100)
        for load in loads:
            await load.stop()
        for load in loads:
            assert not load.refused
            print("\n" + await load.check(u))
        await reads


async def _read_along(u: Any, load: Load) -> None:
    while not load._stop:
        await u.query(dgent.Query(where={"load": "one"}, limit=3))
        await u.get("one.1.2", raw=True)
        await u.count(dgent.Query(prefix="one.1."))
        await asyncio.sleep(0.01)


async def test_everything_works_through_a_pooler(bouncer: Bouncer) -> None:
    async with dgent.open(bouncer.url) as u:
        await u.put_many([dgent.Datum(id=f"bulk.{i}", data={"n": i}) for i in range(1500)])

        async def work(tx: Any) -> None:
            one = await tx.get("bulk.1", raw=True)
            await tx.put(dgent.Datum(id=one.id, data={"n": one.data["n"] + 1}))

        await u.transact(work)
        assert (await u.get("bulk.1", raw=True)).data == {"n": 2}
        assert await u.count(dgent.Query(where={"n": {"$gte": 1000}})) == 500
        found = await u.query(dgent.Query(where={"n": 700}), raw=True)
        assert [each.id for each in found] == ["bulk.700"]
        assert (await u.forget("bulk.5")).records == 1
        await u.compact(1)
        assert len(await u.changes(0)) == await u.seq()


async def test_news_come_without_notifications(bouncer: Bouncer) -> None:
    async with dgent.open(bouncer.url) as u, dgent.open(bouncer.url) as other:
        waiting = asyncio.ensure_future(u.backend.wait(0, 3 * LATE_S))
        await asyncio.sleep(0.2)
        await other.put(dgent.Datum(id="news"))
        assert await asyncio.wait_for(waiting, LATE_S) == 1


def test_what_a_pooler_cannot_pass_on_is_refused() -> None:
    with pytest.raises(InputError):
        dgent.open("postgresql://u@h/d?pgbouncer=1", durability="relaxed")
    with pytest.raises(InputError):
        dgent.open("postgresql://u@h/d?pgbouncer=maybe")


async def test_searches_through_a_pooler(bouncer: Bouncer) -> None:
    """A search is two statements, and each may meet another connection; records are written meanwhile."""
    note = dgent.Schema("note", text=("body",))

    async def write(u: Any, name: str) -> None:
        for number in range(40):
            await u.remember({"body": f"shared {name} number{number}"}, schema="note", id=f"{name}.{number}")
            if number % 10 == 9:
                await u.backend.fill("note", u.contracts)
            (hit, *_) = await u.search(f"{name} number{number}", k=3)
            assert hit.id == f"{name}.{number}"

    async def look(u: Any) -> None:
        seen = 0
        for _ in range(25):
            found = [hit.id for hit in await u.search("shared", k=1000)]
            assert len(found) == len(set(found)) >= seen
            seen = len(found)
            assert len(await u.search('"shared one"', k=1000)) <= 40

    async with dgent.open(bouncer.url) as u, dgent.open(bouncer.url) as other:
        u.register(note)
        other.register(note)
        await asyncio.gather(write(u, "one"), write(other, "two"), *(look(each) for each in (u, other, u)))
        await u.indexed()
        for handle in (u, other):
            found = [hit.id for hit in await handle.search("shared", k=1000)]
            assert len(found) == len(set(found)) == 80
