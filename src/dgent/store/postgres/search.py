"""A search for words in two round trips: one for all that its indexes say, one for the rows of its hits.

They are of two moments, so the rows must be those of the first: none of them is newer. If one is, or if the
search needs anything else, the caller searches again inside a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from dgent.search.wanted import Wanted
from dgent.store.backend import NONE_OWN, SearchPage, View
from dgent.store.engine.catalog import IndexName, Position, text_index
from dgent.store.engine.kernel import IndexScan, Reading, TextDoc
from dgent.store.engine.row import Row
from dgent.store.engine.search import MANY_WAITING
from dgent.store.engine.text import COUNTS, NO_INDEX, find_searched
from dgent.store.postgres.bridge import run, wait
from dgent.store.postgres.read import Catalogs, Fetch, PostgresReading
from dgent.store.postgres.sql import Texts

Range = tuple[int, bytes, bytes]
_CLOCK, _PAGE, _WAITING, _DOC, _INDEX = range(5)  # the kinds of rows of the first statement
_MOST_KEPT = 2 * MANY_WAITING


class WaitingRows:
    """The rows of records that wait for an index, from one search to the next; each is checked by its rev."""

    def __init__(self) -> None:
        self.by_key: dict[int, Row] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Keep some rows, and no more than a few thousand."""
        if len(self.by_key) > _MOST_KEPT:
            self.by_key.clear()
        self.by_key.update((row.record_key, row) for row in rows)


class _NotQuick(Exception):
    """The search takes more than two statements, or the store has changed between them."""


async def search_quickly(
    fetch: Fetch,
    texts: Texts,
    catalogs: Catalogs,
    kept: WaitingRows,
    wanted: Wanted,
    view: View,
    among: Collection[str] | None,
    search: Callable[[Reading], SearchPage],
) -> SearchPage | None:
    """Return what a search finds, in two round trips; None if it takes a transaction."""

    def work() -> SearchPage | None:
        reading = SearchReading(fetch, texts, catalogs, kept)
        try:
            if not reading.load(wanted, view, among):
                return None
            page = search(reading)
            reading.check()
        except _NotQuick:
            return None
        return msgspec.structs.replace(page, seq=reading.seq)

    return await run(work)


class SearchReading(PostgresReading):
    """The state of the indexes at one moment, and rows that have not changed since."""

    def __init__(self, fetch: Fetch, texts: Texts, catalogs: Catalogs, kept: WaitingRows) -> None:
        super().__init__(None, texts, catalogs)
        self._fetch, self._kept = fetch, kept
        self.seq = self._at = 0
        self._walking = ""  # the statement of walks, if there were any
        self._no_index: set[IndexName] = set()
        self._pages: dict[Range, list[tuple[bytes, int, bytes]]] = {}
        self._waiting: dict[int, list[Position]] = {}
        self._docs: dict[int, dict[int, TextDoc]] = {}

    def load(self, wanted: Wanted, view: View, among: Collection[str] | None) -> bool:
        """Read all that a search of some schemas needs of their indexes; False if that is not enough."""
        if self.catalog.version < 0:
            return False
        states = find_searched(self, among, NONE_OWN, view)
        if any(state.thread for state in states):
            return False  # neighbours take more statements
        names = [text_index(state) for state in states]
        self._load_indexes(wanted, names)
        if any(name in self.catalog.indexes for name in self._no_index):
            self._load_indexes(wanted, names)  # with the indexes that were not known
        return True

    def _load_indexes(self, wanted: Wanted, names: Sequence[IndexName]) -> None:
        known = self.catalog.indexes
        indexes = [known[name] for name in names if name in known]
        missing = [name for name in names if name not in known]
        ranges = [(index, *each) for index in indexes for each in _ranges(wanted)]
        self._pages = {each: [] for each in ranges}
        every = (NO_INDEX, *indexes)
        self._waiting, self._docs = {index: [] for index in every}, {index: {} for index in every}
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
                self._waiting[indexes[number - 1]].append((raw, values[0], values[1]))
            elif kind == _DOC:
                record_key, rev, size, page_rev = values
                self._docs[indexes[number - 1]][record_key] = TextDoc(rev, size, page_rev, raw)
            elif kind == _INDEX:
                known[missing[number - 1]] = values[0]
            else:
                self.seq, version, self._at, _ = values
                if version != self.catalog.version:
                    raise _NotQuick
        self._no_index = set(missing)

    def check(self) -> None:
        """Check that all that was read is of one moment."""
        if self._walking and wait(self._fetch(self.texts.clock))[0][0] != self.seq:
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
        if not descending or limit > MANY_WAITING:
            raise _NotQuick
        try:
            return [self._waiting[scan.index_number][:limit] for scan in scans]
        except KeyError:
            raise _NotQuick from None

    # -- rows -----------------------------------------------------------------------------

    def rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        if content:
            return self._fetch_rows(record_keys, True)
        revs: dict[int, int] = {}
        for positions in self._waiting.values():
            for key, _, record_key in positions:
                revs[record_key] = max(revs.get(record_key, 0), int.from_bytes(key[:8], "big"))
        kept = self._kept.by_key
        # A version that waits is the newest one: whoever replaces it notes that.
        found = {key: kept[key] for key in record_keys if key in kept and kept[key].rev == revs.get(key)}
        missing = [key for key in record_keys if key not in found]
        if missing:
            self._kept.add(rows := self._fetch_rows(missing, False))
            found.update((row.record_key, row) for row in rows)
        return [found[key] for key in record_keys]

    def _fetch_rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        records = wait(self._fetch(self.texts.rows_now[content], record_keys))
        rows = [Row._make(record[1:]) for record in records]
        # A replica that answers later may know less.
        if len(rows) < len(record_keys) or records[0][0] < self.seq or any(r.seq > self.seq for r in rows):
            raise _NotQuick
        return rows

    def walk(self, scan: IndexScan, descending: bool, content: bool) -> Iterator[tuple[bytes, Row]]:
        """Yield the rows of a scan, which `check` finds out to be of the same moment."""
        self._walking = self.texts.walk(*scan.narrowing(), descending, content)
        return super().walk(scan, descending, content)


def _ranges(wanted: Wanted) -> Iterator[tuple[bytes, bytes]]:
    """Yield the words, from one to another, whose pages a search reads; the counts are a word, too."""
    yield COUNTS, COUNTS + b"\0"
    stems = {stem for prefix in wanted.prefixes for stem in prefix.stems if not stem.startswith(prefix.text)}
    for word in dict.fromkeys((*wanted.words, *sorted(stems))):
        yield word.encode(), word.encode() + b"\0"
    for prefix in wanted.prefixes:
        yield prefix.text.encode(), prefix.text.encode() + b"\xff"
