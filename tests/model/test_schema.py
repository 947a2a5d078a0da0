"""Schemas: their declarations, the steps between versions, and the crystals they make."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.errors import DecodeFailed, InputError, NewerRecord, SchemaError, UpgradeFailed
from dgent.model.crystal import Crystal, CrystalMeta
from dgent.model.datum import Datum
from dgent.model.ref import Ref
from dgent.model.schema import Schema

NOON = datetime(2025, 1, 2, 12, tzinfo=UTC)
CAUSE: Ref[Any] = Ref("c")


@dataclass(frozen=True)
class MarkV1:
    action: str
    author: str


@dataclass(frozen=True)
class MarkV2:
    action: str
    author: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    name: str


@dataclass(frozen=True)
class Mark:
    action: str
    author: str
    tags: tuple[str, ...] = ()
    principles: tuple[str, ...] = ()
    cause: Ref[Mark] | None = None
    place: Place | None = None


def mark_schema(**changes: Any) -> Schema[Mark]:
    steps: dict[int, Callable[..., Any]] = {
        1: lambda d: {**d, "tags": ()},
        2: lambda d: {**d, "principles": (d["author"],)},
    }
    fields: dict[str, Any] = {"version": 3, "contract": Mark, "migrations": steps}
    return Schema("witness.mark", **fields | changes)


def stored(data: dict[str, Any], version: int, **fields: Any) -> Datum:
    return Datum.create(data, schema="witness.mark", schema_version=version, **fields).replace(rev=4, seq=9)


# Declarations


def test_a_schema_is_read_only() -> None:
    steps: dict[int, Any] = {1: lambda d: d}
    schema = Schema("a", 2, MarkV1, steps)
    steps.clear()
    assert schema.upgrade({}, 1) == {}
    with pytest.raises(FrozenInstanceError):
        schema.version = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        schema.migrations[7] = len  # type: ignore[index]
    assert schema.history == "all" and schema.feed and schema.owner is None and schema.indexes == ()


@pytest.mark.parametrize("name", ["", "a b", ".a", "a.", "a..b", "ä", "a/b", 5, None, "a\n", "x" * 257])
def test_a_name_is_plain(name: Any) -> None:
    with pytest.raises(SchemaError, match="name"):
        Schema(name, contract=MarkV1)


@pytest.mark.parametrize("name", ["a", "witness.mark", "A-b_c.9"])
def test_good_names(name: str) -> None:
    assert Schema(name, contract=MarkV1).name == name


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"version": 0}, "version must be"),
        ({"version": True}, "version must be"),
        ({"version": 2**31}, "version must be"),
        ({"version": "3"}, "version must be"),
        ({"oldest": 0}, "oldest must be"),
        ({"oldest": 4}, "oldest is 4, above version 3"),
        ({"contract": int}, "frozen dataclass"),
        ({"migrations": {}}, "no migration for 1 -> 2, 2 -> 3"),
        ({"migrations": {2: dict}}, "no migration for 1 -> 2 "),
        ({"migrations": {1: dict, 2: dict, 3: dict}}, r"\[3\] lie outside 1 to 2"),
        ({"migrations": {1: dict, 2: dict}, "oldest": 2}, r"\[1\] lie outside 2 to 2"),
        ({"migrations": {1: dict, 2: "no"}}, r"migrations\[2\] must be a function"),
        ({"migrations": {1: dict, "2": dict}}, r"migrations\['2'\] must be"),
        ({"migrations": [dict]}, "must map versions"),
        ({"downgrades": {1: dict}}, r"downgrades \[1\]"),
        ({"indexes": "action"}, "tuple of paths"),
        ({"indexes": ("nothing",)}, "does not start at a field of Mark.*action, author"),
        ({"indexes": ("action..x",)}, "index 'action..x'"),
        ({"indexes": (5,)}, "index 5"),
        ({"indexes": ("action", "action")}, "declared twice"),
        ({"history": 0}, "history must be"),
        ({"history": True}, "history must be"),
        ({"history": "some"}, "history must be"),
        ({"history": None}, "history must be"),
        ({"feed": 1}, "feed must be"),
        ({"owner": ""}, "owner must not be empty"),
        ({"owner": 5}, "owner must be text"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        mark_schema(**changes)


def test_a_gap_names_the_missing_steps() -> None:
    with pytest.raises(SchemaError) as caught:
        mark_schema(version=5, migrations={1: dict, 3: dict})
    assert caught.value.details["missing"] == [2, 4]


def test_good_declarations() -> None:
    schema = mark_schema(
        indexes=["author", "tags.0", ("place", "name")], history=3, feed=False, owner="cupboard"
    )
    assert schema.indexes == ("author", "tags.0", "place.name")
    assert schema.ref_paths == ("cause",)
    assert schema.digest == mark_schema().digest != Schema("witness.mark", contract=MarkV1).digest


# Steps


def test_old_data_is_upgraded_step_by_step() -> None:
    schema = mark_schema()
    assert schema.upgrade({"action": "a", "author": "b"}, 1) == {
        "action": "a",
        "author": "b",
        "tags": [],
        "principles": ["b"],
    }
    assert schema.upgrade({"author": "b", "tags": ["t"]}, 2)["tags"] == ["t"]
    assert schema.upgrade({"author": "b"}, 3) == {"author": "b"}


def test_what_a_step_returns_is_made_plain() -> None:
    step = {1: lambda d: {"at": NOON, "of": {3, 1}, "link": Ref("x")}}
    out = Schema("a", 2, MarkV1, step).upgrade({}, 1)
    assert out == {"at": "2025-01-02T12:00:00.000000Z", "of": [1, 3], "link": "x"}


def test_a_step_that_changes_its_argument_changes_nothing_else() -> None:
    shared = ["always"]

    def step(data: dict[str, Any]) -> dict[str, Any]:
        data["list"].append("more")
        data["shared"] = shared
        return data

    schema = Schema("a", 3, MarkV1, {1: step, 2: step})
    data = {"list": ["one"]}
    first = schema.upgrade(data, 1)
    first["shared"].append("mine")
    assert data == {"list": ["one"]} and shared == ["always"]
    assert schema.upgrade(data, 1) == {"list": ["one", "more", "more"], "shared": ["always"]}


@given(st.dictionaries(st.text(max_size=3), st.lists(st.integers(-5, 5), max_size=3), max_size=4))
def test_upgrading_twice_gives_the_same(extra: dict[str, Any]) -> None:
    data = extra | {"author": "b"}
    before = copy.deepcopy(data)
    schema = mark_schema()
    once = schema.upgrade(data, 1)
    assert schema.upgrade(data, 1) == once and data == before
    assert schema.upgrade(once, 3) == once


def fails(data: Any) -> Any:
    raise KeyError("author")


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (fails, "KeyError: 'author'"),
        (lambda d: None, "returned a NoneType"),
        (lambda d: [1], "returned a list"),
        (lambda d: {"x": float("inf")}, "cannot be stored: x is inf"),
        (lambda d: {1: 2}, "cannot be stored"),
        (lambda d: {"x": object()}, "cannot be stored"),
    ],
)
def test_a_failing_step_says_which_and_why(step: Any, told: str) -> None:
    schema = mark_schema(migrations={1: dict, 2: step})
    with pytest.raises(UpgradeFailed, match=r"witness\.mark 2 -> 3") as caught:
        schema.upgrade({"a": 1}, 1)
    details = caught.value.details
    assert (details["schema"], details["step"]) == ("witness.mark", "2 -> 3")
    assert told in details["reason"]


def test_stored_data_that_cannot_be_copied_is_a_failed_upgrade() -> None:
    with pytest.raises(UpgradeFailed, match="the stored data: n is an integer beyond 64 bits"):
        mark_schema().upgrade({"n": 2**70}, 1)


def test_records_older_than_the_oldest_are_not_read() -> None:
    schema = mark_schema(oldest=2, migrations={2: lambda d: {**d, "principles": []}})
    assert [v for v in range(-1, 6) if schema.can_read(v)] == [2, 3]
    with pytest.raises(UpgradeFailed, match="reads versions from 2") as caught:
        schema.shape_of({}, 1)
    assert caught.value.details["step"] == "1 -> 2"


def test_newer_data_needs_every_step_back() -> None:
    plain, schema = mark_schema(), mark_schema(downgrades={4: lambda d: {**d, "author": d["who"]}})
    assert not plain.can_read(4) and schema.can_read(4) and not schema.can_read(5)
    assert not schema.can_read(2**31 - 1)
    assert schema.upgrade({"who": "w"}, 4) == schema.shape_of({"who": "w"}, 4) == {"who": "w", "author": "w"}
    for refused, version in ((plain, 4), (schema, 5), (mark_schema(downgrades={5: dict}), 5)):
        with pytest.raises(NewerRecord) as caught:
            refused.shape_of({"who": "w"}, version)
        assert (caught.value.details["stored"], caught.value.details["version"]) == (version, 3)
    with pytest.raises(UpgradeFailed, match="4 -> 3"):
        schema.shape_of({}, 4)


# Derived steps


@dataclass(frozen=True)
class MarkV2Late:
    author: str
    action: str
    made: list[str] = field(default_factory=lambda: ["fresh"])
    at: datetime = NOON
    cause: Ref[Mark] | None = CAUSE


def test_a_derived_step_adds_what_has_a_default() -> None:
    step = Schema.derive_step(MarkV1, MarkV2Late)
    data = {"action": "a", "author": "b", "future": 1}
    first, second = step(data), step(data)
    assert first == data | {"made": ["fresh"], "at": "2025-01-02T12:00:00.000000Z", "cause": "c"}
    assert first["made"] is not second["made"] and "made" not in data
    assert step({"made": ["mine"]})["made"] == ["mine"]
    schema = Schema("m", 2, MarkV2Late, {1: step})
    assert schema.decode(schema.upgrade(data, 1)) == MarkV2Late("b", "a")


def test_a_derived_default_is_made_for_each_record() -> None:
    count = iter(range(9))

    @dataclass(frozen=True)
    class Counted:
        action: str
        author: str
        number: int = field(default_factory=lambda: next(count))

    step = Schema.derive_step(MarkV1, Counted)
    assert step({})["number"] + 1 == step({})["number"]


@dataclass(frozen=True)
class Renamed:
    deed: str
    author: str


@dataclass(frozen=True)
class Retyped:
    action: int
    author: str


@dataclass(frozen=True)
class Demanding:
    action: str
    author: str
    more: int


@dataclass(frozen=True)
class Endless:
    action: str
    author: str
    much: float = float("inf")


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (Renamed, "drops or renames action"),
        (Retyped, "changes the type of action"),
        (Demanding, "adds more without a default"),
        (Endless, "a default cannot be stored"),
        (int, "frozen dataclass"),
    ],
)
def test_a_step_that_cannot_be_derived_is_refused(new: type[Any], told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        Schema.derive_step(MarkV1, new)


# Crystals


def test_a_crystal_of_the_same_version() -> None:
    datum = stored(
        {"action": "a", "author": "b"}, 3, tags=frozenset("t"), author="me", source="s", parent_id="p"
    )
    crystal = Crystal.from_datum(datum, mark_schema())
    assert crystal.value == Mark("a", "b") and crystal.datum is datum
    assert crystal.meta == CrystalMeta("witness.mark", 3, datum.created_at, None, 3)
    assert (crystal.id, crystal.rev, crystal.seq, crystal.tags) == (datum.id, 4, 9, frozenset("t"))
    assert (crystal.author, crystal.source, crystal.parent_id) == ("me", "s", "p")
    assert crystal.created_at == datum.created_at and not crystal.was_upgraded


def test_an_upgraded_crystal_says_so_and_its_datum_stays_as_stored() -> None:
    datum = stored({"action": "a", "author": "b", "future": 1}, 1)
    before = copy.deepcopy(datum)
    crystal = Crystal.from_datum(datum, mark_schema())
    assert crystal.value == Mark("a", "b", (), ("b",))
    assert crystal.was_upgraded and crystal.meta.crystallized_from == datum.id
    assert (crystal.meta.stored_version, crystal.meta.schema_version) == (1, 3)
    assert crystal.datum is datum and datum == before


def test_a_raw_datum_is_read_as_the_current_version() -> None:
    crystal = Crystal.from_datum(Datum.create({"action": "a", "author": "b", "x": 1}), mark_schema())
    assert crystal.meta.stored_version == 3 and not crystal.was_upgraded
    draft = crystal.draft(mark_schema())
    assert (draft.schema, draft.schema_version, draft.data["x"]) == ("witness.mark", 3, 1)


@pytest.mark.parametrize(
    ("data", "version", "error"),
    [
        ({"action": 5, "author": "b"}, 3, DecodeFailed),
        ({"action": 5, "author": "b"}, 1, DecodeFailed),
        ({"action": "a"}, 1, UpgradeFailed),
        ({"action": "a", "author": "b"}, 4, NewerRecord),
    ],
)
def test_what_cannot_crystallize_names_its_record(
    data: dict[str, Any], version: int, error: type[Any]
) -> None:
    datum = stored(data, version)
    with pytest.raises(error) as caught:
        Crystal.from_datum(datum, mark_schema())
    assert caught.value.details["id"] == datum.id


def test_a_record_of_another_schema_is_refused() -> None:
    with pytest.raises(InputError, match=r"is a witness\.mark, not a other"):
        Crystal.from_datum(stored({"action": "a", "author": "b"}, 1), Schema("other", contract=MarkV1))


def test_changing_a_crystal_keeps_what_the_contract_does_not_know() -> None:
    schema = mark_schema()
    data = {"action": "a", "author": "b", "new": {"deep": 1}, "place": {"name": "x", "zip": 5}}
    for version in (1, 3):
        crystal = Crystal.from_datum(stored(data, version, tags=frozenset("t")), schema)
        changed = crystal.replace(value=Mark("z", "b", place=Place("y")), author="me", tags={"u"})
        draft = changed.with_tags("v").draft(schema)
        assert draft.data == {
            "action": "z", "author": "b", "tags": [], "principles": [], "cause": None,
            "place": {"name": "y", "zip": 5}, "new": {"deep": 1},
        }  # fmt: skip
        assert (draft.id, draft.rev, draft.schema, draft.schema_version) == (crystal.id, 4, "witness.mark", 3)
        assert (draft.author, draft.tags) == ("me", frozenset("uv"))
        assert crystal.datum.data == data and crystal.tags == frozenset("t")
        assert Crystal.from_datum(draft, schema) == changed != crystal


def test_writing_back_an_unchanged_crystal_changes_nothing() -> None:
    schema = mark_schema()
    datum = stored(schema.encode(Mark("a", "b", cause=Ref("c"))) | {"future": 1}, 3)
    assert Crystal.from_datum(datum, schema).draft(schema) == datum


def test_a_newer_record_is_read_through_downgrades_but_never_rewritten() -> None:
    schema = mark_schema(downgrades={4: lambda d: {**d, "author": d["who"]}})
    crystal = Crystal.from_datum(stored({"action": "a", "who": "w"}, 4), schema)
    assert crystal.value == Mark("a", "w") and crystal.datum.data == {"action": "a", "who": "w"}
    assert crystal.meta.stored_version == 4 and crystal.meta.crystallized_from is None
    assert not crystal.was_upgraded
    with pytest.raises(NewerRecord, match=r"stored as witness\.mark version 4") as caught:
        crystal.replace(value=Mark("z", "w")).draft(schema)
    assert caught.value.details["id"] == crystal.id


def test_a_wrong_value_is_refused_when_drafted() -> None:
    crystal = Crystal.from_datum(stored({"action": "a", "author": "b"}, 3), mark_schema())
    with pytest.raises(InputError) as caught:
        crystal.replace(value=Mark(1, "b", place=Place(2))).draft(mark_schema())  # type: ignore[arg-type]
    assert caught.value.details["fields"].keys() == {"action", "place.name"}


def test_a_new_crystal_has_nothing_to_carry() -> None:
    schema = mark_schema()
    draft = Crystal(Datum(id="n"), Mark("a", "b"), schema.name, schema.version).draft(schema)
    assert draft.data == schema.encode(Mark("a", "b")) and draft.schema_version == 3


def test_only_some_fields_of_a_crystal_can_be_replaced() -> None:
    crystal = Crystal.from_datum(stored({"action": "a", "author": "b"}, 3), mark_schema())
    with pytest.raises(InputError, match=r"no changeable id, rev.*value, author"):
        crystal.replace(rev=1, id="x")
    with pytest.raises(InputError, match="tags"):
        crystal.replace(tags="abc")
    with pytest.raises(AttributeError):
        crystal.value = Mark("x", "y")  # type: ignore[misc]


def test_crystals_are_equal_by_id_rev_and_value() -> None:
    datum = stored({"action": "a", "author": "b"}, 3)
    crystal = Crystal.from_datum(datum, mark_schema())
    assert crystal == Crystal.from_datum(datum.replace(tags=frozenset("t")), mark_schema())
    assert hash(crystal) == hash(crystal.with_tags("t"))
    assert crystal != Crystal.from_datum(datum.replace(rev=5), mark_schema())
    assert crystal != crystal.replace(value=Mark("x", "y")) and crystal != "crystal"
    assert Ref(crystal) == Ref(datum) == Ref(datum.id)


def test_data_are_parsed_and_upgraded() -> None:
    schema = Schema("parsed", contract=Parsed, version=2, migrations={1: lambda data: {**data, "n": 0}})
    assert schema.parse({"text": "a", "n": 3}) == Parsed("a", 3)
    assert schema.parse({"text": "a"}, 1) == Parsed("a", 0)
    with pytest.raises(InputError, match="takes the data first"):
        schema.upgrade(1, {"text": "a"})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Parsed:
    text: str
    n: int
