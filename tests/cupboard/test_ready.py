"""What can be worked on now, in which order and why, and taking the next."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dgent
from dgent.cupboard import Category, Crumb, Cupboard, Property, errors
from tests.cupboard.conftest import Hours, Rival

SOON = timedelta(seconds=100)


async def names(cupboard: Cupboard, **filters: Any) -> list[str]:
    return [crumb.name for crumb in await cupboard.ready(**filters)]


async def test_only_ready_ones_that_wait_for_nobody(cupboard: Cupboard) -> None:
    for state in ("draft", "pending", "ready", "taken", "pebble", "dust"):
        parent = await cupboard.add(f"p-{state}", state=state)
        await cupboard.add(f"c-{state}", state="ready", parents=[parent])
    assert set(await names(cupboard)) == {"p-ready", "c-pebble"}
    assert {each.crumb.name for each in await cupboard.blocked()} == {
        "c-draft",
        "c-pending",
        "c-ready",
        "c-taken",
        "c-dust",
    }


async def test_all_parents_must_be_pebbles(cupboard: Cupboard) -> None:
    parents = await cupboard.add_many([Crumb(f"p{n}") for n in range(3)])
    child = await cupboard.add("child", state="ready", parents=parents)
    for n, parent in enumerate(parents):
        assert await names(cupboard) == []
        assert len((await cupboard.explain(child)).waits_for) == 3 - n
        await cupboard.done(parent)
    assert await names(cupboard) == ["child"]
    parents[1].set_state("ready")  # it was not done after all
    with pytest.raises(dgent.errors.Conflict):
        await cupboard.crumbs.set(parents[1].id, parents[1])
    again = await cupboard.crumbs.get(parents[1].id)
    again.set_state("ready")
    await cupboard.crumbs.set(again.id, again)
    assert await names(cupboard) == ["p1"]
    await cupboard.crumbs.delete(again.id)
    assert await names(cupboard) == ["child"]


async def test_by_priority_then_age(cupboard: Cupboard) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    order = ["low", None, "highest", "medium", "lowest", "high", None, "highest"]
    for n, priority in enumerate(order):
        crumb = Crumb(f"{priority}{n}", "ready", created_at=start - timedelta(days=n))
        await cupboard.add(crumb, properties={"priority": priority})
    expected = ["highest7", "highest2", "high5", "medium3", "low0", "lowest4", "None6", "None1"]
    assert await names(cupboard) == expected
    for limit in range(1, 8):
        assert await names(cupboard, limit=limit) == expected[:limit]
    assert await names(cupboard, limit=2, offset=3) == expected[3:5]
    assert await names(cupboard, limit=0) == await names(cupboard, limit=None) == expected
    assert [each.crumb.name for each in await cupboard.explain_ready(3)] == expected[:3]
    for wrong in (-1, "3", 1.5, True):
        with pytest.raises(errors.InvalidFilter):
            await cupboard.ready(wrong)  # type: ignore[arg-type]
    crumb = (await cupboard.crumbs.fetch(name="None1"))[0]
    crumb.set_property("priority", "highest")
    await cupboard.crumbs.set(crumb.id, crumb)
    assert (await names(cupboard))[:3] == ["highest7", "highest2", "None1"]


async def test_the_oldest_of_many_whatever_their_ids(quick: Cupboard) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    crumbs = [
        Crumb(f"c{n}", "ready", id=f"{n:04}", created_at=start - timedelta(seconds=n)) for n in range(400)
    ]
    await quick.add_many(crumbs)
    assert await names(quick, limit=3) == ["c399", "c398", "c397"]
    taken = await quick.take("me")
    assert taken is not None and taken.name == "c399"


async def test_a_priority_that_is_ranked_anew(quick: Cupboard) -> None:
    priority = (await quick.properties.fetch(name="priority"))[0]
    urgent = Category(priority.id, "urgent", 9)
    await quick.categories.set(None, urgent)
    await quick.add("urgent", state="ready", properties={"priority": "urgent"})
    await quick.add("high", state="ready", properties={"priority": "high"})
    assert await names(quick) == ["high", "urgent"]
    urgent.ordinal = -1
    await quick.categories.set(urgent.id, urgent)
    assert await names(quick) == ["urgent", "high"]


async def test_put_off_until_a_time(cupboard: Cupboard, hours: Hours) -> None:
    until = datetime.now(UTC) + SOON
    later = await cupboard.add("later", state="ready", defer_until=until)
    await cupboard.add("past", state="ready", defer_until=datetime.now(UTC) - SOON)
    assert await names(cupboard) == ["past"]
    told = await cupboard.explain(later)
    assert not told.ready and told.defer_until == until and "put off" in " ".join(told.reasons)
    hours.pass_by(101)
    assert await names(cupboard) == ["later", "past"]
    later.defer(hours.now() + timedelta(days=1))
    await cupboard.crumbs.set(later.id, later)
    assert await names(cupboard) == ["past"]
    later.defer(None)
    await cupboard.crumbs.set(later.id, later)
    assert await names(cupboard) == ["later", "past"]
    for wrong in ("tomorrow", 5, datetime(2024, 1, 1)):
        with pytest.raises(dgent.errors.InputError):
            await cupboard.add("x", defer_until=wrong)  # type: ignore[arg-type]
    assert len(await cupboard.crumbs.fetch()) == 2


async def test_filters(cupboard: Cupboard) -> None:
    trail = await cupboard.start("t")
    await cupboard.add("task", state="ready", trail=trail, properties={"type": "task", "labels": ["x"]})
    await cupboard.add("epic", state="ready", properties={"type": "epic"})
    assert await names(cupboard, properties={"type": "task"}) == ["task"]
    assert await names(cupboard, trail_id=trail.id) == ["task"]
    assert await names(cupboard, properties={"labels": "x", "type": "epic"}) == []
    taken = await cupboard.take("me", properties={"type": "epic"})
    assert taken is not None and taken.name == "epic"
    assert await cupboard.take("me", properties={"type": "epic"}) is None


async def test_taking(cupboard: Cupboard) -> None:
    made = await cupboard.add("x", state="ready")
    taken = await cupboard.take("scout", lease_s=300)
    assert taken is not None
    assert (taken.id, taken.state, taken.holder, taken.token) == (made.id, "taken", "scout", 1)
    assert taken.lease_until > datetime.now(UTC) and taken == await cupboard.crumbs.get(made.id)
    assert await cupboard.take("other") is None and await cupboard.ready() == []
    with pytest.raises(errors.NotLockHolder):
        await cupboard.heartbeat(taken, "other")
    assert await cupboard.heartbeat(taken, "scout", lease_s=1000) > taken.lease_until
    assert (await cupboard.release(taken, token=1)).state == "ready"
    again = await cupboard.take("other")
    assert again is not None and (again.token, again.holder) == (2, "other")
    for late in (
        cupboard.done(taken, token=1),
        cupboard.release(taken, token=1),
        cupboard.drop(taken, token=1),
    ):
        with pytest.raises(errors.NotLockHolder):
            await late
    with pytest.raises(errors.NotLockHolder):
        await cupboard.heartbeat(taken, "scout")
    done = await cupboard.done(again, token=2)
    assert (done.state, done.holder, done.lease_until) == ("pebble", None, None)
    with pytest.raises(errors.InvalidTransition):
        await cupboard.release(done)
    with pytest.raises(errors.NotLockHolder):
        await cupboard.heartbeat(done, "other")


@pytest.mark.parametrize("agent", ["", None, 5])
async def test_an_agent_has_a_name(quick: Cupboard, agent: Any) -> None:
    with pytest.raises(errors.InvalidHolder):
        await quick.take(agent)


async def test_a_lease_ends_when_the_agent_is_silent(cupboard: Cupboard, rival: Rival, hours: Hours) -> None:
    other = await rival()
    made = await cupboard.add("x", state="ready", properties={"priority": "high"})
    first = await cupboard.take("one", lease_s=100)
    assert first is not None and await other.take("two") is None
    hours.pass_by(101)
    assert (await cupboard.explain(made)).ready and await names(other) == ["x"]
    with pytest.raises(errors.NotLockHolder):
        await cupboard.heartbeat(first, "one")
    second = await other.take("two", lease_s=100)
    assert second is not None and (second.token, second.holder) == (2, "two")
    await other.heartbeat(second, "two", lease_s=1000)
    hours.pass_by(101)
    assert await cupboard.take("three") is None and await names(cupboard) == []
    with pytest.raises(errors.NotLockHolder):
        await cupboard.done(first, token=first.token)
    await other.done(second, token=second.token)


async def test_what_was_given_up_is_not_ready_when_it_waits_or_is_put_off(
    quick: Cupboard, hours: Hours
) -> None:
    parent = await quick.add("parent")
    for name in ("waits", "deferred", "free"):
        await quick.add(name, state="ready")
    for _ in range(3):
        assert await quick.take("one", lease_s=100)
    waits, deferred = [(await quick.crumbs.fetch(name=name))[0] for name in ("waits", "deferred")]
    await quick.links.set(None, dgent.cupboard.Link("child_of", waits.id, parent.id))
    deferred.defer(datetime.now(UTC) + timedelta(days=1))
    await quick.crumbs.set(deferred.id, deferred)
    hours.pass_by(101)
    assert await names(quick) == ["free"]
    for name in ("waits", "deferred", "free"):
        crumb = (await quick.crumbs.fetch(name=name))[0]
        assert (await quick.explain(crumb)).ready == (name == "free")


async def test_signs_of_life_end_with_what_they_are_about(quick: Cupboard, hours: Hours) -> None:
    await quick.crumbs.set("x", Crumb("x", "ready"))
    assert await quick.take("one", lease_s=5)
    await quick.heartbeat("x", "one", lease_s=1000)
    await quick.crumbs.delete("x")
    await quick.crumbs.set("x", Crumb("x", "ready"))
    assert await quick.take("two", lease_s=100)
    hours.pass_by(101)
    assert await quick.take("three") is not None


async def test_many_tasks_take_each_crumb_once(cupboard: Cupboard) -> None:
    await cupboard.add_many([Crumb(f"c{n}", "ready") for n in range(40)])
    taken: list[str] = []

    async def work(agent: str) -> None:
        while crumb := await cupboard.take(agent):
            taken.append(crumb.id)

    await asyncio.gather(*[work(f"a{n}") for n in range(8)])
    assert len(taken) == len(set(taken)) == 40


async def test_why_and_what_blocks(cupboard: Cupboard) -> None:
    parent = await cupboard.add("parent")
    child = await cupboard.add("child", state="ready", parents=[parent])
    told = await cupboard.explain(child)
    assert not told.ready and told.waits_for == (parent.id,) and "parent" in told.reasons[0]
    assert (await cupboard.explain(parent)).reasons == ("its state is draft",)
    [blocked] = await cupboard.blocked()
    assert blocked.crumb.id == child.id
    await cupboard.done(parent)
    told = await cupboard.explain(child.id)
    assert told.ready and told.rank is not None and await cupboard.blocked() == []
    for nothing in ("nothing", (await cupboard.start("t")).id):
        with pytest.raises(errors.EntityNotFound):
            await cupboard.explain(nothing)


async def test_a_definition_does_not_disturb_the_queue(quick: Cupboard) -> None:
    await quick.add("old", state="ready", properties={"priority": "low"})
    await quick.properties.set(None, Property("estimate", "integer"))
    await quick.add("new", state="ready", properties={"priority": "high", "estimate": 3})
    assert await names(quick) == ["new", "old"]
    assert await names(quick, properties={"estimate": 0}) == ["old"]
