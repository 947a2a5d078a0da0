"""Functions that begin on the thread of their caller, and go on elsewhere when they have to wait."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dgent import Datum, Query, Universe, VersionConflict, sync
from dgent.errors import Closed
from dgent.store.backend import Put
from dgent.sync.handle import begin_anywhere
from dgent.sync.runner import runner


def datum(id: str, number: int = 0) -> Datum:
    return Datum(id=id, data={"n": number}, schema="note", schema_version=1)


@begin_anywhere
async def put_next(u: Universe, id: str) -> int:
    """Count up a record, in as many attempts as it takes."""
    while True:
        found = await u.get(id, raw=True)
        number = 1 if found is None else found.data["n"] + 1
        try:
            await u.commit([Put(datum(id, number), 0 if found is None else found.rev)])
            return number
        except VersionConflict:
            continue


@begin_anywhere
async def read_all(u: Universe, threads: list[int]) -> int:
    threads.append(threading.get_ident())
    found = await u.query(Query(schema="note", where={"n": {"$gte": 0}}, limit=None), raw=True)
    threads.append(threading.get_ident())
    return len(found)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db"


async def test_short_work_never_comes_to_the_loop(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sync.anywhere(url) as handle:

        def refuse(*_: object) -> None:
            raise AssertionError("this went to the loop")

        monkeypatch.setattr(runner(), "submit", refuse)
        for number in range(1, 6):
            assert await handle.arun(put_next, "a") == 2 * number - 1
            assert await asyncio.to_thread(handle.run, put_next, "a") == 2 * number
        threads: list[int] = []
        assert await handle.arun(read_all, threads) == 1
        assert threads == [threading.get_ident()] * 2
        monkeypatch.undo()


async def test_a_long_read_goes_on_on_the_loop(url: str) -> None:
    async with sync.anywhere(url) as handle:
        await handle.arun(Universe.put_many, [datum(f"r{n}", n) for n in range(300)])
        for call in (handle.arun, lambda *given: asyncio.to_thread(handle.run, *given)):
            threads: list[int] = []
            assert await call(read_all, threads) == 300
            assert threads[0] != threads[1] == runner()._ident


async def test_errors_come_from_where_they_are_raised(place: str) -> None:
    @begin_anywhere
    async def put_new(u: Universe, id: str) -> None:
        await u.commit([Put(datum(id), 0)])

    async with sync.anywhere(place) as handle:
        await handle.arun(put_new, "a")
        with pytest.raises(VersionConflict):
            await handle.arun(put_new, "a")
        with pytest.raises(VersionConflict):
            await asyncio.to_thread(handle.run, put_new, "a")


def test_threads_and_loops_count_together(place: str) -> None:
    handle = sync.anywhere(place)

    async def count(times: int) -> None:
        await asyncio.gather(*[handle.arun(put_next, "a") for _ in range(times)])

    with ThreadPoolExecutor(5) as pool:
        works: list[Any] = [
            pool.submit(lambda: [handle.run(put_next, "a") for _ in range(10)]) for _ in range(3)
        ]
        works += [pool.submit(asyncio.run, count(10)) for _ in range(2)]
        for work in works:
            work.result(60)
    assert handle.run(put_next, "a") == 51
    handle.close()


async def test_a_cancelled_commit_is_over_when_the_cancellation_arrives(url: str) -> None:
    async with sync.anywhere(url) as handle:
        assert await handle.arun(put_next, "first") == 1
        writer = handle._store.universe.backend._shared.writer  # type: ignore[attr-defined]
        happened = 0
        for n in range(12):
            with writer.lock:  # so that no commit is done at once
                task = asyncio.create_task(handle.arun(put_next, str(n)))
                await asyncio.sleep(0.002)
                if n % 2:
                    task.cancel()
                    await asyncio.sleep(0)
            if n % 2 == 0:
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            there = await handle.arun(Universe.exists, str(n))
            await asyncio.sleep(0.002)
            assert await handle.arun(Universe.exists, str(n)) == there, "nothing goes on in the background"
            happened += there
        assert await handle.arun(Universe.count) == 1 + happened


async def test_a_commit_that_waits_does_not_hold_up_its_loop(url: str) -> None:
    async with sync.anywhere(url) as handle:
        assert await handle.arun(put_next, "a") == 1
        writer = handle._store.universe.backend._shared.writer  # type: ignore[attr-defined]
        with writer.lock:
            task = asyncio.create_task(handle.arun(put_next, "a"))
            for _ in range(5):
                await asyncio.sleep(0.002)
            assert not task.done()
        assert await task == 2


def test_a_closed_handle_refuses(place: str) -> None:
    handle = sync.anywhere(place)
    assert handle.run(put_next, "a") == 1
    handle.close()
    with pytest.raises(Closed, match="closed"):
        handle.run(put_next, "a")
