"""Letting go of old history: what a rule keeps stays whole, and what is gone says so."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import dgent
from dgent.errors import HistoryGone
from dgent.store.backend import Keep
from tests.universe.marks import mark


async def fill(u: dgent.Universe, *ids: str, times: int = 5) -> None:
    for n in range(times):
        for id in ids:
            await u.put(dgent.Datum(id=id, data={"n": n}))


async def revs(u: dgent.Universe, id: str) -> list[int]:
    return [version.rev for version in await u.history(id)]


async def test_so_many_versions(u: dgent.Universe) -> None:
    await fill(u, "x", "y")
    await u.put(dgent.Datum(id="z"))
    done = await u.compact(2)
    assert done.versions == 4
    assert await revs(u, "x") == await revs(u, "y") == [5, 4, 3]
    assert await revs(u, "z") == [1]
    assert await u.count() == 3
    assert (await u.compact(2)).versions == 0
    await u.compact(keep=0)
    assert await revs(u, "x") == [5]


async def test_what_is_younger(u: dgent.Universe) -> None:
    await fill(u, "x", times=3)
    await asyncio.sleep(0.005)
    between = datetime.now(UTC)
    await asyncio.sleep(0.005)
    await fill(u, "x", times=3)
    await u.compact(keep=timedelta(days=1))
    assert await revs(u, "x") == [6, 5, 4, 3, 2, 1]
    await u.compact(keep=between)
    assert await revs(u, "x") == [6, 5, 4, 3], "the one that was current then stays"
    assert (await u.get("x", as_of=between)).data["n"] == 2


async def test_one_schema_only(u: dgent.Universe) -> None:
    await fill(u, "x")
    kept = await u.remember(mark())
    await u.store(kept.replace(value=mark("two")))
    await u.compact(Keep(versions=0, schema="witness.mark"))
    assert await revs(u, kept.id) == [2]
    assert await revs(u, "x") == [5, 4, 3, 2, 1]


async def test_what_is_gone_says_so(u: dgent.Universe) -> None:
    await fill(u, "x")
    done = await u.compact(1)
    assert done.first_seq > 1
    assert (await u.stats()).first_seq == done.first_seq
    for work in (
        u.get("x", as_of=1),
        u.query(dgent.Query(), as_of=1),
        u.count(as_of=1),
        u.changes(0),
        u.undo(2),
    ):
        with pytest.raises(HistoryGone) as gone:
            await work
    for work in (u.changes(0), anext(u.watch(since=0))):
        with pytest.raises(HistoryGone) as gone:
            await work
        assert gone.value.details["first_seq"] == done.first_seq
    assert [c.seq for c in await u.changes(done.first_seq - 1)] == list(range(done.first_seq, 6))
    assert (await u.get("x", as_of=4)).data["n"] == 3


async def test_a_moment_before_what_is_kept(u: dgent.Universe) -> None:
    await fill(u, "x", times=1)
    await asyncio.sleep(0.005)
    early = datetime.now(UTC)
    await asyncio.sleep(0.005)
    await fill(u, "x", times=5)
    await u.compact(0)
    with pytest.raises(HistoryGone):
        await u.get("x", as_of=early)
    with pytest.raises(HistoryGone):
        await u.query(dgent.Query(), as_of=early)


async def test_deletions_and_revs_survive(u: dgent.Universe) -> None:
    await fill(u, "x")
    await u.delete("x")
    await u.compact(0)
    assert await u.get("x") is None
    again = await u.put(dgent.Datum(id="x"))
    assert again.rev == 7


async def test_keys_and_queries_go_on(u: dgent.Universe) -> None:
    kept = await u.remember(mark(), tags={"t"})
    await fill(u, "x")
    await u.compact(0)
    assert await u.recall(dgent.Query(tags={"t"}, where={"author": "scout"})) == [kept]
    await u.undo((await u.remember(mark("new"))).seq)
    assert len(await u.changes((await u.stats()).first_seq - 1)) >= 2


@pytest.mark.parametrize(
    "keep",
    [
        -1,
        1.5,
        timedelta(days=-1),
        datetime(2024, 1, 1),
        Keep(),
        Keep(schema="witness.mark"),
        Keep(versions=-1),
        Keep(after=datetime(2024, 1, 1)),
    ],
    ids=repr,
)
async def test_rules_that_mean_nothing_are_refused(u: dgent.Universe, keep: object) -> None:
    await fill(u, "x")
    with pytest.raises(dgent.InputError):
        await u.compact(keep)  # type: ignore[arg-type]
    assert len(await u.history("x")) == 5
    await u.compact(timedelta.max)
    assert len(await u.history("x")) == 5
