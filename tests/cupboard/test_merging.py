"""`set` writes what the caller changed since it read the entity, on top of what others changed."""

from __future__ import annotations

import asyncio
import copy

import pytest

from dgent.cupboard import Crumb, Cupboard, Property, Stash, errors
from dgent.errors import Conflict
from tests.cupboard.conftest import Rival


async def test_two_callers_change_different_parts(cupboard: Cupboard, rival: Rival) -> None:
    made = await cupboard.add("x", properties={"owner": "ann"})
    other = await rival()
    mine, theirs = await cupboard.crumbs.get(made.id), await other.crumbs.get(made.id)
    mine.name = "y"
    mine.set_property("description", "mine")
    theirs.set_state("ready")
    theirs.set_property("owner", "bob")
    await cupboard.crumbs.set(mine.id, mine)
    await other.crumbs.set(theirs.id, theirs)
    found = await cupboard.crumbs.get(made.id)
    assert (found.name, found.state) == ("y", "ready")
    assert (found.get_property("owner"), found.get_property("description")) == ("bob", "mine")
    assert [each.id for each in await cupboard.ready()] == [made.id]


@pytest.mark.parametrize("part", ["name", "state", "owner"])
async def test_the_same_part_changed_by_both_is_a_conflict(quick: Cupboard, part: str) -> None:
    def change(crumb: Crumb, value: str) -> None:
        if part == "owner":
            crumb.set_property("owner", value)
        else:
            setattr(crumb, part, value)

    made = await quick.add("x")
    mine, theirs = await quick.crumbs.get(made.id), await quick.crumbs.get(made.id)
    change(mine, "ready")
    change(theirs, "taken")
    await quick.crumbs.set(mine.id, mine)
    before = await quick.crumbs.get(made.id)
    with pytest.raises(Conflict, match="changed meanwhile"):
        await quick.crumbs.set(theirs.id, theirs)
    assert await quick.crumbs.get(made.id) == before
    change(theirs, "ready")  # both want the same: nothing to decide
    await quick.crumbs.set(theirs.id, theirs)


async def test_a_raw_crumb_keeps_the_values_that_it_does_not_mention(quick: Cupboard) -> None:
    made = await quick.add("x", state="ready", properties={"owner": "ann", "labels": ["a"]})
    await quick.crumbs.set(made.id, Crumb("renamed", properties={"owner": "bob"}))
    found = await quick.crumbs.get(made.id)
    assert (found.name, found.state, found.created_at) == ("renamed", "ready", made.created_at)
    assert found.readable() | {"description": ""} == found.readable()
    assert (found.get_property("owner"), found.get_property("labels")) == ("bob", ["a"])


async def test_an_entity_stored_under_another_id_is_written_whole(quick: Cupboard) -> None:
    one, two = await quick.add("one", state="ready"), await quick.add("two", state="dust")
    await quick.crumbs.set(two.id, one)
    found = await quick.crumbs.get(two.id)
    assert (found.name, found.state) == ("one", "ready")
    assert [(c.name, c.id) for c in await quick.crumbs.fetch(name="two")] == []


async def test_an_entity_of_another_cupboard_is_not_taken_for_ours(quick: Cupboard) -> None:
    import dgent

    await quick.crumbs.set("shared", Crumb("here"))
    async with dgent.open("memory:") as u:
        elsewhere = Cupboard(u)
        await elsewhere.add("something first")
        await elsewhere.crumbs.set("shared", Crumb("there"))
        foreign = await elsewhere.crumbs.get("shared")
    with pytest.raises(Conflict, match="another cupboard"):
        await quick.crumbs.set("shared", foreign)
    assert (await quick.crumbs.get("shared")).name == "here"


async def test_a_number_that_becomes_a_truth_value_is_a_change(quick: Cupboard) -> None:
    stash = Stash("s", "context", {"flag": 1})
    await quick.stashes.set(None, stash)
    stash.value = {"flag": True}
    await quick.stashes.set(stash.id, stash)
    assert (await quick.stashes.get(stash.id)).value["flag"] is True


async def test_a_property_defined_while_a_crumb_is_stored(quick: Cupboard) -> None:
    """Both go on at once in one program; neither stumbles over what the other has read."""
    crumbs = [await quick.add(f"c{n}") for n in range(10)]

    async def change(crumb: Crumb) -> None:
        for n in range(6):
            crumb.set_property("owner", f"o{n}")
            await quick.crumbs.set(crumb.id, crumb)
            await quick.crumbs.fetch(limit=1)

    async def define() -> None:
        for n in range(6):
            await quick.properties.set(None, Property(f"p{n}", "integer"))

    await asyncio.gather(define(), *map(change, crumbs))
    for found in await quick.crumbs.fetch():
        assert found.readable() | {f"p{n}": 0 for n in range(6)} == found.readable()


async def test_a_property_deleted_since_the_crumb_was_read(quick: Cupboard) -> None:
    wanted = Property("estimate", "integer")
    await quick.properties.set(None, wanted)
    crumb = await quick.add("x", properties={"estimate": 5})
    other = await quick.crumbs.get(crumb.id)
    await quick.properties.delete(wanted.id)
    crumb.name = "y"  # this has nothing to do with it
    await quick.crumbs.set(crumb.id, crumb)
    other.set_property("estimate", 6)  # this has
    with pytest.raises(errors.PropertyNotFound):
        await quick.crumbs.set(other.id, other)
    await quick.done(crumb)
    assert (await quick.crumbs.get(crumb.id)).state == "pebble"


async def test_a_failed_set_leaves_the_entity_as_it_was(quick: Cupboard) -> None:
    crumb = Crumb("x", properties={"owner": "ann", "nonsense": 1})
    before = copy.deepcopy(crumb)
    with pytest.raises(errors.PropertyNotFound):
        await quick.crumbs.set(None, crumb)
    with pytest.raises(errors.PropertyNotFound):
        await quick.add(crumb, state="ready", properties={"priority": "high"})
    assert (crumb, crumb.id, crumb.created_at) == (before, "", None)
