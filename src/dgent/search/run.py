"""Runs: the words of some records, written together before they are merged into the pages of words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, repeat
from operator import add
from typing import Any

import msgspec

from dgent.errors import Corrupt
from dgent.search.postings import Postings
from dgent.search.score import encode_length

MOST = 255  # records in a run: a posting names one by a byte
MAX_COUNT = 255
_ABOVE_KEYS = 2**64
_decode = msgspec.msgpack.Decoder(tuple[list[int], list[int], bytes, dict[str, bytes]]).decode


class Run:
    """The versions of some records, in order: keys, revs (0 for those that are gone), lengths and words.

    `words` has for each word two bytes for each record that has it: which one, and how often.
    """

    def __init__(
        self, keys: Sequence[int], revs: Sequence[int], sizes: bytes, words: Mapping[str, bytes]
    ) -> None:
        self.keys, self.revs, self.sizes, self.words = keys, revs, sizes, words

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of each record, by its key."""
        return {key: place for place, key in enumerate(self.keys)}

    @cached_property
    def size_table(self) -> bytes:
        """The length byte of each place, for `bytes.translate`."""
        return self.sizes.ljust(256, b"\0")

    def find_begun(self, text: str) -> Sequence[str]:
        """Return its words that begin with a text, in order."""
        names = self.names
        return names[bisect_left(names, text) : bisect_left(names, f"{text}\U0010ffff")]

    @cached_property
    def names(self) -> list[str]:
        """Its words in order."""
        return sorted(self.words)

    def __iter__(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield each posting: word, key, count and length byte."""
        keys, sizes = self.keys, self.sizes
        for word, raw in self.words.items():
            for at in range(0, len(raw), 2):
                place = raw[at]
                yield word, keys[place], raw[at + 1], sizes[place]

    @cached_property
    def by_record(self) -> dict[int, list[str]]:
        """The words of each record, by its key."""
        found: dict[int, list[str]] = {key: [] for key in self.keys}
        for word, raw in self.words.items():
            for place in raw[::2]:
                found[self.keys[place]].append(word)
        return found

    def without(self, record_keys: Collection[int]) -> Run:
        """Return the run without some records."""
        places = [place for place, key in enumerate(self.keys) if key not in record_keys]
        moved = {place: new for new, place in enumerate(places)}
        words: dict[str, bytes] = {}
        for word, raw in self.words.items():
            kept = [(moved[p], count) for p, count in zip(raw[::2], raw[1::2], strict=True) if p in moved]
            if kept:
                words[word] = bytes(byte for pair in kept for byte in pair)
        return Run(
            [self.keys[place] for place in places],
            [self.revs[place] for place in places],
            bytes(self.sizes[place] for place in places),
            words,
        )

    def pack(self) -> bytes:
        """Return the run as stored."""
        return msgspec.msgpack.encode((self.keys, self.revs, self.sizes, self.words))


class RunSet:
    """Some runs, the oldest first; of each record the newest of them counts."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.newest = {key: run for run in runs for key in run.keys}
        self.keys = frozenset(self.newest)
        self.first = min(self.keys, default=_ABOVE_KEYS)
        self._are_apart = len(self.newest) == sum(len(run.keys) for run in runs)

    def find(self, word: str) -> Postings:
        """Return the records that have a word, in the order of the runs."""
        keys: list[int] = []
        counts: list[bytes] = []
        sizes: list[bytes] = []
        for run in self.runs:
            raw = run.words.get(word)
            if raw is None:
                continue
            places = raw[::2]
            keys += map(run.keys.__getitem__, places)
            counts.append(raw[1::2])
            sizes.append(places.translate(run.size_table))
        found = Postings(keys, b"".join(counts), b"".join(sizes))
        return found if self._are_apart or not keys else self._leave_old(word, found)

    def _leave_old(self, word: str, found: Postings) -> Postings:
        """Return postings without those of older versions."""
        of = chain.from_iterable(repeat(run, len(run.words.get(word, b"")) // 2) for run in self.runs)
        return found.select([self.newest[key] is run for key, run in zip(found.keys, of, strict=True)])


def make_run(records: Sequence[tuple[int, int, Mapping[str, int], int]]) -> Run:
    """Make a run of records: key, rev, the counts of their words, and their length in words."""
    words: dict[str, bytes] = {}
    for place, (_, _, counts, _) in enumerate(records):
        pairs = _pairs(place)
        before = map(words.get, counts, repeat(b""))
        added = map(pairs.__getitem__, map(min, counts.values(), repeat(MAX_COUNT)))
        words.update(zip(counts, map(add, before, added), strict=True))
    return Run(
        [record[0] for record in records],
        [record[1] for record in records],
        bytes(encode_length(record[3]) for record in records),
        words,
    )


@lru_cache(maxsize=256)
def _pairs(place: int) -> list[bytes]:
    """Return what stands for a record that has a word, by how often it has it."""
    return [bytes((place, count)) for count in range(MAX_COUNT + 1)]


def unpack_run(raw: bytes) -> Run:
    """Return a run from its bytes."""
    try:
        keys, revs, sizes, words = _decode(raw)
        if not len(keys) == len(revs) == len(sizes):
            raise ValueError("its columns differ in length")
        most: Any = max((max(found[::2], default=0) for found in words.values()), default=0)
        if most >= max(len(keys), 1) or any(len(found) % 2 for found in words.values()):
            raise ValueError("a word is of a record that it does not have")
    except (msgspec.DecodeError, ValueError) as error:
        hint = "`dgent doctor --deep --fix` builds the index anew"
        raise Corrupt(f"a run of a text index is damaged: {error}", hint=hint) from None
    return Run(keys, revs, sizes, words)
