"""Two clones of a store, changed apart and brought together by real git."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import DgentError
from dgent.model.query import Query
from dgent.store.backend import Declaration, Delete, Put
from dgent.store.jsonl.backend import JSONLBackend
from dgent.testing.contract import STORED, commit, delete, expect_error, find_ids, put, typed_record
from tests.jsonl.repositories import Clone, git, two_clones
from tests.jsonl.stores import data_of, lines, odd, opened, without_cache

ROUTES = pytest.mark.parametrize("driver", [True, False], ids=["driver", "markers"])


@pytest.fixture
async def clones(tmp_path: Path, driver: bool) -> tuple[Clone, Clone]:
    (tmp_path / "one").mkdir()
    async with opened(tmp_path / "one" / "memory") as store:
        await put(store, typed_record("a", 0), typed_record("b", 0))
        await put(store, typed_record("a", 1))
    return two_clones(tmp_path, driver=driver, forked=False)


async def _holds(clone: Clone) -> Any:
    """What a clone says of its records, apart from what is its own: seqs, revs and times of arrival."""
    async with opened(clone.store) as store:
        page = await store.query(Query(limit=None), STORED)
        histories = {d.id: await store.history(d.id, None) for d in page.items}
        told = {id: [v.datum and v.datum.data for v in versions] for id, versions in histories.items()}
        return {d.id: d.data for d in page.items}, {id: sorted(map(str, v)) for id, v in told.items()}


@ROUTES
async def test_both_append(clones: tuple[Clone, Clone]) -> None:
    one, two = clones
    for clone, id in ((one, "from one"), (two, "from two")):
        async with opened(clone.store) as store:
            await put(store, typed_record(id, 1))
            await put(store, typed_record(id + " too", 1), typed_record(id + " also", 1, schema="tick"))
        clone.save()
    one.pull(two, conflict=not one.driver)
    two.pull(one)
    for clone in clones:
        async with opened(clone.store) as store:
            assert len(await find_ids(store)) == 8
            assert (await store.check_lines())[1] == []
            if one.driver:
                assert await odd(store) == []
            else:
                assert {kind for _, _, kind in await odd(store)} == {"conflict marker"}
    assert await _holds(one) == await _holds(two)


@ROUTES
async def test_edits_of_different_records(clones: tuple[Clone, Clone]) -> None:
    one, two = clones
    async with opened(one.store) as store:
        await put(store, typed_record("a", 10))
        await put(store, typed_record("a", 11))
    async with opened(two.store) as store:
        await delete(store, "b")
    one.save()
    two.save()
    two.pull(one, conflict=not two.driver)
    async with opened(two.store) as store:
        assert await data_of(store, "a", "b") == [{"n": 11}, None]
        assert [v.rev for v in await store.history("a", None)] == [4, 3, 2, 1]
        assert (await store.check_lines())[1] == []


@ROUTES
@pytest.mark.parametrize("later", ["one", "two"])
async def test_edits_of_one_record_on_both_sides(clones: tuple[Clone, Clone], later: str) -> None:
    one, two = clones
    order = [(two, 200), (one, 100)] if later == "one" else [(one, 100), (two, 200)]
    for clone, n in order:
        async with opened(clone.store) as store:
            await put(store, typed_record("a", n))
            await put(store, typed_record("a", n + 1))
        await asyncio.sleep(0.01)
        clone.save()
    one.pull(two, conflict=not one.driver)
    async with opened(one.store) as store:
        winner = 101 if later == "one" else 201
        assert await data_of(store, "a") == [{"n": winner}]
        kept = {v.datum.data["n"] for v in await store.history("a", None)}
        assert kept == {0, 1, 100, 101, 200, 201}
        (conflict,) = (await store.check_lines())[1]
        assert conflict[0] == "a"
        assert (await store.stats()).details["conflicts"] == 1
        findings = await store.upkeep().inspect()
        assert any(each.subject == "conflict" and "'a'" in each.message for each in findings)
        assert (await store.changes(0, 100))[-1].kind == "merge"
        for rev in (3, 4):
            await expect_error("version_conflict", commit(store, Put(typed_record("a", 5), expect=rev)))
    assert lines(one.store, "note.jsonl")[-1]["prev"] == sorted(lines(one.store, "note.jsonl")[-1]["prev"])
    one.save()
    two.pull(one)
    async with opened(two.store) as store:
        assert await data_of(store, "a") == [{"n": winner}]
        assert [each[0] for each in (await store.check_lines())[1]] == ["a"]
        await put(store, typed_record("a", 300))
        assert (await store.check_lines())[1] == []
    without_cache(two.store)
    async with opened(two.store) as store:
        assert await data_of(store, "a") == [{"n": 300}]
        assert (await store.check_lines())[1] == []
        kept = {v.datum.data["n"] for v in await store.history("a", None)}
        assert kept == {0, 1, 100, 101, 200, 201, 300}


@pytest.mark.parametrize("driver", [True])
async def test_both_settle_a_conflict_alike(clones: tuple[Clone, Clone]) -> None:
    """Each clone merges the other before it sees how the other merged: there is nothing to settle again."""
    one, two = clones
    for clone, n in ((one, 1), (two, 2)):
        async with opened(clone.store) as store:
            await put(store, typed_record("a", 100 * n))
        clone.save()
    one_before, two_before = (git(clone.path, "rev-parse", "HEAD").strip() for clone in clones)
    git(one.path, "fetch", "-q", str(two.path), "HEAD")
    git(two.path, "fetch", "-q", str(one.path), "HEAD")
    git(one.path, "merge", "-q", "-m", "merge", two_before)
    git(two.path, "merge", "-q", "-m", "merge", one_before)
    for clone in clones:
        async with opened(clone.store) as store:
            assert await data_of(store, "a") == [{"n": 200}]
        clone.save()
    settled = [lines(clone.store, "note.jsonl")[-1] for clone in clones]
    assert settled[0] == settled[1]
    assert isinstance(settled[0]["prev"], list)
    one.pull(two)
    two.pull(one)
    for clone in clones:
        size = (clone.store / "note.jsonl").stat().st_size
        async with opened(clone.store) as store:
            assert await data_of(store, "a") == [{"n": 200}]
            assert len((await store.check_lines())[1]) == 1
        assert (clone.store / "note.jsonl").stat().st_size == size
    assert await _holds(one) == await _holds(two)


@ROUTES
async def test_the_feed_misses_nothing_that_a_pull_brings(clones: tuple[Clone, Clone]) -> None:
    one, two = clones
    async with opened(two.store) as store:
        await put(store, typed_record("theirs", 1))
    two.save()
    async with opened(one.store) as store:
        await put(store, typed_record("ours", 1))
        one.save()
        since = await store.last_seq()
        waiting = asyncio.create_task(store.wait(since, 10))
        one.pull(two, conflict=not one.driver)
        assert await waiting > since
        news = await store.changes(since, 100)
        assert [item.id for change in news for item in change.items] == ["theirs"]
        assert [change.seq for change in news] == sorted(change.seq for change in news)


@pytest.mark.parametrize("driver", [True])
async def test_what_one_clone_forgot_the_other_cannot_bring_back(clones: tuple[Clone, Clone]) -> None:
    one, two = clones
    async with opened(one.store) as store:
        await store.forget(["a"], "ann", None)
    one.save()
    async with opened(two.store) as store:
        await put(store, typed_record("a", 777))
        await put(store, typed_record("c", 1))
    two.save()
    one.pull(two)
    two.pull(one)
    for clone in clones:
        async with opened(clone.store) as store:
            assert await data_of(store, *"abc") == [None, {"n": 0}, {"n": 1}]
        assert all(b'"id":"a"' not in path.read_bytes() for path in clone.store.glob("*.jsonl"))
        assert (await _put_again(clone)) > 2


@pytest.mark.parametrize("driver", [True])
@pytest.mark.parametrize("case", ["closed", "open", "cache deleted"])
async def test_undo_after_a_forget_that_came_by_pull(clones: tuple[Clone, Clone], case: str) -> None:
    """The key of a forgotten record is given to no other: the log would speak of that one."""
    one, two = clones
    async with opened(one.store) as store:
        await put(store, typed_record("secret", 1), typed_record("kept", 1))
        await put(store, typed_record("secret", 2))
        await store.forget(["secret"], "ann", None)
    one.save()
    async with opened(two.store) as store:
        before = await store.last_seq()
    if case != "open":
        two.pull(one)
    if case == "cache deleted":
        without_cache(two.store)
    async with dgent.open(f"jsonl:{two.store}") as u:
        if case == "open":
            two.pull(one)
        for n in range(5):
            await u.put(typed_record(f"new {n}", n))
        for change in (await u.changes(before))[:-5]:
            assert not [item.id for item in change.items if str(item.id).startswith("new")]
            with suppress(DgentError):
                await u.undo(change.seq, force=True)
        assert [await u.exists(f"new {n}") for n in range(5)] == [True] * 5


async def _put_again(clone: Clone) -> int:
    async with opened(clone.store) as store:
        return (await put(store, typed_record("a", 5))).written[0].rev


@pytest.mark.parametrize("driver", [True])
@pytest.mark.parametrize("history", [True, False])
async def test_a_compacted_clone_merges_with_one_that_went_on(
    clones: tuple[Clone, Clone], history: bool
) -> None:
    one, two = clones
    async with opened(one.store) as store:
        await store.rewrite(history=history)
        await put(store, typed_record("from one", 1))
    async with opened(two.store) as store:
        await put(store, typed_record("a", 2))
        await put(store, typed_record("from two", 1))
    one.save()
    two.save()
    one.pull(two)
    two.pull(one)
    for clone in clones:
        for _ in range(2):
            async with opened(clone.store) as store:
                assert await data_of(store, "a", "b", "from one", "from two") == [
                    {"n": 2}, {"n": 0}, {"n": 1}, {"n": 1},
                ]  # fmt: skip
                assert (await store.check_lines())[1] == []
                assert await odd(store) == []
            without_cache(clone.store)


@pytest.mark.parametrize("driver", [True])
async def test_a_schema_emptied_on_one_side_and_used_on_the_other(clones: tuple[Clone, Clone]) -> None:
    one, two = clones
    async with opened(one.store) as store:
        await delete(store, "a", "b")
        await store.rewrite(history=False)
    async with opened(two.store) as store:
        await put(store, typed_record("c", 1))
    one.save()
    two.save()
    one.pull(two)
    async with opened(one.store) as store:
        assert await data_of(store, *"abc") == [None, None, {"n": 1}]
        assert (await store.check_lines())[1] == []
        assert (await put(store, typed_record("a", 5))).written[0].rev == 4


@pytest.mark.parametrize("driver", [True])
async def test_commits_over_several_files_stay_whole(clones: tuple[Clone, Clone]) -> None:
    one, two = clones
    async with opened(one.store) as store:
        await put(store, typed_record("x", 1), typed_record("y", 1, schema="tick"), note="why", key="k")
    async with opened(two.store) as store:
        await store.declare(Declaration("note", 2, indexes=("n",)))
        await put(store, typed_record("z", 1), typed_record("w", 1, schema="tock"))
    one.save()
    two.save()
    two.pull(one)
    without_cache(two.store)
    async with opened(two.store) as store:
        assert {"x", "y", "z", "w"} <= set(await find_ids(store))
        outcome = await store.outcome("k")
        assert outcome is not None
        assert {each.id for each in outcome.written} == {"x", "y"}
        (version,) = await store.history("x", None)
        assert version.note == "why"
        again = await put(
            store, typed_record("x", 1), typed_record("y", 1, schema="tick"), note="why", key="k"
        )
        assert again.repeated


@pytest.mark.parametrize("driver", [True])
async def test_going_to_another_branch_and_back(clones: tuple[Clone, Clone]) -> None:
    one, _ = clones
    git(one.path, "checkout", "-q", "-b", "side")
    async with opened(one.store) as store:
        await put(store, typed_record("a", 50))
        await put(store, typed_record("side", 1))
    one.save()
    backend = JSONLBackend(str(one.store))
    await backend.open()
    git(one.path, "checkout", "-q", "main")
    assert await data_of(backend, "a", "side") == [{"n": 1}, None]
    git(one.path, "checkout", "-q", "side")
    assert await data_of(backend, "a", "side") == [{"n": 50}, {"n": 1}]
    assert (await commit(backend, Put(typed_record("a", 51), expect=3), Delete("side"))).written[0].rev == 4
    await backend.close()
