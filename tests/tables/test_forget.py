"""Forgetting erases both tracks: no file has the text afterwards, and a forget that was cut short goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import delete

import dgent
from dgent.tables import connect
from dgent.tables.brain import Brain
from dgent.tables.gardener import Gardener
from dgent.tables.migrate import run_migrations
from dgent.tables.models.brain import Crystal
from dgent.tables.town import Town

SECRET = "a heron on the roof"


def holds(folder: Path) -> list[str]:
    return [
        each.name for each in folder.rglob("*") if each.is_file() and SECRET.encode() in each.read_bytes()
    ]


@pytest.fixture
async def services(tmp_path: Path):
    async with dgent.open(f"sqlite:///{tmp_path}/town.db") as u, await connect(u) as place:
        await run_migrations(place)
        yield u, place, Brain(u, place), Town(u, place), Gardener(u, place)


async def test_no_file_has_what_was_forgotten(services, tmp_path: Path) -> None:
    _, _, brain, town, garden = services
    crystal = await brain.capture(SECRET, tags=["birds"])
    await town.create_citizen("Ann")
    talk, other = await town.start_conversation("Ann", "birds"), await town.start_conversation("Ann", SECRET)
    kept = await town.add_turn(talk.id, "user", "What is it?")
    turn = await town.add_turn(talk.id, "citizen", SECRET)
    await town.add_turn(other.id, "citizen", SECRET)
    idea, near = await garden.plant(SECRET), await garden.plant("a nest")
    await garden.connect(idea.id, near.id)
    await garden.nurture(idea.id, "of twigs")
    assert holds(tmp_path)
    assert await brain.forget(crystal.id)
    assert await town.forget(turn.id)
    assert await town.forget_conversation(other.id)
    assert await garden.forget(idea.id)
    assert holds(tmp_path) == []
    assert [each.id for each in await town.transcript(talk.id)] == [kept.id]
    assert [each.id for each in await garden.list_ideas()] == [near.id]
    assert await garden.get_connections(near.id) == []
    for again in (brain.forget(crystal.id), town.forget(turn.id), town.forget_conversation(other.id)):
        assert not await again
    assert not await garden.forget(idea.id)
    following = await town.add_turn(talk.id, "user", "Gone?")
    assert following.turn_number == 3


async def test_a_forget_that_was_cut_short_is_repeated(services, tmp_path: Path) -> None:
    _, place, brain, _, _ = services
    made = await brain.capture(SECRET)
    async with place.sessions() as session, session.begin():
        await session.execute(delete(Crystal))
    assert await brain.forget(made.id)
    assert holds(tmp_path) == []


async def test_a_record_of_others_is_not_forgotten(services) -> None:
    u, _, *each = services
    await u.put(dgent.Datum(id="other", data={"kept": True}))
    for service in each:
        assert not await service.forget("other")
    assert await u.exists("other")
