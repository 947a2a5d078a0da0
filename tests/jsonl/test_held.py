"""Commits that are in the files and not yet in the cache: seen by all, lost by none, whoever comes first."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from dgent.errors import StorageError, StorageFull, VersionConflict
from dgent.model.query import Query
from dgent.store.backend import Put
from dgent.store.jsonl import backend
from dgent.store.jsonl.backend import QUIET_S, JSONLBackend
from dgent.store.jsonl.kernel import HELD_COMMITS
from dgent.testing.contract import STORED, commit, delete, find_ids, put, typed_record
from tests.fault.test_full_disk import Disk, disk  # noqa: F401 - a fixture
from tests.jsonl.stores import data_of, odd, opened, without_cache
from tests.jsonl.test_processes import Worker
from tests.jsonl.worker import hold


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a slow machine not be taken for the end of a burst."""
    monkeypatch.setattr(backend, "QUIET_S", 60.0)


def in_cache(folder: Path) -> int:
    """The newest seq that the cache has, as another process would find it."""
    connection = apsw.Connection(str(folder / ".cache" / "cache.db"))
    try:
        rows: Any = connection.execute("SELECT max(seq) FROM commits").fetchall()
        return int(rows[0][0] or 0)
    finally:
        connection.close()


@asynccontextmanager
async def begun(folder: Path, **options: Any) -> AsyncIterator[JSONLBackend]:
    """A store whose schema has its file and its names: what comes next can be held."""
    async with opened(folder, **options) as store:
        await put(store, typed_record("first"))
        yield store


async def everything(store: JSONLBackend) -> Any:
    """All records with revs and data, and the log."""
    page = await store.query(Query(limit=None), STORED)
    changes = await store.changes(0, 10_000)
    return {each.id: (each.rev, each.data) for each in page.items}, changes, await store.last_seq()


async def test_every_read_sees_what_is_held(tmp_path: Path) -> None:
    async with begun(tmp_path / "s") as store:
        reads = [
            lambda n: store.get(f"r{n}"),
            lambda n: store.get_many([f"r{n}"]),
            lambda n: store.get(f"r{n}", as_of=n + 2),
            lambda n: store.history(f"r{n}", None),
            lambda n: store.changes(n + 1, 10),
        ]
        for n, read in enumerate(reads):
            await hold(store, f"r{n}")
            assert store.kernel.late and in_cache(tmp_path / "s") == n + 1
            answer: Any = await read(n)
            assert getattr(answer, "items", answer), "the read does not know the commit"
            assert not store.kernel.late and in_cache(tmp_path / "s") == n + 2
        await hold(store, "last")
        assert await store.last_seq() == len(reads) + 2
        await hold(store, "counted")
        assert await store.count(Query(), STORED) == len(reads) + 3
        await hold(store, "found")
        assert "found" in await find_ids(store, limit=10)
        await hold(store, "found by a long look")
        assert "found by a long look" in await find_ids(store, limit=None)
        await hold(store, "awaited")
        assert await store.wait(len(reads) + 5, 5) == len(reads) + 6
        await hold(store, "stats")
        assert (await store.stats()).records == len(reads) + 7


async def test_who_reads_after_each_put_finds_the_cache_up_to_date(tmp_path: Path) -> None:
    async with begun(tmp_path / "s") as store:
        for n in range(5):
            assert await store.get("first") is not None
            store._require_open().writer.pace_s = 0.0
            await put(store, typed_record(f"r{n}"))
            assert not store.kernel.late and in_cache(tmp_path / "s") == n + 2
        store._require_open().writer.pace_s = 0.0
        await put(store, typed_record("held"))
        assert store.kernel.late


async def test_a_thread_that_reads_sees_what_is_held(tmp_path: Path) -> None:
    async with begun(tmp_path / "s") as store:
        await hold(store, "a")
        assert store.kernel.late
        seen = await asyncio.to_thread(store.get_now, "a")
        assert seen is not None


async def test_the_cache_gets_it_when_no_more_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "QUIET_S", QUIET_S)
    async with begun(tmp_path / "s") as store:
        await hold(store, "a", "b", "c")
        until = time.monotonic() + 10
        while in_cache(tmp_path / "s") < 4:
            assert time.monotonic() < until, "nobody brought it"
            await asyncio.sleep(QUIET_S)
        assert not store.kernel.late


async def test_not_more_than_some_are_held(tmp_path: Path) -> None:
    async with begun(tmp_path / "s") as store:
        for n in range(HELD_COMMITS * 3):
            await hold(store, f"r{n}")
            assert n + 2 - in_cache(tmp_path / "s") <= HELD_COMMITS
        assert in_cache(tmp_path / "s") > HELD_COMMITS
        assert len(await find_ids(store, limit=None)) == HELD_COMMITS * 3 + 1
        await hold(store, *(f"large{n}" for n in range(3)), text="x" * 30_000)
        assert in_cache(tmp_path / "s") == HELD_COMMITS * 3 + 4, "three of them are too large to wait"


async def test_closing_brings_what_is_held(tmp_path: Path) -> None:
    async with begun(tmp_path / "s") as store:
        epoch = store.epoch
        await hold(store, "a", "b")
    assert in_cache(tmp_path / "s") == 3
    async with opened(tmp_path / "s") as store:
        assert store.epoch == epoch
        assert await data_of(store, "a", "b") == [{"n": 0}, {"n": 0}]


async def test_what_is_held_is_changed_deleted_forgotten_and_compacted(tmp_path: Path) -> None:
    async with begun(tmp_path / "s") as store:
        await hold(store, "a", "b", "c", "d")
        assert (await put(store, typed_record("a", 2))).written[0].rev == 2
        await hold(store, "e", "f")
        await delete(store, "b")
        await hold(store, "g")
        await store.forget(["c"], "tester", None)
        await hold(store, "h")
        await store.rewrite(history=True)
        await hold(store, "i")
        assert sorted(await find_ids(store, limit=None)) == ["a", "d", "e", "f", "first", "g", "h", "i"]
        before = await everything(store)
        assert await odd(store) == []
    async with opened(tmp_path / "s") as store:
        assert await everything(store) == before
    without_cache(tmp_path / "s")
    async with opened(tmp_path / "s") as store:
        assert (await everything(store))[0] == before[0]


async def test_a_refused_commit_leaves_it_held(tmp_path: Path) -> None:
    async with begun(tmp_path / "s") as store:
        before = store.kernel.store.generation
        for id, key in (("a", None), ("b", "a key")):
            await hold(store, id)
            assert store.kernel.late
            with pytest.raises(VersionConflict):
                await commit(store, Put(typed_record("a", 5), expect=9), key=key)
        assert store.kernel.store.generation == before, "something was undone"
        assert (await put(store, typed_record("c"), key="a key")).seq == 4
        assert (await put(store, typed_record("c"), key="a key")).repeated
        assert await data_of(store, "a", "b", "c") == [{"n": 0}] * 3


async def test_a_cancelled_commit_leaves_it_held(tmp_path: Path) -> None:
    async with begun(tmp_path / "s") as store:
        await hold(store, "a")
        task = asyncio.create_task(put(store, typed_record("never")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await hold(store, "b")
        assert await data_of(store, "a", "b", "never") == [{"n": 0}, {"n": 0}, None]


async def test_a_failed_append_loses_nothing_that_is_held(tmp_path: Path) -> None:
    async with begun(tmp_path / "s") as store:
        epoch = store.epoch
        await hold(store, "a", "b")
        files, name = store.kernel.folder._open, "note.jsonl"
        whole = files[name]
        files[name] = os.open(tmp_path / "s" / name, os.O_RDONLY), whole[1]
        try:
            store._require_open().writer.pace_s = 0.0
            with pytest.raises(StorageError):
                await put(store, typed_record("never"))
            assert await data_of(store, "a", "b", "never") == [{"n": 0}, {"n": 0}, None]
        finally:
            os.close(files[name][0])
            files[name] = whole
        await hold(store, "c")
        assert await data_of(store, "a", "b", "c") == [{"n": 0}] * 3
        assert (await store.last_seq(), store.epoch) == (4, epoch)
        assert await odd(store) == []


async def test_two_writers_of_one_cache_in_turns(tmp_path: Path) -> None:
    """Handles with other settings share nothing but the folder and the cache, as two processes do."""
    folder = tmp_path / "s"
    async with begun(folder) as one, opened(folder, sync="batch") as two:
        epoch, n = one.epoch, 1
        for turn in range(60):
            here, there = random.sample((one, two), 2)
            many = random.randrange(1, 5)
            await hold(here, *(f"r{turn}.{part}" for part in range(many)))
            n += many
            what = turn % 4
            if what == 0:
                assert len(await find_ids(there, limit=None)) == n
            elif what == 1:
                assert await there.get(f"r{turn}.0") is not None
            elif what == 2:
                assert (await put(there, typed_record("first", turn))).seq > n
            if what == 3:
                await hold(there, f"t{turn}")
                n += 1
        assert await everything(one) == await everything(two)
        assert len((await everything(one))[0]) == n
        assert (one.epoch, two.epoch) == (epoch, epoch)
        before = await everything(one)
    without_cache(folder)
    async with opened(folder) as store:
        assert (await everything(store))[0] == before[0]


async def test_who_closes_after_another_read_it_brings_nothing_twice(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    async with opened(folder, sync="batch") as two:
        async with begun(folder) as one:
            await hold(one, "a", "b")
            assert len(await find_ids(two, limit=None)) == 3
        assert len(await find_ids(two, limit=None)) == 3
        await hold(two, "c")
        assert [change.seq for change in await two.changes(0, 10)] == [1, 2, 3, 4]


async def test_killed_while_it_holds(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    async with begun(folder) as store:
        before = store.epoch
    said = Worker("hold_and_die", folder, "w").finish(-9)
    told = {id: (rev, seq) for kind, *rest in said if kind == "held" for id, rev, seq in [rest]}
    assert len(told) == 20 and in_cache(folder) <= 2, "only its first one needed names from the cache"
    async with opened(folder) as store:
        for id, (rev, seq) in told.items():
            there = await store.get(id)
            assert there is not None and there.rev == rev
            assert [change.seq for change in await store.changes(seq - 1, 1)] == [seq]
        assert store.epoch == before, "the cache was made anew, where reading the rest was enough"
        assert await odd(store) == []


async def test_forked_while_it_holds(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    async with begun(folder):
        pass
    assert Worker("hold_and_fork", folder, "w").finish()[-1] == ["both", 6]
    async with opened(folder) as store:
        assert sorted(await find_ids(store, limit=None)) == ["a", "b", "c", "child", "first", "parent"]


async def test_a_disk_that_is_nearly_full_holds_nothing(disk: Disk) -> None:  # noqa: F811
    async with begun(disk.folder / "s") as store:
        n = 0
        disk.fill(leave=500_000)
        with pytest.raises(StorageFull):
            while True:
                await hold(store, f"r{n}", text="x" * 3000)
                assert not store.kernel.late
                n += 1
        assert n and len(await find_ids(store, limit=None)) == n + 1, "reads go on"
        disk.free()
        await put(store, typed_record("last"))
        assert len(await find_ids(store, limit=None)) == n + 2
