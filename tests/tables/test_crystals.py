"""`crystallize`: the rows of a table as crystals, as often as one likes, and verified."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

import dgent
from dgent.errors import InputError, NoUniverse
from dgent.tables import TableAdapter, connect, crystallize
from dgent.tables import crystals as crystals_module

BORN = datetime(2026, 1, 1, tzinfo=UTC)

META = sa.MetaData()
NOTES = sa.Table(
    "notes",
    META,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("text", sa.Text),
    sa.Column("weight", sa.Numeric(10, 2)),
    sa.Column("causal_parent", sa.Integer),
    sa.Column("created_at", sa.DateTime(timezone=True)),
    sa.Column("extra", sa.JSON),
)
PAIRS = sa.Table(
    "pairs",
    META,
    sa.Column("a", sa.Text, primary_key=True),
    sa.Column("b", sa.Integer, primary_key=True),
    sa.Column("note", sa.Text),
)


@dataclass(frozen=True)
class Note:
    text: str
    weight: str | None = None


SCHEMA = dgent.Schema("notes.note", contract=Note, text={"text": 1})


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(crystals_module, "BATCH", 3)
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u, await connect(u) as place:
        async with place.engine.begin() as connection:
            await connection.run_sync(META.create_all)
            rows = [
                {
                    "id": n,
                    "text": f"note {n}",
                    "weight": n,
                    "causal_parent": n - 1 or None,
                    "created_at": BORN + timedelta(days=n),
                    "extra": {"n": [n]},
                }
                for n in range(1, 9)
            ]
            await connection.execute(NOTES.insert(), rows)
        yield u, place, TableAdapter(NOTES, place.sessions)


async def test_a_record_of_another_schema_stays(house) -> None:
    u, _, adapter = house
    await u.put(dgent.Datum("notes:2", data={"mine": True}))
    done = await crystallize(adapter, SCHEMA, u)
    assert done.refused == 1 and list(done.problems) == ["notes:2"] and done.verified
    assert (await u.get("notes:2", raw=True)).data == {"mine": True}


async def test_rows_become_crystals_with_their_times_causes_and_other_columns(house) -> None:
    u, _, adapter = house
    done = await crystallize(adapter, SCHEMA, u)
    assert (done.rows, done.copied, done.same, done.refused, done.left_over) == (8, 8, 0, 0, 0)
    assert done.verified
    crystal = await u.get("notes:3")
    assert crystal.value == Note("note 3", "3.00")
    assert crystal.datum.created_at == BORN + timedelta(days=3)
    assert crystal.datum.data["extra"] == {"n": [3]}, "columns that the contract does not know stay"
    assert [each.id for each in await u.causal_chain("notes:3")] == ["notes:1", "notes:2", "notes:3"]
    assert (await u.search('"note 5"'))[0].id == "notes:5"


async def test_a_second_copy_writes_only_what_changed(house) -> None:
    u, place, adapter = house
    await crystallize(adapter, SCHEMA, u)
    before = await u.seq()
    again = await crystallize(adapter, SCHEMA, u)
    assert (again.copied, again.same, again.verified) == (0, 8, True)
    assert await u.seq() == before
    async with place.engine.begin() as connection:
        await connection.execute(NOTES.update().where(NOTES.c.id == 2).values(text="changed"))
        await connection.execute(NOTES.delete().where(NOTES.c.id == 8))
    third = await crystallize(adapter, SCHEMA, u)
    assert (third.rows, third.copied, third.same, third.left_over) == (7, 1, 6, 1)
    assert third.verified
    assert [version.rev for version in await u.history("notes:2")] == [2, 1]


async def test_a_copy_that_was_interrupted_goes_on(house) -> None:
    u, _, adapter = house

    def stop(done: int, _total: int | None) -> None:
        if done >= 6:
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError):
        await crystallize(adapter, SCHEMA, u, progress=stop)
    assert await u.count(schema="notes.note") == 6
    done = await crystallize(adapter, SCHEMA, u)
    assert (done.copied, done.same, done.verified) == (2, 6, True)


async def test_a_row_that_does_not_fit_is_named_and_the_others_are_copied(house) -> None:
    u, place, adapter = house
    async with place.engine.begin() as connection:
        await connection.execute(NOTES.update().where(NOTES.c.id == 4).values(text=None))
    done = await crystallize(adapter, SCHEMA, u)
    assert (done.rows, done.copied, done.refused, done.verified) == (8, 7, 1, True)
    assert "text" in done.problems["4"]
    assert await u.get("notes:4") is None


async def test_a_crystal_that_somebody_changed_is_put_right(house) -> None:
    u, _, adapter = house
    await crystallize(adapter, SCHEMA, u)
    await u.update(await u.get("notes:1"), text="mine")
    done = await crystallize(adapter, SCHEMA, u)
    assert (done.copied, done.verified) == (1, True)
    assert (await u.get("notes:1")).value.text == "note 1"


async def test_keys_of_several_columns_and_schemas_without_a_contract(house) -> None:
    u, place, _ = house
    async with place.engine.begin() as connection:
        rows = [{"a": letter, "b": n, "note": f"{letter}{n}"} for letter in "xy" for n in (1, 2, 10)]
        await connection.execute(PAIRS.insert(), rows)
    done = await crystallize(TableAdapter(PAIRS, place.sessions), dgent.Schema("pairs"), u)
    assert (done.rows, done.copied, done.verified) == (6, 6, True)
    assert (await u.get('pairs:["x",10]')).value == {"a": "x", "b": 10, "note": "x10"}


async def test_it_needs_a_schema_and_a_universe(house) -> None:
    u, _, adapter = house
    with pytest.raises(InputError, match="Schema"):
        await crystallize(adapter, Note, u)
    with pytest.raises(NoUniverse):
        await crystallize(adapter, SCHEMA)


async def test_a_row_whose_id_no_record_can_have_is_refused_alone(house) -> None:
    u, place, _ = house
    async with place.engine.begin() as connection:
        rows = [{"a": "x" * 3000, "b": 1, "note": "long"}, {"a": "b", "b": 2, "note": "short"}]
        await connection.execute(sa.insert(PAIRS), rows)
    done = await crystallize(TableAdapter(PAIRS, place.sessions), dgent.Schema("pairs"), u)
    assert (done.refused, done.verified) == (1, True)
    assert await u.exists('pairs:["b",2]')
