"""The tail: index entries that commits have written and nobody has moved into the indexes yet.

One record is in several indexes, far apart on the disk. So a commit writes the entries of all its records
as one row, and hundreds of them are moved into the indexes together, sorted. Until then every reader
merges the two: it has the tail in memory, and looks before each read whether others have added to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

import msgspec

from dgent.errors import Corrupt
from dgent.store.engine.catalog import Entry, Position, TailRecord
from dgent.store.engine.kernel import IndexScan

Moment = tuple[int, int]
"""The time and key of a record, which are the same in all of its entries."""

_KEY = itemgetter(1)
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
        self.seen = 0  # so many of the new records are in here
        self.added: list[Position] = []
        self.removed: list[Position] = []
        self.changed: list[Position] = []  # those of both that belong to changed records

    def add_new(self, index: int, records: Sequence[TailRecord]) -> None:
        """Add entries of records that have no others yet."""
        found = [
            (key, created_at, record_key)
            for created_at, record_key, numbers, keys, _, _ in records
            if index in numbers
            for number, key in zip(numbers, keys, strict=True)
            if number == index
        ]
        if found:
            self.added = sorted({*self.added, *found})

    def add_changed(self, index: int, records: Iterable[TailRecord]) -> None:
        """Add the changes of other records: what comes and goes as often is as it was."""
        net: Counter[Position] = Counter()
        for created_at, record_key, new, new_keys, old, old_keys in records:
            for sign, numbers, keys in ((1, new, new_keys), (-1, old, old_keys)):
                if index in numbers:
                    for number, key in zip(numbers, keys, strict=True):
                        if number == index:
                            net[key, created_at, record_key] += sign
        self.added = sorted(place for place, count in net.items() if count > 0)
        self.removed = sorted(place for place, count in net.items() if count < 0)
        self.changed = self.added + self.removed


def _has(places: Sequence[Position], wanted: Position) -> bool:
    found = bisect_left(places, wanted)
    return found < len(places) and places[found] == wanted


class Tail:
    """The tail as one connection sees it, kept between reads.

    Most records in it are new: all of their entries are in one row of the tail, and the indexes have none.
    These are told apart, because the tail alone knows in which indexes they are. `is_by_schema` says whether
    an index has all records of a schema; whoever gets an entry there had none before. It is not kept here: a
    reader is released when its thread ends, and so may not refer to itself.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop everything; the next look loads all there is."""
        self.last = 0  # the place of the newest row that is in here
        self.rows: dict[int, Sequence[TailRecord]] = {}  # by place, oldest first
        self._new: list[TailRecord] = []
        self._changed: list[TailRecord] = []  # all there is of records that are not new
        self._changed_moments: set[Moment] = set()
        self._first_numbers: set[int] = set()  # known indexes by schema, which new records name first
        self._runs: dict[int, _Run] = {}
        self.answers: dict[IndexScan, Waiting | None] = {}  # kept by a reader, until the tail changes

    def drop_before(self, first: int, is_by_schema: Callable[[int], bool]) -> None:
        """Drop rows that were moved into the indexes: those before a place."""
        rows = self.rows
        if rows and next(iter(rows)) < first:
            last = self.last
            self.clear()
            rest = [(place, records) for place, records in rows.items() if place >= first]
            self.add(rest, is_by_schema)
            self.last = last

    def add(
        self, rows: Iterable[tuple[int, Sequence[TailRecord]]], is_by_schema: Callable[[int], bool]
    ) -> None:
        """Add newer rows: the place and the records of each."""
        rows = list(rows)  # one that cannot be read leaves this as it was
        self.answers.clear()
        changed: list[TailRecord] = []
        new, first_numbers = self._new.append, self._first_numbers
        for place, records in rows:
            self.rows[place] = records
            self.last = place
            for record in records:
                numbers = record[2]
                if record[4] or not numbers:
                    changed.append(record)
                elif numbers[0] in first_numbers:
                    new(record)
                elif any(map(is_by_schema, numbers)):
                    if is_by_schema(numbers[0]):
                        first_numbers.add(numbers[0])
                    new(record)
                else:
                    changed.append(record)
        if changed or self._changed:
            self._add_changed(changed)

    def _add_changed(self, changed: Sequence[TailRecord]) -> None:
        moments = self._changed_moments
        moments.update([record[:2] for record in changed])
        # One that was new is judged with its changes from now on.
        self._changed += [record for record in self._new if record[:2] in moments]
        self._changed += changed
        self._new = [record for record in self._new if record[:2] not in moments]
        self._runs.clear()

    def waiting(self, scan: IndexScan) -> Waiting | None:
        """Return what there is for a scan; None when the index alone has all of it."""
        index, low, high, *_ = scan
        run = self._run(index)
        added, removed = run.added, run.removed
        added = added[bisect_left(added, low) : bisect_left(added, high)]
        removed = removed[bisect_left(removed, low) : bisect_left(removed, high)]
        return Waiting(added, frozenset(removed)) if added or removed else None

    def find_new(self, parts: Iterable[tuple[int, bytes]]) -> Iterator[Moment]:
        """Yield the new records that wait for each of some indexes under a key."""
        found = self._new
        for index, key in sorted(parts, key=_KEY):  # indexes without keys are judged quicker
            if key:
                found = [record for record in found if (index, key) in zip(record[2], record[3], strict=True)]
            else:
                found = [record for record in found if index in record[2]]
        return (record[:2] for record in found)

    def find_changed(self, index: int, key: bytes) -> Iterator[Moment]:
        """Yield the other records for which an entry under a key waits to be added or removed."""
        if not self._changed:
            return iter(())
        return (place[1:] for place in self._run(index).changed if place[0] == key)

    def has(self, index: int, place: Position) -> bool | None:
        """Return whether an entry waits to be added; False if it waits to be removed, None for neither."""
        run = self._run(index)
        if _has(run.added, place):
            return True
        return False if _has(run.removed, place) else None

    def _run(self, index: int) -> _Run:
        run = self._runs.get(index)
        if run is None:
            run = self._runs[index] = _Run()
            if self._changed:
                run.add_changed(index, self._changed)
        if run.seen < len(self._new):
            run.add_new(index, self._new[run.seen :])
            run.seen = len(self._new)
        return run
