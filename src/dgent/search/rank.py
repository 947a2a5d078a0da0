"""The best records for the words of a search, from the postings of each word.

The counts of a record's words and its length byte are kept as one number, its signature: the length in the
lowest byte, the count of each word in the next ones. Records with the same signature have the same score,
so that each is worked out once, with its parts added in the order of the words, however they were found.

Records with many of the words are looked at first. What they score says how many of the words others must
have to be among the best, and mostly spares looking at those with one of them, which are by far the most.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, lru_cache
from itertools import chain, compress, groupby, starmap, takewhile
from operator import add
from types import MappingProxyType
from typing import NamedTuple

from dgent.search.join import SoughtWord, complete, find_common, find_levels, shift_counts
from dgent.search.postings import Postings
from dgent.search.score import idf, saturate

_SLACK = 1 + 1e-9  # parts that are added in another order may differ in their last bits
_RARE = 16
_MANY_SEEDS = 500
_SHORT = 500  # bytes that are looked at one by one
_FEW_RECORDS = 200  # that are sorted by their scores at once
_LANE = 8  # bytes of a signature that are made at once

_BYTES = range(256)
_LOW = bytes(range(4))


class Ranked(NamedTuple):
    """A record with its score and its signature."""

    score: float
    record_key: int
    signature: int


class _Group(NamedTuple):
    """Records with one signature: their number, and the keys and lengths among which they are.

    The lengths of other records are 0.
    """

    score: float
    signature: int
    records: int
    keys: Sequence[int]
    sizes: bytes

    def find(self, few: int) -> Iterator[Ranked]:
        """Yield the newest ones, so many."""
        size, at = self.signature & 255, len(self.sizes)
        for _ in range(min(few, self.records)):
            at = self.sizes.rindex(size, 0, at)
            yield Ranked(self.score, self.keys[at], self.signature)


class Ranking:
    """The records that have some of the words of a search, by their scores.

    `found` has the postings of each word, from several places, each of these in the order of keys, each
    record in one of them. `total` is the number of all records, `norm` has the norm of each length byte.
    Records that lack one of the words in `required`, or the neighbours that it says, are left out.
    """

    def __init__(
        self,
        found: Mapping[str, Sequence[Postings]],
        total: int,
        norm: Sequence[float],
        required: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._norm = norm
        self._words = {
            name: self._weigh(place, [some for some in postings if some.keys], total, required.get(name, 0))
            for place, (name, postings) in enumerate(found.items())
        }
        self._rarities = [word.rarity for word in self._words.values()]
        self._required = [self._words[name] for name in required]
        self._scores: dict[int, float] = {}  # of signatures

    def _weigh(self, place: int, found: Sequence[Postings], total: int, near: int) -> SoughtWord:
        rarity = idf(total, sum(len(some.keys) for some in found))
        best = (saturate(_find_most(some.counts), self._norm[_find_least(some.sizes)]) for some in found)
        return SoughtWord(place, found, rarity, rarity * max(best, default=0.0), near)

    def find_best(self, few: int) -> list[Ranked]:
        """Return the best records, at most so many; those of the same score newest first."""
        words = sorted(self._words.values(), key=lambda word: word.most, reverse=True)
        if self._required:
            return self._choose_all(self._candidates, few)[0]
        if len(words) == 1:
            return self._choose_single(words[0], few)
        found: dict[int, int] = {}
        least = 0.0  # the score that others must reach
        for place, word in enumerate(words):
            rest = words[place:]
            if least > _SLACK * _sum_most(rest):
                break
            if word.records > sum(each.records for each in rest) / _RARE:
                return self._find_among_many(rest, few, found, least)
            # Those of a rare word at once: what they score often spares looking at all others.
            found |= complete(set(word.keys).difference(found), rest)
            _, least = self._choose_all(found, few)
        return self._choose_all(found, few)[0]

    def _find_among_many(
        self, words: Sequence[SoughtWord], few: int, found: dict[int, int], least: float
    ) -> list[Ranked]:
        """Return the best records, given the signatures of all that have other words, and what they score."""
        levels = find_levels(words)
        if levels and len(levels[0]) <= _FEW_RECORDS:  # all records with several words are soon looked at
            found |= complete(set(levels[0]).difference(found), words)
            return self._add_singles(words, few, found)
        if not least:
            found |= complete(_choose_seeds(words, levels, few).difference(found), words)
            _, least = self._choose_all(found, few)
        fewest = max(_count_needed(words, least), 2)
        if fewest - 2 < len(levels):
            able = set(levels[fewest - 2])
            able.intersection_update(_find_essential(words, least))
            found |= complete(able.difference(found), words)
        return self._add_singles(words, few, found)

    def _add_singles(self, words: Sequence[SoughtWord], few: int, found: dict[int, int]) -> list[Ranked]:
        """Return the best records, given the signatures of those with several words that may be such."""
        best, least = self._choose_all(found, few)
        for word in words:
            if word.most * _SLACK < least:
                continue
            for ranked in self._choose_single(word, few):
                found.setdefault(ranked.record_key, ranked.signature)
            best, least = self._choose_all(found, few)
        return best

    @cached_property
    def _candidates(self) -> dict[int, int]:
        """The signatures of the records that have all required words."""
        return complete(find_common(self._required), self._words.values())

    def rank_among(self, record_keys: Set[int]) -> list[Ranked]:
        """Return those of some records that have words of the search, and all required ones, best first."""
        found = complete(record_keys, self._words.values())
        if self._required:
            shifts = [8 * word.place + 8 for word in self._required]
            found = {
                key: signature
                for key, signature in found.items()
                if all(signature >> shift & 255 for shift in shifts)
            }
        return self._choose_all(found, len(found))[0] if found else []

    def find_signatures(self, record_keys: Set[int]) -> dict[int, int]:
        """Return the signatures of those records that have some of the words."""
        return complete(record_keys, self._words.values())

    def parts(self, signature: int) -> dict[str, float]:
        """Return how much each word adds to the score of a record."""
        norm = self._norm[signature & 255]
        found: dict[str, float] = {}
        for name, word in self._words.items():
            signature >>= 8
            if count := signature & 255:
                found[name] = word.rarity * saturate(count, norm)
        return found

    def _score(self, signature: int) -> float:
        total = 0.0
        norm, left = self._norm[signature & 255], signature
        for rarity in self._rarities:
            left >>= 8
            if count := left & 255:
                total += rarity * (count / (count + norm))  # as `parts` has it, and in that order
        return total

    def _choose_all(self, found: Mapping[int, int], few: int) -> tuple[list[Ranked], float]:
        return self._choose([*found], [*found.values()], few)

    def _choose_single(self, word: SoughtWord, few: int) -> list[Ranked]:
        """Return the best records by one word alone: those of the best signatures, without making all."""
        if any(0 in found.sizes for found in word.found):  # texts without words, found by their dates
            keys = [*word.keys]
            signatures = [*chain.from_iterable(_sign(found, word.place) for found in word.found)]
            return self._choose(keys, signatures, few)[0]
        groups: list[_Group] = []
        for found in word.found:
            norm = self._norm[_find_least(found.sizes)]
            for count in sorted(_find_distinct(found.counts), reverse=True):
                most = word.rarity * saturate(count, norm) * _SLACK
                if sum(group.records for group in groups if group.score > most) >= few:
                    break  # these do not reach the others, nor do lower counts
                sizes = _keep_bytes(found.sizes, found.counts, count)
                for size, records in _count_lowest(sizes.translate(None, b"\0"), few):
                    signature = size | count << 8 * word.place + 8
                    groups.append(_Group(self._score(signature), signature, records, found.keys, sizes))
        return _take_best(groups, few)

    def _choose(self, keys: Sequence[int], signatures: Sequence[int], few: int) -> tuple[list[Ranked], float]:
        """Return the best of some records, and the score that others must reach to be among them."""
        scores = self._scores
        for signature in set(signatures).difference(scores):
            scores[signature] = self._score(signature)
        if len(keys) <= _FEW_RECORDS:
            found = zip(map(scores.__getitem__, signatures), keys, signatures, strict=True)
            every = sorted(found, reverse=True)
            return [*starmap(Ranked, every[:few])], every[few - 1][0] if len(every) >= few else 0.0
        scored = [
            (scores[signature], signature, records) for signature, records in Counter(signatures).items()
        ]
        scored.sort(reverse=True)
        best: dict[int, float] = {}
        tied: dict[int, float] = {}  # those of the lowest score: there may be very many
        count, least = 0, 0.0
        for score, signature, records in scored:
            if score != least:
                if count >= few:
                    break
                best |= tied
                tied, least = {}, score
            tied[signature] = score
            count += records
        ranked = [
            Ranked(best[signature], key, signature) for key, signature in _select(keys, signatures, best)
        ]
        ranked.sort(reverse=True)
        newest = sorted(_select(keys, signatures, tied), reverse=True)[: few - len(ranked)]
        ranked += [Ranked(least, key, signature) for key, signature in newest]
        return ranked, least if count >= few else 0.0


def _take_best(groups: list[_Group], few: int) -> list[Ranked]:
    """Return the best records of some groups; those of the same score newest first."""
    groups.sort(key=lambda group: group.score, reverse=True)
    best: list[Ranked] = []
    for _, tied in groupby(groups, key=lambda group: group.score):
        if len(best) >= few:
            break
        left = few - len(best)
        best += sorted((ranked for group in tied for ranked in group.find(left)), reverse=True)[:left]
    return best


def _find_distinct(column: bytes) -> Iterator[int]:
    """Yield each value of a column once; there are not many."""
    while column:
        yield column[0]
        column = column.translate(None, column[:1])


def _count_lowest(column: bytes, few: int) -> Iterator[tuple[int, int]]:
    """Yield the lowest values of a column, and how often each is there, until they are so many."""
    left = min(few, len(column))
    for value in sorted({*column}) if len(column) < _SHORT else _BYTES:
        if left <= 0:
            break
        if count := column.count(value):
            left -= count
            yield value, count


def _keep_bytes(column: bytes, others: bytes, value: int) -> bytes:
    """Return a column with 0 for all but those where another one has a value."""
    # As one number: this compares all of them at once.
    chosen = int.from_bytes(others.translate(_only(value)), "little")
    return (int.from_bytes(column, "little") & chosen).to_bytes(len(column), "little")


def _find_least(column: bytes) -> int:
    # Quicker than min(): each look is a search for one byte.
    return next(value for value in _BYTES if value in column)


def _find_most(counts: bytes) -> int:
    """Return a count that none is above; few are above the low ones."""
    return max(counts.translate(None, _LOW), default=_LOW[-1])


def _select(
    keys: Sequence[int], signatures: Sequence[int], chosen: Collection[int]
) -> Iterator[tuple[int, int]]:
    return compress(zip(keys, signatures, strict=True), map(chosen.__contains__, signatures))


def _sign(found: Postings, place: int) -> Iterable[int]:
    """Return the signatures of records of which one word is known."""
    if place + 1 >= _LANE:
        return map(add, found.sizes, map(shift_counts(place).__getitem__, found.counts))
    raw = bytearray(_LANE * len(found.keys))
    raw[::_LANE] = found.sizes
    raw[place + 1 :: _LANE] = found.counts
    lanes = array("Q", bytes(raw))
    if sys.byteorder == "big":
        lanes.byteswap()
    return lanes


def _choose_seeds(words: Sequence[SoughtWord], levels: Sequence[Sequence[int]], few: int) -> set[int]:
    """Return some records that score high: those with the most words, or with those that give most."""
    several: set[int] = set()
    for level in reversed(levels):
        several = set(level)
        if len(several) >= few:
            break
    for place in range(1, len(words)):
        if len(several) < _MANY_SEEDS:
            break
        chosen = several.intersection(chain.from_iterable(word.keys for word in words[:place]))
        if len(chosen) >= few:
            return chosen
    return several


def _find_essential(words: Sequence[SoughtWord], least: float) -> Iterator[int]:
    """Return the records that have one of the words without which no record reaches a score."""
    needed = takewhile(lambda place: _sum_most(words[place:]) * _SLACK >= least, range(len(words)))
    return chain.from_iterable(words[place].keys for place in needed)


def _sum_most(words: Iterable[SoughtWord]) -> float:
    return sum(word.most for word in words)


def _count_needed(words: Iterable[SoughtWord], least: float) -> int:
    """Return how many words a record must have to reach a score, if they are those that give most."""
    reached, needed = 0.0, 0
    for word in words:
        reached += word.most
        needed += 1
        if reached * _SLACK >= least:
            break
    return needed


@lru_cache(maxsize=256)
def _only(value: int) -> bytes:
    """Return for each byte 255 if it is a value, else 0."""
    return bytes(255 * (each == value) for each in _BYTES)
