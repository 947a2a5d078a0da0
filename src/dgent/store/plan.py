"""Choosing the streams that answer a query.

A plan may give too many rows, never too few: what a stream does not prove, `Query.matches`
decides row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dgent import clock
from dgent.model import order
from dgent.model import path as paths
from dgent.model.query import Query
from dgent.model.where import Condition
from dgent.store.backend import View
from dgent.store.catalog import (
    AUTHOR,
    PARENT,
    PRODUCTS,
    SOURCE,
    T_MIN,
    UNLISTED,
    Position,
    SchemaState,
    StreamName,
    after_prefix,
    high,
    low,
    number_key,
)
from dgent.store.kernel import Reading, Scan

PROBE = 256  # streams shorter than this are simply read
SORTABLE = 2048  # a range with fewer entries is read and sorted rather than walked past
CHOICES = 64  # `$in` with more values is left to `matches`


class Plan(NamedTuple):
    """Which scans to read and what is left to do with their rows."""

    scans: tuple[Scan, ...]
    ordered: bool  # the scans run in the query's order, so reading can stop early
    exact: bool  # every row matches; nothing is left to check
    repeats: bool = False  # a row may come from two scans
    prefix: str | None = None  # walk the ids instead of scans
    lagging: tuple[int, ...] = ()  # schemas whose unindexed rows must be looked at too
    explain: str = ""


class _Candidate(NamedTuple):
    """A way to read one schema in time order, and the parts of the query it proves."""

    label: str
    streams: tuple[StreamName, ...]
    keys: tuple[bytes, ...]
    proves: frozenset[object]
    by_field: bool = False


def make_plan(reading: Reading, query: Query, view: View) -> Plan:
    """The plan for a query, judged by the sizes of the streams it could read."""
    plan = _plan(reading, query, view)
    # No index knows what a gate allows, so every row is looked at.
    return plan if query.allow is None else plan._replace(exact=False)


def _plan(reading: Reading, query: Query, view: View) -> Plan:
    if query.parent is not None:
        return _parent_plan(reading, query)
    if query.prefix is not None:
        small = reading.size_ids(query.prefix, PROBE) < PROBE
        if small or not (query.tags or query.any_tags or query.author or query.source or query.where):
            return Plan((), False, False, prefix=query.prefix, explain="id prefix")
    if query.schema is None:
        states = reading.states()
    else:
        state = reading.state(query.schema)
        states = [] if state is None else [state]
    if len(states) == 1:
        return (
            _direct_plan(reading, query, view, states[0]) or _Planner(reading, query, view, states[0]).plan()
        )
    parts = [_Planner(reading, query, view, state).plan() for state in states]
    return Plan(
        tuple(scan for part in parts for scan in part.scans),
        all(part.ordered for part in parts),
        all(part.exact for part in parts),
        any(part.repeats for part in parts),
        lagging=tuple(number for part in parts for number in part.lagging),
        explain="; ".join(part.explain for part in parts),
    )


def _parent_plan(reading: Reading, query: Query) -> Plan:
    stream = reading.stream(StreamName(0, 0, "", PARENT))
    key, _ = order.index_key(query.parent)
    scans = () if stream is None else (Scan(stream, *_bounds(key, query)),)
    return Plan(scans, query.order_path is None, False, explain="parent")


def _bounds(key: bytes, query: Query) -> tuple[Position, Position]:
    """The part of one key's run that lies in the query's time window."""
    first = low(key) if query.since is None else (key, clock.to_us(query.since), T_MIN)
    last = high(key) if query.until is None else (key, clock.to_us(query.until), T_MIN)
    return first, last


def _direct_plan(reading: Reading, query: Query, view: View, state: SchemaState) -> Plan | None:
    """The plan of the usual page: one schema, at most one tag, at most one declared field by its value.

    `_Planner` would find the same; agents ask such queries all day, and there is nothing to weigh.
    """
    parts = query.filter.parts
    if query.any_tags or len(query.tags) > 1 or len(parts) > 1 or query.order_path is not None:
        return None
    if query.author is not None or query.source is not None or query.prefix is not None:
        return None
    (tag,) = query.tags or ("",)
    if not parts:
        name, key = StreamName(state.number, 0, tag, ""), b""
        label = "schema, tag" if tag else "schema"
    else:
        condition = parts[0]
        if not isinstance(condition, Condition) or condition.op != "$eq" or not _fields_usable(state, view):
            return None
        path = paths.text(condition.path)
        if (
            path not in state.ready
            or condition.path[-1] == paths.EACH
            or (tag and path not in state.paths[:PRODUCTS])
        ):
            return None
        (key,), sure = _equal_keys(condition)
        if not sure:
            return None
        name = StreamName(state.number, state.iv, tag, "." + path)
        label = "schema, tag, field" if tag else "schema, field"
    stream = reading.stream(name)
    scans = () if stream is None else (Scan(stream, *_bounds(key, query)),)
    return Plan(scans, True, True, lagging=(state.number,) if parts else (), explain=label)


def _fields_usable(state: SchemaState, view: View) -> bool:
    """Field streams have the shape of version `iv`; a caller that sees another shape must not use them."""
    known = view.version(state.name)
    return known == state.iv if known is not None else state.seen <= {state.iv}


class _Planner:
    """Plans a query for one schema."""

    def __init__(self, reading: Reading, query: Query, view: View, state: SchemaState) -> None:
        self.reading, self.query, self.state = reading, query, state
        usable = _fields_usable(state, view)
        ready = [p for p in state.paths if usable and p in state.ready]
        self.ready = {p: state.paths.index(p) for p in ready if paths.listed(p) is None}
        self.listed = {found: p for p in ready if (found := paths.listed(p)) is not None}
        self.conditions = [part for part in query.filter.parts if isinstance(part, Condition)]
        self.needs = self._needs()

    def plan(self) -> Plan:
        """The best of the candidates; one that proves everything needs no comparison."""
        candidates = []
        for candidate in self._candidates():
            if self.needs <= candidate.proves and self.query.order_path is None:
                return self._in_order(candidate)
            candidates.append(candidate)
        best, size = self._best(self._undominated(candidates))
        if self.query.order_path is not None:
            return self._ordered_by_field(best, size)
        if size >= PROBE:
            narrower = self._narrow_range()
            if narrower is not None:
                return narrower
        return self._in_order(best)

    def _in_order(self, best: _Candidate) -> Plan:
        exact = self.needs <= best.proves
        repeats = len(best.streams) > 1
        lagging = self._lagging() if best.by_field else ()
        return Plan(self._scans(best), True, exact, repeats, lagging=lagging, explain=best.label)

    def _needs(self) -> frozenset[object]:
        """Every part of the query that some stream would have to prove."""
        query = self.query
        needs: set[object] = {("tag", tag) for tag in query.tags}
        needs |= {part for part in ("any_tags", "author", "source", "prefix") if getattr(query, part)}
        needs |= {id(part) for part in query.filter.parts}
        return frozenset(needs)

    def _candidates(self) -> Iterator[_Candidate]:
        """Ways to read the schema in time order, the ones that usually prove most first."""
        yield from self._field_candidates()
        query, number = self.query, self.state.number
        if query.any_tags:
            streams = tuple(StreamName(number, 0, tag, "") for tag in sorted(query.any_tags))
            yield _Candidate("schema, any tag", streams, (b"",), frozenset(["any_tags"]))
        for field, name in (("author", AUTHOR), ("source", SOURCE)):
            text = getattr(query, field)
            if text is not None:
                named = self.reading.number(text)
                keys: tuple[bytes, ...] = () if named is None else (number_key(named),)
                yield _Candidate(
                    f"schema, {field}", (StreamName(number, 0, "", name),), keys, frozenset([field])
                )
        for tag in query.tags:
            yield _Candidate(
                "schema, tag", (StreamName(number, 0, tag, ""),), (b"",), frozenset([("tag", tag)])
            )
        yield _Candidate("schema", (StreamName(number, 0, "", ""),), (b"",), frozenset())

    def _field_candidates(self) -> Iterator[_Candidate]:
        query, number, iv = self.query, self.state.number, self.state.iv
        for condition in self.conditions if self.listed else ():
            if condition.op == "$contains" and condition.path in self.listed:
                name = StreamName(number, iv, "", "." + self.listed[condition.path])
                key, _ = order.index_key(condition.value)
                # It proves nothing, as what is no list must be looked at; but none is narrower by that.
                narrows = frozenset([("item", id(condition))])
                yield _Candidate("schema, item", (name,), tuple(sorted({key, UNLISTED})), narrows, True)
        for condition in self.conditions if self.ready else ():
            path = paths.text(condition.path)
            keys, sure = _equal_keys(condition)
            if path not in self.ready or not keys:
                continue
            proves = frozenset([id(condition)]) if sure else frozenset()
            for tag in query.tags if self.ready[path] < PRODUCTS else ():
                name = StreamName(number, iv, tag, "." + path)
                yield _Candidate("schema, tag, field", (name,), keys, proves | {("tag", tag)}, True)
            name = StreamName(number, iv, "", "." + path)
            yield _Candidate("schema, field", (name,), keys, proves, True)

    def _undominated(self, candidates: list[_Candidate]) -> list[_Candidate]:
        """Drop every candidate whose rows another one narrows further."""
        kept = []
        for place, mine in enumerate(candidates):
            worse = any(
                mine.proves < other.proves or (mine.proves == other.proves and later < place)
                for later, other in enumerate(candidates)
                if later != place
            )
            if not worse:
                kept.append(mine)
        return kept

    def _best(self, candidates: list[_Candidate]) -> tuple[_Candidate, int]:
        if len(candidates) == 1 and self.query.order_path is None and not self._ranges():
            return candidates[0], 0
        sized = [(self._size(candidate), place) for place, candidate in enumerate(candidates)]
        size, place = min(sized)
        return candidates[place], size

    def _size(self, candidate: _Candidate) -> int:
        return sum(self.reading.size(scan, PROBE) for scan in self._scans(candidate))

    def _scans(self, candidate: _Candidate) -> tuple[Scan, ...]:
        scans = []
        for name in candidate.streams:
            stream = self.reading.stream(name)
            if stream is not None:
                scans += [Scan(stream, *_bounds(key, self.query)) for key in candidate.keys]
        return tuple(scans)

    def _lagging(self) -> tuple[int, ...]:
        return (self.state.number,)

    # -- ranges of a field ----------------------------------------------------------------

    def _ranges(self) -> list[tuple[Condition, bytes, bytes]]:
        found = []
        for condition in self.conditions:
            bounds = _range_keys(condition)
            if bounds is not None and paths.text(condition.path) in self.ready:
                found.append((condition, *bounds))
        return found

    def _narrow_range(self) -> Plan | None:
        """A short range of a declared field, to be sorted, where the time-ordered streams are long."""
        by_path: dict[str, tuple[bytes, bytes]] = {}
        for condition, first, last in self._ranges():
            path = paths.text(condition.path)
            before = by_path.get(path, (b"", b"\xff"))
            by_path[path] = (max(before[0], first), min(before[1], last))
        for path, (first, last) in by_path.items():
            scan = self._field_scan(path, first, last)
            if scan is None:
                return Plan((), False, False, lagging=self._lagging(), explain="schema, empty field")
            if self.reading.size(scan, SORTABLE) < SORTABLE:
                return Plan((scan,), False, False, lagging=self._lagging(), explain="schema, field range")
        return None

    def _field_scan(self, path: str, first: bytes, last: bytes) -> Scan | None:
        tags = sorted(self.query.tags) if self.ready[path] < PRODUCTS else []
        name = StreamName(self.state.number, self.state.iv, tags[0] if tags else "", "." + path)
        stream = self.reading.stream(name)
        return None if stream is None else Scan(stream, low(first), low(last))

    def _ordered_by_field(self, best: _Candidate, size: int) -> Plan:
        assert self.query.order_path is not None
        path = paths.text(self.query.order_path)
        lagging = self._lagging() if best.by_field else ()
        few = Plan(
            self._scans(best),
            False,
            self.needs <= best.proves,
            len(best.streams) > 1,
            lagging=lagging,
            explain=best.label + ", sorted",
        )
        if size < PROBE or path not in self.ready:
            return few
        first, last = b"", b"\xff"
        for condition, low_key, high_key in self._ranges():
            if paths.text(condition.path) == path:
                first, last = max(first, low_key), min(last, high_key)
        scan = self._field_scan(path, first, last)
        scans = () if scan is None else (scan,)
        return Plan(scans, True, False, lagging=self._lagging(), explain="field order")


def _equal_keys(condition: Condition) -> tuple[tuple[bytes, ...], bool]:
    """The keys a condition allows when they are few, and whether having one proves it."""
    if condition.op == "$eq":
        values = (condition.value,)
    elif condition.op == "$in" and 0 < len(condition.value) <= CHOICES:
        values = condition.value
    elif condition.op == "$exists" and condition.value is False:
        return (order.key(paths.MISSING),), True
    else:
        return (), False
    keyed = [order.index_key(value) for value in values]
    # A key of full length may belong to a longer text that was cut.
    sure = all(exact and len(key) < order.CUT for key, exact in keyed)
    return tuple(sorted({key for key, _ in keyed})), sure


def _range_keys(condition: Condition) -> tuple[bytes, bytes] | None:
    """The keys from and up to which a condition can hold, or None."""
    if condition.op in ("$gt", "$gte"):
        key, _ = order.index_key(condition.value)
        return key, bytes((key[0] + 1,))
    if condition.op in ("$lt", "$lte"):
        key, _ = order.index_key(condition.value)
        # Everything that was cut to this key may still be below the value.
        return key[:1], key + b"\x00"
    if condition.op == "$prefix":
        key, _ = order.index_key(condition.value)
        return key, after_prefix(key) or b"\xff"
    return None
