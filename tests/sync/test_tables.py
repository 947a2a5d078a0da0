"""Application tables without an event loop: the same services and the same adapter."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table

import dgent
from dgent import sync, tables
from dgent.errors import InputError, Unsupported
from dgent.model.lens import key
from dgent.sync import tables as blocking

NOTES = Table("notes", MetaData(), Column("id", String, primary_key=True), Column("n", Integer))


@pytest.mark.parametrize("name", ["Brain", "Town", "Gardener", "TableAdapter"])
def test_the_same_methods(name: str) -> None:
    ours, theirs = getattr(blocking, name), getattr(tables, name)
    assert ours.__module__ == "dgent.sync.tables"
    for name, method in inspect.getmembers(theirs, inspect.isfunction):
        if not name.startswith("_"):
            found = getattr(ours, name)
            assert [*inspect.signature(found).parameters] == [*inspect.signature(method).parameters]
            assert not inspect.iscoroutinefunction(found)


def test_services_block(tmp_path: Path) -> None:
    with sync.open(f"sqlite:///{tmp_path / 'store.db'}") as u, blocking.connect(u) as place:
        assert place.shared and blocking.ensure_migrations(place)
        brain, town, garden = (make(u, place) for make in (blocking.Brain, blocking.Town, blocking.Gardener))
        made = brain.capture("ginger tea", ["tea"])
        assert [each.id for each in brain.search("ginger")] == [made.id]
        town.create_citizen("Ann")
        talk = town.start_conversation("Ann")
        town.add_turn(talk.id, "user", "hello")
        assert [turn.content for turn in town.transcript(talk.id)] == ["hello"]
        idea = garden.plant("grow ginger")
        assert garden.nurture(idea.id).id == idea.id
        assert blocking.find_halves(u, place) == []
        u.delete(idea.id)
        assert [half.done for half in blocking.repair(u, place, missing_datum="restore")] == ["datum made"]


def test_an_adapter_blocks(tmp_path: Path) -> None:
    with sync.open(f"sqlite:///{tmp_path / 'store.db'}") as u, blocking.connect(u) as place:
        u.storage.relational.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, n INTEGER)")
        notes = blocking.TableAdapter(NOTES, place.sessions)
        notes.put(dgent.Datum(id="a", data={"n": 1}))
        assert notes.get("a").data["n"] == 1 and notes.count() == 1
        assert notes.focus("a", key("n")).modify(lambda n: n + 1).data["n"] == 2
        with pytest.raises(Unsupported, match="event loop"):
            place.transaction(None)


def test_a_place_by_url_and_wrong_places(tmp_path: Path) -> None:
    with blocking.connect(f"sqlite:///{tmp_path / 'other.db'}") as place:
        assert not place.shared and blocking.run_migrations(place) is not None
    with pytest.raises(InputError, match="takes a universe of"):
        blocking.connect(dgent.open("memory:"))
    with pytest.raises(InputError, match="takes a place"):
        blocking.ensure_migrations()
