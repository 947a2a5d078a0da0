"""Gardener: ideas grow on both tracks alike."""

from __future__ import annotations

import asyncio

import pytest

from dgent.errors import Conflict, InputError, NotFound
from dgent.tables.gardener import Gardener
from dgent.tables.migrate import run_migrations

STAGES = ["SEED", "SAPLING", "TREE", "FLOWER", "COMPOST"]


@pytest.fixture
async def garden(universe, place) -> Gardener:
    await run_migrations(place)
    return Gardener(universe, place)


async def test_an_idea_grows_on_both_tracks(universe, garden) -> None:
    visit = await garden.start_session("a walk", "dry")
    bed = await garden.create_plot("north", color="green")
    idea = await garden.plant("tea on the roof", session_id=visit.id, plot_id=bed.id, tags=["roof"])
    assert (idea.lifecycle, idea.confidence, idea.nurture_count, idea.tags) == ("SEED", 0.3, 0, ["roof"])
    assert idea.datum_id == idea.id

    idea = await garden.nurture(idea.id, "under glass")
    assert idea.content == "tea on the roof\n\n---\n\nunder glass"
    assert (idea.confidence, idea.nurture_count) == (0.4, 1)
    assert idea.last_nurtured is not None
    assert [(await garden.harvest(idea.id)).lifecycle for _ in range(4)] == STAGES[1:]
    assert await garden.harvest(idea.id) is None
    with pytest.raises(Conflict, match="compost"):
        await garden.nurture(idea.id)

    stored = await garden.get(idea.id)
    value = (await universe.get(idea.id)).value
    assert (value.content, value.lifecycle, value.confidence) == (stored.content, "COMPOST", 0.4)
    grown = [version.datum.data["lifecycle"] for version in await universe.history(idea.id)]
    assert grown == [*reversed(STAGES[1:]), "SEED", "SEED"]
    assert [each.id for each in await garden.search("glass")] == [idea.id]
    ended = await garden.end_session(visit.id, "wet")
    assert (ended.notes, ended.duration_seconds >= 0) == ("dry\nwet", True)
    with pytest.raises(Conflict, match="ended"):
        await garden.end_session(visit.id)


async def test_nurturing_at_once_loses_nothing(garden) -> None:
    idea = await garden.plant("watered by many", confidence=0.05)
    await asyncio.gather(*(garden.nurture(idea.id, f"drop {n}") for n in range(8)))
    grown = await garden.get(idea.id)
    assert (grown.nurture_count, grown.confidence) == (8, 0.85)
    assert all(f"drop {n}" in grown.content for n in range(8))
    for _ in range(3):
        grown = await garden.nurture(idea.id)
    assert grown.confidence == 1.0


async def test_lists_connections_and_compost(garden) -> None:
    one, two = await garden.plant("one"), await garden.plant("two")
    assert (await garden.compost(one.id)).lifecycle == "COMPOST"
    assert [each.id for each in await garden.list_ideas(lifecycle="SEED")] == [two.id]
    tie = await garden.connect(one.id, two.id, "feeds", strength=0.8, notes="rot")
    assert [each.id for each in await garden.get_connections(two.id)] == [tie.id]
    with pytest.raises(Conflict):
        await garden.connect(one.id, two.id, "feeds")
    status = await garden.status()
    assert (status.ideas, status.connections) == (2, 1)
    assert status.ideas_by_lifecycle == {"SEED": 1, "SAPLING": 0, "TREE": 0, "FLOWER": 0, "COMPOST": 1}
    with pytest.raises(Conflict):
        await garden.create_plot((await garden.create_plot("south")).name)


async def test_what_cannot_be_planted_is_named(universe, garden) -> None:
    with pytest.raises(InputError, match="text"):
        await garden.plant(" ")
    with pytest.raises(InputError, match="confidence"):
        await garden.plant("too sure", confidence=1.1)
    with pytest.raises(InputError, match="'WEED'"):
        await garden.list_ideas(lifecycle="WEED")
    for call in (
        garden.plant("nowhere", plot_id="nowhere"),
        garden.nurture("nowhere"),
        garden.harvest("nowhere"),
        garden.compost("nowhere"),
    ):
        with pytest.raises(NotFound, match="nowhere"):
            await call
    assert await universe.count(schema="garden.idea") == 0
