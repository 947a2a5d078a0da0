"""The byte keys against a naive comparator that knows nothing of bytes."""

from __future__ import annotations

import copy
import enum
import math
import pickle
import random
import sys
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.errors import InputError
from dgent.model import order
from dgent.model.path import MISSING

EDGES: list[Any] = [
    MISSING, None, False, True, 0, 0.0, -0.0, 1, 1.0, -1, -1.0, 0.1, -0.1,
    5e-324, -5e-324, sys.float_info.min, -sys.float_info.min, sys.float_info.max, -sys.float_info.max,
    2**53 - 1, 2**53, 2**53 + 1, float(2**53), -(2**53), -(2**53) - 1, -(2**53) + 1,
    2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63 - 2, 2**63, float(2**63), -(2**63), -(2**63) + 1,
    -float(2**63), math.nextafter(2.0**63, 0), math.nextafter(-(2.0**63), 0), math.inf, -math.inf,
    "", "\0", "a", "A", "ab", "é", "e\u0301", "\uffff", "\U00010000", "\U0010ffff", "1", "x" * 119, "x" * 300,
]  # fmt: skip


def rank(value: Any) -> int:
    if value is MISSING:
        return 0
    if value is None:
        return 1
    return 2 if isinstance(value, bool) else 4 if isinstance(value, str) else 3


def naive(a: Any, b: Any) -> int:
    """-1, 0 or 1, by kind first and then mathematically."""
    if rank(a) != rank(b):
        return -1 if rank(a) < rank(b) else 1
    if rank(a) < 2:
        return 0
    if rank(a) == 3:
        a, b = exact(a), exact(b)
    elif rank(a) == 4:
        a, b = [ord(letter) for letter in a], [ord(letter) for letter in b]
    return int(a > b) - int(a < b)


def exact(number: Any) -> Any:
    return number if isinstance(number, float) and math.isinf(number) else Fraction(number)


def by_key(a: Any, b: Any) -> int:
    left, right = order.key(a), order.key(b)
    return (left > right) - (left < right)


def random_value(rng: random.Random) -> Any:
    choice = rng.randrange(10)
    if choice < 2:
        return rng.choice(EDGES)
    if choice == 2:
        return rng.randint(-5, 5) if rng.random() < 0.5 else float(rng.randint(-5, 5))
    if choice == 3:
        return rng.randint(-(2**63), 2**63 - 1)
    if choice == 4:
        return rng.choice((1, -1)) * (2 ** rng.randint(50, 62) + rng.randint(-3, 3))
    if choice == 5:
        return rng.choice((1.0, -1.0)) * math.ldexp(rng.random(), rng.randint(-1080, 1000))
    if choice == 6:
        return rng.choice((1.0, -1.0)) * rng.randint(0, 20) * 5e-324
    if choice == 7:
        return float(rng.randint(-(2**63), 2**63))
    return "".join(rng.choice("ab\0é\uffff\U00010000\U0010ffff") for _ in range(rng.randrange(4)))


def near(rng: random.Random, value: Any) -> Any:
    """A value that is hard to tell from the given one."""
    if rank(value) != 3 or abs(value) > 2**63 - 5:
        return value
    return rng.choice(
        (float(value), math.floor(value), math.ceil(value), math.floor(value) + rng.randint(-1, 1))
    )


def test_20000_random_pairs_sort_as_python_compares() -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for _ in range(10_000):
        a, b = random_value(rng), random_value(rng)
        assert by_key(a, b) == naive(a, b), (seed, a, b)
        c = near(rng, a)
        assert by_key(a, c) == naive(a, c), (seed, a, c)


def test_every_pair_of_edges() -> None:
    for a in EDGES:
        for b in EDGES:
            assert by_key(a, b) == naive(a, b), (a, b)


numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)


@given(numbers, numbers)
def test_numbers(a: float, b: float) -> None:
    assert by_key(a, b) == naive(a, b)
    assert len(order.key(a)) == 11


@given(st.text(), st.text())
def test_texts(a: str, b: str) -> None:
    assert by_key(a, b) == naive(a, b)
    cut_a, cut_b = order.index_key(a)[0], order.index_key(b)[0]
    assert cut_a == cut_b or (cut_a < cut_b) == (a < b)


def test_the_bytes_are_fixed() -> None:
    """Indexes on disk hold these bytes, so a change here is a change of the storage format."""
    assert order.key(MISSING) == b"\x00"
    assert order.key(None) == b"\x01"
    assert (order.key(False), order.key(True)) == (b"\x02\x00", b"\x02\x01")
    assert order.key(0) == order.key(-0.0) == b"\x03" + bytes.fromhex("8000000000000000 0000")
    assert order.key(1) == order.key(1.0) == b"\x03" + bytes.fromhex("bff0000000000000 0000")
    assert order.key(-1) == b"\x03" + bytes.fromhex("400fffffffffffff 0000")
    assert order.key(2**63 - 1) == b"\x03" + bytes.fromhex("c3dfffffffffffff 03ff")
    assert order.key("é") == b"\x04\xc3\xa9"
    assert order.key([]) == order.key([1, 2]) == b"\x05"
    assert order.key({}) == order.key({"a": 1}) == b"\x06"


def test_values_that_are_not_plain_sort_as_they_are_stored() -> None:
    class Colour(enum.Enum):
        RED = "red"

    assert order.key(Colour.RED) == order.key("red")
    assert order.key((1,)) == order.key([1])
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert order.key(moment) == order.key("2026-01-02T00:00:00.000000Z")


@pytest.mark.parametrize("value", [2**64 + 1, -(2**64) - 1, 10**400])
def test_integers_without_a_place_are_refused(value: int) -> None:
    with pytest.raises(InputError):
        order.key(value)


@pytest.mark.parametrize(
    ("value", "size", "exact"),
    [
        ("x" * 119, 120, True),
        ("x" * 120, 120, False),
        ("x" * 121, 120, False),
        ("é" * 59, 119, True),
        ("é" * 60, 120, False),
        ("x" * 10**6, 120, False),
        (5, 11, True),
        (None, 1, True),
        (MISSING, 1, True),
        (True, 2, True),
        ([], 1, False),
        ({}, 1, False),
    ],
)
def test_index_key(value: Any, size: int, exact: bool) -> None:
    cut, whole = order.index_key(value)
    assert (len(cut), whole) == (size, exact)
    assert order.key(value).startswith(cut)


def test_a_key_of_full_length_may_stand_for_two_texts() -> None:
    assert order.index_key("x" * 119)[0] == order.index_key("x" * 119 + "y")[0]


@pytest.mark.parametrize(
    ("a", "b"),
    [(1, 1.0), (0, -0.0), (True, True), (None, None), ("a", "a"), ([1, [2.0]], [1.0, [2]]),
     ({"a": 1, "b": [None]}, {"b": [None], "a": 1.0}), ([], []), ({}, {})],
)  # fmt: skip
def test_same(a: Any, b: Any) -> None:
    assert order.same(a, b)
    assert order.same(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [(1, True), (0, False), (1.0, True), (0, None), ("", None), ("1", 1), ([1], [True]), ([], {}),
     ([1], [1, 2]), ({"a": 1}, {"a": True}), ({"a": 1}, {"b": 1}), ({"a": None}, {}), ([[0]], [[False]]),
     (MISSING, None), (2**53 + 1, float(2**53)), (2**63 - 1, float(2**63)), ("é", "e\u0301")],
)  # fmt: skip
def test_not_same(a: Any, b: Any) -> None:
    assert not order.same(a, b)
    assert not order.same(b, a)


def test_comparable() -> None:
    groups: list[list[Any]] = [[1, -2.5, 2**63 - 1], ["", "a"], [True, False]]
    alone: list[Any] = [None, MISSING, [], {}, [1]]
    for one in groups:
        for other in groups:
            assert all(order.comparable(a, b) == (one is other) for a in one for b in other)
        assert not any(order.comparable(a, b) or order.comparable(b, a) for a in one for b in alone)
    assert not any(order.comparable(a, b) for a in alone for b in alone)


def test_missing_stays_one_value() -> None:
    assert repr(MISSING) == "MISSING"
    assert copy.deepcopy(MISSING) is MISSING
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING


decimals = st.one_of(
    st.decimals(allow_nan=False),
    st.integers(-(2**64), 2**64).map(Decimal),
    st.floats(allow_nan=False).map(Decimal.from_float),
    st.sampled_from(
        [
            "1E+2",
            "100",
            "-0",
            "1E+400",
            "-1E+400",
            "1E-400",
            "-1E-400",
            "9007199254740992.5",
            "1E+999999",
            "0.1",
        ]
    ).map(Decimal),
)


@given(st.lists(st.one_of(decimals, st.integers(-(2**63), 2**63), st.floats(allow_nan=False)), min_size=2))
def test_decimals_stand_among_numbers_as_python_has_them(values: list[Any]) -> None:
    for a, b in pairwise(values):
        assert (order.key(a) < order.key(b)) == (a < b), (a, b)
        assert (order.key(a) == order.key(b)) == (a == b), (a, b)


@given(st.timedeltas(), st.timedeltas())
def test_durations_stand_in_order_above_all_numbers(a: timedelta, b: timedelta) -> None:
    assert (order.key(a) < order.key(b)) == (a < b)
    assert (order.key(a) == order.key(b)) == (a == b)
    assert order.key(Decimal("Infinity")) < order.key(a) < order.key("")


zoned = st.times(
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5)), timezone(timedelta(hours=-11))])
)


@given(zoned, zoned)
def test_zoned_times_stand_in_order(a: time, b: time) -> None:
    assert (order.key(a) < order.key(b)) == (a < b)
    assert (order.key(a) == order.key(b)) == (a == b)


def test_a_value_with_a_kind_equals_the_text_that_stands_for_it() -> None:
    assert order.same(Decimal("1E+2"), "100.0") and order.same(100, Decimal("1E+2"))
    assert order.same([{"a": "1.0"}], [{"a": Decimal(1)}]) and not order.same(Decimal(1), True)
    assert order.same("PT1H", timedelta(hours=1)) and not order.same(timedelta(seconds=1), 1)
    assert not order.same(Decimal(1), "one") and not order.same("NaN", Decimal(1))
    assert not order.same("1E+2", "100")
