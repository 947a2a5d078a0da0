"""The life of a crumb: its states, its methods, and what deleting one takes along."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import dgent
from dgent.cupboard import Crumb, Cupboard, Link, errors

STATES = ("draft", "pending", "ready", "taken", "pebble", "dust")


async def test_an_empty_state_is_draft_and_a_given_one_is_honoured(cupboard: Cupboard) -> None:
    for state in ("", *STATES):
        crumb = Crumb("x", state=state)
        await cupboard.crumbs.set(None, crumb)
        assert crumb.state == (state or "draft")
        assert (await cupboard.crumbs.get(crumb.id)).state == (state or "draft")
        assert crumb.created_at == crumb.updated_at
    for state in (*STATES, "draft"):
        found = await cupboard.crumbs.fetch(state=state)
        assert len(found) == (2 if state == "draft" else 1) and {c.state for c in found} == {state}
        assert await cupboard.crumbs.fetch({"State": state}) == found
        assert await cupboard.crumbs.fetch({"states": [state]}) == found
    assert len(await cupboard.crumbs.fetch(states=["draft", "dust"])) == 3
    assert len(await cupboard.crumbs.fetch()) == 7


@pytest.mark.parametrize("was", STATES)
async def test_any_state_may_follow_any_other(quick: Cupboard, was: str) -> None:
    for now in STATES:
        crumb = await quick.add("x", state=was)
        before = crumb.updated_at
        crumb.set_state(now)
        await quick.crumbs.set(crumb.id, crumb)
        found = await quick.crumbs.get(crumb.id)
        assert found.state == now and found.created_at == crumb.created_at
        assert found.updated_at > before
        await quick.crumbs.delete(crumb.id)


@pytest.mark.parametrize("state", ["open", "READY", " ready", 5, None, ["ready"], b"ready"])
async def test_an_unknown_state(quick: Cupboard, state: object) -> None:
    crumb = Crumb("x")
    with pytest.raises(errors.InvalidState):
        crumb.set_state(state)  # type: ignore[arg-type]
    assert crumb.state == ""
    if state is None:
        return
    for call in (quick.crumbs.set(None, Crumb("x", state)), quick.add("x", state=state)):  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidState):
            await call
    made = await quick.add("y")
    made.state = state  # type: ignore[assignment]
    with pytest.raises(errors.InvalidState):
        await quick.crumbs.set(made.id, made)
    assert [c.state for c in await quick.crumbs.fetch()] == ["draft"]


@pytest.mark.parametrize("state", STATES)
def test_pebble_needs_taken_and_dust_needs_nothing(state: str) -> None:
    crumb = Crumb("x", state)
    if state == "taken":
        crumb.pebble()
        assert crumb.state == "pebble" and crumb.updated_at is not None
    else:
        with pytest.raises(errors.InvalidTransition):
            crumb.pebble()
        assert crumb.state == state
    crumb.dust()
    crumb.dust()
    assert crumb.state == "dust"


@pytest.mark.parametrize("name", ["", None, 5, ["x"], b"x"])
async def test_a_crumb_needs_a_name(quick: Cupboard, name: object) -> None:
    for call in (quick.crumbs.set(None, Crumb(name)), quick.crumbs.set("id", Crumb(name)), quick.add(name)):  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidName):
            await call
    made = await quick.add("x")
    made.name = name  # type: ignore[assignment]
    with pytest.raises(errors.InvalidName):
        await quick.crumbs.set(made.id, made)
    assert [c.name for c in await quick.crumbs.fetch()] == ["x"]


async def test_every_set_moves_updated_at_and_none_created_at(quick: Cupboard) -> None:
    crumb = await quick.add("x")
    made = crumb.created_at
    for _ in range(3):
        before = crumb.updated_at
        crumb.created_at = datetime(1999, 1, 1, tzinfo=UTC)
        await quick.crumbs.set(crumb.id, crumb)
        assert crumb.created_at == made and crumb.updated_at > before
        assert await quick.crumbs.get(crumb.id) == crumb


async def test_methods_change_memory_only(quick: Cupboard) -> None:
    crumb = await quick.add("x")
    crumb.set_state("ready")
    crumb.set_property("owner", "ann")
    crumb.defer(datetime.now(UTC) + timedelta(days=1))
    stored = await quick.crumbs.get(crumb.id)
    assert (stored.state, stored.get_property("owner"), stored.defer_until) == ("draft", "", None)
    await quick.crumbs.set(crumb.id, crumb)
    stored = await quick.crumbs.get(crumb.id)
    assert (stored.state, stored.get_property("owner")) == ("ready", "ann")
    assert stored.defer_until == crumb.defer_until


async def test_deleting_one_takes_its_values_entries_and_links_along(cupboard: Cupboard) -> None:
    trail, other = await cupboard.start("t"), await cupboard.start("u")
    parent = await cupboard.add("parent", trail=trail)
    crumb = await cupboard.add("crumb", trail=trail, parents=[parent])
    child = await cupboard.add("child", state="ready", parents=[crumb, parent])
    await cupboard.links.set(None, Link("branches_from", other.id, crumb.id))
    await cupboard.comment(crumb, "goes")
    kept = await cupboard.comment(child, "stays")
    await cupboard.crumbs.delete(crumb.id)
    assert {c.id for c in await cupboard.crumbs.fetch()} == {parent.id, child.id}
    assert [m.id for m in await cupboard.metadata.fetch()] == [kept.id]
    left = {(link.link_type, link.from_id, link.to_id) for link in await cupboard.links.fetch()}
    assert left == {("belongs_to", parent.id, trail.id), ("child_of", child.id, parent.id)}
    assert len(await cupboard.trails.fetch()) == 2
    assert await cupboard.ready() == []
    await cupboard.done(parent)
    assert [c.id for c in await cupboard.ready()] == [child.id]


async def test_filters_by_trail_parent_and_owner(cupboard: Cupboard) -> None:
    trail = await cupboard.start("t")
    a = await cupboard.add("a", trail=trail, properties={"owner": "ann"})
    b = await cupboard.add("b", trail=trail, parents=[a])
    c = await cupboard.add("c", parents=[a], properties={"owner": "ann"})
    fetch = cupboard.crumbs.fetch
    assert [x.name for x in await fetch(trail_id=trail.id)] == ["b", "a"]
    assert [x.name for x in await fetch({"TrailID": trail.id, "limit": 1, "offset": 1})] == ["a"]
    assert [x.name for x in await fetch(parent_id=a.id)] == ["c", "b"]
    assert [x.name for x in await fetch(parent_id=a.id, trail_id=trail.id)] == ["b"]
    assert [x.name for x in await fetch(owner="ann")] == ["c", "a"]
    assert [x.name for x in await fetch(Owner="ann", trail_id=trail.id)] == ["a"]
    assert [x.name for x in await fetch(crumb_id=[a.id, c.id], parent_id=a.id)] == ["c"]
    assert await fetch(trail_id="nothing") == await fetch(parent_id=b.id) == []
    assert await fetch(trail_id=a.id) == []


async def test_many_in_one_commit(cupboard: Cupboard) -> None:
    trail = await cupboard.start("t")
    before = await cupboard.universe.seq()
    crumbs = [Crumb(f"c{n}", "ready") for n in range(20)]
    links = [("child_of", n, n - 1) for n in range(1, 20)]
    assert await cupboard.add_many(crumbs, links, trail=trail) == crumbs
    assert await cupboard.universe.seq() == before + 1
    assert [c.name for c in await cupboard.ready()] == ["c0"]
    assert len({c.id for c in crumbs}) == 20
    assert len(await cupboard.links.fetch(link_type="belongs_to", to_id=trail.id)) == 20
    assert await cupboard.add_many([]) == []
    assert [c.name for c in await cupboard.add_many(["x", "y"])] == ["x", "y"]


@pytest.mark.parametrize(
    ("crumbs", "links", "error"),
    [
        ([Crumb("a"), Crumb("")], [], errors.InvalidName),
        ([Crumb("a"), Crumb("b", "bogus")], [], errors.InvalidState),
        ([Crumb("a"), Crumb("b")], [("child_of", 0, 1), ("child_of", 1, 0)], errors.Cycle),
        ([Crumb("a")], [("child_of", 0, 0)], errors.Cycle),
        ([Crumb("a"), Crumb("b")], [("child_of", 0, 1), ("child_of", 0, 1)], errors.DuplicateLink),
        ([Crumb("a")], [("child_of", 0, 7)], errors.InvalidData),
        ([Crumb("a")], [("child_of", 0, -1)], errors.InvalidData),
        ([Crumb("a")], [("child_of", 0, "nothing")], errors.EntityNotFound),
        ([Crumb("a")], [("knows", 0, 0)], errors.InvalidData),
        ([Crumb("a", id="same"), Crumb("b", id="same")], [], errors.InvalidID),
        ([Crumb("a"), 5], [], errors.InvalidData),
        ([Crumb("a", id="cupboard/catalog")], [], errors.InvalidID),
    ],
)
async def test_many_are_all_or_none(
    quick: Cupboard, crumbs: list[Crumb], links: list[tuple[str, int, int]], error: type[dgent.DgentError]
) -> None:
    before = [c.id for c in crumbs if isinstance(c, Crumb)]
    with pytest.raises(error):
        await quick.add_many(crumbs, links)
    assert await quick.crumbs.fetch() == [] and await quick.links.fetch() == []
    assert [c.id for c in crumbs if isinstance(c, Crumb)] == before


async def test_a_crumb_is_added_with_its_links_or_not_at_all(quick: Cupboard) -> None:
    parent = await quick.add("parent")
    for crumb in (await quick.add("one", parents=parent), await quick.add("two", parents=parent.id)):
        assert [link.to_id for link in await quick.links.fetch(from_id=crumb.id)] == [parent.id]
    with pytest.raises(errors.EntityNotFound):
        await quick.add("three", parents=[parent, "nothing"])
    with pytest.raises(errors.EntityNotFound):
        await quick.add("three", trail="nothing")
    with pytest.raises(errors.EntityNotFound):
        await quick.add("three", trail=parent.id)
    assert len(await quick.crumbs.fetch()) == 3
    with pytest.raises(errors.InvalidID):
        await quick.add(parent)  # it is there already
