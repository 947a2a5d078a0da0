"""Queries: paths, every operator, what is refused, and `matches` against a second evaluator."""

from __future__ import annotations

import copy
import enum
import math
import pickle
import random
import subprocess
import sys
import uuid
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgent.errors import QueryError
from dgent.model import order
from dgent.model.datum import Datum
from dgent.model.path import MISSING, parse, read, text
from dgent.model.query import Query
from dgent.model.where import All, Condition, Either, Negated
from tests.soak import examples

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Colour(enum.StrEnum):
    RED = "red"


# -- paths


@pytest.mark.parametrize(
    ("given_path", "segments"),
    [
        ("a", ("a",)),
        ("a.b.0", ("a", "b", "0")),
        (r"a\.b.c", ("a.b", "c")),
        (r"a\\.b", ("a\\", "b")),
        (r"a\\\.b", ("a\\.b",)),
        (("a.b", "c"), ("a.b", "c")),
        (["a\\", "b"], ("a\\", "b")),
        (("$set",), ("$set",)),
        (".".join("a" * 32), ("a",) * 32),
        ("é" * 256, ("é" * 256,)),
    ],
)
def test_parse(given_path: Any, segments: tuple[str, ...]) -> None:
    assert parse(given_path) == segments
    assert parse(text(segments)) == segments


BAD_PATHS: list[Any] = [
    "", ".", "a.", ".a", "a..b", (), [], ("",), ("a", ""), ("a", 1), (None,), 5, None, b"a", {"a"}, "a\\",
    r"\a",
    ".".join("a" * 33), ("a",) * 33, "a" * 513, "é" * 257, ("." * 257,), "a.\ud800",
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS)
def test_malformed_paths(path: Any) -> None:
    with pytest.raises(QueryError, match="path"):
        parse(path)


@given(st.lists(st.text(st.sampled_from("a.\\0é"), min_size=1, max_size=4), min_size=1, max_size=6))
def test_text_is_the_inverse_of_parse(segments: list[str]) -> None:
    assert parse(text(tuple(segments))) == tuple(segments)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b", 1), ("a", {"b": 1}), ("list.0", "x"), ("list.1.deep", None), ("list.12", MISSING),
        ("none", None),
        ("list.-1", MISSING), ("list.00", MISSING), ("list.007", MISSING), ("list.x", MISSING),
        ("list.¹", MISSING),
        ("list.٠", MISSING), ("list.deep", MISSING), ("digits.0", "zero"), ("digits.007", "bond"),
        ("gone", MISSING),
        ("word.0", MISSING), ("none.x", MISSING), ("a.b.c", MISSING), (r"dot\.ted", 7), ("dot.ted", MISSING),
        ("list." + "9" * 300, MISSING),
    ],
)  # fmt: skip
def test_read(path: str, value: Any) -> None:
    data = {
        "a": {"b": 1}, "list": ["x", {"deep": None}], "none": None, "word": "text",
        "digits": {"0": "zero", "007": "bond"}, "dot.ted": 7,
    }  # fmt: skip
    assert read(data, parse(path)) is value or read(data, parse(path)) == value
    assert read(MappingProxyType(data), parse(path)) == read(data, parse(path))


# -- operators


def holds(where: Any, **data: Any) -> bool:
    return Query(where=where).matches(Datum(data=data))


CASES: list[tuple[Any, list[Any], list[Any]]] = [
    # operand at "a", values of "a" that match, values that do not; MISSING leaves it out
    (1, [1, 1.0], [True, "1", 2, None, MISSING, [1]]),
    (True, [True], [1, 1.0, "true", False, MISSING]),
    (0, [0, 0.0, -0.0], [False, None, "", MISSING, [], {}]),
    (None, [None], [MISSING, False, 0, "", [], {}]),
    ("x", ["x"], ["X", "xx", MISSING, ["x"], {"x": 1}, None]),
    ({}, [{}], [[], None, MISSING, {"x": 1}]),
    ({"x": 1}, [{"x": 1.0}], [{"x": True}, {"x": 1, "y": 2}, {}, MISSING]),
    ([1, None], [[1.0, None]], [[True, None], [None, 1], [1], MISSING]),
    ((1, 2), [[1, 2]], [[2, 1]]),
    ({"$eq": {"$gt": 1}}, [{"$gt": 1}], [2, {"$gt": True}]),
    ({"$ne": 1}, [2, True, "1", None, MISSING, [1]], [1, 1.0]),
    ({"$ne": None}, [MISSING, 0, ""], [None]),
    ({"$gt": 1}, [2, 1.5, 2**63 - 1], [1, 1.0, 0, True, "2", None, MISSING, [2], {"x": 2}]),
    ({"$gte": 1}, [1, 1.0, 2], [0.999, True, "1", None, MISSING]),
    ({"$lt": 1}, [0, -0.5, -(2**63)], [1, 1.0, False, "", None, MISSING]),
    ({"$lte": 1}, [1, 1.0, 0], [1.0001, True, False, None, MISSING]),
    ({"$gt": float(2**53)}, [2**53 + 1], [2**53]),
    ({"$gt": "b"}, ["c", "ba", "é"], ["b", "a", "B", 5, None, True, MISSING]),
    ({"$lt": "\U00010000"}, ["\uffff", ""], ["\U00010000", "\U0010ffff"]),
    ({"$gt": False}, [True], [False, 1, 2, "x", None, MISSING]),
    ({"$lte": False}, [False], [True, 0, -1, MISSING]),
    ({"$gt": 1, "$lt": 5}, [2, 4.9], [1, 5, "3", MISSING]),
    ({"$gt": NOON}, ["2026-05-01T12:00:00.000001Z"], ["2026-05-01T12:00:00.000000Z", 5, MISSING]),
    ({"$in": [1, "x", None, [2], {"k": True}]}, [1.0, "x", None, [2.0], {"k": True}],
     [True, "1", MISSING, [], [True], {"k": 1}, {}]),
    ({"$in": [True]}, [True], [1, 1.0, MISSING]),
    ({"$in": {1, 2}}, [1, 2.0], [True, 3]),
    ({"$in": ()}, [], [None, MISSING, 1, []]),
    ({"$nin": [1, None]}, [True, "1", MISSING, []], [1, 1.0, None]),
    ({"$nin": []}, [None, MISSING, 1], []),
    ({"$exists": True}, [None, 0, "", [], {}, False], [MISSING]),
    ({"$exists": False}, [MISSING], [None, 0, False]),
    ({"$prefix": "ab"}, ["ab", "abc"], ["a", "AB", 5, None, MISSING, ["ab"], {"ab": 1}]),
    ({"$prefix": ""}, ["", "x"], [None, 5, MISSING, []]),
    ({"$contains": 1}, [[1], [2, 1.0]], [[True], [[1]], [], 1, "1", None, MISSING, {"1": 1}]),
    ({"$contains": None}, [[None]], [[], None, {}, MISSING]),
    ({"$contains": "b"}, ["abc", ["b"], {"b": 0}], ["B", ["abc"], {"a": "b"}, 5, None, MISSING]),
    ({"$contains": ""}, ["", "x", [""]], [[], {}, MISSING]),
    ({"$contains": {"k": 1}}, [[{"k": 1.0}]], [[{"k": True}], {"k": 1}, "k"]),
    ({"$not": {"$gt": 3}}, [3, "x", None, MISSING], [4, 3.5]),
    ({"$not": {"$gt": 1, "$lt": 5}}, [1, 5, MISSING], [2]),
    ({"$not": {"$not": {"$exists": True}}}, [1, None], [MISSING]),
    ({"$exists": True, "$not": {"$in": [1]}}, [2, True], [1, MISSING]),
    (Colour.RED, ["red"], ["RED"]),
    (uuid.UUID(int=1), ["00000000-0000-0000-0000-000000000001"], [1]),
    (MappingProxyType({"x": 1}), [{"x": 1}], [{}]),
    (MappingProxyType({"$gt": 1}), [2], [1]),
]  # fmt: skip


@pytest.mark.parametrize(("operand", "yes", "no"), CASES, ids=lambda value: str(value)[:40])
def test_operators(operand: Any, yes: list[Any], no: list[Any]) -> None:
    for value, expected in [(value, True) for value in yes] + [(value, False) for value in no]:
        data = {} if value is MISSING else {"a": value}
        assert holds({"a": operand}, **data) is expected, value
        assert Query(where={"$not": {"a": operand}}).matches(Datum(data=data)) is not expected, value


def test_groups() -> None:
    where = {"$or": [{"a": 1}, {"b": {"$gt": 2}, "c": None}], "$not": {"d": 1}}
    assert holds(where, a=1)
    assert holds(where, b=3, c=None)
    assert not holds(where, b=3)
    assert not holds(where, a=1, d=1)
    assert holds({}, x=1)
    assert holds({"$or": [{}]}, x=1)
    assert not holds({"$not": {}}, x=1)


def test_the_filter_is_flat_at_the_top() -> None:
    a, b = Condition(("a",), "$eq", 1), Condition(("b",), "$eq", 2)
    assert Query().filter == Query(where={}).filter == All(())
    assert Query(where={"a": 1, "$and": [{"b": 2}]}).filter == All((a, b))
    assert Query(where={"$and": [{"$and": [{"a": 1}]}, {"b": 2}]}).filter == All((a, b))
    assert Query(where={"$or": [{"a": 1}, {"b": 2}]}).filter == All((Either((a, b)),))
    assert Query(where={"$not": {"a": 1, "b": 2}}).filter == All((Negated(All((a, b))),))
    between = Query(where={"a": {"$gt": 1, "$lt": 5}}).filter
    assert between == All((Condition(("a",), "$gt", 1), Condition(("a",), "$lt", 5)))
    assert Query(where={("x.y", "z"): NOON}).filter.parts == (
        Condition(("x.y", "z"), "$eq", "2026-05-01T12:00:00.000000Z"),
    )
    assert Query(where={"a": {"$in": {2}}}).filter.parts == (Condition(("a",), "$in", (2,)),)


def test_a_condition_judges_a_value_or_a_record() -> None:
    condition = Condition(("a",), "$gte", 2)
    for each in (condition, copy.copy(condition), copy.deepcopy(condition)):
        assert each.holds(2) and each.test({"a": 3})
        assert not each.holds(MISSING) and not each.test({})


def test_the_caller_cannot_change_a_query_afterwards() -> None:
    where: dict[str, Any] = {"a": {"$in": [1]}, "b": [1]}
    query = Query(where=where)
    where["a"]["$in"].append(2)
    where["b"].append(2)
    assert query.matches(Datum(data={"a": 1, "b": [1]}))
    assert not query.matches(Datum(data={"a": 2, "b": [1, 2]}))


# -- the envelope


def test_envelope_fields() -> None:
    datum = Datum(
        id="note/1", created_at=NOON, tags=frozenset("xyz"), author="ada", source="mail", parent_id="p",
        schema="note", schema_version=1,
    )  # fmt: skip
    yes: list[dict[str, Any]] = [
        {}, {"schema": "note"}, {"tags": {"x", "y"}}, {"tags": ["x"]}, {"tags": ()}, {"any_tags": ("q", "z")},
        {"author": "ada"}, {"source": "mail"}, {"parent": "p"}, {"prefix": "note/"}, {"prefix": "note/1"},
        {"since": NOON}, {"until": NOON + timedelta(microseconds=1)},
        {"since": NOON.astimezone(timezone(timedelta(hours=5)))},
        {"schema": "note", "tags": {"x"}, "any_tags": {"y"}, "author": "ada", "where": {}},
        {"ids": ["note/1", "x"]}, {"parents": {"p", "q"}}, {"ids": {"note/1"}, "parents": ("p",)},
    ]  # fmt: skip
    no: list[dict[str, Any]] = [
        {"schema": "Note"}, {"tags": {"x", "q"}}, {"any_tags": {"q"}}, {"author": "a"}, {"source": "m"},
        {"parent": "note/1"}, {"prefix": "note/10"}, {"prefix": "Note"}, {"until": NOON},
        {"since": NOON + timedelta(microseconds=1)}, {"schema": "note", "where": {"a": 1}},
        {"ids": ()}, {"ids": {"note"}}, {"parents": ()}, {"parents": {"q"}},
        {"ids": ["note/1"], "parents": []},
    ]  # fmt: skip
    assert all(Query(**fields).matches(datum) for fields in yes)
    assert not any(Query(**fields).matches(datum) for fields in no)
    others: list[dict[str, Any]] = [{"schema": "x"}, {"author": "x"}, {"source": "x"}, {"parent": "x"}]
    for fields in others:
        assert not Query(**fields).matches(Datum())


def test_data_stands_in_for_the_record() -> None:
    datum = Datum(data={"a": 1})
    query = Query(where={"a": 2})
    assert query.matches(datum, {"a": 2})
    assert not query.matches(datum)
    assert not Query(where={"a": 1}).matches(datum, {})
    assert query.matches(datum, MappingProxyType({"a": 2}))


def test_times_compare_as_moments_when_the_clock_is_set_back() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    early, late = (datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1))
    assert Query(since=early).matches(Datum(created_at=late))
    assert not Query(since=late).matches(Datum(created_at=early))
    assert Query(since=early).digest() != Query(since=late).digest()


# -- what is refused


class NoOffset(tzinfo):
    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


def nested(depth: int) -> dict[str, Any]:
    where: dict[str, Any] = {"a": 1}
    for _ in range(depth - 1):
        where = {"$not": where}
    return where


BAD_FIELDS: list[tuple[str, Any]] = [
    ("schema", ""), ("schema", 5), ("schema", "a\0"), ("schema", "x" * 257), ("schema", "\ud800"),
    ("author", ""), ("source", b"x"), ("parent", ""), ("parent", "x" * 513), ("prefix", ""), ("prefix", 1),
    ("ids", "abc"), ("ids", b"abc"), ("ids", 5), ("ids", {""}), ("ids", [1]), ("ids", {"a": 1}),
    ("parents", "abc"), ("parents", ["x" * 513]), ("order_by", "-seq"),
    ("tags", "abc"), ("tags", b"abc"), ("tags", None), ("tags", 5), ("tags", [1]), ("tags", [["a"]]),
    ("tags", {""}), ("tags", [str(n) for n in range(65)]), ("any_tags", "abc"), ("any_tags", {None}),
    ("since", NOON.replace(tzinfo=None)), ("since", "2026-05-01"), ("until", 5), ("until", NOON.date()),
    ("until", datetime(2026, 1, 1, tzinfo=NoOffset())),
    ("since", datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))),
    ("limit", 0), ("limit", -1), ("limit", True), ("limit", 1.0), ("limit", "5"), ("limit", 2**63),
    ("offset", -1), ("offset", 2**62 + 1), ("offset", None), ("offset", False),
    ("cursor", ""), ("cursor", 5), ("cursor", b"x"), ("descending", 1), ("descending", None),
    ("content", "no"),
    ("order_by", ""), ("order_by", None), ("order_by", 5), ("order_by", ()), ("order_by", "a..b"),
    ("order_by", ("a", 1)), ("where", "a"), ("where", [("a", 1)]), ("where", 0), ("where", False),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS, ids=lambda value: repr(value)[:30])
def test_wrong_fields(field: str, value: Any) -> None:
    with pytest.raises(QueryError, match=field) as caught:
        Query(**{field: value})
    assert caught.value.details["field"] == field
    with pytest.raises(QueryError):
        Query().replace(**{field: value})


BAD_WHERE: list[Any] = [
    {"$nor": [{"a": 1}]}, {"$gt": 1}, {"$": 1}, {"a": {"$foo": 1}}, {"a": {"$": 1}},
    {"a": {"$and": [{"b": 1}]}},
    {"a": {"$or": []}}, {"a": {"$gt": 1, "b": 2}}, {"a": {"b": 2, "$gt": 1}}, {"a": {"$gt": 1, 5: 2}},
    {"a": {5: 1}},
    {"$and": []}, {"$or": []}, {"$and": {"a": 1}}, {"$or": "a"}, {"$or": [1]}, {"$and": [None]}, {"$not": []},
    {"$not": None}, {"$and": [{}] * 1024}, {"a": {"$not": 5}}, {"a": {"$not": {}}}, {"a": {"$not": {"b": 1}}},
    {"a": {"$not": {"$foo": 1}}}, {"a": {"$not": None}}, {"a": {"$gt": None}}, {"a": {"$gte": [1]}},
    {"a": {"$lt": {}}},
    {"a": {"$lte": NOON.replace(tzinfo=None)}}, {"a": {"$gt": object()}}, {"a": {"$gt": {1, 2}}},
    {"a": {"$in": "abc"}}, {"a": {"$in": 5}}, {"a": {"$in": {"k": 1}}}, {"a": {"$in": None}},
    {"a": {"$nin": iter([])}},
    {"a": {"$in": list(range(1001))}}, {"a": {"$in": [math.nan]}}, {"a": {"$in": {"\ud800", "x"}}},
    {"a": {"$exists": 1}}, {"a": {"$exists": "true"}}, {"a": {"$exists": None}}, {"a": {"$prefix": 5}},
    {"a": {"$prefix": None}}, {"a": {"$prefix": ["a"]}}, {"a": math.nan}, {"a": {"$gt": math.inf}},
    {"a": 2**63},
    {"a": [math.nan]}, {"a": {"$contains": math.nan}}, {"a": {"$ne": object()}}, {"a": "\ud800"},
    {"a": ["\ud800"]},
    {"a": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, {"a": lambda: 1},
    nested(17), {"a": {"$not": {"$not": {"$not": {"$gt": 1}}}}, "$and": [nested(16)]},
    {"$and": [{"a": n} for n in range(256)], "b": 1}, {str(n): {"$gt": 1, "$lt": 2} for n in range(129)},
    *({"a": 1, path: 1} for path in BAD_PATHS if path.__hash__ is not None),
]  # fmt: skip


@pytest.mark.parametrize("where", BAD_WHERE, ids=None)
def test_malformed_where(where: Any) -> None:
    for wrapped in (where, {"$or": [{"ok": 1}, where]}, {"$not": where}):
        with pytest.raises(QueryError, match="where") as caught:
            Query(where=wrapped)
        assert caught.value.details["field"] == "where"


def test_values_that_never_end_are_refused() -> None:
    loop: dict[str, Any] = {}
    loop["$not"] = loop
    endless: list[Any] = []
    endless.append(endless)
    wide: dict[str, Any] = {}
    for _ in range(15):
        wide = {"$and": [wide] * 100}
    for where in (loop, {"a": loop}, {"a": endless}, wide):
        with pytest.raises(QueryError):
            Query(where=where)


def test_the_limits_themselves_are_allowed() -> None:
    Query(where=nested(16))
    Query(where={"$and": [{}] * 1023})
    Query(where={str(n): n for n in range(256)})
    assert holds({"a": {"$in": list(range(1000))}}, a=999)
    assert Query(limit=None, offset=2**62).limit is None
    assert Query(limit=1).first(3) == Query(limit=3)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        Query(wher={"a": 1})  # type: ignore[call-arg]


# -- order, digest, copies


def test_order() -> None:
    datum = Datum(
        created_at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), data={"a": {"b": 5}, "created_at": "x"}
    )
    by_time = Query()
    assert (by_time.order_path, by_time.order_key(datum.data)) == (None, b"")
    assert by_time.sort_key(datum) == (b"", 1_000_000)
    for given_path in ("a.b", ("a", "b"), ["a", "b"]):
        query = Query(order_by=given_path)  # type: ignore[arg-type]
        assert query.order_path == ("a", "b")
        assert query.order_key(datum.data) == order.key(5)
        assert query.sort_key(datum) == (order.key(5), 1_000_000)
        assert query.sort_key(datum, {"a": {}}) == (order.key(MISSING), 1_000_000)
    assert Query(order_by=("created_at",)).order_key(datum.data) == order.key("x")


def test_texts_become_plain_and_tags_a_frozenset() -> None:
    query = Query(schema=Colour.RED, tags=["b", "a", "b"])  # type: ignore[arg-type]
    assert type(query.schema) is str
    assert query.schema == "red"
    assert query.tags == frozenset("ab") and type(query.tags) is frozenset


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"limit": 5, "offset": 3, "cursor": "x", "content": False}, {}),
    ({"tags": ["a", "b"]}, {"tags": {"b", "a"}}),
    ({"where": {"a": 1, "b": {"x": 1, "y": 2}}}, {"where": {"b": {"y": 2, "x": 1}, "a": 1}}),
    ({"where": {"$and": [{"a": 1}, {"b": 2}]}}, {"where": {"b": 2, "a": 1}}),
    ({"where": {"$or": [{"a": 1}, {"b": 2}]}}, {"where": {"$or": [{"b": 2}, {"a": 1}]}}),
    ({"where": {"a": {"$in": [1, "x"]}}}, {"where": {"a": {"$in": {"x", 1}}}}),
    ({"where": {r"a\.b": 1}}, {"where": {("a.b",): 1}}),
    ({"where": {"a": 1}}, {"where": {"a": {"$eq": 1}}}),
    ({"where": {}}, {}),
    ({"order_by": "a.b"}, {"order_by": ("a", "b")}),
    ({"since": NOON}, {"since": NOON.astimezone(timezone(timedelta(hours=2)))}),
]
DIFFERENT: list[dict[str, Any]] = [
    {}, {"schema": "a"}, {"author": "a"}, {"source": "a"}, {"parent": "a"}, {"prefix": "a"}, {"tags": {"a"}},
    {"any_tags": {"a"}}, {"since": NOON}, {"until": NOON}, {"descending": False}, {"order_by": "a"},
    {"ids": ()}, {"ids": {"a"}}, {"ids": {"a", "b"}}, {"parents": {"a"}}, {"parents": ()},
    {"order_by": "seq"}, {"order_by": ("seq",)}, {"order_by": "updated_at"},
    {"order_by": "a.b"}, {"order_by": r"a\.b"}, {"order_by": ("created_at",)}, {"where": {"a": 1}},
    {"where": {"a": True}}, {"where": {"a": "1"}}, {"where": {"a": {"$ne": 1}}},
    {"where": {"a": {"$in": [1]}}},
    {"where": {"a": [1, 2]}}, {"where": {"a": [2, 1]}}, {"where": {"$not": {"a": 1}}},
    {"where": {"a": 1, "b": 1}},
    {"where": {"$or": [{"a": 1}, {"b": 1}]}}, {"where": {"a.b": 1}}, {"where": {r"a\.b": 1}},
]  # fmt: skip


def test_digest() -> None:
    for one, other in SAME:
        assert Query(**one).digest() == Query(**other).digest(), (one, other)
    digests = {Query(**fields).digest() for fields in DIFFERENT}
    assert len(digests) == len(DIFFERENT)
    assert {len(each) for each in digests} == {16}


def test_the_digest_is_the_same_in_every_process() -> None:
    code = (
        "from dgent.model.query import Query\n"
        "print(Query(tags=set('abcd'), any_tags=set('xyz'), where={'a': {'$in': set('pq')}}).digest().hex())"
    )
    found = set()
    for seed in ("1", "2"):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        found.add(
            subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout
        )
    assert len(found) == 1


def test_copies_mean_the_same() -> None:
    query = Query(where={"a": {"$gt": 1}}, order_by="b", tags={"t"})  # type: ignore[arg-type]
    datum = Datum(data={"a": 2, "b": "x"}, tags=frozenset("t"))
    query.digest()
    for each in (
        copy.copy(query),
        copy.deepcopy(query),
        pickle.loads(pickle.dumps(query)),
        query.replace(limit=7),
    ):
        assert each.matches(datum) and not each.matches(datum, {"a": 1})
        assert each.digest() == query.digest()
        assert each.filter == query.filter and each.order_path == ("b",)
    changed = query.replace(where={"a": 2}, order_by="created_at")
    assert changed.digest() != query.digest()
    assert (changed.order_path, changed.filter.parts) == (None, (Condition(("a",), "$eq", 2),))


def test_a_query_can_come_from_json() -> None:
    query = msgspec.json.decode(
        b'{"schema":"note","tags":["a"],"where":{"n":{"$gt":1}},"limit":5}', type=Query
    )
    assert query == Query(schema="note", tags=frozenset("a"), where={"n": {"$gt": 1}}, limit=5)
    with pytest.raises(msgspec.ValidationError, match=r"\$foo"):
        msgspec.json.decode(b'{"where":{"n":{"$foo":1}}}', type=Query)


# -- a second evaluator, straight from the `where` and with none of the code above

scalars = st.sampled_from([None, True, False, 0, 1, 1.0, 2, -1.5, 2**53, 2**53 + 1, "", "a", "ab", "b", "é"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab0"), inner, max_size=2),
    max_leaves=4,
)
datas = st.dictionaries(st.sampled_from("ab0"), values, max_size=3)
comparands = scalars.filter(lambda value: value is not None)
operators = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne", "$contains"]), values),
    st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), comparands),
    st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(values, max_size=4)),
    st.tuples(st.just("$exists"), st.booleans()),
    st.tuples(st.just("$prefix"), st.sampled_from(["", "a", "b"])),
)
tests = st.lists(operators, min_size=1, max_size=3).map(dict)
tests = tests | tests.map(lambda inner: {"$not": inner})
paths = st.lists(st.sampled_from(["a", "b", "0"]), min_size=1, max_size=3).map(".".join)
leaves = st.dictionaries(paths, tests | values, max_size=3)


def groups(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries({}, optional={"$and": some, "$or": some, "$not": inner, "a": tests})


wheres = st.recursive(leaves, groups, max_leaves=5)


def tagged(value: Any) -> Any:
    """A value in which bool and number differ under Python's own ==."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list | tuple):
        return [tagged(each) for each in value]
    return {name: tagged(each) for name, each in value.items()} if isinstance(value, dict) else value


def kind(value: Any) -> str:
    for name, kinds in (("bool", bool), ("number", int | float), ("text", str)):
        if isinstance(value, kinds):
            return name
    return "none"


def find(data: Any, path: str) -> list[Any]:
    """The value in a list of one, or nothing."""
    found = [data]
    for segment in path.split("."):
        here = found[0]
        try:
            found = [here[int(segment)] if isinstance(here, list) else here[segment]]
        except (KeyError, IndexError, ValueError, TypeError):
            return []
    return found


def naive_op(op: str, operand: Any, found: list[Any]) -> bool:
    if op in ("$ne", "$nin", "$not"):
        if op == "$not":
            return not all(naive_op(each, value, found) for each, value in operand.items())
        return not naive_op("$eq" if op == "$ne" else "$in", operand, found)
    if op == "$exists":
        return bool(found) is operand
    if not found:
        return False
    value = found[0]
    if op == "$eq":
        return bool(tagged(value) == tagged(operand))
    if op == "$in":
        return tagged(value) in tagged(operand)
    if op == "$prefix":
        return isinstance(value, str) and value[: len(operand)] == operand
    if op == "$contains":
        if isinstance(value, list):
            return tagged(operand) in tagged(value)
        return bool(kind(operand) == "text" and isinstance(value, str | dict) and operand in value)
    if kind(value) != kind(operand) or kind(value) == "none":
        return False
    below, above = bool(value < operand), bool(value > operand)
    return {"$gt": above, "$gte": not below, "$lt": below, "$lte": not above}[op]


def naive(where: Any, data: Any) -> bool:
    for name, operand in where.items():
        if name in ("$and", "$or"):
            wanted = all if name == "$and" else any
            result = wanted([naive(each, data) for each in operand])
        elif name == "$not":
            result = not naive(operand, data)
        else:
            plain = not (isinstance(operand, dict) and any(each.startswith("$") for each in operand))
            ops = {"$eq": operand} if plain else operand
            result = all(naive_op(op, value, find(data, name)) for op, value in ops.items())
        if not result:
            return False
    return True


@settings(max_examples=examples(200))
@given(wheres, st.lists(datas, min_size=1, max_size=10))
def test_matches_agrees_with_the_naive_evaluator(where: Any, records: list[dict[str, Any]]) -> None:
    query = Query(where=where)
    for data in records:
        assert query.matches(Datum(data=data)) is naive(where, data), data
        assert query.filter.test(data) is naive(where, data), data


def test_every_operator_on_every_pair_of_values() -> None:
    rng = random.Random(7)
    pool: list[Any] = [
        None, True, False, 0, 1, 1.0, -0.0, 2, 2**53, float(2**53), 2**53 + 1, "", "a", "ab", [], [1],
        [True], ["a"],
        [None], [[1]], {}, {"a": 1}, {"a": True}, {"a": {"a": 1}}, [{"a": 1}],
    ]  # fmt: skip
    for value in pool:
        for operand in pool:
            several = [operand, rng.choice(pool), rng.choice(pool)]
            for op in ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$contains", "$prefix"):
                if op in ("$gt", "$gte", "$lt", "$lte") and kind(operand) == "none":
                    continue
                if op == "$prefix" and not isinstance(operand, str):
                    continue
                where = {"a": {op: several if op in ("$in", "$nin") else operand}}
                assert holds(where, a=value) is naive(where, {"a": value}), (where, value)


def test_operators_without_their_sign_are_refused() -> None:
    for operand in ({"gte": 1}, {"gte": 1, "lt": 5}, {"in": [1]}, {"exists": False}, {"not": {"$gt": 1}}):
        with pytest.raises(QueryError, match="without"):
            Query(where={"stars": operand})
    Query(where={"stars": {"$eq": {"gte": 1}}})
    Query(where={"wind": {"speed": 1}})
    Query(where={"wind": {"speed": 1, "gte": 2}})
    Query(where={"wind": {}})


def test_an_operand_with_a_kind_compares_by_what_it_is() -> None:
    datum = Datum.create({"price": "1E+2", "wait": "PT90S", "when": "12:00:00+02:00", "list": ["1.0"]})
    for where in (
        {"price": Decimal(100)},
        {"price": {"$gt": Decimal("99.9"), "$lte": Decimal(100)}},
        {"price": {"$in": [Decimal("1E2")]}},
        {"price": {"$nin": [Decimal("1E3")]}},
        {"wait": {"$lt": timedelta(minutes=2)}},
        {"when": {"$gt": time(9, 59, tzinfo=UTC), "$lt": time(10, 1, tzinfo=UTC)}},
        {"list": {"$contains": Decimal(1)}},
    ):
        assert Query(where=where).matches(datum), where
    assert not Query(where={"price": {"$gt": Decimal(100)}}).matches(datum)
    assert not Query(where={"price": timedelta(1)}).matches(datum)
    for odd in (Decimal("NaN"), Decimal("sNaN")):
        with pytest.raises(QueryError):
            Query(where={"price": odd})
    assert Query(where={"a": Decimal(1)}).digest() == Query(where={"a": Decimal(1)}).digest()
