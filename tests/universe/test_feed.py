"""The change feed: every commit in order, none missed, from any point, also of other processes."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Closed
from dgent.store.backend import Change
from tests.universe.conftest import Another
from tests.universe.marks import mark, old_mark


async def take(feed: AsyncIterator[Change], wanted: int) -> list[Change]:
    """The next changes of a feed; fails rather than wait for ever."""
    found: list[Change] = []
    async with asyncio.timeout(20):
        while len(found) < wanted:
            found.append(await anext(feed))
    return found


async def started(feed: AsyncIterator[Change], wanted: int) -> asyncio.Task[list[Change]]:
    """A task that takes from a feed, and is already waiting for the first change."""
    task = asyncio.create_task(take(feed, wanted))
    await asyncio.sleep(0.05)
    return task


async def test_from_a_seq(u: dgent.Universe) -> None:
    first = await u.remember(mark("one"), note="why")
    second = await u.remember(mark("two"))
    await u.delete(first.id)
    changes = await take(u.watch(since=0), 3)
    assert [c.seq for c in changes] == [1, 2, 3]
    assert [c.kind for c in changes] == ["data"] * 3
    assert [c.author for c in changes] == ["scout"] * 3
    assert changes[0].note == "why"
    assert [[(i.op, i.id, i.rev) for i in c.items] for c in changes] == [
        [("put", first.id, 1)],
        [("put", second.id, 1)],
        [("delete", first.id, 2)],
    ]
    assert changes[1].items[0].datum == second, "typed"
    assert changes[2].items[0].datum is None
    assert changes[2].items[0].last.value == mark("one")
    assert await take(u.watch(since=2), 1) == changes[2:]
    assert await u.changes(1, limit=1) == [c for c in await u.changes(0) if c.seq == 2]


async def test_from_now_on(u: dgent.Universe) -> None:
    await u.remember(mark("before"))
    watching = await started(u.watch(), 1)
    after = await u.remember(mark("after"))
    (change,) = await watching
    assert change.seq == after.seq


async def test_no_op_writes_do_not_show(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    await u.store(kept)
    await u.delete("nothing")
    await u.put(dgent.Datum(id="last"))
    assert [c.items[0].id for c in await take(u.watch(since=0), 2)] == [kept.id, "last"]


async def test_a_query_picks_also_among_deletions(u: dgent.Universe) -> None:
    query = dgent.Query(schema="witness.mark", tags={"t"}, where={"author": "ann"})
    feed = u.watch(since=0, query=query)
    mine = await u.remember(mark(author="ann"), tags={"t"})
    other = await u.remember(mark(author="bob"), tags={"t"})
    await u.put_many([dgent.Datum(id="else"), dgent.Datum(id="more")])
    async with u.transaction() as tx:
        await tx.store(mine.replace(value=mark("new", author="ann")))
        await tx.store(other.replace(value=mark("new", author="bob")))
    await u.delete(other.id)
    await u.delete(mine.id)
    changes = await take(feed, 3)
    assert [(c.items[0].op, c.items[0].id) for c in changes] == [
        ("put", mine.id),
        ("put", mine.id),
        ("delete", mine.id),
    ]
    assert [len(c.items) for c in changes] == [1, 1, 1], "only what matches of a commit"


async def test_a_query_tells_what_leaves_it(u: dgent.Universe) -> None:
    query = dgent.Query(where={"n": {"$gte": 3}}, tags={"shown"})
    feed = u.watch(query=query)
    task = await started(feed, 5)
    shown = dgent.Datum(id="a", data={"n": 3}, tags=frozenset({"shown"}))
    await u.put(shown)
    await u.put_many([shown.replace(data={"n": 1}), dgent.Datum(id="b", data={"n": 9})])
    await u.put(shown.replace(data={"n": 2}))  # neither before nor after
    await u.put(shown.replace(data={"n": 8}))
    await u.put(shown.replace(data={"n": 8}, tags=frozenset()))
    await u.put(shown.replace(id="last"))
    changes = await task
    told = [(item.id, item.datum.data["n"], item.left) for change in changes for item in change.items]
    assert told == [("a", 3, False), ("a", 1, True), ("a", 8, False), ("a", 8, True), ("last", 3, False)]


async def test_what_may_have_left_is_told_where_no_version_is_kept(u: dgent.Universe) -> None:
    @dataclass(frozen=True)
    class Tick:
        n: int

    u.register(dgent.Schema("tick", contract=Tick, history="none"))
    tick = await u.remember(Tick(5))
    feed = u.watch(query=dgent.Query(schema="tick", where={"n": {"$gte": 3}}))
    task = await started(feed, 1)
    await u.store(tick.replace(value=Tick(1)))
    (change,) = await task
    assert [(item.id, item.left) for item in change.items] == [(tick.id, True)]


async def test_old_records_are_matched_and_given_in_the_new_version(u: dgent.Universe) -> None:
    kept = await u.put(old_mark(1, "plan"))
    broken = await u.put(old_mark(1, "unlucky"))
    query = dgent.Query(schema="witness.mark", where={"principles.0": "plan"})
    (change,) = await take(u.watch(since=0, query=query), 1)
    assert change.items[0].datum.meta.crystallized_from == kept.id
    assert "unlucky" in (await take(u.watch(since=1), 1))[0].items[0].datum.problem
    assert broken.seq == 2


async def test_undo_and_forget_are_changes_too(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    await u.undo(kept.seq)
    await u.forget(kept.id)
    last = await u.remember(mark("last"))
    changes = await take(u.watch(since=0), 2)
    assert [c.kind for c in changes] == ["forget", "data"], "what was done to a forgotten record is gone too"
    assert [i.id for c in changes for i in c.items] == [None, last.id]
    undone = await u.undo(last.seq)
    (change,) = await take(u.watch(since=last.seq), 1)
    assert (change.kind, change.of_seq, change.seq) == ("undo", last.seq, undone.seq)


async def test_none_is_missed_while_four_tasks_write(u: dgent.Universe, another: Another) -> None:
    rival = await another()
    watching = await started(u.watch(since=0), 240)

    async def write(universe: dgent.Universe, name: str) -> None:
        for n in range(60):
            await universe.put(dgent.Datum(id=f"{name}{n}"))
            if n % 16 == 0:
                await asyncio.sleep(0.01)

    await asyncio.gather(write(u, "a"), write(u, "b"), write(rival, "c"), write(rival, "d"))
    changes = await watching
    assert [c.seq for c in changes] == list(range(1, 241))
    assert {i.id for c in changes for i in c.items} == {f"{name}{n}" for name in "abcd" for n in range(60)}


async def test_more_than_a_batch_at_once(u: dgent.Universe) -> None:
    for n in range(20):
        await u.put_many(dgent.Datum(id=f"{n}/{m}") for m in range(30))
    await asyncio.gather(*(u.put(dgent.Datum(id=f"x{n}", data={"n": n})) for n in range(600)))
    changes = await take(u.watch(since=0), 620)
    assert [c.seq for c in changes] == list(range(1, 621))
    assert sorted(c.items[0].datum.data["n"] for c in changes[20:]) == list(range(600))


@dataclass(frozen=True)
class Beat:
    n: int


async def test_quiet_schemas_stay_off_the_feed(u: dgent.Universe) -> None:
    u.register(dgent.Schema("test.beat", contract=Beat, feed=False))
    watching = await started(u.watch(since=0), 2)
    for n in range(300):
        await u.remember(Beat(n), id="beat")
    first = await u.remember(mark())
    async with u.transaction() as tx:
        await tx.remember(Beat(0), id="other beat")
        second = await tx.remember(mark("both"))
    await u.delete("beat")
    changes = await watching
    assert [[i.id for i in c.items] for c in changes] == [[first.id], [second.id]]
    assert len(await u.history("beat")) == 301, "off the feed is not off the history"


async def test_deletions_of_records_that_keep_no_history(u: dgent.Universe) -> None:
    u.register(dgent.Schema("test.beat", contract=Beat, history="none"))
    feed = u.collection(Beat).watch(since=0)
    for n in range(3):
        await u.remember(Beat(n), id="beat")
    await u.delete("beat")
    (change,) = await take(feed, 1)
    assert [(i.op, i.id, i.rev) for i in change.items] == [("delete", "beat", 4)]


async def test_stopping_leaves_nothing_behind(u: dgent.Universe) -> None:
    await u.remember(mark())
    await take(u.watch(since=0), 1)
    gc.collect()
    await asyncio.sleep(0.01)
    tasks = asyncio.all_tasks()
    async for _ in u.watch(since=0):
        break
    feed = u.watch(since=0)
    await anext(feed)
    await feed.aclose()  # type: ignore[attr-defined]
    waiting = asyncio.create_task(take(u.watch(), 1))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    del feed, waiting
    gc.collect()
    async with asyncio.timeout(60):  # a connection that is being made is made to its end
        while asyncio.all_tasks() != tasks:
            await asyncio.sleep(0.01)
    await u.remember(mark("goes on"))


async def test_closing_ends_the_feed(u: dgent.Universe) -> None:
    await u.remember(mark())
    feed = u.watch(since=0)
    await anext(feed)
    await u.close()
    with pytest.raises(Closed):
        await anext(feed)


async def test_closing_ends_a_feed_that_waits(u: dgent.Universe) -> None:
    watching = await started(u.watch(), 1)
    await u.close()
    async with asyncio.timeout(20):
        with pytest.raises(Closed):
            await watching


WRITER = """
import asyncio, sys
import dgent

async def main():
    async with dgent.open(sys.argv[1], author=sys.argv[2]) as u:
        for n in range(int(sys.argv[3])):
            await u.put(dgent.Datum(id=f"{sys.argv[2]}{n}", data={"n": n}))

asyncio.run(main())
"""


async def test_other_processes_are_heard(shared_url: str, tmp_path: Path) -> None:
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    async with dgent.open(shared_url) as u:
        watching = await started(u.watch(since=0), 150)
        writers: list[Any] = [
            await asyncio.create_subprocess_exec(sys.executable, str(script), shared_url, name, "50")
            for name in ("ann", "bob")
        ]
        for n in range(50):
            await u.put(dgent.Datum(id=f"me{n}", data={"n": n}))
            await asyncio.sleep(0.002)
        assert [await writer.wait() for writer in writers] == [0, 0]
        changes = await watching
        assert [c.seq for c in changes] == list(range(1, 151))
        by_author: dict[str, list[int]] = {}
        for change in changes:
            by_author.setdefault(change.author, []).append(change.items[0].datum.data["n"])
        assert by_author == {name: list(range(50)) for name in ("ann", "bob", "system")}
