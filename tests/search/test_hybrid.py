"""Two rankings as one: what stands out counts, and a leg that is sure of nothing changes nothing."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dgent.search.hybrid import CANDIDATES, JoinedScore, join_legs

LIMIT = CANDIDATES


def ranked(scores: dict[str, JoinedScore]) -> list[str]:
    return sorted(scores, key=lambda id: -scores[id].score)


def leg(*scores: float, first: str = "r", fill: float = 0.0) -> dict[str, float]:
    """Scores of r0, r1, …, then `fill` for others until the leg is full."""
    found = {f"{first}{number}": score for number, score in enumerate(scores)}
    return found | {f"{first}-{number}": fill for number in range(LIMIT - len(found)) if fill}


def test_one_leg_alone_keeps_its_order() -> None:
    words = {"a": 9.0, "b": 5.0, "c": 1.0}
    assert ranked(join_legs(words, {}, LIMIT)) == ["a", "b", "c"]
    assert ranked(join_legs({}, words, LIMIT)) == ["a", "b", "c"]
    assert join_legs({}, {}, LIMIT) == {}


def test_both_legs_add_up() -> None:
    found = join_legs({"a": 8.0, "b": 6.0}, {"b": 0.8, "c": 0.3}, LIMIT)
    assert ranked(found) == ["b", "a", "c"]
    assert found["b"] == (1.55, 0.75, 0.8) and found["a"] == (1.3, 1.0, 0.3)


def test_a_leg_whose_candidates_are_equal_changes_nothing() -> None:
    words = leg(9.0, 5.0, 4.0, fill=1.0)
    flat = leg(0.41, first="x", fill=0.4)
    joined = join_legs(words, flat, LIMIT)
    assert ranked(joined)[:3] == ["r0", "r1", "r2"]
    words, near = leg(3.0, first="x", fill=2.99), leg(0.8, 0.7, fill=0.1)
    assert ranked(join_legs(words, near, LIMIT))[:2] == ["r0", "r1"]


def test_equal_records_stay_in_the_order_of_the_legs() -> None:
    found = join_legs({"a": 2.0, "b": 2.0}, {}, LIMIT)
    assert ranked(found) == ["a", "b"]
    assert ranked(join_legs({}, {"b": 0.5, "a": 0.5}, LIMIT)) == ["b", "a"]


def test_scores_below_zero_are_scores() -> None:
    assert ranked(join_legs({}, {"a": -0.1, "b": -0.4}, LIMIT)) == ["a", "b"]


legs = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=2), st.floats(0.01, 1), max_size=70).map(
    lambda found: dict(sorted(found.items(), key=lambda each: -each[1]))
)


@given(legs, legs)
def test_every_record_is_there_once_and_order_follows_both_legs(
    words: dict[str, float], near: dict[str, float]
) -> None:
    limit = max(LIMIT, len(words), len(near))
    found = join_legs(words, near, limit)
    assert found.keys() == words.keys() | near.keys()
    order = list(words)
    for one, other in pairwise(order):
        if near.get(one, 0) >= near.get(other, 0) and {one, other} <= near.keys():
            assert found[one].score >= found[other].score


def test_a_record_that_waits_for_its_vector_is_not_pushed_aside() -> None:
    words = {"new": 9.0, "a": 6.0, "b": 5.0}
    near = {"a": 0.8, "b": 0.7, "c": 0.1}
    assert ranked(join_legs(words, near, LIMIT))[0] == "a"
    assert ranked(join_legs(words, near, LIMIT, complete=False))[0] == "new"
