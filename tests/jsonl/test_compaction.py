"""The canonical form: sorted, small, and the same store as before."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgent.errors import StorageError
from dgent.model.query import Query
from dgent.store.backend import Declaration, Delete, Put
from dgent.store.jsonl.backend import JSONLBackend
from dgent.testing.contract import STORED, commit, delete, find_ids, put, record, typed_record
from tests.contract import program
from tests.contract.test_differential import Step, writes
from tests.jsonl.stores import data_of, lines, odd, opened, without_cache
from tests.jsonl.test_rebuild import _holdings
from tests.scratch import find_memory
from tests.soak import examples


async def test_one_line_for_each_record_sorted_by_id(tmp_path: Path) -> None:
    async with opened(tmp_path / "store") as store:
        for n in range(3):
            for id in ("c", "a", "b"):
                await put(store, typed_record(id, n))
        await delete(store, "b")
        await put(store, record("plain"), typed_record("d", 1))
        before = await store.last_seq()
        done = await store.rewrite(history=False)
        assert done.lines == 5
        assert [line["id"] for line in lines(tmp_path / "store", "note.jsonl")] == ["a", "b", "c", "d"]
        again = {path.name: path.read_bytes() for path in (tmp_path / "store").glob("*.jsonl")}
        await store.rewrite(history=False)
        same = {path.name: path.read_bytes() for path in (tmp_path / "store").glob("*.jsonl")}
        assert same["note.jsonl"] == again["note.jsonl"]
    without_cache(tmp_path / "store")
    async with opened(tmp_path / "store") as store:
        assert await store.last_seq() == before
        assert await data_of(store, *"abcd") == [{"n": 2}, None, {"n": 2}, {"n": 1}]
        assert (await put(store, typed_record("b", 9))).written[0].rev == 5
        assert await odd(store) == []


async def test_a_commit_that_lost_lines_still_counts(tmp_path: Path) -> None:
    async with opened(tmp_path / "store") as store:
        await commit(store, Put(typed_record("a", 1)), Put(typed_record("b", 1)), Put(typed_record("c", 1)))
        await commit(store, Put(typed_record("a", 2)), Delete("c"))
        await store.rewrite(history=False)
    without_cache(tmp_path / "store")
    async with opened(tmp_path / "store") as store:
        assert await data_of(store, *"abc") == [{"n": 2}, {"n": 1}, None]
        assert await odd(store) == []


@pytest.mark.parametrize("history", [True, False])
async def test_a_retry_is_known_whatever_became_of_the_lines(tmp_path: Path, history: bool) -> None:
    first, second = [typed_record("a", 1)], [typed_record("b", 1), record("c"), typed_record("a", 2)]
    async with opened(tmp_path / "store") as store:
        await put(store, *first, key="one")
        await put(store, *second, key="many", note="why")
        await put(store, typed_record("a", 3), typed_record("b", 2), record("c", 1))
        answers = [await store.outcome(key) for key in ("one", "many")]
        await store.rewrite(history=history)
        await store.rewrite(history=history)
    without_cache(tmp_path / "store")
    async with opened(tmp_path / "store") as store:
        assert [await store.outcome(key) for key in ("one", "many")] == answers
        assert (await put(store, *first, key="one")).repeated
        assert (await put(store, *second, key="many")).repeated
        assert await data_of(store, *"abc") == [{"n": 3}, {"n": 2}, {"n": 1}]


@pytest.mark.parametrize("feed", [True, False])
async def test_the_log_keeps_commits_that_lost_all_their_lines(tmp_path: Path, feed: bool) -> None:
    place = tmp_path / "store"
    async with opened(place) as store:
        await store.declare(Declaration("note", 1, history="none", feed=feed))
        for n in range(4):
            await put(store, typed_record("a", n), note=f"step {n}")
        await put(store, typed_record("a", 4), typed_record("b", 0), note="both")
        await put(store, typed_record("b", 1), record("plain"))
        await delete(store, "b")
        before = await _log(store)
        assert len(before) == (7 if feed else 1)
        for _ in range(2):
            await store.rewrite(history=True)
            assert await _log(store) == before
    without_cache(place)
    async with opened(place) as store:
        assert await _log(store) == before
        assert await odd(store) == []
        await store.rewrite(history=True)
        assert await _log(store) == before
        await store.forget(["a"], "ann", None)
        assert [note for _, note, _, _ in await _log(store) if note is not None] == []
        assert all(b"step" not in path.read_bytes() for path in place.glob("*.jsonl"))


async def _log(store: JSONLBackend) -> list[Any]:
    """What the log says of each commit."""
    return [
        (change.seq, change.note, change.at, [(item.id, item.op, item.rev) for item in change.items])
        for change in await store.changes(0, 100)
    ]


async def test_what_changes_while_it_is_rewritten_is_there(tmp_path: Path) -> None:
    async with opened(tmp_path / "store") as store:
        await put(store, *(typed_record(f"r{n}", n) for n in range(200)))
        work: list[Any] = [put(store, typed_record(f"new{n}", n)) for n in range(40)]
        work.insert(20, store.rewrite(history=True))
        await asyncio.gather(*work)
        assert len(await find_ids(store, limit=None)) == 240
    without_cache(tmp_path / "store")
    async with opened(tmp_path / "store") as store:
        assert len(await find_ids(store, limit=None)) == 240


async def _run(steps: list[Step], history: bool) -> None:
    with tempfile.TemporaryDirectory(dir=find_memory()) as folder, program.slow_clock() as slow:
        place = Path(folder) / "store"
        backend = JSONLBackend(str(place), sync="on_close")
        follower = JSONLBackend(str(place), sync="on_close", cache=str(Path(folder) / "other"))
        await backend.open()
        await follower.open()
        for number, (name, args) in enumerate(steps):
            slow.tick += 1
            await program.answer(backend, name, args)
            if number % 7 == 3:
                await backend.rewrite(history=history)
            if number % 5 == 4:
                await follower.last_seq()
        before = await _holdings(backend)
        await backend.rewrite(history=True)
        assert await _holdings(backend) == before
        everything = (Query(limit=None), STORED, None)
        now = await program.answer(backend, "query", everything)
        followed = await program.answer(follower, "query", everything)
        assert sorted(map(str, followed)) == sorted(map(str, now))
        assert (await follower.check_lines())[1] == []
        await backend.close()
        await follower.close()
        without_cache(place)
        async with opened(place) as again:
            if history:
                assert await _holdings(again) == before
            stats = await again.stats()
            assert (stats.records, stats.seq, stats.first_seq) == before[:3]
            assert sorted(map(str, await program.answer(again, "query", everything))) == sorted(map(str, now))
            assert await odd(again) == []


@pytest.mark.parametrize("history", [True, False])
@settings(max_examples=examples(25))
@given(steps=st.lists(writes, min_size=8, max_size=25))
def test_compaction_changes_no_answer(steps: list[Step], history: bool) -> None:
    asyncio.run(_run(steps, history))


async def test_a_compaction_among_commits_that_fail_is_done_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "s") as store:
        await put(store, typed_record("a"))
        files, writer = store.kernel.folder._open, store._require_open().writer
        whole = files["note.jsonl"]
        files["note.jsonl"] = os.open(tmp_path / "s" / "note.jsonl", os.O_RDONLY), whole[1]
        with writer.lock:  # what is handed in meanwhile is one transaction
            first = asyncio.ensure_future(store._write(lambda ledger: None))
            await asyncio.sleep(0.1)
            good, bad = (asyncio.ensure_future(put(store, each)) for each in (record("b"), typed_record("c")))
            await asyncio.sleep(0.1)
            done = asyncio.ensure_future(store.rewrite(history=True))
            await asyncio.sleep(0.1)
        await first
        assert (await good).seq == 2
        with pytest.raises(StorageError):
            await bad
        assert (await done).lines == 2
        os.close(whole[0])
        assert await data_of(store, "a", "b", "c") == [{"n": 0}, {"n": 0}, None]
