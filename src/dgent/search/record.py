"""The words of a record: those of its texts, by weight, and those of its time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, NamedTuple

from dgent.model import path as paths
from dgent.search.dates import date_words
from dgent.search.words import add_words, split_words

CREATED = "@created_at"
"""The name of the time of creation in a declaration; that of a field is a dot and its path."""

MAX_COUNT = 255
_MOST_LISTED = 2_000  # longer records are counted: a word may stand in them a million times
_DAY_US = 86_400_000_000
_FIRST_DAY = date(1970, 1, 1).toordinal()
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])")


class Words(NamedTuple):
    """The words of one record: the code of each, as `add_words` says, and how many those of its texts are."""

    codes: Mapping[str, int]
    size: int

    def count(self, word: str) -> int:
        """Return how often the record has a word, by weight, as far as an index counts."""
        return min(self.codes.get(word, 0) >> 8, MAX_COUNT)


class RecordTexts(NamedTuple):
    """The texts of one record, each with its weight, and the words of its time."""

    texts: Sequence[tuple[str, int]]
    dated: Sequence[str]


class ListedWords(NamedTuple):
    """The words of one record, perhaps with repetitions, and how many those of its texts are.

    The facts of each word are two bytes: its neighbours and its count.
    """

    words: Sequence[str]
    facts: Iterable[bytes]
    size: int


def count_record(
    text: Sequence[tuple[str, int]], dates: str, data: Mapping[str, Any], created_us: int
) -> Words:
    """Return the words of a record with texts at some paths, each with a weight, and a time.

    A word counts as often as the weight of its field says, and so does the length (the simple form of BM25F).
    The words of the time do not count as length: they say nothing of how long the texts are, and a search
    for other words is not to change with them.
    """
    return _count_texts(read_texts(text, dates, data, created_us))


def _count_texts(record: RecordTexts) -> Words:
    codes: dict[str, int] = {}
    size = sum(add_words(codes, text, weight) for text, weight in record.texts)
    for word in record.dated:
        codes[word] = codes.get(word, 0) + 256
    return Words(codes, size)


def read_texts(
    text: Sequence[tuple[str, int]], dates: str, data: Mapping[str, Any], created_us: int
) -> RecordTexts:
    """Return the texts of a record at some paths, each with a weight, and the words of its time."""
    found = [(each, weight) for path, weight in text for each in texts_at(data, path)]
    return RecordTexts(found, [word for day in _days(dates, data, created_us) for word in date_words(day)])


def list_words(record: RecordTexts) -> ListedWords:
    """Return the words of a record as `count_record` does, but not counted.

    That is quicker where many records are indexed at once, since their words are gathered anyway.
    """
    words: list[str] = []
    facts: list[Iterable[bytes]] = []
    size = 0
    for text, weight in record.texts:
        pack = _pack_facts(weight).__getitem__
        for some, near in split_words(text):
            words += some
            facts.append(map(pack, near))
            size += len(some) * weight
            if len(words) > _MOST_LISTED:
                return _list_counted(_count_texts(record))
    words += record.dated
    facts.append(repeat(_pack_facts(1)[0], len(record.dated)))
    return ListedWords(words, chain.from_iterable(facts), size)


def _list_counted(counted: Words) -> ListedWords:
    facts = (bytes((code & 255, min(code >> 8, MAX_COUNT))) for code in counted.codes.values())
    return ListedWords([*counted.codes], facts, counted.size)


@lru_cache(maxsize=64)
def _pack_facts(weight: int) -> Sequence[bytes]:
    """Return the facts of a word that stands once in a text of some weight, by its neighbours."""
    return [bytes((near, min(weight, MAX_COUNT))) for near in range(256)]


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
