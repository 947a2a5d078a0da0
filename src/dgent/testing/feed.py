"""The change feed: every commit once, in order, and never a missed one."""

from __future__ import annotations

import asyncio
import time

from dgent.store.backend import Backend, Check, Declaration, Delete, Put
from dgent.testing.contract import (
    Contract,
    Factory,
    commit,
    delete,
    expect_error,
    open_handle,
    put,
    record,
    typed_record,
)


class FeedContract(Contract):
    """Reading what changed since a seq."""

    async def test_changes_come_in_order_with_what_they_did(self, store: Backend) -> None:
        first = await put(store, record("a", 1), record("b", 1), note="first", author="ann")
        second = await commit(store, Put(record("a", 2)), Delete("b"), Put(record("c")))
        third = await put(store, record("b", 3))
        changes = await store.changes(0, 10)
        assert [change.seq for change in changes] == [first.seq, second.seq, third.seq]
        assert (changes[0].note, changes[0].author) == ("first", "ann")
        assert [change.kind for change in changes] == ["data"] * 3
        items = [[(item.op, item.id, item.rev) for item in change.items] for change in changes]
        assert items == [
            [("put", "a", 1), ("put", "b", 1)],
            [("put", "a", 2), ("delete", "b", 2), ("put", "c", 1)],
            [("put", "b", 3)],
        ]
        versions = [item.datum and item.datum.data["n"] for change in changes for item in change.items]
        assert versions == [1, 1, 2, None, 0, 3]
        gone = changes[1].items[1].last
        assert (gone.data, gone.rev) == ({"n": 1}, 1)
        times = [change.at for change in changes]
        assert times == sorted(times)

    async def test_an_item_tells_its_schema(self, store: Backend) -> None:
        await put(store, typed_record("a", 1), typed_record("b", 1, schema="other"), record("c"))
        await delete(store, "a", "b", "c")
        for change in await store.changes(0, 10):
            assert [item.schema for item in change.items] == ["note", "other", None]

    async def test_reading_on_from_any_seq_misses_nothing(self, store: Backend) -> None:
        seqs = [(await put(store, record(f"r{n % 7}", n))).seq for n in range(40)]
        for limit in (1, 3, 40, 1000):
            seen: list[int] = []
            since = 0
            while batch := await store.changes(since, limit):
                assert len(batch) <= limit
                seen += [change.seq for change in batch if change.seq is not None]
                since = seen[-1]
            assert seen == seqs
        assert await store.changes(seqs[-1], 10) == []
        assert await store.changes(10**9, 10) == []

    async def test_what_changed_nothing_is_not_in_the_feed(self, store: Backend) -> None:
        first = await put(store, record("a", 1))
        await put(store, record("a", 1))
        await delete(store, "never")
        await commit(store, Check("a"))
        await commit(store, Check("a"), key="looked")
        await expect_error("version_conflict", commit(store, Put(record("a", 2), expect=9)))
        await store.declare(Declaration("note", 1, indexes=("n",)))
        assert [change.seq for change in await store.changes(0, 10)] == [first.seq]

    async def test_quiet_schemas_stay_off_the_feed(self, store: Backend) -> None:
        await store.declare(Declaration("beat", 1, feed=False))
        for n in range(30):
            await put(store, typed_record("heart", n, schema="beat"))
        both = await put(store, typed_record("heart", 99, schema="beat"), record("a", 1))
        for n in range(30):
            await put(store, typed_record("heart", n, schema="beat"))
        await delete(store, "heart")
        last = await put(store, record("b", 1))
        for limit in (1, 2, 100):
            changes = await store.changes(0, limit)
            assert [change.seq for change in changes] == [both.seq, last.seq][:limit]
            assert [[item.id for item in change.items] for change in changes] == [["a"], ["b"]][:limit]
        assert len(await store.history("heart", None)) == 62

    async def test_old_versions_stay_readable_in_the_feed(self, store: Backend) -> None:
        for n in range(40):
            await put(store, record("a", n, content=bytes([n]) * 4000))
        changes = await store.changes(0, 100)
        bodies = [change.items[0].datum.content for change in changes]
        assert bodies == [bytes([n]) * 4000 for n in range(40)]

    async def test_wait_returns_as_soon_as_there_is_something(self, store: Backend) -> None:
        first = await put(store, record("a", 1))
        assert await store.wait(0, 10) == first.seq
        waiting = asyncio.create_task(store.wait(first.seq, 10))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        second = await put(store, record("a", 2))
        assert await asyncio.wait_for(waiting, 5) == second.seq

    async def test_wait_gives_up_when_time_is_up(self, store: Backend) -> None:
        first = await put(store, record("a", 1))
        started = time.monotonic()
        assert await store.wait(first.seq, 0.05) == first.seq
        assert 0.04 < time.monotonic() - started < 5
        assert await store.wait(first.seq, 0) == first.seq

    async def test_wait_is_not_fooled_by_what_changes_nothing(self, store: Backend) -> None:
        first = await put(store, record("a", 1))
        waiting = asyncio.create_task(store.wait(first.seq, 10))
        await asyncio.sleep(0.01)
        await put(store, record("a", 1))
        await store.declare(Declaration("note", 1))
        await asyncio.sleep(0.06)
        assert not waiting.done()
        second = await put(store, record("a", 2))
        assert await asyncio.wait_for(waiting, 5) == second.seq

    async def test_another_handle_sees_the_same_feed(self, store: Backend, backend: Factory) -> None:
        if not self.persistent:
            return
        async with open_handle(backend) as other:
            waiting = asyncio.create_task(other.wait(0, 10))
            first = await put(store, record("a", 1))
            assert await asyncio.wait_for(waiting, 5) == first.seq
            second = await put(other, record("a", 2))
            assert await other.changes(0, 10) == await store.changes(0, 10)
            assert await store.wait(first.seq, 5) == second.seq
