"""From which threads it can be used, and closing while others use it."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgent import Datum, Query, Unsupported, sync
from dgent.errors import Closed
from dgent.model.lens import field
from dgent.store.memory.backend import MemoryBackend
from dgent.sync.runner import runner
from tests.sync.marks import MARK, Mark


def together(*works: Callable[[], object]) -> list[BaseException]:
    """Run functions at once; what they raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return errors


def test_many_threads_at_once(u: sync.Universe) -> None:
    u.remember(Mark("count", 0), id="count")

    def work() -> None:
        for _ in range(10):
            mark = u.remember(Mark("a"))
            assert u.get(mark.id) == mark
            assert mark in u.recall(Query(schema="mark", limit=None))
            u.transact(lambda tx: add(tx), lock="count")

    def add(tx: sync.Transaction) -> None:
        found = tx.get("count")
        tx.store(found.replace(value=Mark("count", found.value.n + 1)))

    assert together(*[work] * 6) == []
    assert u.get("count").value.n == 60
    assert u.count() == 61


def test_there_is_one_thread_for_all_universes(tmp_path: Path) -> None:
    found = []

    def work() -> None:
        with sync.open("memory:") as a, sync.open(f"sqlite:///{tmp_path}/u.db") as b:
            found.extend([a._home.runner, b._home.runner])  # type: ignore[attr-defined]

    assert together(*[work] * 4) == []
    assert set(found) == {runner()}
    assert [thread.name for thread in threading.enumerate()].count("dgent-sync") == 1


def test_a_callback_of_one_thread_does_not_stop_another(u: sync.Universe) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(tx: sync.Transaction) -> None:
        inside.set()
        assert go_on.wait(10)

    def quick() -> None:
        assert inside.wait(10)
        u.remember(Mark("quick"))
        go_on.set()

    assert together(lambda: u.transact(slow), quick) == []


# -- event loops ------------------------------------------------------------------------------


async def test_a_running_loop_is_blocked_with_one_warning(place: str, unwarned: None) -> None:
    with pytest.warns(sync.BlockingWarning, match=r"asyncio\.to_thread") as caught:
        u = sync.open(place)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        u.register(MARK)
        u.remember(Mark("a"), id="a")
        assert u.get("a").value == Mark("a")
        assert u.transact(lambda tx: tx.get("a").value) == Mark("a")
        assert len(list(u.iterate(Query()))) == 1
        u.close()
    assert asyncio.get_running_loop() is asyncio.get_event_loop()
    await asyncio.sleep(0)


async def test_a_worker_thread_of_a_loop_is_like_any_other(place: str, unwarned: None) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    def work() -> Mark:
        with sync.open(place) as u:
            u.register(MARK)
            u.remember(Mark("a"), id="a")
            time.sleep(0.05)
            value: Mark = u.get("a").value
            return value

    ticking = asyncio.create_task(tick())
    assert await asyncio.to_thread(work) == Mark("a")
    assert ticks > 5
    ticking.cancel()


@pytest.mark.parametrize(
    "call", [lambda u: u.seq(), lambda u: u.get("a"), lambda u: u.close(), lambda u: next(u.watch(since=0))]
)
def test_a_call_on_the_background_thread_is_refused(u: sync.Universe, call: Callable[[Any], Any]) -> None:
    async def inside() -> None:
        call(u)

    with pytest.raises(Unsupported, match="wait for itself"):
        asyncio.run_coroutine_threadsafe(inside(), runner().loop).result(10)
    assert u.seq() >= 0


def test_code_of_a_contract_cannot_stop_the_background_thread(u: sync.Universe) -> None:
    async def leaves() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        u._home.begin().run(leaves)  # type: ignore[attr-defined]
    assert u.seq() == 0


# -- close ------------------------------------------------------------------------------------


def test_everything_is_refused_after_close(place: str) -> None:
    u = sync.open(place)
    u.register(MARK)
    u.remember(Mark("a"), id="a")
    marks, part, tx = u.collection(Mark), u.focus("a", field("what")), u.transaction()
    tx.__enter__()
    u.close()
    u.close()
    calls: list[Callable[[], object]] = [
        lambda: u.get("a"),
        lambda: u.seq(),
        lambda: u.remember(Mark("b")),
        lambda: u.transaction(),
        lambda: u.transact(lambda tx: None),
        lambda: u.open(),
        lambda: next(u.watch(since=0)),
        lambda: marks.get("a"),
        lambda: marks.count(),
        lambda: part.get(),
        lambda: tx.get("a"),
        lambda: tx.commit(),
    ]
    for call in calls:
        with pytest.raises(Closed):
            call()
    assert repr(u).endswith("closed>")


def test_a_universe_that_is_not_open_says_how() -> None:
    u = sync.Universe(MemoryBackend())
    for call in (lambda: u.get("a"), lambda: u.seq()):
        with pytest.raises(Closed, match=r"use `with sync\.open"):
            call()
    u.close()


def test_many_threads_close_at_once(place: str) -> None:
    u = sync.open(place)
    u.put(Datum(id="a", data={}))
    assert together(*[u.close] * 8) == []
    assert repr(u).endswith("closed>")


def test_closing_while_others_read_and_write(tmp_path: Path) -> None:
    for attempt in range(5):
        u = sync.open(f"sqlite:///{tmp_path}/{attempt}.db")
        u.put(Datum(id="a", data={}))

        def until_closed(call: Callable[[], object]) -> Callable[[], None]:
            def work() -> None:
                with pytest.raises(Closed):
                    while True:
                        call()

            return work

        def close(u: sync.Universe = u) -> None:
            time.sleep(0.03)
            u.close()

        calls = [lambda u=u: u.get("a"), lambda u=u: u.put(Datum(data={})), lambda u=u: u.count()]
        assert together(*[until_closed(call) for call in calls * 2], close) == []
        with sync.open(f"sqlite:///{tmp_path}/{attempt}.db") as again:
            assert again.exists("a")


def test_threads_that_come_and_go_leave_nothing_behind(u: sync.Universe) -> None:
    u.put(Datum(id="a", data={}))
    for _ in range(50):
        assert together(lambda: u.get("a")) == []
    home: Any = u._home  # type: ignore[attr-defined]
    assert len(home._reading) < 25
