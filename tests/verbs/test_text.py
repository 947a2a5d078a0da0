"""What people type."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgent
from dgent.verbs import parse


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("weight>=3", {"weight": {"$gte": 3}}),
        ("weight > 3", {"weight": {"$gt": 3}}),
        ("a.b<=1.5", {"a.b": {"$lte": 1.5}}),
        ("name=ann", {"name": {"$eq": "ann"}}),
        ('name="3"', {"name": {"$eq": "3"}}),
        ("name!=null", {"name": {"$ne": None}}),
        ("name^=sh", {"name": {"$prefix": "sh"}}),
        ("tags~=red", {"tags": {"$contains": "red"}}),
        ("done=true", {"done": {"$eq": True}}),
        ("empty=", {"empty": {"$eq": ""}}),
        ("note=a=b", {"note": {"$eq": "a=b"}}),
        ('{"n": {"$in": [1, 2]}}', {"n": {"$in": [1, 2]}}),
    ],
)
def test_conditions(typed: str, meant: Any) -> None:
    assert parse.where([typed]) == meant
    assert dgent.Query(where=parse.where([typed])).filter.parts


def test_several_conditions_all_hold() -> None:
    assert parse.where(["a>1", "a<5"]) == {"$and": [{"a": {"$gt": 1}}, {"a": {"$lt": 5}}]}
    assert parse.where([]) is None


@pytest.mark.parametrize("typed", ["", "weight", ">=3", "{", "[1]x", '{"a"}'])
def test_no_condition(typed: str) -> None:
    with pytest.raises(dgent.InputError):
        parse.where([typed])


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_refused(typed: str) -> None:
    try:
        meant = parse.where([typed])
        dgent.Query(where=meant)
    except dgent.InputError:
        return
    assert isinstance(meant, dict)


@pytest.mark.parametrize(
    ("typed", "ago"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("2h ago", timedelta(hours=2)),
        ("3d", timedelta(days=3)),
        ("1w", timedelta(weeks=1)),
    ],
)
def test_long_ago(typed: str, ago: timedelta) -> None:
    assert abs(datetime.now(UTC) - ago - parse.moment(typed, "since")) < timedelta(seconds=5)


def test_moments() -> None:
    assert parse.moment("2026-01-31", "since") == datetime(2026, 1, 31, tzinfo=UTC)
    assert parse.moment("2026-01-31T12:00+02:00", "since") == datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert parse.point("12") == 12
    assert parse.point(None) is None
    for wrong in ("soon", "31.1.2026", "", "99999999999999d", "٣d"):
        with pytest.raises(dgent.InputError, match="since"):
            parse.moment(wrong, "since")


def test_data() -> None:
    assert parse.data("ship it") == {"text": "ship it"}
    assert parse.data(' {"a": 1}') == {"a": 1}
    assert parse.data({"a": 1}) == {"a": 1}
    for wrong in ("{a}", "{", '{"a": 1} x', 3, None, "", " "):
        with pytest.raises(dgent.InputError):
            parse.data(wrong)


@pytest.mark.parametrize(
    "typed", ["weight=>3", "weight==5", "weight=<3", "weight = >3", "a!==b", "a>>1", "a=!b", "a~=~b", "a^==b"]
)
def test_an_operator_that_is_none_is_refused(typed: str) -> None:
    with pytest.raises(dgent.InputError, match="is not an operator") as caught:
        parse.where([typed])
    assert ">=" in caught.value.hint


def test_a_text_that_begins_like_an_operator_is_quoted() -> None:
    assert parse.where(['a=">3"']) == {"a": {"$eq": ">3"}}
    assert parse.where(['a~="=="']) == {"a": {"$contains": "=="}}
