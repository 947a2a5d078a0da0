"""Open and close: no use outside of it, nothing lost over it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from dgent.errors import Closed
from dgent.model.query import Query
from dgent.store.backend import Backend, Commit, Declaration, Guard, Keep, Put
from dgent.testing.contract import (
    STORED,
    Contract,
    Factory,
    everything,
    expect_error,
    find_ids,
    open_handle,
    put,
    record,
    typed_record,
)

CALLS: dict[str, Callable[[Backend], Awaitable[object]]] = {
    "commit": lambda store: store.commit(Commit([Put(record("late"))]), STORED),
    "get": lambda store: store.get("a"),
    "get as of": lambda store: store.get("a", 1),
    "get_many": lambda store: store.get_many(["a"]),
    "get_many, many": lambda store: store.get_many(["a"] * 100),
    "query": lambda store: store.query(Query(), STORED),
    "query, all": lambda store: store.query(Query(limit=None), STORED),
    "count": lambda store: store.count(Query(), STORED),
    "referrers": lambda store: store.referrers("a", None),
    "history": lambda store: store.history("a", None),
    "changes": lambda store: store.changes(0, 10),
    "wait": lambda store: store.wait(0, 1),
    "states_before": lambda store: store.states_before(1),
    "validate": lambda store: store.validate(Guard(0), STORED),
    "last_seq": lambda store: store.last_seq(),
    "seq_at": lambda store: store.seq_at(datetime.now(UTC)),
    "outcome": lambda store: store.outcome("k"),
    "declare": lambda store: store.declare(Declaration("note", 1)),
    "fill": lambda store: store.fill("note", STORED),
    "drop_index": lambda store: store.drop_index("note", "n"),
    "versions": lambda store: store.versions("note"),
    "forget": lambda store: store.forget(["a"], "tester", None),
    "compact": lambda store: store.compact(Keep(versions=1)),
    "stats": lambda store: store.stats(),
}


class LifecycleContract(Contract):
    """From open to close."""

    async def test_a_store_knows_its_name(self, store: Backend) -> None:
        assert isinstance(store, Backend)
        stats = await store.stats()
        assert stats.engine == store.name
        assert stats.place
        assert stats.size_bytes >= 0

    async def test_a_new_store_is_empty(self, store: Backend) -> None:
        assert await store.last_seq() == 0
        assert await store.get("a") is None
        assert await find_ids(store) == []
        assert await store.count(Query(), STORED) == 0
        assert await store.changes(0, 10) == []
        stats = await store.stats()
        assert (stats.records, stats.seq, stats.first_seq, stats.schemas) == (0, 0, 1, ())

    async def test_every_call_before_open_and_after_close_says_closed(self, backend: Factory) -> None:
        store = await backend()
        for name, call in CALLS.items():
            error = await expect_error("closed", call(store))
            assert error.hint, name
        await store.open()
        await put(store, record("a"))
        await store.close()
        for call in CALLS.values():
            await expect_error("closed", call(store))

    async def test_close_may_be_called_twice_or_first(self, backend: Factory) -> None:
        store = await backend()
        await store.close()
        await store.open()
        await put(store, record("a"))
        await store.close()
        await store.close()

    async def test_open_twice_is_refused_and_changes_nothing(self, backend: Factory) -> None:
        store = await backend()
        await store.open()
        await put(store, record("a"))
        await expect_error("closed", store.open())
        assert await store.get("a") is not None
        await store.close()
        await expect_error("closed", store.get("a"))

    async def test_a_place_that_can_be_opened_is_available(self, backend: Factory) -> None:
        store = await backend()
        assert await store.is_available()
        await store.open()
        assert await store.is_available()
        await store.close()

    async def test_what_was_stored_is_there_after_reopening(self, store: Backend, backend: Factory) -> None:
        await store.declare(Declaration("note", 1, indexes=("n",), owner="room", feed=True))
        fields = {"note": "why", "author": "ann", "room": "room", "key": "k"}
        first = await put(
            store, typed_record("a", 1, content=b"c", tags=frozenset({"t"})), record("b"), **fields
        )
        await put(store, record("b", 2), record("c"))
        await store.forget(["c"], "tester", None)
        before = await everything(store, "abc")
        stats = await store.stats()
        await store.close()
        async with open_handle(backend) as again:
            if not self.persistent:
                assert await again.last_seq() == 0
                return
            assert await everything(again, "abc") == before
            assert (await again.stats()).schemas == stats.schemas
            assert await find_ids(again, schema="note", where={"n": 1}) == ["a"]
            outcome = await again.outcome("k")
            assert outcome is not None
            assert outcome.seq == first.seq
            assert (await put(again, record("c"))).written[0].rev == 2

    async def test_closing_one_handle_leaves_the_others_open(self, store: Backend, backend: Factory) -> None:
        if not self.persistent:
            return
        async with open_handle(backend) as other:
            await put(other, record("a", 1))
        await put(store, record("a", 2))
        stored = await store.get("a")
        assert stored is not None
        assert stored.rev == 2

    async def test_close_finishes_what_was_begun(self, backend: Factory) -> None:
        store = await backend()
        await store.open()
        tasks = [asyncio.create_task(put(store, record(f"r{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        await store.close()
        answers = await asyncio.gather(*tasks)
        assert {answer.written[0].rev for answer in answers} == {1}
        if self.persistent:
            async with open_handle(backend) as again:
                assert len(await find_ids(again)) == 20

    async def test_close_ends_a_wait(self, backend: Factory) -> None:
        store = await backend()
        await store.open()
        waiting = asyncio.create_task(store.wait(0, 30))
        await asyncio.sleep(0.01)
        await store.close()
        try:
            await asyncio.wait_for(waiting, 5)
        except Closed:
            return

    async def test_opened_and_closed_many_times(self, backend: Factory) -> None:
        for n in range(15):
            async with open_handle(backend) as store:
                await put(store, record("a", n))
                stored = await store.get("a")
                assert stored is not None
                assert stored.rev == (n + 1 if self.persistent else 1)
