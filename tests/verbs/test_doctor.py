"""What rooms find when a store is inspected: an engine cannot tell that a block does not load any more."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import dgent
from dgent.blocks import Library
from dgent.blocks.record import ROOM, pack_id, version_id
from dgent.cupboard import Cupboard
from dgent.model.query import Query
from dgent.store.backend import Delete
from dgent.verbs import room


@pytest.fixture
async def u() -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:") as universe:
        yield universe


async def levels(u: dgent.Universe, deep: bool = False) -> dict[str, str]:
    return {each.subject: each.level for each in await room.inspect(u, deep=deep)}


@pytest.mark.parametrize("deep", [False, True])
async def test_blocks_that_cannot_be_loaded_are_a_problem(u: dgent.Universe, deep: bool) -> None:
    assert await levels(u, deep) == {}
    scout = Library(u, agent="scout")
    good = await scout.create("good", text="g")
    bad = await scout.create("bad", text="b")
    await bad.append("!")
    await scout.delete("good")
    assert await levels(u, deep) == {"blocks": "ok"}
    owned = u.for_room(ROOM)
    await owned.commit([Delete(version_id(bad.id, number)) for number in (1, 2)])
    (found,) = await room.inspect(u, deep=deep)
    assert found.level == "problem" and "1 of 2 blocks" in found.message
    assert "'bad' of 'scout'" in found.message and good.id not in found.message
    first = await owned.get(version_id(good.id, 1), raw=True)
    await owned.put(first.replace(content=b"not a document"))
    (found,) = await room.inspect(u, deep=deep)
    assert "2 of 2 blocks" in found.message


@pytest.mark.parametrize("folded", [False, True])
async def test_a_version_that_is_missing_before_others_is_a_problem(u: dgent.Universe, folded: bool) -> None:
    """The block loads as it was before the gap, as if the later versions had never been made."""
    block = await Library(u, agent="scout").create("notes", text="n")
    for number in range(9):
        await block.append(f" {number}")
    if folded:
        await block._version_log.pack_versions(keep=4)
    assert await levels(u) == {"blocks": "ok"}
    owned = u.for_room(ROOM)
    await owned.commit([Delete(version_id(block.id, 7))])
    (found,) = await room.inspect(u, deep=False)
    assert found.level == "problem" and "version 7" in found.message and "'notes'" in found.message


async def test_versions_that_belong_to_no_block_are_a_problem(u: dgent.Universe) -> None:
    scout = Library(u, agent="scout")
    block = await scout.create("notes", text="n")
    await scout.create("others", text="n")
    await u.for_room(ROOM).commit([Delete(block.id)])
    (found,) = await room.inspect(u, deep=False)
    assert found.level == "problem" and block.id in found.message and "others" not in found.message


async def test_a_page_that_is_missing_is_found_by_a_deep_look(u: dgent.Universe) -> None:
    block = await Library(u, agent="scout").create("notes", text="n")
    for keep in (9, 1):
        for number in range(10):
            await block.append(f" {number}")
        await block._version_log.pack_versions(keep=keep)
    owned = u.for_room(ROOM)
    assert await levels(u, True) == {"blocks": "ok"}
    pages = await owned.query(Query(schema="block.page", limit=None), raw=True)
    await owned.commit([Delete(pages[-1].id)])
    (found,) = await room.inspect(u, deep=True)
    assert found.level == "problem" and "versions 1 to" in found.message


async def test_an_old_version_that_cannot_be_loaded_is_found_by_a_deep_look(u: dgent.Universe) -> None:
    scout = Library(u, agent="scout")
    block = await scout.create("notes", text="n")
    for number in range(40):
        await block.append(f" {number}")
    await block._version_log.pack_versions(keep=1)
    owned = u.for_room(ROOM)
    (page,) = await owned.query(Query(schema="block.page", limit=None), raw=True)
    assert page.id == pack_id(block.id, 40)
    assert await levels(u, True) == {"blocks": "ok"}
    await owned.put(page.replace(content=page.content[:10]))
    assert await levels(u) == {"blocks": "ok"} and await levels(u, True) == {"blocks": "problem"}


async def test_a_cupboard_that_breaks_its_rules_is_a_problem(u: dgent.Universe) -> None:
    cupboard = Cupboard(u)
    crumb = await cupboard.add("one")
    await cupboard.add("two", parents=[crumb])
    assert await levels(u) == {"cupboard": "ok"}
    await u.for_room("cupboard").commit([Delete(crumb.id)])
    (found,) = await room.inspect(u, deep=False)
    assert found.level == "problem" and "audit" in found.hint
