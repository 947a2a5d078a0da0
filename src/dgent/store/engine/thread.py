"""Rank records by their own words and by those of their neighbours in a thread, as `search.thread` says.

Records of a thread stand in the order of its index: by time, then by first commit. What a caller may not see
has no place among them, so it lends nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice

from dgent import clock
from dgent.model import order
from dgent.model import path as paths
from dgent.model.datum import Datum
from dgent.search.thread import CANDIDATES, REACH, best_parts, neighbours, score_in_thread
from dgent.search.wanted import Wanted
from dgent.store.backend import View
from dgent.store.engine.catalog import Position, field_index, high, keys_at, low, unpack_keys
from dgent.store.engine.kernel import IndexScan
from dgent.store.engine.override import Overrides
from dgent.store.engine.row import DAMAGE, Row, data_of, datum_of
from dgent.store.engine.search import TextHit, TextSearch, rank_fitting
from dgent.store.engine.text import TextIndex

_NOBODYS = frozenset(order.index_key(value)[0] for value in (paths.MISSING, None, ""))
"""The keys of records that are in no thread."""

_AROUND = 2 * REACH  # so far a thread is read around a record, for its neighbours to have all of theirs
_READ_AHEAD = 4 * _AROUND  # where some of these may not count
_MOST_PASSED = 1_000  # records that do not count; beyond so many there are no neighbours

Test = Callable[[Datum], bool]


def rank_in_threads(
    search: TextSearch,
    wanted: Wanted,
    fits: Test,
    allow: Test | None,
    limit: int,
    find_among: Callable[[], Collection[int] | None],
) -> Iterator[TextHit]:
    """Yield the records that fit, best first, at most so many.

    Looked at are the best by their own words, whether they fit or not, the best that fit, and the neighbours
    of both: an answer may fit whose question does not. `find_among` is as for `rank_fitting`.
    """
    seeds: dict[int, TextHit] = {}
    seen = fitting = 0
    few = max(limit, CANDIDATES)

    def has_seeds() -> bool:
        return seen >= CANDIDATES

    for hit, is_fit in rank_fitting(search, wanted, fits, few, find_among, has_seeds):
        if allow is not None and not allow(hit.datum):
            continue
        if is_fit or seen < CANDIDATES:
            seeds[hit.record_key] = hit
        seen, fitting = seen + 1, fitting + is_fit
        if fitting == few:
            break
    windows = _find_windows(search, seeds, allow)
    parts = search.find_parts({each for window in windows.values() for each in window})
    scores = {
        key: score_in_thread(parts.get(key, {}), [parts.get(each, {}) for each in window])
        for key, window in windows.items()
    }
    in_order = sorted(scores, key=lambda key: (scores[key], key), reverse=True)
    fitting_ones = _load_fitting(search, wanted, seeds, in_order, fits)
    for key, datum in islice(fitting_ones, limit):
        lent, own = best_parts(parts.get(each, {}) for each in windows[key]), parts.get(key, {})
        every = {word: part + own.get(word, 0.0) for word, part in lent.items()}
        yield TextHit(key, scores[key], datum, every)


def _load_fitting(
    search: TextSearch, wanted: Wanted, seeds: Mapping[int, TextHit], record_keys: Sequence[int], fits: Test
) -> Iterator[tuple[int, Datum]]:
    """Yield the records that fit, in their order; the seeds have the phrases, their neighbours need not."""
    for start in range(0, len(record_keys), CANDIDATES):
        some = record_keys[start : start + CANDIDATES]
        loaded = search.load([key for key in some if key not in seeds])
        for key in some:
            datum = seeds[key].datum if key in seeds else loaded.get(key)
            if datum is None or not fits(datum):
                continue
            if key in seeds or search.has_phrases(datum, wanted):
                yield key, datum


def _find_windows(
    search: TextSearch, seeds: Mapping[int, TextHit], allow: Test | None
) -> dict[int, Sequence[int]]:
    """Return the window of each record that is looked at: the records, itself too, whose words it has."""
    windows: dict[int, Sequence[int]] = {key: (key,) for key in seeds}
    for index in search.indexes:
        if index.state.thread:
            of_schema = [key for key, hit in seeds.items() if hit.datum.schema == index.state.name]
            windows.update(_Threads(index, search.view, search.overrides, allow).look_around(of_schema))
    return windows


class _Threads:
    """The threads of one text index, as a caller sees them."""

    def __init__(self, index: TextIndex, view: View, overrides: Overrides, allow: Test | None) -> None:
        self._reading, self._index, self._view = index.reading, index, view
        self._path, self._overrides, self._allow = index.state.thread, overrides, allow
        self._number = index.reading.index_number(field_index(index.state, self._path))
        self._visible: dict[int, bool] = {}
        placed = ((key, self._place_override(key, datum)) for key, datum in overrides.items())
        self._own = {key: place for key, place in placed if place is not None}
        self._own_threads: dict[bytes, list[Position]] = {}
        for place in sorted(self._own.values()):
            self._own_threads.setdefault(place[0], []).append(place)

    def look_around(self, record_keys: Sequence[int]) -> dict[int, Sequence[int]]:
        """Return the windows of some records that are in threads, and of their neighbours."""
        places = self._find_places(record_keys)
        before, after = self._find_near(places, True), self._find_near(places, False)
        windows: dict[int, Sequence[int]] = {}
        for place, earlier, later in zip(places, before, after, strict=True):
            around = [*reversed(earlier), place[2], *later]
            for near in neighbours(len(earlier), len(around)):
                window = neighbours(near, len(around))
                windows[around[near]] = around[window.start : window.stop]
        return windows

    # -- where records stand --------------------------------------------------------------

    def _find_places(self, record_keys: Sequence[int]) -> list[Position]:
        """Return the positions in the index of those records that are in a thread."""
        stored = [key for key in record_keys if key not in self._overrides]
        found = [self._own[key] for key in record_keys if key in self._own]
        for row in self._reading.rows(stored, False) if stored else ():
            thread = self._thread_of(row)
            if thread is not None:
                found.append((thread, row.created_at, row.record_key))
        return found

    def _thread_of(self, row: Row) -> bytes | None:
        state = self._index.state
        try:
            if row.field_keys is not None:
                return _single(unpack_keys(row.field_keys).get(self._path, ()))
            if row.schema_version != state.index_version:
                return None
            return _single(keys_at(state, self._path, data_of(row)))
        except DAMAGE:
            return None

    def _place_override(self, record_key: int, datum: Datum | None) -> Position | None:
        data = None if datum is None else self._index.data_of(datum, self._view)
        if datum is None or data is None or (self._allow is not None and not self._allow(datum)):
            return None
        thread = _single(keys_at(self._index.state, self._path, data))
        return None if thread is None else (thread, clock.to_us(datum.created_at), record_key)

    # -- who stands around them -----------------------------------------------------------

    def _find_near(self, places: Sequence[Position], descending: bool) -> list[list[int]]:
        """Return the nearest records on one side of each place, the nearest first."""
        if self._number is None:
            stored: list[list[Position]] = [[] for _ in places]
        elif not self._overrides and self._allow is None:
            scans = [_beside(self._number, place, descending) for place in places]
            stored = self._reading.positions(scans, descending, _AROUND)
        else:
            stored = self._find_counting(self._number, places, descending)
        if not self._own:
            return [[key for _, _, key in found] for found in stored]
        near = []
        for place, found in zip(places, stored, strict=True):
            own = self._own_threads.get(place[0], [])
            if descending:
                at = bisect_left(own, place)
                others = own[max(0, at - _AROUND) : at][::-1]
            else:
                at = bisect_right(own, place)
                others = own[at : at + _AROUND]
            every = merge(found, others, reverse=descending)
            near.append([key for _, _, key in islice(every, _AROUND)])
        return near

    def _find_counting(
        self, number: int, places: Sequence[Position], descending: bool
    ) -> list[list[Position]]:
        """Return the nearest positions of the index on one side of each place whose records count."""
        scans = [_beside(number, place, descending) for place in places]
        read = self._reading.positions(scans, descending, _READ_AHEAD)
        self._judge(key for found in read for _, _, key in found)
        near = []
        for found in read:
            counting, passed = [place for place in found if self._counts(place[2])], len(found)
            while len(counting) < _AROUND and len(found) == _READ_AHEAD and passed < _MOST_PASSED:
                rest = _beside(number, found[-1], descending)
                (found,) = self._reading.positions([rest], descending, _READ_AHEAD)
                self._judge(key for _, _, key in found)
                counting += [place for place in found if self._counts(place[2])]
                passed += len(found)
            near.append(counting[:_AROUND])
        return near

    def _judge(self, record_keys: Iterable[int]) -> None:
        """Find out which records the caller may see."""
        if self._allow is None:
            return
        new = list({key for key in record_keys if key not in self._visible and key not in self._overrides})
        for row in self._reading.rows(new, False) if new else ():
            self._visible[row.record_key] = self._allow(datum_of(row, self._reading.name))

    def _counts(self, record_key: int) -> bool:
        if record_key in self._overrides:
            return False
        return self._allow is None or self._visible.get(record_key, False)


def _single(keys: Collection[bytes]) -> bytes | None:
    """Return the key of a thread; None if there is none, or if it is cut and may be that of several."""
    (key,) = keys if len(keys) == 1 else (b"",)
    return key if key and key not in _NOBODYS and len(key) < order.CUT else None


def _beside(number: int, place: Position, descending: bool) -> IndexScan:
    """Return the part of a thread before or after a position."""
    thread, created_at, record_key = place
    if descending:
        return IndexScan(number, low(thread), place)
    return IndexScan(number, (thread, created_at, record_key + 1), high(thread))
