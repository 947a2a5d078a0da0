"""Read by id, by query, at an earlier seq, and from the log. Written once over `Reading`."""

from __future__ import annotations

import base64
import heapq
import struct
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from dgent import clock, ids
from dgent.errors import Corrupt, CursorInvalid, HistoryGone, QueryError
from dgent.model import order
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import KINDS, Change, Item, Page, PartView, Version, View
from dgent.store.engine.catalog import REF, IndexName, SchemaState, high, low, ref_ids, unpack_keys
from dgent.store.engine.kernel import DELETE, FORGET, QUIET, SAME, IndexScan, Logged, Reading
from dgent.store.engine.plan import Plan, make_plan
from dgent.store.engine.row import Brief, Row, datum_of, datums_of, rows_of, unpack_row, whole_of
from dgent.store.engine.versions import DELTA

_FORMAT = 1
_HEAD = struct.Struct(">B8s16sqqq")


class Cursor(NamedTuple):
    """The last row of a page: its order key, time and record key, and the seq it was read as of (-1: now)."""

    key: bytes
    created_at: int
    record_key: int
    as_of: int


def encode(cursor: Cursor, epoch: bytes, digest: bytes) -> str:
    """Return the cursor as text."""
    raw = _HEAD.pack(_FORMAT, epoch, digest, cursor.as_of, cursor.created_at, cursor.record_key) + cursor.key
    return base64.urlsafe_b64encode(raw + struct.pack(">I", zlib.crc32(raw))).decode()


def decode(text: str, epoch: bytes, digest: bytes) -> Cursor:
    """Return the cursor of a text; raises CursorInvalid when it is not one of this query and store."""
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        raw, (check,) = raw[:-4], struct.unpack(">I", raw[-4:])
        form, of_epoch, of_digest, as_of, created_at, record_key = _HEAD.unpack_from(raw)
    except (ValueError, struct.error):
        raise CursorInvalid("this is not a cursor") from None
    if zlib.crc32(raw) != check or form != _FORMAT:
        raise CursorInvalid("this cursor is damaged or of another version")
    if of_digest != digest:
        raise CursorInvalid("this cursor belongs to another query")
    if of_epoch != epoch:
        raise CursorInvalid("this cursor belongs to another store")
    return Cursor(raw[_HEAD.size :], created_at, record_key, as_of)


READ_ALONG = 100  # so many rows before a page are read with it, which spares a second statement

Found = tuple[bytes, int, int, Row]
"""A row with its place in the order: order key, time, dk."""


def get(reading: Reading, id: str, as_of: int | None) -> Datum | None:
    """Return the live version of a record, or the one at a seq; Corrupt when it is damaged."""
    return _sound(look_up(reading, id, as_of))


def get_lazily(reading: Reading, id: str) -> Datum | None:
    """Return the live version of a record, for a caller that decodes the data itself."""
    found = datums_of(reading.fetch_id(ids.check_id(id)), reading.name)
    return _sound(found[0]) if found else None


def _sound(datum: Datum | None) -> Datum | None:
    if datum is not None and datum.problem is not None:
        raise Corrupt(datum.problem, id=datum.id)
    return datum


def look_up(reading: Reading, id: str, as_of: int | None) -> Datum | None:
    """Return a record like `get`; a damaged one comes back with its problem."""
    head = reading.head(ids.check_id(id))
    if head is None:
        return None
    if as_of is not None and head.seq > as_of:
        earlier = version_at(reading, head, as_of)
        if earlier is None:
            return None
        head = earlier
    if not head.live:
        return None
    return datum_of(head, reading.name)


def ancestors(reading: Reading, id: str, limit: int) -> list[Datum]:
    """Return a record and its causes, nearest first; damaged ones come with their problem."""
    chain: dict[str, Datum] = {}
    next_id: str | None = id
    while next_id is not None and next_id not in chain and len(chain) < limit:
        datum = look_up(reading, next_id, None)
        if datum is None:
            break
        chain[next_id] = datum
        next_id = datum.parent_id
    return list(chain.values())


# -- versions -----------------------------------------------------------------------------


def version_at(reading: Reading, head: Row, as_of: int) -> Row | None:
    """Return the version of a record at a seq, with a plain body; None if there was none then."""
    if head.seq <= as_of:
        return head
    spans = reading.spans(head.record_key)
    by_then = [rev for rev, seq, _ in spans if seq <= as_of]
    if by_then:
        return version(reading, head, by_then[-1])
    rev, seq, _ = spans[0] if spans else (head.rev, head.seq, head.at)
    if rev > 1 and not _was_forgotten(reading, head.id, rev):
        raise HistoryGone(
            f"the version of {head.id!r} at commit {as_of} was pruned",
            hint=f"the oldest kept one is of commit {seq}",
            id=head.id,
            first_seq=seq,
        )
    return None


def _was_forgotten(reading: Reading, id: str, rev: int) -> bool:
    """Return whether the versions before this one were forgotten, so that none is missing."""
    reading.refresh()
    return reading.forgotten_rev(id) == rev - 1


def version(reading: Reading, head: Row, rev: int) -> Row | None:
    """Return one version of a record by its rev, with a plain body; None if it is not kept."""
    if head.rev == rev:
        return head
    past = reading.past(head.record_key, rev)
    if not past or past[-1].rev != rev:
        return None
    # Unpacked from the nearest newer one that stands alone, or from the newest of all.
    alone = max((place for place, row in enumerate(past) if row.enc != DELTA), default=0)
    newer = head
    for row in past[alone:]:
        base = newer
        newer = unpack_row(row, lambda base=base: base)  # type: ignore[misc]
    return newer


def history(reading: Reading, id: str, limit: int | None) -> list[Version]:
    """Return the kept versions of a record, newest first."""
    head = reading.head(id)
    if head is None:
        return []
    found = [_version(reading, head)]
    newer = head
    for row in islice(reading.past(head.record_key), None if limit is None else limit - 1):
        base = newer
        newer = unpack_row(row, lambda base=base: base)  # type: ignore[misc]
        found.append(_version(reading, newer))
    return found


def _version(reading: Reading, row: Row) -> Version:
    datum = datum_of(row, reading.name) if row.live else None
    # Commits that are left below the floor say where the log stands, or know a retry, and nothing else.
    logged = reading.read_commit(row.seq) if row.seq > reading.floor() else None
    author, note = (None, None) if logged is None else (reading.name(logged.author), logged.note)
    op: Literal["put", "delete"] = "put" if row.live else "delete"
    return Version(row.id, row.rev, row.seq, clock.from_us(row.at), op, datum, author, note)


# -- the log ------------------------------------------------------------------------------


def changes(reading: Reading, since: int, limit: int) -> list[Change]:
    """Return commits after a seq that have something for the feed, in order."""
    check_floor(reading, since)
    found: list[Change] = []
    while len(found) < limit:
        batch = reading.log(since, limit)
        for logged in batch:
            since = logged.seq
            change = _change(reading, logged)
            if change.items and len(found) < limit:
                found.append(change)
        if len(batch) < limit:
            break
    return found


def check_floor(reading: Reading, seq: int) -> None:
    """Refuse to read from before the history that is complete."""
    floor = reading.floor()
    if seq < floor:
        raise HistoryGone(
            f"the history up to commit {floor} was pruned",
            hint=f"start from seq {floor}",
            first_seq=floor + 1,
        )


def _change(reading: Reading, logged: Logged) -> Change:
    items = []
    for code, record_key, rev in logged.ops:
        if code & QUIET or code == SAME:
            continue
        if code == FORGET:
            items.append(Item("forget", None, rev))
            continue
        head = reading.row(record_key)
        if head is None:
            continue
        row = version(reading, head, rev - 1 if code == DELETE else rev)
        datum = None if row is None else datum_of(row, reading.name)
        schema = datum.schema if datum is not None else reading.name(head.schema) or None
        if code == DELETE:
            items.append(Item("delete", head.id, rev, schema, None, datum))
        else:
            items.append(Item("put", head.id, rev, schema, datum))
    return Change(
        logged.seq,
        clock.from_us(logged.at),
        reading.name(logged.author),
        KINDS[logged.kind],
        tuple(items),
        logged.note,
        logged.of_seq,
    )


# -- queries ------------------------------------------------------------------------------


def query(
    reading: Reading, q: Query, view: View, as_of: int | None, epoch: bytes, only_short: bool = False
) -> Page | None:
    """Return a page of matching records in order, and the cursor of the next.

    With `only_short`, None when no index gives exactly the rows, so that it could take long.
    """
    start = decode(q.cursor, epoch, q.digest()) if q.cursor is not None else None
    if start is not None and start.as_of >= 0:
        if as_of is not None and as_of != start.as_of:
            raise QueryError("the cursor reads as of another seq", hint="leave as_of out")
        as_of = start.as_of
    plan = make_plan(reading, q, view)
    if _is_straight(reading, q, plan, as_of, start):
        return _straight(reading, q, plan, epoch, view.lazy)
    if only_short:
        return None
    if as_of is not None:
        # As of the newest seq is as of now, until something is committed between two pages.
        as_of = min(as_of, reading.newest()[0])
    found = find(reading, q, view, plan, as_of, start)
    # The offset was spent on the first page; a cursor goes on right after its row.
    offset = q.offset if start is None else 0
    wanted = None if q.limit is None else offset + q.limit + 1
    rows = list(islice(found, offset, wanted))
    found.close()
    further = None
    if q.limit is not None and len(rows) > q.limit:
        rows.pop()
        key, created_at, record_key, _row = rows[-1]
        further = _further(q, epoch, Cursor(key, created_at, record_key, -1 if as_of is None else as_of))
    name = reading.name
    return Page([datum_of(found[3], name) for found in rows], plan.explain, further)


def _is_straight(reading: Reading, q: Query, plan: Plan, as_of: int | None, start: Cursor | None) -> bool:
    """Return whether one scan gives exactly the requested rows, in their order."""
    return (
        plan.exact
        and plan.ordered
        and len(plan.scans) == 1
        and q.limit is not None
        and q.order_path is None
        and as_of is None
        and start is None
        and not plan.lacking
        and not any(map(reading.unindexed_rows, plan.unindexed))
    )


def _straight(reading: Reading, q: Query, plan: Plan, epoch: bytes, lazy: bool) -> Page:
    assert q.limit is not None
    rows = _fetch_page(reading, q, plan.scans[0], q.limit + 1)
    further = None
    if len(rows) > q.limit:
        rows = rows[: q.limit]
        last = Brief._make(rows[-1])
        further = _further(q, epoch, Cursor(b"", last.created_at, last.record_key, -1))
    name = reading.name
    kept = rows_of(rows, name) if lazy else None
    made = [] if kept is not None else [datum_of(whole_of(row), name) for row in rows]
    return Page(made, plan.explain, further, kept)


def _fetch_page(reading: Reading, q: Query, scan: IndexScan, size: int) -> Sequence[tuple[Any, ...]]:
    """Return the rows after the offset; a short offset is read along, a long one skipped in the index."""
    if q.offset <= READ_ALONG:
        return reading.fetch(scan, q.descending, q.content, q.offset + size)[q.offset :]
    rest = reading.skip(scan, q.descending, q.offset)
    return [] if rest is None else reading.fetch(rest, q.descending, q.content, size)


def _further(q: Query, epoch: bytes, last: Cursor) -> Callable[[], str]:
    return lambda: encode(last, epoch, q.digest())


def count(reading: Reading, q: Query, view: View, as_of: int | None) -> int:
    """Return how many records match; straight from the index where that proves everything."""
    everything = q.replace(limit=None, offset=0, cursor=None, content=False, order_by="created_at")
    plan = make_plan(reading, everything, view)
    if as_of is not None and as_of >= reading.newest()[0]:
        as_of = None
    indexed = not (plan.lacking or any(map(reading.unindexed_rows, plan.unindexed)))
    if plan.exact and as_of is None and indexed and not plan.repeats:
        return sum(reading.size(scan, 2**62) for scan in plan.scans)
    return sum(1 for _ in find(reading, everything, view, plan, as_of, None))


def _rows_beside(reading: Reading, q: Query, view: View, plan: Plan, as_of: int | None) -> list[Row]:
    """Return the rows that the scans of a plan do not have: not indexed, without a field, or of the past."""
    rows = [row for number in plan.unindexed for row in reading.unindexed_rows(number)]
    rows += [row for scan in plan.lacking for _, row in reading.walk(scan, q.descending, True)]
    if as_of is not None:
        past_only = isinstance(view, PartView) and view.gone
        rows = [] if past_only else [row for row in rows if row.seq <= as_of]
        rows += _rows_at(reading, q, view, as_of)
    return rows if q.content else [row._replace(content=None) for row in rows]


def find(
    reading: Reading, q: Query, view: View, plan: Plan, as_of: int | None, start: Cursor | None
) -> Generator[Found, None, None]:
    """Yield every matching row in the query's order, from the start on."""
    sources = [_add_order_keys(reading, q, view, walked) for walked in _walks(reading, q, plan, start)]
    if as_of is not None:
        check_floor(reading, as_of)
        sources = [_until(source, as_of) for source in sources]
        if isinstance(view, PartView) and view.gone:
            sources = []
    extra = _rows_beside(reading, q, view, plan, as_of)
    if extra:
        found = _add_order_keys(reading, q, view, _keyless(extra))
        sources.append(iter(sorted(found, key=_place, reverse=q.descending)) if plan.ordered else found)
    if plan.ordered:
        merged = sources[0] if len(sources) == 1 else heapq.merge(*sources, key=_place, reverse=q.descending)
        yield from _passing(reading, q, view, plan, merged, bool(extra), start)
        return
    passing = _passing(reading, q, view, plan, (f for source in sources for f in source), bool(extra), start)
    if q.limit is None:
        yield from sorted(passing, key=_place, reverse=q.descending)
        return
    most = q.offset + q.limit + 1
    pick = heapq.nlargest if q.descending else heapq.nsmallest
    yield from pick(most, passing, key=_place)


def _place(found: Found) -> tuple[bytes, int, int]:
    return found[:3]


def _keyless(rows: Iterable[Row]) -> Iterator[tuple[bytes, Row]]:
    # A full-length key makes `_placed` take the real order key from the record.
    return ((b"\x04" * order.CUT, row) for row in rows)


def _walks(reading: Reading, q: Query, plan: Plan, start: Cursor | None) -> list[Iterator[tuple[bytes, Row]]]:
    if plan.prefix is not None:
        return [_keyless(reading.walk_ids(plan.prefix, q.content))]
    scans = [_from(scan, q, plan, start) for scan in plan.scans]
    return [reading.walk(scan, q.descending, q.content) for scan in scans]


def _from(scan: IndexScan, q: Query, plan: Plan, start: Cursor | None) -> IndexScan:
    """Return the scan without the part before a cursor; `_passing` drops the rest of it exactly."""
    if start is None or not plan.ordered:
        return scan
    if q.order_path is None:
        at = (scan.low[0], start.created_at, start.record_key)
        if q.descending:
            return scan._replace(high=min(scan.high, at))
        return scan._replace(low=max(scan.low, at))
    key = start.key[: order.CUT]
    return (
        scan._replace(high=min(scan.high, high(key)))
        if q.descending
        else scan._replace(low=max(scan.low, low(key)))
    )


def _add_order_keys(
    reading: Reading, q: Query, view: View, walked: Iterator[tuple[bytes, Row]]
) -> Iterator[Found]:
    """Yield rows with their order key; runs of cut keys are sorted by the whole value."""
    if q.order_path is None:
        for _, row in walked:
            yield b"", row.created_at, row.record_key, row
        return
    run: list[Found] = []
    run_key: bytes | None = None
    for key, row in walked:
        if run and key != run_key:
            yield from sorted(run, key=_place, reverse=q.descending)
            run, run_key = [], None
        datum = datum_of(row, reading.name)
        found = (q.order_key(view.shape(datum)), row.created_at, row.record_key, row)
        if len(key) >= order.CUT:
            run.append(found)
            run_key = key
        else:
            yield found
    yield from sorted(run, key=_place, reverse=q.descending)


def _passing(
    reading: Reading,
    q: Query,
    view: View,
    plan: Plan,
    found: Iterable[Found],
    mixed: bool,
    start: Cursor | None,
) -> Iterator[Found]:
    """Yield the rows that match and lie past the cursor, each once."""
    after = None if start is None else (start.key, start.created_at, start.record_key)
    seen: set[int] | None = set() if plan.repeats or mixed else None
    check = not plan.exact or mixed
    for item in found:
        row = item[3]
        if after is not None:
            place = item[:3]
            if place >= after if q.descending else place <= after:
                continue
        if seen is not None:
            if row.record_key in seen:
                continue
            seen.add(row.record_key)
        if check:
            datum = datum_of(row, reading.name)
            if not q.matches(datum, view.shape(datum)):
                continue
        yield item


def _until(source: Iterator[Found], as_of: int) -> Iterator[Found]:
    return (found for found in source if found[3].seq <= as_of)


def _rows_at(reading: Reading, q: Query, view: View, as_of: int) -> list[Row]:
    """Return the rows, as of a seq, of every record that changed after it and can be in the answer."""
    touched = {record_key for logged in reading.log(as_of, None) for _, record_key, _ in logged.ops}
    found = []
    for record_key in touched:
        head = reading.row(record_key)
        if head is None or head.seq <= as_of:
            continue
        try:
            row, gone = version_at(reading, head, as_of), False
        except HistoryGone:
            if isinstance(view, PartView):
                row, gone = _next_kept(reading, head), True
            elif q.schema is None or _was_of(reading, head, q.schema):
                raise
            else:
                continue
        if isinstance(view, PartView) and gone != view.gone:
            continue
        if row is not None and row.live:
            found.append(row)
    return found


def _next_kept(reading: Reading, head: Row) -> Row | None:
    """Return the oldest kept version of a record that is not a deletion."""
    kept = (version(reading, head, rev) for rev, _, _ in reading.spans(head.record_key))
    return next((row for row in (*kept, head) if row is not None and row.live), None)


def _was_of(reading: Reading, head: Row, schema: str) -> bool:
    """Return whether any kept version of a record is of a schema."""
    return any(reading.name(row.schema) == schema for row in (head, *reading.past(head.record_key)))


# -- references ---------------------------------------------------------------------------


def referrers(reading: Reading, id: str, limit: int | None, view: View) -> list[Datum]:
    """Return the live records whose declared refs hold an id, newest first."""
    key, _ = order.index_key(id)
    found: dict[int, Row] = {}
    for state in reading.states():
        if not state.refs:
            continue
        index = reading.index_number(IndexName(state.number, state.index_version, "", REF))
        rows: list[Row] = list(reading.unindexed_rows(state.number))
        if REF not in state.ready:
            base = reading.index_number(IndexName(state.number, 0, "", ""))
            rows += _rows(reading, base, b"")
        rows += _rows(reading, index, key)
        for row in rows:
            if _refers(reading, state, row, id, view):
                found[row.record_key] = row
    newest = sorted(found.values(), key=lambda row: (row.created_at, row.record_key), reverse=True)
    return [datum_of(row, reading.name) for row in newest[:limit]]


def _refers(reading: Reading, state: SchemaState, row: Row, id: str, view: View) -> bool:
    keys = unpack_keys(row.field_keys) if row.field_keys else {}
    if REF in keys and (REF in state.ready or view.version(state.name) != state.index_version):
        # Indexed from an upgraded copy: the stored data may hold the ref elsewhere. Before the index
        # is built, the copy may be of an older version, so a caller that knows the newest checks again.
        return order.key(id) in keys[REF]
    return id in ref_ids(state, view.shape(datum_of(row, reading.name)))


def _rows(reading: Reading, index: int | None, key: bytes) -> list[Row]:
    if index is None:
        return []
    return [row for _, row in reading.walk(IndexScan(index, low(key), high(key)), True, True)]
