"""Postings of the words of a search, joined by record: who has several words, and how often each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import chain, compress, islice, repeat
from operator import add, eq
from typing import NamedTuple

from dgent.search.loaded import find_columns
from dgent.search.postings import Postings

_LEVELS = 8
_SPARSE = 8
_FITTING = 20  # the same, where only neighbours are compared

_BYTES = range(256)


class SoughtWord(NamedTuple):
    """A word of a search: its place among the words, and its postings from several places, each in order."""

    place: int
    found: Sequence[Postings]
    rarity: float
    most: float  # no record gets more for this word
    near: int  # the neighbours that it must have

    @property
    def records(self) -> int:
        """The number of records that have it."""
        return sum(len(some.keys) for some in self.found)

    @property
    def keys(self) -> Iterator[int]:
        """The records that have it."""
        return chain.from_iterable(some.keys for some in self.found)

    @property
    def fitting(self) -> Iterator[int]:
        """The records in which it has its neighbours."""
        if not self.near:
            return self.keys
        having = _having(self.near)
        return chain.from_iterable(compress(some.keys, some.near.translate(having)) for some in self.found)

    def find_fitting(self, record_keys: set[int]) -> set[int]:
        """Return those of some records in which it has its neighbours."""
        if len(record_keys) * _FITTING >= self.records:
            return record_keys.intersection(self.fitting)
        having, in_order = _having(self.near), sorted(record_keys)
        fitting: set[int] = set()
        for some in self.found:
            here, places = _find_places(some.keys, in_order)
            fitting.update(compress(here, map(having.__getitem__, map(some.near.__getitem__, places))))
        return fitting


def find_levels(words: Sequence[SoughtWord]) -> list[list[int]]:
    """Return the records with two of the words, those with three, and so on; some are there repeatedly."""
    if columns := find_columns():
        found: list[list[int]] = columns.find_levels(words, len(words[1:_LEVELS]))
        return found
    every = [*chain.from_iterable(some.keys for word in words for some in word.found)]
    every.sort()
    levels: list[list[int]] = []
    for _ in words[1:_LEVELS]:
        # A record that is there n times follows itself n - 1 times.
        every = [*compress(every, map(eq, every, islice(every, 1, None)))]
        levels.append(every)
    return levels


def find_common(words: Iterable[SoughtWord]) -> Set[int]:
    """Return the records that have all of some words with their neighbours."""
    rarest, *others = sorted(words, key=lambda word: word.records)
    if columns := find_columns():
        return {*columns.find_common((rarest, *others))}
    having = set(rarest.fitting)
    for word in others:
        having = word.find_fitting(having)
    return having


def complete(record_keys: Set[int], words: Collection[SoughtWord]) -> dict[int, int]:
    """Return the signatures of those of some records that have one of the words."""
    if columns := find_columns():
        signed: dict[int, int] = columns.complete(record_keys, words)
        return signed
    found: dict[int, int] = {}
    in_order: list[int] = []
    for word in words:
        shifted = shift_counts(word.place)
        for keys, counts, sizes, _ in word.found:
            if len(record_keys) * _SPARSE < len(keys):
                in_order = in_order or sorted(record_keys)
                having, places = _find_places(keys, in_order)
                before = map(found.get, having, map(sizes.__getitem__, places))
                more = map(shifted.__getitem__, map(counts.__getitem__, places))
            else:
                here = [*map(record_keys.__contains__, keys)]
                having = [*compress(keys, here)]
                before = map(found.get, having, compress(sizes, here))
                more = map(shifted.__getitem__, compress(counts, here))
            found.update(zip(having, map(add, before, more), strict=True))
    return found


def _find_places(keys: Sequence[int], wanted: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return those of some keys, in order, that are among others in order, and where these are."""
    places = [*map(bisect_left, repeat(keys), wanted)]
    end = bisect_left(places, len(keys))  # others are above all
    here = [*map(eq, wanted, map(keys.__getitem__, islice(places, end)))]
    return [*compress(wanted, here)], [*compress(places, here)]


@lru_cache(maxsize=256)
def _having(near: int) -> bytes:
    """Return for each byte of neighbours 1 if it has some bits, else 0."""
    return bytes(value & near == near for value in _BYTES)


@lru_cache(maxsize=128)
def shift_counts(place: int) -> tuple[int, ...]:
    """Return each count as it is added to a signature for the word at a place."""
    return tuple(count << 8 * place + 8 for count in range(256))
