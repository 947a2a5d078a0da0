"""A store in memory under a name: one for all handles of the process, whatever their loop or thread."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dgent
from dgent import Datum, InputError, Query, Universe, sync
from dgent.store.memory import shared
from dgent.store.memory.backend import MemoryBackend
from dgent.testing.scramble import scramble
from tests.sync.program import run


async def test_handles_of_one_name_share_their_records() -> None:
    async with dgent.open("memory:tea") as a, dgent.open("memory:tea") as b, dgent.open("memory:") as other:
        await a.put(Datum(id="x", data={"n": 1}))
        assert (await b.get("x", raw=True)).data == {"n": 1}  # type: ignore[union-attr]
        assert await b.seq() == 1
        assert not await other.exists("x")
        await a.storage.blob.put("key", b"bytes")
        assert await b.storage.blob.get("key") == b"bytes"
    async with dgent.open("memory:tea") as again:
        assert await again.count() == 0, "it ends with the last handle"
    assert shared._named == {}


async def test_a_handle_that_closes_leaves_the_others_alone() -> None:
    async with dgent.open("memory:tea") as a:
        b = await dgent.open("memory:tea")
        await b.put(Datum(id="x", data={}))
        waiting = asyncio.create_task(a.backend.wait(1, 10))
        await asyncio.sleep(0)
        await b.close()
        await b.close()
        assert await a.exists("x")
        await a.put(Datum(id="y", data={}))
        assert await waiting == 2


async def test_a_backend_opened_again_begins_anew() -> None:
    backend = MemoryBackend(wrap=scramble, shared="tea")
    await backend.open()
    await backend.close()
    async with dgent.open("memory:tea") as u:
        await u.put(Datum(id="x", data={}))
        await backend.open()
        assert backend.get_now("x") is not None
        await backend.close()


def test_loops_and_threads_share_a_name() -> None:
    keep = sync.open("memory:tea")

    async def follow(until: int, ready: threading.Event) -> int:
        async with dgent.open("memory:tea") as u:
            seen = 0
            ready.set()
            async for change in u.watch(since=0):
                seen += len(change.items)
                if seen == until:
                    return seen
        raise AssertionError("the feed ended")

    async def write(tag: str) -> None:
        async with dgent.open("memory:tea") as u:

            async def add(n: int) -> None:
                await u.put(Datum(id=f"{tag}-{n}", data={"n": n}, tags={"t"}))
                await u.transact(lambda tx: count(tx), lock="count")

            await asyncio.gather(*map(add, range(20)))

    async def count(tx: Any) -> None:
        found = await tx.get("count", raw=True)
        await tx.put(found.replace(data={"n": found.data["n"] + 1}))

    keep.put(Datum(id="count", data={"n": 0}))
    ready = threading.Event()
    with ThreadPoolExecutor(6) as pool:
        following = pool.submit(asyncio.run, follow(1 + 4 * 20 * 2, ready))
        assert ready.wait(10)
        for work in [pool.submit(asyncio.run, write(str(n))) for n in range(4)]:
            work.result(60)
        assert following.result(60) == 161
    assert keep.get("count", raw=True).data == {"n": 80}
    assert keep.count(Query(tags={"t"})) == 80
    keep.close()
    assert shared._named == {}


def test_a_child_process_begins_with_none() -> None:
    program = """
        import os, sys
        from dgent import Datum, Universe, sync

        place = sync.anywhere("memory:tea")
        u = sync.open("memory:tea")
        place.run(Universe.put, Datum(id="x", data={}))
        child = os.fork()
        if child == 0:
            assert place.run(Universe.count) == 0
            place.run(Universe.put, Datum(id="y", data={}))
            assert sync.open("memory:tea").exists("y")
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(u.exists("x"), u.exists("y"))
    """
    assert run(program) == ["True False"]


@pytest.mark.parametrize("url", ["memory://x", "memory:/x", f"memory:{'x' * 600}", "memory:a\0b"])
def test_a_name_that_cannot_be_one(url: str) -> None:
    with pytest.raises(InputError):
        dgent.open(url)


@pytest.mark.parametrize("name", ["a b", "../x", "?x=1", "名", ":memory:"])
async def test_any_other_name_is_one(name: str) -> None:
    async with dgent.open(f"memory:{name}") as a, dgent.open(f"memory:{name}") as b:
        await a.put(Datum(id="x", data={}))
        assert await b.exists("x")


def test_handles_anywhere_share_a_name() -> None:
    with sync.anywhere("memory:tea") as a, sync.anywhere("memory:tea", author="me") as b:
        a.run(Universe.put, Datum(id="x", data={}))
        assert asyncio.run(b.arun(Universe.exists, "x"))
