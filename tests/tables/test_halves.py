"""Halves of the two tracks are found, and mended as far as nobody's delete is taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

import dgent
from dgent.errors import InputError, StorageError
from dgent.tables import Place, connect
from dgent.tables.brain import Brain
from dgent.tables.gardener import Gardener
from dgent.tables.halves import find_halves, repair
from dgent.tables.migrate import run_migrations
from dgent.tables.models import ConversationTurn, Crystal, GardenIdea
from dgent.tables.town import Town
from dgent.verbs.room import TABLES, inspect

MODELS = {"brain_crystals": Crystal, "conversation_turns": ConversationTurn, "garden_ideas": GardenIdea}


class House:
    """A brain, a town and a garden with one thing each on both tracks, by their tables."""

    async def fill(self, universe, place):
        self.universe, self.place = universe, place
        await run_migrations(place)
        self.brain, self.town, self.garden = (make(universe, place) for make in (Brain, Town, Gardener))
        await self.town.create_citizen("Ann")
        self.talk = (await self.town.start_conversation("Ann")).id
        self.things = {
            "brain_crystals": (await self.brain.capture("a crystal " * 30, ["tag"])).id,
            "conversation_turns": (await self.town.add_turn(self.talk, "user", "a turn")).id,
            "garden_ideas": (await self.garden.plant("an idea", tags=["green"])).id,
        }
        return self

    async def row(self, table: str) -> dict[str, object] | None:
        async with self.place.sessions() as session:
            row = await session.get(MODELS[table], self.things[table])
            columns = [column.key for column in MODELS[table].__table__.columns]
            return None if row is None else {key: getattr(row, key) for key in columns}

    async def drop_row(self, table: str) -> None:
        async with self.place.engine.begin() as connection:
            if table == "brain_crystals":
                await connection.execute(sa.text("DELETE FROM brain_crystal_tags"))
            await connection.execute(sa.delete(MODELS[table]).where(MODELS[table].id == self.things[table]))


@pytest.fixture(params=["one database", "two databases"])
async def house(request, tmp_path: Path):
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u:
        where = u if request.param == "one database" else f"sqlite:///{tmp_path / 'other.db'}"
        async with await connect(where) as place:
            assert place.shared is (where is u)
            yield await House().fill(u, place)


@pytest.mark.parametrize("table", MODELS)
async def test_a_missing_row_is_made_again_as_it_was(house: House, table: str) -> None:
    assert await find_halves(house.universe, house.place) == []
    before = await house.row(table)
    await house.drop_row(table)
    (half,) = await find_halves(house.universe, house.place)
    assert (half.table, half.id, half.missing, half.done) == (table, house.things[table], "row", "found")
    assert await house.row(table) is None, "looking changes nothing"
    assert [each.done for each in await repair(house.universe, house.place)] == ["row made"]
    assert await house.row(table) == before
    assert await repair(house.universe, house.place) == []
    assert [each.id for each in await house.brain.list_by_tag("tag")] == [house.things["brain_crystals"]]


@pytest.mark.parametrize("table", MODELS)
async def test_a_deleted_datum_is_reported_then_restored_or_followed(house: House, table: str) -> None:
    id = house.things[table]
    before = (await house.universe.get(id)).value
    await house.universe.delete(id)
    for _ in range(2):
        (half,) = await repair(house.universe, house.place)
        assert (half.table, half.id, half.missing, half.done) == (table, id, "datum", "found")
    assert [each.done for each in await repair(house.universe, house.place, missing_datum="restore")] == [
        "datum made"
    ]
    assert (await house.universe.get(id)).value == before
    assert await find_halves(house.universe, house.place) == []
    await house.universe.delete(id)
    assert [each.done for each in await repair(house.universe, house.place, missing_datum="delete")] == [
        "row deleted"
    ]
    assert await house.row(table) is None
    assert await find_halves(house.universe, house.place) == []


async def test_what_was_forgotten_never_comes_back_by_itself(house: House) -> None:
    await house.universe.forget(*house.things.values())
    assert {each.done for each in await repair(house.universe, house.place)} == {"found"}
    done = {
        each.table: each.done for each in await repair(house.universe, house.place, missing_datum="restore")
    }
    assert done == {
        "brain_crystals": "cannot be mended",
        "conversation_turns": "datum made",
        "garden_ideas": "datum made",
    }
    assert (await house.universe.get(house.things["garden_ideas"])).datum.tags == {"green"}


async def test_a_turn_whose_row_was_lost_in_a_crash_is_mended_by_the_next_turn(house: House) -> None:
    """Where two databases hold them, the datum is committed first."""
    await house.drop_row("conversation_turns")
    async with house.place.engine.begin() as connection:
        await connection.execute(
            sa.text("UPDATE citizen_conversations SET turn_count = 0, datum_chain_head = NULL")
        )
    turn = await house.town.add_turn(house.talk, "citizen", "the next")
    assert [each.content for each in await house.town.transcript(house.talk)] == ["a turn", "the next"]
    assert turn.causal_parent == house.things["conversation_turns"]
    assert await find_halves(house.universe, house.place) == []


async def test_a_row_that_cannot_be_made_says_why(house: House) -> None:
    await house.drop_row("conversation_turns")
    async with house.place.engine.begin() as connection:
        await connection.execute(sa.text("DELETE FROM citizen_conversations"))
    (half,) = await repair(house.universe, house.place)
    assert half.done == "cannot be mended"
    assert "FOREIGN KEY" in half.reason
    with pytest.raises(InputError, match="'undo'"):
        await repair(house.universe, house.place, missing_datum="undo")


async def test_datums_are_committed_before_rows_where_two_databases_hold_them(tmp_path: Path) -> None:
    """So the failure of the second commit leaves a datum without a row, which repair mends."""
    async with (
        dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u,
        await connect(f"sqlite:///{tmp_path / 'other.db'}") as place,
    ):
        await run_migrations(place)
        brain = Brain(u, place)

        @sa.event.listens_for(place.engine.sync_engine, "commit")
        def fail(connection) -> None:
            raise sa.exc.OperationalError("COMMIT", {}, OSError("the disk is gone"))

        with pytest.raises(StorageError, match="disk is gone"):
            await brain.capture("in one half", ["a"])
        sa.event.remove(place.engine.sync_engine, "commit", fail)
        assert await u.count(schema="brain.content") == 1
        assert (await brain.status()).crystals == 0
        assert [each.done for each in await repair(u, place)] == ["row made"]
        assert [each.content for each in await brain.list_by_tag("a")] == ["in one half"]


async def test_the_doctor_finds_halves(universe: dgent.Universe, place: Place) -> None:
    assert await inspect(universe, deep=True) == []
    house = await House().fill(universe, place)
    assert frozenset(MODELS) == TABLES
    assert [(each.level, each.subject) for each in await inspect(universe, deep=True)] == [("ok", "tables")]
    await house.drop_row("garden_ideas")
    await universe.delete(house.things["conversation_turns"])
    (found,) = await inspect(universe, deep=True)
    assert found.level == "problem" and "2 texts and rows" in found.message
    assert f"garden_ideas {house.things['garden_ideas']} has no row" in found.message
    assert f"conversation_turns {house.things['conversation_turns']} has no datum" in found.message
    assert "dgent tables repair" in found.hint
    assert await inspect(universe, deep=False) == []
