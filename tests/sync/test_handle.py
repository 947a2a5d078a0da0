"""One handle for blocking and async callers, on any thread and any loop, and after forks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import Datum, InputError, Query, Universe, Unsupported, sync
from dgent.errors import Closed, StorageError
from dgent.store.memory.backend import MemoryBackend
from dgent.sync.runner import runner
from tests.sync.marks import MARK, Mark
from tests.sync.program import run


async def echo(_: Universe, *args: Any, **kwargs: Any) -> Any:
    return args, kwargs


async def failing(_: Universe) -> None:
    raise ZeroDivisionError("mine")


async def numbers(_: Universe, until: int, fail: bool = False) -> AsyncIterator[int]:
    for n in range(until):
        yield n
    if fail:
        raise ZeroDivisionError("mine")


def test_blocking_calls(place: str) -> None:
    with sync.anywhere(place, author="scout") as handle:
        handle.register(MARK)
        made = handle.run(Universe.remember, Mark("a", 1), id="a")
        assert made.author == "scout"
        assert handle.run(Universe.get, "a").value == Mark("a", 1)
        assert handle.run(Universe.exists, "a")
        assert handle.run(echo, 1, two=2) == ((1,), {"two": 2})
        assert list(handle.stream(numbers, 1000)) == list(range(1000))
        with pytest.raises(ZeroDivisionError):
            handle.run(failing)
    for call in (lambda: handle.run(echo), lambda: handle.stream(numbers, 1), lambda: handle.register(MARK)):
        with pytest.raises(Closed, match="handle was closed"):
            call()
    handle.close()


async def test_async_calls(place: str) -> None:
    async with sync.anywhere(place, author="scout") as handle:
        handle.register(MARK)
        await handle.arun(Universe.remember, Mark("a", 1), id="a")
        assert (await handle.arun(Universe.get, "a")).value == Mark("a", 1)
        assert await handle.arun(echo, 1, two=2) == ((1,), {"two": 2})
        assert [n async for n in handle.astream(numbers, 1000)] == list(range(1000))
        with pytest.raises(ZeroDivisionError):
            await handle.arun(failing)
        with pytest.raises(ZeroDivisionError):
            [n async for n in handle.astream(numbers, 3, fail=True)]
        async for change in handle.astream(Universe.watch, since=0):
            assert change.seq == 1
            break
    with pytest.raises(Closed, match="handle was closed"):
        await handle.arun(Universe.get, "a")
    await handle.aclose()


async def test_a_waiting_call_does_not_hold_up_its_loop(place: str) -> None:
    async with sync.anywhere(place) as handle:
        released = threading.Event()

        async def wait(_: Universe) -> str:
            await asyncio.to_thread(released.wait)
            return "done"

        waiting = asyncio.create_task(handle.arun(wait))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        released.set()
        assert await waiting == "done"


async def test_point_reads_stay_on_the_callers_thread(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sync.anywhere(place) as handle:
        await handle.arun(Universe.put, Datum(id="a", data={}))

        def asked(*_: object) -> None:
            raise AssertionError("this went to the loop")

        monkeypatch.setattr(runner(), "submit", asked)
        assert await handle.arun(Universe.exists, "a")
        assert await handle.arun(Universe.get, "nothing") is None
        found = await asyncio.to_thread(handle.run, Universe.get, "a")
        assert found is not None
        with pytest.raises(AssertionError):
            await handle.arun(Universe.get, "a", as_of=1)
        monkeypatch.undo()


def test_threads_and_loops_at_once(place: str) -> None:
    handle = sync.anywhere(place)

    def add(tag: str) -> None:
        for n in range(20):
            handle.run(Universe.put, Datum(id=f"{tag}-{n}", data={"n": n}))
            assert handle.run(Universe.exists, f"{tag}-{n}")

    async def add_async(tag: str) -> None:
        async def one(n: int) -> None:
            await handle.arun(Universe.put, Datum(id=f"{tag}-{n}", data={"n": n}))
            assert await handle.arun(Universe.exists, f"{tag}-{n}")

        await asyncio.gather(*map(one, range(40)))

    with ThreadPoolExecutor(11) as pool:
        works = [pool.submit(add, f"t{n}") for n in range(8)]
        works += [pool.submit(asyncio.run, add_async(f"l{n}")) for n in range(3)]
        for work in works:
            work.result(60)
    assert handle.run(Universe.count) == 8 * 20 + 3 * 40
    handle.close()


async def test_a_cancelled_call_is_over_when_the_cancellation_arrives(place: str) -> None:
    async with sync.anywhere(place) as handle:
        running, cancelled = threading.Event(), threading.Event()

        async def work(_: Universe) -> None:
            running.set()
            try:
                await asyncio.sleep(30)
            finally:
                await asyncio.sleep(0.05)
                cancelled.set()

        task = asyncio.create_task(handle.arun(work))
        await asyncio.to_thread(running.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cancelled.is_set()

        happened = 0
        for n in range(60):
            task = asyncio.create_task(handle.arun(Universe.put, Datum(id=str(n), data={})))
            await asyncio.sleep(n * 0.00005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) if not task.done() else pytest.MonkeyPatch.context():
                await task
            there = await handle.arun(Universe.exists, str(n))
            happened += there
            await asyncio.sleep(0.001)
            assert await handle.arun(Universe.exists, str(n)) == there, "nothing goes on in the background"
        assert happened == await handle.arun(Universe.count)


async def test_a_call_that_was_cancelled_before_it_began(place: str) -> None:
    async with sync.anywhere(place) as handle:
        begun: list[int] = []

        async def work(_: Universe) -> None:
            begun.append(1)

        held = threading.Event()
        runner().submit(held.wait, 10)
        task = asyncio.create_task(handle.arun(work))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        held.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(begun) <= 1


async def test_a_closing_that_is_cancelled_still_closes(tmp_path: Path) -> None:
    handle = await sync.anywhere(f"sqlite:///{tmp_path}/u.db").__aenter__()
    closing = asyncio.create_task(handle.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert [path.name for path in tmp_path.iterdir()] == ["u.db"], "the log was folded into the file"


def test_a_loop_that_ends_ends_its_calls(place: str) -> None:
    handle = sync.anywhere(place).__enter__()
    over: list[bool] = []

    async def work(_: Universe) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            over.append(True)

    async def main() -> None:
        pending.append(asyncio.create_task(handle.arun(work)))
        await asyncio.sleep(0.05)

    pending: list[asyncio.Task[None]] = []
    asyncio.run(main())
    assert over == [True]
    assert handle.run(echo) == ((), {})
    handle.close()


def test_handles_of_one_place_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = sync.anywhere("sqlite:///u.db"), sync.anywhere(f"sqlite:///{tmp_path}/u.db")
    third, other = sync.anywhere(first), sync.anywhere("sqlite:///u.db", author="scout")

    async def myself(universe: Universe) -> Universe:
        return universe

    assert first.run(myself) is second.run(myself) is third.run(myself)
    assert other.run(myself) is not first.run(myself)
    other.close()
    first.close()
    first.close()
    third.close()
    second.run(Universe.put, Datum(id="a", data={}))
    second.close()
    assert [path.name for path in tmp_path.iterdir()] == ["u.db"]
    with sync.anywhere("sqlite:///u.db") as again:
        assert again.run(Universe.exists, "a")


def test_a_store_in_memory_is_private() -> None:
    with sync.anywhere("memory:") as first, sync.anywhere("memory:") as second:
        first.run(Universe.put, Datum(id="a", data={}))
        assert not second.run(Universe.exists, "a")
        with sync.anywhere(first) as same:
            assert same.run(Universe.exists, "a")


def test_what_is_wrong_is_said_at_once_or_on_first_use(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not an engine"):
        sync.anywhere("nonsense:")
    with pytest.raises(TypeError, match="speed"):
        sync.anywhere("memory:", speed=3)
    with (
        sync.anywhere("memory:") as handle,
        pytest.raises(InputError, match="takes no options, and got author"),
    ):
        sync.anywhere(handle, author="me")
    missing = sync.anywhere(f"sqlite:///{tmp_path}/later/u.db")
    with pytest.raises(StorageError):
        missing.run(Universe.count)
    (tmp_path / "later").mkdir()
    assert missing.run(Universe.count) == 0, "a place that came back is opened"
    missing.close()
    sync.anywhere("memory:").close()  # never used


async def test_a_universe_of_this_loop(place: str) -> None:
    async with dgent.open(place) as u, sync.anywhere(u) as handle:
        await handle.arun(Universe.put, Datum(id="a", data={}))
        assert await handle.arun(Universe.exists, "a")
        await asyncio.to_thread(handle.run, Universe.put, Datum(id="b", data={}))
        assert await asyncio.to_thread(lambda: len(list(handle.stream(Universe.iterate, Query())))) == 2
        assert await asyncio.to_thread(asyncio.run, handle.arun(Universe.count)) == 2
        with pytest.raises(Unsupported, match="wait for itself"):
            handle.run(Universe.count)
        handle.close()
        assert await u.count() == 2, "it stays open"
        last = sync.anywhere(u)
    with pytest.raises(Closed):
        await last.arun(Universe.count)


def test_a_universe_whose_loop_has_ended() -> None:
    async def make() -> sync.Anywhere:
        return sync.anywhere(await dgent.open("memory:"))  # which leaves no threads behind

    handle = asyncio.run(make())
    with pytest.raises(Closed, match="not running"):
        handle.run(Universe.count)
    with pytest.raises(Closed, match="not running"):
        asyncio.run(handle.arun(Universe.count))
    handle.close()


def test_a_universe_that_is_not_open_yet_and_a_blocking_one() -> None:
    with sync.anywhere(dgent.open("memory:")) as handle:
        assert handle.run(Universe.count) == 0
    with sync.open("memory:") as u:
        with sync.anywhere(u) as handle:
            handle.run(Universe.put, Datum(id="a", data={}))
        assert u.exists("a")


def test_calls_within_calls(place: str) -> None:
    with sync.anywhere(place) as handle:

        async def outer(_: Universe) -> int:
            found = [n async for n in handle.astream(numbers, 3)]
            with pytest.raises(Unsupported, match="wait for itself"):
                handle.run(echo)
            return len(found) + await handle.arun(Universe.count)

        assert handle.run(outer) == 3


def test_a_store_that_is_closed_while_others_ask(tmp_path: Path) -> None:
    handle = sync.anywhere(f"sqlite:///{tmp_path}/u.db")
    stopped: list[type] = []

    def ask() -> None:
        try:
            while True:
                handle.run(Universe.put, Datum(data={}))
        except Closed as error:
            stopped.append(type(error))

    async def ask_async() -> None:
        try:
            while True:
                await handle.arun(Universe.put, Datum(data={}))
                await handle.arun(Universe.exists, "a")
        except Closed as error:
            stopped.append(type(error))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    threads += [threading.Thread(target=lambda: asyncio.run(ask_async())) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    handle.close()
    for thread in threads:
        thread.join(30)
    assert stopped == [Closed] * 6


FORK = """
    import asyncio, os, sys
    import dgent
    from dgent import Datum, Universe, sync
    from dgent.errors import Closed

    os.chdir(os.path.dirname(sys.argv[1]))
    place = sync.anywhere("sqlite:///u.db")
    unused = sync.anywhere("sqlite:///u.db")
    given = sync.anywhere(sync.open("memory:"))
    place.run(Universe.put, Datum(id="a", data={}))

    async def add(id):
        await place.arun(Universe.put, Datum(id=id, data={}))

    def fork(work):
        child = os.fork()
        if child == 0:
            work()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0

    def child():
        os.chdir("/")
        asyncio.run(add("child"))
        assert place.run(Universe.exists, "a") and unused.run(Universe.count) == 2
        for call in (lambda: given.run(Universe.count), lambda: asyncio.run(given.arun(Universe.count))):
            try:
                call()
            except Closed as error:
                assert "before fork" in str(error), error
            else:
                raise AssertionError("a universe of the parent answered")
        given.close()
        unused.close()
        fork(lambda: asyncio.run(add("grandchild")))
        place.run(Universe.put, Datum(id="forgotten", data={}))

    async def main():
        async with dgent.open("memory:") as mine:
            lent = sync.anywhere(mine)
            fork(lambda: (lent.close(), os._exit(0)))
            return await lent.arun(Universe.count)

    fork(child)
    fork(lambda: place.close())
    assert asyncio.run(main()) == 0
    asyncio.run(add("b"))
    print(*sorted(datum.id for datum in place.run(Universe.list)))
"""

FORGOTTEN = """
    import asyncio, sys, threading, time
    from dgent import Datum, Universe, sync

    place = sync.anywhere(sys.argv[1])
    acknowledged = []

    async def add():
        for n in range(10 ** 6):
            await place.arun(Universe.put, Datum(id=f"{threading.get_ident()}-{n}", data={}))
            acknowledged.append(n)

    for _ in range(2):
        threading.Thread(target=lambda: asyncio.run(add()), daemon=True).start()
    time.sleep(0.2)
    print(len(acknowledged), flush=True)
"""


def test_forks(tmp_path: Path) -> None:
    assert run(FORK, str(tmp_path / "x")) == ["a b child forgotten grandchild"]


def test_a_program_that_forgets_to_close(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/u.db"
    acknowledged = int(run(FORGOTTEN, place)[0])
    assert os.listdir(tmp_path) == ["u.db"], "the log was folded into the file"
    with sync.open(place) as u:
        assert 0 < acknowledged <= u.count()


def test_a_backend_that_was_handed_in() -> None:
    backend = MemoryBackend()
    with sync.anywhere(None, backend=backend, storage={}) as handle:
        handle.run(Universe.put, Datum(id="a", data={}))
        assert backend.get_now("a") is not None
