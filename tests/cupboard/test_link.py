"""Links: what they join, how many there may be, and that no crumb waits for itself."""

from __future__ import annotations

import pytest

from dgent.cupboard import Cupboard, Link, Stash, errors


async def ends(cupboard: Cupboard) -> dict[str, str]:
    """Three crumbs, two trails and two stashes by name."""
    made = {name: (await cupboard.add(name)).id for name in ("c1", "c2", "c3")}
    made |= {name: (await cupboard.start(name)).id for name in ("t1", "t2")}
    made |= {name: await cupboard.stashes.set(None, Stash(name, "context", {})) for name in ("s1", "s2")}
    return made


async def link(cupboard: Cupboard, link_type: str, start: str, end: str) -> Link:
    made = Link(link_type, start, end)
    await cupboard.links.set(None, made)
    return made


PAIRS = {
    "belongs_to": ("c1", "t1", "t2"),
    "child_of": ("c1", "c2", "c3"),
    "branches_from": ("t1", "c1", "c2"),
    "scoped_to": ("s1", "t1", "t2"),
}
every_type = pytest.mark.parametrize("link_type", list(PAIRS))


@every_type
async def test_each_type(cupboard: Cupboard, link_type: str) -> None:
    at = await ends(cupboard)
    start, end, other = (at[name] for name in PAIRS[link_type])
    made = await link(cupboard, link_type, start, end)
    found = await cupboard.links.get(made.id)
    assert (found.link_type, found.from_id, found.to_id, found.link_id) == (link_type, start, end, made.id)
    assert found.created_at is not None and found == made
    with pytest.raises(errors.DuplicateLink):
        await link(cupboard, link_type, start, end)
    with pytest.raises(errors.DuplicateName):  # the more general name of the same
        await link(cupboard, link_type, start, end)
    if link_type == "child_of":
        await link(cupboard, link_type, start, other)
        return
    with pytest.raises(errors.Cardinality, match="cardinality") as refused:
        await link(cupboard, link_type, start, other)
    for id in (start, end, other, made.id):
        assert id in str(refused.value)
    if link_type == "belongs_to":
        assert isinstance(refused.value, errors.AlreadyInTrail)
    await cupboard.links.delete(made.id)
    await link(cupboard, link_type, start, other)
    assert len(await cupboard.links.fetch()) == 1


async def test_many_may_end_at_one(cupboard: Cupboard) -> None:
    at = await ends(cupboard)
    for crumb in ("c1", "c2", "c3"):
        await link(cupboard, "belongs_to", at[crumb], at["t1"])
    for trail in ("t1", "t2"):
        await link(cupboard, "branches_from", at[trail], at["c1"])
    for stash in ("s1", "s2"):
        await link(cupboard, "scoped_to", at[stash], at["t1"])
    for child in ("c2", "c3"):
        await link(cupboard, "child_of", at[child], at["c1"])
    await link(cupboard, "child_of", at["c3"], at["c2"])
    fetch = cupboard.links.fetch
    assert len(await fetch()) == 10
    assert len(await fetch(LinkType="belongs_to", ToID=at["t1"])) == 3
    assert len(await fetch(link_type="child_of", to_id=at["c1"])) == 2
    assert len(await fetch(link_type="child_of", from_id=at["c3"])) == 2
    assert len(await fetch({"link_type": ["child_of", "scoped_to"]})) == 5
    assert len(await fetch(link_type="child_of", from_id=at["c3"], to_id=at["c2"])) == 1
    assert await fetch(link_type="child_of", from_id=at["c1"]) == []
    assert await fetch(from_id="nothing") == await fetch(to_id="nothing") == []
    assert len(await fetch(to_id=at["c1"], limit=2, offset=1)) == 2


@every_type
@pytest.mark.parametrize("missing", ["from_id", "to_id"])
async def test_both_ends_must_be_there_and_of_the_right_kind(
    quick: Cupboard, link_type: str, missing: str
) -> None:
    at = await ends(quick)
    start, end, _ = (at[name] for name in PAIRS[link_type])
    wrong = [
        at[n]
        for n in at
        if n[0]
        != {start: PAIRS[link_type][0], end: PAIRS[link_type][1]}[start if missing == "from_id" else end][0]
    ]
    for id in ("nothing", "00000000-0000-7000-8000-000000000000", *wrong):
        made = Link(link_type, id if missing == "from_id" else start, id if missing == "to_id" else end)
        with pytest.raises(errors.EntityNotFound, match=id):
            await quick.links.set(None, made)
        assert made.id == ""
    for empty in ("", None, 5, ["x"]):
        made = Link(link_type, *((empty, end) if missing == "from_id" else (start, empty)))  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidData):
            await quick.links.set(None, made)
    assert await quick.links.fetch() == []


@pytest.mark.parametrize("link_type", ["", "knows", "CHILD_OF", None, 5, ["child_of"]])
async def test_an_unknown_type(quick: Cupboard, link_type: str) -> None:
    at = await ends(quick)
    with pytest.raises(errors.InvalidData):
        await quick.links.set(None, Link(link_type, at["c1"], at["c2"]))


async def test_a_crumb_cannot_wait_for_itself(cupboard: Cupboard) -> None:
    crumbs = await cupboard.add_many(list("abcde"), [("child_of", n + 1, n) for n in range(4)])
    a, b, c, d, e = (crumb.id for crumb in crumbs)
    for child, parent, way in (
        (a, a, [a, a]),
        (a, b, [a, b, a]),
        (a, e, [a, e, d, c, b, a]),
        (b, d, [b, d, c, b]),
    ):
        with pytest.raises(errors.Cycle) as refused:
            await link(cupboard, "child_of", child, parent)
        assert " -> ".join(way) in str(refused.value)
    await link(cupboard, "child_of", e, a)  # another way to the same is none
    assert len(await cupboard.links.fetch(link_type="child_of")) == 5


async def test_a_changed_link_is_judged_anew(cupboard: Cupboard) -> None:
    at = await ends(cupboard)
    made = await link(cupboard, "belongs_to", at["c1"], at["t1"])
    made.from_id = at["c2"]
    await cupboard.links.set(made.id, made)
    assert (await cupboard.links.get(made.id)).from_id == at["c2"]
    assert [c.name for c in await cupboard.crumbs.fetch(trail_id=at["t1"])] == ["c2"]
    made.to_id = at["t2"]  # moved, without a moment on no trail
    await cupboard.links.set(made.id, made)
    other = await link(cupboard, "belongs_to", at["c3"], at["t1"])
    for field, value, error in (
        ("to_id", "nothing", errors.EntityNotFound),
        ("link_type", "child_of", errors.EntityNotFound),
        ("link_type", "knows", errors.InvalidData),
        ("from_id", at["c2"], errors.AlreadyInTrail),
    ):
        changed = await cupboard.links.get(other.id)
        setattr(changed, field, value)
        with pytest.raises(error):
            await cupboard.links.set(other.id, changed)
    assert (await cupboard.links.get(other.id)).from_id == at["c3"]


async def test_a_changed_child_of_moves_the_waiting(cupboard: Cupboard) -> None:
    a, b, c = await cupboard.add_many(["a", "b", "c"], [("child_of", 1, 0)])
    for crumb in (b, c):
        crumb.set_state("ready")
        await cupboard.crumbs.set(crumb.id, crumb)
    made = (await cupboard.links.fetch())[0]
    assert [x.name for x in await cupboard.ready()] == ["c"]
    made.from_id = c.id
    await cupboard.links.set(made.id, made)
    assert [x.name for x in await cupboard.ready()] == ["b"]
    made.from_id, made.to_id = a.id, c.id
    await cupboard.links.set(made.id, made)
    assert [x.name for x in await cupboard.ready()] == ["b", "c"]
    made.from_id, made.to_id = c.id, c.id
    with pytest.raises(errors.Cycle):
        await cupboard.links.set(made.id, made)
    assert [x.name for x in await cupboard.ready()] == ["b", "c"]


async def test_a_stash_that_moves_between_trails_meets_only_names_there(quick: Cupboard) -> None:
    at = await ends(quick)
    await quick.stashes.set(None, Stash("config", "context", {}))
    mine = await quick.stashes.create("config", "context", {}, trail=at["t1"])
    scope = (await quick.links.fetch(from_id=mine.id))[0]
    scope.to_id = at["t2"]
    await quick.links.set(scope.id, scope)  # there is a global one of the name, which is no matter
    with pytest.raises(errors.DuplicateName):
        await quick.links.delete(scope.id)
    with pytest.raises(errors.DuplicateName):
        await quick.stashes.create("config", "context", {}, trail=at["t2"])
    scope.from_id = at["s1"]  # then it would be of no trail
    with pytest.raises(errors.DuplicateName):
        await quick.links.set(scope.id, scope)


async def test_deleting_one_leaves_the_others(cupboard: Cupboard) -> None:
    at = await ends(cupboard)
    made = [
        await link(cupboard, "belongs_to", at["c1"], at["t1"]),
        await link(cupboard, "child_of", at["c2"], at["c1"]),
        await link(cupboard, "branches_from", at["t2"], at["c1"]),
        await link(cupboard, "scoped_to", at["s1"], at["t1"]),
    ]
    await cupboard.links.delete(made[0].id)
    with pytest.raises(errors.EntityNotFound):
        await cupboard.links.get(made[0].id)
    assert [each.id for each in await cupboard.links.fetch()] == [each.id for each in made[1:]]
    assert await cupboard.links.fetch(link_type="belongs_to") == []
