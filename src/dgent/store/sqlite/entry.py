"""The statements of index entries: those of many records at once, sorted, land on neighbouring pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import apsw

from dgent.store.engine.catalog import Entry, TailRecord

_ADD = "INSERT OR IGNORE INTO entry (ix, key, t, dk) VALUES (?, ?, ?, ?)"
_ADD_WITH_TAGS = "INSERT OR IGNORE INTO entry (ix, key, t, dk, tags) VALUES (?, ?, ?, ?, ?)"
_DROP_TAGS = "UPDATE entry SET tags = NULL WHERE ix = ? AND key = ? AND t = ? AND dk = ?"
_RUNS = (16, 4, 1)
_ADD_RUN = {
    count: "INSERT OR IGNORE INTO entry (ix, key, t, dk, tags) VALUES "
    + ", ".join([f"(?1, ?2, ?{place}, ?{place + 1}, ?{place + 2})" for place in range(3, 3 * count + 3, 3)])
    for count in _RUNS
}
"""Statements that add so many entries of one index and key."""
_ADD_BARE = {
    count: "INSERT OR IGNORE INTO entry (ix, key, t, dk) VALUES "
    + ", ".join([f"(?1, x'', ?{place}, ?{place + 1})" for place in range(2, 2 * count + 2, 2)])
    for count in _RUNS
}
"""Statements that add so many entries of one index without keys."""
_REMOVE = "DELETE FROM entry WHERE ix = ? AND key = ? AND t = ? AND dk = ?"
_MOMENT = itemgetter(0, 1)  # of a record in the tail
_MOST_LAYOUTS = 4096


class _Layout(NamedTuple):
    """A list of the indexes of a record: those without keys, the others, and the bits of its tags."""

    numbers: list[int]
    timed: list[int]
    rest: list[int]
    tags: int | None


class EntryWrites:
    """Writes of index entries, in the transaction of the writer."""

    _layouts: dict[int, _Layout]  # by the id of their lists
    tag_bit: Callable[[int], int]
    _many: Callable[..., None]
    _many_at_once: Callable[..., apsw.Cursor]

    def _write_entries(
        self, added: Sequence[Entry], removed: Sequence[Entry], changed: Sequence[Entry]
    ) -> None:
        """Change the indexes; sorted, entries land on neighbouring pages."""
        self._many_at_once(_REMOVE, removed)
        self._many_at_once(_DROP_TAGS, changed)
        tags = self._tags_of_new(added)
        self._many_at_once(_ADD, [entry for entry in added if not entry[1]])
        self._many_at_once(_ADD_WITH_TAGS, [(*entry, tags.get(entry[3])) for entry in added if entry[1]])

    def _write_records(self, records: Sequence[TailRecord]) -> None:
        """Add the entries of records that lose none; those of one index and key at once."""
        bare: defaultdict[int, list[int]] = defaultdict(list)
        keyed: defaultdict[tuple[int, bytes], list[int | None]] = defaultdict(list)
        known = self._layouts.get
        for created_at, record_key, numbers, keys, _, _ in sorted(records, key=_MOMENT):
            layout = known(id(numbers))
            if layout is None or layout.numbers is not numbers:
                numbers, keys, layout = self._lay_out(numbers, keys)
            moment = created_at, record_key
            for index in layout.timed:
                bare[index] += moment
            if layout.rest:
                with_tags = created_at, record_key, layout.tags
                for place in zip(layout.rest, keys[len(layout.timed) :], strict=True):
                    keyed[place] += with_tags
        self._add_runs(_ADD_BARE, [((index,), bare[index]) for index in sorted(bare)], 2)
        self._add_runs(_ADD_RUN, [(place, keyed[place]) for place in sorted(keyed)], 3)

    def _lay_out(self, numbers: list[int], keys: list[bytes]) -> tuple[list[int], list[bytes], _Layout]:
        """Return the indexes and keys of a record, those without keys first, and how they lie.

        Records with the same tags share a list of indexes, so its layout is kept.
        """
        timed = keys.count(b"")
        if any(keys[:timed]):
            pairs = sorted(zip(keys, numbers, strict=True))
            keys, numbers = [key for key, _ in pairs], [number for _, number in pairs]
        bits = {*map(self.tag_bit, numbers[:timed])}
        # A record that is not new, and so has no entry by schema, may have more tags in the indexes.
        tags = sum(bits) if 0 in bits else None
        layout = _Layout(numbers, numbers[:timed], numbers[timed:], tags)
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        self._layouts[id(numbers)] = layout  # it holds the list, so no other one gets this id
        return numbers, keys, layout

    def _add_runs(
        self, statements: dict[int, str], runs: Sequence[tuple[tuple[Any, ...], list[Any]]], each: int
    ) -> None:
        """Add runs of entries, of which each takes some values, by as few statements as there are."""
        batches: dict[int, list[list[Any]]] = {count: [] for count in statements}
        for place, run in runs:
            first, length = 0, len(run)
            for count, batch in batches.items():
                size = each * count
                while first + size <= length:
                    batch.append([*place, *run[first : first + size]])
                    first += size
        for count, batch in batches.items():
            self._many_at_once(statements[count], batch)

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

    def drop_tags(self, entries: Iterable[Entry]) -> None:
        """Say of entries that the tags of their records are unknown."""
        self._many(_DROP_TAGS, entries)
