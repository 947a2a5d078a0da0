"""Find records by the time of their newest version, by walking the log.

No index has this order, because each update would have to move an entry. The log has it: a commit names
the versions it wrote, and commit times never go back. Where the log was pruned, or where walking on would
read more than the indexes of a query have, the caller reads and sorts the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from dgent import clock
from dgent.model.query import Query
from dgent.store.engine.kernel import PUT, QUIET, Logged, Reading
from dgent.store.engine.row import Row

_PAGES = (64, 256, 1024)  # a walk reads more at a time the longer it goes on


_Version = tuple[int, int]
"""A record's key and a rev."""


def _page_size(page: int) -> int:
    return _PAGES[min(page, len(_PAGES) - 1)]


class LogRange(NamedTuple):
    """The commits after `first`, up to `last`; `whole` if no version of the requested times is outside."""

    first: int
    last: int
    whole: bool


def find_range(reading: Reading, q: Query, as_of: int | None, start: int | None) -> LogRange:
    """Return the part of the log with the versions of a query's times; `start`, a time or a seq, is where
    to go on.
    """
    floor = reading.floor()
    first, last, whole = floor, reading.newest()[0] if as_of is None else as_of, floor == 0
    if q.by_seq and start is not None:
        if q.descending:
            last = min(last, start)
        else:
            first, whole = max(first, start - 1), whole or start > floor
        start = None
    after, before = (None, start) if q.descending else (start, None)
    lows = [None if q.updated_since is None else clock.to_us(q.updated_since), after]
    for low in (low for low in lows if low is not None):
        seq = reading.seq_at(low - 1)
        first, whole = max(first, seq), whole or seq >= floor
    highs = [None if q.updated_until is None else clock.to_us(q.updated_until) - 1, before]
    for high in (high for high in highs if high is not None):
        last = min(last, reading.seq_at(high))
    return LogRange(first, last, whole)


class LogWalk:
    """The live records whose newest version was written in a range of the log, in the order of updates.

    With a schema, only its records. Those of one time, or with `by_seq` of one commit, are in the order of
    their first commits. `give_up`, asked now and then with the number of versions seen so far, ends the walk
    early. Afterwards all rows are given whose seq is below `edge`, or in a descending walk above it.
    """

    def __init__(
        self,
        reading: Reading,
        part: LogRange,
        descending: bool,
        content: bool,
        schema: int | None,
        give_up: Callable[[int], bool],
        by_seq: bool = False,
    ) -> None:
        self._reading, self._part, self._descending = reading, part, descending
        self._content, self._schema, self._give_up = content, schema, give_up
        self._by_seq = by_seq
        self._revs: dict[int, int] = {}  # the newest rev of each record that was looked at; 0 if deleted
        self.edge = part.last if descending else part.first + 1
        self.ended = False  # whether the range was walked to its end

    def __iter__(self) -> Iterator[Row]:
        ordered: list[_Version] = []
        versions: dict[int, int] = {}  # those of one time, or of one commit
        at: int | None = None
        seen = page = 0
        for logged in self._commits():
            moment = logged.seq if self._by_seq else logged.at
            if moment != at:
                ordered += sorted(versions.items(), reverse=self._descending)
                at, versions = moment, {}
                if len(ordered) >= _page_size(page):
                    yield from self._rows(ordered)
                    ordered, page = [], page + 1
                if not ordered:
                    self.edge = logged.seq
                    if self._give_up(seen):
                        return
            seen += len(logged.ops)
            for code, record_key, rev in logged.ops:
                if code & ~QUIET == PUT and rev > versions.get(record_key, 0):
                    versions[record_key] = rev
        yield from self._rows(ordered + sorted(versions.items(), reverse=self._descending))
        self.edge = self._part.first if self._descending else self._part.last + 1
        self.ended = True

    def _commits(self) -> Iterator[Logged]:
        """Yield the commits of the range, a page at a time."""
        reading, (first, last, _) = self._reading, self._part
        for page in count():
            if first >= last:
                return
            size = _page_size(page)
            found = reading.log_back(last, size) if self._descending else reading.log(first, size)
            yield from (logged for logged in found if first < logged.seq <= last)
            if len(found) < size:
                return
            if self._descending:
                last = found[-1].seq - 1
            else:
                first = found[-1].seq

    def _rows(self, ordered: list[_Version]) -> Iterator[Row]:
        """Yield the rows of the versions that are still the newest of their records, many read at once."""
        revs, first = self._revs, 0
        wanted = [(key, rev) for key, rev in ordered if revs.get(key, rev) == rev]
        for page in count():
            part = wanted[first : first + _page_size(page)]
            if not part:
                return
            keys = list(dict(part))
            rows = {row.record_key: row for row in self._reading.rows(keys, self._content)}
            revs.update((key, rows[key].rev if key in rows and rows[key].live else 0) for key in keys)
            for key, rev in part:
                if revs[key] == rev and (self._schema is None or rows[key].schema == self._schema):
                    yield rows[key]
            first += len(part)
