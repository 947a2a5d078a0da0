"""A search for words in two round trips: one for all that its indexes say, one for the rows of its hits.

With threads there are three more: what stands before the best records, what stands after them, and its rows.

They are of two moments, so the rows must be those of the first: none of them is newer. If one is, or if the
search needs anything else, the caller searches again inside a transaction.

While nothing is committed between searches, what the first statement said is still right, and so are the
postings of words that were searched before. Then only the pages of other words are read, and if there are
none the rows of the hits say in the only round trip that the moment is still the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dgent.search.wanted import Wanted
from dgent.store.backend import View
from dgent.store.engine.catalog import IndexName, Position, SchemaState, text_index
from dgent.store.engine.kernel import IndexScan, Reading, TextDoc
from dgent.store.engine.row import Row
from dgent.store.engine.search import MANY_WAITING
from dgent.store.engine.text import COUNTS_RANGE, NO_INDEX, TextIndex, find_searched
from dgent.store.engine.text_cache import PageCache, Version, version_of
from dgent.store.postgres.bridge import run, wait
from dgent.store.postgres.read import Catalogs, Fetch, PostgresReading
from dgent.store.postgres.sql import Texts
from dgent.store.search import NONE_OWN, SearchPage, SearchRequest

Range = tuple[int, bytes, bytes]
_Pages = list[tuple[bytes, int, bytes]]
_CLOCK, _PAGE, _WAITING, _DOC, _INDEX = range(5)  # the kinds of rows of the first statement
_MOST_KEPT = 2 * MANY_WAITING
_TRUSTED_S = 10.0  # so long a moment is taken for the present one if its seq is; a repair changes none


class Moment(NamedTuple):
    """The answer of the first statement of a search, without the pages of words."""

    read_s: float
    seq: int
    at: int
    catalog: int
    counts: Mapping[int, _Pages]  # of each index
    waiting: Mapping[int, list[Position]]
    docs: Mapping[int, dict[int, TextDoc]]


class RecentSearches:
    """The rows that searches have read, for the next ones.

    Rows of records that wait for an index, each checked by its rev; the moment of the last search, and
    whether that of the one before was the same.
    """

    def __init__(self) -> None:
        self.by_key: dict[int, Row] = {}
        self.moment: Moment | None = None
        self.is_steady = False

    def add(self, rows: Iterable[Row]) -> None:
        """Keep some rows, and no more than a few thousand."""
        if len(self.by_key) > _MOST_KEPT:
            self.by_key.clear()
        self.by_key.update((row.record_key, row) for row in rows)

    def keep(self, moment: Moment) -> None:
        """Keep the moment of a search."""
        self.is_steady = self.moment is not None and self.moment.seq == moment.seq
        self.moment = moment

    def find_moment(self, catalog: int, indexes: Iterable[int]) -> Moment | None:
        """Return the moment that is likely the present one; None if there is none of these indexes."""
        moment = self.moment
        if moment is None or not self.is_steady or moment.catalog != catalog:
            return None
        if time.monotonic() - moment.read_s > _TRUSTED_S or not moment.counts.keys() >= {*indexes}:
            return None
        return moment


class _NotQuick(Exception):
    """The search takes more than two statements, or the store has changed between them."""


class _Outdated(Exception):
    """The rows kept of the last search are of an earlier moment."""


async def search_quickly(
    fetch: Fetch,
    texts: Texts,
    catalogs: Catalogs,
    recent: RecentSearches,
    pages: PageCache,
    request: SearchRequest,
    search: Callable[[Reading, SearchRequest], SearchPage],
) -> SearchPage | None:
    """Return what a search finds, in one or two round trips; None if it takes a transaction."""

    def try_once() -> SearchPage | None:
        reading = SearchReading(fetch, texts, catalogs, recent, pages)
        if not reading.load(request.wanted, request.view, request.schemas):
            return None
        page = search(reading, request)
        reading.check()
        return msgspec.structs.replace(page, seq=reading.seq)

    def work() -> SearchPage | None:
        try:
            return try_once()
        except _NotQuick:
            return None
        except _Outdated:
            recent.is_steady = False
        try:
            return try_once()
        except _NotQuick:
            return None

    return await run(work)


class SearchReading(PostgresReading):
    """The state of the indexes at one moment, and rows that have not changed since."""

    def __init__(
        self, fetch: Fetch, texts: Texts, catalogs: Catalogs, recent: RecentSearches, cached: PageCache
    ) -> None:
        super().__init__(None, texts, catalogs)
        self._fetch, self._recent, self._cached = fetch, recent, cached
        self.seq = self._at = 0
        self._is_checked = True  # false until a statement has said that the moment is still the same
        self._walking = ""  # the statement of walks, if there were any
        self._is_loose = False  # something was read that does not say of which moment it is
        self._whole_rows: dict[int, Row] = {}  # that were read with their contents
        self._no_index: set[IndexName] = set()
        self._pages: dict[Range, _Pages] = {}
        self._waiting: Mapping[int, list[Position]] = {}
        self._docs: Mapping[int, dict[int, TextDoc]] = {}

    def load(self, wanted: Wanted, view: View, among: Collection[str] | None) -> bool:
        """Read all that a search of some schemas needs of their indexes; False if that is not enough."""
        if self.catalog.version < 0:
            return False
        states = find_searched(self, among, NONE_OWN, view)
        by_name = {text_index(state): state for state in states}
        known = self.catalog.indexes
        moment = None
        if all(name in known for name in by_name):
            moment = self._recent.find_moment(self.catalog.version, (known[name] for name in by_name))
        if moment is not None:
            self._use(moment, wanted, {known[name]: state for name, state in by_name.items()})
            return True
        self._load_indexes(wanted, [*by_name])
        if any(name in self.catalog.indexes for name in self._no_index):
            self._load_indexes(wanted, [*by_name])  # with the indexes that were not known
        return True

    def _use(self, moment: Moment, wanted: Wanted, states: Mapping[int, SchemaState]) -> None:
        """Take the moment of the last search for the present one, and read what it lacks."""
        self.seq, self._at, self._waiting, self._docs = moment.seq, moment.at, moment.waiting, moment.docs
        self._pages = {(index, *COUNTS_RANGE): moment.counts[index] for index in states}
        self._is_checked = False
        words = [each for each in _ranges(wanted) if each != COUNTS_RANGE]
        ranges: list[Range] = []
        for index, state in states.items():
            version = version_of(TextIndex(self, state, index).stats())
            ranges += [(index, *each) for each in words if not self._has(index, version, each)]
        if not ranges:
            return
        counts = [(index, *COUNTS_RANGE) for index in states]
        found = self._read_ranges(counts + ranges)
        if any(found[each] != self._pages[each] for each in counts):
            raise _Outdated
        self._pages.update(found)

    def _has(self, index: int, version: Version, each: tuple[bytes, bytes]) -> bool:
        word, end = each
        return end == word + b"\0" and self._cached.has((index, word), version)

    def _read_ranges(self, ranges: Sequence[Range]) -> dict[Range, _Pages]:
        """Read the pages of some words, and check that the moment is still the same."""
        pages: dict[Range, _Pages] = {each: [] for each in ranges}
        columns = ([each[column] for each in ranges] for column in range(3))
        for seq, catalog, number, *page in wait(self._fetch(self.texts.search_pages, *columns)):
            self._compare(seq, catalog)
            if page[0] is not None:
                pages[ranges[number - 1]].append((page[0], page[1], page[2]))
        return pages

    def _compare(self, seq: int, catalog: int) -> None:
        if (seq, catalog) != (self.seq, self.catalog.version):
            raise _Outdated
        self._is_checked = True

    def _load_indexes(self, wanted: Wanted, names: Sequence[IndexName]) -> None:
        known = self.catalog.indexes
        indexes = [known[name] for name in names if name in known]
        missing = [name for name in names if name not in known]
        ranges = [(index, *each) for index in indexes for each in _ranges(wanted)]
        self._pages = {each: [] for each in ranges}
        every = (NO_INDEX, *indexes)
        waiting: dict[int, list[Position]] = {index: [] for index in every}
        docs: dict[int, dict[int, TextDoc]] = {index: {} for index in every}
        found = wait(
            self._fetch(
                self.texts.search,
                *([each[column] for each in ranges] for column in range(3)),
                indexes,
                MANY_WAITING,
                [name.schema for name in missing],
                [name.path for name in missing],
                [name.index_version for name in missing],
            )
        )
        for kind, number, raw, *values, body in found:
            if kind == _PAGE:
                self._pages[ranges[number - 1]].append((raw, values[0], body))
            elif kind == _WAITING:
                waiting[indexes[number - 1]].append((raw, values[0], values[1]))
            elif kind == _DOC:
                record_key, rev, size, page_rev = values
                docs[indexes[number - 1]][record_key] = TextDoc(rev, size, page_rev, raw)
            elif kind == _INDEX:
                known[missing[number - 1]] = values[0]
            else:
                self.seq, version, self._at, _ = values
                if version != self.catalog.version:
                    raise _NotQuick
        self._no_index, self._waiting, self._docs = set(missing), waiting, docs
        counts = {index: self._pages[index, *COUNTS_RANGE] for index in indexes}
        now = time.monotonic()
        self._recent.keep(Moment(now, self.seq, self._at, self.catalog.version, counts, waiting, docs))

    def check(self) -> None:
        """Check that all that was read is of one moment."""
        if self._walking or self._is_loose or not self._is_checked:
            ((seq, _, _, catalog, _),) = wait(self._fetch(self.texts.clock))
            if not self._is_checked:
                self._compare(seq, catalog)
            elif seq != self.seq:
                raise _NotQuick

    # -- what is loaded -------------------------------------------------------------------

    def _all(self, sql: str, *values: Any) -> list[Any]:
        if sql != self._walking:
            raise _NotQuick
        found: list[Any] = wait(self._fetch(sql, *values))
        return found

    def refresh(self) -> None:
        """Do nothing: the first statement has compared the catalogs."""

    def newest(self) -> tuple[int, int]:
        return self.seq, self._at

    def name(self, number: int) -> str:
        found = self.catalog.names.get(number)
        if found is None:
            # The text of a number never changes.
            self.catalog.names.update(wait(self._fetch(self.texts.names, [number])))
        return self.catalog.names[number] if found is None else found

    def index_number(self, name: IndexName) -> int | None:
        index = self.catalog.indexes.get(name)
        if index is None and name not in self._no_index:
            raise _NotQuick
        return index

    def text_pages(
        self, index: int, low: bytes, high: bytes, limit: int | None = None
    ) -> Iterable[tuple[bytes, int, bytes]]:
        pages = self._pages.get((index, low, high))
        if pages is None and index != NO_INDEX:
            raise _NotQuick
        return pages or ()

    def text_docs(self, index: int, record_keys: Iterable[int] | None) -> dict[int, TextDoc]:
        if record_keys is None or index not in self._docs:
            raise _NotQuick
        docs = self._docs[index]
        return {key: docs[key] for key in record_keys if key in docs}

    def positions(self, scans: Sequence[IndexScan], descending: bool, limit: int) -> list[list[Position]]:
        if not any(scan.index_number in self._waiting for scan in scans):
            return self._find_neighbours(scans, descending, limit)
        if not descending or limit > MANY_WAITING:
            raise _NotQuick
        try:
            return [self._waiting[scan.index_number][:limit] for scan in scans]
        except KeyError:
            raise _NotQuick from None

    def _find_neighbours(
        self, scans: Sequence[IndexScan], descending: bool, limit: int
    ) -> list[list[Position]]:
        """Return positions in the index of a thread; a later statement says whether all is of one moment."""
        found: list[list[Position]] = [[] for _ in scans]
        columns = zip(*((scan.index_number, *scan.low, *scan.high) for scan in scans), strict=True)
        if scans:
            self._is_loose = True
            places = wait(self._fetch(self.texts.positions[descending], *map(list, columns), limit))
            for number, *place in places:
                found[number - 1].append((place[0], place[1], place[2]))
        return found

    # -- rows -----------------------------------------------------------------------------

    def rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        if content:
            return self._fetch_rows(record_keys, True)
        revs: dict[int, int] = {}
        for positions in self._waiting.values():
            for key, _, record_key in positions:
                revs[record_key] = max(revs.get(record_key, 0), int.from_bytes(key[:8], "big"))
        kept = self._recent.by_key
        if all(key in self._whole_rows for key in record_keys):
            return [self._whole_rows[key] for key in record_keys]
        # A version that waits is the newest one: whoever replaces it notes that.
        found = {key: kept[key] for key in record_keys if key in kept and kept[key].rev == revs.get(key)}
        missing = [key for key in record_keys if key not in found]
        if missing:
            self._recent.add(rows := self._fetch_rows(missing, False))
            found.update((row.record_key, row) for row in rows)
        return [found[key] for key in record_keys]

    def _fetch_rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        records = wait(self._fetch(self.texts.rows_now[content], record_keys))
        if not self._is_checked:
            if not records:
                raise _Outdated
            self._compare(*records[0][:2])
        rows = [Row._make(record[2:]) for record in records]
        # A replica that answers later may know less.
        if len(rows) < len(record_keys) or records[0][0] < self.seq or any(r.seq > self.seq for r in rows):
            raise _NotQuick
        if records and records[0][0] == self.seq:
            self._is_loose = False
        if content:
            self._whole_rows.update((row.record_key, row) for row in rows)
        return rows

    def walk(self, scan: IndexScan, descending: bool, content: bool) -> Iterator[tuple[bytes, Row]]:
        """Yield the rows of a scan, which `check` finds out to be of the same moment."""
        self._walking = self.texts.walk(*scan.narrowing(), descending, content)
        return super().walk(scan, descending, content)


def _ranges(wanted: Wanted) -> Iterator[tuple[bytes, bytes]]:
    """Yield the words, from one to another, whose pages a search reads; the counts are a word, too."""
    yield COUNTS_RANGE
    stems = {stem for prefix in wanted.prefixes for stem in prefix.stems if not stem.startswith(prefix.text)}
    for word in dict.fromkeys((*wanted.words, *sorted(stems))):
        yield word.encode(), word.encode() + b"\0"
    for prefix in wanted.prefixes:
        yield prefix.text.encode(), prefix.text.encode() + b"\xff"
