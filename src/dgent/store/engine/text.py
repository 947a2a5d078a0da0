"""The text index of a schema: which records have which words.

A commit only notes that its records are to be indexed: an entry for each version in an index of its own,
which rides with all others. `fold` turns waiting versions into runs, and merges runs into the pages of
words. A search takes the newest it finds of a record: what waits, then the runs, then the pages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from dgent import clock
from dgent.errors import Corrupt
from dgent.model.datum import Datum
from dgent.search.record import RecordTexts, Words, count_record, read_texts, texts_at
from dgent.search.run import Run, unpack_run
from dgent.store.backend import View
from dgent.store.engine import row as rows
from dgent.store.engine.catalog import (
    TEXT,
    UNSTORED,
    IndexName,
    Position,
    SchemaState,
    find_texts,
    high,
    low,
    renew_texts,
    text_index,
)
from dgent.store.engine.kernel import IndexScan, Reading
from dgent.store.engine.row import Row
from dgent.store.search import OwnVersions

# The word under which a text index keeps its counts: after all others. The first place would be beside the
# runs, and SQLite reads all of a run to compare its name with another one: a millisecond for each look.
COUNTS = b"\xff"
COUNTS_RANGE = COUNTS, COUNTS + b"\0"
_ALL = 2**62
UNFILLED_BYTES = 4_000_000  # so much of records that are not noted is looked at: it takes half a second
_REBUILD = "`dgent doctor --deep --fix` builds the index anew"


class TextStats(NamedTuple):
    """The counts of a text index: records and their words; the newest run, and the newest that is merged.

    While runs are merged, `merging` is the newest of those, and `done` the last word that was. `erased` grows
    whenever records were taken out of runs; it begins with another number in each index.
    """

    records: int = 0
    size: int = 0
    last_run: int = 0
    merged: int = 0
    merging: int = 0
    done: str = ""
    erased: int = 0

    @property
    def runs(self) -> range:
        """The numbers of the runs that are not merged yet."""
        return range(self.merged + 1, self.last_run + 1)


_stats = msgspec.msgpack.Decoder(tuple[int, int, int, int, int, str, int])


class WaitingRecord(NamedTuple):
    """A record that waits to be indexed: its newest row, and the keys under which it waits."""

    row: Row
    keys: list[bytes]


def find_waiting(
    reading: Reading,
    index: int,
    limit: int | None,
    newest: bool = False,
    content: bool = False,
    between: tuple[bytes, bytes] = (b"", b"\xff" * 17),
) -> dict[int, WaitingRecord]:
    """Return records that wait to be indexed: at most so many versions, the oldest or the newest ones.

    `between` are the first and the last key to look at.
    """
    return read_waiting(reading, find_places(reading, index, limit, newest, between), content)


def find_places(
    reading: Reading,
    index: int,
    limit: int | None,
    newest: bool = False,
    between: tuple[bytes, bytes] = (b"", b"\xff" * 17),
) -> Sequence[Position]:
    """Return where versions wait to be indexed, as `find_waiting` finds them."""
    scan = IndexScan(index, low(between[0]), high(between[1]))
    (places,) = reading.positions([scan], newest, _ALL if limit is None else limit)
    return places


def read_waiting(
    reading: Reading, places: Sequence[Position], content: bool = False
) -> dict[int, WaitingRecord]:
    """Return the records that wait at some places."""
    found: dict[int, WaitingRecord] = {}
    keys = list({record_key for _, _, record_key in places})
    rows = {row.record_key: row for row in reading.rows(keys, content)} if keys else {}
    for key, _, record_key in places:
        if record_key in rows:
            found.setdefault(record_key, WaitingRecord(rows[record_key], [])).keys.append(key)
    return found


def find_unfilled(
    reading: Reading, state: SchemaState, limit: int, part: str = TEXT
) -> dict[int, WaitingRecord]:
    """Return records, the newest ones, that were there before their texts were declared and wait unnoted.

    `part` is `TEXT`, or `VECTOR` for those that were there before their vectors were.
    """
    base = reading.index_number(IndexName(state.number, 0, "", ""))
    if part in state.ready or state.fill is None or base is None:
        return {}
    created_at, record_key = state.fill
    scan = IndexScan(base, (b"", created_at, record_key + 1), high(b""))
    found: dict[int, WaitingRecord] = {}
    left = UNFILLED_BYTES if part == TEXT else _ALL
    for _, row in islice(reading.walk(scan, True, False), limit):
        found[row.record_key] = WaitingRecord(row, [])
        left -= len(row.data or b"")
        if left <= 0:
            break
    return found


def run_name(number: int) -> bytes:
    """Return the word under which a text index keeps a run; no word begins so."""
    return b"\0" + number.to_bytes(8, "big")


FIRST_WORD = b"\x01"  # before every word, after the runs
NO_INDEX = -1  # the number of an index that has no records


class TextIndex:
    """One text index of a store, as of the moment that is read."""

    def __init__(self, reading: Reading, state: SchemaState, index: int) -> None:
        self.reading, self.state, self.index = reading, state, index

    def stats(self) -> TextStats:
        """Return its counts."""
        if self.index == NO_INDEX:
            return TextStats()
        for _, _, raw in self.reading.text_pages(self.index, *COUNTS_RANGE, 1):
            try:
                return TextStats(*_stats.decode(raw))
            except msgspec.DecodeError as error:
                raise Corrupt(f"the counts of a text index are damaged: {error}", hint=_REBUILD) from None
        return TextStats()

    def runs(self, numbers: Collection[int], known: Mapping[bytes, Run] = MappingProxyType({})) -> list[Run]:
        """Return some runs by their numbers; those that are known need not be read from their bytes."""
        names = [run_name(number) for number in numbers]
        found = self.reading.find_text_pages(self.index, [(name, 0) for name in names]) if names else {}
        if len(found) < len(names):
            raise Corrupt("a run of a text index is missing", hint=_REBUILD)
        return [known.get(found[name].body) or unpack_run(found[name].body) for name in names]

    def words(self, row: Row, view: View) -> Words | None:
        """Return the words of a version; None when it is deleted, of another schema, or damaged."""
        data = self._data(row, view)
        return None if data is None else self._count(data, row.created_at)

    def read_texts(self, row: Row, view: View) -> RecordTexts | None:
        """Return the texts of a version; None as for `words`."""
        data = self._data(row, view)
        if data is None:
            return None
        try:
            return read_texts(self.state.text, self.state.dates, data, row.created_at)
        except rows.DAMAGE:
            return None  # its time is damaged

    def words_of(self, datum: Datum, view: View) -> Words | None:
        """Return the words of a version that the store may not have; None as for `words`."""
        data = self.data_of(datum, view)
        return None if data is None else self._count(data, clock.to_us(datum.created_at))

    def _count(self, data: Mapping[str, Any], created_us: int) -> Words | None:
        try:
            return count_record(self.state.text, self.state.dates, data, created_us)
        except rows.DAMAGE:
            return None  # its time is damaged

    def _data(self, row: Row, view: View) -> Mapping[str, Any] | None:
        if not row.live or row.schema != self.state.number:
            return None
        try:
            if self.state.has_shape(row.schema_version):
                return rows.data_of(row)
            return self.data_of(rows.datum_of(row, self.reading.name), view)
        except rows.DAMAGE:
            return None

    def data_of(self, datum: Datum, view: View) -> Mapping[str, Any] | None:
        """Return the data of a version in the shape of the index; None when it is of another schema."""
        return _data_of(self.state, datum, view)


def _data_of(state: SchemaState, datum: Datum, view: View) -> Mapping[str, Any] | None:
    if (datum.schema or "") != state.name or datum.problem is not None:
        return None
    if state.has_shape(datum.schema_version):
        return datum.data
    return view.upgrade(datum) or datum.data


def texts_of(state: SchemaState, datum: Datum, view: View) -> list[str]:
    """Return the texts of a version that are searched."""
    data = _data_of(state, datum, view)
    return [] if data is None else [text for path, _ in state.text for text in texts_at(data, path)]


def open_index(reading: Reading, state: SchemaState, empty: bool = False) -> TextIndex | None:
    """Return the text index of a schema; None if it has none.

    If no record of it was written yet, or its index is not begun, there is only an `empty` one, for callers
    that want that.
    """
    index = reading.index_number(text_index(state)) if state.text else None
    if index is None:
        return TextIndex(reading, state, NO_INDEX) if empty and state.text else None
    return TextIndex(reading, state, index)


def find_searched(
    reading: Reading, among: Collection[str] | None, own: OwnVersions, view: View
) -> list[SchemaState]:
    """Return the schemas with texts that a search looks through: some or all, and those of its own versions.

    All texts are searched of what nobody declared, neither to the store nor to the caller. There is no index
    of it until there is enough; then `fill` begins one.
    """
    known = reading.states() if among is None else map(reading.state, dict.fromkeys(among))
    found = {state.name: state for state in known if state is not None}
    for name in {datum.schema or "" for datum in own.values() if datum is not None}:
        if (among is None or name in among) and reading.state(name) is None:
            found[name] = SchemaState(name, UNSTORED)
    for name, state in found.items():
        if view.version(name) is None:
            found[name] = find_texts(state)
    return [renew_texts(state) for state in found.values() if state.text]
