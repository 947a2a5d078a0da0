"""Schemas without a contract, and dicts without a schema: named, versioned and found like typed values."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

import dgent
from dgent.errors import NotFound, SchemaConflict, SchemaError, UnreadableRecord
from dgent.model.lens import key
from tests.universe.conftest import Another

NOTE: dgent.Schema[dict[str, Any]] = dgent.Schema("note", indexes=("status", "deep.rank", "names.*"))


@dataclass(frozen=True)
class Note:
    status: str


@pytest.fixture(autouse=True)
def _registered(u: dgent.Universe) -> None:
    u.register(NOTE)


async def test_round_trip(u: dgent.Universe) -> None:
    given = {
        "status": "open",
        "deep": {"rank": 1, "at": datetime(2026, 1, 2, tzinfo=UTC)},
        "names": ("a", "b"),
    }
    kept = await u.remember(given, schema="note", tags={"t"})
    assert (kept.schema_name, kept.schema_version, kept.tags) == ("note", 1, {"t"})
    assert kept.value == {
        "status": "open",
        "deep": {"rank": 1, "at": "2026-01-02T00:00:00.000000Z"},
        "names": ["a", "b"],
    }
    assert await u.get(kept.id) == kept
    assert await u.recall(schema="note") == [kept] == await u.collection("note").query()
    assert await u.store(kept) == kept, "the same value has the same bytes"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"where": {"status": "open"}}, [0, 2]),
        ({"where": {"deep.rank": {"$gte": 1}}}, [1, 2]),
        ({"where": {"names": {"$contains": "n2"}}}, [2]),
        ({"where": {"nowhere.0.at": {"$exists": False}}}, [0, 1, 2]),
        ({"where": {"status": {"a": 1}}}, []),
        ({"order_by": "deep.rank", "descending": True}, [2, 1, 0]),
        ({"order_by": "nowhere"}, [0, 1, 2]),
    ],
    ids=str,
)
async def test_found_by(u: dgent.Universe, filters: dict[str, Any], found: list[int]) -> None:
    for n in range(3):
        value = {"status": ("open", "done")[n % 2], "deep": {"rank": n}, "names": [f"n{n}"]}
        await u.remember(value, schema="note")
    got = await u.collection("note").query(**{"descending": False, **filters})
    assert [each.value["deep"]["rank"] for each in got] == found
    assert await u.count(schema="note", **filters) == len(found)


async def test_owners_of_a_value_cannot_change_the_datum(u: dgent.Universe) -> None:
    given = {"list": [1], "map": {"a": 1}}
    kept = await u.remember(given, schema="note")
    given["list"].append(2)
    kept.value["list"].append(3)
    kept.value["new"] = 1
    for read in (await u.get(kept.id), (await u.recall(schema="note"))[0]):
        assert read.value == {"list": [1], "map": {"a": 1}} == read.datum.data == kept.datum.data
        read.value["map"]["a"] = 2
        assert read.datum.data["map"] == {"a": 1}
    stored = await u.store(kept)
    assert (await u.get(kept.id)).value == {"list": [1, 3], "map": {"a": 1}, "new": 1} == stored.value


async def test_what_is_left_out_of_a_new_value_is_gone(u: dgent.Universe) -> None:
    kept = await u.remember({"a": 1, "b": {"c": 2, "d": 3}}, schema="note")
    changed = await u.store(kept.replace(value={"b": {"c": 2}}), expect=kept.rev)
    assert changed.datum.data == {"b": {"c": 2}} == (await u.get(kept.id)).value
    focused = await u.focus(kept.id, key("b") >> key("c")).set(5)
    assert focused.value == {"b": {"c": 5}}


async def test_versions_are_steps_between_dicts(u: dgent.Universe, another: Another) -> None:
    old = await u.remember({"state": "open"}, schema="note")
    steps = {1: lambda data: {"status": data["state"]}}
    newer = await another(dgent.Schema("note", 2, migrations=steps, indexes=("status",)))
    read = await newer.get(old.id)
    assert read.value == {"status": "open"} and read.was_upgraded and read.datum.data == {"state": "open"}
    assert await newer.recall(schema="note", where={"status": "open"}) == [read]
    assert (await newer.store(read)).datum.data == {"status": "open"}
    ahead = await u.get(old.id)
    assert isinstance(ahead, dgent.Datum) and "newer" not in ahead.data and ahead.problem is not None
    typed = await another(dgent.Schema("note", 3, Note, {1: steps[1], 2: dict}, indexes=("status",)))
    assert (await typed.get(old.id)).value == Note("open")


async def test_a_step_that_fails_names_the_record(u: dgent.Universe, another: Another) -> None:
    old = await u.remember({"state": "open"}, schema="note")
    newer = await another(dgent.Schema("note", 2, migrations={1: lambda data: {"status": data["gone"]}}))
    with pytest.raises(dgent.Unreadable, match="KeyError"):
        await newer.get(old.id)
    with pytest.warns(UnreadableRecord):
        assert (await newer.recall(schema="note")).problems[0].id == old.id


async def test_with_and_without_a_contract_under_one_version(u: dgent.Universe, another: Another) -> None:
    with pytest.raises(SchemaError, match="another contract"):
        u.register(dgent.Schema("note", contract=Note))
    await u.remember({}, schema="note")
    other = await another(dgent.Schema("note", contract=Note))
    with pytest.warns(SchemaConflict, match="note version 1"):
        await other.count(schema="note")


@pytest.mark.parametrize("value", [Note("open"), ["a"], "text", None, 5], ids=repr)
async def test_other_values_are_refused(u: dgent.Universe, value: Any) -> None:
    with pytest.raises(dgent.InputError, match=f"expected a dict, got a {type(value).__name__}"):
        await u.remember(value, schema="note")


@pytest.mark.parametrize(
    "value",
    [{1: 2}, {"a": float("nan")}, {"a": {"b": object()}}, {"\ud800": 1}, {"a": 2**64}],
    ids=["key", "nan", "object", "surrogate", "large"],
)
@pytest.mark.parametrize("schema", [None, "note"])
async def test_what_cannot_be_stored_is_refused(u: dgent.Universe, value: Any, schema: str | None) -> None:
    with pytest.raises(dgent.InputError):
        await u.remember(value, schema=schema)
    assert await u.count() == 0


@pytest.mark.parametrize(
    "field", ["", "é.\x00$", "$eq", "__class__", "self", "a.b", "schema", "value", "data", "*", "0"]
)
async def test_fields_of_any_name(u: dgent.Universe, field: str) -> None:
    kept = await u.remember({field: {field: 1}}, schema="note")
    assert (await u.get(kept.id)).value == {field: {field: 1}}
    assert (await u.get((await u.remember({field: 1})).id)).data == {field: 1}


async def test_a_dict_without_a_schema_is_a_plain_datum(u: dgent.Universe) -> None:
    given = {"a": 1, "list": [1]}
    kept = await u.remember(given, tags={"t"}, source="s", content=b"x", note="why")
    given["list"].append(2)
    assert isinstance(kept, dgent.Datum)
    assert (kept.data, kept.schema, kept.schema_version) == ({"a": 1, "list": [1]}, None, None)
    assert (kept.tags, kept.source, kept.content, kept.author, kept.rev) == ({"t"}, "s", b"x", "scout", 1)
    assert await u.get(kept.id) == kept == (await u.query(where={"a": 1}))[0]
    assert await u.recall() == [], "recall gives values of registered schemas"
    again = await u.remember({"a": 2}, key="once")
    assert (await u.remember({"a": 2}, key="once")).id == again.id
    with pytest.raises(dgent.VersionConflict):
        await u.remember({"a": 3}, id=kept.id, expect=0)
    async with u.transaction() as tx:
        inside = await tx.remember(OrderedDict(b=1))
        assert await tx.get(inside.id) == inside
    assert (await u.get(inside.id)).data == {"b": 1}


async def test_an_unknown_name_says_what_to_do(u: dgent.Universe) -> None:
    with pytest.raises(NotFound, match="no schema 'nots' is registered") as told:
        await u.remember({"a": 1}, schema="nots")
    assert "register" in told.value.hint
    with pytest.raises(NotFound):
        u.collection("nots")


async def test_any_number_of_schemas_without_a_contract(u: dgent.Universe) -> None:
    u.register(dgent.Schema("a"), dgent.Schema("b", history="none", feed=False), dgent.Schema("a"))
    assert (await u.remember({}, schema="b")).schema_name == "b"
    assert (await u.remember({}, schema=NOTE)).schema_name == "note"
    with pytest.raises(SchemaError, match="index"):
        dgent.Schema("c", indexes=("a..b",))
