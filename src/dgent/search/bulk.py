"""Runs of many records at once, made in columns: the words of all texts as numbers, sorted together.

`run.make_run` says what a run has; this is another way to the same, worth loading numpy where thousands of
records wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from dgent.search.record import MAX_COUNT, RecordTexts
from dgent.search.run import FACTS, Run, find_lane
from dgent.search.score import encode_length
from dgent.search.words import MAX_KNOWN, code_terms, is_remembered, split_spans

_APART = 1 << 24  # in the number of a word: it has no neighbours
_NUMBER = _APART - 1
_FACT_BITS = 16  # of the neighbours and the weight of a word, below its number and its record
_AFTER, _BEFORE = 15, 240  # the bits of a word that follows, and of one that stands before

Numbers = NDArray[np.int64]
Bytes = NDArray[np.uint8]


class Vocabulary(dict[str, int]):
    """Numbers of the words of texts, by the spans they stand in.

    A span with several words, or with none, has a negative number, by which `several` has theirs.
    """

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.clear()
        self.terms: list[str] = []
        self.bits = bytearray()
        self.several: list[tuple[int, ...]] = [()]  # the first is not used: no number is minus zero
        self._of_term: dict[str, int] = {}

    def make_room(self) -> None:
        """Forget all words if there are many; their numbers begin anew."""
        if len(self) >= MAX_KNOWN or len(self.terms) >= MAX_KNOWN or len(self.several) >= MAX_KNOWN:
            self._start()

    def number(self, term: str) -> int:
        """Return the number of a word that has no neighbours."""
        return self._number(term) | _APART

    def _number(self, term: str, bits: int = 0) -> int:
        found = self._of_term.get(term)
        if found is None:
            found = self._of_term[term] = len(self.terms)
            self.terms.append(term)
            self.bits.append(bits)
        elif bits:
            self.bits[found] = bits
        return found

    def __missing__(self, span: str) -> int:
        coded = [*code_terms(span)]
        numbers = [self._number(term, bits) if bits else self.number(term) for term, bits in coded]
        if len(numbers) == 1 and not numbers[0] & _APART:
            found = numbers[0]
        else:
            found = -len(self.several)
            self.several.append(tuple(numbers))
        if is_remembered(span):
            self[span] = found
        return found


def make_run(
    records: Sequence[tuple[int, int, RecordTexts | None]], known: Vocabulary
) -> tuple[Run, list[int]]:
    """Make a run of records, as `run.make_run` does."""
    known.make_room()
    records = sorted(records, key=lambda record: record[0])
    there = [(place, texts) for place, (_, _, texts) in enumerate(records) if texts is not None]
    spans: list[str] = []
    ends: list[int] = []  # of each text among the spans
    of: list[tuple[int, int]] = []  # the record of each text, and its weight
    for place, (texts, _) in there:
        for text, weight in texts:
            spans += split_spans(text)
            ends.append(len(spans))
            of.append((place, weight))
    numbers = np.fromiter(map(known.__getitem__, spans), np.int64, len(spans))
    numbers, ends_at = _spread(numbers, np.array(ends, np.int64), known)
    place_of, weight_of = np.array(of, np.int64).reshape(-1, 2).T
    lengths = np.diff(ends_at, prepend=0)
    sizes = np.bincount(place_of, lengths * weight_of, len(records)).astype(np.int64).tolist()
    places, weights = np.repeat(place_of, lengths), np.repeat(np.minimum(weight_of, MAX_COUNT), lengths)
    near = _find_near(numbers, np.repeat(np.arange(len(of)), lengths), known)
    dated = [(known.number(word), place) for place, (_, words) in there for word in words]
    if dated:
        more, at = np.array(dated, np.int64).T
        numbers, places = np.concatenate((numbers, more)), np.concatenate((places, at))
        weights = np.concatenate((weights, np.ones(len(more), np.int64)))
        near = np.concatenate((near, np.zeros(len(more), np.uint8)))
    keys, revs = [key for key, _, _ in records], [rev for _, rev, _ in records]
    facts = ((numbers & _NUMBER) * len(records) + places << _FACT_BITS) | near.astype(np.int64) << 8 | weights
    return Run(keys, revs, _gather(facts, keys, sizes, known)), sizes


def _spread(numbers: Numbers, ends: Numbers, known: Vocabulary) -> tuple[Numbers, Numbers]:
    """Return numbers with those of several words in their places, and where texts end then."""
    is_several = numbers < 0
    if not is_several.any():
        return numbers, ends
    several = [known.several[-number] for number in numbers[is_several].tolist()]
    counts = np.ones(len(numbers), np.int64)
    counts[is_several] = [len(each) for each in several]
    spread = np.repeat(numbers, counts)
    spread[spread < 0] = np.fromiter(chain.from_iterable(several), np.int64)
    return spread, np.concatenate(([0], np.cumsum(counts)))[ends]


def _find_near(numbers: Numbers, text_of: Numbers, known: Vocabulary) -> Bytes:
    """Return the neighbours of each word, as `words.split_words` does."""
    near = np.zeros(len(numbers), np.uint8)
    parts = np.flatnonzero(numbers < _APART)
    bits = np.frombuffer(bytes(known.bits), np.uint8)[numbers[parts]]
    texts = text_of[parts]
    found = np.zeros(len(parts), np.uint8)
    beside = texts[1:] == texts[:-1]
    found[:-1] = (bits[1:] & _AFTER) * beside
    found[1:] |= (bits[:-1] & _BEFORE) * beside
    near[parts] = found
    return near


def _gather(facts: Numbers, keys: Sequence[int], sizes: Iterable[int], known: Vocabulary) -> dict[str, bytes]:
    """Return the postings of each word, given each word of each text with its record and its facts."""
    facts.sort()
    postings = facts >> _FACT_BITS
    firsts = np.flatnonzero(np.diff(postings, prepend=-1))
    if not len(firsts):
        return {}
    numbers, places = np.divmod(postings[firsts], len(keys))
    lane = find_lane(keys)
    columns = np.empty((len(firsts), lane + FACTS), np.uint8)
    columns[:, :lane] = np.array(keys, f"<u{lane}")[places].view(np.uint8).reshape(-1, lane)
    columns[:, lane] = np.fromiter(map(encode_length, sizes), np.uint8)[places]
    columns[:, lane + 1] = np.bitwise_or.reduceat(facts >> 8 & 255, firsts)
    columns[:, lane + 2] = np.minimum(np.add.reduceat(facts & 255, firsts), MAX_COUNT)
    raw = columns.tobytes()
    words = np.flatnonzero(np.diff(numbers, prepend=-1))
    starts = (words * columns.shape[1]).tolist()
    names = map(known.terms.__getitem__, numbers[words].tolist())
    return {
        name: raw[start:end]
        for name, start, end in zip(names, starts, chain(starts[1:], (len(raw),)), strict=True)
    }
