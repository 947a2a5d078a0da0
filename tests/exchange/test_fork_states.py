"""Large states of agents in copies: in the middle of their steps, and stepped on both sides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

import dgent
from dgent.exchange.copy import copy, mirror
from dgent.exchange.fork import fork, merge, pull
from dgent.flow import StatefulAgent, StateFunctor
from dgent.universe.parts import MOST

LINE = "a line of some forty bytes, as texts are "
START = {"log": [f"{n} {LINE}" for n in range(300)], "count": 0}
Stores = tuple[dgent.Universe, dgent.Universe]


def add(line: str, s: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return s["count"], {"log": [*s["log"], line], "count": s["count"] + 1}


def chat(u: dgent.Universe) -> StatefulAgent[dict[str, Any], str, int]:
    return StateFunctor(dict, u, START, "chat").lift_logic(add)


async def step(u: dgent.Universe, word: str, count: int) -> dict[str, Any]:
    """Take some steps, and return the state after them."""
    agent = chat(u)
    for number in range(count):
        await agent.invoke(f"{word} {number}")
    return await agent.current_state()


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with dgent.open("memory:") as home, dgent.open("memory:") as other:
        await step(home, "base", 4)
        yield home, other


@pytest.mark.parametrize("conflicts", ["both", "theirs", "mine"])
@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (1, 5), (3, 1), (1, MOST), (MOST, 1)])
async def test_a_state_stepped_on_both_sides_is_that_of_one(
    stores: Stores, ours: int, theirs: int, conflicts: Literal["both", "theirs", "mine"]
) -> None:
    home, other = stores
    await fork(home, other)
    mine, yours = await step(home, "ours", ours), await step(other, "theirs", theirs)
    done = await merge(other, home, conflicts=conflicts)
    (clash,) = done.conflicts
    assert (clash.id, clash.choice) == ("chat:state", conflicts)
    found = await chat(home).current_state()
    assert found == (yours if conflicts == "theirs" else mine)
    if conflicts == "both":
        beside = await home.get(clash.kept, raw=True)
        assert beside is not None and beside.data == yours
    again = await merge(other, home, conflicts=conflicts)
    assert not again.conflicts and await chat(home).current_state() == found
    assert (await step(home, "later", 2))["log"] == [*found["log"], "later 0", "later 1"]


@pytest.mark.parametrize("count", [1, 5, MOST])
async def test_a_state_stepped_on_one_side_follows_it(stores: Stores, count: int) -> None:
    home, other = stores
    await fork(home, other)
    for _ in range(2):
        yours = await step(other, "theirs", count)
        assert not (await merge(other, home)).conflicts
        assert await chat(home).current_state() == yours
        mine = await step(home, "ours", count)
        assert not (await pull(other, home)).conflicts
        assert await chat(other).current_state() == mine


async def test_a_dry_run_and_a_forgotten_state_change_nothing(stores: Stores) -> None:
    home, other = stores
    await fork(home, other)
    mine = await step(home, "ours", 2)
    await step(other, "theirs", 3)
    assert (await merge(other, home, conflicts="theirs", dry_run=True)).conflicts
    assert await chat(home).current_state() == mine
    await home.forget("chat:state")
    await merge(other, home)
    assert await home.count(prefix="chat") == 0


async def test_a_copy_in_the_middle_goes_on_by_itself(stores: Stores) -> None:
    home, other = stores
    await copy(home, other)
    yours = await step(other, "copy", 3)
    mine = await step(home, "ours", 2)
    assert yours["log"][-3:] == ["copy 0", "copy 1", "copy 2"] and mine["log"][-2:] == ["ours 0", "ours 1"]
    counts = [each.datum and each.datum.data["count"] for each in await chat(other).history()]
    assert counts == [*range(7, 0, -1)]


async def test_a_mirror_has_each_step(stores: Stores) -> None:
    home, other = stores
    following = mirror(home, other)

    async def follow() -> None:
        async for seq in following:
            if seq >= await home.seq():
                return

    for count in (1, MOST, 3):
        state = await step(home, "more", count)
        async with asyncio.timeout(60):
            await follow()
        assert await chat(other).current_state() == state
