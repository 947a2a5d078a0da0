"""Optics obey their laws, alone and composed, and the law checks catch optics that do not."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from dataclasses import field as dataclass_field
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent import codec
from dgent.errors import InputError
from dgent.model.law import affine_laws, lens_laws, prism_laws, traversal_laws
from dgent.model.lens import (
    Affine,
    Lens,
    Prism,
    Traversal,
    attribute,
    each,
    field,
    identity,
    index,
    instance_of,
    items,
    key,
    keys,
    optional_field,
    optional_index,
    optional_key,
    values,
    variant,
)
from dgent.model.path import MISSING, Missing


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any = None


@dataclass(frozen=True)
class Computed:
    base: int
    double: int = dataclass_field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "double", self.base * 2)


class Pair(NamedTuple):
    left: Any
    right: Any


class Bag:
    """A mutable object with equality, as `attribute` is meant for."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bag) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class Stack(list[Any]):
    """A list of another type."""


NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
MAPPINGS = st.dictionaries(NAMES, SCALARS)
NESTED = st.dictionaries(NAMES, MAPPINGS | SCALARS)
POINTS = st.builds(Point, SCALARS, SCALARS)
LISTS = st.lists(SCALARS, min_size=1, max_size=5)
SEQUENCES = LISTS | LISTS.map(tuple) | LISTS.map(Stack) | st.builds(Pair, SCALARS, SCALARS)
ANYTHING = SCALARS | MAPPINGS | SEQUENCES | POINTS
SHAPES = st.fixed_dictionaries(
    {"kind": st.sampled_from(["circle", "box", 1, True])}, optional={"size": SCALARS}
)


def wrap(a: Any) -> Any:
    return (a,)


def label(a: Any) -> Any:
    return f"<{a!r}>"


def lawful_traversal(traversal: Traversal[Any, Any], s: Any) -> None:
    """Checks with two changes that do not commute, in both orders."""
    assert traversal_laws(traversal, s, wrap, label) == []
    assert traversal_laws(traversal, s, label, wrap) == []


def law_names(broken: list[str]) -> set[str]:
    return {line.split(":")[0] for line in broken}


class TestLenses:
    @given(ANYTHING, SCALARS, SCALARS)
    def test_identity_is_lawful(self, s: Any, a: Any, b: Any) -> None:
        assert lens_laws(identity(), s, a, b) == []

    @given(MAPPINGS, NAMES, SCALARS | st.just(MISSING), SCALARS | st.just(MISSING))
    def test_key_is_lawful_present_absent_and_removed(self, s: Any, name: str, a: Any, b: Any) -> None:
        assert lens_laws(key(name), s, a, b) == []

    @given(POINTS, st.sampled_from(["x", "y"]), SCALARS, SCALARS)
    def test_field_is_lawful(self, s: Any, name: str, a: Any, b: Any) -> None:
        assert lens_laws(field(name), s, a, b) == []

    @given(SEQUENCES, st.data(), SCALARS, SCALARS)
    def test_index_is_lawful_and_agrees_with_python(
        self, s: Any, data: st.DataObject, a: Any, b: Any
    ) -> None:
        i = data.draw(st.integers(-len(s), len(s) - 1))
        assert lens_laws(index(i), s, a, b) == []
        expected = list(s)
        expected[i] = a
        changed = index(i).set(s, a)
        assert list(changed) == expected
        assert type(changed) is type(s)

    @given(st.builds(Bag, SCALARS), SCALARS, SCALARS)
    def test_attribute_is_lawful(self, s: Any, a: Any, b: Any) -> None:
        assert lens_laws(attribute("content"), s, a, b) == []

    @given(MAPPINGS, POINTS, NAMES, SCALARS | st.just(MISSING), SCALARS | st.just(MISSING))
    def test_composed_lenses_are_lawful(self, inner: Any, point: Point, name: str, a: Any, b: Any) -> None:
        deep = key("bag") >> attribute("content") >> index(-1) >> field("x") >> key(name)
        s = {"bag": Bag((0, Point(inner, point))), "other": 1}
        assert lens_laws(deep, s, a, b) == []

    def test_absent_key_reads_as_missing_and_getput_adds_nothing(self) -> None:
        assert key("a").get({}) is MISSING
        assert key("a").set({}, key("a").get({})) == {}
        assert key("a").set({"a": 1, "b": 2}, MISSING) == {"b": 2}
        assert key("a").set({}, None) == {"a": None}

    def test_key_keeps_the_order_and_the_source(self) -> None:
        s = {"a": 1, "b": 2}
        assert list(key("a").set(s, 9).items()) == [("a", 9), ("b", 2)]
        assert s == {"a": 1, "b": 2}

    @pytest.mark.parametrize("s", [MappingProxyType({"a": 1}), OrderedDict(a=1)])
    def test_key_works_on_every_mapping(self, s: Any) -> None:
        assert lens_laws(key("a"), s, 2, MISSING) == []

    def test_index_minus_one_replaces_the_last_item(self) -> None:
        assert index(-1).set([1, 2, 3], 9) == [1, 2, 9]
        assert index(-1).set((1, 2, 3), 9) == (1, 2, 9)

    def test_attribute_leaves_the_original_alone(self) -> None:
        bag = Bag(1)
        assert attribute("content").modify(bag, lambda n: n + 1) == Bag(2)
        assert bag == Bag(1)

    def test_reading_below_an_absent_key_finds_missing_and_writing_there_is_refused(self) -> None:
        for inner in (key("b"), index(0), field("x"), attribute("name")):
            deep = key("a") >> inner
            assert deep.get({}) is MISSING
            assert deep.set({}, MISSING) == {}
            with pytest.raises(InputError, match="Missing has no"):
                deep.set({}, 1)

    @pytest.mark.parametrize(
        ("lens", "s", "message"),
        [
            (key("a"), [1], "a list has no keys, so no 'a'"),
            (field("z"), Point(1), "a Point has no dataclass field 'z'"),
            (field("x"), Point, "a type has no dataclass field 'x'"),
            (field("x"), {"x": 1}, "a dict has no dataclass field 'x'"),
            (field("double"), Computed(2), "a Computed has no dataclass field 'double' that can be set"),
            (index(3), [1, 2, 3], "a list has no item 3"),
            (index(-4), (1, 2, 3), "a tuple has no item -4"),
            (index(0), "text", "a str has no item 0"),
            (attribute("absent"), Bag(1), "a Bag has no attribute 'absent'"),
        ],
    )
    def test_a_value_without_the_part_is_refused(self, lens: Lens[Any, Any], s: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            lens.get(s)
        with pytest.raises(InputError, match=message):
            lens.set(s, 1)

    def test_attribute_refuses_what_it_cannot_change(self) -> None:
        with pytest.raises(InputError, match=r"use field\(\)"):
            attribute("x").set(Point(1), 2)
        with pytest.raises(InputError, match="cannot be copied"):
            attribute("__doc__").set(wrap, "changed")
        assert wrap.__doc__ is None

    @pytest.mark.parametrize(
        ("lens", "s"), [(field("x"), Point(1)), (index(0), [1]), (attribute("content"), Bag(1))]
    )
    def test_only_key_can_be_set_to_missing(self, lens: Lens[Any, Any], s: Any) -> None:
        with pytest.raises(InputError, match="MISSING cannot be put here"):
            lens.set(s, MISSING)


class TestAffines:
    @given(ANYTHING, NAMES, SCALARS, SCALARS)
    def test_optional_key_is_lawful_for_any_value(self, s: Any, name: str, a: Any, b: Any) -> None:
        assert affine_laws(optional_key(name), s, a, b) == []

    @given(ANYTHING, st.sampled_from(["x", "z"]), SCALARS, SCALARS)
    def test_optional_field_is_lawful_for_any_value(self, s: Any, name: str, a: Any, b: Any) -> None:
        assert affine_laws(optional_field(name), s, a, b) == []

    @given(ANYTHING, st.integers(-6, 6), SCALARS, SCALARS)
    def test_optional_index_is_lawful_for_any_value(self, s: Any, i: int, a: Any, b: Any) -> None:
        assert affine_laws(optional_index(i), s, a, b) == []

    @given(NESTED, NAMES, NAMES, st.integers(), st.integers())
    def test_mixed_compositions_are_lawful(self, s: Any, outer: str, inner: str, a: int, b: int) -> None:
        whole = {"entry": s}
        for affine in (
            key("entry") >> optional_key(outer) >> optional_key(inner),
            optional_key("entry") >> key(outer),
            key("entry") >> key(outer) >> instance_of(int),
            instance_of(dict) >> key("entry") >> (optional_key(outer) >> instance_of(dict) >> key(inner)),
        ):
            assert affine_laws(affine, whole, a, b) == []

    def test_absent_is_left_alone_and_none_is_present(self) -> None:
        assert optional_key("a").preview({"a": None}) is None
        assert optional_key("a").set({"a": None}, 1) == {"a": 1}
        s: dict[str, Any] = {"b": 1}
        assert optional_key("a").preview(s) is MISSING
        assert optional_key("a").set(s, 1) is s
        assert (optional_key("b") >> optional_key("c")).set(s, 1) is s
        assert optional_key("a").modify(s, lambda _: pytest.fail("called for an absent part")) is s

    def test_missing_cannot_remove_a_part_that_would_not_come_back(self) -> None:
        for affine in (optional_key("a"), optional_key("a") >> identity(), instance_of(dict) >> key("a")):
            with pytest.raises(InputError, match="MISSING cannot be put here"):
                affine.set({"a": 1}, MISSING)


class TestPrisms:
    @given(ANYTHING, st.integers())
    def test_instance_of_is_lawful(self, s: Any, a: int) -> None:
        assert prism_laws(instance_of(int), s, a) == []

    def test_instance_of_knows_none_from_absent(self) -> None:
        nothing = instance_of(type(None))
        assert prism_laws(nothing, None, None) == []
        assert nothing.preview(None) is None
        assert nothing.preview(0) is MISSING

    @given(SHAPES | ANYTHING, st.dictionaries(NAMES, SCALARS), st.sampled_from(["circle", 1, True]))
    def test_variant_is_lawful(self, s: Any, a: Any, tag: Any) -> None:
        assert prism_laws(variant("kind", tag), s, a) == []

    @given(SHAPES | ANYTHING, st.dictionaries(NAMES, SCALARS))
    def test_composed_prisms_are_lawful_prisms(self, s: Any, a: Any) -> None:
        both = instance_of(dict) >> variant("kind", "circle")
        assert type(both) is Prism
        assert prism_laws(both, s, a) == []
        nested = variant("kind", "circle") >> variant("size", 1)
        assert prism_laws(nested, s, a) == []

    def test_set_and_modify_leave_another_case_alone(self) -> None:
        assert instance_of(int).set("text", 1) == "text"
        assert instance_of(int).set(2, 1) == 1
        assert instance_of(int).modify(2, lambda n: n + 1) == 3
        assert variant("kind", 1).preview({"kind": True}) is MISSING
        assert variant("kind", "box").modify({"kind": "box"}, lambda rest: {**rest, "size": 1}) == {
            "kind": "box",
            "size": 1,
        }

    def test_review_refuses_what_preview_would_not_find(self) -> None:
        with pytest.raises(InputError, match="a str is not a int"):
            instance_of(int).modify(1, str)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="without 'kind'"):
            variant("kind", "box").review({"kind": "circle"})


class TestTraversals:
    @given(SEQUENCES | st.just([]) | st.just(()))
    def test_each_is_lawful_and_keeps_the_type(self, s: Any) -> None:
        lawful_traversal(each(), s)
        assert type(each().modify(s, wrap)) is type(s)

    @given(MAPPINGS)
    def test_keys_and_values_are_lawful(self, s: Any) -> None:
        lawful_traversal(values(), s)
        lawful_traversal(keys(), s)
        assert values().get_all(s) == list(s.values())
        assert list(keys().modify(s, label)) == [label(name) for name in s]

    @given(MAPPINGS)
    def test_items_is_lawful(self, s: Any) -> None:
        def rename(pair: tuple[Any, Any]) -> tuple[Any, Any]:
            return (label(pair[0]), pair[1])

        def nest(pair: tuple[Any, Any]) -> tuple[Any, Any]:
            return (wrap(pair[0]), pair)

        assert traversal_laws(items(), s, rename, nest) == []
        assert traversal_laws(items(), s, nest, rename) == []

    @given(st.lists(st.integers()))
    def test_filter_is_lawful_for_changes_that_keep_the_predicate(self, s: list[int]) -> None:
        even = each().filter(lambda n: n % 2 == 0)
        assert traversal_laws(even, s, lambda n: n + 2, lambda n: n * 3) == []
        assert even.set([1, 2, 3, 4], 0) == [1, 0, 3, 0]

    @given(st.lists(NESTED), NAMES)
    def test_mixed_compositions_are_lawful(self, s: list[Any], name: str) -> None:
        whole = {"rows": s, "one": Point(s)}
        for traversal in (
            key("rows") >> each() >> key(name),
            key("rows") >> each() >> optional_key(name) >> instance_of(dict) >> values(),
            optional_key("absent") >> each(),
            instance_of(dict) >> key("one") >> field("x") >> (each() >> keys()),
        ):
            lawful_traversal(traversal, whole)

    def test_absent_keys_are_skipped(self) -> None:
        prices = each() >> key("price")
        assert prices.get_all([{"price": 1}, {}, {"price": None}]) == [1, None]
        assert prices.set([{"price": 1}, {}], 2) == [{"price": 2}, {}]
        assert (key("rows") >> each()).get_all({}) == []

    def test_key_collisions_are_refused(self) -> None:
        with pytest.raises(InputError, match="two keys would become 'x'"):
            keys().set({"a": 1, "b": 2}, "x")
        with pytest.raises(InputError, match="two keys would become 'x'"):
            items().modify({"a": 1, "b": 2}, lambda pair: ("x", pair[1]))
        assert keys().modify({"a": 1, "b": 2}, {"a": "b", "b": "a"}.__getitem__) == {"b": 1, "a": 2}

    @pytest.mark.parametrize(
        ("traversal", "s"), [(each(), "text"), (values(), [1]), (keys(), 1), (items(), None)]
    )
    def test_values_without_parts_are_refused(self, traversal: Traversal[Any, Any], s: Any) -> None:
        with pytest.raises(InputError, match="is not a"):
            traversal.get_all(s)
        with pytest.raises(InputError, match="is not a"):
            traversal.modify(s, wrap)

    def test_bad_changes_are_refused(self) -> None:
        with pytest.raises(InputError, match="a str is not a"):
            items().modify({"a": 1}, lambda _: "ab")  # type: ignore[arg-type,return-value]
        for traversal in (each(), each() >> key("a")):
            with pytest.raises(InputError, match="MISSING cannot be put here"):
                traversal.set([{"a": 1}], MISSING)
        changes: list[tuple[Traversal[Any, Any], Any]] = [
            (keys(), MISSING),
            (values(), MISSING),
            (items(), (MISSING, 1)),
            (items(), ("a", MISSING)),
        ]
        for traversal, change in changes:
            with pytest.raises(InputError, match="MISSING cannot be put here"):
                traversal.set({"a": 1}, change)


OPTICS: list[Any] = [
    key("a"),
    key("b"),
    identity(),
    optional_key("a"),
    optional_index(0),
    instance_of(dict),
    instance_of(int),
    variant("a", 1),
    each(),
    values(),
]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InputError:
        return InputError


def read(optic: Any, s: Any) -> Any:
    name = {Lens: "get", Traversal: "get_all"}.get(type(optic), "preview")
    return outcome(lambda: getattr(optic, name)(s))


class TestComposition:
    DEEP = st.recursive(
        st.integers(0, 2) | st.none(), lambda s: st.lists(s, max_size=2) | st.dictionaries(NAMES, s)
    )

    @given(*[st.sampled_from(OPTICS)] * 3, DEEP)
    def test_it_is_associative(self, a: Any, b: Any, c: Any, s: Any) -> None:
        left, right = (a >> b) >> c, a >> (b >> c)
        assert type(left) is type(right)
        assert read(left, s) == read(right, s)
        assert outcome(lambda: left.set(s, 7)) == outcome(lambda: right.set(s, 7))
        assert outcome(lambda: left.modify(s, wrap)) == outcome(lambda: right.modify(s, wrap))

    @given(st.sampled_from(OPTICS), DEEP)
    def test_identity_changes_nothing(self, optic: Any, s: Any) -> None:
        for same in (identity() >> optic, optic >> identity()):
            assert outcome(partial(same.set, s, 7)) == outcome(partial(optic.set, s, 7))

    @pytest.mark.parametrize(
        ("first", "second", "kind"),
        [
            (identity(), identity(), Lens),
            (identity(), instance_of(int), Affine),
            (identity(), optional_key("a"), Affine),
            (identity(), each(), Traversal),
            (instance_of(dict), instance_of(dict), Prism),
            (instance_of(dict), key("a"), Affine),
            (instance_of(dict), optional_key("a"), Affine),
            (instance_of(dict), values(), Traversal),
            (optional_key("a"), key("a"), Affine),
            (optional_key("a"), instance_of(int), Affine),
            (optional_key("a"), optional_key("a"), Affine),
            (optional_key("a"), each(), Traversal),
            (each(), key("a"), Traversal),
            (each(), instance_of(int), Traversal),
            (each(), optional_key("a"), Traversal),
            (each(), each(), Traversal),
        ],
    )
    def test_the_kind_of_every_pair(self, first: Any, second: Any, kind: type) -> None:
        assert type(first >> second) is kind

    @pytest.mark.parametrize("optic", [key("a"), instance_of(int), optional_key("a"), each()])
    def test_only_optics_compose(self, optic: Any) -> None:
        with pytest.raises(TypeError, match="unsupported operand"):
            optic >> "a"

    def test_type_checkers_know_the_result(self) -> None:
        lens: Lens[Point, str] = field("x")
        prism: Prism[str, int] = Prism(lambda s: int(s) if s.isdecimal() else MISSING, str)
        letters: Traversal[str, str] = Traversal(list, lambda s, f: "".join(map(f, s)))
        affine = assert_type(lens >> prism, Affine[Point, int])
        assert affine.set(Point("12"), 7) == Point("7")
        whole: Lens[Point, Point] = identity()
        assert_type(whole >> lens, Lens[Point, str])
        assert_type(prism >> instance_of(bool), Prism[str, bool])
        assert_type(affine.preview(Point("x")), int | Missing)
        assert_type(letters >> prism, Traversal[str, int])
        assert_type(lens >> letters, Traversal[Point, str])
        assert (lens >> letters).modify(Point("ab"), str.upper) == Point("AB")


class TestValues:
    def test_optics_are_frozen_and_have_no_dict(self) -> None:
        for optic in OPTICS:
            assert not hasattr(optic, "__dict__")
            with pytest.raises(FrozenInstanceError):
                optic.set = None

    def test_optics_can_be_subscripted_and_copied(self) -> None:
        lens = Lens[int, int](abs, max)
        assert copy.deepcopy(lens) == copy.copy(lens) == lens

    def test_missing_is_one_value_that_cannot_be_stored(self) -> None:
        assert copy.deepcopy(MISSING) is copy.copy(MISSING) is MISSING
        assert repr(MISSING) == "MISSING"
        with pytest.raises(InputError):
            codec.plain({"a": MISSING})


class TestLawChecksCatch:
    def test_a_key_lens_that_adds_none(self) -> None:
        broken: Lens[Any, Any] = Lens(lambda s: s.get("a"), lambda s, a: {**s, "a": a})
        assert lens_laws(broken, {}, 1, 2) == ["GetPut: saw {'a': None}, expected {}"]

    def test_an_index_lens_that_slices_after_minus_one(self) -> None:
        broken: Lens[Any, Any] = Lens(lambda s: s[-1], lambda s, a: [*s[:-1], a, *s[0:]])
        assert law_names(lens_laws(broken, [1, 2, 3], 9, 8)) == {"GetPut", "PutGet", "PutPut"}

    def test_a_lens_that_ignores_what_is_put_or_counts_puts(self) -> None:
        ignores: Lens[Any, Any] = Lens(lambda s: s, lambda s, _: s)
        assert law_names(lens_laws(ignores, 1, 2, 3)) == {"PutGet"}
        counts: Lens[Any, Any] = Lens(lambda s: s[0], lambda s, a: s if s[0] == a else (a, s[1] + 1))
        assert law_names(lens_laws(counts, (1, 0), 2, 3)) == {"PutPut"}

    def test_a_lens_that_changes_its_source(self) -> None:
        def put(s: Any, a: Any) -> Any:
            s["a"] = a
            return s

        assert "Purity" in law_names(lens_laws(Lens(lambda s: s["a"], put), {"a": 1}, 2, 3))

    def test_prisms_that_conflate_none_with_absent(self) -> None:
        none_for_absent: Prism[Any, Any] = Prism(lambda s: s if isinstance(s, int) else None, lambda a: a)
        assert prism_laws(none_for_absent, "text", 1) == ["PreviewReview: saw None, expected 'text'"]
        absent_for_none: Prism[Any, Any] = Prism(lambda s: MISSING if s is None else s, lambda a: a)
        assert prism_laws(absent_for_none, 1, None) == ["ReviewPreview: saw MISSING, expected None"]

    def test_an_optional_key_posing_as_a_prism(self) -> None:
        broken: Prism[Any, Any] = Prism(lambda s: s.get("a", MISSING), lambda a: {"a": a})
        assert law_names(prism_laws(broken, {"a": 1, "b": 2}, 3)) == {"PreviewReview"}

    def test_affines_that_add_or_lose_the_part(self) -> None:
        adds: Affine[Any, Any] = Affine(lambda s: s.get("a", MISSING), lambda s, a: {**s, "a": a})
        assert law_names(affine_laws(adds, {}, 1, 2)) == {"PutGet", "AbsentPut"}
        assert affine_laws(adds, {"a": 0}, 1, 2) == []
        loses: Affine[Any, Any] = Affine(lambda s: s.get("a", MISSING), lambda s, _: {})
        assert law_names(affine_laws(loses, {"a": 0}, 1, 2)) == {"GetPut", "PutGet"}

    @pytest.mark.parametrize("change", [lambda n: n + 1, lambda n: n, abs])
    def test_a_traversal_that_applies_twice(self, change: Callable[[int], int]) -> None:
        twice: Traversal[Any, Any] = Traversal(list, lambda s, f: [f(f(a)) for a in s])
        assert "Once" in law_names(traversal_laws(twice, [1, 2], change, change))

    def test_a_traversal_that_skips_or_repeats_a_part(self) -> None:
        skips: Traversal[Any, Any] = Traversal(list, lambda s, f: [f(s[0]), *s[1:]])
        assert law_names(traversal_laws(skips, [1, 2], label, label)) == {"Once", "GetModified"}
        repeats: Traversal[Any, Any] = Traversal(lambda s: [*s, *s], lambda s, f: [f(a) for a in s])
        assert law_names(traversal_laws(repeats, [1], label, label)) == {"Once"}

    def test_a_traversal_that_breaks_identity_and_fusion(self) -> None:
        sorts: Traversal[Any, Any] = Traversal(list, lambda s, f: sorted(map(f, s)))
        assert "Identity" in law_names(traversal_laws(sorts, [2, 1], lambda n: -n, lambda n: n * n))
        logs: Traversal[Any, Any] = Traversal(
            lambda s: [s[0]], lambda s, f: s if f(s[0]) == s[0] else (f(s[0]), s[1] + 1)
        )
        assert "Fusion" in law_names(traversal_laws(logs, (1, 0), lambda n: n + 1, lambda n: n * 5))

    def test_a_filter_whose_change_breaks_the_predicate(self) -> None:
        negative = each().filter(lambda n: n < 0)
        assert law_names(traversal_laws(negative, [-1], abs, lambda n: n + 1)) == {"Fusion", "GetModified"}

    def test_exceptions_are_broken_laws(self) -> None:
        def fail(*_: Any) -> Any:
            raise RuntimeError("no")

        for broken in (
            lens_laws(Lens(fail, fail), 1, 2, 3),
            prism_laws(Prism(fail, fail), 1, 2),
            affine_laws(Affine(fail, fail), 1, 2, 3),
            traversal_laws(Traversal(fail, fail), 1, wrap, wrap),
        ):
            assert broken
            assert all(line.endswith("raised RuntimeError: no") for line in broken)

    def test_values_that_cannot_be_copied_are_still_checked(self) -> None:
        running = (name for name in "ab")
        assert lens_laws(identity(), running, running, running) == []
