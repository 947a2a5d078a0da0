"""A record's time as words: a note of 2024-05-07 is found by `may`, `tuesday` or `2024-05`."""

from __future__ import annotations

from datetime import date
from functools import lru_cache

from dgent.search.words import Language, count_words

_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def date_words(moment: date, language: Language = "english") -> tuple[str, ...]:
    """Return the words by which a day, or the day of a datetime as it is written, can be found.

    The year, the month by name, the day of the month and of the week, as people ask; the day and the month as
    ISO 8601 writes them, as programs ask. For 2024-05-07: `2024`, `may`, `7`, `tuesday`, `2024-05-07` and
    `2024-05`. Names are English, stemmed as a search for them will be.
    """
    return _day_words(moment.toordinal(), language)


@lru_cache(maxsize=1024)
def _day_words(number: int, language: Language) -> tuple[str, ...]:
    day = date.fromordinal(number)
    year, month = f"{day.year:04}", f"{day.year:04}-{day.month:02}"
    named = f"{year} {_MONTHS[day.month - 1]} {day.day} {_DAYS[day.weekday()]}"
    return (*count_words(named, language), f"{month}-{day.day:02}", month)
