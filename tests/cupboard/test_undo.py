"""Undoing what was done in the cupboard: everything comes back, and the rules hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dgent
from dgent.cupboard import Crumb, Cupboard, Link, Property, Stash, errors
from dgent.errors import Denied, UndoConflict, Unreadable
from tests.soak import examples, first


@pytest.fixture(params=first(["sqlite", "memory"], 1))
async def cupboard(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cupboard]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"
    async with dgent.open(url, author="ann") as u:
        yield Cupboard(u)


async def picture(cupboard: Cupboard) -> dict[str, object]:
    """Everything a user can see, without the numbers of commits."""
    return {
        "crumbs": {c.id: (c.name, c.state, c.readable()) for c in await cupboard.crumbs.fetch()},
        "trails": {t.id: (t.name, t.state, t.reason, t.lesson) for t in await cupboard.trails.fetch()},
        "links": {
            link.id: (link.link_type, link.from_id, link.to_id) for link in await cupboard.links.fetch()
        },
        "stashes": {s.id: (s.name, s.value, s.version) for s in await cupboard.stashes.fetch()},
        "metadata": {m.id: m.content for m in await cupboard.metadata.fetch()},
        "ready": [c.name for c in await cupboard.ready()],
        "properties": [p.name for p in await cupboard.properties.fetch()],
    }


async def a_trail(cupboard: Cupboard) -> str:
    """A trail with crumbs, comments, a stash, and a crumb elsewhere that waits for one of them."""
    root = await cupboard.add("root", state="pebble")
    trail = await cupboard.start("try redis", branches_from=root)
    one = await cupboard.add("one", trail=trail, state="ready", properties={"priority": "high"})
    two = await cupboard.add("two", trail=trail, state="ready", parents=[one, root])
    await cupboard.add("outside", state="ready", parents=[two])
    await cupboard.comment(one, "look at this")
    stash = Stash("cache", "context", {"a": 1})
    await cupboard.stashes.set(None, stash)
    await cupboard.links.set(None, Link("scoped_to", stash.id, trail.id))
    await cupboard.stashes.set(None, Stash("cache", "context", {"global": True}))
    return trail.id


async def test_abandoning_a_trail_is_undone_whole(cupboard: Cupboard) -> None:
    trail = await a_trail(cupboard)
    before = await picture(cupboard)
    ended = await cupboard.abandon(trail, reason="too slow", lesson="redis needs a server")
    assert [c.name for c in await cupboard.ready()] == ["outside"]
    assert ended.freed != ()
    assert ended.seq is not None
    await cupboard.universe.undo(ended.seq)
    assert await picture(cupboard) == before


async def test_the_undo_of_a_large_end_asks_as_often_as_that_of_a_small_one(
    cupboard: Cupboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, calls = cupboard.universe.backend, Counter[str]()

    def count(name: str) -> None:
        real = getattr(backend, name)

        async def counted(*given: Any, **named: Any) -> Any:
            calls[name] += 1
            return await real(*given, **named)

        monkeypatch.setattr(backend, name, counted)

    for name in ("get", "get_many", "query", "history", "states_before"):
        count(name)
    asked = []
    for many in (2, 60):
        trail = await cupboard.start(f"of {many}")
        crumbs = [Crumb(f"c{n}", "ready") for n in range(many)]
        await cupboard.add_many(crumbs, [("child_of", n, n - 1) for n in range(1, many)], trail=trail)
        ended = await cupboard.abandon(trail)
        calls.clear()
        await cupboard.universe.undo(ended.seq or 0)
        asked.append(dict(calls))
    assert asked[0] == asked[1]


async def test_completing_a_trail_is_undone_whole(cupboard: Cupboard) -> None:
    trail = await a_trail(cupboard)
    before = await picture(cupboard)
    ended = await cupboard.complete(trail)
    (one,) = await cupboard.crumbs.fetch(name="one")
    assert (await cupboard.origin(one)) == ended.trail
    assert ended.seq is not None
    done = await cupboard.universe.undo(ended.seq)
    assert await picture(cupboard) == before
    assert await cupboard.origin(one) is None
    assert done.seq is not None
    await cupboard.universe.undo(done.seq)
    assert (await cupboard.trails.get(trail)).state == "completed"
    assert (await cupboard.links.fetch(link_type="belongs_to")) == []


@pytest.mark.parametrize("how", ["complete", "abandon"])
async def test_an_end_comes_back_only_to_a_trail_without_other_crumbs(cupboard: Cupboard, how: str) -> None:
    """Undoing the undo of an end would leave what was added since on a trail that has ended."""
    trail = await a_trail(cupboard)
    ended = await getattr(cupboard, how)(trail)
    undone = await cupboard.universe.undo(ended.seq)
    late = await cupboard.add("late", trail=trail)
    before = await picture(cupboard)
    assert undone.seq is not None
    with pytest.raises(UndoConflict, match="has new crumbs") as caught:
        await cupboard.universe.undo(undone.seq)
    assert late.id in str(caught.value)
    assert await picture(cupboard) == before
    await cupboard.universe.undo(undone.seq, force=True)
    assert (await cupboard.audit()).findings == ()
    assert (await cupboard.trails.get(trail)).ended
    assert (await cupboard.crumbs.get(late.id)).name == "late"


async def test_a_reopened_trail_ends_again_only_without_crumbs(cupboard: Cupboard) -> None:
    trail = await cupboard.start("try")
    await cupboard.complete(trail)
    found = await cupboard.trails.get(trail.id)
    found.state = "active"
    await cupboard.trails.set(trail.id, found)
    await cupboard.add("late", trail=trail)
    assert found.seq is not None
    with pytest.raises(UndoConflict, match="has new crumbs"):
        await cupboard.universe.undo(found.seq)
    assert (await cupboard.audit()).findings == ()


async def test_what_waits_less_since_does_not_stand_in_the_way(cupboard: Cupboard) -> None:
    parent = await cupboard.add("parent", state="taken")
    child = await cupboard.add("child", state="ready", parents=[parent])
    done = await cupboard.done(parent)
    child.name = "renamed"
    await cupboard.crumbs.set(child.id, child)
    late = await cupboard.add("late", state="ready", parents=[parent])
    assert {c.name for c in await cupboard.ready()} == {"renamed", "late"}
    assert done.seq is not None
    await cupboard.universe.undo(done.seq)
    assert await cupboard.ready() == []
    assert (await cupboard.explain(late)).waits_for == (parent.id,)
    assert (await cupboard.crumbs.get(child.id)).name == "renamed"


async def test_making_a_crumb_is_not_undone_while_something_hangs_on_it(cupboard: Cupboard) -> None:
    parent = await cupboard.add("parent")
    child = await cupboard.add("child", state="ready", parents=[parent])
    assert parent.seq is not None
    with pytest.raises(UndoConflict, match="has new links"):
        await cupboard.universe.undo(parent.seq)
    assert await cupboard.ready() == []
    await cupboard.universe.undo(parent.seq, force=True)
    assert [c.id for c in await cupboard.ready()] == [child.id]
    assert await cupboard.links.fetch() == []


async def test_a_link_comes_back_only_where_the_rules_allow_it(cupboard: Cupboard) -> None:
    a, b = await cupboard.add("a"), await cupboard.add("b")
    link = Link("child_of", a.id, b.id)
    await cupboard.links.set(None, link)
    before = await cupboard.universe.seq()
    await cupboard.links.delete(link.id)
    deleted = await cupboard.universe.seq()
    assert deleted == before + 1
    await cupboard.links.set(None, Link("child_of", b.id, a.id))
    with pytest.raises(UndoConflict, match="wait for itself"):
        await cupboard.universe.undo(deleted)


async def test_tokens_and_versions_grow_through_an_undo(cupboard: Cupboard) -> None:
    await cupboard.add("work", state="ready")
    taken = await cupboard.take("ann")
    assert taken is not None and taken.seq is not None
    await cupboard.universe.undo(taken.seq)
    again = await cupboard.take("bob")
    assert again is not None and again.token > taken.token
    with pytest.raises(errors.NotLockHolder):
        await cupboard.done(again, token=taken.token)
    counter = Stash("n", "counter")
    await cupboard.stashes.set(None, counter)
    await cupboard.stashes.increment(counter.id, 5)
    await cupboard.universe.undo(await cupboard.universe.seq())
    now = await cupboard.stashes.get(counter.id)
    assert (now.value, now.version) == ({"value": 0}, 3)
    assert [entry.operation for entry in await cupboard.stashes.history(counter.id)] == [
        "create",
        "increment",
        "undo",
    ]


async def test_signs_of_life_do_not_stand_in_the_way(cupboard: Cupboard) -> None:
    """They have no history: what they were cannot be put back, and need not be."""
    trail = await cupboard.start("try")
    await cupboard.add("work", state="ready", trail=trail)
    lock = await cupboard.stashes.create("lock", "lock", trail=trail.id)
    first = await cupboard.take("ann", lease_s=100)
    assert first is not None
    await cupboard.heartbeat(first, "ann")
    beat = await cupboard.universe.seq()
    await cupboard.release(first)
    again = await cupboard.take("ann", lease_s=100)
    assert again is not None and again.seq is not None
    await cupboard.universe.undo(again.seq)
    assert [c.name for c in await cupboard.ready()] == ["work"]
    assert await cupboard.take("ann", lease_s=100) is not None
    await cupboard.stashes.acquire(lock.id, "ann")
    await cupboard.stashes.heartbeat(lock.id, "ann")
    ended = await cupboard.abandon(trail)
    await cupboard.universe.undo(ended.seq or 0)
    assert (await cupboard.trails.get(trail.id)).state == "active"
    assert len(await cupboard.crumbs.fetch()) == 1 and (await cupboard.audit()).ok
    await cupboard.universe.undo(beat)  # which changed nothing else
    assert len(await cupboard.crumbs.fetch()) == 1


async def test_an_audit_among_signs_of_life(cupboard: Cupboard) -> None:
    for n in range(3):
        await cupboard.add(f"c{n}", state="ready")
    taken = [await cupboard.take("ann", lease_s=100) for _ in range(3)]

    async def beat() -> None:
        for _ in range(5):
            for crumb in taken:
                await cupboard.heartbeat(crumb or "", "ann")
                await asyncio.sleep(0)

    async def look() -> None:
        for _ in range(5):
            assert (await cupboard.audit()).ok
            await asyncio.sleep(0)

    await asyncio.gather(beat(), look())


async def test_a_definition_is_undone_though_there_were_others_since(cupboard: Cupboard) -> None:
    crumb = await cupboard.add("a")
    size = Property("size", "integer")
    await cupboard.properties.set(None, size)
    await cupboard.properties.set(None, Property("cost", "integer"))
    assert size.seq is not None
    await cupboard.universe.undo(size.seq)
    assert set((await cupboard.crumbs.get(crumb.id)).readable()) >= {"cost", "owner"}
    assert "size" not in (await cupboard.crumbs.get(crumb.id)).readable()
    await cupboard.properties.set(None, Property("size", "text"))
    with pytest.raises(UndoConflict, match="changed since"):  # one name, one id: it is there again
        await cupboard.universe.undo(await cupboard.universe.seq() - 1)


async def test_a_definition_with_values_is_undone_only_by_force(cupboard: Cupboard) -> None:
    """Otherwise its values would be there again, of another type, when the name is defined again."""
    u = cupboard.universe
    await cupboard.properties.define("size", "categorical", categories=["small"])
    seq = await u.seq()
    crumb = await cupboard.add("one", properties={"size": "small"})
    with pytest.raises(UndoConflict, match="'size' has values since"):
        await u.undo(seq)
    await u.undo(seq, force=True)
    await cupboard.properties.define("size", "integer")
    found = await cupboard.crumbs.get(crumb.id)
    assert found.get_property("size") == 0
    assert (await cupboard.audit()).findings == ()


async def test_no_value_comes_back_without_its_property(cupboard: Cupboard) -> None:
    u = cupboard.universe
    size = await cupboard.properties.define("size", "integer")
    crumb = await cupboard.add("one", properties={"size": 5})
    crumb.set_property("size", 6)
    await cupboard.crumbs.set(crumb.id, crumb)
    seq = await u.seq()
    await cupboard.properties.delete(size.id)
    await u.undo(seq, force=True)
    await cupboard.properties.define("size", "text")
    assert (await cupboard.crumbs.get(crumb.id)).get_property("size") == ""
    deleted = await u.seq()
    await u.undo(deleted)
    await u.undo(seq + 1, force=True)  # the deletion: the property comes back with its value
    assert (await cupboard.crumbs.get(crumb.id)).get_property("size") == 6
    assert (await cupboard.audit()).findings == ()


async def test_a_restored_crumb_is_counted_once(cupboard: Cupboard) -> None:
    """A deletion is undone twice, the second time by force: the crumb waits for one other, not for two."""
    u = cupboard.universe
    first = await cupboard.add("first", state="ready")
    second = await cupboard.add("second", state="ready", parents=[first])
    await cupboard.crumbs.delete(second.id)
    seq = await u.seq()
    await u.undo(seq)
    await u.undo(seq, force=True)
    assert (await cupboard.audit()).findings == ()
    await cupboard.done(first.id)
    assert [each.name for each in await cupboard.ready()] == ["second"]


async def test_without_the_room_at_hand_its_commits_are_not_undone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with dgent.open(url) as u:
        crumb = await Cupboard(u).add(Crumb("a"))
        assert crumb.seq is not None
    async with dgent.open(url) as u:
        with pytest.raises(Denied):
            await u.undo(crumb.seq)
        cupboard = Cupboard(u)
        await u.undo(crumb.seq)
        assert not await u.exists(crumb.id)
        assert len(await cupboard.properties.fetch()) == 5  # those were there before


STEPS = ("add", "end", "undo", "undo", "reopen", "take off", "stash")


@settings(settings.get_profile("dgent"), max_examples=examples(75))
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2)), min_size=6, max_size=12))
def test_ends_and_undos_of_one_trail_in_any_order(steps: list[tuple[str, int]]) -> None:
    """After each step everything is as the rules say, and a refused undo changes nothing."""

    async def run() -> None:
        async with dgent.open("memory:") as u:
            cupboard = Cupboard(u)
            trail = await cupboard.start("try")
            for step, back in steps:
                with suppress(errors.InvalidState, errors.DuplicateName):
                    await take_step(cupboard, trail.id, step, back)
                assert (await cupboard.audit()).findings == ()

    asyncio.run(run())


async def test_a_version_of_a_newer_program_is_refused_by_name(cupboard: Cupboard) -> None:
    crumb = await cupboard.add("work")
    room = cupboard.universe.for_room("cupboard")
    stored = await room.get(crumb.id, raw=True)
    await room.put(stored.replace(schema_version=99))
    await room.delete(crumb.id)
    with pytest.raises(Unreadable, match="version 99"):
        await cupboard.universe.undo(await room.seq())


async def take_step(cupboard: Cupboard, trail: str, step: str, back: int) -> None:
    if step == "add":
        await cupboard.add("work", trail=trail, state="ready")
    elif step == "stash":
        await cupboard.stashes.create("cache", "context", trail=trail if back else None)
    elif step == "take off":
        for link in (await cupboard.links.fetch(link_type="belongs_to"))[:1]:
            await cupboard.links.delete(link.id)
    elif step == "reopen":
        found = await cupboard.trails.get(trail)
        found.state = "active"
        await cupboard.trails.set(trail, found)
    elif step == "end":
        await (cupboard.complete(trail) if back else cupboard.abandon(trail))
    elif (seq := await cupboard.universe.seq() - back) > 2:  # what every cupboard starts with, and the trail
        before = await picture(cupboard)
        try:
            await cupboard.universe.undo(seq)
        except UndoConflict:
            assert await picture(cupboard) == before
