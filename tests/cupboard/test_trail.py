"""The life of a trail, and what ending one does to its crumbs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dgent.cupboard import Crumb, Cupboard, Link, Stash, Trail, errors

STATES = ("draft", "pending", "active", "completed", "abandoned")
MAY = {
    "": set(STATES),
    "draft": {"draft", "pending", "active"},
    "pending": {"pending", "active"},
    "active": {"active", "completed", "abandoned"},
    "completed": set(),
    "abandoned": set(),
}


@pytest.mark.parametrize("was", ["", *STATES])
@pytest.mark.parametrize("now", STATES)
def test_which_state_follows_which(was: str, now: str) -> None:
    trail = Trail("t", state=was)
    if now in MAY[was]:
        trail.set_state(now)
        assert trail.state == now
        assert (trail.completed_at is not None) == (now in ("completed", "abandoned"))
    else:
        with pytest.raises(errors.InvalidState):
            trail.set_state(now)
        assert (trail.state, trail.completed_at) == (was, None)


@pytest.mark.parametrize("was", ["", *STATES, "bogus"])
@pytest.mark.parametrize("end", ["complete", "abandon"])
def test_only_an_active_trail_ends(was: str, end: str) -> None:
    trail = Trail("t", state=was)
    if was == "active":
        getattr(trail, end)()
        assert trail.ended and trail.completed_at is not None
    else:
        with pytest.raises(errors.InvalidState):
            getattr(trail, end)()
        assert (trail.state, trail.completed_at) == (was, None)


async def test_states_at_creation_and_by_filter(cupboard: Cupboard) -> None:
    for state in ("", *STATES):
        trail = Trail("t", state=state)
        await cupboard.trails.set(None, trail)
        assert trail.state == (state or "draft")
        assert (trail.completed_at is not None) == (state in ("completed", "abandoned"))
    assert len(await cupboard.trails.fetch(State="draft")) == 2
    assert len(await cupboard.trails.fetch(states=["active", "completed"])) == 2
    for state in ("open", 5, ["active"]):
        with pytest.raises(errors.InvalidState):
            await cupboard.trails.set(None, Trail("t", state=state))  # type: ignore[arg-type]
    assert len(await cupboard.trails.fetch()) == 6


async def a_forest(cupboard: Cupboard) -> dict[str, str]:
    """Two trails and crumbs that hang together across them; ids by name."""
    one, two = await cupboard.start("one", goal="g"), await cupboard.start("two")
    loose = await cupboard.add("loose", state="pebble")
    a = await cupboard.add("a", trail=one, state="ready", properties={"owner": "ann"})
    b = await cupboard.add("b", trail=one, state="taken", parents=[a, loose])
    c = await cupboard.add("c", trail=two, state="ready", parents=[b])
    d = await cupboard.add("d", state="ready", parents=[a])
    await cupboard.links.set(None, Link("branches_from", two.id, a.id))
    await cupboard.links.set(None, Link("branches_from", one.id, loose.id))
    for crumb in (a, c):
        await cupboard.comment(crumb, f"about {crumb.name}")
    names = {"one": one.id, "two": two.id}
    for crumb in (loose, a, b, c, d):
        names[crumb.name] = crumb.id
    for name, trail in (("mine", one), ("yours", two), ("ours", None)):
        stash = Stash(name, "context", {})
        names[name] = await cupboard.stashes.set(None, stash)
        if trail is not None:
            await cupboard.links.set(None, Link("scoped_to", stash.id, trail.id))
    return names


async def links(cupboard: Cupboard, names: dict[str, str]) -> set[tuple[str, str, str]]:
    by_id = {id: name for name, id in names.items()}
    return {(by_id[link.from_id], link.link_type, by_id[link.to_id]) for link in await cupboard.links.fetch()}


@pytest.mark.parametrize("way", ["entity", "raw", "facade"])
async def test_completing_keeps_all_crumbs(cupboard: Cupboard, way: str) -> None:
    names = await a_forest(cupboard)
    before = {c.id: (c.state, c.readable()) for c in await cupboard.crumbs.fetch()}
    graph = await links(cupboard, names)
    seq = await cupboard.universe.seq()
    trail = await cupboard.trails.get(names["one"])
    if way == "entity":
        trail.complete()
        await cupboard.trails.set(trail.id, trail)
    elif way == "raw":
        await cupboard.trails.set(trail.id, Trail(state="completed", goal="g"))
    else:
        ended = await cupboard.complete(trail.id)
        assert set(ended.crumbs) == {names["a"], names["b"]}
    assert await cupboard.universe.seq() == seq + 1
    trail = await cupboard.trails.get(names["one"])
    assert (trail.name, trail.goal, trail.state) == ("one", "g", "completed")
    assert trail.completed_at is not None and set(trail.crumbs) == {names["a"], names["b"]}
    assert {c.id: (c.state, c.readable()) for c in await cupboard.crumbs.fetch()} == before
    assert await links(cupboard, names) == graph - {("a", "belongs_to", "one"), ("b", "belongs_to", "one")}
    assert len(await cupboard.stashes.fetch()) == 3 and len(await cupboard.metadata.fetch()) == 2
    assert await cupboard.crumbs.fetch(trail_id=names["one"]) == []
    for name in ("a", "b"):
        assert (await cupboard.origin(names[name])).id == names["one"]
    for name in ("c", "d", "loose"):
        assert await cupboard.origin(names[name]) is None


@pytest.mark.parametrize("way", ["entity", "raw", "facade"])
async def test_abandoning_removes_all_crumbs(cupboard: Cupboard, way: str) -> None:
    names = await a_forest(cupboard)
    seq = await cupboard.universe.seq()
    trail = await cupboard.trails.get(names["one"])
    if way == "entity":
        trail.abandon(reason="too slow", lesson="redis needs memory")
        await cupboard.trails.set(trail.id, trail)
    elif way == "raw":
        raw = Trail(state="abandoned", reason="too slow", lesson="redis needs memory")
        await cupboard.trails.set(trail.id, raw)
    else:
        ended = await cupboard.abandon(trail, reason="too slow", lesson="redis needs memory")
        assert set(ended.freed) == {names["c"], names["d"]}
    assert await cupboard.universe.seq() == seq + 1
    trail = await cupboard.trails.get(names["one"])
    assert (trail.name, trail.state, trail.reason, trail.lesson) == (
        "one",
        "abandoned",
        "too slow",
        "redis needs memory",
    )
    assert trail.completed_at is not None
    assert {c.name for c in await cupboard.crumbs.fetch()} == {"loose", "c", "d"}
    assert await links(cupboard, names) == {
        ("c", "belongs_to", "two"),
        ("one", "branches_from", "loose"),
        ("yours", "scoped_to", "two"),
    }
    assert {s.name for s in await cupboard.stashes.fetch()} == {"yours", "ours"}
    assert [m.content for m in await cupboard.metadata.fetch()] == ["about c"]
    assert {c.name for c in await cupboard.ready()} == {"c", "d"}  # nothing is left to wait for
    assert [t.id for t in await cupboard.lessons("REDIS memory")] == [names["one"]]
    assert await cupboard.lessons("postgres") == []


async def test_a_trail_created_ended_or_set_again_does_nothing_to_crumbs(quick: Cupboard) -> None:
    trail = await quick.start("t")
    crumb = await quick.add("c", trail=trail)
    for state in ("active", "pending", "draft"):
        trail.state = state
        await quick.trails.set(trail.id, trail)
    await quick.trails.set("other", Trail("x", state="abandoned"))
    assert [c.id for c in await quick.crumbs.fetch(trail_id=trail.id)] == [crumb.id]
    await quick.complete(await _active(quick, trail))
    again = await quick.trails.get(trail.id)
    again.lesson = "later insight"
    await quick.trails.set(again.id, again)
    assert again.completed_at == (await quick.trails.get(trail.id)).completed_at
    assert (await quick.origin(crumb)).lesson == "later insight"


async def _active(cupboard: Cupboard, trail: Trail) -> Trail:
    trail.state = "active"
    await cupboard.trails.set(trail.id, trail)
    return trail


async def test_one_opened_again_still_tells_what_it_had(quick: Cupboard) -> None:
    trail = await quick.start("t")
    first = await quick.add("first", trail=trail)
    await quick.complete(trail)
    trail.state = "active"
    await quick.trails.set(trail.id, trail)
    assert trail.completed_at is None
    second = await quick.add("second", trail=trail)
    await quick.complete(trail)
    assert {(await quick.origin(c)).id for c in (first, second)} == {trail.id}


async def test_crumbs_that_left_before_stay(cupboard: Cupboard) -> None:
    one, two = await cupboard.start("one"), await cupboard.start("two")
    moved, left, stayed = [await cupboard.add(n, trail=one) for n in ("moved", "left", "stayed")]
    for link in await cupboard.links.fetch(link_type="belongs_to", from_id=[moved.id][0]):
        link.to_id = two.id
        await cupboard.links.set(link.id, link)
    for link in await cupboard.links.fetch(from_id=left.id):
        await cupboard.links.delete(link.id)
    await cupboard.abandon(one)
    assert {c.name for c in await cupboard.crumbs.fetch()} == {"moved", "left"}
    assert [c.name for c in await cupboard.crumbs.fetch(trail_id=two.id)] == ["moved"]
    assert stayed.id not in [c.id for c in await cupboard.crumbs.fetch()]


async def test_an_ended_trail_takes_no_crumbs(cupboard: Cupboard) -> None:
    crumb = await cupboard.add("c")
    for end in (cupboard.complete, cupboard.abandon):
        trail = await cupboard.start("t")
        await end(trail)
        for call in (
            cupboard.links.set(None, Link("belongs_to", crumb.id, trail.id)),
            cupboard.add("new", trail=trail),
            cupboard.add_many([Crumb("new")], trail=trail),
            end(trail),
            cupboard.abandon(trail),
            cupboard.complete(trail.id),
        ):
            with pytest.raises(errors.InvalidState):
                await call
    assert [c.name for c in await cupboard.crumbs.fetch()] == ["c"]


async def test_deleting_a_trail_keeps_crumbs_and_stashes(cupboard: Cupboard) -> None:
    names = await a_forest(cupboard)
    await cupboard.trails.delete(names["one"])
    assert len(await cupboard.crumbs.fetch()) == 5 and len(await cupboard.stashes.fetch()) == 3
    assert not [link for link in await links(cupboard, names) if "one" in link]


async def test_a_trail_is_not_deleted_where_names_of_stashes_would_clash(quick: Cupboard) -> None:
    one, two = await quick.start("one"), await quick.start("two")
    for trail in (one, two):
        stash = Stash("config", "context", {})
        await quick.stashes.set(None, stash)
        await quick.links.set(None, Link("scoped_to", stash.id, trail.id))
    await quick.trails.delete(one.id)
    with pytest.raises(errors.DuplicateName):
        await quick.trails.delete(two.id)
    assert [t.id for t in await quick.trails.fetch()] == [two.id] and len(await quick.links.fetch()) == 1


async def test_the_whole_story(cupboard: Cupboard) -> None:
    """Three crumbs: one is done, one is on a trail that is completed, one on a trail that is abandoned."""
    c1, c2, c3 = [await cupboard.add(f"c{n}") for n in (1, 2, 3)]
    c1.set_state("pebble")
    await cupboard.crumbs.set(c1.id, c1)
    t1, t2 = Trail(state="active"), Trail(state="active")
    for trail, crumb in ((t1, c2), (t2, c3)):
        await cupboard.trails.set(None, trail)
        await cupboard.links.set(None, Link("belongs_to", crumb.id, trail.id))
    t1.complete()
    t2.abandon()
    for trail in (t1, t2):
        await cupboard.trails.set(trail.id, trail)
    assert sorted(c.state for c in await cupboard.crumbs.fetch()) == ["draft", "pebble"]
    assert sorted(t.state for t in await cupboard.trails.fetch()) == ["abandoned", "completed"]
    assert await cupboard.links.fetch() == []


async def test_times_given_by_the_caller(quick: Cupboard) -> None:
    ended = datetime(2020, 1, 1, tzinfo=UTC)
    trail = Trail("t", state="completed", completed_at=ended, created_at=ended - timedelta(days=1))
    await quick.trails.set(None, trail)
    assert (trail.completed_at, trail.created_at) == (ended, ended - timedelta(days=1))
    for wrong in ("2020", 5, datetime(2020, 1, 1)):
        with pytest.raises(errors.InvalidData):
            await quick.trails.set(None, Trail("t", state="completed", completed_at=wrong))  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidData):
            await quick.trails.set(None, Trail("t", created_at=wrong))  # type: ignore[arg-type]
    assert len(await quick.trails.fetch()) == 1


async def test_a_branch(cupboard: Cupboard) -> None:
    crumb = await cupboard.add("decision", trail=await cupboard.start("main"))
    branches = [await cupboard.start(f"b{n}", branches_from=crumb) for n in range(2)]
    found = await cupboard.links.fetch(link_type="branches_from", to_id=crumb.id)
    assert {link.from_id for link in found} == {b.id for b in branches}
    with pytest.raises(errors.EntityNotFound):
        await cupboard.start("b", branches_from="nothing")
    assert len(await cupboard.trails.fetch()) == 3
