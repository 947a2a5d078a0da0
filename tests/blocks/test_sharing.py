"""Sharing: giving a block to other agents and groups, and using what one was given."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import dgent
from dgent.blocks import Library
from dgent.blocks.errors import (
    AgentNotFound,
    BlockNotFound,
    LabelAmbiguous,
    LabelTaken,
    NameTaken,
    PermissionDenied,
)
from dgent.errors import Conflict, InputError
from tests.blocks.agents import Open, library, scout, scribe, u

__all__ = ["library", "scout", "scribe", "u"]

ALL = "_constellation_"


async def test_a_recipient_uses_what_it_was_given(scout: Library, scribe: Library) -> None:
    with pytest.raises(BlockNotFound):
        await scribe.get("persona", owner="scout")
    await scout.share("persona", with_agent="scribe", permission="append")
    for theirs in (await scribe.get("persona"), await scribe.get("persona", owner="scout")):
        assert (theirs.owner, theirs.permission) == ("scout", "append")
    await theirs.append(" Always.")
    assert await (await scout.get("persona")).text() == "I like short answers. Always."
    with pytest.raises(PermissionDenied):
        await theirs.write("no")
    assert [(v.by, v.op) for v in await theirs.history()] == [("scribe", "append"), ("scout", "create")]


async def test_ones_own_block_wins_and_others_go_by_owner(library: Open, scout: Library) -> None:
    await scout.agents.create("scribe")
    scribe, third = library("scribe"), library("third")
    await scout.share("persona", with_agent="scribe", permission="read_only")
    assert (await scribe.get("persona")).owner == "scout"
    await third.create("persona", text="third")
    await third.share("persona", with_agent="scribe")
    with pytest.raises(LabelAmbiguous, match="scout, third"):
        await scribe.get("persona")
    await scribe.create("persona", text="mine")
    assert (await scribe.get("persona")).owner == "scribe"
    assert await (await scribe.get("persona", owner="third")).text() == "third"
    listed = [(each.owner, each.label) for each in await scribe.list(shared=True)]
    assert listed == [("scribe", "persona"), ("scout", "persona"), ("third", "persona")]
    assert [each.owner for each in await scribe.list()] == ["scribe"]


async def test_an_unknown_name_is_an_error_that_offers_near_ones(scout: Library, scribe: Library) -> None:
    with pytest.raises(AgentNotFound, match="did you mean 'scribe'") as caught:
        await scout.share("persona", with_agent="Scrib")
    assert caught.value.details["near"] == ["scribe"]
    with pytest.raises(AgentNotFound, match="create it with"):
        await scout.share("persona", with_agent="zzz")
    with pytest.raises(AgentNotFound):
        await scout.share("persona", with_group="scribe")
    with pytest.raises(InputError):
        await scout.share("persona")
    with pytest.raises(InputError):
        await scout.share("persona", with_agent="scout")
    assert await scout.list_shares() == []


async def test_shares_are_listed_both_ways(scout: Library, scribe: Library) -> None:
    await scout.share("persona", with_agent="scribe", permission="append")
    await scout.share("persona", with_agent="scribe", permission="read-write")
    [given] = await scout.list_shares()
    [received] = await scribe.list_shares()
    assert given == received
    assert (given.owner, given.label, given.agent, given.group) == ("scout", "persona", "scribe", None)
    assert (given.permission, given.by) == ("read_write", "scout")
    assert await scout.unshare("persona", with_agent="scribe")
    assert not await scout.unshare("persona", with_agent="scribe")
    assert await scout.list_shares() == await scribe.list_shares() == []
    with pytest.raises(BlockNotFound):
        await scribe.get("persona")


async def test_an_admin_share_lets_another_manage_an_admin_block(library: Open, scribe: Library) -> None:
    scout = library("scout")
    await scout.create("plan", permission="admin")
    await scout.share("plan", with_agent="scribe", permission="admin")
    assert (await scribe.rename("plan", "plans")).owner == "scout"
    await scribe.agents.create("third")
    await scribe.share("plans", with_agent="third", permission="append")
    assert [(each.agent, each.by) for each in await scout.list_shares()] == [
        ("scribe", "scout"),
        ("third", "scribe"),
    ]


async def test_what_belongs_to_all_is_seen_by_all(library: Open, scribe: Library) -> None:
    scout = library("scout")
    await scout.create("plan", owner=ALL, text="one", permission="append")
    theirs = await scribe.get("plan")
    assert (theirs.owner, theirs.permission) == (ALL, "append")
    await theirs.append(" two")
    assert await (await scout.get("plan", owner=ALL)).text() == "one two"
    with pytest.raises(PermissionDenied):
        await theirs.write("no")
    with pytest.raises(LabelTaken):
        await scribe.create("plan", owner=ALL)
    with pytest.raises(InputError):
        await scribe.create("plan", owner="scout")
    with pytest.raises(PermissionDenied):
        await library("scribe", trust="friend").delete("plan")
    with pytest.raises(Conflict, match="everyone has it"):
        await scout.share("plan", with_agent="scribe")
    await library("scribe").delete("plan")
    with pytest.raises(BlockNotFound):
        await scout.get("plan")
    with pytest.raises(InputError):
        library(ALL)


# -- groups -----------------------------------------------------------------------------------------------


async def test_what_is_shared_with_a_group_is_for_its_members_of_the_moment(
    scout: Library, scribe: Library
) -> None:
    await scout.groups.create("team", description="Those who write.")
    await scout.share("persona", with_group="team", permission="append")
    with pytest.raises(BlockNotFound):
        await scribe.get("persona")
    group = await scout.groups.join("team", "scribe", role="specialist", capabilities=("prose",))
    assert [(m.agent, m.role, m.capabilities) for m in group.members] == [
        ("scribe", "specialist", ("prose",))
    ]
    theirs = await scribe.get("persona")
    await theirs.append("!")
    await scout.share("persona", with_agent="scribe", permission="read_only")
    await theirs.append("!")  # the better of two shares counts
    assert {each.group or each.agent for each in await scribe.list_shares()} == {"team", "scribe"}
    await scout.groups.leave("team", "scribe")
    with pytest.raises(PermissionDenied):
        await theirs.append("!")
    assert await theirs.text() == "I like short answers.!!"


async def test_a_group_that_is_deleted_gives_nothing_when_it_is_made_again(
    scout: Library, scribe: Library
) -> None:
    await scout.groups.create("team")
    await scout.groups.join("team", "scribe")
    await scout.share("persona", with_group="team")
    await scout.groups.delete("team")
    await scout.groups.create("team")
    await scout.groups.join("team", "scribe")
    assert await scribe.list_shares() == []
    with pytest.raises(BlockNotFound):
        await scribe.get("persona")


async def test_nobody_joins_a_group_by_itself(library: Open, scout: Library, scribe: Library) -> None:
    await scout.groups.create("team")
    await scout.share("persona", with_group="team")
    friend = library("scribe", trust="friend")
    for attempt in (
        friend.groups.join("team", "scribe"),
        friend.groups.leave("team", "scout"),
        friend.groups.delete("team"),
        friend.agents.describe("scout", status="archived"),
    ):
        with pytest.raises(PermissionDenied, match="only the partner"):
            await attempt
    assert len(await scribe.refusals()) == 4 and await scribe.list_shares() == []
    await scout.groups.join("team", "scribe", role="supervisor")
    assert len((await friend.groups.join("team", "scout")).members) == 2
    assert (await friend.agents.describe("scribe", description="Writes.")).description == "Writes."


# -- agents -------------------------------------------------------------------------------------------------


async def test_names_are_unique_under_concurrent_creation(scout: Library) -> None:
    made = await asyncio.gather(
        *(scout.agents.create("new", description=str(n)) for n in range(10)), return_exceptions=True
    )
    assert sum(isinstance(each, NameTaken) for each in made) == 9
    assert [agent.name for agent in await scout.agents.list()] == ["new", "scout"]


async def test_labels_are_unique_under_concurrent_creation(library: Open) -> None:
    made = await asyncio.gather(
        *(library("fresh").create("notes", text=str(n)) for n in range(6)), return_exceptions=True
    )
    assert sum(isinstance(each, LabelTaken) for each in made) == 5
    assert len(await library("fresh").list()) == 1


async def test_names_and_labels_are_unique_among_programs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    async with dgent.open(url) as first, dgent.open(url) as second:
        programs = [Library(u, agent="scout") for u in (first, second)]
        made = await asyncio.gather(
            *(each.create(f"notes{n}") for n in range(5) for each in programs),
            *(each.agents.create(f"agent{n}") for n in range(5) for each in programs),
            return_exceptions=True,
        )
        assert sum(isinstance(each, LabelTaken) for each in made) == 5
        assert sum(isinstance(each, NameTaken) for each in made) == 5
        assert [each.label for each in await programs[0].list()] == [f"notes{n}" for n in range(5)]
        assert len(await programs[1].agents.list()) == 6


async def test_an_archived_agent_is_given_nothing_new(scout: Library, scribe: Library) -> None:
    await scribe.create("notes")
    assert (await scout.agents.describe("scribe", status="archived")).status == "archived"
    with pytest.raises(Conflict, match="archived"):
        await scout.share("persona", with_agent="scribe")
    with pytest.raises(Conflict, match="archived"):
        await scribe.create("more")
    assert [each.name for each in await scout.agents.list(status="archived")] == ["scribe"]
    await scout.agents.describe("scribe", status="hibernated", description="Rests.")
    await scout.share("persona", with_agent="scribe")
    with pytest.raises(InputError):
        await scout.agents.describe("scribe", status="asleep")


# -- the card -----------------------------------------------------------------------------------------------


async def test_a_deleted_label_is_free_and_restore_needs_it(scout: Library, scribe: Library) -> None:
    await scout.share("persona", with_agent="scribe")
    await scout.delete("persona")
    assert await scout.list_deleted() == ["persona"]
    with pytest.raises(BlockNotFound):
        await scribe.get("persona", owner="scout")
    assert await scribe.list_shares() == []
    await scout.create("persona", text="second")
    with pytest.raises(LabelTaken):
        await scout.restore("persona")
    back = await scout.restore("persona", to="old")
    assert (back.label, await back.text()) == ("old", "I like short answers.")
    assert (await scribe.get("old")).owner == "scout"
    with pytest.raises(BlockNotFound):
        await scout.restore("persona")


async def test_restore_brings_back_the_last_of_several(library: Open) -> None:
    lib = library()
    for text in ("first", "second"):
        await lib.create("notes", text=text)
        await lib.delete("notes")
    assert await (await lib.restore("notes")).text() == "second"


async def test_describe_changes_what_it_is_given(library: Open) -> None:
    lib = library()
    await lib.create("notes", description="old")
    block = await lib.describe("notes", description="new", kind="core", limit=7, permission="append")
    assert (block.description, block.kind, block.limit, block.permission) == ("new", "core", 7, "append")
    assert [each.label for each in await lib.list(kind="core")] == ["notes"]
    for wrong in ({"kind": "x"}, {"limit": 0}, {"limit": True}, {"permission": "x"}, {"description": 1}):
        with pytest.raises(InputError):
            await lib.describe("notes", **wrong)  # type: ignore[arg-type]
    with pytest.raises(BlockNotFound, match="did you mean 'notes'"):
        await lib.describe("note")


async def test_a_block_of_all_can_be_restored_by_the_partner(library: Open) -> None:
    partner, friend = library("ann", trust="partner"), library("scout", trust="friend")
    await partner.create("rules", kind="core", text="Be kind.", owner="_constellation_")
    await partner.delete("rules", owner="_constellation_")
    assert await partner.list_deleted() == []
    assert await partner.list_deleted(owner="_constellation_") == ["rules"]
    with pytest.raises(PermissionDenied):
        await friend.restore("rules", owner="_constellation_")
    restored = await partner.restore("rules", owner="_constellation_")
    assert (restored.owner, await restored.text()) == ("_constellation_", "Be kind.")
    assert await (await friend.get("rules")).text() == "Be kind."
