"""Many at once: nothing is lost, nobody fails for another's fault."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from dgent.errors import Conflict, InputError, VersionConflict
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Commit, Guard, Put, StoredView
from dgent.testing.contract import STORED, Contract, Factory, commit, find_ids, open_handle, put, record

TASKS = 64


async def _add_one(store: Backend) -> int:
    """Count up by compare-and-set; return how many tries it took."""
    for attempt in range(10_000):
        now = await store.get("counter")
        assert now is not None
        try:
            await commit(store, Put(record("counter", now.data["n"] + 1), expect=now.rev))
        except VersionConflict:
            await asyncio.sleep(0)
            continue
        return attempt + 1
    raise AssertionError("a compare-and-set never got through")


class FailingView(StoredView):
    """A caller whose own code fails."""

    def shape(self, datum: Datum) -> Mapping[str, Any]:
        """Fail."""
        raise RuntimeError("a bug in a migration step")


class ConcurrencyContract(Contract):
    """Sixty-four tasks on one store."""

    async def test_a_counter_by_compare_and_set_is_exact(self, store: Backend, backend: Factory) -> None:
        await put(store, record("counter", 0))
        async with open_handle(backend) as other:
            handles = [store, other] if self.persistent else [store]
            tries = await asyncio.gather(*(_add_one(handles[n % len(handles)]) for n in range(TASKS)))
        stored = await store.get("counter")
        assert stored is not None
        assert (stored.data["n"], stored.rev) == (TASKS, TASKS + 1)
        assert sum(tries) >= TASKS
        assert len(await store.history("counter", None)) == TASKS + 1

    async def test_one_bad_commit_fails_alone(self, store: Backend) -> None:
        """One that is refused, wrong in itself, or hits a bug in its caller's own code."""
        await put(store, record("taken", 1))
        guard = Guard(0, queries=(Query(where={"n": 1}),))

        async def work(n: int) -> Any:
            if n == 13:
                return await commit(store, Put(record("r13")), guard=guard, view=FailingView())
            if n == 31:
                return await commit(store, Put(record("r31")), Put(record("taken", 2), expect=0))
            if n == 47:
                return await commit(store, Put(record("r47", float("inf"))))
            return await commit(store, Put(record(f"r{n}", n)))

        answers: list[Any] = await asyncio.gather(*map(work, range(TASKS)), return_exceptions=True)
        assert [n for n, answer in enumerate(answers) if isinstance(answer, BaseException)] == [13, 31, 47]
        assert isinstance(answers[13], RuntimeError)
        assert isinstance(answers[31], VersionConflict)
        assert isinstance(answers[47], InputError)
        good = [n for n in range(TASKS) if n not in (13, 31, 47)]
        assert sorted(await find_ids(store, prefix="r")) == sorted(f"r{n}" for n in good)
        seqs = [answers[n].seq for n in good]
        assert len(set(seqs)) == len(seqs)
        assert [change.seq for change in await store.changes(0, 1000)] == [1, *sorted(seqs)]

    async def test_commits_of_one_moment_see_each_other(self, store: Backend) -> None:
        """Only one of many may create a record, take a rev, or pass a guard."""
        since = (await put(store, record("a", 0))).seq
        guard = Guard(since, queries=(Query(prefix="g"),))
        for commits in (
            [Commit([Put(record("new", n), expect=0)]) for n in range(TASKS)],
            [Commit([Put(record("a", n + 1), expect=1)]) for n in range(TASKS)],
            [Commit([Put(record(f"g{n}"))], guard=guard) for n in range(TASKS)],
        ):
            work = [store.commit(commit, STORED) for commit in commits]
            answers = await asyncio.gather(*work, return_exceptions=True)
            assert sum(isinstance(answer, Conflict) for answer in answers) == TASKS - 1
        assert len(await find_ids(store, prefix="g")) == 1

    async def test_the_same_key_from_many_tasks_happens_once(self, store: Backend) -> None:
        answers = await asyncio.gather(*(put(store, record("a", 1), key="k") for _ in range(TASKS)))
        assert len({answer.seq for answer in answers}) == 1
        assert sum(not answer.repeated for answer in answers) == 1
        assert len(await store.history("a", None)) == 1

    async def test_a_cancelled_commit_is_whole_or_not_there(self, store: Backend) -> None:
        async def work(n: int) -> None:
            await put(store, *(record(f"r{n}.{part}", n) for part in range(5)))

        for pause in (0, 1, 3):
            tasks = [asyncio.create_task(work(n)) for n in range(TASKS)]
            for _ in range(pause):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results[1::2]:
                assert result is None
        await put(store, record("after"))
        for n in range(TASKS):
            parts = await find_ids(store, prefix=f"r{n}.")
            assert len(parts) in ((0, 5) if n % 2 == 0 else (5,))
        assert await find_ids(store, prefix="after") == ["after"]

    async def test_readers_see_whole_commits_while_others_write(self, store: Backend) -> None:
        await put(store, record("a", 0), record("b", 0))
        done = asyncio.Event()

        async def write() -> None:
            for n in range(1, 60):
                await put(store, record("a", n), record("b", n))
                await asyncio.sleep(0)
            done.set()

        async def read() -> int:
            looks = 0
            while not done.is_set():
                a, b = await store.get_many(["a", "b"])
                page = await store.query(Query(where={"n": {"$gte": 0}}), STORED)
                assert a is not None
                assert b is not None
                assert a.data == b.data
                assert len({datum.data["n"] for datum in page.items}) == 1
                looks += 1
                await asyncio.sleep(0)
            return looks

        results = await asyncio.gather(write(), *(read() for _ in range(6)))
        assert all(results[1:])

    async def test_a_read_after_a_commit_sees_it(self, store: Backend, backend: Factory) -> None:
        async with open_handle(backend) as other:
            handles = [store, other] if self.persistent else [store]
            for n in range(20):
                await put(handles[n % len(handles)], record(f"r{n:02}", n))
                for handle in handles:
                    assert await handle.get(f"r{n:02}") is not None
                    assert len(await find_ids(handle, limit=None)) == n + 1
                    assert await handle.count(Query(), STORED) == n + 1
                    assert (await find_ids(handle, prefix="r", limit=1, order_by="n")) == [f"r{n:02}"]
