"""Whether everything in a SQLite store fits together, worked out from each live row; and mending it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import apsw

from dgent.store import row as rows
from dgent.store.catalog import EMPTY, Entry, StreamName
from dgent.store.kernel import Writing
from dgent.store.ledger import Ledger
from dgent.store.row import Row
from dgent.store.sqlite.kernel import SQLiteReading
from dgent.store.upkeep import Finding, Pace

if TYPE_CHECKING:
    from dgent.store.sqlite.backend import SQLiteBackend

BATCH = 2000
MEND_BATCH = 500  # so many records are mended in one transaction

_COLUMNS = ", ".join(Row._fields[:-1])  # content is in no index
_LIVE = f"SELECT {_COLUMNS}, NULL FROM datum WHERE live = 1 AND trail = 0 ORDER BY dk"
_WANT = (
    "CREATE TEMP TABLE want (ix INT NOT NULL, key BLOB NOT NULL, t INT NOT NULL, dk INT NOT NULL,"
    " PRIMARY KEY (ix, key, t, dk)) WITHOUT ROWID"
)
_MISSING = "SELECT ix, key, t, dk FROM want EXCEPT SELECT ix, key, t, dk FROM entry"
_EXTRA = "SELECT ix, key, t, dk FROM entry EXCEPT SELECT ix, key, t, dk FROM want"
_UNLISTED = (
    "SELECT d.dk FROM datum d LEFT JOIN lag l ON l.schema = d.schema AND l.dk = d.dk"
    " WHERE d.live = 1 AND d.trail = 0 AND d.fk = x'' AND l.dk IS NULL"
)
_NOT_LAGGING = (
    "SELECT l.dk FROM lag l LEFT JOIN datum d ON d.dk = l.dk AND d.schema = l.schema AND d.live = 1"
    " AND d.fk = x'' WHERE d.dk IS NULL"
)
_HEADLESS = (
    "SELECT count(*) FROM past p LEFT JOIN datum d ON d.dk = p.dk WHERE d.dk IS NULL OR p.rev >= d.rev"
)
_GAPS = "SELECT coalesce(max(seq) - ?1 - count(*), 0) FROM commits WHERE seq > ?1"
_NAMELESS = """
SELECT count(*) FROM (
    SELECT schema AS n FROM datum UNION SELECT author FROM datum UNION SELECT source FROM datum
    UNION SELECT schema FROM past UNION SELECT author FROM past UNION SELECT source FROM past
    UNION SELECT author FROM commits
) WHERE n IS NOT NULL AND n NOT IN (SELECT n FROM name)
"""


class Strays:
    """Index entries that do not follow from the rows, and rows whose `lag` mark is wrong."""

    def __init__(self) -> None:
        self.missing: list[int] = []  # dk of rows that lack an entry
        self.extra: list[Entry] = []
        self.lag: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.lag)

    def describe(self) -> str:
        """What is wrong, in numbers."""
        return (
            f"{len(self.missing):,} records lack index entries, {len(self.extra):,} entries lead nowhere,"
            f" {len(self.lag):,} marks of lagging records are wrong"
        )


class _Looking(SQLiteReading):
    """Tells a ledger where rows must stand without making the streams that are missing."""

    def make_stream(self, name: StreamName) -> int:
        """The number of a stream; a missing one has a number that no stream has."""
        return self.stream(name) or -1

    def entries_at(self, dk: int) -> list[Entry]:
        """Nothing: where a damaged row stands cannot be told."""
        return []


class _Unsettled:
    """The field streams that are not what they will be: being filled, or of an older version."""

    def __init__(self, kernel: SQLiteReading) -> None:
        states = {state.number: state for state in kernel.states()}
        self.streams: set[int] = {-2}
        for ix, schema, iv in kernel._all("SELECT ix, schema, iv FROM ix WHERE iv <> 0"):
            state = states.get(schema)
            if state is not None and (state.fill is not None or (state.stale and iv != state.iv)):
                self.streams.add(ix)
        self.schemas = {state.number for state in states.values() if state.fill is not None}

    def settled(self, entries: Iterable[Entry], schema: int) -> list[Entry]:
        """Without those of streams that may or may not have them."""
        if schema in self.schemas:
            return [entry for entry in entries if entry[0] not in self.streams and entry[0] != -1]
        return list(entries)


def find_strays(connection: apsw.Connection, pace: Pace) -> tuple[Strays, list[Finding]]:
    """Work out from every live row which entries there must be, and compare; inside a read transaction."""
    ask = connection.execute
    kernel = _Looking(connection)
    kernel.refresh()
    ledger, unsettled = Ledger(_as_writing(kernel)), _Unsettled(kernel)
    pace.total = int(kernel._all("SELECT count(*) FROM datum WHERE live = 1 AND trail = 0")[0][0])
    ask("PRAGMA query_only = OFF")
    ask(_WANT)
    damaged: list[int] = []
    for batch in _batches(connection):
        wanted: list[Entry] = []
        for row in batch:
            if _readable(row):
                wanted += unsettled.settled(ledger.entries_of(row), row.schema)
            else:
                damaged.append(row.dk)
        connection.executemany("INSERT OR IGNORE INTO want VALUES (?, ?, ?, ?)", sorted(wanted))
        pace.add(len(batch))
    strays, skipped = Strays(), set(damaged)
    strays.missing = sorted({entry[3] for entry in ask(_MISSING)})
    strays.extra = [e for e in ask(_EXTRA) if e[0] not in unsettled.streams and e[3] not in skipped]
    strays.lag = sorted({dk for sql in (_UNLISTED, _NOT_LAGGING) for (dk,) in ask(sql)})
    return strays, [*_damaged(len(damaged)), *_log_and_history(connection, kernel)]


def _as_writing(kernel: Any) -> Writing:
    writing: Writing = kernel
    return writing


def _batches(connection: apsw.Connection) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for found in connection.cursor().execute(_LIVE):
        batch.append(Row._make(found))
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


def _damaged(count: int) -> list[Finding]:
    if not count:
        return []
    return [Finding("problem", "records", f"{count:,} records are damaged", "restore them from a backup")]


def _log_and_history(connection: apsw.Connection, kernel: SQLiteReading) -> list[Finding]:
    hint = "restore a backup"
    found: list[Finding] = []
    headless = kernel._all(_HEADLESS)[0][0]
    if headless:
        message = f"{headless:,} old versions belong to no record"
        found.append(Finding("problem", "history", message, hint))
    gaps = kernel._all(_GAPS, kernel.floor())[0][0]
    if gaps:
        found.append(Finding("problem", "commits", f"{gaps:,} commits are missing from the log", hint))
    nameless = kernel._all(_NAMELESS)[0][0]
    if nameless:
        found.append(Finding("problem", "names", f"{nameless:,} names are used and not stored", hint))
    if not found:
        found.append(Finding("ok", "records", "rows, history, log and names fit together"))
    return found


# -- mending ------------------------------------------------------------------------------


async def mend_strays(backend: SQLiteBackend, strays: Strays) -> str | None:
    """Add what is missing and remove what leads nowhere, some records at a time, each looked at again."""
    for start in range(0, len(strays.missing), MEND_BATCH):
        some = strays.missing[start : start + MEND_BATCH]
        await backend._write(lambda ledger, some=some: _add(ledger, some))  # type: ignore[misc]
    for start in range(0, len(strays.extra), MEND_BATCH):
        extra = strays.extra[start : start + MEND_BATCH]
        await backend._write(lambda ledger, extra=extra: _remove(ledger, extra))  # type: ignore[misc]
    for start in range(0, len(strays.lag), MEND_BATCH):
        marks = strays.lag[start : start + MEND_BATCH]
        await backend._write(lambda ledger, marks=marks: _mark(ledger, marks))  # type: ignore[misc]
    return "mended"


def _wanted(ledger: Ledger, unsettled: _Unsettled, dk: int) -> tuple[Row | None, set[Entry]]:
    row = ledger.kernel.row(dk)
    if row is None or not row.live:
        return row, set()
    return row, set(unsettled.settled(ledger.entries_of(row), row.schema))


def _add(ledger: Ledger, dks: Sequence[int]) -> None:
    unsettled = _Unsettled(_own(ledger))
    for dk in dks:
        row, wanted = _wanted(ledger, unsettled, dk)
        if row is not None and _readable(row):
            ledger.kernel.add_entries(sorted(wanted))


def _remove(ledger: Ledger, extra: Sequence[Entry]) -> None:
    unsettled = _Unsettled(_own(ledger))
    gone = []
    for entry in extra:
        row, wanted = _wanted(ledger, unsettled, entry[3])
        if entry not in wanted and entry[0] not in unsettled.streams and (row is None or _readable(row)):
            gone.append(entry)
    ledger.kernel.remove_entries(gone)


def _mark(ledger: Ledger, dks: Sequence[int]) -> None:
    kernel = ledger.kernel
    for dk in dks:
        row = kernel.row(dk)
        for (schema,) in _own(ledger)._all("SELECT schema FROM lag WHERE dk = ?", dk):
            kernel.set_lag(schema, dk, False)
        if row is not None and row.live and row.fk == EMPTY:
            kernel.set_lag(row.schema, dk, True)


def _own(ledger: Ledger) -> SQLiteReading:
    """The kernel of this engine that a ledger writes to."""
    kernel: Any = ledger.kernel
    assert isinstance(kernel, SQLiteReading)
    return kernel
