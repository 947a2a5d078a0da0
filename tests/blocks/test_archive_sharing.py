"""Archives that are shared with agents and groups: read and searched by them, changed by nobody else."""

from __future__ import annotations

import pytest

import dgent
from dgent.blocks import Library
from dgent.blocks.errors import EntryNotFound, PermissionDenied
from dgent.errors import Conflict, InputError, NotFound
from dgent.exchange.fork import fork, merge
from dgent.universe.gate import Principal
from tests.blocks.agents import Open, library, u

__all__ = ["library", "u"]


async def team(library: Open, *members: str) -> Library:
    partner = library("scout")
    for name in ("ann", "bob", "cy"):
        await library(name).agents.create(name)
    await partner.groups.create("team")
    for name in members:
        await partner.groups.join("team", name)
    return partner


async def texts(lib: Library, **how: object) -> list[str]:
    return sorted(each.snippet for each in await lib.search("ferry", **how))  # type: ignore[arg-type]


async def test_a_group_reads_and_searches(library: Open) -> None:
    await team(library, "ann", "bob")
    ann, bob, cy = library("ann"), library("bob"), library("cy")
    entry = await ann.archive("The ferry leaves at nine.", tags=["travel"])
    await bob.archive("My own ferry.")
    assert await texts(bob) == ["My own ferry."]
    await ann.share_archive(with_group="team")
    assert await texts(bob) == ["My own ferry.", "The ferry leaves at nine."]
    assert await texts(bob, owner="ann", kind="entry") == ["The ferry leaves at nine."]
    assert await texts(bob, tags=["travel"]) == ["The ferry leaves at nine."]
    assert (await bob.get_archived(entry.id)).agent == "ann"
    assert await texts(ann) == ["The ferry leaves at nine."], "bob shared nothing"
    assert await texts(cy) == []
    with pytest.raises(EntryNotFound):
        await cy.get_archived(entry.id)
    with pytest.raises(PermissionDenied, match="archive of ann"):
        await bob.unarchive(entry.id)
    [given] = await ann.list_archive_shares()
    assert (given.owner, given.group, given.agent, given.permission) == ("ann", "team", None, "read_only")
    assert [each.owner for each in await bob.list_archive_shares()] == ["ann"]
    assert await cy.list_archive_shares() == []


async def test_it_ends_with_the_share_the_membership_and_the_group(library: Open) -> None:
    partner = await team(library, "bob", "cy")
    ann, bob, cy = library("ann"), library("bob"), library("cy")
    await ann.archive("The ferry leaves at nine.")
    await ann.share_archive(with_group="team")
    await ann.share_archive(with_group="team")
    assert len(await ann.list_archive_shares()) == 1, "once is enough"
    await partner.groups.leave("team", "cy")
    assert await texts(bob) and not await texts(cy)
    assert await ann.unshare_archive(with_group="team")
    assert not await ann.unshare_archive(with_group="team")
    assert not await texts(bob)
    await ann.share_archive(with_group="team")
    await partner.groups.delete("team")
    assert not await texts(bob) and not await ann.list_archive_shares()
    await ann.share_archive(with_agent="cy")
    assert await texts(cy) and not await texts(bob)


async def test_what_cannot_be_shared(library: Open) -> None:
    partner = await team(library)
    ann = library("ann")
    for wrong in ({}, {"with_agent": "ann"}, {"with_agent": "bob", "with_group": "team"}):
        with pytest.raises(InputError):
            await ann.share_archive(**wrong)
    with pytest.raises(NotFound):
        await ann.share_archive(with_group="nobody")
    await partner.agents.describe("bob", status="archived")
    with pytest.raises(Conflict):
        await ann.share_archive(with_agent="bob")


async def test_the_gate_of_the_universe_knows_it(library: Open, u: dgent.Universe) -> None:
    await team(library, "bob")
    ann = library("ann")
    entry = await ann.archive("The ferry leaves at nine.")
    for agent in ("bob", "cy"):
        assert await u.acting(Principal(agent, "friend")).get(entry.id, raw=True) is None
    await ann.share_archive(with_group="team")
    bob, cy = (u.acting(Principal(agent, "friend")) for agent in ("bob", "cy"))
    assert await bob.get(entry.id, raw=True) is not None and await cy.get(entry.id, raw=True) is None
    assert await bob.count(schema="block.archive_share") == 1
    assert await cy.count(schema="block.archive_share") == 0


async def test_a_fork_does_not_bring_a_share_back(library: Open, u: dgent.Universe) -> None:
    await team(library, "bob")
    ann = library("ann")
    await ann.share_archive(with_group="team")
    async with dgent.open("memory:") as away:
        await fork(u, away)
        assert len(await Library(away, "ann").list_archive_shares()) == 1
        await ann.unshare_archive(with_group="team")
        await Library(away, "ann").archive("in the fork")
        done = await merge(away, u)
        assert done.entries == 1 and await ann.list_archive_shares() == []
