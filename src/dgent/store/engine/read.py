"""Read by id and by query, now or at an earlier seq. Written once over `Reading`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

from dgent import ids
from dgent.errors import Corrupt, QueryError
from dgent.model import order
from dgent.model.datum import Datum
from dgent.model.query import Query, update_key, update_time
from dgent.store.backend import Page, PartView, View
from dgent.store.engine.catalog import SchemaState, high, low
from dgent.store.engine.cursor import Cursor, decode_cursor, encode_cursor
from dgent.store.engine.expiry import find_moment, hides, is_expired
from dgent.store.engine.history import check_floor, find_changed, version_at
from dgent.store.engine.kernel import IndexScan, Reading
from dgent.store.engine.plan import PROBE, Plan, few_rows, make_plan
from dgent.store.engine.recent import LogRange, LogWalk, find_range
from dgent.store.engine.row import (
    EXTRA,
    Row,
    brief_of,
    datum_of,
    datums_of,
)
from dgent.store.engine.straight import cut_before, read_straight

MANY_SCANS = 8  # more of them are not counted to find out whether a query is short


Walk: TypeAlias = Iterator[tuple[bytes, Row]]
"""Rows in the order of an index, each with its key."""

Found: TypeAlias = tuple[bytes, int, int, Row, Datum | None]
"""A row after its place in the order (order key, time, record key), and its datum if that was needed.

In the order of updates the key is the time or the seq of the version, and the time 0.
"""


def get(reading: Reading, id: str, as_of: int | None) -> Datum | None:
    """Return the live version of a record, or the one at a seq; Corrupt when it is damaged."""
    return _sound(look_up(reading, id, as_of))


def get_lazily(reading: Reading, id: str) -> Datum | None:
    """Return the live version of a record, for a caller that decodes the data itself."""
    rows = reading.fetch_id(ids.check_id(id))
    if rows and rows[0][EXTRA] is not None and is_expired(rows[0][EXTRA], find_moment(reading)):
        return None
    found = datums_of(rows, reading.name, reading.names_at_hand())
    return _sound(found[0]) if found else None


def _sound(datum: Datum | None) -> Datum | None:
    if datum is not None and datum.problem is not None:
        raise Corrupt(datum.problem, id=datum.id)
    return datum


def look_up(reading: Reading, id: str, as_of: int | None) -> Datum | None:
    """Return a record like `get`; a damaged one comes back with its problem."""
    return _datum_at(reading, reading.head(ids.check_id(id)), as_of)


def look_up_all(reading: Reading, wanted: Sequence[str], as_of: int | None) -> list[Datum | None]:
    """Return what `look_up` returns for each id."""
    return [_datum_at(reading, head, as_of) for head in reading.heads(wanted)]


def _datum_at(reading: Reading, head: Row | None, as_of: int | None) -> Datum | None:
    """Return the live version of a record at a seq."""
    if head is None:
        return None
    if as_of is not None and head.seq > as_of:
        earlier = version_at(reading, head, as_of)
        if earlier is None:
            return None
        head = earlier
    if not head.live or (head.extra is not None and hides(reading, head, as_of)):
        return None
    return datum_of(head, reading.name)


def ancestors(reading: Reading, id: str, limit: int) -> list[Datum]:
    """Return a record and its causes, nearest first; damaged ones come with their problem."""
    found: dict[str, Datum] = {}
    next_id: str | None = id
    while next_id is not None and next_id not in found and len(found) < limit:
        datum = look_up(reading, next_id, None)
        if datum is None:
            break
        found[next_id] = datum
        next_id = datum.parent_id
    return list(found.values())


# -- queries ------------------------------------------------------------------------------


class Planned(NamedTuple):
    """A plan, and what it was made from: it holds as long as a reading has the same."""

    plan: Plan
    seq: int
    states: list[SchemaState]


def try_query(reading: Reading, q: Query, view: View, epoch: bytes, rows: int) -> Page | Planned | None:
    """Return the page if no more than some rows have to be read for it, else the plan for `query`."""
    start = _start(q, epoch)
    if start is not None and start.as_of >= 0:
        return None
    plan = make_plan(reading, q, view)
    few = q.limit is not None and q.limit + q.offset <= rows
    page = read_straight(reading, q, view, plan, start, epoch) if few else None
    if page is None and _is_short(reading, plan, rows):
        page = None if few else read_straight(reading, q, view, plan, start, epoch)
        page = page or _query(reading, q, view, plan, None, start, epoch)
    return page or Planned(plan, reading.newest()[0], reading.states())


def _is_short(reading: Reading, plan: Plan, rows: int) -> bool:
    """Return whether a plan looks at no more than some entries, counted in the indexes."""
    if plan.ids is not None:
        return len(plan.ids) <= rows
    if plan.prefix is not None or len(plan.scans) + len(plan.lacking) > MANY_SCANS:
        return False
    for scan in (*plan.scans, *(each.scan for each in plan.lacking)):
        rows -= reading.size(scan.bare(), rows + 1)
        if rows < 0:
            return False
    return sum(len(reading.unindexed_rows(number)) for number in plan.unindexed) <= rows


def query_at_once(reading: Reading, q: Query, view: View, epoch: bytes) -> Page | None:
    """Return the page if one fetch gives exactly its rows; None when it takes more."""
    start = _start(q, epoch)
    if start is not None and start.as_of >= 0:
        return None
    return read_straight(reading, q, view, make_plan(reading, q, view), start, epoch)


def query(
    reading: Reading, q: Query, view: View, as_of: int | None, epoch: bytes, planned: Planned | None = None
) -> Page:
    """Return a page of matching records in order, and the cursor of the next."""
    start = _start(q, epoch)
    if start is not None and start.as_of >= 0:
        if as_of is not None and as_of != start.as_of:
            raise QueryError("the cursor reads as of another seq", hint="leave as_of out")
        as_of = start.as_of
    if planned is not None and _still_holds(reading, planned):
        plan = planned.plan
    else:
        plan = make_plan(reading, q, view)
    now = as_of is None
    if as_of is not None:
        # As of the newest seq is as of now, until something is committed between two pages.
        newest = reading.newest()[0]
        now, as_of = as_of >= newest and not isinstance(view, PartView), min(as_of, newest)
    page = read_straight(reading, q, view, plan, start, epoch, as_of) if now else None
    return page or _query(reading, q, view, plan, as_of, start, epoch)


def _start(q: Query, epoch: bytes) -> Cursor | None:
    return None if q.cursor is None else decode_cursor(q.cursor, epoch, q.digest())


def _still_holds(reading: Reading, planned: Planned) -> bool:
    """Return whether a plan fits this moment: nothing was committed or declared since it was made."""
    return planned.seq == reading.newest()[0] and planned.states == reading.states()


def _query(
    reading: Reading,
    q: Query,
    view: View,
    plan: Plan,
    as_of: int | None,
    start: Cursor | None,
    epoch: bytes,
) -> Page:
    found = find(reading, q, view, plan, as_of, start)
    # The offset was spent on the first page; a cursor goes on right after its row.
    offset = q.offset if start is None else 0
    wanted = None if q.limit is None else offset + q.limit + 1
    rows = list(islice(found, offset, wanted))
    found.close()
    further = None
    if q.limit is not None and len(rows) > q.limit:
        rows.pop()
        key, created_at, record_key, *_ = rows[-1]
        further = _make_further(q, epoch, Cursor(key, created_at, record_key, -1 if as_of is None else as_of))
    return Page(_datums(reading, rows, view.lazy), plan.explain, further)


def _make_further(q: Query, epoch: bytes, last: Cursor) -> Callable[[], str]:
    return lambda: encode_cursor(last, epoch, q.digest())


def _datums(reading: Reading, rows: list[Found], lazy: bool) -> list[Datum]:
    """Return the datums of rows; those that were not needed to match or sort are made here."""
    name = reading.name
    if not lazy:
        return [datum or datum_of(row, name) for _, _, _, row, datum in rows]
    rest = iter(datums_of([brief_of(row) for _, _, _, row, datum in rows if datum is None], name))
    return [datum or next(rest) for *_, datum in rows]


def count(reading: Reading, q: Query, view: View, as_of: int | None) -> int:
    """Return how many records match; straight from the index where that proves everything."""
    everything = _without_page(q)
    return _count(reading, everything, view, make_plan(reading, everything, view), as_of)


def try_count(reading: Reading, q: Query, view: View, rows: int) -> int | None:
    """Return how many records match; None if more than some rows have to be looked at for it."""
    everything = _without_page(q)
    plan = make_plan(reading, everything, view)
    return _count(reading, everything, view, plan, None) if _is_short(reading, plan, rows) else None


def _without_page(q: Query) -> Query:
    return q.replace(limit=None, offset=0, cursor=None, content=False, order_by="created_at")


def _count(reading: Reading, everything: Query, view: View, plan: Plan, as_of: int | None) -> int:
    if as_of is not None and as_of >= reading.newest()[0]:
        as_of = None
    indexed = not (plan.lacking or any(map(reading.unindexed_rows, plan.unindexed)))
    if plan.exact and as_of is None and indexed and not plan.repeats:
        found = sum(reading.size(scan, 2**62) for scan in plan.scans)
        return found - count(reading, everything.replace(expired=True), view, None) if plan.lapsing else found
    return sum(1 for _ in find(reading, everything, view, plan, as_of, None))


def _rows_beside(reading: Reading, q: Query, view: View, plan: Plan, as_of: int | None) -> list[Row]:
    """Return rows that no walk of a plan has in order: not indexed, without a field, or of the past."""
    rows = [row for number in plan.unindexed for row in reading.unindexed_rows(number)]
    for scan, key in plan.lacking:
        if key is None or not plan.ordered:
            rows += [row for _, row in reading.walk(scan, q.descending, True)]
    if as_of is not None:
        past_only = isinstance(view, PartView) and view.gone
        rows = [] if past_only else [row for row in rows if row.seq <= as_of]
        asked = None if q.schema is None else (q.schema,)
        rows += [row for row in find_changed(reading, asked, view, as_of).values() if row is not None]
    return rows if q.content else [row._replace(content=None) for row in rows]


def find(
    reading: Reading, q: Query, view: View, plan: Plan, as_of: int | None, start: Cursor | None
) -> Generator[Found, None, None]:
    """Yield every matching row in the query's order, from the start on."""
    if as_of is not None:
        check_floor(reading, as_of)
    moment = find_moment(reading, as_of) if plan.lapsing or as_of is not None else None
    if q.by_update and q.limit is not None and not isinstance(view, PartView):
        by_update = _find_by_update(reading, q, view, plan, as_of, start, moment)
        if by_update is not None:
            yield from _past_start(q, by_update, start)
            return
    updated = None
    if q.updated_since is not None and not isinstance(view, PartView):
        updated = _updated_rows(reading, q, plan, as_of)
    if updated is not None:
        plan = Plan((), False, False)  # no index has to be read
    sources = _sources(reading, q, view, plan, as_of, start, moment)
    if updated is not None:
        finder = _Finder(reading, q, view, False, moment)
        sources.append(finder.find(((b"", row) for row in updated), False, True))
    if plan.ordered:
        merged = sources[0] if len(sources) == 1 else heapq.merge(*sources, key=_place, reverse=q.descending)
        yield from _past_start(q, merged, start)
        return
    yield from _sort(q, _past_start(q, chain.from_iterable(sources), start))


def _sort(q: Query, found: Iterable[Found]) -> list[Found]:
    """Return the rows in the order of a query, no more than it asks for."""
    if q.limit is None:
        return sorted(found, key=_place, reverse=q.descending)
    most = q.offset + q.limit + 1
    pick = heapq.nlargest if q.descending else heapq.nsmallest
    return pick(most, found, key=_place)


# -- records by the time of their newest version ----------------------------------------------


def _find_by_update(
    reading: Reading,
    q: Query,
    view: View,
    plan: Plan,
    as_of: int | None,
    start: Cursor | None,
    moment: int | None,
) -> Iterator[Found] | None:
    """Return the matching rows in the order of updates; None if those that the log lacks come first."""
    part = find_range(reading, q, as_of, None if start is None else update_time(start.key))
    if not part.whole and not q.descending:
        return None
    walk = _walk_log(reading, q, part, _limit_walk(reading, plan))
    finder = _Finder(reading, q, view, False, moment)

    def find_all() -> Iterator[Found]:
        yield from finder.find(((b"", row) for row in walk), False, True)
        if walk.ended and part.whole:
            return
        first, last = (0, walk.edge) if q.descending else (walk.edge, part.last)
        rest = chain.from_iterable(_sources(reading, q, view, plan, None, None, moment))
        yield from _sort(q, _past_start(q, (each for each in rest if first <= each[3].seq <= last), start))

    if as_of is None:
        return find_all()
    changed = _rows_beside(reading, q, view, Plan((), False, False), as_of)
    past = finder.find(((b"", row) for row in changed), False, True)
    past = iter(sorted(past, key=_place, reverse=q.descending))
    return heapq.merge(find_all(), past, key=_place, reverse=q.descending)


def _updated_rows(reading: Reading, q: Query, plan: Plan, as_of: int | None) -> list[Row] | None:
    """Return the rows updated since a time; None if the log does not have them all, or they are too many."""
    part = find_range(reading, q, as_of, None)
    if not part.whole:
        return None
    give_up = _limit_walk(reading, plan)
    if q.limit is not None and plan.ordered:
        # The other indexes may soon have a page, so only a few are worth sorting.
        most = few_rows(q.offset + q.limit + 1)
        if part.last - part.first > most:
            return None
        give_up = most.__lt__
    walk = _walk_log(reading, q, part, give_up)
    rows = list(walk)
    return rows if walk.ended else None


def _walk_log(reading: Reading, q: Query, part: LogRange, give_up: Callable[[int], bool]) -> LogWalk:
    state = None if q.schema is None else reading.state(q.schema)
    schema = None if state is None else state.number
    return LogWalk(reading, part, q.descending, q.content, schema, give_up, q.by_seq)


def _limit_walk(reading: Reading, plan: Plan) -> Callable[[int], bool]:
    """Return a check whether the indexes of a plan have fewer entries than the log has versions so far."""
    next_check = 0

    def give_up(seen: int) -> bool:
        nonlocal next_check
        if seen < next_check:
            return False
        next_check, few = max(4 * seen, 2 * PROBE), max(2 * seen, PROBE)
        if plan.ids is not None:
            return len(plan.ids) <= few
        if plan.prefix is not None:
            return reading.size_ids(plan.prefix, few + 1) <= few
        return _is_short(reading, plan, few)

    return give_up


def _sources(
    reading: Reading,
    q: Query,
    view: View,
    plan: Plan,
    as_of: int | None,
    start: Cursor | None,
    moment: int | None,
) -> list[Iterator[Found]]:
    """Return the matching rows of each walk, and of what is in none; each in order if the plan is."""
    walks, lacking = _walks(reading, q, plan, start), _walk_lacking(reading, q, plan, start)
    if as_of is not None:
        past_only = isinstance(view, PartView) and view.gone
        walks, lacking = ([] if past_only else _until(some, as_of) for some in (walks, lacking))
    extra = _rows_beside(reading, q, view, plan, as_of)
    finder = _Finder(reading, q, view, plan.repeats or bool(extra) or bool(lacking), moment)
    by_key = plan.ordered and q.order_path is not None
    sources = [finder.find(walk, by_key, not plan.exact) for walk in walks]
    sources += [finder.find(walk, by_key, True) for walk in lacking]
    if extra:
        beside = finder.find(((b"", row) for row in extra), False, True)
        sources.append(iter(sorted(beside, key=_place, reverse=q.descending)) if plan.ordered else beside)
    return sources


def _place(found: Found) -> tuple[bytes, int, int]:
    return found[:3]


def _walks(reading: Reading, q: Query, plan: Plan, start: Cursor | None) -> list[Walk]:
    if plan.ids is not None:
        live = (row for row in reading.heads(plan.ids) if row is not None and row.live)
        return [((b"", row if q.content else row._replace(content=None)) for row in live)]
    if plan.prefix is not None:
        return [((b"", row) for row in reading.walk_ids(plan.prefix, q.content))]
    scans = [_from(scan, q, plan, start) for scan in plan.scans]
    return [reading.walk(scan, q.descending, q.content) for scan in scans]


def _walk_lacking(reading: Reading, q: Query, plan: Plan, start: Cursor | None) -> list[Walk]:
    """Return walks of the rows without a field, in order: their order keys are all the same."""
    walks = []
    for scan, key in plan.lacking if plan.ordered else ():
        if key is None:
            continue
        if start is not None and key == start.key:
            scan = cut_before(scan, q, start._replace(key=scan.low[0]))
        elif start is not None and (key > start.key) == q.descending:
            continue  # all of them come before the cursor
        walks.append(_give_key(reading.walk(scan, q.descending, q.content), key))
    return walks


def _give_key(walk: Walk, key: bytes) -> Walk:
    return ((key, row) for _, row in walk)


def _from(scan: IndexScan, q: Query, plan: Plan, start: Cursor | None) -> IndexScan:
    """Return the scan without the part before a cursor; `_past_start` drops the rest of it exactly."""
    if start is None or not plan.ordered:
        return scan
    if len(start.key) < order.CUT:
        return cut_before(scan, q, start)
    key = start.key[: order.CUT]
    return (
        scan._replace(high=min(scan.high, high(key)))
        if q.descending
        else scan._replace(low=max(scan.low, low(key)))
    )


class _Finder:
    """Finds the rows of a query in walks, each row once, and decodes none more than once.

    Those that have expired at a `moment` are left out, unless the query asks for them; None: there are none.
    """

    def __init__(self, reading: Reading, q: Query, view: View, repeats: bool, moment: int | None) -> None:
        self._moment = moment
        self._name, self._query, self._view = reading.name, q, view
        self._seen: set[int] | None = set() if repeats else None

    def find(self, walk: Walk, by_key: bool, check: bool) -> Iterator[Found]:
        """Yield the rows of a walk with their places.

        With `by_key` the keys are those of the order, and runs of cut ones are sorted by the whole value.
        With `check` only those that match.
        """
        q, view, name = self._query, self._view, self._name
        keyless, by_update, by_seq = q.order_path is None, q.by_update, q.by_seq
        run: list[Found] = []
        run_key, moment, expired = b"", self._moment, q.expired
        for key, row in walk:
            if run and key != run_key:
                yield from sorted(run, key=_place, reverse=q.descending)
                run = []
            if self._seen is not None:
                if row.record_key in self._seen:
                    continue
                self._seen.add(row.record_key)
            if moment is not None and expired != (row.extra is not None and is_expired(row.extra, moment)):
                continue
            whole = keyless or (by_key and len(key) < order.CUT)
            datum = None
            if check or not whole:
                datum = datum_of(row, name)
                if check and not q.matches(datum, view.shape):
                    continue
            if by_update:
                yield update_key(row.seq if by_seq else row.at), 0, row.record_key, row, datum
            elif keyless:
                yield b"", row.created_at, row.record_key, row, datum
            elif whole:
                yield key, row.created_at, row.record_key, row, datum
            else:
                assert datum is not None
                found = q.order_key(view.shape(datum)), row.created_at, row.record_key, row, datum
                if by_key:
                    run_key = key
                    run.append(found)
                else:
                    yield found
        yield from sorted(run, key=_place, reverse=q.descending)


def _until(walks: Iterable[Walk], as_of: int) -> list[Walk]:
    """Return walks without the rows that are newer than a seq."""

    def until(walk: Walk) -> Walk:
        return ((key, row) for key, row in walk if row.seq <= as_of)

    return [until(walk) for walk in walks]


def _past_start(q: Query, found: Iterable[Found], start: Cursor | None) -> Iterable[Found]:
    """Return the rows that lie past the cursor."""
    if start is None:
        return found
    after = (start.key, start.created_at, start.record_key)
    if q.descending:
        return (each for each in found if each[:3] < after)
    return (each for each in found if each[:3] > after)
