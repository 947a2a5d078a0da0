"""A search for words at one moment: what waits, the runs, then the pages; of each record the newest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from operator import add
from typing import NamedTuple

from dgent.model.datum import Datum
from dgent.search.loaded import find_columns
from dgent.search.postings import Postings, make_postings, unpack_all
from dgent.search.rank import Ranked, Ranking
from dgent.search.record import MAX_COUNT, Words
from dgent.search.run import Run, RunSet
from dgent.search.score import encode_length, norms
from dgent.search.wanted import Prefix, Wanted, has_phrases
from dgent.search.words import ANY, after_bit, before_bit
from dgent.store.backend import View
from dgent.store.engine.catalog import TEXT, SchemaState
from dgent.store.engine.errors import TooLong
from dgent.store.engine.fold import RUN_LEAST
from dgent.store.engine.override import NO_OVERRIDES, Overrides
from dgent.store.engine.row import Row, datum_of
from dgent.store.engine.text import (
    NO_INDEX,
    UNFILLED_BYTES,
    TextIndex,
    TextStats,
    WaitingRecord,
    find_unfilled,
    find_waiting,
    texts_of,
)
from dgent.store.engine.text_cache import PageCache, version_of
from dgent.store.search import LazyTexts

MANY_WAITING = 2_000  # so many records are looked at themselves; if more wait, the index is being built
_MOST_KEPT = 4 * MANY_WAITING
_SHORT_WAITING = 64  # a short search looks at fewer records, and reads at most so many pages
_SHORT_PAGES = 24
_QUICKER = 4  # times, where numpy joins postings
_PAGE_POSTINGS = 256  # of a frequent word, about
_SHORT_ROWS = 96  # looks for phrases in so many texts
_SHIFTED = tuple(count << 8 for count in range(256))
_ROWS = 256  # that are read at once
_FEW_ROWS = 32  # that are read at first, if some of them may lack a phrase
_MORE = 16
_NARROWED = 8  # records of which one at most may be left by a filter that is asked first
_FEWEST_NARROWED = 2_000
_SELDOM = 8  # fits at most one in so many


class TextHit(NamedTuple):
    """A record that a search found: its score, and the part of each word in that."""

    record_key: int
    score: float
    datum: Datum
    parts: dict[str, float]


class _Behind(NamedTuple):
    """The part that an index lacks at one moment: the versions that wait, and the runs.

    `fresh` are the words of the versions that are looked at themselves: those that wait, and overrides.
    """

    moment: tuple[int, TextStats, SchemaState]  # nothing of this changes before one of these does
    runs: RunSet
    waiting: Mapping[int, WaitingRecord]
    cut: bool
    fresh: Mapping[int, Words]
    looked_at: Set[int]
    hidden: Set[int]
    first_hidden: int
    records: int
    size: int


class _Source:
    """One of the indexes that are searched: its pages, and what it is behind on."""

    def __init__(self, index: TextIndex, view: View, kept: Kept, overrides: Overrides, short: bool) -> None:
        self.index, self._cached = index, kept.pages
        self._most_pages = _SHORT_PAGES * (_QUICKER if find_columns() else 1) if short else None
        stats = index.stats()
        self._version = version_of(stats)
        moment = index.reading.newest()[0], stats, index.state
        name = (index.index,)
        known = None if overrides else kept.get(name)
        if isinstance(known, _Behind) and known.moment == moment and not (short and _is_long(known)):
            self.behind = known
            return
        self.behind = self._look(moment, view, kept, overrides)
        if not overrides and all(_is_own(index, each.row) for each in self.behind.waiting.values()):
            kept[name] = self.behind

    def _look(
        self, moment: tuple[int, TextStats, SchemaState], view: View, kept: Kept, overrides: Overrides
    ) -> _Behind:
        index, (_, stats, _) = self.index, moment
        runs = self._read_runs(stats, kept)
        short = self._most_pages is not None
        most = min(_SHORT_WAITING, MANY_WAITING) if short else MANY_WAITING
        unfilled = find_unfilled(index.reading, index.state, most)
        noted = find_waiting(index.reading, index.index, most, newest=True)
        cut = max(len(unfilled), sum(len(each.keys) for each in noted.values())) >= most
        cut |= sum(len(each.row.data or b"") for each in unfilled.values()) >= UNFILLED_BYTES
        if short and cut:
            raise TooLong
        waiting = unfilled | noted
        fresh = self._read_waiting(waiting, view, kept, overrides) | self._read_overrides(view, overrides)
        looked_at = waiting.keys() | overrides.keys()
        known = index.reading.text_docs(index.index, looked_at) if looked_at else {}
        old = known.values()
        return _Behind(
            moment,
            runs,
            waiting,
            cut,
            fresh,
            looked_at,
            runs.keys.union(looked_at) if looked_at else runs.keys,
            min((runs.first, *looked_at)),
            stats.records - sum(1 for doc in old if doc.rev) + len(fresh),
            stats.size - sum(doc.size for doc in old) + sum(words.size for words in fresh.values()),
        )

    def _read_runs(self, stats: TextStats, kept: Kept) -> RunSet:
        """Return the runs that are not merged yet; only erasing changes one."""
        of_all = self.index.index, stats.merged, stats.last_run, stats.erased
        runs = kept.get(of_all)
        if not isinstance(runs, RunSet):
            names = [(self.index.index, -number, stats.erased) for number in stats.runs]
            missing = [name for name in names if name not in kept]
            if missing and self._most_pages is not None:
                raise TooLong
            kept.update(zip(missing, self.index.runs([-number for _, number, _ in missing]), strict=True))
            every = (kept[name] for name in names)
            runs = kept[of_all] = RunSet([run for run in every if isinstance(run, Run)])
        return runs

    def _read_overrides(self, view: View, overrides: Overrides) -> dict[int, Words]:
        """Return the words of overrides that are records of this index."""
        versions = ((key, datum) for key, datum in overrides.items() if datum is not None)
        words = ((key, self.index.words_of(datum, view)) for key, datum in versions)
        return {key: found for key, found in words if found is not None}

    def _read_waiting(
        self, waiting: Mapping[int, WaitingRecord], view: View, kept: Kept, overrides: Overrides
    ) -> dict[int, Words]:
        """Return the words of the records that wait; they are kept, since a search is seldom the only one."""
        found: dict[int, Words] = {}
        for record_key, (row, _) in waiting.items():
            if record_key in overrides:
                continue
            name = self.index.index, record_key, row.rev
            words = kept.get(name) or self.index.words(row, view)
            if isinstance(words, Words):
                found[record_key] = words
                if _is_own(self.index, row):
                    kept[name] = words
        return found

    def find(self, word: str) -> Iterator[Postings]:
        """Yield the records that have a word."""
        yield make_postings(
            (key, words.count(word), encode_length(words.size), words.codes[word] & 255)
            for key, words in sorted(self.behind.fresh.items())
            if word in words.codes
        )
        yield _leave_out(self.behind.looked_at, self.behind.runs.find(word)).sort()
        yield self._read_word(word.encode())

    def find_begun(self, prefix: Prefix) -> Iterator[Postings]:
        """Yield the records that have words with a beginning, once for each of these."""
        yield make_postings(
            (key, uses, encode_length(words.size), ANY)
            for key, words in sorted(self.behind.fresh.items())
            if (uses := min(_count_fitting(words, prefix), MAX_COUNT))
        )
        stems = [stem for stem in sorted(prefix.stems) if not stem.startswith(prefix.text)]
        fitting = {word for run in self.behind.runs.runs for word in run.find_begun(prefix.text)}
        for word in fitting.union(stems):
            yield _leave_out(self.behind.looked_at, self.behind.runs.find(word))
        yield self._read_pages(prefix.text.encode(), prefix.text.encode() + b"\xff")
        for stem in stems:
            yield self._read_word(stem.encode())

    def _read_pages(self, low: bytes, high: bytes) -> Postings:
        return _leave_out(self.behind.hidden, unpack_all(self._fetch_pages(low, high)))

    def _read_word(self, word: bytes) -> Postings:
        """Return the records that have a word in the pages; from the cache, if they are there."""
        asked = self.index.index, word
        found = self._cached.get(asked, self._version)
        if found is None:
            found = unpack_all(self._fetch_pages(word, word + b"\0"))
            self._cached.add(asked, self._version, found)
        else:
            self._count_pages(len(found.keys) // _PAGE_POSTINGS)
        if found.keys and found.keys[-1] < self.behind.first_hidden:
            return found  # records in runs are mostly newer than all in pages
        return _leave_out(self.behind.hidden, found)

    def _fetch_pages(self, low: bytes, high: bytes) -> list[tuple[int, bytes]]:
        limit = None if self._most_pages is None else self._most_pages + 1
        pages = [page[1:] for page in self.index.reading.text_pages(self.index.index, low, high, limit)]
        self._count_pages(len(pages))
        return pages

    def _count_pages(self, read: int) -> None:
        """Raise TooLong if a short search has read too much."""
        if self._most_pages is not None:
            self._most_pages -= read
            if self._most_pages < 0:
                raise TooLong


class Kept(dict[tuple[int, ...], Words | Run | RunSet | _Behind]):
    """The findings of searches, for the next ones.

    Words of versions that wait, by index, record key and rev; runs, by index and their number as a minus. By
    index alone, what that was behind on when it was searched last. `pages` has postings of pages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pages = PageCache()


def _is_own(index: TextIndex, row: Row) -> bool:
    """Check whether a version is in the shape of the index, whoever looks at it."""
    return index.state.has_shape(row.schema_version)


def _is_long(behind: _Behind) -> bool:
    """Check whether more waits than a short search looks at."""
    return behind.cut or sum(len(each.keys) for each in behind.waiting.values()) >= _SHORT_WAITING


def _leave_out(record_keys: Set[int], found: Postings) -> Postings:
    """Return postings without those of some records."""
    if not record_keys or record_keys.isdisjoint(found.keys):
        return found
    return found.select(key not in record_keys for key in found.keys)


def _sum_up(found: Iterable[Postings]) -> Postings:
    """Return the postings of several words as if these were one: a record's counts are added."""
    sums: dict[int, int] = {}  # the length byte, and the count above it
    for keys, counts, sizes, _ in found:
        # A record that comes twice finds its first count: each is stored before the next is read.
        keys = [*keys]
        before = map(sums.get, keys, sizes)
        sums.update(zip(keys, map(add, before, map(_SHIFTED.__getitem__, counts)), strict=True))
    in_order = sorted(sums)
    values = [*map(sums.__getitem__, in_order)]
    return Postings(
        in_order,
        bytes([min(value >> 8, MAX_COUNT) for value in values]),
        bytes([value & 255 for value in values]),
        bytes((ANY,)) * len(values),
    )


class TextSearch:
    """A search for words in some text indexes at one moment, as if they were one."""

    def __init__(
        self,
        indexes: Sequence[TextIndex],
        view: View,
        kept: Kept,
        overrides: Overrides = NO_OVERRIDES,
        short: bool = False,
    ) -> None:
        if len(kept) > _MOST_KEPT:
            kept.clear()
        self.indexes, self.view, self.overrides, self._short = indexes, view, overrides, short
        self._reading, self._states = indexes[0].reading, {each.state.name: each.state for each in indexes}
        self._sources = [_Source(index, view, kept, overrides, short) for index in indexes]
        self._ranked: tuple[Wanted, Ranking] | None = None
        self.building = any(source.behind.cut for source in self._sources)
        self.building |= any(
            index.index != NO_INDEX and not index.state.ready.issuperset((TEXT, *_thread(index)))
            for index in indexes
        )
        late = (each for each in self._sources if each.behind.cut or len(each.behind.waiting) >= RUN_LEAST)
        self.behind = [each.index.state.name for each in late]
        self._records = sum(source.behind.records for source in self._sources)
        size = sum(source.behind.size for source in self._sources)
        self._norms = norms(size / self._records if self._records else 1.0)

    @property
    def most_narrowed(self) -> int:
        """The number of records up to which a filter is worth finding them before they are ranked."""
        return max(self._records // _NARROWED, _FEWEST_NARROWED)

    def rank(self, wanted: Wanted, few: int, among: Collection[int] | None = None) -> Iterator[TextHit]:
        """Yield the records that have one of the words, best first; few are usually enough.

        With `among`, only those of these keys, and those whose other versions count.
        """
        ranking = self._make_ranking(wanted)
        rows = _FEW_ROWS if wanted.phrases else _ROWS
        if among is None:
            few = max(few, _SHORT_ROWS) if wanted.phrases else few  # some will lack a phrase
            in_order = self._in_order(ranking, few, rows)
        else:
            in_order = self._load_in_order(ranking.rank_among({*among, *self.overrides}), few)
        for ranked, datum in in_order:
            if self.has_phrases(datum, wanted):
                yield TextHit(ranked.record_key, ranked.score, datum, ranking.parts(ranked.signature))

    def _make_ranking(self, wanted: Wanted) -> Ranking:
        """Return the ranking of a search, which is made once."""
        if self._ranked is not None and self._ranked[0] is wanted:
            return self._ranked[1]
        found = {word: [*self._find(word)] for word in wanted.words}
        found |= {f"{each.text}*": [_sum_up(self._find(each))] for each in wanted.prefixes}
        ranking = Ranking(found, self._records, self._norms, _find_required(wanted, found))
        self._ranked = wanted, ranking
        return ranking

    def has_phrases(self, datum: Datum, wanted: Wanted) -> bool:
        """Check whether a record has the phrases of a search."""
        return not wanted.phrases or has_phrases(self.texts(datum), wanted.phrases)

    def find_parts(self, record_keys: Set[int]) -> dict[int, dict[str, float]]:
        """Return how much each word adds to the scores of some records, once these are ranked."""
        assert self._ranked is not None
        _, ranking = self._ranked
        return {
            key: ranking.parts(signature) for key, signature in ranking.find_signatures(record_keys).items()
        }

    def _find(self, want: str | Prefix) -> Iterator[Postings]:
        for source in self._sources:
            yield from source.find(want) if isinstance(want, str) else source.find_begun(want)

    def _in_order(self, ranking: Ranking, few: int, rows: int) -> Iterator[tuple[Ranked, Datum]]:
        """Yield records by their scores, those of the same score newest first; `rows` are read at first."""
        done = 0
        while True:
            best = ranking.find_best(few)
            start = done
            while start < len(best):
                if self._short and start >= _SHORT_ROWS:
                    raise TooLong
                some = best[start : start + rows]
                start, rows = start + rows, min(2 * rows, _ROWS)
                datums = self.load([each.record_key for each in some])
                yield from ((each, datum) for each in some if (datum := datums.get(each.record_key)))
            if len(best) < few:
                return
            # A filter took most of them.
            if self._short:
                raise TooLong
            done, few = few, few * _MORE

    def _load_in_order(self, ranked: Sequence[Ranked], rows: int) -> Iterator[tuple[Ranked, Datum]]:
        """Yield some ranked records, read as many at once as are wanted, then more."""
        start = 0
        while start < len(ranked):
            some = ranked[start : start + rows]
            start, rows = start + rows, min(2 * rows, _ROWS)
            datums = self.load([each.record_key for each in some])
            yield from ((each, datum) for each in some if (datum := datums.get(each.record_key)))

    def load(self, record_keys: Sequence[int]) -> dict[int, Datum | None]:
        """Return the versions of some records that are searched."""
        found = {key: self.overrides[key] for key in record_keys if key in self.overrides}
        stored = [key for key in record_keys if key not in found]
        rows = self._reading.rows(stored, True) if stored else ()
        name = self._reading.name
        return found | {row.record_key: datum_of(row, name) for row in rows}

    def texts(self, datum: Datum) -> Sequence[str]:
        """Return the texts of a record that are searched."""
        return LazyTexts(partial(texts_of, self._states[datum.schema or ""], datum, self.view))


def rank_fitting(
    search: TextSearch,
    wanted: Wanted,
    fits: Callable[[Datum], bool],
    few: int,
    find_among: Callable[[], Collection[int] | None],
    is_ready: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[TextHit, bool]]:
    """Yield the records that have one of the words, best first, and whether each fits.

    If few of the first ones fit, `find_among` is asked for the keys of those that may: then, as soon as the
    caller `is_ready`, only records that fit follow, in the same order, and no others are read.
    """
    looked_at: set[int] = set()
    fitting, asked = 0, False
    for hit in search.rank(wanted, few):
        is_fit = fits(hit.datum)
        fitting += is_fit
        looked_at.add(hit.record_key)
        yield hit, is_fit
        if asked or len(looked_at) < few or fitting * _SELDOM > len(looked_at) or not is_ready():
            continue
        asked = True
        among = find_among()
        if among is not None:
            rest = (each for each in search.rank(wanted, few, among) if each.record_key not in looked_at)
            yield from ((each, True) for each in rest if fits(each.datum))
            return


def _thread(index: TextIndex) -> tuple[str, ...]:
    return (index.state.thread,) if index.state.thread else ()


def _find_required(wanted: Wanted, found: Collection[str]) -> dict[str, int]:
    """Return the words, and the beginnings with a star, that all records with the phrases have.

    Each comes with the neighbours that it has in all of them.
    """
    required: dict[str, int] = {}
    for phrase in wanted.phrases:
        around = (None, *phrase.steps), phrase.steps, (*phrase.steps[1:], None)
        for before, step, after in zip(*around, strict=False):
            name, near = f"{step.text}*" if isinstance(step, Prefix) else step, 0
            if isinstance(step, str):
                near |= before_bit(before) if isinstance(before, str) else 0
                near |= after_bit(after) if isinstance(after, str) else 0
            if name in found:
                required[name] = required.get(name, 0) | near
    return required


def _count_fitting(words: Words, prefix: Prefix) -> int:
    return sum(code >> 8 for each, code in words.codes.items() if prefix.fits(each))
