"""Tables in the path language: `self.data.table.<model>.<verb>`, for partners only."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

import dgent
from dgent.errors import Denied, InputError, NotFound
from dgent.tables import Brain, TableAdapter, connect, ensure_migrations
from dgent.verbs.caller import Caller
from dgent.verbs.path import invoke, offers

NOTES = sa.Table(
    "notes", sa.MetaData(), sa.Column("key", sa.Text, primary_key=True), sa.Column("n", sa.Integer)
)


@pytest.fixture
async def house(tmp_path: Path):
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u, await connect(u) as place:
        await ensure_migrations(place)
        async with place.engine.begin() as connection:
            await connection.run_sync(NOTES.metadata.create_all)
        yield u, place, await Brain(u, place).capture("a kettle", ["tea"])


async def test_a_model_is_a_part_of_the_path(house) -> None:
    u, _, made = house
    found = await invoke(u, "self.data.table.crystal.get", id=made.id)
    assert (found.table, found.data["summary"], found.data["tags"]) == ("brain_crystals", "a kettle", ["tea"])
    same = await invoke(u, "self.data.table.get", model="brain_crystals", id=made.id)
    assert same == found == await invoke(u, "self.table.get", model="crystal", id=made.id)
    assert (await invoke(u, "self.data.table.crystal.count")).count == 1
    assert (await invoke(u, "self.data.table.crystal.exists", id=made.id)).exists
    asked = {"where": {"summary": "a kettle"}}
    assert [row.id for row in (await invoke(u, "self.data.table.crystal.query", **asked)).items] == [made.id]
    chain = await invoke(u, "self.data.table.turn.causal_chain", id="none")
    assert chain.items == []


async def test_a_row_is_put_changed_in_part_and_deleted(house) -> None:
    u, _, _ = house
    made = await invoke(u, "self.data.table.plot.put", data={"name": "north"})
    assert (made.data["name"], made.data["color"]) == ("north", None)
    changed = await invoke(u, "self.data.table.plot.put", id=made.id, data={"color": "green"})
    assert (changed.data["name"], changed.data["color"]) == ("north", "green")
    assert changed.data["created_at"] == made.data["created_at"]
    assert [row.id for row in (await invoke(u, "self.data.table.plot.list")).items] == [made.id]
    assert not (await invoke(u, "self.data.table.plot.delete", id=made.id)).exists
    with pytest.raises(NotFound, match=made.id):
        await invoke(u, "self.data.table.plot.get", id=made.id)


async def test_tables_of_the_callers_own_and_registered_adapters_have_paths(house) -> None:
    u, place, _ = house
    put = await invoke(u, "self.data.table.notes.put", data={"key": "a", "n": 1})
    assert put.data == {"key": "a", "n": 1}
    u.adapters.register(TableAdapter(NOTES, place.sessions), "remarks")
    assert (await invoke(u, "self.data.table.remarks.get", id="a")).data == {"key": "a", "n": 1}
    listed = {each.name: each for each in (await invoke(u, "self.data.table.models")).items}
    assert (listed["notes"].columns, listed["crystal"].table) == (["key", "n"], "brain_crystals")
    assert "alembic_version_dgent" not in listed


async def test_what_is_not_there_is_named(house) -> None:
    u, _, _ = house
    with pytest.raises(NotFound, match="cristal") as error:
        await invoke(u, "self.data.table.cristal.get", id="x")
    assert "crystal" in error.value.hint
    with pytest.raises(NotFound, match=r"self\.data\.table\.crystal\.polish"):
        await invoke(u, "self.data.table.crystal.polish", id="x")
    for hidden in ("alembic_version_dgent", "sqlite_master", "datum"):
        with pytest.raises((NotFound, Denied)):
            await invoke(u, f"self.data.table.{hidden}.list")
    with pytest.raises(InputError, match="key"):
        await invoke(u, "self.data.table.tag.put", data={"tag": "x"})
    paths = [offer.path for offer in offers("self.data.table").items]
    assert "self.table.get" in paths


@pytest.mark.parametrize("trust", ["friend", "conversant", "untrusted"])
async def test_only_a_partner_uses_tables(house, trust) -> None:
    u, _, made = house
    eve = Caller("mail", "eve", trust)
    for path, args in (
        ("self.data.table.crystal.get", {"id": made.id}),
        ("self.data.table.crystal.count", {}),
        ("self.data.table.plot.put", {"data": {"name": "x"}}),
        ("self.tables.current", {}),
    ):
        with pytest.raises(Denied):
            await invoke(u, path, caller=eve, **args)
