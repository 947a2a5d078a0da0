"""A search for words at one moment: what waits, the runs, then the pages; of each record the newest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from typing import NamedTuple

from dgent.search import postings
from dgent.search.run import MAX_COUNT, Run
from dgent.search.score import encode_length, idf, norms, saturate
from dgent.search.wanted import Prefix, Wanted, has_phrases
from dgent.store.backend import View
from dgent.store.engine.fold import RUN_LEAST
from dgent.store.engine.row import Row
from dgent.store.engine.text import TextIndex, TextStats, Words, find_waiting

_Postings = dict[int, tuple[int, int]]
"""How often each record has a word, and its length byte, by record key."""

Kept = dict[tuple[int, int, int], Words | Run]
"""Words of versions that wait, by index, record key and rev; runs, by index and their number as a minus."""

MANY_WAITING = 2_000  # so many records are looked at themselves; if more wait, the index is being built
_MOST_KEPT = 4 * MANY_WAITING
_FEW = 64


class TextHit(NamedTuple):
    """A record that a search found: its score, and the part of each word in that."""

    score: float
    row: Row
    parts: dict[str, float]


class _Source:
    """One of the indexes that are searched: what waits for it, and its runs, the newest first."""

    def __init__(self, index: TextIndex, view: View, kept: Kept) -> None:
        self.index = index
        stats = index.stats()
        self.runs = self._read_runs(stats, kept)[::-1]
        self.waiting = find_waiting(index.reading, index.index, MANY_WAITING, newest=True)
        self.fresh = self._read_waiting(view, kept)
        self.hidden = self.waiting.keys() | {key for run in self.runs for key in run.keys}
        old = index.reading.text_docs(index.index, self.waiting).values()
        self.records = stats.records - sum(1 for doc in old if doc.rev) + len(self.fresh)
        self.size = stats.size - sum(doc.size for doc in old)
        self.size += sum(words.size for words in self.fresh.values())

    def _read_runs(self, stats: TextStats, kept: Kept) -> list[Run]:
        """Return the runs that are not merged yet, the oldest first; only erasing changes one."""
        names = [(self.index.index, -number, stats.erased) for number in stats.runs]
        missing = [name for name in names if name not in kept]
        found = dict(zip(missing, self.index.runs([-number for _, number, _ in missing]), strict=True))
        kept.update(found)
        return [run for name in names if isinstance(run := found.get(name) or kept[name], Run)]

    def _read_waiting(self, view: View, kept: Kept) -> dict[int, Words]:
        """Return the words of the records that wait; they are kept, since a search is seldom the only one."""
        found: dict[int, Words] = {}
        for record_key, (row, _) in self.waiting.items():
            name = self.index.index, record_key, row.rev
            words = kept.get(name) or self.index.words(row, view)
            if isinstance(words, Words):
                found[record_key] = words
                if row.schema_version == self.index.state.index_version:
                    kept[name] = words
        return found

    def find(self, prefix: Prefix, word: str | None, having: _Postings) -> None:
        """Add the records that have a word, or one of the words with a beginning."""
        for key, words in self.fresh.items():
            uses = words.counts.get(word, 0) if word is not None else _count_fitting(words, prefix)
            if uses:
                having[key] = min(uses, MAX_COUNT), encode_length(words.size)
        seen = set(self.waiting)
        for run in self.runs:
            for each in (word,) if word is not None else filter(prefix.fits, run.words):
                for key, count, size in run.find(each):
                    if key not in seen:
                        _add(having, key, count, size)
            seen.update(run.keys)
        hidden = self.hidden
        for begin, end in _ranges(prefix, word):
            for _, first, raw in self.index.reading.text_pages(self.index.index, begin, end):
                page = postings.unpack(first, raw)
                for key, count, size in zip(page.keys, page.counts, page.sizes, strict=True):
                    if key not in hidden:
                        _add(having, key, count, size)


def _add(having: _Postings, key: int, count: int, size: int) -> None:
    before = having.get(key)
    having[key] = (count if before is None else min(count + before[0], MAX_COUNT)), size


class TextSearch:
    """A search for words in some text indexes at one moment, as if they were one."""

    def __init__(self, indexes: Sequence[TextIndex], view: View, kept: Kept) -> None:
        if len(kept) > _MOST_KEPT:
            kept.clear()
        self._view = view
        self._sources = [_Source(index, view, kept) for index in indexes]
        waiting = [(source.index.state.name, len(source.waiting)) for source in self._sources]
        self.building = any(count >= MANY_WAITING for _, count in waiting)
        self.behind = [schema for schema, count in waiting if count >= RUN_LEAST]
        self._records = sum(source.records for source in self._sources)
        size = sum(source.size for source in self._sources)
        self._norms = norms(size / self._records if self._records else 1.0)

    def rank(self, wanted: Wanted) -> Iterator[TextHit]:
        """Yield the records that have one of the words, best first."""
        found = {word: self._find(Prefix(word, frozenset((word,))), word) for word in wanted.words}
        found |= {f"{each.text}*": self._find(each, None) for each in wanted.prefixes}
        rarities = {word: idf(self._records, len(having)) for word, having in found.items()}
        scores: dict[int, float] = {}
        for word, having in found.items():
            for key, part in self._parts(having, rarities[word]):
                scores[key] = scores.get(key, 0.0) + part
        for key, row in self._in_order(scores):
            parts = {
                word: part
                for word, having in found.items()
                if key in having
                for _, part in self._parts({key: having[key]}, rarities[word])
            }
            if not wanted.phrases or has_phrases(self.texts(row), wanted.phrases):
                yield TextHit(scores[key], row, parts)

    def _find(self, prefix: Prefix, word: str | None) -> _Postings:
        having: _Postings = {}
        for source in self._sources:
            source.find(prefix, word, having)
        return having

    def _parts(self, having: _Postings, rarity: float) -> Iterator[tuple[int, float]]:
        """Yield how much a word adds to the score of each record that has it."""
        worth: dict[tuple[int, int], float] = {}
        for key, posting in having.items():
            part = worth.get(posting)
            if part is None:
                part = worth[posting] = rarity * saturate(posting[0], self._norms[posting[1]])
            yield key, part

    def _in_order(self, scores: Mapping[int, float]) -> Iterator[tuple[int, Row]]:
        """Yield records by their scores, those of the same score newest first."""
        reading = self._sources[0].index.reading
        # Most want a few; whoever filters much goes on.
        first = nlargest(_FEW, scores.items(), key=_rank)
        for key, _ in chain(first, _rest(scores)):
            row = reading.row(key)
            if row is not None:
                yield key, row

    def texts(self, row: Row) -> list[str]:
        """Return the texts of a record that are searched."""
        all_of_them = (source.index for source in self._sources)
        index = next(each for each in all_of_them if each.state.number == row.schema)
        return index.texts(row, self._view)


def _ranges(prefix: Prefix, word: str | None) -> Iterator[tuple[bytes, bytes]]:
    """Yield the ranges of words to read: one word, or those with a beginning and the stems that fit it."""
    if word is None:
        yield prefix.text.encode(), prefix.text.encode() + b"\xff"
    for stem in sorted(prefix.stems):
        if word is not None or not stem.startswith(prefix.text):
            yield stem.encode(), stem.encode() + b"\0"


def _rest(scores: Mapping[int, float]) -> Iterator[tuple[int, float]]:
    """Yield all but the first few, sorted only when somebody asks."""
    yield from sorted(scores.items(), key=_rank, reverse=True)[_FEW:]


def _rank(scored: tuple[int, float]) -> tuple[float, int]:
    return scored[1], scored[0]


def _count_fitting(words: Words, prefix: Prefix) -> int:
    return sum(count for each, count in words.counts.items() if prefix.fits(each))
