"""The Postgres engine's reads: each is one round trip, unless it is cached.

They run inside `bridge.run`, in a transaction that sees one moment. So rows may be cached until the moment
ends, and rows that will surely be needed next are fetched along.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias, TypeVar

import asyncpg

from dgent.errors import Corrupt
from dgent.model.query import Query
from dgent.store.backend import Page, View
from dgent.store.engine import read
from dgent.store.engine.catalog import (
    Catalog,
    IndexName,
    Position,
    SchemaState,
    after_text,
    high,
    low,
    state_of,
)
from dgent.store.engine.kernel import DELETE, IndexScan, Logged, TextDoc, TextPage, ops_of, start_at
from dgent.store.engine.plan import make_plan
from dgent.store.engine.row import Row
from dgent.store.postgres.bridge import run, wait
from dgent.store.postgres.format import check_number
from dgent.store.postgres.sql import Texts
from dgent.store.postgres.vector import VectorReads

_PAGES = (64, 256, 1024, 4096)  # a walk fetches more at a time the longer it goes on
_AHEAD = 1000  # records fetched along when the first one of a log is asked for
_WEIGHED_S, _MANY_WEIGHED = 10.0, 10_000
LAST_ID = "\U0010ffff" * 600  # above every id: longer than any

R = TypeVar("R")

_generations = count(1)  # no two catalogs share one, so what is derived from one fits no other


def own_generation(catalog: Catalog) -> Catalog:
    """Return the catalog, marked as different from every other one."""
    catalog.generation = next(_generations)
    return catalog


class Catalogs:
    """The catalogs of the last few versions that were met; one that is loaded only ever grows."""

    def __init__(self) -> None:
        self.newest = Catalog()
        # The text of a number never changes, so these fit every version.
        self.names: dict[int, str] = {}
        self._known: dict[int, Catalog] = {}
        # What was found to weigh one index against another, and when: no worse for being a little late.
        self.weighed: dict[tuple[Any, ...], tuple[float, Any]] = {}

    def get(self, version: int) -> Catalog | None:
        """Return the catalog of a version, if it is loaded."""
        return self._known.get(version)

    def add(self, catalog: Catalog) -> None:
        """Cache a loaded catalog, and no more than a few others."""
        self._known[catalog.version] = catalog
        if catalog.version >= self.newest.version:
            self.newest = catalog
        for version in sorted(self._known)[:-4]:
            del self._known[version]


class PostgresReading(VectorReads):
    """Reads of one moment on one connection."""

    def __init__(self, connection: asyncpg.Connection, texts: Texts, catalogs: Catalogs) -> None:
        self.connection, self.texts, self.catalogs = connection, texts, catalogs
        self.catalog = catalogs.newest
        self._any_unindexed = True
        self._begun = False
        self._ahead: list[int] = []  # records that will be asked for next
        self._seqs: list[int] = []  # and commits
        self._versions: list[tuple[int, int]] = []  # and versions of them
        self._forget_read()

    def _forget_read(self) -> None:
        self._rows: dict[int, Row | None] = {}
        self._spans: dict[int, list[tuple[int, int, int]]] = {}
        self._past: dict[tuple[int, int], Row] = {}
        self._commits: dict[int, Logged | None] = {}

    @property
    def generation(self) -> int:
        """A number that changes whenever cached indexes or states may be wrong."""
        return self.catalog.generation

    def _all(self, sql: str, *values: Any) -> list[asyncpg.Record]:
        found: list[asyncpg.Record] = wait(self.connection.fetch(sql, *values))
        return found

    # -- what is known --------------------------------------------------------------------

    def begin(self) -> None:
        """Load the state of this moment; nothing changes it until the moment ends."""
        self.refresh()
        self._begun = True

    def refresh(self) -> None:
        if self._begun:
            return
        ((version, self._any_unindexed),) = self._all(self.texts.fresh)
        if version != self.catalog.version:
            self.use(version)

    def use(self, version: int) -> None:
        """Use the catalog of a version, loading it if need be."""
        self.catalog = self.catalogs.get(version) or self._load(version)

    def _load(self, version: int) -> Catalog:
        catalog = own_generation(Catalog())
        for _number, raw in self._all(self.texts.schemas):
            state = state_of(raw)
            catalog.states[state.name] = state
        meta = {name: (number, raw) for name, number, raw in self._all(self.texts.meta)}
        check_number(self.texts.u, meta["format"][0])  # it may have been upgraded since it was opened
        catalog.floor, catalog.floor_at = meta["floor"][0], meta["floor_at"][0]
        catalog.forgot, catalog.salt = meta["forgot"][0], meta["forget_salt"][1]
        catalog.version = version
        catalog.names = self.catalogs.names
        self.catalogs.add(catalog)
        return catalog

    def newest(self) -> tuple[int, int]:
        seq, at, *_ = self._all(self.texts.clock)[0]
        return seq, at

    def floor(self) -> int:
        return self.catalog.floor

    def name(self, number: int) -> str:
        text = self.catalog.names.get(number)
        if text is None:
            found = self._all(self.texts.name, number)
            if not found:
                raise Corrupt(f"a record uses the name {number}, which is not stored")
            text = self.catalog.names[number] = found[0][0]
        return text

    def names_at_hand(self) -> dict[int, str]:
        return {}

    def number(self, text: str) -> int | None:
        number = self.catalog.numbers.get(text)
        if number is None:
            found = self._all(self.texts.number, text)
            if found:
                number = self.catalog.numbers[text] = found[0][0]
        return number

    def state(self, schema: str) -> SchemaState | None:
        return self.catalog.states.get(schema)

    def states(self) -> list[SchemaState]:
        return list(self.catalog.states.values())

    def index_number(self, name: IndexName) -> int | None:
        index = self.catalog.indexes.get(name)
        if index is None:
            found = self._all(self.texts.index, name.schema, name.tag, name.path, name.index_version)
            if found:
                index = self.catalog.indexes[name] = found[0][0]
        return index

    # -- rows -----------------------------------------------------------------------------

    def head(self, id: str) -> Row | None:
        found = self._all(self.texts.head, id)
        return Row._make(found[0]) if found else None

    def heads(self, ids: Sequence[str]) -> list[Row | None]:
        return [self.head(id) for id in ids]

    def row(self, record_key: int) -> Row | None:
        if record_key not in self._rows:
            wanted = self._along(record_key, self._rows)
            self._rows = dict.fromkeys(wanted)
            self._rows.update(
                (row.record_key, row) for row in map(Row._make, self._all(self.texts.rows, wanted))
            )
        return self._rows[record_key]

    def _along(self, record_key: int, known: Mapping[int, object]) -> list[int]:
        """Return the records to fetch with a requested one: it, and those that will be needed next."""
        if record_key not in self._ahead:
            return [record_key]
        place = self._ahead.index(record_key)
        return [other for other in self._ahead[place : place + _AHEAD] if other not in known]

    def rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        sql = self.texts.rows if content else self.texts.rows_without
        return [*map(Row._make, self._all(sql, record_keys))]

    def walk(self, scan: IndexScan, descending: bool, content: bool) -> Iterator[tuple[bytes, Row]]:
        sql = self.texts.walk(*scan.narrowing(), descending, content)
        page = 0
        while True:
            size = _PAGES[min(page, len(_PAGES) - 1)]
            found = self._all(sql, scan.index_number, *scan.low, *scan.high, *scan.values(), size)
            for record in found:
                yield record[0], Row._make(record[1:])
            if len(found) < size:
                return
            key, row = found[-1][0], Row._make(found[-1][1:])
            scan = (
                scan._replace(high=(key, row.created_at, row.record_key))
                if descending
                else scan._replace(low=(key, row.created_at, row.record_key + 1))
            )
            page += 1

    def fetch(
        self, scan: IndexScan, descending: bool, content: bool, limit: int
    ) -> Sequence[tuple[Any, ...]]:
        found = self._all(*self.fetching(scan, descending, content, limit))
        return [tuple(record[2:]) for record in found if record[2] is not None]

    def fetching(self, scan: IndexScan, descending: bool, content: bool, limit: int) -> tuple[Any, ...]:
        """Return the statement that fetches a page, and its values; each row begins with catalog and lag."""
        key = scan.low[0]
        one_key = scan.low == low(key) and scan.high == high(key)
        sql = self.texts.fetch(one_key, *scan.narrowing(), descending, content)
        place: tuple[Any, ...] = (key,) if one_key else scan.low + scan.high
        return sql, scan.index_number, *place, *scan.values(), limit

    def find_keys(self, scan: IndexScan, limit: int) -> list[int]:
        sql = self.texts.keys(*scan.narrowing())
        found = self._all(sql, scan.index_number, *scan.low, *scan.high, *scan.values(), limit)
        return [record_key for (record_key,) in found]

    def skip(self, scan: IndexScan, descending: bool, count: int) -> IndexScan | None:
        sql = self.texts.skip(*scan.narrowing(), descending)
        found = self._all(sql, scan.index_number, *scan.low, *scan.high, *scan.values(), count)
        return start_at(scan, descending, tuple(found[0])) if found else None

    def times(self, scans: Sequence[IndexScan], descending: bool, count: int) -> Sequence[int | None]:
        def find() -> tuple[int | None, ...]:
            values = [value for scan in scans for value in (scan.index_number, *scan.low, *scan.high, count)]
            return tuple(self._all(self.texts.times(len(scans), descending), *values)[0])

        asked = descending, count, *((scan.index_number, scan.low[0]) for scan in scans)
        return self._weigh(asked, find)

    def positions(self, scans: Sequence[IndexScan], descending: bool, limit: int) -> list[list[Position]]:
        found: list[list[Position]] = [[] for _ in scans]
        columns = zip(*((scan.index_number, *scan.low, *scan.high) for scan in scans), strict=True)
        if scans:
            for number, *place in self._all(self.texts.positions[descending], *map(list, columns), limit):
                found[number - 1].append((place[0], place[1], place[2]))
        return found

    def estimate(self, scan: IndexScan, cap: int) -> int:
        return self._weigh((scan, cap), lambda: PostgresReading.size(self, scan, cap))

    def _weigh(self, asked: tuple[Any, ...], find: Callable[[], R]) -> R:
        """Return what was found within the last seconds, or find it."""
        known, weighed = self.catalogs.weighed.get(asked), self.catalogs.weighed
        if known is None or time.monotonic() - known[0] > _WEIGHED_S:
            if len(weighed) > _MANY_WEIGHED:
                weighed.clear()
            known = weighed[asked] = time.monotonic(), find()
        found: R = known[1]
        return found

    def fetch_id(self, id: str) -> Sequence[tuple[Any, ...]]:
        return [tuple(record) for record in self._all(self.texts.brief, id)]

    def walk_ids(self, prefix: str, content: bool) -> Iterator[Row]:
        last = ""
        page = 0
        while True:
            size = _PAGES[min(page, len(_PAGES) - 1)]
            found = self._all(self.texts.walk_ids[content], prefix, after_text(prefix) or LAST_ID, last, size)
            yield from map(Row._make, found)
            if len(found) < size:
                return
            last = Row._make(found[-1]).id
            page += 1

    def groups(self, scan: IndexScan, limit: int | None) -> list[tuple[bytes, int]]:
        found = self._all(self.texts.groups, scan.index_number, *scan.low, *scan.high, limit)
        return [(key, count) for key, count in found]

    def tag_indexes(self, schema: int) -> list[tuple[str, int]]:
        return [(tag, index) for index, _, _, tag, _ in self._all(self.texts.indexes, schema) if tag]

    def size(self, scan: IndexScan, cap: int) -> int:
        sql = self.texts.size(*scan.narrowing())
        count: int = self._all(sql, scan.index_number, *scan.low, *scan.high, *scan.values(), cap)[0][0]
        return count

    def size_ids(self, prefix: str, cap: int) -> int:
        count: int = self._all(self.texts.size_ids, prefix, after_text(prefix) or LAST_ID, cap)[0][0]
        return count

    def unindexed_rows(self, schema: int) -> list[Row]:
        return (
            [Row._make(found) for found in self._all(self.texts.unindexed, schema)]
            if self._any_unindexed
            else []
        )

    def past(self, record_key: int, rev: int | None = None) -> list[Row]:
        if rev is None:
            rows = [Row._make(found) for found in self._all(self.texts.past, record_key)]
            self._seqs = [row.seq for row in rows]  # a history shows their commits, too
            return rows
        if (record_key, rev) in self._versions:
            self._fetch_versions()
        known = self._past.get((record_key, rev))
        if known is not None:
            return [known]
        return [Row._make(found) for found in reversed(self._all(self.texts.past_from, record_key, rev))]

    def _fetch_versions(self) -> None:
        """Fetch the versions that a log names, as far as they are stored whole."""
        record_keys, revs = zip(*self._versions, strict=True)
        self._versions = []
        found = map(Row._make, self._all(self.texts.past_exact, record_keys, revs))
        self._past = {(row.record_key, row.rev): row for row in found}

    # -- text indexes ---------------------------------------------------------------------

    def find_text_pages(self, index: int, wanted: Sequence[tuple[bytes, int]]) -> dict[bytes, TextPage]:
        u = self.texts.u
        sql = (
            f"SELECT a.word, p.first, p.body, (SELECT min(n.first) FROM {u}.page n WHERE n.ix = $1"
            " AND n.word = a.word AND n.first > p.first) FROM unnest($2::bytea[], $3::bigint[]) a (word, dk)"
            f" JOIN {u}.page p ON p.ix = $1 AND p.word = a.word AND p.first = coalesce("
            f"(SELECT max(m.first) FROM {u}.page m WHERE m.ix = $1 AND m.word = a.word AND m.first <= a.dk),"
            f" (SELECT min(m.first) FROM {u}.page m WHERE m.ix = $1 AND m.word = a.word))"
        )
        found = self._all(sql, index, [word for word, _ in wanted], [key for _, key in wanted])
        return {word: TextPage(first, body, until) for word, first, body, until in found}

    def text_pages(
        self, index: int, low: bytes, high: bytes, limit: int | None = None
    ) -> Iterable[tuple[bytes, int, bytes]]:
        sql = (
            f"SELECT word, first, body FROM {self.texts.u}.page"
            " WHERE ix = $1 AND word >= $2 AND word < $3 ORDER BY word, first LIMIT $4"
        )
        return [tuple(found) for found in self._all(sql, index, low, high, limit)]

    def text_docs(self, index: int, record_keys: Iterable[int] | None) -> dict[int, TextDoc]:
        sql = f"SELECT dk, rev, size, page_rev, words FROM {self.texts.u}.doc WHERE ix = $1"
        if record_keys is None:
            found = self._all(sql, index)
        else:
            found = self._all(f"{sql} AND dk = ANY ($2::bigint[])", index, list(record_keys))
        return {record_key: TextDoc(*doc) for record_key, *doc in found}

    def spans(self, record_key: int) -> list[tuple[int, int, int]]:
        if record_key not in self._spans:
            wanted = self._along(record_key, self._spans)
            self._spans = {other: [] for other in wanted}
            for other, rev, seq, at in self._all(self.texts.spans, wanted):
                self._spans[other].append((rev, seq, at))
        return self._spans[record_key]

    # -- the log --------------------------------------------------------------------------

    def log(self, since: int, limit: int | None) -> list[Logged]:
        found = [logged_of(record) for record in self._all(self.texts.log, since, limit)]
        # A reader of the log needs its records next, and the versions it made.
        self._ahead = list({record_key: None for logged in found for _, record_key, _ in logged.ops})
        self._versions = [
            (record_key, rev - 1 if code == DELETE else rev)
            for logged in found
            for code, record_key, rev in logged.ops
        ][:_AHEAD]
        return found

    def log_back(self, until: int, limit: int) -> list[Logged]:
        return [logged_of(record) for record in self._all(self.texts.log_back, until, limit)]

    def read_commit(self, seq: int) -> Logged | None:
        if seq not in self._commits:
            wanted = self._seqs if seq in self._seqs else [seq]
            self._seqs = []
            self._commits = dict.fromkeys(wanted)
            for record in self._all(self.texts.logged, wanted):
                self._commits[record[0]] = logged_of(record)
        found = self._commits[seq]
        if found is not None and not self._ahead:
            # Undoing it reads its records, and the versions before.
            self._ahead = [record_key for _, record_key, _ in found.ops]
            self._versions = [(record_key, rev - 1) for _, record_key, rev in found.ops][:_AHEAD]
        return found

    def find_by_key(self, key: bytes) -> Logged | None:
        found = self._all(self.texts.keyed, [key])
        return logged_of(found[0]) if found else None

    def seq_at(self, at: int) -> int:
        def time_by(seq: int) -> int | None:
            found = self._all(self.texts.before, seq)
            return found[0][0] if found else None

        return self.catalog.seq_at(at, self.newest()[0], time_by)

    def forgotten_rev(self, id: str) -> int:
        if not self.catalog.forgot:
            return 0
        found = self._all(self.texts.forgotten, self.catalog.hash(id))
        return found[0][0] if found else 0


def logged_of(record: Iterable[Any]) -> Logged:
    """Return a commit from its row; the records it created are numbered from the `record_key` it began at."""
    seq, at, author, kind, note, of_seq, raw, key, digest, base = record
    ops = [op if op[1] >= 0 else (op[0], base - op[1], op[2]) for op in ops_of(seq, raw)]
    return Logged(seq, at, author, kind, note, of_seq, ops, key, digest)


Fetch: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs one statement that reads."""


class _Outdated(Exception):
    """The cache is outdated; plan again."""


class _NotQuick(Exception):
    """The plan has to weigh one index against another, so none gives exactly the rows."""


async def read_page(
    fetch: Fetch, texts: Texts, catalogs: Catalogs, query: Query, view: View, epoch: bytes
) -> Page | None:
    """Return a page in one round trip, if an index gives exactly its rows; None when it takes more."""

    def work() -> Page | None:
        reading = _QuickReading(fetch, texts, catalogs)
        if query.schema is not None and reading.state(query.schema) is None and query.cursor is None:
            reading.check_catalog()
            return Page([], make_plan(reading, query, view).explain)
        return read.query_at_once(reading, query, view, epoch)

    for _ in range(2):
        try:
            return await run(work)
        except _Outdated:
            continue
        except _NotQuick:
            break
    return None


class _QuickReading(PostgresReading):
    """Reads that each see their own moment; only good for a plan of a single scan."""

    def __init__(self, fetch: Fetch, texts: Texts, catalogs: Catalogs) -> None:
        super().__init__(None, texts, catalogs)
        self._one = fetch
        self._minds_unindexed = False
        if self.catalog.version < 0:
            self.refresh()

    def _all(self, sql: str, *values: Any) -> list[Any]:
        found: list[Any] = wait(self._one(sql, *values))
        return found

    def check_catalog(self) -> None:
        """Raise _Outdated if the store has another catalog than the one in memory."""
        ((_, _, _, version, _),) = self._all(self.texts.clock)
        if version != self.catalog.version:
            self.refresh()
            raise _Outdated

    def size(self, scan: IndexScan, cap: int) -> int:
        raise _NotQuick

    def skip(self, scan: IndexScan, descending: bool, count: int) -> IndexScan | None:
        raise _NotQuick

    def size_ids(self, prefix: str, cap: int) -> int:
        raise _NotQuick

    def unindexed_rows(self, schema: int) -> list[Row]:
        """Return none, which is assumed; `fetch` finds out."""
        self._minds_unindexed = True
        return []

    def fetch(
        self, scan: IndexScan, descending: bool, content: bool, limit: int
    ) -> Sequence[tuple[Any, ...]]:
        found = self._all(*self.fetching(scan, descending, content, limit))
        version, lag, *_ = found[0]
        if version != self.catalog.version:
            self.refresh()  # for the next plan
            raise _Outdated
        if lag and self._minds_unindexed:
            raise _Outdated
        return [] if found[0][2] is None else [row[2:] for row in found]
