"""The reads of the SQLite engine, and their SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any

import apsw
import msgspec

from dgent.errors import Corrupt
from dgent.ids import pack_id, pack_ids, packed_range, unpack_id
from dgent.store.engine.catalog import (
    Catalog,
    Entry,
    IndexName,
    Position,
    SchemaState,
    TailRecord,
    after_text,
    high,
    low,
    state_of,
)
from dgent.store.engine.kernel import (
    IndexScan,
    Logged,
    TextDoc,
    TextPage,
    end_at,
    ops_of,
    start_at,
)
from dgent.store.engine.row import Row
from dgent.store.engine.tail import Moment, Tail, Waiting, unpack
from dgent.store.engine.text import COUNTS_RANGE
from dgent.store.engine.versions import DELTA
from dgent.store.sqlite.scan import (
    BETWEEN,
    BRIEF,
    COLUMNS,
    FETCHED,
    ONE_KEY,
    PREFIXED,
    WALKED,
    bounds,
    has_one_key,
    is_one_key,
    order,
    scan_sql,
    times_sql,
    walk_sql,
)
from dgent.store.sqlite.vector import VectorReads

_MAX_CACHED = 100_000
_ABOVE_TEXT = b""  # in SQLite's order any blob is above any text
LOG = "seq, at, author, kind, note, of_seq, ops, key, digest"
_BRIEF_HEAD = (  # with the id as it was asked for, which saves unpacking it
    f"SELECT {BRIEF.replace('d.id', '?')}, d.content FROM datum d"
    " WHERE d.id = ? AND d.trail = 0 AND d.live = 1"
)
HEAD = f"SELECT {COLUMNS}, content FROM datum WHERE id = ? AND trail = 0"
AT_ONCE = 64  # ids that one statement reads
_HEADS = {
    1 << bits: HEAD.replace("= ?", f"IN ({', '.join('?' * (1 << bits))})", 1)
    for bits in range(AT_ONCE.bit_length())
}
_ROW = f"SELECT {COLUMNS}, content FROM datum WHERE dk = ? AND trail = 0"
_PAST = f"SELECT {COLUMNS}, content FROM past WHERE dk = ? ORDER BY rev DESC"
_PAST_FROM = (
    f"SELECT {COLUMNS}, content FROM past WHERE dk = ?1 AND rev >= ?2 AND rev <= coalesce((SELECT rev"
    f" FROM past WHERE dk = ?1 AND rev >= ?2 AND enc <> {DELTA} ORDER BY rev LIMIT 1), {2**62}) ORDER BY rev"
)
_LAG = (
    f"SELECT {PREFIXED}, d.content FROM lag l CROSS JOIN datum d ON d.dk = l.dk AND d.trail = 0"
    " WHERE l.schema = ?"
)
_ENTRY = "SELECT ix, key, t, dk FROM entry WHERE ix = ? AND key = ? AND t = ? AND dk = ?"
_OF_AUTHOR = "SELECT dk FROM datum WHERE dk = ? AND author = ?"
_FRESH = "SELECT value, EXISTS (SELECT 1 FROM lag), (SELECT max(ix) FROM ix) FROM meta WHERE name = 'catalog'"
_TAIL_ENDS = "SELECT (SELECT min(place) FROM tail), (SELECT max(place) FROM tail)"
_TAIL_AFTER = "SELECT place, body FROM tail WHERE place > ? ORDER BY place"
_TAIL_PLACES = "SELECT place FROM tail WHERE place > ? ORDER BY place"
TAIL_AT = "SELECT body FROM tail WHERE place = ?"
_PAGE_AT = (
    "SELECT p.word, p.first, p.body, (SELECT min(n.first) FROM page n WHERE n.ix = p.ix AND n.word = p.word"
    " AND n.first > p.first) FROM page p WHERE p.ix = ?1 AND p.word = ?2 AND p.first = coalesce("
    "(SELECT max(first) FROM page WHERE ix = ?1 AND word = ?2 AND first <= ?3),"
    " (SELECT min(first) FROM page WHERE ix = ?1 AND word = ?2))"
)
_PAGES = (
    "SELECT word, first, body FROM page WHERE ix = ? AND word >= ? AND word < ? ORDER BY word, first LIMIT ?"
)
_DOC = "SELECT dk, rev, size, page_rev, words FROM doc WHERE ix = ? AND dk = ?"
_IDS = "FROM datum d WHERE d.id >= ? AND d.id < ? AND d.trail = 0 AND d.live = 1"
_PACKED_IDS = _IDS.replace("d.id < ?", "d.id <= ?")
_BY_ID = attrgetter("id")
TAG_BITS = 47  # an entry with a key has one of so many bits for each tag of its record, or NULL if unknown
_ROW_AT = {True: _ROW, False: _ROW.replace(", content FROM", ", NULL FROM")}
# A list as JSON: a third of the time of one execution for each record, and their order is kept.
_AMONG = "FROM json_each(?) w CROSS JOIN datum d ON d.dk = w.value"
_ROWS_AT = {
    content: f"SELECT {PREFIXED}, {'d.content' if content else 'NULL'} {_AMONG} AND d.trail = 0"
    for content in (False, True)
}
_BRIEFS_AT = {
    content: f"SELECT {BRIEF}, {'d.content' if content else 'NULL'} {_AMONG}" for content in (False, True)
}
_POSITIONS = {
    descending: f"SELECT e.key, e.t, e.dk FROM entry e WHERE {BETWEEN} {order(descending)} LIMIT ?"
    for descending in (False, True)
}
_MANY_TAGS = 128  # of so many tags in a schema hardly any has a bit of its own, so that nobody looks for it
_TAGS_BESIDE = (
    "SELECT o.ix FROM ix i CROSS JOIN ix o ON o.schema = i.schema AND o.tag > ''"
    f" WHERE i.ix = ? AND i.tag > '' LIMIT {_MANY_TAGS + 1}"
)
_MOST_ANSWERS = 256  # so many answers about the tail are kept


class SQLiteReading(VectorReads):
    """Reads on one connection; every call ends its statement, so the next one sees new commits."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.catalog = Catalog()
        self._execute: Callable[..., apsw.Cursor] = connection.cursor().execute
        self._walking: set[apsw.Cursor] = set()
        self._any_unindexed = 1  # hardly ever any; set by `refresh`, so that most queries need not look
        self._tag_bits: dict[int, int] = {}
        self._by_schema: dict[int, bool] = {}
        self._sole: dict[int, bool] = {}  # whether the bit of a tag is that of no other, by its index
        self._last_index: int | None = None  # the newest index when that was found out
        self._knows_indexes = False  # whether it is the newest at the moment that is read
        self._tail = Tail()
        self.recent: Mapping[int, Sequence[TailRecord]] = {}  # rows of the tail that are known, by place
        self._looked = False  # whether the tail in memory is that of the moment that is read
        self._is_reading = False  # whether all reads are of one moment
        self._version: int | None = None  # of that moment, once it is known
        # Where entries stand, as `times` answers, and the version of the moment that these are of.
        self._times: tuple[int | None, dict[Any, Sequence[int | None]]] = None, {}
        self._index_counts: dict[int, tuple[int, list[Any]]] = {}  # of text indexes, each with its version

    @property
    def generation(self) -> int:
        """A number that changes whenever cached numbers or states may be wrong."""
        return self.catalog.generation

    def _all(self, sql: str, *values: Any) -> list[Any]:
        return self._execute(sql, values).fetchall()

    def refresh(self) -> None:
        ((version, self._any_unindexed, last_index),) = self._all(_FRESH)
        if last_index != self._last_index:
            self._sole.clear()
            self._last_index = last_index
        self._knows_indexes = self._is_reading
        if version != self.catalog.version:
            self._load(version)
        if self._is_reading:
            self._version = self.connection.data_version()

    def _load(self, version: int) -> None:
        catalog = self.catalog
        catalog.clear()
        self._tag_bits.clear()
        self._by_schema.clear()
        self._sole.clear()
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
                self.catalog.names = {}  # a page may hold the other one
            self.catalog.names[number] = text
        return text

    def names_at_hand(self) -> dict[int, str]:
        return self.catalog.names

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

    def make_row(self, found: tuple[Any, ...]) -> Row:
        """Return a row of `datum` with its id and its tags as texts; what is damaged stays as it is."""
        id, tags = found[1], found[12]
        if type(id) is bytes and len(id) == 16:
            id = unpack_id(id)
        if type(tags) is int:
            with suppress(Corrupt):  # whoever reads the row finds out
                tags = self.name(tags)
        return Row._make((found[0], id, *found[2:12], tags, *found[13:]))

    def head(self, id: str) -> Row | None:
        found = self._execute(HEAD, (pack_id(id),)).fetchall()
        return self.make_row(found[0]) if found else None

    def heads(self, ids: Sequence[str]) -> list[Row | None]:
        found: dict[str | bytes, Any] = {}
        packed = pack_ids(ids)
        for first in range(0, len(packed), AT_ONCE):
            part = packed[first : first + AT_ONCE]
            # A few texts for all numbers of ids, so that each of them stays prepared.
            size = 1 << (len(part) - 1).bit_length()
            rows: list[Any] = self._execute(_HEADS[size], (*part, *(None,) * (size - len(part)))).fetchall()
            found.update((row[1], row) for row in rows)
        make = self.make_row
        return [make(found[id]) if id in found else None for id in packed]

    def row(self, record_key: int) -> Row | None:
        found = self._all(_ROW, record_key)
        return self.make_row(found[0]) if found else None

    def rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        return [*map(self.make_row, self._all(_ROWS_AT[content], _list_text(record_keys)))]

    # -- indexes and the tail -------------------------------------------------------------

    def tag_bit(self, index: int) -> int:
        """Return the bit that stands for the tag of an index in entries of others; 0 if it is not by tag."""
        bit = self._tag_bits.get(index)
        if bit is None:
            by_tag = self._all("SELECT 1 FROM ix WHERE ix = ? AND tag <> '' AND iv = 0", index)
            bit = self._tag_bits[index] = 1 << index % TAG_BITS if by_tag else 0
        return bit

    def _is_by_schema(self, index: int) -> bool:
        """Return whether an index has all records of a schema."""
        known = self._by_schema.get(index)
        if known is None:
            found = self._all("SELECT 1 FROM ix WHERE ix = ? AND tag = '' AND path = '' AND iv = 0", index)
            known = self._by_schema[index] = bool(found)
        return known

    def _narrowing(self, scan: IndexScan) -> tuple[int, bool, bool]:
        """Return the number of others of a scan, whether it has an author, and whether bits prove the others.

        They do in entries with keys, if each of the others is by a tag that shares its bit with none.
        """
        others, author = scan.narrowing()
        sole = others > 0 and self._knows_indexes and bool(scan.low[0])
        return others, author, sole and all(self._has_sole_bit(index) for index, _ in scan.others)

    def _has_sole_bit(self, index: int) -> bool:
        """Return whether an index is by a tag that shares its bit with no other tag of the schema."""
        if index not in self._sole:
            beside = [number for (number,) in self._all(_TAGS_BESIDE, index)]
            uses = Counter([number % TAG_BITS for number in beside])
            few = len(beside) <= _MANY_TAGS
            self._sole.update({number: few and uses[number % TAG_BITS] == 1 for number in beside})
            self._sole.setdefault(index, False)
        return self._sole[index]

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
                self._tail.drop_before(first, self._is_by_schema)
                if last > self._tail.last:
                    self._tail.add(self._read_tail(self._tail.last), self._is_by_schema)
            self._looked = True
        if not self._tail.rows:
            return None
        if has_one_key(scan) and any(scan.narrowing()):
            answers = self._tail.answers
            if scan not in answers:
                if len(answers) >= _MOST_ANSWERS:
                    answers.clear()
                answers[scan] = self._narrow(scan)
            return answers[scan]
        waiting = self._tail.waiting(scan)
        others = (IndexScan(index, low(key), high(key)) for index, key in scan.others)
        if waiting is None and any(map(self._tail.waiting, others)):
            waiting = Waiting((), frozenset())  # not for the index that is walked, but for another
        return waiting

    def _read_tail(self, after: int) -> Iterator[tuple[int, Sequence[TailRecord]]]:
        """Yield the rows of the tail after a place; those that this process wrote need no decoding."""
        recent = self.recent
        if not recent:
            for place, body in self._all(_TAIL_AFTER, after):
                yield place, unpack(body)
            return
        for (place,) in self._all(_TAIL_PLACES, after):
            records = recent.get(place)
            if records is None:
                ((body,),) = self._all(TAIL_AT, place)
                records = unpack(body)
            yield place, records

    def _narrow(self, scan: IndexScan) -> Waiting | None:
        """Return what waits for a scan of one key that others narrow.

        Records with changes in the tail, for it or for one of the others, are judged one by one; new ones are
        in the tail alone, and for all others the indexes alone answer.
        """
        key, tail = scan.low[0], self._tail
        parts = ((scan.index_number, key), *scan.others)
        changed = {moment for index, under in parts for moment in tail.find_changed(index, under)}
        changed = {moment for moment in changed if scan.low <= (key, *moment) < scan.high}
        added = [(key, *moment) for moment in (*tail.find_new(parts), *self._find_in_all(changed, parts))]
        added = sorted([place for place in added if scan.low <= place < scan.high])
        if not added and not changed:
            return None
        if scan.author is not None:
            by_author = [(record_key, scan.author) for _, _, record_key in added]
            own = set(self.connection.cursor().executemany(_OF_AUTHOR, by_author).fetchall())
            added = [place for place in added if place[2:] in own]
        return Waiting(added, touched=frozenset(changed))

    def _find_in_all(
        self, moments: Collection[Moment], parts: Sequence[tuple[int, bytes]]
    ) -> Iterator[Moment]:
        """Return the records that are in each of some indexes under a key, there or in the tail."""
        if not moments:
            return iter(())
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
        asked = scan if has_one_key(scan) else scan.bare()
        sql = f"SELECT e.key, e.t, e.dk FROM {scan_sql(BETWEEN, *self._narrowing(asked))} {order(descending)}"
        own = self._walk(sql, (scan.index_number, *scan.low, *scan.high, *self._values(asked)))
        places = waiting.merge_all(own, descending)
        return places if asked == scan else (place for place in places if self._counts(scan, place))

    def _counts(self, scan: IndexScan, place: Position) -> bool:
        """Check whether the record at a position is in the others, or waits for them, and has the author."""
        if not any(self._find_in_all((place[1:],), scan.others)):
            return False
        return scan.author is None or bool(self._all(_OF_AUTHOR, place[2], scan.author))

    def _at(self, sql: str, record_keys: int | str) -> list[Any]:
        """Return the rows of one record, or of a list of them in their order."""
        return self._all(sql, record_keys)

    def walk(self, scan: IndexScan, descending: bool, content: bool) -> Iterator[tuple[bytes, Row]]:
        make, waiting = self.make_row, self._waiting(scan)
        if waiting is None:
            sql = walk_sql(WALKED, BETWEEN, *self._narrowing(scan), descending, content)
            values = (scan.index_number, *scan.low, *scan.high, *self._values(scan))
            for found in self._walk(sql, values):
                yield found[0], make(found[1:])
            return
        for place in self._merge(scan, waiting, descending):
            for row in self._at(_ROW_AT[content], place[2]):
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
        self._is_reading, self._version, self._knows_indexes = True, None, False

    def end_read(self) -> None:
        """End the read transaction: the next read sees what was committed meanwhile."""
        self._is_reading, self._version, self._knows_indexes = False, None, False
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
            first = self._first(scan, waiting, descending, limit)
            return self._at(_BRIEFS_AT[content], _list_text([place[2] for place in first]))
        between, place = bounds(scan)
        sql = walk_sql(FETCHED, between, *self._narrowing(scan), descending, content)
        values = (scan.index_number, *place, *self._values(scan), limit)
        return self._execute(sql, values).fetchall()

    def _first(self, scan: IndexScan, waiting: Waiting, descending: bool, limit: int) -> Iterable[Position]:
        """Return the first positions of a scan in the index and the tail."""
        if any(scan.narrowing()) and not has_one_key(scan):
            return islice(self._merge(scan, waiting, descending), limit)
        first = waiting.first(limit, descending)
        if len(first) == limit:
            scan = end_at(scan, descending, first[-1])  # those of the index that come later are not needed
        between, place = bounds(scan)
        matching = scan_sql(between, *self._narrowing(scan))
        sql = f"SELECT e.key, e.t, e.dk FROM {matching} {order(descending)} LIMIT ?"
        most = limit + len(waiting.removed) + len(waiting.touched)
        own = self._all(sql, scan.index_number, *place, *self._values(scan), most)
        return waiting.merge_first(own, limit, descending)

    def find_keys(self, scan: IndexScan, limit: int) -> list[int]:
        waiting = self._waiting(scan)
        if waiting is not None and any(scan.narrowing()) and not has_one_key(scan):
            return [record_key for _, _, record_key in islice(self._merge(scan, waiting, False), limit)]
        between, place = bounds(scan)
        matching = scan_sql(between, *self._narrowing(scan))
        values = (scan.index_number, *place, *self._values(scan))
        if waiting is None or not (waiting.removed or waiting.touched):
            # One text of all keys: for 50,000 of them, a row for each took two to four times as long.
            sql = f"SELECT group_concat(dk) FROM (SELECT e.dk FROM {matching} LIMIT ?)"
            ((text,),) = self._all(sql, *values, limit)
            own: list[int] = msgspec.json.decode(f"[{text or ''}]")
        else:
            gone, touched = waiting.removed, waiting.touched
            sql = f"SELECT e.key, e.t, e.dk FROM {matching} LIMIT ?"
            rows = self._all(sql, *values, limit + len(gone) + len(touched))
            own = [each[2] for each in rows if each not in gone and each[1:] not in touched]
        if waiting is not None:
            own += [record_key for _, _, record_key in waiting.added]
        return own[:limit]

    def skip(self, scan: IndexScan, descending: bool, count: int) -> IndexScan | None:
        waiting = self._waiting(scan)
        if waiting is None:
            matching = scan_sql(BETWEEN, *self._narrowing(scan))
            sql = f"SELECT e.key, e.t, e.dk FROM {matching} {order(descending)} LIMIT 1 OFFSET ?"
            values = (scan.index_number, *scan.low, *scan.high, *self._values(scan), count)
            found = self._all(sql, *values)
        else:
            found = list(islice(self._merge(scan, waiting, descending), count, count + 1))
        return start_at(scan, descending, found[0]) if found else None

    def times(self, scans: Sequence[IndexScan], descending: bool, count: int) -> Sequence[int | None]:
        # Without what waits: that is little, and they only serve to choose between indexes.
        if self._version is None:
            return self._read_times(scans, descending, count)
        version, known = self._times
        if version != self._version or len(known) >= _MOST_ANSWERS:
            known = {}
            self._times = self._version, known
        asked = (*scans, descending, count)
        if asked not in known:
            known[asked] = self._read_times(scans, descending, count)
        return known[asked]

    def _read_times(self, scans: Sequence[IndexScan], descending: bool, count: int) -> Sequence[int | None]:
        whole = all(is_one_key(scan) for scan in scans)
        values: list[Any] = []
        for scan in scans:
            place = scan.low[:1] if whole else scan.low + scan.high
            values += (scan.index_number, *place, count)
        sql = times_sql(len(scans), ONE_KEY if whole else BETWEEN, descending)
        found: Any = self._execute(sql, values).fetchall()[0]
        times: Sequence[int | None] = found
        return times

    def positions(self, scans: Sequence[IndexScan], descending: bool, limit: int) -> list[list[Position]]:
        found, sql = [], _POSITIONS[descending]
        for scan in scans:
            waiting = self._waiting(scan)
            if waiting is None:
                found.append(self._all(sql, scan.index_number, *scan.low, *scan.high, limit))
            else:
                found.append([*self._first(scan, waiting, descending, limit)])
        return found

    def fetch_id(self, id: str) -> list[tuple[Any, ...]]:
        return self._execute(_BRIEF_HEAD, (id, pack_id(id))).fetchall()

    def walk_ids(self, prefix: str, content: bool) -> Iterator[Row]:
        body = "d.content" if content else "NULL"
        walks = [
            map(self.make_row, self._walk(f"SELECT {PREFIXED}, {body} {ids} ORDER BY d.id", values))
            for ids, values in _id_ranges(prefix)
        ]
        return merge(*walks, key=_BY_ID)

    def groups(self, scan: IndexScan, limit: int | None) -> list[tuple[bytes, int]]:
        waiting = self._waiting(scan)
        added, removed = ((), frozenset()) if waiting is None else (waiting.added, waiting.removed)
        walked = scan_sql(BETWEEN, *self._narrowing(scan))
        sql = f"SELECT e.key, count(*) FROM {walked} GROUP BY e.key ORDER BY e.key LIMIT ?"
        most = -1 if limit is None else limit + len(removed)
        found: dict[bytes, int] = dict(self._all(sql, scan.index_number, *scan.low, *scan.high, most))
        for change, places in ((1, added), (-1, removed)):
            for key, _, _ in places:
                found[key] = found.get(key, 0) + change
        return sorted((key, count) for key, count in found.items() if count > 0)[:limit]

    def tag_indexes(self, schema: int) -> list[tuple[str, int]]:
        return self._all("SELECT tag, ix FROM ix WHERE schema = ? AND tag != '' AND trail = 0", schema)

    def size(self, scan: IndexScan, cap: int) -> int:
        waiting = self._waiting(scan)
        if waiting is not None and any(scan.narrowing()):
            return sum(1 for _ in islice(self._merge(scan, waiting, False), cap))
        more, less = (0, 0) if waiting is None else (len(waiting.added), len(waiting.removed))
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {scan_sql(BETWEEN, *self._narrowing(scan))} LIMIT ?)"
        values = (scan.index_number, *scan.low, *scan.high, *self._values(scan), cap + less)
        return min(cap, int(self._all(sql, *values)[0][0]) - less + more)

    estimate = size

    def size_ids(self, prefix: str, cap: int) -> int:
        counts: Iterator[int] = (
            self._all(f"SELECT count(*) FROM (SELECT 1 {ids} LIMIT ?)", *values, cap)[0][0]
            for ids, values in _id_ranges(prefix)
        )
        return min(cap, sum(counts))

    def unindexed_rows(self, schema: int) -> list[Row]:
        if not self._any_unindexed:
            return []
        return [*map(self.make_row, self._all(_LAG, schema))]

    def past(self, record_key: int, rev: int | None = None) -> list[Row]:
        found = self._all(_PAST, record_key) if rev is None else self._all(_PAST_FROM, record_key, rev)[::-1]
        return [Row._make(row) for row in found]

    def spans(self, record_key: int) -> list[tuple[int, int, int]]:
        return self._all("SELECT rev, seq, at FROM past WHERE dk = ? ORDER BY rev", record_key)

    def log(self, since: int, limit: int | None) -> list[Logged]:
        sql = f"SELECT {LOG} FROM commits WHERE seq > ? AND trail = 0 ORDER BY seq LIMIT ?"
        return [_logged_of(found) for found in self._all(sql, since, -1 if limit is None else limit)]

    def log_back(self, until: int, limit: int) -> list[Logged]:
        sql = f"SELECT {LOG} FROM commits WHERE seq <= ? AND trail = 0 ORDER BY seq DESC LIMIT ?"
        return [_logged_of(found) for found in self._all(sql, until, limit)]

    def read_commit(self, seq: int) -> Logged | None:
        found = self._all(f"SELECT {LOG} FROM commits WHERE seq = ?", seq)
        return _logged_of(found[0]) if found else None

    def find_by_key(self, key: bytes) -> Logged | None:
        found = self._all(f"SELECT {LOG} FROM commits WHERE key = ?", key)
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

    def text_pages(
        self, index: int, low: bytes, high: bytes, limit: int | None = None
    ) -> Iterable[tuple[bytes, int, bytes]]:
        version = self._version
        if (low, high) != COUNTS_RANGE or version is None:
            found: list[tuple[bytes, int, bytes]] = self._all(
                _PAGES, index, low, high, -1 if limit is None else limit
            )
            return found
        known = self._index_counts.get(index)
        if known is None or known[0] != version:
            known = self._index_counts[index] = version, self._all(_PAGES, index, low, high, 1)
        return known[1]

    def text_docs(self, index: int, record_keys: Iterable[int] | None) -> dict[int, TextDoc]:
        if record_keys is None:
            found = self._all("SELECT dk, rev, size, page_rev, words FROM doc WHERE ix = ?", index)
        else:
            asked = [(index, record_key) for record_key in record_keys]
            found = self.connection.cursor().executemany(_DOC, asked).fetchall()
        return {record_key: TextDoc(*doc) for record_key, *doc in found}


def _id_ranges(prefix: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the conditions for ids that begin with a text, and their values: of texts, and of packed ones."""
    yield _IDS, (prefix, after_text(prefix) or _ABOVE_TEXT)
    packed = packed_range(prefix)
    if packed is not None:
        yield _PACKED_IDS, packed


def _list_text(record_keys: Iterable[int]) -> str:
    return f"[{','.join(map(str, record_keys))}]"


def _logged_of(found: tuple[Any, ...]) -> Logged:
    seq, at, author, kind, note, of_seq, ops, key, digest = found
    return Logged(seq, at, author, kind, note, of_seq, ops_of(seq, ops), key, digest)
