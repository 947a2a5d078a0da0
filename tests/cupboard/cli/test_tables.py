"""get, set, list and delete, the same for every table."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.cupboard.cli.shelf import Shelf


def test_create_get_update_delete_a_crumb(shelf: Shelf) -> None:
    one, two = (
        shelf.set("crumbs", Name=name, State=state) for name, state in (("a", "ready"), ("b", "pending"))
    )
    assert one["CrumbID"] != two["CrumbID"] and UUID(one["CrumbID"]).version == 7
    found = shelf.get("crumbs", one["CrumbID"])
    assert (found["Name"], found["State"]) == ("a", "ready") and found["CreatedAt"] and found["UpdatedAt"]
    assert shelf.set("crumbs", one["CrumbID"], Name="other")["Name"] == "other"
    changed = shelf.set("crumbs", one["CrumbID"], name="third", state="taken")
    assert (changed["Name"], changed["State"]) == ("third", "taken")
    assert changed["UpdatedAt"] >= one["UpdatedAt"] and changed["CreatedAt"] == one["CreatedAt"]
    assert shelf.delete("crumbs", one["CrumbID"]) == {
        "table": "crumbs",
        "id": one["CrumbID"],
        "name": "third",
    }
    assert shelf.fails("cupboard", "get", "crumbs", one["CrumbID"]) == (4, "entity_not_found")
    assert [row["CrumbID"] for row in shelf.list("crumbs")] == [two["CrumbID"]]


def test_the_same_on_every_table(shelf: Shelf) -> None:
    crumb = shelf.set("crumbs", Name="a")["CrumbID"]
    trail = shelf.set("trails", Name="t", State="active")["TrailID"]
    given: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "crumbs": ("CrumbID", {"Name": "b"}, {"Name": "c"}),
        "trails": ("TrailID", {"State": "draft"}, {"State": "active"}),
        "properties": ("PropertyID", {"Name": "size", "ValueType": "integer"}, {"Description": "How big."}),
        "stashes": ("StashID", {"Name": "s", "StashType": "context", "Value": 1}, {"Value": {"x": 2}}),
        "metadata": (
            "MetadataID",
            {"CrumbID": crumb, "TableName": "comments", "Content": "x"},
            {"Content": "y"},
        ),
        "links": ("LinkID", {"LinkType": "belongs_to", "FromID": crumb, "ToID": trail}, {}),
    }
    for table, (key, fields, change) in given.items():
        before = len(shelf.list(table))
        id = shelf.set(table, **fields)[key]
        assert UUID(id).version == (5 if table == "properties" else 7)
        assert fields.items() <= shelf.get(table, id).items()
        assert change.items() <= shelf.set(table, id, **change).items()
        assert len(shelf.list(table)) == before + 1
        shelf.delete(table, id)
        assert shelf.fails("cupboard", "get", table, id) == (4, "entity_not_found")
        assert len(shelf.list(table)) == before


def test_an_id_of_ones_own(shelf: Shelf) -> None:
    assert shelf.set("crumbs", "mine", Name="a")["CrumbID"] == "mine"
    assert shelf.set("crumbs", "mine", Name="b")["Name"] == "b"
    assert len(shelf.list("crumbs")) == 1
    assert shelf.fails("cupboard", "set", "trails", "mine", '{"State": "active"}') == (2, "invalid_id")
    shelf.set("crumbs", "task-10", Name="ten")
    assert shelf.set("crumbs", "task-1", Name="one")["CrumbID"] == "task-1", "not the other one"
    assert shelf.get("crumbs", "task-10")["Name"] == "ten"


@pytest.mark.parametrize("command", ["get", "delete"])
@pytest.mark.parametrize("table", ["crumbs", "trails", "links", "stashes", "metadata", "properties"])
def test_what_is_not_there(shelf: Shelf, command: str, table: str) -> None:
    assert shelf.fails("cupboard", command, table, "nonexistent-id-12345") == (4, "entity_not_found")
    assert "nonexistent-id-12345" in shelf("cupboard", command, table, "nonexistent-id-12345").err
    assert shelf.fails("cupboard", command, table, "") == (2, "invalid_id")


@pytest.mark.parametrize(
    "words", [["get", "odd", "x"], ["set", "odd", "", "{}"], ["list", "odd"], ["delete", "odd", "x"]]
)
def test_an_unknown_table(shelf: Shelf, words: list[str]) -> None:
    assert shelf.fails("cupboard", *words) == (4, "table_not_found")
    assert "use one of crumbs, trails" in shelf("cupboard", *words).err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["set", "crumbs", "", "{not json"], "input"),
        (["set", "crumbs", "", "[]"], "input"),
        (["set", "crumbs", "", '{"Naem": "x"}'], "invalid_data"),
        (["set", "crumbs", "", '{"Name": 5}'], "invalid_name"),
        (["set", "crumbs", "", '{"Name": "x", "Properties": {"odd": 1}}'], "property_not_found"),
        (["set", "crumbs", "", '{"Name": "x", "Properties": {"priority": "odd"}}'], "invalid_category"),
        (["set", "crumbs", "", '{"Name": "x", "Properties": {"owner": 5}}'], "type_mismatch"),
        (["set", "crumbs", "", '{"Name": "x", "DeferUntil": "soon"}'], "input"),
        (["set", "trails", "", '{"State": "odd"}'], "invalid_state"),
        (["set", "stashes", "", '{"Name": "x", "StashType": "odd"}'], "invalid_stash_type"),
        (["set", "properties", "", '{"Name": "owner", "ValueType": "text"}'], "duplicate_name"),
        (["set", "properties", "", '{"Name": "x", "ValueType": "odd"}'], "invalid_value_type"),
        (["set", "links", "", '{"LinkType": "odd", "FromID": "a", "ToID": "b"}'], "invalid_data"),
        (["set", "links", "", '{"LinkType": "child_of", "FromID": "a", "ToID": "b"}'], "entity_not_found"),
        (["list", "crumbs", "malformed-filter"], "invalid_filter"),
        (["list", "crumbs", "=x"], "invalid_filter"),
        (["list", "crumbs", "limit=many"], "invalid_filter"),
        (["list", "crumbs", "state=odd"], "invalid_state"),
        (["list", "crumbs", "state=[1]"], "invalid_state"),
        (["list", "crumbs", "priority=odd"], "invalid_filter"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_mistakes_write_nothing(shelf: Shelf, words: list[str], code: str) -> None:
    before = shelf.ask("data", "stats")["seq"]
    exit_code, told = shelf.fails("cupboard", *words)
    assert told == code and exit_code in (2, 4, 5)
    assert shelf.ask("data", "stats")["seq"] == before


def test_filters(shelf: Shelf) -> None:
    for name, state in (("Alpha", "draft"), ("Beta", "draft"), ("Gamma", "ready"), ("123", "taken")):
        shelf.set("crumbs", Name=name, State=state, Properties={"priority": "high"} if name == "Beta" else {})
    names = lambda *filters: [row["Name"] for row in shelf.list("crumbs", *filters)]  # noqa: E731
    assert names() == ["123", "Gamma", "Beta", "Alpha"]
    assert names("State=draft") == names("state=draft") == names("states=draft") == ["Beta", "Alpha"]
    assert names("Name=Alpha") == names("name=Alpha", "State=draft") == ["Alpha"]
    assert names("Name=123") == ["123"]
    assert names("State=ready", "Name=Alpha") == []
    assert names("limit=2", "offset=1") == ["Gamma", "Beta"]
    assert names("priority=high") == names('properties={"priority": "high"}') == ["Beta"]
    assert names("unknown=1") == names()
    assert [row["Name"] for row in shelf.list("properties", "Name=owner")] == ["owner"]
    assert (
        len(shelf.list("categories", f"property_id={shelf.list('properties', 'name=type')[0]['PropertyID']}"))
        == 7
    )
