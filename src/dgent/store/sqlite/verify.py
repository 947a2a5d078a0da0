"""Check a SQLite store for consistency, worked out from each live row, and repair it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import apsw

from dgent import codec, ids
from dgent.store.engine import fold, vector_check
from dgent.store.engine import row as rows
from dgent.store.engine.catalog import EMPTY, Entry, IndexName, TailRecord, is_unsettled
from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import FORGET, QUIET, SAME, Writing, ops_of
from dgent.store.engine.row import Row, columns_of
from dgent.store.engine.tail import sum_up, unpack
from dgent.store.engine.vector_check import VectorDamage
from dgent.store.sqlite.kernel import SQLiteKernel
from dgent.store.sqlite.reading import TAG_BITS, SQLiteReading
from dgent.store.upkeep import Finding
from dgent.system.progress import ProgressReporter

if TYPE_CHECKING:
    from dgent.store.sqlite.backend import SQLiteBackend

BATCH = 2000
MEND_BATCH = 500  # so many records are mended in one transaction
NAMED = 5  # so many commits are named

_NUMBERS = ("rev", "seq", "live", "t", "at", "schema", "sv", "author", "enc")
_WRONG = " OR ".join(
    [f"typeof({name}) <> 'integer'" for name in _NUMBERS]
    + [f"typeof({name}) NOT IN ('blob', 'null')" for name in ("fk", "x", "data", "content")]
    + ["typeof(source) NOT IN ('integer', 'null')", "typeof(parent) NOT IN ('text', 'null')"]
)
# Read as bytes: a text that is damaged cannot be read as one. A packed id is one already.
_ID = "iif(typeof(id) = 'blob', id, CAST(id AS BLOB)), typeof(id)"
# Tags that are named by a number are the text of that name.
_TAGS = "iif(typeof(tags) = 'integer', (SELECT text FROM name WHERE n = tags), tags)"
_BODIES = (
    f"SELECT dk, {_ID}, CAST({_TAGS} AS BLOB), typeof({_TAGS}) = 'text', CAST(parent AS BLOB), t, x, data,"
    f" {_WRONG} FROM datum WHERE trail = 0 ORDER BY dk"
)
# In SQLite's order any text or blob is above any number, so checking the greatest checks all of them.
# By the index of ids: those of contents begin with the name of their schema, and "0" comes after "/".
_CONTENTS = (
    "SELECT id, content FROM datum WHERE trail = 0 AND live AND id > 'blob.content/' AND id < 'blob.content0'"
)
_SOUND = (
    f"SELECT id, {_TAGS}, parent, t, x, data, max({', '.join(_NUMBERS)}, ifnull(source, 0)),"
    " typeof(content) = 'text' FROM datum WHERE live IS NOT 0 AND trail = 0"
)
_WRONG_PAST = (
    "SELECT count(*) FROM past WHERE typeof(dk) <> 'integer' OR typeof(id) <> 'text'"
    f" OR typeof(tags) <> 'text' OR {_WRONG}"
)
_BAD = "CREATE TEMP TABLE bad (dk INTEGER PRIMARY KEY)"

_COLUMNS = ", ".join(columns_of(Row)[:-1])  # content is in no index
_LIVE = (
    f"SELECT {_COLUMNS}, NULL FROM datum WHERE live = 1 AND trail = 0 AND dk NOT IN (SELECT dk FROM bad)"
    " ORDER BY dk"
)
_NAMED = "CREATE TEMP TABLE named (dk INTEGER PRIMARY KEY, rev INT NOT NULL, seq INT NOT NULL, twice INT)"
_TWICE = "twice OR (excluded.rev <= rev AND excluded.seq > seq)"  # its number was given again
_NAME = (
    "INSERT INTO named VALUES (?, ?, ?, 0) ON CONFLICT (dk) DO UPDATE SET"
    f" twice = {_TWICE}, rev = excluded.rev, seq = iif({_TWICE}, seq, excluded.seq)"
)
_LOST = (
    "SELECT c.dk, c.seq, d.dk IS NULL FROM named c LEFT JOIN datum d ON d.dk = c.dk"
    " WHERE d.dk IS NULL OR c.twice OR c.rev > d.rev ORDER BY c.seq, c.dk"
)
# Forgetting removes a record's entries with it: entries of a record that was there and is not are a trace.
_TRACED = (
    "SELECT DISTINCT e.dk FROM (SELECT dk FROM entry UNION ALL SELECT dk FROM arriving) e"
    " LEFT JOIN datum d ON d.dk = e.dk WHERE d.dk IS NULL"
    " AND e.dk <= (SELECT max(m.value, (SELECT coalesce(max(dk), 0) FROM datum))"
    " FROM meta m WHERE m.name = 'dk_floor')"
)
_WANT = (
    "CREATE TEMP TABLE want (ix INT NOT NULL, key BLOB NOT NULL, t INT NOT NULL, dk INT NOT NULL,"
    " PRIMARY KEY (ix, key, t, dk)) WITHOUT ROWID"
)
# Entries that wait to be moved, and those that wait to be removed, count as if they had been.
_ARRIVING, _LEAVING = _WANT.replace("want", "arriving"), _WANT.replace("want", "leaving")
_MISSING = (
    "SELECT * FROM want INTERSECT SELECT * FROM leaving UNION SELECT * FROM"
    " (SELECT * FROM want EXCEPT SELECT ix, key, t, dk FROM entry EXCEPT SELECT * FROM arriving)"
)
_EXTRA = (
    "SELECT ix, key, t, dk FROM (SELECT ix, key, t, dk FROM entry UNION SELECT * FROM arriving)"
    " EXCEPT SELECT * FROM want EXCEPT SELECT * FROM leaving"
)
# Entries hold the bits of their records' tags; those of records with changes that wait need not fit yet.
_MARKED = "CREATE TEMP TABLE marked (dk INTEGER PRIMARY KEY, tags INT NOT NULL)"
_MARK = (
    f"INSERT INTO marked SELECT w.dk, sum(DISTINCT iif(i.tag <> '' AND i.iv = 0, 1 << w.ix % {TAG_BITS}, 0))"
    " FROM want w LEFT JOIN ix i ON i.ix = w.ix"
    " WHERE w.dk NOT IN (SELECT dk FROM arriving UNION SELECT dk FROM leaving) GROUP BY w.dk"
)
# Versions that wait to be indexed by their texts or vectors are never looked for by their tags.
_MISTAGGED = (
    "SELECT e.ix, e.key, e.t, e.dk FROM entry e JOIN marked m ON m.dk = e.dk WHERE e.tags <> m.tags AND e.ix"
    " NOT IN (SELECT ix FROM ix WHERE path GLOB '@text:*' OR path GLOB '@vector:*')"
)
_UNLISTED = (
    "SELECT d.dk FROM datum d LEFT JOIN lag l ON l.schema = d.schema AND l.dk = d.dk"
    " WHERE d.live = 1 AND d.trail = 0 AND d.fk = x'' AND l.dk IS NULL"
)
_NOT_UNINDEXED = (
    "SELECT l.dk FROM lag l LEFT JOIN datum d ON d.dk = l.dk AND d.schema = l.schema AND d.live = 1"
    " AND d.fk = x'' WHERE d.dk IS NULL"
)
_HEADLESS = (
    "SELECT count(*) FROM past p LEFT JOIN datum d ON d.dk = p.dk WHERE d.dk IS NULL OR p.rev >= d.rev"
)
_OPS = (
    "SELECT seq, ops, typeof(max(at, author, kind)) <> 'integer' FROM commits"
    " WHERE seq > ? AND trail = 0 ORDER BY seq"
)
_GAPS = "SELECT coalesce(max(seq) - ?1 - count(*), 0) FROM commits WHERE seq > ?1"
_NAMELESS = """
SELECT count(*) FROM (
    SELECT schema AS n FROM datum UNION SELECT author FROM datum UNION SELECT source FROM datum
    UNION SELECT tags FROM datum WHERE typeof(tags) = 'integer'
    UNION SELECT schema FROM past UNION SELECT author FROM past UNION SELECT source FROM past
    UNION SELECT author FROM commits
) WHERE n IS NOT NULL AND n NOT IN (SELECT n FROM name)
"""


class Strays:
    """Index entries that do not follow from the rows, and rows whose mark as unindexed (`lag`) is wrong."""

    def __init__(self) -> None:
        self.missing: list[int] = []  # record key of rows that lack an entry
        self.extra: list[Entry] = []
        self.unindexed: list[int] = []
        self.mistagged: list[Entry] = []  # entries with other tags than their records
        self.texts: dict[str, set[int] | None] = {}  # records to be indexed again; None: all of the schema
        self.vectors: dict[str, VectorDamage] = {}
        self.unreadable = 0  # rows of the tail that are damaged

    def __bool__(self) -> bool:
        found = self.missing, self.extra, self.unindexed, self.mistagged, self.texts, self.unreadable
        return bool(self.vectors) or any(map(bool, found))

    def describe(self) -> str:
        """Return a description of the problems, in numbers."""
        texts = [schema or "records without a schema" for schema in self.texts]
        return (
            f"{len(self.missing):,} records lack index entries, {len(self.extra):,} entries lead nowhere,"
            f" {len(self.unindexed):,} marks of unindexed records are wrong"
            + (
                f", {len(self.mistagged):,} entries have other tags than their records"
                if self.mistagged
                else ""
            )
            + (f", the texts of {', '.join(texts)} are to be indexed again" if texts else "")
            + (f", the vectors of {', '.join(self.vectors)} are to be indexed again" if self.vectors else "")
            + (f", {self.unreadable:,} commits wait with damaged entries" if self.unreadable else "")
        )


class _VerifyReading(SQLiteReading):
    """A reading that works out entries of rows without making the indexes that are missing."""

    def make_index(self, name: IndexName) -> int:
        """Return the number of an index; a missing one has a number that no index has."""
        return self.index_number(name) or -1

    def entries_at(self, record_key: int) -> list[Entry]:
        """Return nothing: the entries of a damaged row cannot be worked out."""
        return []


class _Unsettled:
    """The field indexes that are not in their final state: being built, or no longer declared."""

    def __init__(self, kernel: SQLiteReading) -> None:
        states = {state.number: state for state in kernel.states()}
        self.indexes: set[int] = {-2}
        for ix, *name in kernel._all("SELECT ix, schema, iv, tag, path FROM ix WHERE iv <> 0"):
            state = states.get(name[0])
            if state is not None and is_unsettled(state, IndexName(*name)):
                self.indexes.add(ix)
        self.schemas = {state.number for state in states.values() if state.fill is not None}

    def drop_unsettled(self, entries: Iterable[Entry], schema: int) -> list[Entry]:
        """Return the entries without those of indexes that may or may not have them."""
        if schema in self.schemas:
            return [entry for entry in entries if entry[0] not in self.indexes and entry[0] != -1]
        return list(entries)


def _list_wanted(
    connection: apsw.Connection, ledger: Ledger, unsettled: _Unsettled, pace: ProgressReporter
) -> set[int]:
    """Write the entries that rows must have into a temporary table; return the keys of damaged rows."""
    connection.execute("PRAGMA query_only = OFF")
    for table in (_WANT, _BAD, _NAMED, _ARRIVING, _LEAVING, _MARKED):
        connection.execute(table)
    damaged = {record_key for record_key, _ in _unsound(connection)}
    connection.executemany("INSERT INTO bad VALUES (?)", [(record_key,) for record_key in damaged])
    for batch in _batches(ledger):
        wanted: list[Entry] = []
        for row in batch:
            try:
                wanted += unsettled.drop_unsettled(ledger.entries_of(row), row.schema)
            except rows.DAMAGE:
                damaged.add(row.record_key)
        connection.executemany("INSERT OR IGNORE INTO want VALUES (?, ?, ?, ?)", sorted(wanted))
        pace.add(len(batch))
    return damaged


def _list_waiting(connection: apsw.Connection) -> int:
    """Write the entries that wait in the tail into temporary tables; return how many rows are damaged."""
    records: list[TailRecord] = []
    damaged = 0
    for (body,) in _all(connection, "SELECT body FROM tail ORDER BY place"):
        try:
            records += unpack(body)
        except rows.DAMAGE:
            damaged += 1
    added, removed, _ = sum_up(records)
    connection.executemany("INSERT INTO arriving VALUES (?, ?, ?, ?)", added)
    connection.executemany("INSERT INTO leaving VALUES (?, ?, ?, ?)", removed)
    return damaged


def find_strays(connection: apsw.Connection, pace: ProgressReporter) -> tuple[Strays, list[Finding]]:
    """Work out from every live row which entries there must be, and compare; inside a read transaction."""
    ask = connection.execute
    kernel = _VerifyReading(connection)
    kernel.refresh()
    ledger, unsettled = Ledger(_as_writing(kernel)), _Unsettled(kernel)
    pace.total = int(kernel._all("SELECT count(*) FROM datum WHERE live = 1 AND trail = 0")[0][0])
    damaged = _list_wanted(connection, ledger, unsettled, pace)
    unreadable = _list_waiting(connection)
    unread = _read_log(connection, kernel.floor())
    lost = _all(connection, _LOST)
    gone = {record_key for record_key, _, nothing in lost if nothing}
    traced = {record_key for (record_key,) in _all(connection, _TRACED)} - gone
    strays, spared = Strays(), damaged | gone | traced
    strays.unreadable = unreadable
    strays.missing = sorted({entry[3] for entry in ask(_MISSING)})
    # The index entries of a lost record are its only trace, and stay.
    strays.extra = [e for e in ask(_EXTRA) if e[0] not in unsettled.indexes and e[3] not in spared]
    ask(_MARK)
    strays.mistagged = list(ask(_MISTAGGED))
    strays.texts = _find_text_damage(kernel)
    strays.vectors = {
        state.name: damage
        for state in kernel.states()
        if state.vector and (damage := vector_check.find_damage(_as_writing(kernel), state))
    }
    strays.unindexed = sorted(
        {record_key for sql in (_UNLISTED, _NOT_UNINDEXED) for (record_key,) in ask(sql)} - spared
    )
    found = [
        *_report_damaged(len(damaged)),
        *_lost([seq for _, seq, _ in lost], len(traced)),
        *_log_and_history(kernel, unread),
    ]
    return strays, found or [Finding("ok", "records", "rows, history, log and names fit together")]


def _find_text_damage(kernel: _VerifyReading) -> dict[str, set[int] | None]:
    found = {
        state.name: fold.find_damage(_as_writing(kernel), state) for state in kernel.states() if state.text
    }
    return {schema: wrong for schema, wrong in found.items() if wrong is None or wrong}


def _all(connection: apsw.Connection, sql: str) -> list[Any]:
    return connection.execute(sql).fetchall()


def _as_writing(kernel: Any) -> Writing:
    writing: Writing = kernel
    return writing


def _batches(ledger: Ledger) -> Iterator[list[Row]]:
    batch: list[Row] = []
    reading: Any = ledger.kernel
    for found in reading.connection.cursor().execute(_LIVE):
        batch.append(reading.make_row(found))
        if len(batch) == BATCH:
            yield batch
            batch = []
    yield batch


def _readable(row: Row) -> bool:
    try:
        rows.data_of(row)
        rows.tags_of(row)
    except rows.DAMAGE:
        return False
    return True


# -- records that cannot be read ----------------------------------------------------------


def unreadable(connection: apsw.Connection) -> Iterator[str]:
    """Yield the ids of records whose bytes are damaged, as far as that shows; not in any index's order."""
    if not _sound(connection):
        for _, id in _unsound(connection):
            yield id


def find_damaged_blobs(connection: apsw.Connection) -> Iterator[str]:
    """Yield the ids of contents of blobs in this database whose bytes are not those of their hash."""
    rows: Any = connection.cursor().execute(_CONTENTS)
    for id, content in rows:
        sha256 = str(id).rpartition("/")[2]
        if hashlib.sha256(content or b"").hexdigest() != sha256:
            yield f"blob:{sha256}"


def _sound(connection: apsw.Connection) -> bool:
    """Return whether every live record can be read, checked in one quick pass."""
    seen: set[str] = set()
    first, last, decode, cursor = rows.T_FIRST, rows.T_LAST, rows._data_decoder.decode, connection.cursor()
    try:
        for id, tags, parent, created_at, extra, data, greatest, odd in cursor.execute(_SOUND):
            if data is not None:
                decode(data)
            if tags not in seen:
                rows._tags_decoder.decode(tags)
                seen.add(tags)
            if extra is not None:
                codec.decode(extra)
            if odd or type(greatest) is not int or not first <= created_at <= last:
                return False
            if type(id) is not str and (type(id) is not bytes or len(id) != 16):
                return False
            if parent is not None and type(parent) is not str:
                return False
    except rows.DAMAGE:
        return False
    finally:
        cursor.close(True)
    return True


def _unsound(connection: apsw.Connection) -> Iterator[tuple[int, str]]:
    """Yield record key and id, as far as it is readable, of each damaged row."""
    cursor: Any = connection.cursor().execute(_BODIES)
    for record_key, id, kind, tags, tagged, parent, created_at, extra, data, wrong in cursor:
        try:
            if kind != "text":
                ids.unpack_id(id)
            for text in (b"" if kind == "blob" else id, parent or b""):
                text.decode()
            rows._tags_decoder.decode(tags)
            if extra is not None:
                codec.decode(extra)
            if data is not None:
                rows._data_decoder.decode(data)
            fine = bool(tagged) and not wrong and rows.T_FIRST <= created_at <= rows.T_LAST
        except (*rows.DAMAGE, AttributeError):
            fine = False
        if not fine:
            yield record_key, rows.id_text(id) if kind in ("text", "blob") else f"#{record_key}"


def _report_damaged(count: int) -> list[Finding]:
    if not count:
        return []
    return [Finding("problem", "records", f"{count:,} records are damaged", "restore them from a backup")]


# -- records that are not there -----------------------------------------------------------


def _read_log(connection: apsw.Connection, floor: int) -> int:
    """Collect the records that the log names, and their versions; return how many entries are damaged.

    A record that was forgotten is named by the entry of the forget too, which is always kept as long
    as those of the commits before it.
    """
    damaged, some = 0, list[tuple[int, int, int]]()

    def store() -> None:
        connection.executemany(_NAME, some)
        some.clear()

    cursor: Any = connection.cursor().execute(_OPS, (floor,))
    for seq, ops, wrong in cursor:
        try:
            decoded = ops_of(seq, ops)
        except rows.DAMAGE:
            wrong, decoded = 1, []
        damaged += wrong
        for code, record_key, rev in decoded:
            if code & ~QUIET == FORGET:
                store()
                connection.execute("DELETE FROM named WHERE dk = ?", (record_key,))
            elif code & ~QUIET != SAME:
                some.append((record_key, rev, seq))
        if len(some) >= BATCH:
            store()
    store()
    return damaged


def _lost(commits: list[int], traced: int) -> list[Finding]:
    hint = "restore a backup; what is left of them is not touched"
    found: list[Finding] = []
    if commits:
        seqs = sorted(set(commits))
        named = ", ".join(map(str, seqs[:NAMED])) + (", …" if len(seqs) > NAMED else "")
        message = f"{len(commits):,} records of commits {named} are missing"
        found.append(Finding("problem", "missing", message, hint))
    if traced:
        message = f"{traced:,} records with index entries are missing"
        found.append(Finding("problem", "missing", message, hint))
    return found


def _log_and_history(kernel: SQLiteReading, unread: int) -> list[Finding]:
    hint = "restore a backup"
    found: list[Finding] = []
    for count, subject, message in (
        (kernel._all(_HEADLESS)[0][0], "history", "old versions belong to no record"),
        (kernel._all(_WRONG_PAST)[0][0], "history", "old versions are damaged"),
        (kernel._all(_GAPS, kernel.floor())[0][0], "commits", "commits are missing from the log"),
        (unread, "commits", "commits in the log are damaged"),
        (kernel._all(_NAMELESS)[0][0], "names", "names are used and not stored"),
    ):
        if count:
            found.append(Finding("problem", subject, f"{count:,} {message}", hint))
    return found


# -- mending ------------------------------------------------------------------------------


async def mend_strays(backend: SQLiteBackend, strays: Strays) -> str | None:
    """Add missing entries and remove those that lead nowhere, in batches, each row checked again."""
    if strays.unreadable:
        await backend._write(lambda ledger: _own(ledger).drop_damaged_tail())
    for start in range(0, len(strays.missing), MEND_BATCH):
        some = strays.missing[start : start + MEND_BATCH]
        await backend._write(lambda ledger, some=some: _add(ledger, some))  # type: ignore[misc]
    for start in range(0, len(strays.extra), MEND_BATCH):
        extra = strays.extra[start : start + MEND_BATCH]
        await backend._write(lambda ledger, extra=extra: _remove(ledger, extra))  # type: ignore[misc]
    for schema, wrong in strays.texts.items():
        await backend._write(lambda ledger, of=schema, wrong=wrong: fold.mend(ledger, of, wrong))  # type: ignore[misc]
    for schema, damage in strays.vectors.items():
        await backend._write(
            lambda ledger, of=schema, damage=damage: vector_check.mend(ledger, of, damage)  # type: ignore[misc]
        )
    for start in range(0, len(strays.mistagged), MEND_BATCH):
        entries = strays.mistagged[start : start + MEND_BATCH]
        await backend._write(lambda ledger, entries=entries: _own(ledger).drop_tags(entries))  # type: ignore[misc]
    for start in range(0, len(strays.unindexed), MEND_BATCH):
        marks = strays.unindexed[start : start + MEND_BATCH]
        await backend._write(lambda ledger, marks=marks: _mark(ledger, marks))  # type: ignore[misc]
    return "mended"


def _work_out_entries(
    ledger: Ledger, unsettled: _Unsettled, record_key: int
) -> tuple[Row | None, set[Entry]]:
    row = ledger.kernel.row(record_key)
    if row is None or not row.live:
        return row, set()
    return row, set(unsettled.drop_unsettled(ledger.entries_of(row), row.schema))


def _add(ledger: Ledger, record_keys: Sequence[int]) -> None:
    ledger.kernel.move_entries()
    unsettled = _Unsettled(_own(ledger))
    for record_key in record_keys:
        row, wanted = _work_out_entries(ledger, unsettled, record_key)
        if row is not None and _readable(row):
            ledger.kernel.add_entries(sorted(wanted))


def _remove(ledger: Ledger, extra: Sequence[Entry]) -> None:
    ledger.kernel.move_entries()
    unsettled = _Unsettled(_own(ledger))
    gone = []
    for entry in extra:
        row, wanted = _work_out_entries(ledger, unsettled, entry[3])
        if entry not in wanted and entry[0] not in unsettled.indexes and (row is None or _readable(row)):
            gone.append(entry)
    ledger.kernel.remove_entries(gone)


def _mark(ledger: Ledger, record_keys: Sequence[int]) -> None:
    kernel = ledger.kernel
    for record_key in record_keys:
        row = kernel.row(record_key)
        for (schema,) in _own(ledger)._all("SELECT schema FROM lag WHERE dk = ?", record_key):
            kernel.mark_unindexed(schema, record_key, False)
        if row is not None and row.live and row.field_keys == EMPTY:
            kernel.mark_unindexed(row.schema, record_key, True)


def _own(ledger: Ledger) -> SQLiteKernel:
    """Return the kernel that a ledger writes to; what wraps it passes statements on."""
    kernel: Any = ledger.kernel
    own: SQLiteKernel = kernel
    return own
