"""The tail: index entries that commits have written and nobody has moved into the indexes yet.

One record is in several indexes, far apart on the disk. So a commit writes the entries of all its records
as one row, and hundreds of them are moved into the indexes together, sorted. Until then every reader
merges the two: it has the tail in memory, and looks before each read whether others have added to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import NamedTuple

import msgspec

from dgent.errors import Corrupt
from dgent.store.engine.catalog import Entry, Position, TailRecord
from dgent.store.engine.kernel import IndexScan

Moment = tuple[int, int]
"""The time and key of a record, which are the same in all of its entries."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[TailRecord]).decode


def pack(records: Sequence[TailRecord]) -> bytes:
    """Return the bytes of a row of the tail."""
    return _encode(records)


def group(added: Iterable[Entry], removed: Iterable[Entry]) -> list[TailRecord]:
    """Return changes of entries by record."""
    records: dict[tuple[int, int], TailRecord] = {}
    record = None
    for index, key, created_at, record_key in added:
        if record is None or record[1] != record_key or record[0] != created_at:  # mostly one after another
            record = records.get((created_at, record_key))
            if record is None:
                record = records[created_at, record_key] = (created_at, record_key, [], [], [], [])
        record[2].append(index)
        record[3].append(key)
    for index, key, created_at, record_key in removed:
        record = records.get((created_at, record_key)) or _start(records, created_at, record_key)
        record[4].append(index)
        record[5].append(key)
    return list(records.values())


def _start(records: dict[tuple[int, int], TailRecord], created_at: int, record_key: int) -> TailRecord:
    made = records[created_at, record_key] = (created_at, record_key, [], [], [], [])
    return made


def unpack(raw: bytes) -> list[TailRecord]:
    """Return the records of a row of the tail."""
    try:
        records = _decode(raw)
        if not all(
            len(record[2]) == len(record[3]) and len(record[4]) == len(record[5]) for record in records
        ):
            raise ValueError("an index has no key, or a key no index")
        return records
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        hint = "`dgent doctor --deep --fix` works the entries out again"
        raise Corrupt(f"index entries that wait to be moved are damaged: {error}", hint=hint) from None


def list_added(records: Iterable[TailRecord]) -> list[Entry]:
    """Return the new entries of records."""
    return [
        (index, key, created_at, record_key)
        for created_at, record_key, numbers, keys, _, _ in records
        for index, key in zip(numbers, keys, strict=True)
    ]


def sum_up(records: Sequence[TailRecord]) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """Return the entries that the indexes lack, those that they have too many, and those that stay, sorted.

    Those that stay were removed and added again, because the tags of their records changed.
    """
    added = list_added(records)
    removed = [
        (index, key, created_at, record_key)
        for created_at, record_key, _, _, numbers, keys in records
        if numbers
        for index, key in zip(numbers, keys, strict=True)
    ]
    if not removed:
        return sorted(added), [], []
    # Each entry comes and goes in turn, so what both lists have as often is as it was.
    balance = Counter(added)
    balance.subtract(removed)
    added = [entry for entry, count in balance.items() if count > 0]
    removed = [entry for entry, count in balance.items() if count < 0]
    return sorted(added), sorted(removed), sorted(entry for entry, count in balance.items() if not count)


class Waiting(NamedTuple):
    """Changes that wait in the tail for a scan: positions to add to those of the index, and to leave out."""

    added: Sequence[Position]
    removed: frozenset[Position] = frozenset()
    touched: frozenset[Moment] = frozenset()  # records to leave out, in whatever position

    def first(self, limit: int, descending: bool) -> Sequence[Position]:
        """Return the first positions to add."""
        return self.added[::-1][:limit] if descending else self.added[:limit]

    def merge_first(self, own: Iterable[Position], limit: int, descending: bool) -> list[Position]:
        """Return the first positions of an index and of the tail, from the first of the index."""
        removed, touched = self.removed, self.touched
        kept = [place for place in own if place not in removed and place[1:] not in touched]
        return sorted({*kept, *self.first(limit, descending)}, reverse=descending)[:limit]

    def merge_all(self, own: Iterable[Position], descending: bool) -> Iterator[Position]:
        """Yield the positions of an index and of the tail in order, each once."""
        removed, touched = self.removed, self.touched
        kept = (place for place in own if place not in removed and place[1:] not in touched)
        last = None
        for place in merge(kept, self.added[::-1] if descending else self.added, reverse=descending):
            if place != last:
                yield place
            last = place


class _Run:
    """The part of the tail that belongs to one index."""

    def __init__(self) -> None:
        self.seen = 0  # so many records of the tail are in here
        self.added: list[Position] = []
        self.removed: set[Position] = set()
        self.net: dict[Position, int] = {}

    def take(self, index: int, records: Sequence[TailRecord]) -> None:
        """Take over the records that came since the last time."""
        if self.net or not self._take_first(index, records):
            self._take_more(index, records)

    def _take_first(self, index: int, records: Sequence[TailRecord]) -> bool:
        """Take over the first records, if each has at most one new entry and nothing was removed."""
        added = [
            (keys[numbers.index(index)], created_at, record_key)
            for created_at, record_key, numbers, keys, removed, _ in records
            if index in numbers and not removed and numbers.count(index) == 1
        ]
        net = dict.fromkeys(added, 1)
        if len(net) < sum([index in record[2] or index in record[4] for record in records]):
            return False
        self.net, self.added, self.seen = net, sorted(added), len(records)
        return True

    def _take_more(self, index: int, records: Sequence[TailRecord]) -> None:
        net, before = self.net, len(self.net)
        changed = False
        for created_at, record_key, new, new_keys, old, old_keys in records[self.seen :]:
            if index in new:
                for number, key in zip(new, new_keys, strict=True):
                    if number == index:
                        place = key, created_at, record_key
                        net[place] = net.get(place, 0) + 1
                changed = True
            if old and index in old:
                for number, key in zip(old, old_keys, strict=True):
                    if number == index:
                        place = key, created_at, record_key
                        net[place] = net.get(place, 0) - 1
                changed = True
        self.seen = len(records)
        if changed or len(net) != before:
            self.added = sorted([place for place, count in net.items() if count > 0])
            self.removed = {place for place, count in net.items() if count < 0}


class Tail:
    """The tail as one connection sees it, kept between reads."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop everything; the next look loads all there is."""
        self.last = 0  # the place of the newest row that is in here
        self._rows: dict[int, int] = {}  # how many records each row has, by its place, oldest first
        self._records: list[TailRecord] = []
        self._runs: dict[int, _Run] = {}
        self.answers: dict[IndexScan, Waiting | None] = {}  # kept by a reader, until the tail changes

    def drop_before(self, first: int) -> None:
        """Drop rows that were moved into the indexes: those before a place."""
        gone = [place for place in self._rows if place < first]
        if gone:
            count = sum(self._rows.pop(place) for place in gone)
            self._records = self._records[count:]
            self._runs.clear()
            self.answers.clear()

    def add(self, rows: Iterable[tuple[int, Sequence[TailRecord]]]) -> None:
        """Add newer rows: the place and the records of each."""
        self.answers.clear()
        for place, records in rows:
            self._records += records
            self._rows[place] = len(records)
            self.last = place

    def waiting(self, scan: IndexScan) -> Waiting | None:
        """Return what there is for a scan; None when the index alone has all of it."""
        if not self._records:
            return None
        index, low, high, *_ = scan
        run = self._run(index)
        added = run.added[bisect_left(run.added, low) : bisect_left(run.added, high)]
        removed = frozenset(place for place in run.removed if low <= place < high)
        return Waiting(added, removed) if added or removed else None

    def find_touched(self, index: int, key: bytes) -> Iterator[Moment]:
        """Yield the records for which an entry under a key waits to be added or removed."""
        return (place[1:] for place, count in self._run(index).net.items() if count and place[0] == key)

    def has(self, index: int, place: Position) -> bool | None:
        """Return whether an entry waits to be added; False if it waits to be removed, None for neither."""
        count = self._run(index).net.get(place, 0)
        return count > 0 if count else None

    def _run(self, index: int) -> _Run:
        run = self._runs.get(index)
        if run is None:
            run = self._runs[index] = _Run()
        if run.seen < len(self._records):
            run.take(index, self._records)
        return run
