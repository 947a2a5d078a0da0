"""A search of a store that is unavailable says so, or finds what is at hand, pending commits among it."""

from __future__ import annotations

import pytest

import dgent
from dgent import Schema
from dgent.blocks import Library
from dgent.errors import Unavailable
from dgent.universe.gate import Principal
from tests.offline.world import Note, World, back

pytestmark = pytest.mark.filterwarnings("ignore::dgent.errors.Degraded")
SEARCHED = Schema("note", contract=Note, indexes=("n",), text=("text",))


async def fill(url: str) -> None:
    async with dgent.open(url) as u:
        u.register(SEARCHED)
        for id, text in {"a": "the lake in summer", "b": "tea by the lake", "c": "snow"}.items():
            await u.remember(Note(text), id=id)


async def found(u: dgent.Universe, words: str, **filters: object) -> list[str]:
    hits = await u.search(words, partial=True, **filters)
    assert hits.partial is (u.degraded is not None)
    return [hit.id for hit in hits]


async def test_without_a_local_copy_pending_records_are_found(world: World) -> None:
    await fill(world.url)
    world.leave()
    async with world.open() as u:
        u.register(SEARCHED)
        with pytest.raises(Unavailable):
            await u.search("lake")
        assert await found(u, "lake") == []
        await u.remember(Note("a lake of mine", 7), id="mine")
        await u.remember(Note("a pond"), id="pond")
        await u.remember(Note("another lake"), id="gone")
        await u.delete("gone")
        assert await found(u, "lake") == ["mine"]
        assert await found(u, "lake pond", where={"n": 7}) == ["mine"]
        assert await found(u, '"lake of mine"') == ["mine"]
        with pytest.raises(Unavailable):
            await u.search("lake", as_of=1, partial=True)
        hit = (await u.search("lake", partial=True))[0]
        assert (hit.value, hit.datum.seq, hit.snippet) == (Note("a lake of mine", 7), None, "a lake of mine")
        world.come_back()
        await back(u)
        assert set(await found(u, "lake")) == {"a", "b", "mine"}
        assert {hit.id for hit in await u.search("lake")} == {"a", "b", "mine"}


async def test_pending_versions_count_instead_of_those_of_the_local_copy(world: World) -> None:
    await fill(world.url)
    await fill(world.stand_in)
    world.leave()
    async with world.open(world.stand_in) as u:
        u.register(SEARCHED)
        assert sorted(await found(u, "lake")) == ["a", "b"]
        await u.remember(Note("the sea in summer"), id="a")
        await u.remember(Note("a lake under snow"), id="d")
        await u.delete("c")
        assert await found(u, "sea") == ["a"]
        assert sorted(await found(u, "lake")) == ["b", "d"]
        assert await found(u, "snow") == ["d"]
        guest = u.acting(Principal("guest", "conversant"))
        assert [hit.id for hit in await guest.search("sea", schema="note", partial=True)] == ["a"]
        with pytest.raises(Unavailable):
            await guest.search("sea", schema="note")


async def test_a_room_in_use_does_not_stand_in_the_way(world: World) -> None:
    for place in (world.url, world.stand_in):
        async with dgent.open(place) as u:
            await Library(u, agent="scout").create("notes", text="a lake in a block")
    world.leave()
    async with world.open(world.stand_in) as u:
        u.register(SEARCHED)
        Library(u, agent="scout")
        await u.remember(Note("another lake"), id="b")
        assert "b" in await found(u, "lake")
        with pytest.raises(Unavailable):
            await u.search("lake")


async def test_records_without_a_schema_are_found_while_they_wait(world: World) -> None:
    async with dgent.open(world.url) as u:
        await u.remember({"text": "a lake there"}, id="there")
    world.leave()
    async with world.open() as u:
        await u.remember({"text": "a lake here"}, id="here")
        u.register(Schema("deaf", contract=Note))
        await u.remember(Note("a lake without texts"), id="deaf")
        assert await found(u, "lake") == ["here"]
        world.come_back()
        await back(u)
        assert sorted(await found(u, "lake")) == ["here", "there"]
