"""The SQLite engine's primitives: its reads, its writes, and their SQL."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any

import apsw
import msgspec

from dgent import clock
from dgent.clock import ClockBelief
from dgent.errors import Corrupt
from dgent.store.engine.catalog import (
    Catalog,
    Entry,
    IndexName,
    Position,
    SchemaState,
    after_text,
    high,
    low,
    state_of,
)
from dgent.store.engine.kernel import (
    IndexScan,
    Logged,
    LogTip,
    TextDoc,
    TextPage,
    Wrap,
    Writing,
    end_at,
    ops_of,
    start_at,
)
from dgent.store.engine.row import Brief, Row, columns_of
from dgent.store.engine.tail import Moment, Tail, TailRecord, Waiting, group, pack, sum_up, unpack
from dgent.store.engine.versions import ANCHOR

_MAX_CACHED = 100_000
_PLACE_BITS = 20  # the place of a row of the tail is its commit's seq and a number within that
_ABOVE_TEXT = b""  # in SQLite's order any blob is above any text

_COLUMNS = "dk, id, rev, seq, live, t, at, schema, sv, author, source, parent, tags, enc, fk, x, data"
_PREFIXED = ", ".join("d." + column for column in _COLUMNS.split(", "))
_BRIEF = ", ".join("d." + field for field in columns_of(Brief)[:-1])
_LOG = "seq, at, author, kind, note, of_seq, ops, key, digest"

_BRIEF_HEAD = f"SELECT {_BRIEF}, d.content FROM datum d WHERE d.id = ? AND d.trail = 0 AND d.live = 1"
_HEAD = f"SELECT {_COLUMNS}, content FROM datum WHERE id = ? AND trail = 0"
_HAS = "SELECT 1 FROM datum WHERE id = ? AND trail = 0"
_HAS_ANY = "SELECT 1 FROM json_each(?) j CROSS JOIN datum d ON d.id = j.value AND d.trail = 0 LIMIT 1"
_ROW = f"SELECT {_COLUMNS}, content FROM datum WHERE dk = ? AND trail = 0"
_PAST = f"SELECT {_COLUMNS}, content FROM past WHERE dk = ? ORDER BY rev DESC"
_PAST_FROM = f"SELECT {_COLUMNS}, content FROM past WHERE dk = ? AND rev >= ? ORDER BY rev LIMIT {ANCHOR}"
_LAG = (
    f"SELECT {_PREFIXED}, d.content FROM lag l CROSS JOIN datum d ON d.dk = l.dk AND d.trail = 0"
    " WHERE l.schema = ?"
)
_BETWEEN = "e.ix = ? AND (e.key, e.t, e.dk) >= (?, ?, ?) AND (e.key, e.t, e.dk) < (?, ?, ?)"
_ENTRY = "SELECT ix, key, t, dk FROM entry WHERE ix = ? AND key = ? AND t = ? AND dk = ?"
_OF_AUTHOR = "SELECT dk FROM datum WHERE dk = ? AND author = ?"
_FRESH = "SELECT value, EXISTS (SELECT 1 FROM lag) FROM meta WHERE name = 'catalog'"
_TAIL_ENDS = "SELECT (SELECT min(place) FROM tail), (SELECT max(place) FROM tail)"
_TAIL_SIZE = "SELECT coalesce(sum(records), 0), coalesce(max(place), 0) FROM tail"
_TAIL_AFTER = "SELECT place, body FROM tail WHERE place > ? ORDER BY place"
_LAST_KEY = (
    "SELECT max(value, coalesce((SELECT max(dk) FROM datum), 0)),"
    " (SELECT value FROM meta WHERE name = 'clock') FROM meta WHERE name = 'dk_floor'"
)
_PAGE_AT = (
    "SELECT p.word, p.first, p.body, (SELECT min(n.first) FROM page n WHERE n.ix = p.ix AND n.word = p.word"
    " AND n.first > p.first) FROM page p WHERE p.ix = ?1 AND p.word = ?2 AND p.first = coalesce("
    "(SELECT max(first) FROM page WHERE ix = ?1 AND word = ?2 AND first <= ?3),"
    " (SELECT min(first) FROM page WHERE ix = ?1 AND word = ?2))"
)
_PAGES = "SELECT word, first, body FROM page WHERE ix = ? AND word >= ? AND word < ? ORDER BY word, first"
_DOC = "SELECT dk, rev, size, page_rev, words FROM doc WHERE ix = ? AND dk = ?"
_PUT_DOC = "INSERT OR REPLACE INTO doc (ix, dk, rev, size, page_rev, words) VALUES (?, ?, ?, ?, ?, ?)"
_IDS = "FROM datum d WHERE d.id >= ? AND d.id < ? AND d.trail = 0 AND d.live = 1"
_INSERT = (
    f"INSERT INTO datum ({_COLUMNS}, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE = (
    "UPDATE datum SET rev = ?, seq = ?, live = ?, t = ?, at = ?, schema = ?, sv = ?, author = ?, source = ?,"
    " parent = ?, tags = ?, enc = ?, fk = ?, x = ?, data = ?, content = ? WHERE dk = ?"
)
_BURY = _INSERT.replace("INTO datum", "INTO past")
_DROP_SOME = (
    "DELETE FROM entry WHERE (ix, key, t, dk) IN (SELECT ix, key, t, dk FROM entry WHERE ix = ? LIMIT ?)"
)
_UNUSED = (
    "SELECT n, text FROM name WHERE n <> 0 AND n NOT IN (SELECT author FROM datum)"
    " AND n NOT IN (SELECT source FROM datum WHERE source IS NOT NULL)"
    " AND n NOT IN (SELECT author FROM past)"
    " AND n NOT IN (SELECT source FROM past WHERE source IS NOT NULL)"
    " AND n NOT IN (SELECT author FROM commits) AND n NOT IN (SELECT schema FROM schema)"
)
_TRIM = (
    "DELETE FROM commits WHERE seq <= ? AND trail = 0 AND key IS NULL"
    " AND seq < (SELECT max(seq) FROM commits)"
)
_CLEAR_NOTE = "UPDATE commits SET note = NULL, digest = NULL WHERE seq = ?"
_FORGET = "INSERT OR REPLACE INTO forgotten (h, last_rev, seq) VALUES (?, ?, ?)"
_ADD = "INSERT OR IGNORE INTO entry (ix, key, t, dk) VALUES (?, ?, ?, ?)"
_ADD_WITH_TAGS = "INSERT OR IGNORE INTO entry (ix, key, t, dk, tags) VALUES (?, ?, ?, ?, ?)"
_DROP_TAGS = "UPDATE entry SET tags = NULL WHERE ix = ? AND key = ? AND t = ? AND dk = ?"
_REMOVE = "DELETE FROM entry WHERE ix = ? AND key = ? AND t = ? AND dk = ?"
_WAIT = "INSERT INTO tail (place, records, body) VALUES (?, ?, ?)"
TAG_BITS = 15  # an entry with a key has one of so many bits for each tag of its record, or NULL if unknown
_MANY = 256  # so many new records in one write have their entries sorted into the indexes at once
MOVE_AT = 256  # when the entries of so many records wait, those of so many are moved
_FEW_TOMBSTONES = 16  # so many rows of deleted records may stay where they are
_APPEND = f"INSERT INTO commits ({_LOG}, cid) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def _order(descending: bool) -> str:
    return "ORDER BY e.key DESC, e.t DESC, e.dk DESC" if descending else "ORDER BY e.key, e.t, e.dk"


_WALKED, _FETCHED = "e.key, " + _PREFIXED, _BRIEF
# One key and all times: a plain comparison is checked quicker, row by row, than a range of triples.
_ONE_KEY = "e.ix = ? AND e.key = ?"


@cache
def _walk_sql(columns: str, between: str, others: int, author: bool, descending: bool, content: bool) -> str:
    body = "d.content" if content else "NULL"
    limit = " LIMIT ?" if columns == _FETCHED else ""
    return (
        f"SELECT {columns}, {body} FROM {_scan_sql(between, others, author, rows=True)}"
        f" {_order(descending)}{limit}"
    )


@cache
def _scan_sql(between: str, others: int, author: bool, rows: bool = False) -> str:
    """Return the tables and conditions of a scan; the rows take part if they are needed."""
    # CROSS JOIN keeps the index as the outer loop, so rows come in its order without a sort.
    tables, conditions = "entry e", between
    if others:
        conditions += " AND ~coalesce(e.tags, -1) & ? = 0"  # spares most of the looks into the others
    for other in (f"o{place}" for place in range(others)):
        tables += f" CROSS JOIN entry {other}"
        conditions += f" AND {other}.ix = ? AND {other}.key = ? AND {other}.t = e.t AND {other}.dk = e.dk"
    if rows or author:
        tables += " CROSS JOIN datum d ON d.dk = e.dk"
    return f"{tables} WHERE {conditions}{' AND d.author = ?' if author else ''}"


def _bounds(scan: IndexScan) -> tuple[str, tuple[Any, ...]]:
    """Return the condition for the entries of a scan, and its values after the number of the index."""
    return (_ONE_KEY, scan.low[:1]) if _is_one_key(scan) else (_BETWEEN, scan.low + scan.high)


def _has_one_key(scan: IndexScan) -> bool:
    """Return whether all entries in a scan have the same key."""
    return scan.high[0] == scan.low[0] or scan.high == high(scan.low[0])


def _is_one_key(scan: IndexScan) -> bool:
    key = scan.low[0]
    return scan.low == low(key) and scan.high == high(key)


@cache
def _times_sql(scans: int, between: str, descending: bool) -> str:
    one = f"(SELECT e.t FROM entry e WHERE {between} {_order(descending)} LIMIT 1 OFFSET ?)"
    return "SELECT " + ", ".join([one] * scans)


_ROW_AT = {True: _ROW, False: _ROW.replace(", content FROM", ", NULL FROM")}
_BRIEF_AT = {
    content: f"SELECT {_BRIEF}, {'d.content' if content else 'NULL'} FROM datum d WHERE d.dk = ?"
    for content in (False, True)
}

_ops_encoder = msgspec.msgpack.Encoder()
_belief_decoder = msgspec.json.Decoder(ClockBelief)


class SQLiteReading:
    """Reads on one connection; every call ends its statement, so the next one sees new commits."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.catalog = Catalog()
        self._execute: Callable[..., apsw.Cursor] = connection.cursor().execute
        self._walking: set[apsw.Cursor] = set()
        self._any_unindexed = 1  # hardly ever any; set by `refresh`, so that most queries need not look
        self._tag_bits: dict[int, int] = {}
        self._tail = Tail()
        self._looked = False  # whether the tail in memory is that of the moment that is read

    @property
    def generation(self) -> int:
        """A number that changes whenever cached numbers or states may be wrong."""
        return self.catalog.generation

    def _all(self, sql: str, *values: Any) -> list[Any]:
        return self._execute(sql, values).fetchall()

    def refresh(self) -> None:
        ((version, self._any_unindexed),) = self._all(_FRESH)
        if version != self.catalog.version:
            self._load(version)

    def _load(self, version: int) -> None:
        catalog = self.catalog
        catalog.clear()
        self._tag_bits.clear()
        self._forget_tail()
        meta = dict(self._all("SELECT name, value FROM meta"))
        for number, raw in self._all("SELECT schema, decl FROM schema"):
            state = state_of(raw)
            if state.number != number:
                raise Corrupt(f"the schema {state.name!r:.80} is stored under another number")
            catalog.states[state.name] = state
        catalog.floor, catalog.forgot, catalog.salt = meta["floor"], meta["forgot"], meta["forget_salt"]
        catalog.floor_at = meta.get("floor_at", 0)
        catalog.version = version

    def newest(self) -> tuple[int, int]:
        found = self._all("SELECT seq, at FROM commits ORDER BY seq DESC LIMIT 1")
        return found[0] if found else (self.catalog.floor, 0)

    def floor(self) -> int:
        return self.catalog.floor

    def name(self, number: int) -> str:
        text = self.catalog.names.get(number)
        if text is None:
            found = self._all("SELECT text FROM name WHERE n = ?", number)
            if not found:
                raise Corrupt(f"a record uses the name {number}, which is not stored")
            text = found[0][0]
            if len(self.catalog.names) > _MAX_CACHED:
                self.catalog.names.clear()
            self.catalog.names[number] = text
        return text

    def number(self, text: str) -> int | None:
        number = self.catalog.numbers.get(text)
        if number is None:
            found = self._all("SELECT n FROM name WHERE text = ?", text)
            if not found:
                return None
            number = found[0][0]
            if len(self.catalog.numbers) > _MAX_CACHED:
                self.catalog.numbers.clear()
            self.catalog.numbers[text] = number
        return number

    def state(self, schema: str) -> SchemaState | None:
        return self.catalog.states.get(schema)

    def states(self) -> list[SchemaState]:
        return list(self.catalog.states.values())

    def index_number(self, name: IndexName) -> int | None:
        index = self.catalog.indexes.get(name)
        if index is None:
            sql = "SELECT ix FROM ix WHERE schema = ? AND tag = ? AND path = ? AND iv = ? AND trail = 0"
            found = self._all(sql, name.schema, name.tag, name.path, name.index_version)
            if not found:
                return None
            index = found[0][0]
            if len(self.catalog.indexes) > _MAX_CACHED:
                self.catalog.indexes.clear()
            self.catalog.indexes[name] = index
        return index

    def head(self, id: str) -> Row | None:
        found = self._execute(_HEAD, (id,)).fetchall()
        return Row._make(found[0]) if found else None

    def row(self, record_key: int) -> Row | None:
        found = self._all(_ROW, record_key)
        return Row._make(found[0]) if found else None

    def rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        keys = [(record_key,) for record_key in record_keys]
        return [*map(Row._make, self.connection.cursor().executemany(_ROW_AT[content], keys))]

    # -- indexes and the tail -------------------------------------------------------------

    def tag_bit(self, index: int) -> int:
        """Return the bit that stands for the tag of an index in entries of others; 0 if it is not by tag."""
        bit = self._tag_bits.get(index)
        if bit is None:
            by_tag = self._all("SELECT 1 FROM ix WHERE ix = ? AND tag <> '' AND iv = 0", index)
            bit = self._tag_bits[index] = 1 << index % TAG_BITS if by_tag else 0
        return bit

    def _values(self, scan: IndexScan) -> tuple[Any, ...]:
        """Return what a statement takes after the bounds of a scan: tags, others and author."""
        if not scan.others:
            return scan.values()
        tags = 0
        for index, _ in scan.others:
            tags |= self.tag_bit(index)
        return (tags, *scan.values())

    def _forget_tail(self) -> None:
        self._tail.clear()
        self._looked = False

    def _waiting(self, scan: IndexScan) -> Waiting | None:
        """Return what waits in the tail for a scan, as of the moment that is read."""
        if not self._looked:
            ((first, last),) = self._all(_TAIL_ENDS)
            if last is None or last < self._tail.last:
                self._tail.clear()
            if last is not None:
                self._tail.drop_before(first)
                if last > self._tail.last:
                    self._tail.add(self._all(_TAIL_AFTER, self._tail.last))
            self._looked = True
        if _has_one_key(scan) and any(scan.narrowing()):
            answers = self._tail.answers
            if scan not in answers:
                if len(answers) >= _MANY:
                    answers.clear()
                answers[scan] = self._narrow(scan)
            return answers[scan]
        waiting = self._tail.waiting(scan)
        others = (IndexScan(index, low(key), high(key)) for index, key in scan.others)
        if waiting is None and any(map(self._tail.waiting, others)):
            waiting = Waiting((), frozenset())  # not for the index that is walked, but for another
        return waiting

    def _narrow(self, scan: IndexScan) -> Waiting | None:
        """Return what waits for a scan of one key that others narrow.

        Records that the tail has for it or for one of the others are judged one by one; for all others the
        indexes alone answer.
        """
        key, tail = scan.low[0], self._tail
        parts = ((scan.index_number, key), *scan.others)
        touched = {moment for index, under in parts for moment in tail.find_touched(index, under)}
        touched = {moment for moment in touched if scan.low <= (key, *moment) < scan.high}
        if not touched:
            return None
        added = sorted((key, *moment) for moment in self._find_in_all(touched, parts))
        if scan.author is not None:
            by_author = [(record_key, scan.author) for _, _, record_key in added]
            own = set(self.connection.cursor().executemany(_OF_AUTHOR, by_author).fetchall())
            added = [place for place in added if place[2:] in own]
        return Waiting(added, touched=frozenset(touched))

    def _find_in_all(self, moments: Iterable[Moment], parts: Sequence[tuple[int, bytes]]) -> Iterator[Moment]:
        """Return the records that are in each of some indexes under a key, there or in the tail."""
        doubts: dict[Moment, list[Entry]] = {}
        for moment in moments:
            known = [self._tail.has(index, (key, *moment)) for index, key in parts]
            if False not in known:
                doubts[moment] = [
                    (*part, *moment) for part, has in zip(parts, known, strict=True) if has is None
                ]
        asked = [entry for entries in doubts.values() for entry in entries]
        found = set(self.connection.cursor().executemany(_ENTRY, asked).fetchall())
        return (moment for moment, entries in doubts.items() if found.issuperset(entries))

    def _merge(self, scan: IndexScan, waiting: Waiting, descending: bool) -> Iterator[Position]:
        """Return the positions of a scan in the index and the tail, in order."""
        asked = scan if _has_one_key(scan) else scan.bare()
        sql = f"SELECT e.key, e.t, e.dk FROM {_scan_sql(_BETWEEN, *asked.narrowing())} {_order(descending)}"
        own = self._walk(sql, (scan.index_number, *scan.low, *scan.high, *self._values(asked)))
        places = waiting.merge_all(own, descending)
        return places if asked == scan else (place for place in places if self._counts(scan, place))

    def _counts(self, scan: IndexScan, place: Position) -> bool:
        """Check whether the record at a position is in the others, or waits for them, and has the author."""
        if not any(self._find_in_all((place[1:],), scan.others)):
            return False
        return scan.author is None or bool(self._all(_OF_AUTHOR, place[2], scan.author))

    def _at(self, sql: str, places: Iterable[Position]) -> list[Any]:
        """Return the rows at some positions, in their order."""
        keys = [(record_key,) for _, _, record_key in places]
        return self.connection.cursor().executemany(sql, keys).fetchall()

    def walk(self, scan: IndexScan, descending: bool, content: bool) -> Iterator[tuple[bytes, Row]]:
        make, waiting = Row._make, self._waiting(scan)
        if waiting is None:
            sql = _walk_sql(_WALKED, _BETWEEN, *scan.narrowing(), descending, content)
            values = (scan.index_number, *scan.low, *scan.high, *self._values(scan))
            for found in self._walk(sql, values):
                yield found[0], make(found[1:])
            return
        for place in self._merge(scan, waiting, descending):
            for row in self._at(_ROW_AT[content], (place,)):
                yield place[0], make(row)

    def _walk(self, sql: str, values: tuple[Any, ...]) -> Iterator[Any]:
        cursor = self.connection.cursor()
        self._walking.add(cursor)
        try:
            yield from cursor.execute(sql, values)
        finally:
            # A statement left open would hide later commits from this connection.
            self._walking.discard(cursor)
            cursor.close(True)

    def begin_read(self) -> None:
        """Start a read transaction: from here on, every read sees one moment."""
        self._looked = False
        self._execute("BEGIN")

    def end_read(self) -> None:
        """End the read transaction: the next read sees what was committed meanwhile."""
        self.end_walks()
        if not self.connection.get_autocommit():
            self._execute("COMMIT")

    def end_walks(self) -> None:
        """Close walks that an error left open: its traceback would keep them alive."""
        while self._walking:
            self._walking.pop().close(True)

    def fetch(self, scan: IndexScan, descending: bool, content: bool, limit: int) -> list[tuple[Any, ...]]:
        waiting = self._waiting(scan)
        if waiting is not None:
            return self._at(_BRIEF_AT[content], self._first(scan, waiting, descending, limit))
        between, place = _bounds(scan)
        sql = _walk_sql(_FETCHED, between, *scan.narrowing(), descending, content)
        values = (scan.index_number, *place, *self._values(scan), limit)
        return self._execute(sql, values).fetchall()

    def _first(self, scan: IndexScan, waiting: Waiting, descending: bool, limit: int) -> Iterable[Position]:
        """Return the first positions of a scan in the index and the tail."""
        if any(scan.narrowing()) and not _has_one_key(scan):
            return islice(self._merge(scan, waiting, descending), limit)
        first = waiting.first(limit, descending)
        if len(first) == limit:
            scan = end_at(scan, descending, first[-1])  # those of the index that come later are not needed
        between, place = _bounds(scan)
        matching = _scan_sql(between, *scan.narrowing())
        sql = f"SELECT e.key, e.t, e.dk FROM {matching} {_order(descending)} LIMIT ?"
        most = limit + len(waiting.removed) + len(waiting.touched)
        own = self._all(sql, scan.index_number, *place, *self._values(scan), most)
        return waiting.merge_first(own, limit, descending)

    def skip(self, scan: IndexScan, descending: bool, count: int) -> IndexScan | None:
        waiting = self._waiting(scan)
        if waiting is None:
            matching = _scan_sql(_BETWEEN, *scan.narrowing())
            sql = f"SELECT e.key, e.t, e.dk FROM {matching} {_order(descending)} LIMIT 1 OFFSET ?"
            values = (scan.index_number, *scan.low, *scan.high, *self._values(scan), count)
            found = self._all(sql, *values)
        else:
            found = list(islice(self._merge(scan, waiting, descending), count, count + 1))
        return start_at(scan, descending, found[0]) if found else None

    def times(self, scans: Sequence[IndexScan], descending: bool, count: int) -> Sequence[int | None]:
        # Without what waits: that is little, and they only serve to choose between indexes.
        whole = all(_is_one_key(scan) for scan in scans)
        values: list[Any] = []
        for scan in scans:
            place = scan.low[:1] if whole else scan.low + scan.high
            values += (scan.index_number, *place, count)
        sql = _times_sql(len(scans), _ONE_KEY if whole else _BETWEEN, descending)
        found: Any = self._execute(sql, values).fetchall()[0]
        times: Sequence[int | None] = found
        return times

    def fetch_id(self, id: str) -> list[tuple[Any, ...]]:
        return self._execute(_BRIEF_HEAD, (id,)).fetchall()

    def walk_ids(self, prefix: str, content: bool) -> Iterator[Row]:
        body = "d.content" if content else "NULL"
        sql = f"SELECT {_PREFIXED}, {body} {_IDS} ORDER BY d.id"
        return map(Row._make, self._walk(sql, (prefix, after_text(prefix) or _ABOVE_TEXT)))

    def size(self, scan: IndexScan, cap: int) -> int:
        waiting = self._waiting(scan)
        if waiting is not None and any(scan.narrowing()):
            return sum(1 for _ in islice(self._merge(scan, waiting, False), cap))
        more, less = (0, 0) if waiting is None else (len(waiting.added), len(waiting.removed))
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {_scan_sql(_BETWEEN, *scan.narrowing())} LIMIT ?)"
        values = (scan.index_number, *scan.low, *scan.high, *self._values(scan), cap + less)
        return min(cap, int(self._all(sql, *values)[0][0]) - less + more)

    estimate = size

    def size_ids(self, prefix: str, cap: int) -> int:
        sql = f"SELECT count(*) FROM (SELECT 1 {_IDS} LIMIT ?)"
        return int(self._all(sql, prefix, after_text(prefix) or _ABOVE_TEXT, cap)[0][0])

    def unindexed_rows(self, schema: int) -> list[Row]:
        if not self._any_unindexed:
            return []
        return [Row._make(found) for found in self._all(_LAG, schema)]

    def past(self, record_key: int, rev: int | None = None) -> list[Row]:
        found = self._all(_PAST, record_key) if rev is None else self._all(_PAST_FROM, record_key, rev)[::-1]
        return [Row._make(row) for row in found]

    def spans(self, record_key: int) -> list[tuple[int, int, int]]:
        return self._all("SELECT rev, seq, at FROM past WHERE dk = ? ORDER BY rev", record_key)

    def log(self, since: int, limit: int | None) -> list[Logged]:
        sql = f"SELECT {_LOG} FROM commits WHERE seq > ? AND trail = 0 ORDER BY seq LIMIT ?"
        return [_logged_of(found) for found in self._all(sql, since, -1 if limit is None else limit)]

    def log_back(self, until: int, limit: int) -> list[Logged]:
        sql = f"SELECT {_LOG} FROM commits WHERE seq <= ? AND trail = 0 ORDER BY seq DESC LIMIT ?"
        return [_logged_of(found) for found in self._all(sql, until, limit)]

    def read_commit(self, seq: int) -> Logged | None:
        found = self._all(f"SELECT {_LOG} FROM commits WHERE seq = ?", seq)
        return _logged_of(found[0]) if found else None

    def find_by_key(self, key: bytes) -> Logged | None:
        found = self._all(f"SELECT {_LOG} FROM commits WHERE key = ?", key)
        return _logged_of(found[0]) if found else None

    def seq_at(self, at: int) -> int:
        def time_by(seq: int) -> int | None:
            found = self._all("SELECT at FROM commits WHERE seq <= ? ORDER BY seq DESC LIMIT 1", seq)
            return found[0][0] if found else None

        return self.catalog.seq_at(at, self.newest()[0], time_by)

    def forgotten_rev(self, id: str) -> int:
        if not self.catalog.forgot:
            return 0
        found = self._all("SELECT last_rev FROM forgotten WHERE h = ?", self.catalog.hash(id))
        return found[0][0] if found else 0

    # -- text indexes ---------------------------------------------------------------------

    def find_text_pages(self, index: int, wanted: Sequence[tuple[bytes, int]]) -> dict[bytes, TextPage]:
        asked = [(index, word, record_key) for word, record_key in wanted]
        found: list[Any] = self.connection.cursor().executemany(_PAGE_AT, asked).fetchall()
        return {word: TextPage(first, body, until) for word, first, body, until in found}

    def text_pages(self, index: int, low: bytes, high: bytes) -> Iterable[tuple[bytes, int, bytes]]:
        return self._all(_PAGES, index, low, high)

    def text_docs(self, index: int, record_keys: Iterable[int] | None) -> dict[int, TextDoc]:
        if record_keys is None:
            found = self._all("SELECT dk, rev, size, page_rev, words FROM doc WHERE ix = ?", index)
        else:
            asked = [(index, record_key) for record_key in record_keys]
            found = self.connection.cursor().executemany(_DOC, asked).fetchall()
        return {record_key: TextDoc(*doc) for record_key, *doc in found}


class SQLiteKernel(SQLiteReading):
    """Reads and writes of the one writing connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self.tip = LogTip(0, 0, 0)
        self.final = self.patient = True
        self.waiting = 0  # the entries of so many records are in the tail
        self._place = 0  # of the newest row of the tail that this kernel wrote
        self._first_place = random.getrandbits(_PLACE_BITS - 1)
        self._direct = False  # whether entries of this transaction go into the indexes at once
        self._at_once = connection.cursor().execute
        self._execute = self._in_turn
        self._many_at_once = connection.cursor().executemany
        self.commit_names: dict[int, str] = {}  # of the next log entries, by seq; only copies need names
        self._tombstones: dict[str, Row] = {}  # rows of deleted records wait, so that many lie close together
        self._data_version = -1
        self._belief: ClockBelief | None = None  # about the wall clock, as the store has it
        self._drop_new()
        self._forget_fresh()

    def behind(self, wrap: Wrap) -> Writing:
        """Return this kernel as a ledger uses it."""
        wrapped: Writing = wrap(self)
        return wrapped

    def close(self) -> None:
        """Release the file."""
        with suppress(apsw.Error):  # of the checkpoint: nothing is lost without it
            self.connection.close()

    # -- what waits -----------------------------------------------------------------------

    def _in_turn(self, sql: str, values: Any = ()) -> apsw.Cursor:
        """Run a statement after the pending writes, because it may read or change them."""
        self._write_tombstones()
        return self._apart(sql, values)

    def _apart(self, sql: str, values: Any) -> apsw.Cursor:
        """Run a statement that does not concern the rows of deleted records."""
        self._write_waiting()
        return self._at_once(sql, values)

    def _many(self, sql: str, values: Iterable[Any]) -> None:
        self._write_waiting()
        self._many_at_once(sql, values)

    def _write_waiting(self) -> None:
        if self._new_log or self._new or self._new_entries or self._gone_entries:
            self._flush()

    def _flush(self) -> None:
        rows, added, removed = list(self._new.values()), self._new_entries, self._gone_entries
        log = self._new_log
        self._drop_new()
        if rows:
            self._many_at_once(_INSERT, rows)
        if added or removed:
            self._flush_entries(rows, added, removed)
        if log:
            self._many_at_once(_APPEND, log)

    def _flush_entries(self, rows: Sequence[Row], added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        """Write entries to the tail; of many new records, or after `move_entries`, into the indexes."""
        if self._direct:
            self._write_entries(*sum_up(group(added, removed)))
            return
        if len(rows) >= _MANY:
            fresh = {row.record_key for row in rows}
            own = [entry for entry in added if entry[3] in fresh]
            gone = [entry for entry in removed if entry[3] in fresh]
            self._write_entries(*(sum_up(group(own, gone)) if gone else (sorted(own), (), ())))
            if len(own) + len(gone) == len(added) + len(removed):
                return
            added = [entry for entry in added if entry[3] not in fresh]
            removed = [entry for entry in removed if entry[3] not in fresh]
        self._write_tail(group(added, removed))

    def _write_entries(
        self, added: Sequence[Entry], removed: Sequence[Entry], changed: Sequence[Entry]
    ) -> None:
        """Change the indexes; sorted, entries land on neighbouring pages."""
        self._many_at_once(_REMOVE, removed)
        self._many_at_once(_DROP_TAGS, changed)
        tags = self._tags_of_new(added)
        self._many_at_once(_ADD, [entry for entry in added if not entry[1]])
        self._many_at_once(_ADD_WITH_TAGS, [(*entry, tags.get(entry[3])) for entry in added if entry[1]])

    def _tags_of_new(self, added: Iterable[Entry]) -> dict[int, int]:
        """Return the bits of the tags of records that are new in the indexes, by record key.

        These have all their entries among those that are added, and so one by schema.
        """
        tags: dict[int, int] = {}
        new: set[int] = set()
        bits = {index: self.tag_bit(index) for index in {entry[0] for entry in added if not entry[1]}}
        for index, key, _, record_key in added:
            if not key:
                bit = bits[index]
                tags[record_key] = tags.get(record_key, 0) | bit
                if not bit:
                    new.add(record_key)
        return tags if len(new) == len(tags) else {each: tags[each] for each in new}

    def _write_tail(self, records: Sequence[TailRecord]) -> None:
        if not records:
            return
        # Never a place that was there before: readers know rows of the tail by their places. The number in a
        # seq begins elsewhere in each process, since the cache of a journal may be written twice at one seq.
        self._place = max(self._place + 1, (self.tip.seq << _PLACE_BITS) + self._first_place)
        if self._place >= 2**63:
            raise Corrupt(
                "a row of the tail or of the log has a number that no commit gets", hint="restore a backup"
            )
        self._at_once(_WAIT, (self._place, len(records), pack(records)))
        self.waiting += len(records)
        self._looked = False

    def _move(self, most: int | None = None) -> None:
        """Move the oldest waiting entries, of about so many records, into the indexes, sorted."""
        self._write_waiting()
        waiting: Any = self._at_once("SELECT place, body FROM tail ORDER BY place").fetchall()
        records: list[TailRecord] = []
        moved: list[tuple[int]] = []
        for place, body in waiting:
            if most is not None and len(records) >= most:
                break
            with suppress(Corrupt):  # what is damaged stays; reads say so
                records += unpack(body)
                moved.append((place,))
        if moved:
            self._write_entries(*sum_up(records))
            self._many_at_once("DELETE FROM tail WHERE place = ?", moved)
            self.waiting -= len(records)
            self._looked = False

    def drop_damaged_tail(self) -> None:
        """Remove waiting entries that cannot be read; their records lack them until they are mended."""
        self.move_entries()
        self._execute("DELETE FROM tail")
        self.waiting = 0

    def move_entries(self) -> None:
        self._move()
        self._direct = True

    def _write_tombstones(self) -> None:
        tombstones, self._tombstones = self._tombstones, {}
        if len(tombstones) > _FEW_TOMBSTONES:  # they are small: written anew, they fill few pages
            self._many_at_once(
                "DELETE FROM datum WHERE dk = ?", [(row.record_key,) for row in tombstones.values()]
            )
            self._many_at_once(_INSERT, sorted(tombstones.values()))
        else:
            for row in tombstones.values():
                self._at_once(_UPDATE, (*row[2:], row.record_key))

    def _drop_new(self) -> None:
        # New rows wait here, so that many small commits of one transaction are written together.
        self._new: dict[str, Row] = {}
        self._new_entries: list[Entry] = []
        self._gone_entries: list[Entry] = []
        self._new_log: list[tuple[Any, ...]] = []

    def head(self, id: str) -> Row | None:
        waiting = self._new.get(id) or self._tombstones.get(id)
        if waiting is not None:
            return waiting
        found: Any = self._at_once(_HEAD, (id,)).fetchall()
        return Row._make(found[0]) if found else None

    def _walk(self, sql: str, values: tuple[Any, ...]) -> Iterator[Any]:
        self._write_all()
        return super()._walk(sql, values)

    def _waiting(self, scan: IndexScan) -> Waiting | None:
        self._write_waiting()
        return super()._waiting(scan)

    def _at(self, sql: str, places: Iterable[Position]) -> list[Any]:
        self._write_all()
        return super()._at(sql, places)

    def _write_all(self) -> None:
        self._write_waiting()
        self._write_tombstones()

    # -- the transaction ------------------------------------------------------------------

    def begin(self) -> bool:
        """Start a write transaction; return whether other processes wrote since the last one."""
        self._at_once("BEGIN IMMEDIATE")
        self._direct = False
        return self.notice_others()

    def notice_others(self) -> bool:
        """Load what other processes wrote; return whether they wrote."""
        # Not the pragma of this name, a statement like any other: this one counts own commits too.
        version = self.connection.data_version()
        if version == self._data_version:
            return False
        self.refresh()
        seq, at = self.newest()
        ((last_key, raw_belief),) = self._all(_LAST_KEY)
        self.tip = LogTip(seq, at, last_key)
        ((self.waiting, self._place),) = self._all(_TAIL_SIZE)
        self._looked = False
        self._belief = _belief_of(raw_belief)
        if self._belief is not None:
            clock.recall(self._belief)
        self._data_version = version
        return True

    def changes(self) -> tuple[int, int, int]:
        """Return counters that differ as soon as the present work has written something."""
        return self.connection.total_changes(), self.tip.seq, self.tip.record_key

    def commit(self) -> None:
        """Make the transaction durable, then let readers know the new names."""
        self.end_walks()
        if self.is_move_due():
            self._move(MOVE_AT)
        if self._changed_catalog:
            self._execute("UPDATE meta SET value = value + 1 WHERE name = 'catalog'")
        if (belief := clock.belief()) != self._belief and belief is not None:
            raw = msgspec.json.encode(belief)
            self._execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('clock', ?)", (raw,))
            self._belief = belief
        self._execute("COMMIT")
        self._data_version = self.connection.data_version()
        if self._fresh_numbers or self._fresh_indexes or self._changed_catalog:
            self._publish_fresh()

    def _publish_fresh(self) -> None:
        """Let readers use the names, indexes and schemas of the transaction that was committed."""
        catalog = self.catalog
        catalog.numbers.update(self._fresh_numbers)
        catalog.names.update({number: text for text, number in self._fresh_numbers.items()})
        catalog.indexes.update(self._fresh_indexes)
        catalog.states.update(self._fresh_states)
        if self._changed_catalog:
            catalog.version += 1
            catalog.generation += 1
        self._forget_fresh()

    def is_move_due(self) -> bool:
        """Check whether the next commit moves entries, and so takes some milliseconds longer."""
        return self.waiting >= MOVE_AT

    def rollback(self) -> None:
        """Undo the transaction, also when SQLite already did."""
        self.end_walks()
        self._drop_new()
        self._forget_tail()
        self._tombstones = {}
        self.commit_names.clear()
        self._forget_fresh()
        self._data_version = self.catalog.version = -1
        self.catalog.generation += 1
        if not self.connection.get_autocommit():
            self._execute("ROLLBACK")

    def _forget_fresh(self) -> None:
        # What this transaction added; others may use it only after the commit.
        self._fresh_numbers: dict[str, int] = {}
        self._fresh_indexes: dict[IndexName, int] = {}
        self._fresh_states: dict[str, SchemaState] = {}
        self._changed_catalog = False

    # -- names and schemas ----------------------------------------------------------------

    def name(self, number: int) -> str:
        for text, fresh in self._fresh_numbers.items():
            if fresh == number:
                return text
        return super().name(number)

    def number(self, text: str) -> int | None:
        fresh = self._fresh_numbers.get(text)
        return super().number(text) if fresh is None else fresh

    def are_new(self, ids: Sequence[str]) -> bool:
        if not self._new.keys().isdisjoint(ids) or not self._tombstones.keys().isdisjoint(ids):
            return False
        if len(ids) == 1:
            return not self._at_once(_HAS, ids).fetchall()
        return not self._at_once(_HAS_ANY, (msgspec.json.encode(ids).decode(),)).fetchall()

    def make_number(self, text: str) -> int:
        number = self.catalog.numbers.get(text)
        if number is None:
            number = self.number(text)
            if number is None:
                self._execute("INSERT INTO name (text) VALUES (?)", (text,))
                number = self.connection.last_insert_rowid()
                self._fresh_numbers[text] = number
        return number

    def index_number(self, name: IndexName) -> int | None:
        fresh = self._fresh_indexes.get(name)
        return super().index_number(name) if fresh is None else fresh

    def make_index(self, name: IndexName) -> int:
        index = self.catalog.indexes.get(name)
        if index is None:
            index = self.index_number(name)
            if index is None:
                values = (name.schema, name.index_version, name.tag, name.path)
                self._execute("INSERT INTO ix (schema, iv, tag, path) VALUES (?, ?, ?, ?)", values)
                index = self.connection.last_insert_rowid()
                self._fresh_indexes[name] = index
        return index

    def state(self, schema: str) -> SchemaState | None:
        return self._fresh_states.get(schema) or self.catalog.states.get(schema)

    def states(self) -> list[SchemaState]:
        return list({**self.catalog.states, **self._fresh_states}.values())

    def set_state(self, state: SchemaState) -> None:
        raw = msgspec.json.encode(state)
        self._execute("INSERT OR REPLACE INTO schema (schema, decl) VALUES (?, ?)", (state.number, raw))
        self._fresh_states[state.name] = state
        self._changed_catalog = True
        self.catalog.generation += 1

    # -- rows -----------------------------------------------------------------------------

    def insert(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._new[row.id] = row

    def replace(self, row: Row) -> None:
        if row.live:
            self._tombstones.pop(row.id, None)
            self._execute(_UPDATE, (*row[2:], row.record_key))
        else:
            self._tombstones[row.id] = row

    def set_keys(self, record_key: int, field_keys: bytes | None) -> None:
        self._execute("UPDATE datum SET fk = ? WHERE dk = ?", (field_keys, record_key))

    def archive(self, row: Row) -> None:
        self._apart(_BURY, row)

    def drop_past(self, record_key: int, below_rev: int) -> int:
        self._apart("DELETE FROM past WHERE dk = ? AND rev < ?", (record_key, below_rev))
        return int(self.connection.changes())

    def add_entries(self, entries: Sequence[Entry]) -> None:
        self._new_entries.extend(entries)

    def remove_entries(self, entries: Iterable[Entry]) -> None:
        self._gone_entries.extend(entries)

    def put_text_pages(self, pages: Sequence[tuple[int, bytes, int, bytes]]) -> None:
        self._many("INSERT OR REPLACE INTO page (ix, word, first, body) VALUES (?, ?, ?, ?)", pages)

    def drop_text_pages(self, pages: Sequence[tuple[int, bytes, int]]) -> None:
        self._many("DELETE FROM page WHERE ix = ? AND word = ? AND first = ?", pages)

    def put_text_docs(self, docs: Sequence[tuple[int, int, TextDoc]]) -> None:
        self._many(_PUT_DOC, [(index, record_key, *doc) for index, record_key, doc in docs])

    def drop_text_docs(self, docs: Sequence[tuple[int, int]]) -> None:
        self._many("DELETE FROM doc WHERE ix = ? AND dk = ?", docs)

    def notice_tags(self, entries: Iterable[Entry]) -> None:
        # They are removed and added again: whoever moves that sees that their bits no longer hold.
        keyed = [entry for entry in entries if entry[1]]
        self._gone_entries += keyed
        self._new_entries += keyed

    def drop_tags(self, entries: Iterable[Entry]) -> None:
        """Say of entries that the tags of their records are unknown."""
        self._many(_DROP_TAGS, entries)

    def entries_at(self, record_key: int) -> list[Entry]:
        self.move_entries()
        return self._all("SELECT ix, key, t, dk FROM entry WHERE dk = ?", record_key)

    def mark_unindexed(self, schema: int, record_key: int, unindexed: bool) -> None:
        if unindexed:
            self._any_unindexed = 1
            self._execute("INSERT OR IGNORE INTO lag (schema, dk) VALUES (?, ?)", (schema, record_key))
        else:
            self._apart("DELETE FROM lag WHERE schema = ? AND dk = ?", (schema, record_key))

    def append(self, logged: Logged) -> None:
        seq, at, author, kind, note, of_seq, ops, key, digest = logged
        packed, name = _ops_encoder.encode(ops), self.commit_names.pop(seq, None)
        self._new_log.append((seq, at, author, kind, note, of_seq, packed, key, digest, name))

    # -- pruning --------------------------------------------------------------------------

    def erase(self, rows: Sequence[Row], seqs: Sequence[int], seq: int) -> int:
        versions = 0
        self._many(_CLEAR_NOTE, [(touched,) for touched in seqs])
        for row in rows:
            self._execute("DELETE FROM past WHERE dk = ?", (row.record_key,))
            versions += self.connection.changes() + row.live
            self._execute("DELETE FROM datum WHERE dk = ?", (row.record_key,))
            self._execute(_FORGET, (self.catalog.hash(row.id), row.rev, seq))
        # A record key is never given again, or the log would speak of another record.
        self._execute("UPDATE meta SET value = max(value, ?) WHERE name = 'dk_floor'", (self.tip.record_key,))
        self._execute("UPDATE meta SET value = 1 WHERE name = 'forgot'")
        # Until the file is rewritten, its free pages and the log still hold the bytes.
        self._execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('erasing', ?)", (seq,))
        self._drop_unused_names()
        self.reload_everywhere()
        return versions

    def _drop_unused_names(self) -> None:
        """Drop texts that only forgotten records had, also in versions that were compacted before."""
        for number, text in self._all(_UNUSED):
            self._execute("DELETE FROM name WHERE n = ?", (number,))
            self._fresh_numbers.pop(text, None)

    def reload_everywhere(self) -> None:
        """Make this process, like others, load the catalog again."""
        self._changed_catalog = True
        self._data_version = -1
        version = self.catalog.version
        self.catalog.clear()
        self._load(version)

    def drop_indexes(self, schema: int, keep: Callable[[IndexName], bool], limit: int) -> bool:
        self.move_entries()
        names = self._all("SELECT ix, schema, iv, tag, path FROM ix WHERE schema = ? AND trail = 0", schema)
        left = limit
        for ix, *name in names:
            if keep(IndexName(*name)):
                continue
            self._execute(_DROP_SOME, (ix, left))
            left -= self.connection.changes()
            if left <= 0:
                return True
            for table in ("page", "doc", "ix"):
                self._execute(f"DELETE FROM {table} WHERE ix = ?", (ix,))
            self._fresh_indexes = {made: n for made, n in self._fresh_indexes.items() if n != ix}
            self.reload_everywhere()
        return False

    def kept_after(self, record_key: int, limit: int) -> list[int]:
        sql = "SELECT DISTINCT dk FROM past WHERE dk > ? ORDER BY dk LIMIT ?"
        return [found[0] for found in self._all(sql, record_key, limit)]

    def expire_keys(self, before: int) -> None:
        sql = "UPDATE commits SET key = NULL, digest = NULL WHERE key IS NOT NULL AND at < ?"
        self._execute(sql, (before,))

    def raise_floor(self, seq: int) -> int:
        at = self._all("SELECT max(at) FROM commits WHERE seq <= ? AND trail = 0", seq)[0][0]
        if at is not None:
            self._execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('floor_at', ?)", (at,))
        self._execute(_TRIM, (seq,))
        removed = int(self.connection.changes())
        self._execute("UPDATE meta SET value = ? WHERE name = 'floor'", (seq,))
        self.reload_everywhere()
        return removed


def _belief_of(raw: Any) -> ClockBelief | None:
    try:
        return _belief_decoder.decode(raw) if type(raw) is bytes else None
    except msgspec.DecodeError:
        return None  # it is replaced with the next commit


def _logged_of(found: tuple[Any, ...]) -> Logged:
    seq, at, author, kind, note, of_seq, ops, key, digest = found
    return Logged(seq, at, author, kind, note, of_seq, ops_of(seq, ops), key, digest)
