"""The writes of the SQLite engine, and their SQL."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import apsw
import msgspec

from dgent import clock
from dgent.clock import ClockBelief
from dgent.errors import Corrupt
from dgent.ids import pack_id, pack_ids
from dgent.store.engine.catalog import (
    Entry,
    IndexName,
    SchemaState,
    TailRecord,
    is_derived,
    name_dropped,
)
from dgent.store.engine.kernel import (
    IndexScan,
    Logged,
    LogTip,
    TextDoc,
    Wrap,
    Writing,
)
from dgent.store.engine.row import Row
from dgent.store.engine.tail import Waiting, group, list_added, pack, sum_up, unpack
from dgent.store.sqlite.entry import EntryWrites
from dgent.store.sqlite.reading import HEAD, LOG, TAIL_AT, SQLiteReading
from dgent.store.sqlite.scan import COLUMNS
from dgent.store.sqlite.vector import VectorWrites
from dgent.system.collector import pause

_PLACE_BITS = 20  # the place of a row of the tail is its commit's seq and a number within that
_HAS = "SELECT 1 FROM datum WHERE id = ? AND trail = 0"
_HAS_ANY = "SELECT 1 FROM json_each(?) j CROSS JOIN datum d ON d.id = j.value AND d.trail = 0 LIMIT 1"
_HAS_ANY_PACKED = _HAS_ANY.replace("j.value", "unhex(j.value)")
_TAIL_SIZE = "SELECT coalesce(sum(records), 0), coalesce(max(place), 0) FROM tail"
_LAST_KEY = (
    "SELECT max(value, coalesce((SELECT max(dk) FROM datum), 0)),"
    " (SELECT value FROM meta WHERE name = 'clock') FROM meta WHERE name = 'dk_floor'"
)
_PUT_DOC = "INSERT OR REPLACE INTO doc (ix, dk, rev, size, page_rev, words) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT = (
    f"INSERT INTO datum ({COLUMNS}, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE = (
    "UPDATE datum SET rev = ?, seq = ?, live = ?, t = ?, at = ?, schema = ?, sv = ?, author = ?, source = ?,"
    " parent = ?, tags = ?, enc = ?, fk = ?, x = ?, data = ?, content = ? WHERE dk = ?"
)
_BURY = _INSERT.replace("INTO datum", "INTO past")
_DROP_SOME = tuple(
    f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE ix = ? LIMIT ?)"
    for table, key in (
        ("entry", "ix, key, t, dk"),
        ("page", "ix, word, first"),
        ("doc", "ix, dk"),
        ("vector", "place"),
    )
)
_UNUSED = (
    "SELECT n, text FROM name WHERE n <> 0 AND n NOT IN (SELECT author FROM datum)"
    " AND n NOT IN (SELECT source FROM datum WHERE source IS NOT NULL)"
    " AND n NOT IN (SELECT tags FROM datum WHERE typeof(tags) = 'integer')"
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
_ID = itemgetter(1)  # of a row
_REMOVED = itemgetter(4)  # of a record in the tail
_WAIT = "INSERT INTO tail (place, records, body) VALUES (?, ?, ?)"
_MANY = 256  # so many new records in one write have their entries sorted into the indexes at once
MOVE_AT = 256  # when the entries of so many records wait, those of so many are moved
_LISTS = 4  # that a move makes for each record, at least
_LONG_TAGS = 8  # shorter texts of tags take as much room as a number
_USUAL_TAGS = 4  # so many records with the same tags have been written when these get a number
_MOST_TAGS = 16_384  # so many texts of tags are counted
_FEW_TOMBSTONES = 16  # so many rows of deleted records may stay where they are
_APPEND = f"INSERT INTO commits ({LOG}, cid) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ops_encoder = msgspec.msgpack.Encoder()
_belief_decoder = msgspec.json.Decoder(ClockBelief)


class SQLiteKernel(EntryWrites, VectorWrites, SQLiteReading):
    """Reads and writes of the one writing connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self.tip = LogTip(0, 0, 0)
        self.final = self.patient = True
        self.waiting = 0  # the entries of so many records are in the tail
        self._place = 0  # of the newest row of the tail that this kernel wrote
        self._first_place = random.getrandbits(_PLACE_BITS - 1)
        self.recent: dict[int, Sequence[TailRecord]] = {}
        self._layouts = {}
        self._direct = False  # whether entries of this transaction go into the indexes at once
        self._at_once = connection.cursor().execute
        self._execute = self._in_turn
        self._many_at_once = connection.cursor().executemany
        self.commit_names: dict[int, str] = {}  # of the next log entries, by seq; only copies need names
        self._tombstones: dict[str, Row] = {}  # rows of deleted records wait, so that many lie close together
        self._seen_tags: dict[str, int] = {}  # how often a text of tags was written
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
        if self._new_log or self._new or self._new_entries or self._gone_entries or self._new_records:
            self._flush()

    def _flush(self) -> None:
        rows, added, removed = list(self._new.values()), self._new_entries, self._gone_entries
        records, log = self._new_records, self._new_log
        self._drop_new()
        if rows:
            self._insert_rows(rows)
        if added or removed:
            self._flush_entries(rows, [*added, *list_added(records)], removed)
        elif records and (self._direct or len(rows) >= _MANY):
            self._write_records(records)
        else:
            self._write_tail(records)
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
        self.recent[self._place] = records
        self.waiting += len(records)
        self._looked = False

    def _move(self, most: int | None = None) -> None:
        """Move the oldest waiting entries, of about so many records, into the indexes, sorted."""
        self._write_waiting()
        waiting: Any = self._at_once("SELECT place FROM tail ORDER BY place").fetchall()
        records: list[TailRecord] = []
        moved: list[int] = []
        damaged: list[int] = []
        for (place,) in waiting:
            if most is not None and len(records) >= most:
                break
            try:
                records += self.recent.pop(place, ()) or self._unpack_row(place)
            except Corrupt:
                damaged.append(place)  # it stays; reads say so
            else:
                moved.append(place)
        if moved:
            # Its lists are gone when it is done; the collector would look at all there is because of them.
            with pause(_LISTS * len(records)):
                if any(map(_REMOVED, records)):
                    self._write_entries(*sum_up(records))
                else:
                    self._write_records(records)
            kept = f" AND place NOT IN ({', '.join(map(str, damaged))})" if damaged else ""
            self._at_once(f"DELETE FROM tail WHERE place <= ?{kept}", (moved[-1],))
            self.waiting -= len(records)
            self._looked = False

    def _unpack_row(self, place: int) -> list[TailRecord]:
        found: Any = self._at_once(TAIL_AT, (place,)).fetchall()
        return unpack(found[0][0])

    def drop_damaged_tail(self) -> None:
        """Remove waiting entries that cannot be read; their records lack them until they are mended."""
        self.move_entries()
        self._execute("DELETE FROM tail")
        self.recent.clear()
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
            self._insert_rows(sorted(tombstones.values()))
        else:
            for row in tombstones.values():
                self._at_once(_UPDATE, self._changed_values(row))

    def _drop_new(self) -> None:
        # New rows wait here, so that many small commits of one transaction are written together.
        self._new: dict[str, Row] = {}
        self._new_entries: list[Entry] = []
        self._new_records: list[TailRecord] = []
        self._gone_entries: list[Entry] = []
        self._new_log: list[tuple[Any, ...]] = []

    def head(self, id: str) -> Row | None:
        waiting = self._new.get(id) or self._tombstones.get(id)
        if waiting is not None:
            return waiting
        found: Any = self._at_once(HEAD, (pack_id(id),)).fetchall()
        return self.make_row(found[0]) if found else None

    def heads(self, ids: Sequence[str]) -> list[Row | None]:
        if self._new or self._tombstones:
            return [self.head(id) for id in ids]
        # In a transaction a statement that runs again is quicker than one for several ids.
        rows: Any = self._many_at_once(HEAD, zip(pack_ids(ids))).fetchall()
        found = {row.id: row for row in map(self.make_row, rows)}
        return list(map(found.get, ids))

    def _walk(self, sql: str, values: tuple[Any, ...]) -> Iterator[Any]:
        self._write_all()
        return super()._walk(sql, values)

    def _waiting(self, scan: IndexScan) -> Waiting | None:
        self._write_waiting()
        return super()._waiting(scan)

    def _at(self, sql: str, record_keys: int | str) -> list[Any]:
        self._write_all()
        return super()._at(sql, record_keys)

    def rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        self._write_all()
        return super().rows(record_keys, content)

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
        self.recent.clear()
        self._looked = False
        self._belief = _belief_of(raw_belief)
        if self._belief is not None:
            clock.recall(self._belief)
        self._data_version = version
        return True

    def known_seq(self) -> int | None:
        """Return the newest seq if only this kernel has written since it last looked; else None."""
        self._at_once("PRAGMA data_version").fetchall()  # begins a read, which notices what others wrote
        return self.tip.seq if self.connection.data_version() == self._data_version else None

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
        catalog.names.update(self._fresh_names)
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
        self.recent.clear()
        self.commit_names.clear()
        self._forget_fresh()
        self._data_version = self.catalog.version = -1
        self.catalog.generation += 1
        if not self.connection.get_autocommit():
            self._execute("ROLLBACK")

    def _forget_fresh(self) -> None:
        # What this transaction added; others may use it only after the commit.
        self._fresh_numbers: dict[str, int] = {}
        self._fresh_names: dict[int, str] = {}
        self._fresh_indexes: dict[IndexName, int] = {}
        self._fresh_states: dict[str, SchemaState] = {}
        self._changed_catalog = False

    # -- names and schemas ----------------------------------------------------------------

    def name(self, number: int) -> str:
        fresh = self._fresh_names.get(number)
        return super().name(number) if fresh is None else fresh

    def number(self, text: str) -> int | None:
        fresh = self._fresh_numbers.get(text)
        return super().number(text) if fresh is None else fresh

    def ends_at(self, seq: int) -> bool:
        return self.tip.seq == seq

    def are_new(self, ids: Sequence[str]) -> bool:
        if not self._new.keys().isdisjoint(ids) or not self._tombstones.keys().isdisjoint(ids):
            return False
        packed = pack_ids(ids)
        if len(packed) == 1:
            return not self._at_once(_HAS, packed).fetchall()
        texts = [id for id in packed if type(id) is str]
        digits = [id.hex() for id in packed if type(id) is bytes]
        return not any(
            self._at_once(sql, (msgspec.json.encode(some).decode(),)).fetchall()
            for sql, some in ((_HAS_ANY_PACKED, digits), (_HAS_ANY, texts))
            if some
        )

    def make_number(self, text: str) -> int:
        number = self.catalog.numbers.get(text)
        if number is None:
            number = self.number(text)
            if number is None:
                self._execute("INSERT INTO name (text) VALUES (?)", (text,))
                number = self.connection.last_insert_rowid()
                self._fresh_numbers[text], self._fresh_names[number] = number, text
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
        self._new.update(zip(map(_ID, rows), rows, strict=True))

    def replace(self, row: Row) -> None:
        if row.live:
            self._tombstones.pop(row.id, None)
            self._execute(_UPDATE, self._changed_values(row))
        else:
            if row.id in self._new:  # the same transaction has added it
                self._write_waiting()
            self._tombstones[row.id] = row

    def _insert_rows(self, rows: Iterable[Row]) -> None:
        columns: list[Any] = [*zip(*rows, strict=True)]
        columns[1] = pack_ids(columns[1])
        columns[12] = [*map(self._number_tags, columns[12])]  # now: a new number is a write of its own
        self._many_at_once(_INSERT, zip(*columns, strict=True))

    def _changed_values(self, row: Row) -> tuple[Any, ...]:
        """Return the values of the statement that changes a row."""
        return (*row[2:12], self._number_tags(row.tags), *row[13:], row.record_key)

    def _number_tags(self, text: str) -> str | int:
        """Return the number of a text of tags, if it has one or comes so often that it gets one."""
        number = self.catalog.numbers.get(text) or self._fresh_numbers.get(text)
        if number is not None:
            return number
        if type(text) is not str or len(text) <= _LONG_TAGS:
            return text  # one that is damaged stays as it is
        seen = self._seen_tags
        if len(seen) >= _MOST_TAGS:
            seen.clear()
        seen[text] = count = seen.get(text, 0) + 1
        return text if count < _USUAL_TAGS else self.make_number(text)

    def set_keys(self, record_key: int, field_keys: bytes | None) -> None:
        self._execute("UPDATE datum SET fk = ? WHERE dk = ?", (field_keys, record_key))

    # Nothing that waits is a replaced version, so these need not be written first: a commit that deletes
    # many records writes the changes of their entries together.

    def archive(self, row: Row) -> None:
        self._at_once(_BURY, row)

    def drop_past(self, record_key: int, below_rev: int) -> int:
        self._at_once("DELETE FROM past WHERE dk = ? AND rev < ?", (record_key, below_rev))
        return int(self.connection.changes())

    def add_entries(self, entries: Sequence[Entry]) -> None:
        self._new_entries.extend(entries)

    def add_records(self, records: Sequence[TailRecord]) -> None:
        self._new_records.extend(records)

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
        name = self.commit_names.pop(seq, None) if self.commit_names else None
        self._new_log.append(
            (seq, at, author, kind, note, of_seq, _ops_encoder.encode(ops), key, digest, name)
        )

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
            self._fresh_names.pop(number, None)

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
            dropped = name_dropped(IndexName(*name), ix)
            if is_derived(dropped) and dropped != IndexName(*name):
                self._execute("UPDATE ix SET path = ? WHERE ix = ?", (dropped.path, ix))
                self.reload_everywhere()
            for sql in _DROP_SOME:
                self._execute(sql, (ix, left))
                left -= self.connection.changes()
                if left <= 0:
                    return True
            self._execute("DELETE FROM ix WHERE ix = ?", (ix,))
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
