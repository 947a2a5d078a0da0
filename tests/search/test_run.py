"""Runs have the same words of records as counting them one by one finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.search import record
from dgent.search.record import CREATED, count_record, list_record
from dgent.search.run import make_run, unpack_run
from dgent.search.score import encode_length

FIELDS = (("title", 3), ("body", 1))
AT_US = 1_700_000_000_000_000
WORDS = ("red", "barn", "red.", "user_id", "Tuesday", "2023-11-14", "don't", "naïve", "東京都")
TEXT = st.lists(st.sampled_from(WORDS), max_size=9)
DATA = st.fixed_dictionaries({"title": TEXT.map(" ".join), "body": TEXT.map(" ".join)})


@pytest.mark.parametrize("most", [record._MOST_LISTED, 3])
@given(several=st.lists(st.one_of(DATA, st.none()), max_size=5), first=st.sampled_from([1, 2**32 - 2, 2**40]))
def test_a_run_has_the_words_of_its_records(
    several: list[dict[str, str] | None], first: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "_MOST_LISTED", most)
        records = [
            (first + place, 7, None if data is None else list_record(FIELDS, CREATED, data, AT_US))
            for place, data in enumerate(several)
        ]
        run = unpack_run(make_run(records[::-1]).pack())
    expected = set()
    for place, data in enumerate(several):
        counted = count_record(FIELDS, CREATED, data, AT_US) if data is not None else None
        for word, code in () if counted is None else counted.codes.items():
            size = encode_length(counted.size) if counted else 0
            expected.add((word, first + place, min(code >> 8, 255), size, code & 255))
    postings = [*run]
    assert len(postings) == len(expected) and {*postings} == expected
    assert run.keys == [key for key, _, _ in records]


def test_a_word_that_is_repeated_often_counts_255_times() -> None:
    data = {"body": "barn " * 300}
    for most in (10, 10_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record, "_MOST_LISTED", most)
            run = make_run([(1, 1, list_record((("body", 1),), "", data, 0))])
        assert [posting[:3] for posting in run] == [("barn", 1, 255)]
