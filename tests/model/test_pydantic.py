"""Pydantic models as contracts: stored by their fields, validated by pydantic."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    PositiveInt,
    PrivateAttr,
    RootModel,
    SecretStr,
    computed_field,
    create_model,
    field_serializer,
    field_validator,
    model_validator,
)

from dgent import codec
from dgent.errors import DecodeFailed, InputError, SchemaError
from dgent.model.contract.compile import CompiledContract
from dgent.model.contract.scalar import KINDS
from dgent.model.lens import field
from dgent.model.ref import Ref
from dgent.model.schema import Schema
from tests.soak import examples

T = TypeVar("T")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)

NOON_TEXT = "2026-01-02T12:00:00Z"


class Mood(Enum):
    GLAD = "glad"
    SAD = "sad"


class Point(BaseModel):
    x: int = 1
    y: int = 0


class Corner(msgspec.Struct, frozen=True):
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Spot:
    point: Point
    name: str = ""


@dataclass
class Soft:
    x: int


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    url: HttpUrl | None = None


class Thing(BaseModel):
    """All that dgent knows, and some of what only pydantic does."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    limit: ClassVar[int] = 3

    text: str
    at: datetime
    whole: PositiveInt = 5
    real: float = 0.5
    yes: bool = True
    raw: bytes = b"\x00\xff"
    money: Decimal = Decimal("1.10")
    span: timedelta = timedelta(days=1, seconds=2)
    day: date = date(2026, 1, 2)
    clock: time = time(1, 2, 3)
    mood: Mood = Mood.GLAD
    uuid: UUID = UUID(int=7)
    names: set[str] = set()
    groups: dict[str, set[int]] = {}
    pair: tuple[int, str] = (1, "a")
    point: Point = Point()
    points: list[Point] = []
    spot: Spot | None = None
    corner: Corner = Corner()
    soft: Soft = Soft(1)
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat()
    either: Point | Cat | None = None
    inner: Thing | None = None
    link: Ref[Thing] | None = None
    links: list[Ref[Any]] = []
    url: HttpUrl | None = None
    urls: set[HttpUrl] = set()
    path: Path = Path("/x")
    address: IPv4Address | None = None
    numbers: dict[int, datetime] = {}
    aware: AwareDatetime | None = None
    anything: Any = None


def thing(**changes: Any) -> Thing:
    values: dict[str, Any] = {
        "text": "ü", "at": NOON.astimezone(timezone(timedelta(hours=5))), "names": {"b", "a", "z"},
        "groups": {"k.l": {3, 1}}, "points": [Point(x=2)], "spot": Spot(Point(x=3), "s"),
        "corner": Corner(frozenset("cab")), "soft": Soft(2), "pet": Dog(url="http://a.b/"),
        "either": Cat(lives=1), "inner": Thing(text="in", at=NOON), "link": "one",
        "links": [Ref("two"), "three"], "url": "https://example.org/x?y=1",
        "urls": {"http://c.d/", "http://a.b/"}, "path": "/tmp/a",
        "address": "10.0.0.1", "numbers": {7: NOON}, "aware": NOON, "anything": {"a": [1]},
    }  # fmt: skip
    return Thing(**values | changes)


def compiled(contract: Any) -> CompiledContract[Any]:
    return CompiledContract(contract)


# Round trips


def test_round_trip() -> None:
    value, contract = thing(), compiled(Thing)
    data, again = contract.settle(value)
    assert again == value and again is not value
    assert codec.plain(data) == data
    assert contract.decode(data) == value == contract.decode_json(codec.encode(data))
    assert contract.encode(again) == data and contract.knows_all(data)


def test_data_is_as_that_of_a_dataclass_where_dgent_knows_the_type() -> None:
    data = compiled(Thing).encode(thing())
    assert data["at"] == data["aware"] == "2026-01-02T12:00:00.000000Z"
    assert (data["raw"], data["money"], data["mood"]) == ("AP8=", "1.10", "glad")
    assert (data["names"], data["groups"]) == (["a", "b", "z"], {"k.l": [1, 3]})
    assert data["urls"] == ["http://a.b/", "http://c.d/"]
    assert data["numbers"] == {"7": "2026-01-02T12:00:00Z"}
    assert data["corner"] == {"names": ["a", "b", "c"]}
    assert compiled(Thing).refs(data) == [("link", "one"), ("links.0", "two"), ("links.1", "three")]
    assert set(compiled(Thing).ref_paths) == {"link", "links"}


def test_queries_know_the_fields_that_dgent_knows() -> None:
    lookup = compiled(Thing).lookup
    assert lookup.kind(("money",)) == KINDS[Decimal] and lookup.kind(("span",)) == KINDS[timedelta]
    seen = lookup.see({"text": "a", "at": "b", "pet": {"kind": "dog"}})
    assert (seen["money"], seen["whole"], seen["point"]) == (Decimal("1.10"), 5, {"x": 1, "y": 0})
    assert seen["pet"]["url"] is None
    assert Schema("thing", contract=Thing, indexes=("points.*.x", "url", "numbers.7", "point.y")).indexes
    with pytest.raises(SchemaError, match="its fields are text"):
        Schema("thing", contract=Thing, indexes=("nowhere",))


@pytest.mark.parametrize("contract", [Spot, Thing, msgspec.defstruct("S", [("thing", Thing)], frozen=True)])
def test_models_inside_others_are_copies(contract: Any) -> None:
    value = {Spot: Spot(Point(x=4)), Thing: thing()}.get(contract) or contract(thing())
    data, again = compiled(contract).settle(value)
    assert again == value
    inside = again.point if contract is Spot else again.points[0] if contract is Thing else again.thing.point
    inside.x = 99
    assert compiled(contract).decode(data) == value


class Flat(BaseModel):
    """A model that msgspec reads from JSON, with dicts for the models in it."""

    text: str
    at: datetime
    n: Annotated[int, Field(ge=0)] = 1
    real: float = 0.5
    raw: bytes = b""
    money: Decimal | None = None
    mood: Mood = Mood.GLAD
    names: set[str] = set()
    pair: tuple[int, str] = (1, "a")
    more: tuple[int, ...] = ()
    link: Ref[Any] | None = None
    point: Point = Point()
    points: dict[str, list[Point]] = {}
    url: HttpUrl | None = None
    anything: Any = None

    @field_validator("at", "point", "names", mode="before")
    @classmethod
    def _typed(cls, given: Any) -> Any:
        assert not isinstance(given, str | list), "dgent has read it already"
        return given


PARTS: dict[str, list[Any]] = {
    "at": [NOON_TEXT, "2026-01-02T12:00:00+05:00", "2026-01-02T12:00:00", 5, "1"],
    "text": ["a", 5], "n": [1, -1, "1", 1.0, None], "real": [1, 0.5, "a"], "raw": ["AP8=", "?", 1],
    "money": ["1.10", 1, "x", None],
    "mood": ["sad", "mad"], "names": [["a", "b"], ["a", 1], "a"], "pair": [[1, "a"], [1], ["a", 1]],
    "more": [[1, 2], ["a"]], "link": ["one", "", None], "point": [{"x": 2, "z": 1}, {"x": "a"}, None, 5],
    "points": [{"k": [{"x": 2}, {}]}, {"k": {}}, {"k": [1]}], "url": ["http://a.b/", "no", 5],
    "anything": [{"a": [1]}, None], "unknown": [1],
}  # fmt: skip


@settings(max_examples=examples(200))
@given(
    st.fixed_dictionaries({}, optional={name: st.sampled_from(found) for name, found in PARTS.items()}),
    st.booleans(),
)
def test_json_is_read_as_data_is(data: dict[str, Any], mostly_right: bool) -> None:
    if mostly_right:
        wrong = next(iter(data), "")
        data = (
            {"text": "a", "at": NOON_TEXT}
            | {name: PARTS[name][0] for name in data}
            | {wrong: data.get(wrong)}
        )
    contract = compiled(Flat)
    assert contract.quick is not None
    try:
        value = contract.decode(data)
    except DecodeFailed as error:
        with pytest.raises(DecodeFailed) as told:
            contract.decode_json(codec.encode(data))
        assert told.value.details["fields"] == error.details["fields"]
        with pytest.raises(Exception):  # noqa: B017
            contract.quick(codec.encode(data))
    else:
        assert contract.decode_json(codec.encode(data)) == value
        assert contract.quick(codec.encode(data)) == value
        again = contract.encode(value)
        assert contract.decode(again) == value and contract.encode(contract.decode(again)) == again


# Wrong values and data


def test_every_wrong_field_is_named() -> None:
    wrong = {
        "at": "2026-01-02T12:00:00", "whole": -1, "money": "x", "points": [{"x": "a"}, 5], "url": "nowhere",
        "spot": {"point": {"y": None}}, "pet": {"kind": "cow"}, "address": 1.5,
    }  # fmt: skip
    with pytest.raises(DecodeFailed) as told:
        compiled(Thing).decode(wrong)
    places = set(told.value.details["fields"])
    assert {"at", "money", "points.0.x", "points.1", "spot.point.y", "pet.kind"} <= places
    assert {"text", "whole", "url", "address"} <= {place.split(".")[0] for place in places}
    assert told.value.details["fields"]["text"] == "is missing"


def test_a_value_made_without_validation_is_refused() -> None:
    value = thing()
    value.points[0].x = "a"  # type: ignore[assignment]
    value.whole = -1
    value.at = datetime(2026, 1, 2)
    with pytest.raises(InputError) as told:
        compiled(Thing).settle(value)
    assert set(told.value.details["fields"]) == {"points.0.x", "whole", "at"}
    with pytest.raises(InputError, match="text: is missing; at: is missing"):
        compiled(Thing).settle(Thing.model_construct())
    with pytest.raises(InputError, match="real is nan"):
        compiled(Thing).settle(thing(real=float("nan")))
    with pytest.raises(InputError, match="anything"):
        compiled(Thing).settle(thing(anything=object()))


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Picky(BaseModel):
    raises: ClassVar[Exception | None] = None
    n: int = 0

    @field_validator("n")
    @classmethod
    def check(cls, n: int) -> int:
        if cls.raises is not None:
            raise cls.raises
        return n


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("too odd"), "n: .*too odd"),
        (AssertionError(), "n: "),
        (KeyError("key"), "'key'"),
        (Odd(), "Odd"),
        (RecursionError(), "RecursionError"),
        (TypeError("type"), "type"),
        (StopIteration(), "StopIteration"),
    ],
    ids=repr,
)
def test_whatever_a_validator_raises(monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    monkeypatch.setattr(Picky, "raises", error)
    with pytest.raises(DecodeFailed, match=told):
        compiled(Picky).decode({"n": 1})
    with pytest.raises(InputError, match=told):
        compiled(Picky).settle(Picky.model_construct(n=1))


def test_a_validator_of_the_whole_model() -> None:
    class Span(BaseModel):
        low: int
        high: int

        @model_validator(mode="before")
        @classmethod
        def _raises_without(cls, data: Any) -> Any:
            return {"low": data["low"], "high": data["high"]}

        @model_validator(mode="after")
        def _ordered(self) -> Span:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    with pytest.raises(DecodeFailed, match="low is above high"):
        compiled(Span).decode({"low": 2, "high": 1})
    with pytest.raises(DecodeFailed) as told:
        compiled(Span).decode({"low": "a", "high": 1})
    assert set(told.value.details["fields"]) == {"low"}


def test_what_pydantic_masks_is_refused_unless_it_is_told_how_to_store_it() -> None:
    class Account(BaseModel):
        name: str
        password: SecretStr

    class Shown(Account):
        @field_serializer("password", when_used="json")
        def show(self, password: SecretStr) -> str:
            return password.get_secret_value()

    class Accounts(BaseModel):
        all: dict[str, list[Account]]

    with pytest.raises(InputError, match="password: is another value"):
        compiled(Account).settle(Account(name="a", password="secret"))
    with pytest.raises(InputError, match=r"all\.k\.0\.password: is another value"):
        compiled(Accounts).settle(Accounts(all={"k": [Account(name="a", password="secret")]}))
    data, again = compiled(Shown).settle(Shown(name="a", password="secret"))
    assert data == {"name": "a", "password": "secret"} and again.password.get_secret_value() == "secret"


def test_what_json_cannot_tell_apart_is_refused() -> None:
    class Mixed(BaseModel):
        when: datetime | str

    assert compiled(Mixed).settle(Mixed(when="noon"))[0] == {"when": "noon"}
    with pytest.raises(InputError, match="when: is another value"):
        compiled(Mixed).settle(Mixed(when=NOON))


# What models may be


def test_aliases_are_for_others() -> None:
    class Inner(BaseModel):
        model_config = ConfigDict(serialize_by_alias=True)
        value: int = Field(alias="v")

    class Aliased(BaseModel):
        model_config = ConfigDict(alias_generator=str.upper)
        some_name: int = Field(alias="someName")
        other: str = Field("o", validation_alias=AliasChoices("p", "q"))
        inner: Inner = Field(alias="i")
        foreign: dict[int, Inner] = {}

    value = Aliased.model_validate({"someName": 1, "p": "z", "i": {"v": 2}, "FOREIGN": {1: {"v": 3}}})
    data, again = compiled(Aliased).settle(value)
    assert data == {"some_name": 1, "other": "z", "inner": {"value": 2}, "foreign": {"1": {"value": 3}}}
    assert again == value
    with pytest.raises(DecodeFailed) as told:
        compiled(Aliased).decode({"inner": {}, "other": 5})
    assert set(told.value.details["fields"]) == {"some_name", "other", "inner.value"}


def test_only_fields_are_stored() -> None:
    class Partly(BaseModel):
        a: int
        hidden: int = Field(3, exclude=True)
        _private: int = PrivateAttr(4)

        @computed_field  # type: ignore[prop-decorator]
        @property
        def double(self) -> int:
            return 2 * self.a

        @field_serializer("a")
        def show(self, a: int) -> str:
            return f"a{a}"

    value = Partly(a=1, hidden=5)
    value._private = 6
    data, again = compiled(Partly).settle(value)
    assert data == {"a": 1} and (again.hidden, again._private, again.double) == (3, 4, 2)
    assert set(compiled(Partly).fields) == {"a"}


@pytest.mark.parametrize("extra", ["ignore", "forbid"])
def test_unknown_fields_are_carried(extra: Any) -> None:
    class Model(BaseModel):
        model_config = ConfigDict(extra=extra)
        a: int = 1
        points: list[Point] = []

    old = {"a": 1, "points": [{"x": 1, "y": 0, "z": 5}], "more": 2}
    contract = compiled(Model)
    assert contract.decode(old) == Model(points=[Point()]) and not contract.knows_all(old)
    assert contract.carry(old, contract.encode(Model(a=2, points=[Point()]))) == {**old, "a": 2}


def test_a_model_with_extra_fields_knows_them_all() -> None:
    class Loose(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int
        point: Point = Point()

    contract = compiled(Loose)
    data, again = contract.settle(Loose(a=1, b={"c": [1]}))
    assert data == {"a": 1, "point": {"x": 1, "y": 0}, "b": {"c": [1]}} and again.b == {"c": [1]}
    again.b["c"].append(2)
    assert contract.decode(data).b == {"c": [1]}
    assert contract.knows_all(data) and not contract.knows_all({"point": {"z": 1}})
    assert contract.carry({"a": 1, "b": 2, "point": {"z": 1}}, {"a": 2, "point": {}}) == {
        "a": 2,
        "point": {"z": 1},
    }
    assert Schema("loose", contract=Loose, indexes=("b.c",)).indexes == ("b.c",)
    assert contract.digest != compiled(create_model("Loose", a=(int, ...), point=(Point, Point()))).digest


def test_strict_and_frozen_models() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(
            strict=True, frozen=True, revalidate_instances="always", use_enum_values=True
        )
        at: datetime
        names: set[str]
        pair: tuple[int, ...]
        path: Path
        mood: Mood
        number: Decimal = Decimal(1)
        points: list[Point] = []

    value = Strict(at=NOON, names={"a"}, pair=(1,), path=Path("/a"), mood=Mood.SAD, points=[Point()])
    assert compiled(Strict).settle(value)[1] == value


def test_generic_models() -> None:
    class Box(BaseModel, Generic[T]):
        item: T

    assert compiled(Box[int]).settle(Box[int](item=1))[1] == Box[int](item=1)
    assert compiled(Box).settle(Box(item={"a": 1}))[1] == Box(item={"a": 1})
    assert compiled(Box[Point]).settle(Box[Point](item=Point()))[0] == {"item": {"x": 1, "y": 0}}
    with pytest.raises(InputError, match=r"expected a Box\[int\], got a Box"):
        compiled(Box[int]).settle(Box(item=1))


def test_defaults() -> None:
    class Mutable(BaseModel):
        a: int = 1
        items: list[Any] = [[1]]
        made: dict[str, int] = Field(default_factory=dict)
        after: int = Field(default_factory=lambda data: data["a"] + 1)

    contract = compiled(Mutable)
    value = contract.decode({"a": 4})
    assert value.after == 5
    value.items[0].append(2)
    value.made["b"] = 1
    assert contract.decode({"a": 1}) == Mutable()
    assert contract.lookup.see({}) == {"a": 1, "items": [[1]], "made": {}}
    with pytest.raises(SchemaError, match="a default cannot be stored"):
        Schema.derive_step(create_model("Old", a=(int, 1)), Mutable)
    assert Schema.derive_step(create_model("Old", x=(int, 1)), Point)({"x": 2}) == {"x": 2, "y": 0}


def test_names_of_any_kind() -> None:
    names = ["é", "a b", "x.y", "$eq", "self", "cls", "values", "data", "by_name", "strict", "root", "id"]
    odd = create_model("Odd", **{name: (int, place) for place, name in enumerate(names)})  # type: ignore[call-overload]
    data, again = compiled(odd).settle(odd())
    assert data == {name: place for place, name in enumerate(names)} and again == odd()


def test_a_thousand_fields() -> None:
    wide = create_model("Wide", **{f"f{n}": (int, ...) for n in range(1000)})  # type: ignore[call-overload]
    data = {f"f{n}": n for n in range(1000)}
    assert compiled(wide).encode(wide(**data)) == data
    with pytest.raises(DecodeFailed) as told:
        compiled(wide).decode({})
    assert len(told.value.details["fields"]) == 1000


class Tree(BaseModel):
    n: int
    below: list[Tree] = []
    named: dict[str, Tree] | None = None
    other: Branch | None = None


class Branch(BaseModel):
    tree: Tree


Tree.model_rebuild()


def test_models_that_contain_themselves() -> None:
    value = Tree(n=1, below=[Tree(n=2)], named={"a": Tree(n=3)}, other=Branch(tree=Tree(n=4)))
    data, again = compiled(Tree).settle(value)
    assert again == value == compiled(Tree).decode_json(codec.encode(data))
    with pytest.raises(DecodeFailed) as told:
        compiled(Tree).decode({"n": 1, "below": [{"n": 2, "below": [{}]}], "other": {"tree": {"n": "a"}}})
    assert set(told.value.details["fields"]) == {"below.0.below.0.n", "other.tree.n"}


def test_deep_recursion_ends() -> None:
    value = Thing(text="a", at=NOON)
    for _ in range(codec.MAX_DEPTH + 5):
        value = Thing(text="a", at=NOON, inner=value)
    with pytest.raises(InputError, match="nested deeper"):
        compiled(Thing).settle(value)
    numbers = RootModel[Any]([])
    numbers.root.append(numbers)
    with pytest.raises(InputError, match="nested deeper"):
        codec.plain(numbers)
    value.inner = value
    with pytest.raises(InputError, match="nested deeper"):
        compiled(Thing).settle(value)


class Numbers(RootModel[list[int]]):
    pass


class Needed(BaseModel):
    a: int = Field(exclude=True)


class Unresolved(BaseModel):
    a: Nowhere  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("contract", "told"),
    [
        (Numbers, "is a RootModel"),
        (Needed, "a is excluded"),
        (Unresolved, "Nowhere"),
        (Point(), "not a frozen dataclass, struct or model"),
    ],
    ids=str,
)
def test_what_a_contract_cannot_keep_is_refused(contract: Any, told: str) -> None:
    with pytest.raises(SchemaError, match=told) as refused:
        compiled(contract)
    assert refused.value.hint


def test_a_root_model_inside_is_stored_as_its_root() -> None:
    outer = create_model("Outer", numbers=(Numbers, ...))
    assert compiled(outer).settle(outer(numbers=[1]))[0] == {"numbers": [1]}


def test_a_constraint_of_msgspec_on_models_is_refused() -> None:
    @dataclass(frozen=True)
    class Few:
        points: Annotated[tuple[Point, ...], msgspec.Meta(max_length=2)]

    with pytest.raises(SchemaError, match="constraint"):
        compiled(Few)


def test_a_set_is_for_models_only() -> None:
    @dataclass(frozen=True)
    class Frozen:
        either: Thing | set[int]

    with pytest.raises(SchemaError, match="set"):
        compiled(Frozen)


def test_an_older_pydantic_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pydantic.VERSION", "2.10.6")
    with pytest.raises(SchemaError, match=r"pydantic 2\.10") as told:
        compiled(Point)
    assert "2.11" in told.value.hint


def test_dgent_does_not_import_pydantic() -> None:
    code = (
        "import sys, dgent, dataclasses\n"
        "made = dataclasses.make_dataclass('A', [('a', int)], frozen=True)\n"
        "dgent.Schema('a', contract=made).encode(made(1))\n"
        "assert not any(name.startswith('pydantic') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_lens_of_a_field() -> None:
    spot = Spot(Point(x=1))
    changed = (field("point") >> field("x")).set(spot, 5)
    assert changed == Spot(Point(x=5)) and spot == Spot(Point(x=1))


def test_a_model_is_stored_in_any_data() -> None:
    assert codec.plain({"point": Point(), "numbers": Numbers([1])}) == {
        "point": {"x": 1, "y": 0},
        "numbers": [1],
    }
