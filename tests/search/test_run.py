"""Runs have the same words of records as counting them one by one finds, however they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.search import bulk, record
from dgent.search.record import CREATED, RecordTexts, count_record, read_texts
from dgent.search.run import Run, make_run, unpack_run
from dgent.search.score import encode_length

FIELDS = (("title", 3), ("body", 1))
AT_US = 1_700_000_000_000_000
WORDS = (
    *("red", "barn", "red.", "user_id", "Tuesday", "2023-11-14", "don't", "naïve", "東京都", "--", "U.S.A."),
    *("v1.2", "joe@example.com", "x" * 70, "🙂", "Mel's", "½"),
)
TEXT = st.lists(st.sampled_from(WORDS), max_size=9)
DATA = st.fixed_dictionaries({"title": TEXT.map(" ".join), "body": TEXT.map(" ".join)})

Make = Callable[[Sequence[tuple[int, int, RecordTexts | None]]], tuple[Run, list[int]]]
KNOWN = bulk.Vocabulary()
WAYS: dict[str, Make] = {
    "one by one": make_run,
    "in columns": lambda records: bulk.make_run(records, bulk.Vocabulary()),
    "in columns, with known words": lambda records: bulk.make_run(records, KNOWN),
}


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("most", [record._MOST_LISTED, 3])
@given(several=st.lists(st.one_of(DATA, st.none()), max_size=5), first=st.sampled_from([1, 2**32 - 2, 2**40]))
def test_a_run_has_the_words_of_its_records(
    several: list[dict[str, str] | None], first: int, most: int, make: Make
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "_MOST_LISTED", most)
        records = [
            (first + place, 7, None if data is None else read_texts(FIELDS, CREATED, data, AT_US))
            for place, data in enumerate(several)
        ]
        made, sizes = make(records[::-1])
        run = unpack_run(made.pack())
    expected, lengths = set(), []
    for place, data in enumerate(several):
        counted = count_record(FIELDS, CREATED, data, AT_US) if data is not None else None
        lengths.append(counted.size if counted else 0)
        for word, code in () if counted is None else counted.codes.items():
            expected.add((word, first + place, min(code >> 8, 255), encode_length(lengths[-1]), code & 255))
    postings = [*run]
    assert len(postings) == len(expected) and {*postings} == expected
    assert run.keys == [key for key, _, _ in records] and sizes == lengths


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
def test_a_word_that_is_repeated_often_counts_255_times(make: Make) -> None:
    data = {"body": "barn " * 300}
    for most in (10, 10_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record, "_MOST_LISTED", most)
            run, _ = make([(1, 1, read_texts((("body", 1),), "", data, 0))])
        assert [posting[:3] for posting in run] == [("barn", 1, 255)]


def test_a_vocabulary_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MAX_KNOWN", 20)
    known = bulk.Vocabulary()
    for start in range(0, 200, 10):
        text = " ".join(f"w{number} a-{number}" for number in range(start, start + 10))
        record = [(1, 1, RecordTexts([(text, 1)], []))]
        assert {*bulk.make_run(record, known)[0]} == {*make_run(record)[0]}
        assert max(len(known), len(known.terms), len(known.several)) <= 60
