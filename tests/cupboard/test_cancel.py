"""A change that is cancelled at any of its awaits happens whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.cupboard import Crumb, Cupboard, Link, Stash, Trail
from tests.contract.columns import SETTINGS

SOME = 6
PAUSES_S = [0.0002 * 1.8**n for n in range(7)]


@pytest.fixture(params=["memory", "sqlite"])
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cupboard]:
    async with dgent.open(SETTINGS[request.param][0].url(tmp_path), durability="relaxed") as u:
        yield Cupboard(u)


async def picture(cupboard: Cupboard) -> tuple[Any, ...]:
    """Everything there is, as far as these calls change it."""
    return (
        sorted(c.name for c in await cupboard.crumbs.fetch()),
        sorted(link.link_type for link in await cupboard.links.fetch()),
        sorted((t.name, t.state, t.reason) for t in await cupboard.trails.fetch()),
        sorted((s.name, s.version) for s in await cupboard.stashes.fetch()),
        len(await cupboard.metadata.fetch()),
        sorted(c.name for c in await cupboard.ready()),
    )


async def prepared(cupboard: Cupboard) -> Trail:
    """A trail with crumbs, entries and a stash, and a crumb that waits for one of them; nothing else."""
    for crumb in await cupboard.crumbs.fetch():
        await cupboard.crumbs.delete(crumb.id)
    for trail in await cupboard.trails.fetch():
        await cupboard.trails.delete(trail.id)
    for stash in await cupboard.stashes.fetch():
        await cupboard.stashes.delete(stash.id)
    trail = await cupboard.start("t")
    crumbs = [Crumb(f"c{n}", "ready") for n in range(SOME)]
    await cupboard.add_many(crumbs, [("child_of", n, n - 1) for n in range(1, SOME)], trail=trail)
    await cupboard.comment(crumbs[0], "hello")
    await cupboard.add("outside", state="ready", parents=[crumbs[-1]])
    await cupboard.stashes.create("n", "counter", trail=trail.id)
    return trail


async def complete(cupboard: Cupboard, trail: Trail) -> None:
    await cupboard.complete(trail.id)


async def abandon(cupboard: Cupboard, trail: Trail) -> None:
    await cupboard.abandon(trail.id, reason="cancelled or not")


async def add_many(cupboard: Cupboard, trail: Trail) -> None:
    await cupboard.add_many(
        [Crumb(f"new{n}", "ready") for n in range(SOME)], [("child_of", 1, 0)], trail=trail
    )


async def delete(cupboard: Cupboard, trail: Trail) -> None:
    await cupboard.crumbs.delete((await cupboard.crumbs.fetch(name="c1"))[0].id)


async def increment(cupboard: Cupboard, trail: Trail) -> None:
    await cupboard.stashes.increment((await cupboard.stashes.fetch())[0].id)


Call = Callable[[Cupboard, Trail], Awaitable[None]]


@pytest.mark.parametrize("call", [complete, abandon, add_many, delete, increment])
async def test_before_or_after(shelf: Cupboard, call: Call) -> None:
    await call(shelf, await prepared(shelf))
    after = await picture(shelf)
    await prepared(shelf)
    before = await picture(shelf)
    assert before != after
    seen = set()
    turns = 0
    plans: list[tuple[int, float]] = []
    while True:
        trail = await prepared(shelf)
        task = asyncio.ensure_future(call(shelf, trail))
        if plans:
            await asyncio.sleep(plans.pop()[1])
        else:
            for _ in range(turns):
                await asyncio.sleep(0)
        over = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        found = await picture(shelf)
        assert found in (before, after), (turns, found)
        seen.add(found == after)
        if over and turns >= 0:
            turns, plans = -1, [(0, pause) for pause in PAUSES_S]
        elif turns >= 0:
            turns += 1
            if turns > 150:  # another thread has the work: turns of the loop do not count
                turns, plans = -1, [(0, pause) for pause in PAUSES_S]
        elif not plans:
            break
    assert False in seen
    await call(shelf, await prepared(shelf))  # and nothing stands in the way afterwards
    assert await picture(shelf) == after
    assert (await shelf.audit()).findings == ()


async def test_cancelled_takers_leave_the_queue_whole(shelf: Cupboard) -> None:
    await shelf.add_many([Crumb(f"c{n}", "ready") for n in range(30)])
    for turns in range(30):
        task = asyncio.ensure_future(shelf.take("me"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    found = await shelf.crumbs.fetch()
    taken = [c for c in found if c.state == "taken"]
    assert all(c.holder == "me" and c.token == 1 for c in taken)
    assert len(await shelf.ready()) + len(taken) == 30


async def test_a_link_cancelled_or_not_counts_right(shelf: Cupboard) -> None:
    parent = await shelf.add("parent")
    child = await shelf.add("child", state="ready")
    for turns in range(25):
        task = asyncio.ensure_future(shelf.links.set(None, Link("child_of", child.id, parent.id)))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        links = await shelf.links.fetch()
        assert [c.name for c in await shelf.ready()] == ([] if links else ["child"])
        for link in links:
            await shelf.links.delete(link.id)
    assert [c.name for c in await shelf.ready()] == ["child"]


async def test_a_cancelled_holder_lets_go(shelf: Cupboard) -> None:
    lock = Stash("l", "lock")
    await shelf.stashes.set(None, lock)
    inside = asyncio.Event()

    async def use() -> None:
        async with shelf.stashes.held(lock.id, "me"):
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.ensure_future(use())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await shelf.stashes.get(lock.id)).value is None
