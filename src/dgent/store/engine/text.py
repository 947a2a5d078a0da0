"""The text index of a schema: which records have which words.

A commit only notes that its records are to be indexed: an entry for each version in an index of its own,
which rides with all others. `fold` turns waiting versions into runs, and merges runs into the pages of
words. A search takes the newest it finds of a record: what waits, then the runs, then the pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dgent.errors import Corrupt
from dgent.model import path as paths
from dgent.search.run import Run, unpack_run
from dgent.search.score import weigh_fields
from dgent.search.words import count_words
from dgent.store.backend import View
from dgent.store.engine import row as rows
from dgent.store.engine.catalog import SchemaState, high, low, text_index
from dgent.store.engine.kernel import IndexScan, Reading
from dgent.store.engine.row import Row

if TYPE_CHECKING:
    pass

COUNTS = b""  # the word under which a text index keeps its counts
_REBUILD = "`dgent doctor --deep --fix` builds the index anew"


class Words(NamedTuple):
    """The words of one record: how often it has each, weighted, and how many these are."""

    counts: Mapping[str, int]
    size: int


class TextStats(NamedTuple):
    """The counts of a text index: records and their words; the newest run, and the newest that is merged.

    While runs are merged, `merging` is the newest of those, and `done` the last word that was. `erased` is
    how often records were taken out of runs.
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


def words_of(state: SchemaState, data: Mapping[str, Any]) -> Words:
    """Return the words of a record in the shape that its text index describes."""
    fields = {path: Counter[str]() for path, _ in state.text}
    for path, found in fields.items():
        for text in texts_at(data, path):
            found.update(count_words(text))
    return Words(*weigh_fields(fields, dict(state.text)))


def texts_at(data: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the texts at a path: one, or those of a list."""
    left = [paths.read(data, paths.parse(path))]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            left += reversed(value)


class WaitingRecord(NamedTuple):
    """A record that waits to be indexed: its newest row, and the keys under which it waits."""

    row: Row
    keys: list[bytes]


def find_waiting(
    reading: Reading, index: int, limit: int | None, newest: bool = False
) -> dict[int, WaitingRecord]:
    """Return records that wait to be indexed: at most so many versions, the oldest or the newest ones."""
    found: dict[int, WaitingRecord] = {}
    scan = IndexScan(index, low(b""), high(b"\xff" * 17))
    for key, row in islice(reading.walk(scan, newest, False), limit):
        found.setdefault(row.record_key, WaitingRecord(row, [])).keys.append(key)
    return found


def run_name(number: int) -> bytes:
    """Return the word under which a text index keeps a run; no word begins so."""
    return b"\0" + number.to_bytes(8, "big")


FIRST_WORD = b"\x01"  # before every word, after the counts and the runs


class TextIndex:
    """One text index of a store, as of the moment that is read."""

    def __init__(self, reading: Reading, state: SchemaState, index: int) -> None:
        self.reading, self.state, self.index = reading, state, index

    def stats(self) -> TextStats:
        """Return its counts."""
        for _, _, raw in self.reading.text_pages(self.index, COUNTS, COUNTS + b"\0"):
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
        return None if data is None else words_of(self.state, data)

    def texts(self, row: Row, view: View) -> list[str]:
        """Return the texts of a version that are searched."""
        data = self._data(row, view)
        return [] if data is None else [text for path, _ in self.state.text for text in texts_at(data, path)]

    def _data(self, row: Row, view: View) -> Mapping[str, Any] | None:
        if not row.live or row.schema != self.state.number:
            return None
        try:
            if row.schema_version == self.state.index_version:
                return rows.data_of(row)
            datum = rows.datum_of(row, self.reading.name)
            return view.upgrade(datum) or datum.data
        except rows.DAMAGE:
            return None


def open_index(reading: Reading, state: SchemaState) -> TextIndex | None:
    """Return the text index of a schema; None if it has none, or no record of it was written yet."""
    index = reading.index_number(text_index(state)) if state.text else None
    return None if index is None else TextIndex(reading, state, index)
