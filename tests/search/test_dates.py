"""The time of a record is found as people and programs ask for it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from dgent.search.dates import date_words
from dgent.search.wanted import parse_search

DAY = datetime(2024, 5, 7, 23, 59, tzinfo=UTC)


def test_words_of_a_day() -> None:
    assert date_words(DAY) == ("2024", "may", "7", "tuesday", "2024-05-07", "2024-05")
    assert date_words(date(987, 1, 2), None) == ("0987", "january", "2", "tuesday", "0987-01-02", "0987-01")


@pytest.mark.parametrize("asked", ["7 May 2024", "in May?", "on Tuesday", "2024-05", "2024-05-07"])
def test_a_day_is_found_as_it_is_asked_for(asked: str) -> None:
    assert set(parse_search(asked).words) & set(date_words(DAY))


def test_every_name_is_found() -> None:
    for day in range(366):
        moment = DAY + timedelta(days=day)
        asked = parse_search(moment.strftime("%A %B %Y"), "english").words
        assert set(asked) <= set(date_words(moment))
