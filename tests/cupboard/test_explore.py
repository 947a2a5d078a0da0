"""Exploring: completed when it works, abandoned when it does not, with what was learned."""

from __future__ import annotations

import asyncio

import pytest

import dgent
from dgent.cupboard import Cupboard, Property, errors


async def test_success_completes(cupboard: Cupboard) -> None:
    await cupboard.properties.set(None, Property("risk", "text", scope="trail"))
    async with cupboard.explore("try redis", "be fast", properties={"risk": "low"}) as trail:
        assert (trail.name, trail.goal, trail.state) == ("try redis", "be fast", "active")
        crumb = await cupboard.add("measure", trail=trail)
        trail.lesson = "it is fast"
        trail.set_property("risk", "none")
    found = await cupboard.trails.get(trail.id)
    assert (found.state, found.lesson, found.get_property("risk")) == ("completed", "it is fast", "none")
    assert found == trail and (await cupboard.origin(crumb)).id == trail.id


async def test_an_exception_abandons(cupboard: Cupboard) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        async with cupboard.explore("try redis") as trail:
            await cupboard.add("measure", trail=trail)
            trail.lesson = "redis needs memory"
            raise RuntimeError("out of memory")
    found = await cupboard.trails.get(trail.id)
    assert (found.state, found.reason, found.lesson) == (
        "abandoned",
        "RuntimeError: out of memory",
        "redis needs memory",
    )
    assert await cupboard.crumbs.fetch() == []
    assert [t.id for t in await cupboard.lessons("redis")] == [trail.id]


@pytest.mark.parametrize("stored", [False, True])
async def test_the_block_may_give_up_itself(quick: Cupboard, stored: bool) -> None:
    async with quick.explore("try redis") as trail:
        await quick.add("measure", trail=trail)
        trail.abandon(reason="too slow", lesson="use postgres")
        if stored:
            await quick.trails.set(trail.id, trail)
    found = await quick.trails.get(trail.id)
    assert (found.state, found.reason, found.lesson) == ("abandoned", "too slow", "use postgres")
    assert await quick.crumbs.fetch() == []


async def test_the_reason_of_the_block_counts_more_than_the_exception(quick: Cupboard) -> None:
    with pytest.raises(ValueError):
        async with quick.explore("x") as trail:
            trail.abandon(reason="mine")
            raise ValueError("theirs")
    assert (await quick.trails.get(trail.id)).reason == "mine"


async def test_one_that_ended_or_vanished_in_the_block(quick: Cupboard) -> None:
    async with quick.explore("a") as trail:
        await quick.abandon(trail.id, reason="by somebody else")
    assert (await quick.trails.get(trail.id)).reason == "by somebody else"
    async with quick.explore("b") as trail:
        await quick.trails.delete(trail.id)
    with pytest.raises(KeyError):
        async with quick.explore("c") as trail:
            await quick.trails.delete(trail.id)
            raise KeyError("x")


@pytest.mark.parametrize("turns", range(12))
async def test_a_cancelled_block_is_abandoned(quick: Cupboard, turns: int) -> None:
    inside = asyncio.Event()

    async def explore() -> None:
        async with quick.explore("x") as trail:
            await quick.add("c", trail=trail)
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.ensure_future(explore())
    await inside.wait()
    task.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    if turns > 6:
        task.cancel()  # once more while it is being abandoned: before or after, never between
    with pytest.raises(asyncio.CancelledError):
        await task
    await quick.universe.put(dgent.Datum(id="later"))  # a commit under way when it was cancelled is done then
    [trail] = await quick.trails.fetch()
    crumbs = len(await quick.crumbs.fetch(trail_id=trail.id))
    assert (trail.state, crumbs) in ([("abandoned", 0)] if turns <= 6 else [("abandoned", 0), ("active", 1)])
    assert len(await quick.crumbs.fetch()) == crumbs
    if trail.ended:
        assert trail.reason == "CancelledError"


async def test_what_the_block_raises_is_not_hidden(quick: Cupboard) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        async with quick.explore("x"):
            await quick.detach()
            raise ZeroDivisionError
    assert "could not be abandoned" in " ".join(raised.value.__notes__)


async def test_two_at_once(cupboard: Cupboard) -> None:
    async def one(name: str, fails: bool) -> None:
        async with cupboard.explore(name) as trail:
            for n in range(3):
                await cupboard.add(f"{name}{n}", trail=trail)
            if fails:
                raise errors.InvalidData("no good")

    ended = await asyncio.gather(one("a", False), one("b", True), return_exceptions=True)
    assert ended[0] is None and isinstance(ended[1], errors.InvalidData)
    assert {c.name for c in await cupboard.crumbs.fetch()} == {"a0", "a1", "a2"}
    assert {t.name: t.state for t in await cupboard.trails.fetch()} == {"a": "completed", "b": "abandoned"}


async def test_lessons(cupboard: Cupboard) -> None:
    for name, lesson in (("redis", "needs memory"), ("sqlite", "one writer"), ("files", None)):
        trail = await cupboard.start(name, "a fast cache")
        await cupboard.abandon(trail, reason=f"{name} was not it", lesson=lesson)
    async with cupboard.explore("redis again") as kept:
        kept.lesson = "it works"
    assert [t.name for t in await cupboard.lessons()] == ["sqlite", "redis"]
    assert [t.name for t in await cupboard.lessons("CACHE")] == ["sqlite", "redis"]
    assert [t.name for t in await cupboard.lessons("memory redis")] == ["redis"]
    assert [t.name for t in await cupboard.lessons(limit=1)] == ["sqlite"]
    assert await cupboard.lessons("nothing of the kind") == []
