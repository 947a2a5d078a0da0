"""Town: turns are rows and a causal chain of datums, in one order however many add at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import dgent
from dgent.errors import Conflict, InputError, NotFound
from dgent.tables import connect, find_halves
from dgent.tables.migrate import run_migrations
from dgent.tables.town import Town
from tests.command import python


@pytest.fixture
async def town(universe, place) -> Town:
    await run_migrations(place, "003")
    return Town(universe, place)


async def test_a_conversation_is_rows_and_a_chain_of_datums(universe, town) -> None:
    ann = await town.create_citizen("Ann", archetype="baker", traits={"patient": True})
    talk = await town.start_conversation("Ann", "bread")
    said = [("user", "How long does it rise?"), ("citizen", "Two hours."), ("system", "The bell rings.")]
    turns = [await town.add_turn(talk.id, role, text, emotion="calm") for role, text in said]

    assert [(each.turn_number, each.role, each.content) for each in await town.transcript(talk.id)] == [
        (number, *each) for number, each in enumerate(said, 1)
    ]
    assert [each.id for each in await town.transcript(talk.id, limit=2)] == [turns[1].id, turns[2].id]
    assert [each.causal_parent for each in turns] == [None, turns[0].id, turns[1].id]
    stored = await town.get_conversation(talk.id)
    assert (stored.turn_count, stored.datum_chain_head) == (3, turns[2].id)
    chain = await universe.causal_chain(stored.datum_chain_head)
    assert [each.value.content for each in chain] == [text for _, text in said]
    assert (await town.search("rise"))[0].id == turns[0].id
    assert (await town.get_citizen(ann.id)).interaction_count == 3
    assert [each.id for each in await town.get_dialogue_history("Ann", 2)] == [turns[1].id, turns[2].id]

    ended = await town.end_conversation(talk.id, "about bread")
    assert (ended.is_active, ended.summary) == (False, "about bread")
    with pytest.raises(Conflict, match="ended"):
        await town.add_turn(talk.id, "user", "one more")
    assert await universe.count(schema="town.turn") == 3


async def test_turns_that_are_added_at_once_have_one_order(universe, place, town) -> None:
    await town.create_citizen("Bo")
    talk = await town.start_conversation("Bo")
    async with await connect(universe) as other:
        towns = town, Town(universe, other)
        await asyncio.gather(*(towns[n % 2].add_turn(talk.id, "user", f"say {n}") for n in range(12)))
    turns = await town.transcript(talk.id)
    assert [each.turn_number for each in turns] == list(range(1, 13))
    assert {each.content for each in turns} == {f"say {n}" for n in range(12)}
    assert [each.causal_parent for each in turns] == [None, *(each.id for each in turns[:-1])]
    assert [each.id for each in await universe.causal_chain(turns[-1].id)] == [each.id for each in turns]


async def test_citizens_have_one_name_each_and_can_change(town) -> None:
    ann, bo = await town.create_citizen("Ann"), await town.create_citizen("Bo")
    with pytest.raises(Conflict):
        await town.create_citizen("Ann")
    assert (await town.get_citizen_by_name("Bo")).id == bo.id
    changed = await town.update_citizen(bo.id, is_active=False, traits={"tired": 1})
    assert changed.updated_at > changed.created_at
    assert [each.name for each in await town.list_citizens(active=True)] == ["Ann"]
    with pytest.raises(InputError, match="interaction_count"):
        await town.update_citizen(bo.id, interaction_count=9)
    tie = await town.create_relationship(ann.id, bo.id, "friend", strength=0.9)
    assert [each.id for each in await town.get_relationships(bo.id)] == [tie.id]
    with pytest.raises(Conflict):
        await town.create_relationship(ann.id, bo.id, "friend")
    status = await town.status()
    assert (status.citizens, status.active_citizens, status.relationships) == (2, 1, 1)


async def test_wrong_ids_and_roles_are_named(universe, town) -> None:
    await town.create_citizen("Ann")
    talk = await town.start_conversation("Ann")
    with pytest.raises(InputError, match="'bot'"):
        await town.add_turn(talk.id, "bot", "hi")
    for call in (
        town.add_turn("nobody", "user", "hi"),
        town.transcript("nobody"),
        town.start_conversation("nobody"),
        town.end_conversation("nobody"),
        town.create_relationship("nobody", "nowhere", "friend"),
    ):
        with pytest.raises(NotFound, match="nobody"):
            await call
    assert await universe.count(schema="town.turn") == 0
    assert [each.id for each in await town.list_conversations("Ann", active=True)] == [talk.id]


async def test_programs_that_add_turns_at_once_have_one_order(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with dgent.open(url) as u, await connect(u) as place:
        await run_migrations(place)
        town = Town(u, place)
        await town.create_citizen("Ann")
        talk = await town.start_conversation("Ann")
        words = [python(), "-m", "tests.tables.adders", url, talk.id, "other", "12"]
        program = await asyncio.create_subprocess_exec(*words)
        while program.returncode is None:  # it has much to import first
            await town.add_turn(talk.id, "citizen", "here")
            await asyncio.sleep(0.01 if (await town.get_conversation(talk.id)).turn_count > 12 else 0.5)
        assert program.returncode == 0
        turns = await town.transcript(talk.id)
        assert [each.turn_number for each in turns] == list(range(1, len(turns) + 1))
        said = [each.content for each in turns if each.role == "user"]
        assert said == [f"other {n}" for n in range(12)]
        assert [each.id for each in await u.causal_chain(turns[-1].id)] == [each.id for each in turns]
        assert await find_halves(u, place) == []
