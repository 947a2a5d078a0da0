"""Scores: rarer words and more of them count more, lengths fit a byte, threads lend words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.search.record import count_record
from dgent.search.score import (
    K1,
    LENGTHS,
    encode_length,
    idf,
    norms,
    saturate,
)
from dgent.search.thread import best_parts, neighbours, score_in_thread


def test_lengths_are_exact_when_short_and_close_when_long() -> None:
    assert LENGTHS[:33] == (*range(32), 33)
    assert [encode_length(length) for length in LENGTHS] == list(range(256))
    assert LENGTHS[255] > 500_000
    assert encode_length(10**9) == 255


@given(st.integers(0, 500_000))
def test_a_length_is_kept_within_one_in_thirty_two(length: int) -> None:
    assert abs(LENGTHS[encode_length(length)] - length) <= length / 32


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_longer_texts_have_no_smaller_byte(one: int, other: int) -> None:
    assert encode_length(min(one, other)) <= encode_length(max(one, other)) <= 255


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_rarer_words_weigh_more_and_none_nothing(total: int, one: int, other: int) -> None:
    assert idf(total, min(one, other)) >= idf(total, max(one, other)) > 0


def test_the_formula_of_bm25() -> None:
    assert idf(10, 2) == math.log(1 + 8.5 / 2.5)
    assert norms(20)[20] == pytest.approx(K1)
    assert saturate(3, 0.9) == 3 / 3.9
    assert saturate(0, 0.9) == 0
    assert norms(0) == norms(1)


@given(st.integers(1, 1000), st.integers(0, 255))
def test_counts_help_less_and_less_and_length_hurts(count: int, length: int) -> None:
    norm = norms(50)
    first, second, third = (saturate(count + more, norm[length]) for more in range(3))
    assert 0 < first < second < third < 1
    assert second - first > third - second
    assert length == 255 or saturate(count, norm[length + 1]) < first


def test_fields_count_by_their_weight() -> None:
    weights = (("summary", 3), ("body", 1))
    words = count_record(weights, "", {"summary": "red barn", "body": "red, red"}, 0)
    assert ({word: words.count(word) for word in words.codes}, words.size) == ({"red": 5, "barn": 3}, 8)
    assert count_record(weights, "", {}, 0) == ({}, 0)


def test_neighbours_lend_their_best_words() -> None:
    question, aside, answer = {"barn": 2.0, "paint": 1.0}, {"paint": 1.5}, {"red": 1.0}
    assert best_parts([question, aside, answer]) == {"barn": 2.0, "paint": 1.5, "red": 1.0}
    assert score_in_thread(answer, [question, aside, answer]) == 1.0 + 4.5
    assert score_in_thread({}, [question, aside]) == 3.5


def test_only_near_neighbours_lend() -> None:
    assert list(neighbours(0, 2)) == [0, 1]
    assert list(neighbours(5, 100)) == [3, 4, 5, 6, 7]
