"""Names with slashes and tildes: no two things share an id, and ids from before still lead to theirs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent import ids
from dgent.blocks import Library, errors
from dgent.blocks.record import (
    GroupRecord,
    MemberRecord,
    ShareRecord,
    agent_id,
    checkpoint_id,
    group_id,
    group_ids,
    group_of,
    member_id,
    member_ids,
    share_id,
)
from dgent.clock import now

PARTS = st.text("ab/~01", min_size=1, max_size=5)


@given(st.lists(PARTS, min_size=3, max_size=3), st.lists(PARTS, min_size=3, max_size=3))
def test_different_parts_make_different_ids(one: list[str], other: list[str]) -> None:
    assert (ids.compose(*one) == ids.compose(*other)) == (one == other)
    assert ids.unescape(ids.escape(one[0])) == one[0]


@given(PARTS, PARTS, PARTS, PARTS)
def test_no_two_groups_or_members_share_an_id(a: str, b: str, c: str, d: str) -> None:
    made = {
        ("group", a): group_id(a),
        ("group", b): group_id(b),
        ("member", a, b): member_id(a, b),
        ("member", c, d): member_id(c, d),
        ("agent", a): agent_id(a),
        ("agent", b): agent_id(b),
    }
    assert len(set(made.values())) == len(made)
    assert group_of(group_id(a)) == a


def test_plain_names_have_the_ids_that_they_had() -> None:
    assert group_ids("team") == ["block.group/team"]
    assert member_ids("team", "scout") == ["block.group/team/scout"]
    assert (agent_id("a/b"), checkpoint_id("x", "v1/b")) == ("block.agent/a/b", "x/c/v1/b")
    assert share_id("x", agent_id("a/b")) == "x/share/block.agent/a/b"


async def test_groups_whose_names_look_like_members(quick: Library) -> None:
    for agent in ("b", "c", "b/c"):
        await quick.agents.create(agent)
    groups = ("a", "a/b", "a~1b", "a/b/c", "~")
    for group in groups:
        await quick.groups.create(group)
    for group, agent in itertools.product(groups, ("b", "c", "b/c")):
        await quick.groups.join(group, agent)
    for group in groups:
        assert [each.agent for each in (await quick.groups.get(group)).members] == ["b", "b/c", "c"]
        with pytest.raises(errors.NameTaken):
            await quick.groups.create(group)
    await quick.create("plan", text="for one group")
    await quick.share("plan", with_group="a/b")
    await quick.groups.leave("a", "b/c")
    await quick.groups.delete("a")
    assert [each.group for each in await quick.list_shares()] == ["a/b"]
    theirs = Library(quick._universe._twin(_room=None), agent="c")
    assert await (await theirs.get("plan", owner="scout")).text() == "for one group"
    await quick.groups.leave("a/b", "c")
    with pytest.raises(errors.BlockNotFound):
        await theirs.get("plan", owner="scout")


async def test_groups_from_before_are_found(quick: Library) -> None:
    for agent in ("c", "d"):
        await quick.agents.create(agent)
    block = await quick.create("plan", text="old")
    room = quick._universe
    old = "block.group/a/b"
    await room.remember(GroupRecord("a/b"), id=old)
    await room.remember(MemberRecord("a/b", "c"), id=f"{old}/c")
    await room.remember(
        ShareRecord(block.id, "scout", old, "append", "scout", now()), id=share_id(block.id, old)
    )
    outside = room._twin(_room=None)
    theirs = Library(outside, agent="c")
    assert (await quick.groups.get("a/b")).id == old
    assert [each.group for each in await theirs.list_shares()] == ["a/b"]
    await (await theirs.get("plan", owner="scout")).append(" and new")
    with pytest.raises(errors.NameTaken):
        await quick.groups.create("a/b")
    await quick.groups.join("a/b", "d")
    await quick.groups.join("a/b", "c", role="supervisor")
    assert [each.agent for each in (await quick.groups.get("a/b")).members] == ["c", "d"]
    assert await (await Library(outside, agent="d").get("plan", owner="scout")).text() == "old and new"
    await quick.groups.leave("a/b", "c")
    await quick.groups.delete("a/b")
    assert await quick.groups.list() == []


async def test_checkpoints_with_slashes(quick: Library) -> None:
    block = await quick.create("plan", text="x")
    for name in ("a", "a/b", "a~1b"):
        await block.checkpoint(name)
    assert set(await block.checkpoints()) == {"a", "a/b", "a~1b"}
    await block.drop_checkpoint("a/b")
    assert set(await block.checkpoints()) == {"a", "a~1b"}
