"""What a contract accepts, what it says about wrong data, and what it keeps of data it does not know."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, ClassVar, Generic, Literal, NewType, TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgent import codec
from dgent.errors import DecodeFailed, InputError, SchemaError
from dgent.model.contract.compile import CompiledContract, describe
from dgent.model.contract.node import RecordNode, reach
from dgent.model.ref import Ref
from tests.soak import examples

T = TypeVar("T")
Name = NewType("Name", str)
NOON = datetime(2025, 1, 2, 12, 0, 0, 5, tzinfo=UTC)


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Size(IntEnum):
    S = 1
    L = 2


class Word(StrEnum):
    YES = "yes"


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True)
class Everything:
    text: str
    whole: int
    real: float
    yes: bool
    nothing: None
    at: datetime
    day: date
    clock: time
    span: timedelta
    uuid: UUID
    raw: bytes
    money: Decimal
    mood: Mood
    size: Size
    word: Word
    name: Name
    kind: Literal["a", "b", 3]
    maybe: int | None
    mixed: int | str | None
    point: Point
    maybe_point: Point | None
    numbers: tuple[int, ...]
    pair: tuple[int, str]
    points: list[Point]
    names: frozenset[str]
    spots: frozenset[Point]
    table: dict[str, Point]
    either: Point | tuple[int, ...] | int | None
    anything: Any
    link: Ref[Point]
    maybe_link: Ref[Point] | None
    links: tuple[Ref[Point], ...]
    small: Annotated[int, msgspec.Meta(ge=0, le=9)]
    few: Annotated[tuple[int, ...], msgspec.Meta(max_length=2)]
    seq: Sequence[int]
    map: Mapping[str, int]
    _: KW_ONLY
    tags: tuple[str, ...] = field(default_factory=tuple)
    answer: int = 42


def everything(**changes: Any) -> Everything:
    values: dict[str, Any] = {
        "text": "ü\n", "whole": -5, "real": 0.5, "yes": True, "nothing": None, "at": NOON,
        "day": date(2025, 1, 2), "clock": time(1, 2, 3), "span": timedelta(days=1, seconds=2),
        "uuid": UUID(int=7), "raw": b"\0\xff", "money": Decimal("1.10"), "mood": Mood.BAD, "size": Size.L,
        "word": Word.YES, "name": Name("n"), "kind": "b", "maybe": None, "mixed": "m", "point": Point(1, 2),
        "maybe_point": Point(3), "numbers": (1, 2), "pair": (1, "a"), "points": [Point(4)],
        "names": frozenset("zyx"), "spots": frozenset({Point(5), Point(6)}), "table": {"k.l": Point(7)},
        "either": (1,), "anything": {"deep": [1, None]}, "link": Ref("one"), "maybe_link": None,
        "links": (Ref("two"), Ref("three")), "small": 9, "few": (1, 2), "seq": [1], "map": {"a": 1},
    }  # fmt: skip
    return Everything(**values | changes)


@dataclass(frozen=True)
class Circle:
    radius: float
    kind: Literal["circle"] = "circle"


@dataclass(frozen=True)
class Group:
    members: tuple[Circle | Group, ...]
    leader: Ref[Circle] | None = None
    kind: Literal["group", "band"] = "group"


@dataclass(frozen=True)
class Drawing:
    main: Circle | Group | None
    all: tuple[Circle | Group, ...] = ()
    named: dict[str, Circle | Group] = field(default_factory=dict)
    pair: tuple[Point, Point] | None = None


@dataclass(frozen=True)
class Box(Generic[T]):
    item: T
    more: tuple[T, ...] = ()


@dataclass(frozen=True)
class PointBox(Box[Point]):
    label: str = ""


@dataclass(frozen=True)
class Boxes:
    one: Box[int]
    two: Box[Ref[Point]]


@dataclass(frozen=True)
class Tree:
    name: str
    at: datetime | None = None
    up: Ref[Tree] | None = None
    left: Tree | None = None
    rest: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True)
class Even:
    number: int
    half: int = field(init=False, default=0)
    unit: ClassVar[str] = "cm"

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("number must be even")
        if self.number == 666:
            raise RuntimeError


# Round trips


def test_every_supported_type_comes_back_as_it_went_in() -> None:
    shape, value = CompiledContract(Everything), everything()
    data = shape.encode(value)
    assert shape.decode(data) == value
    assert codec.decode(codec.encode(data)) == data
    assert data["at"] == "2025-01-02T12:00:00.000005Z"
    assert data["links"] == ["two", "three"]
    assert (data["mood"], data["size"], data["raw"], data["money"]) == ("bad", 2, "AP8=", "1.10")


@pytest.mark.parametrize("either", [None, 3, (1, 2), Point(1)])
def test_a_union_of_what_json_tells_apart(either: Any) -> None:
    shape = CompiledContract(Everything)
    assert shape.decode(shape.encode(everything(either=either))).either == either


def test_a_time_in_another_zone_is_stored_in_utc() -> None:
    data = CompiledContract(Everything).encode(everything(at=NOON.astimezone(timezone(timedelta(hours=5)))))
    assert data["at"] == "2025-01-02T12:00:00.000005Z"


def test_a_text_in_the_place_of_a_time_is_stored_in_the_one_form() -> None:
    data = CompiledContract(Everything).encode(everything(at="2025-01-02T14:00:00+02:00"))
    assert data["at"] == "2025-01-02T12:00:00.000000Z"


def test_defaults_fill_in_for_missing_fields() -> None:
    shape = CompiledContract(Everything)
    data = shape.encode(everything(answer=1, tags=("t",)))
    del data["answer"], data["tags"]
    assert (shape.decode(data).answer, shape.decode(data).tags) == (42, ())


def test_unions_of_dataclasses_are_told_apart_by_their_tag() -> None:
    shape = CompiledContract(Drawing)
    nested = Group((Circle(1.0), Group((), Ref("x"), kind="band")))
    value = Drawing(nested, (Circle(2.0), nested), {"a": nested}, (Point(1), Point(2)))
    assert shape.decode(shape.encode(value)) == value
    assert shape.decode({"main": None}) == Drawing(None)


def test_generics_know_their_parameters() -> None:
    assert CompiledContract(Box[int]).decode({"item": 1, "more": [2]}) == Box(1, (2,))
    boxes = Boxes(Box(1), Box(Ref("a"), (Ref("b"),)))
    assert CompiledContract(Boxes).decode(CompiledContract(Boxes).encode(boxes)) == boxes
    with pytest.raises(DecodeFailed, match=r"one\.item"):
        CompiledContract(Boxes).decode({"one": {"item": "1"}, "two": {"item": "a"}})
    box = PointBox(Point(1), (Point(2),), "l")
    assert CompiledContract(PointBox).decode(CompiledContract(PointBox).encode(box)) == box
    assert CompiledContract(Boxes).refs(CompiledContract(Boxes).encode(boxes)) == [
        ("two.item", "a"),
        ("two.more.0", "b"),
    ]


def test_a_contract_may_contain_itself() -> None:
    shape = CompiledContract(Tree)
    value = Tree("a", NOON, Ref("r"), Tree("b", left=Tree("c", NOON)), (Tree("d", up=Ref("s")),))
    data = shape.encode(value)
    assert shape.decode(data) == value
    assert shape.refs(data) == [("up", "r"), ("rest.0.up", "s")]
    data["left"]["left"]["at"] = "2025-01-02T12:00:00"
    with pytest.raises(DecodeFailed) as caught:
        shape.decode(data)
    assert caught.value.details["fields"].keys() == {"left.left.at"}


def test_a_contract_made_in_a_function_may_contain_itself() -> None:
    @dataclass(frozen=True)
    class Local:
        inner: Local | None = None

    assert CompiledContract(Local).decode({"inner": {}}) == Local(Local())


def test_what_a_value_holds_is_not_the_data_itself() -> None:
    shape = CompiledContract(Everything)
    data = shape.encode(everything())
    shape.decode(data).anything["deep"].append("more")
    assert data["anything"] == {"deep": [1, None]}


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, "a", "circle", "group", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abxy"), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_the_quick_and_the_careful_reader_agree(draw: st.DataObject) -> None:
    shape = CompiledContract(Everything)
    data = shape.encode(everything())
    for name in draw.draw(st.lists(st.sampled_from(sorted(data)), max_size=2)):
        data[name] = draw.draw(json_like)
    errors: dict[str, str] = {}
    for node in reach(shape._root):
        if isinstance(node, RecordNode):
            node.native = False
    careful = shape._root.read(data, (), errors)
    try:
        quick = msgspec.convert(data, Everything, dec_hook=lambda hint, item: Ref(item))
    except msgspec.ValidationError:
        assert errors
    else:
        assert not errors and careful == quick


@settings(max_examples=examples(100), deadline=None)
@given(st.builds(Tree, st.text(), st.none() | st.datetimes(timezones=st.just(UTC))), st.text(max_size=3))
def test_any_text_and_time_comes_back(tree: Tree, name: str) -> None:
    value = Tree(name, left=tree, rest=(tree, tree))
    assert CompiledContract(Tree).decode(CompiledContract(Tree).encode(value)) == value


# Wrong data


def wrong(contract: type[Any], data: Any) -> dict[str, str]:
    with pytest.raises(DecodeFailed) as caught:
        CompiledContract(contract).decode(data)
    assert all(reason in str(caught.value) for reason in caught.value.details["fields"].values())
    fields: dict[str, str] = caught.value.details["fields"]
    return fields


def test_every_wrong_field_is_named_at_once() -> None:
    data = CompiledContract(Everything).encode(everything())
    data |= {
        "text": 1, "whole": "1", "yes": 1, "at": "2025-01-02T12:00:00", "uuid": "no", "raw": "?",
        "mood": "meh", "kind": "c", "point": {"y": "2"}, "maybe_point": 7, "numbers": [1, "2", True],
        "pair": [1],
        "names": "ab",
        "table": {"k.l": {"x": None}}, "link": 5, "links": ["ok", ""], "small": 10, "few": [1, 2, 3],
        "either": "e", "spots": [{"x": 1}, 3],
    }  # fmt: skip
    del data["real"]
    assert wrong(Everything, data) == {
        "text": "Expected `str`, got `int`",
        "whole": "Expected `int`, got `str`",
        "real": "is missing",
        "yes": "Expected `bool`, got `int`",
        "at": "Expected `datetime` with a timezone component",
        "uuid": "Invalid UUID",
        "raw": "Invalid base64 encoded string",
        "mood": "Invalid enum value 'meh'",
        "kind": "Invalid enum value 'c'",
        "point.x": "is missing",
        "point.y": "Expected `int`, got `str`",
        "maybe_point": "Expected `object | null`, got `int`",
        "numbers.1": "Expected `int`, got `str`",
        "numbers.2": "Expected `int`, got `bool`",
        "pair": "Expected `array` of length 2, got 1",
        "names": "Expected `array`, got `str`",
        "spots.1": "Expected `object`, got `int`",
        "table.k\\.l.x": "Expected `int`, got `null`",
        "either": "Expected `int`, got `str`",
        "link": "Expected the `str` id of a record, got `int`",
        "links.1": "ref must not be empty",
        "small": "Expected `int` <= 9",
        "few": "Expected `array` of length <= 2",
    }


def test_wrong_members_of_unions_are_named() -> None:
    data = {
        "main": {"kind": "cube"},
        "all": [{"radius": 1}, {"kind": "circle", "radius": "1"}, 4],
        "pair": [{}],
    }
    assert wrong(Drawing, data) == {
        "main.kind": "is 'cube'; it must be one of 'circle', 'group', 'band'",
        "all.0.kind": "is missing; it must be one of 'circle', 'group', 'band'",
        "all.1.radius": "Expected `float`, got `str`",
        "all.2": "Expected `object`, got `int`",
        "pair": "Expected `array` of length 2, got 1",
    }


def test_data_that_is_no_object_and_keys_that_are_no_text() -> None:
    assert wrong(Point, [1]) == {"": "Expected `object`, got `list`"}
    assert wrong(Point, {"x": 1, 2: 3}) == {"": "has a key that is not `str`"}


def test_what_post_init_refuses_is_wrong_too() -> None:
    assert CompiledContract(Even).decode({"number": 2, "half": 1}).half == 1
    assert wrong(Even, {"number": 3}) == {"": "number must be even"}
    assert wrong(Even, {"number": 666}) == {"": "RuntimeError"}


def test_a_set_of_what_cannot_be_hashed() -> None:
    @dataclass(frozen=True)
    class Odd:
        items: frozenset[Any]

    assert "unhashable" in wrong(Odd, {"items": [[1]]})["items"]


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"whole": "1"}, {"whole"}),
        ({"whole": True, "text": None}, {"whole", "text"}),
        ({"point": Point("1")}, {"point.x"}),  # type: ignore[arg-type]
        ({"day": NOON}, {"day"}),
        ({"kind": "z"}, {"kind"}),
    ],
)
def test_a_wrongly_typed_value_is_refused_before_it_is_stored(
    changes: dict[str, Any], fields: set[str]
) -> None:
    with pytest.raises(InputError) as caught:
        CompiledContract(Everything).encode(everything(**changes))
    assert caught.value.details["fields"].keys() == fields


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"real": float("nan")}, "real is nan"),
        ({"text": "\ud800"}, "text contains half of a surrogate pair"),
        ({"anything": {1: 2}}, "anything has the key 1"),
        ({"anything": [{"a": object()}]}, r"anything\.0\.a is a object"),
        ({"whole": 2**64}, "whole is an integer beyond 64 bits"),
        ({"at": datetime(2025, 1, 1)}, "at is a datetime without a time zone"),
    ],
)
def test_what_cannot_be_stored_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        CompiledContract(Everything).encode(everything(**changes))


def test_a_value_of_another_contract_is_refused() -> None:
    with pytest.raises(InputError, match="expected a Point, got a Circle"):
        CompiledContract(Point).encode(Circle(1.0))  # type: ignore[arg-type]


# Unknown fields


def test_unknown_fields_survive_at_every_level() -> None:
    shape = CompiledContract(Everything)
    new = shape.encode(everything(text="changed", points=[Point(9), Point(4)]))
    old = shape.encode(everything())
    old |= {"future": [1]}
    old["point"]["z"] = 3
    old["maybe_point"]["z"] = 4
    old["points"] = [{"x": 4, "z": 5}]
    old["table"]["k.l"]["z"] = 6
    out = shape.carry(old, new)
    assert out["future"] == [1]
    assert (out["point"], out["maybe_point"]) == ({"x": 1, "y": 2, "z": 3}, {"x": 3, "y": 0, "z": 4})
    assert out["points"] == [{"x": 9, "y": 0}, {"x": 4, "y": 0, "z": 5}]  # matched by what is known of it
    assert out["table"]["k.l"]["z"] == 6
    assert out["text"] == "changed"
    assert shape.decode(out) == everything(text="changed", points=[Point(9), Point(4)])


def test_known_fields_never_come_from_the_old_data() -> None:
    assert CompiledContract(Point).carry({"x": 1, "y": 2, "z": 3}, {"x": 5}) == {"x": 5, "z": 3}


def points_carried(old: list[dict[str, int]], new: list[Point]) -> list[dict[str, int]]:
    """The list of points after `new` replaced `old`, without the defaults."""
    shape = CompiledContract(Everything)
    data = shape.encode(everything(points=new))
    carried = shape.carry(data | {"points": old}, data)["points"]
    return [{key: item for key, item in point.items() if key != "y" or item} for point in carried]


def test_a_changed_item_keeps_the_unknown_fields_of_its_place() -> None:
    old = [{"x": 1, "z": 1}, {"x": 2, "z": 2}, {"x": 3, "z": 3}]
    assert points_carried(old, [Point(1), Point(9), Point(3)]) == [old[0], {"x": 9, "z": 2}, old[2]]
    appended = points_carried(old, [Point(1), Point(2), Point(9), Point(4)])
    assert appended == [old[0], old[1], {"x": 9, "z": 3}, {"x": 4}]


def test_a_changed_item_is_found_behind_the_same_neighbour() -> None:
    old = [{"x": 1, "z": 1}, {"x": 2, "z": 2}, {"x": 3, "z": 3}]
    new = [Point(7), Point(1), Point(9), Point(3)]
    assert points_carried(old, new) == [{"x": 7}, old[0], {"x": 9, "z": 2}, old[2]]


def test_moved_items_take_their_unknown_fields_along() -> None:
    old = [{"x": 1, "z": 1}, {"x": 2, "z": 2}, {"x": 3, "z": 3}]
    assert points_carried(old, [Point(3), Point(1), Point(2)]) == [old[2], old[0], old[1]]
    assert points_carried(old, [Point(3)]) == [old[2]]


def test_equal_items_pair_up_in_order() -> None:
    old = [{"x": 1, "z": 1}, {"x": 1, "z": 2}]
    assert points_carried(old, [Point(1), Point(1)]) == old
    assert points_carried(old, [Point(0), Point(1), Point(1)]) == [{"x": 0}, *old]
    assert points_carried(old, [Point(1)]) == old[:1]
    assert points_carried(old, [Point(0), Point(1)]) == [{"x": 0, "z": 1}, old[1]]
    assert points_carried(old[:1], [Point(1), Point(1)]) == [old[0], {"x": 1}]


def test_a_changed_member_of_a_set_has_no_place_to_keep() -> None:
    shape = CompiledContract(Everything)
    data = shape.encode(everything(spots=frozenset({Point(9)})))
    assert shape.carry(data | {"spots": [{"x": 5, "z": 1}]}, data)["spots"] == [{"x": 9, "y": 0}]


xs = st.lists(st.integers(0, 3), max_size=6)


@given(xs, xs)
def test_no_unknown_field_is_lost_while_an_equal_item_is_left(before: list[int], after: list[int]) -> None:
    """Each item marks itself, so that the marks in the new list tell which old item each was paired with."""
    old = [{"x": x, "z": place} for place, x in enumerate(before)]
    out = points_carried(old, [Point(x) for x in after])
    assert [item["x"] for item in out] == after
    marks = [item["z"] for item in out if "z" in item]
    assert len(marks) == len(set(marks))
    for x in set(before) & set(after):
        kept = sum(before[item["z"]] == x for item in out if "z" in item and item["x"] == x)
        assert kept == min(before.count(x), after.count(x))
    if len(before) == len(after):
        changed = [n for n in range(len(after)) if before[n] != after[n]]
        if len(changed) == 1 and after[changed[0]] not in before:
            assert marks == list(range(len(before)))


def test_a_union_keeps_unknown_fields_only_for_the_same_member() -> None:
    shape = CompiledContract(Drawing)
    old = {"main": {"kind": "circle", "radius": 1.0, "a": 1}}
    assert shape.carry(old, {"main": {"kind": "circle", "radius": 2.0}})["main"]["a"] == 1
    assert "a" not in shape.carry(old, {"main": {"kind": "group", "members": []}})["main"]
    assert shape.carry(old, {"main": None}) == {"main": None}
    assert shape.carry({"main": None}, {"main": {"kind": "group"}}) == {"main": {"kind": "group"}}


def test_a_union_keeps_unknown_fields_only_under_the_same_tag() -> None:
    old = {"main": {"kind": "band", "members": [], "a": 1}}
    assert "a" not in CompiledContract(Drawing).carry(old, {"main": {"kind": "group", "members": []}})["main"]


def test_pairs_and_sets_keep_unknown_fields() -> None:
    old = {"main": None, "pair": [{"x": 1, "z": 1}, {"x": 2}]}
    new = CompiledContract(Drawing).encode(Drawing(None, pair=(Point(5), Point(2))))
    assert CompiledContract(Drawing).carry(old, new)["pair"] == [{"x": 5, "y": 0, "z": 1}, {"x": 2, "y": 0}]
    shape = CompiledContract(Everything)
    data = shape.encode(everything())
    spots = [{"x": 5, "y": 0, "a": 2}, {"x": 6, "y": 0, "a": 1}]
    carried = shape.carry(data | {"spots": spots}, data)["spots"]
    assert carried == sorted(spots, key=codec.canonical)


def test_carrying_changes_neither_side() -> None:
    old = {"main": {"kind": "circle", "radius": 1.0, "a": 1}, "b": 2}
    new = {"main": {"kind": "circle", "radius": 2.0}}
    before = copy.deepcopy((old, new))
    CompiledContract(Drawing).carry(old, new)
    assert (old, new) == before


# Links


def test_links_are_found_wherever_they_are() -> None:
    shape = CompiledContract(Everything)
    found = shape.refs(shape.encode(everything(maybe_link=Ref("m"))))
    assert found == [("link", "one"), ("maybe_link", "m"), ("links.0", "two"), ("links.1", "three")]
    assert shape.ref_paths == ("link", "maybe_link", "links")
    drawing = CompiledContract(Drawing)
    data = drawing.encode(Drawing(None, (Group((), Ref("x")),), {"a.b": Group((), Ref("y"))}))
    assert drawing.refs(data) == [("all.0.leader", "x"), ("named.a\\.b.leader", "y")]
    assert drawing.ref_paths == ("main.leader", "all.*.leader", "named.*.leader")
    assert CompiledContract(Tree).ref_paths == ("up",)
    assert CompiledContract(Point).refs({"x": 1}) == []


def test_a_ref_is_its_id() -> None:
    link: Ref[Point] = Ref("a")
    assert link == Ref(link) and hash(link) == hash(Ref("a")) and link != Ref("b") and link != "a"
    assert repr(link) == "Ref('a')"
    assert pickle.loads(pickle.dumps(link)) == copy.deepcopy(link) == link
    with pytest.raises(AttributeError):
        link.id = "b"
    with pytest.raises(AttributeError):
        del link.id
    for bad in ("", 5, None, "a\0"):
        with pytest.raises(InputError, match="ref"):
            Ref(bad)


# Contracts that cannot be


@dataclass
class Soft:
    x: int


@dataclass(frozen=True)
class Bare:
    x: int


class Colour(Enum):
    RED = (1, 2)


def contract(hint: Any) -> type[Any]:
    return make_dataclass("Made", [("a", hint)], frozen=True)


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        (object, r"Made\.a: object is not a type"),
        (len, r"Made\.a: len is not"),
        (CompiledContract, r"Made\.a: CompiledContract is not"),
        (set[int], "use frozenset"),
        (dict[int, str], "keys of .* must be str"),
        (tuple[object, ...], r"Made\.a: object is not"),
        (Soft, "Soft is not frozen"),
        (tuple[Soft, ...], "Soft is not frozen"),
        (Colour, "Enums must contain either all str or all int"),
        (Point | Bare, "nothing tells the members of Point . Bare apart.*Literal"),
        (Point | dict[str, int], "look alike"),
        (tuple[int, ...] | list[str], "look alike"),
        (Ref[Point] | str, "look alike"),
        (str | date, "more than one str-like type"),
        (Annotated[Point | str, msgspec.Meta(ge=1)], "constraint"),
        (Annotated[Circle | Group, msgspec.Meta(title="t")], "constraint"),
        (Annotated[tuple[int, ...], msgspec.Meta(ge=1)], "constraint"),
        ("Nowhere", "cannot be resolved"),
        (InitVar[int], "InitVar"),
    ],
)
def test_an_unsupported_type_is_refused_when_the_contract_is_compiled(hint: Any, told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        CompiledContract(contract(hint))


@pytest.mark.parametrize("thing", [Soft, int, Point(1), "Point", dict])
def test_a_contract_is_a_frozen_dataclass(thing: Any) -> None:
    with pytest.raises(SchemaError, match="frozen"):
        CompiledContract(thing)


@pytest.mark.parametrize(
    "hint", [tuple, list, dict, frozenset, Any, Annotated[int | None, msgspec.Meta(title="t")]]
)
def test_loose_types_are_taken(hint: Any) -> None:
    assert CompiledContract(contract(hint)).digest


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement came with 3.12")
def test_type_aliases_are_looked_through() -> None:
    scope: dict[str, Any] = {}
    exec("type Alias = int | None", scope)
    assert wrong(contract(scope["Alias"]), {"a": "1"}) == {"a": "Expected `int | null`, got `str`"}


# Digests


def test_the_digest_tells_contracts_apart() -> None:
    def made(*fields: Any) -> str:
        return describe(make_dataclass("Made", fields, frozen=True))

    base = made(("a", int), ("b", str))
    assert len(base) == 16 and base == made(("b", str), ("a", int))
    others = [
        made(("a", int)),
        made(("a", int), ("c", str)),
        made(("a", int), ("b", int)),
        made(("a", int), ("b", str, "")),
        made(("a", int), ("b", str | None)),
        made(("a", int), ("b", Point)),
        made(("a", int), ("b", Point | None)),
        made(("a", int), ("b", Circle | Group)),
        made(("a", int), ("b", Literal["x"])),
        made(("a", int), ("b", Annotated[str, msgspec.Meta(min_length=1)])),
        made(("a", int), ("b", tuple[str, ...])),
        made(("a", int), ("b", tuple[str, str])),
        made(("a", int), ("b", Mood)),
        made(("a", int), ("b", Any)),
    ]
    assert len({base, *others}) == len(others) + 1
    assert made(("a", int | None)) == made(("a", None | int))


def test_the_digest_is_the_same_in_every_process() -> None:
    # Stored beside the schema, so a change here makes every store warn about another contract.
    assert describe(Everything) == "21766fa5ef90fc48"
    assert describe(Tree) == "a807b8e561014aa9"
