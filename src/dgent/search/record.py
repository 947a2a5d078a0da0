"""The words of a record: those of its texts, by weight, and those of its time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from dgent.model import path as paths
from dgent.search.dates import date_words
from dgent.search.score import weigh_fields
from dgent.search.words import count_words

CREATED = "@created_at"
"""The name of the time of creation in a declaration; that of a field is a dot and its path."""

_DAY_US = 86_400_000_000
_FIRST_DAY = date(1970, 1, 1).toordinal()
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])")


class Words(NamedTuple):
    """The words of one record: how often it has each, weighted, and how many those of its texts are."""

    counts: Mapping[str, int]
    size: int


def count_record(
    text: Sequence[tuple[str, int]], dates: str, data: Mapping[str, Any], created_us: int
) -> Words:
    """Return the words of a record with texts at some paths, each with a weight, and a time.

    The words of the time do not count as length: they say nothing of how long the texts are, and a search
    for other words is not to change with them.
    """
    fields: dict[str, Counter[str]] = {}
    for path, _ in text:
        first, *more = (*map(count_words, texts_at(data, path)),) or (Counter(),)
        for found in more:
            first.update(found)
        fields[path] = first
    counts, size = weigh_fields(fields, dict(text))
    for day in _days(dates, data, created_us):
        for word in date_words(day):
            counts[word] = counts.get(word, 0) + 1
    return Words(counts, size)


def texts_at(data: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the texts at a path: one, or those of a list or a map; those of all fields at `paths.EVERY`."""
    left = [data if path == paths.EVERY else paths.read(data, paths.parse(path))]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            left += reversed(value)
        elif isinstance(value, dict):
            left += reversed(value.values())


def _days(dates: str, data: Mapping[str, Any], created_us: int) -> Iterator[date]:
    """Yield the days by whose words a record is found; of a field, as they are written there."""
    if dates == CREATED:
        yield date.fromordinal(created_us // _DAY_US + _FIRST_DAY)
    elif dates:
        for text in texts_at(data, dates[1:]):
            if found := _DATE.match(text):
                try:
                    yield date(*map(int, found.groups()))
                except ValueError:
                    continue  # such as the 30th of February
