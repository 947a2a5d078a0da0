"""msgspec structs as contracts: what holds for dataclasses holds for them."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import pytest

from dgent.errors import DecodeFailed, InputError, SchemaError
from dgent.model.contract.compile import CompiledContract, describe
from dgent.model.lens import field
from dgent.model.ref import Ref
from dgent.model.schema import Schema

T = TypeVar("T")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Point(msgspec.Struct, frozen=True):
    x: int
    y: int = 0


@dataclass(frozen=True)
class Spot:
    point: Point
    name: str = ""


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    spot: Spot | None = None
    points: tuple[Point, ...] = ()
    names: frozenset[str] = frozenset()
    table: dict[str, list[Point]] = {}
    money: Decimal = Decimal("1.10")
    link: Ref[Thing] | None = None
    small: Annotated[int, msgspec.Meta(le=9)] = 3
    inner: Thing | None = None
    anything: Any = None


class Box(msgspec.Struct, Generic[T], frozen=True):
    item: T


class Cat(msgspec.Struct, frozen=True):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(msgspec.Struct, frozen=True):
    good: bool = True
    kind: Literal["dog"] = "dog"


class Pets(msgspec.Struct, frozen=True):
    pets: list[Cat | Dog] = []
    size: int = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size is below zero")


THING = Thing(
    at=NOON,
    spot=Spot(Point(1), "a"),
    points=(Point(1), Point(2, 3)),
    names=frozenset("zyxab"),
    table={"k.l": [Point(4)]},
    link=Ref("one"),
    inner=Thing(at=NOON, money=Decimal("2.50")),
    anything={"deep": [1]},
)


@pytest.mark.parametrize(
    ("contract", "value"),
    [
        (Thing, THING),
        (Point, Point(1, 2)),
        (Spot, Spot(Point(1))),
        (Box[int], Box(1)),
        (Box[Box[Point]], Box(Box(Point(1)))),
        (Pets, Pets([Cat(), Dog(False), Cat(lives=1)])),
    ],
    ids=["thing", "point", "spot", "box", "boxes", "pets"],
)
def test_round_trip(contract: Any, value: Any) -> None:
    compiled: CompiledContract[Any] = CompiledContract(contract)
    data, again = compiled.settle(value)
    assert again == value == compiled.decode(data) == compiled.decode_json(msgspec.json.encode(data))
    assert type(again) is type(value)
    assert compiled.encode(again) == data and compiled.knows_all(data)


def test_data_is_as_that_of_a_dataclass() -> None:
    data = CompiledContract(Thing).encode(THING)
    assert data["names"] == ["a", "b", "x", "y", "z"], (
        "sets are sorted, so that equal values have equal bytes"
    )
    assert data["at"] == "2026-01-02T12:00:00.000000Z" and data["money"] == "1.10"
    assert data["spot"] == {"point": {"x": 1, "y": 0}, "name": "a"}
    assert CompiledContract(Thing).refs(data) == [("link", "one")]
    same = make_dataclass("P", [("x", int), ("y", int, 0)], frozen=True)
    assert describe(Point) == describe(same), "a contract may become a struct without a new version"


def test_every_wrong_field_is_named() -> None:
    compiled = CompiledContract(Thing)
    wrong = {"at": "2026-01-02T12:00:00", "spot": {"point": {"y": "a"}}, "points": [{"x": None}], "small": 10}
    with pytest.raises(DecodeFailed) as told:
        compiled.decode(wrong)
    assert set(told.value.details["fields"]) == {"at", "spot.point.x", "spot.point.y", "points.0.x", "small"}
    with pytest.raises(InputError, match=r"points\.0\.x.*small"):
        compiled.settle(Thing(at=NOON, points=(Point("a"),), small=10))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="size is below zero"):
        compiled_pets = CompiledContract(Pets)
        value = Pets([Cat()])
        msgspec.structs.force_setattr(value, "size", -1)
        compiled_pets.settle(value)


def test_unknown_fields_are_carried() -> None:
    compiled = CompiledContract(Thing)
    data = compiled.encode(THING)
    old = {**data, "new": 1, "points": [{"x": 1, "y": 0, "z": 5}, data["points"][1]]}
    assert compiled.decode(old) == THING and not compiled.knows_all(old)
    assert compiled.carry(old, data) == old


def test_mutable_defaults_are_not_shared() -> None:
    compiled = CompiledContract(Pets)
    compiled.decode({}).pets.append(Cat())
    assert compiled.decode({}).pets == [] == compiled.lookup.see({})["pets"]


class Soft(msgspec.Struct):
    x: int


class Tagged(msgspec.Struct, frozen=True, tag="t"):
    x: int


class Renamed(msgspec.Struct, frozen=True, rename="camel"):
    some_name: int


class RenamedOne(msgspec.Struct, frozen=True):
    x: int = msgspec.field(name="X")


class Array(msgspec.Struct, frozen=True, array_like=True):
    x: int


class Omitting(msgspec.Struct, frozen=True, omit_defaults=True):
    x: int = 1


class Forbidding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    x: int


class Unset(msgspec.Struct, frozen=True):
    x: int | msgspec.UnsetType = msgspec.UNSET


@pytest.mark.parametrize(
    ("contract", "told", "hint"),
    [
        (Soft, "Soft is not frozen", "frozen=True"),
        (Tagged, "option tag", "Literal"),
        (Renamed, "option rename", "names of the fields"),
        (RenamedOne, "option rename", "names of the fields"),
        (Array, "option array_like", "map"),
        (Omitting, "option omit_defaults", "every field"),
        (Forbidding, "option forbid_unknown_fields", "carried"),
        (Unset, "UnsetType is not a type", "JSON"),
        (msgspec.Struct, "is not frozen", ""),
    ],
)
def test_what_a_contract_cannot_keep_is_refused(contract: Any, told: str, hint: str) -> None:
    with pytest.raises(SchemaError, match=told) as refused:
        CompiledContract(contract)
    assert hint in refused.value.hint

    @dataclass(frozen=True)
    class Outer:
        items: tuple[contract, ...]  # type: ignore[valid-type]

    Outer.__annotations__["items"] = tuple[contract, ...]
    with pytest.raises(SchemaError, match=told):
        CompiledContract(Outer)


def test_a_step_derived_between_structs() -> None:
    class New(msgspec.Struct, frozen=True):
        x: int
        y: int = 0
        tags: list[str] = []

    assert Schema.derive_step(Point, New)({"x": 1, "y": 2}) == {"x": 1, "y": 2, "tags": []}


def test_a_lens_of_a_field() -> None:
    assert field("x").set(Point(1, 2), 5) == Point(5, 2)
    assert (field("spot") >> field("point") >> field("y")).set(THING, 7).spot == Spot(Point(1, 7), "a")
    with pytest.raises(InputError, match="has no dataclass field 'z'"):
        field("z").get(Point(1))
