"""What stands among the ids of blocks and is not of blocks can neither be made nor get in the way."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import dgent
from dgent.blocks import Library
from dgent.blocks.record import SCHEMAS
from dgent.cupboard import Crumb, Cupboard
from dgent.cupboard.record import SCHEMAS as CUPBOARD
from dgent.errors import Denied
from dgent.model import reserved
from dgent.store.backend import EVERY_ROOM
from dgent.universe.room import all_rooms


@dataclass(frozen=True)
class Planted:
    name: str


PLANTED = dgent.Schema("planted", contract=Planted)
BELOW = ("u/0000000002", "u/0000000003", "s", "t", "erase", "c/point", "seen/scout", "share/block.agent/bob")


def test_the_reserved_names_are_those_of_the_rooms() -> None:
    declared = {schema.name: schema.owner for room in all_rooms() for schema in room.schemas}
    assert {schema.name for schema in (*SCHEMAS, *CUPBOARD)} < set(declared)
    assert declared == reserved.OWNERS
    assert reserved.PRIVATE["blocks"] < set(declared)


async def test_nobody_puts_a_record_among_the_ids_of_a_block(lib: Library) -> None:
    block = await lib.create("notes", text="one")
    u = lib._universe._twin(_room=None)
    seq = await u.seq()
    for id in (
        *(f"{block.id}/{place}" for place in BELOW),
        "block.agent/x",
        "block.group/x",
        "block.group/x/y",
    ):
        for expect in (None, 0):
            with pytest.raises(Denied):
                await u.put(dgent.Datum(id, data={"n": 1}), expect=expect)
        with pytest.raises(Denied):
            async with u.transaction() as tx:
                await tx.put(dgent.Datum(id, data={"n": 1}))
        cupboard = Cupboard(u)
        with pytest.raises(dgent.DgentError):
            await cupboard.crumbs.set(id, Crumb(name="x"))
    assert not [each for each in await u.changes(seq) if each.items[0].schema is None]
    await block.append(" two")
    assert await block.text() == "one two"


async def test_what_was_planted_before_gets_in_nobodys_way(lib: Library) -> None:
    u = lib._universe._twin(_room=None)
    u.register(PLANTED)
    await lib.agents.create("bob")
    block = await lib.create("notes", text="one")
    everywhere = u.for_room(EVERY_ROOM)
    for place, id in enumerate(
        (*(f"{block.id}/{place}" for place in BELOW), "block.agent/eve", "block.group/us")
    ):
        if place % 2:
            await everywhere.put(dgent.Datum(id, data={"version": 7, "ids": ["x"], "name": 3}))
        else:
            await everywhere.remember(Planted("x"), id=id)
    again = Library(u, agent="scout")
    found = await again.get("notes")
    for word in (" two", " three", " four"):
        await found.append(word)
    assert await found.text() == "one two three four"
    await found.checkpoint("point")
    await again.share("notes", with_agent="bob")
    assert (await Library(u, agent="bob").get("notes", owner="scout")).permission
    await again.groups.create("us")
    await again.agents.create("eve")
    await again.render(mark=True)
    await again.notices(mark=True)
    assert [hit.label for hit in await again.search("four")] == ["notes"]
    for number in range(150):  # until they are packed into pages and a snapshot
        await found.append(f" {number}")
    assert (await (await Library(u, agent="scout").get("notes")).text()).endswith(" 149")
