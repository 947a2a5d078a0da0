"""Iterators: everything comes, in order, a page at a time, and giving up is fine."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

from dgent import Datum, InputError, Query, sync
from dgent.errors import Closed
from dgent.sync.stream import AHEAD
from tests.sync.marks import Mark

MANY = 3 * AHEAD + 7


def tasks(u: sync.Universe) -> set[Any]:
    """What is under way on the loop."""
    return asyncio.all_tasks(u._home.runner.loop)  # type: ignore[attr-defined]


def settled(u: sync.Universe) -> bool:
    """Whether everything on the loop is over within a second."""
    deadline = time.monotonic() + 1
    while tasks(u) and time.monotonic() < deadline:
        time.sleep(0.005)
    return not tasks(u)


@pytest.fixture
def many(u: sync.Universe) -> sync.Universe:
    """A universe with more records than are fetched ahead."""
    u.put_many(Datum(id=f"{n:05}", data={"n": n}) for n in range(MANY))
    return u


def test_everything_comes_in_order(many: sync.Universe) -> None:
    found = [datum.id for datum in many.iterate(Query(prefix="0", descending=False, limit=None))]
    assert found == [f"{n:05}" for n in range(MANY)]
    assert settled(many)


def test_the_loop_is_asked_once_for_a_page(many: sync.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = many._home.runner  # type: ignore[attr-defined]
    asked = []
    submit = runner.submit
    monkeypatch.setattr(runner, "submit", lambda *args: (asked.append(1), submit(*args)))
    assert sum(1 for _ in many.iterate(Query(limit=None))) == MANY
    assert len(asked) <= MANY // AHEAD + 3


def test_it_is_lazy_and_fetches_no_more_than_a_page_ahead(many: sync.Universe) -> None:
    stream: Any = many.iterate(Query(limit=None))
    time.sleep(0.02)
    assert not tasks(many)
    next(stream)
    time.sleep(0.02)
    assert len(stream._pump.items) < AHEAD


def test_an_error_comes_where_it_belongs(u: sync.Universe) -> None:
    wrong: Any = "no query"
    stream = u.iterate(wrong)
    with pytest.raises(InputError):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)


def test_watch_sees_what_others_write(u: sync.Universe) -> None:
    u.remember(Mark("before"))
    seen: list[str] = []

    def watch() -> None:
        for change in u.watch(since=0, query=Query(schema="mark")):
            seen.extend(item.datum.value.what for item in change.items)
            if seen[-1] == "last":
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    for what in ("a", "b", "last"):
        u.remember(Mark(what))
    watcher.join(5)
    assert seen == ["before", "a", "b", "last"]
    assert settled(u)


def test_a_collection_watches_and_iterates(u: sync.Universe) -> None:
    u.put(Datum(id="other", data={}))
    u.remember(Mark("a"), id="a")
    marks = u.collection(Mark)
    assert [found.id for found in marks.iterate()] == ["a"]
    assert next(marks.watch(since=0)).items[0].id == "a"


def test_leaving_the_loop_ends_the_work(many: sync.Universe) -> None:
    for _ in many.iterate(Query(limit=None)):
        break
    for _ in many.watch(since=0):
        break
    gc.collect()
    assert settled(many)


def test_a_stream_dropped_from_another_thread_ends(many: sync.Universe) -> None:
    streams = [many.watch(since=0)]
    next(streams[0])
    thread = threading.Thread(target=streams.clear)
    thread.start()
    thread.join()
    assert settled(many)


def test_close_ends_it_at_once(many: sync.Universe) -> None:
    with many.watch(since=0) as stream:
        next(stream)
    assert not tasks(many)
    with pytest.raises(StopIteration):
        next(stream)
    stream.close()
    never_started = many.watch()
    never_started.close()
    with pytest.raises(StopIteration):
        next(never_started)


def test_closing_the_universe_wakes_who_waits(u: sync.Universe) -> None:
    caught: list[BaseException] = []

    def watch() -> None:
        try:
            for _ in u.watch():
                pass
        except Closed as error:
            caught.append(error)

    watchers = [threading.Thread(target=watch) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    time.sleep(0.05)
    u.close()
    for watcher in watchers:
        watcher.join(20)
    assert len(caught) == 3


def test_after_close_not_even_what_was_fetched_comes(many: sync.Universe) -> None:
    stream = many.iterate(Query(limit=None))
    next(stream)
    many.close()
    with pytest.raises(Closed):
        next(stream)
    stream.close()


def test_threads_can_share_a_stream(many: sync.Universe) -> None:
    stream = many.iterate(Query(limit=None))
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.extend(datum.id for datum in stream)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(found) == [f"{n:05}" for n in range(MANY)]
