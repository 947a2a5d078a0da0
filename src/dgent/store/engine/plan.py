"""Choose the indexes that answer a query.

A plan may give too many rows, never too few: what an index does not prove, `Query.matches`
decides row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from dgent import clock
from dgent.model import order
from dgent.model import path as paths
from dgent.model.contract.lookup import Lookup
from dgent.model.contract.scalar import KINDS, Kind
from dgent.model.query import Query
from dgent.model.where import Condition
from dgent.store.backend import View
from dgent.store.engine.catalog import (
    AUTHOR,
    PARENT,
    SOURCE,
    T_MIN,
    UNLISTED,
    IndexName,
    Position,
    SchemaState,
    field_index,
    high,
    low,
    number_key,
)
from dgent.store.engine.expiry import find_moment, may_hide, scan_expired
from dgent.store.engine.kernel import IndexScan, Reading
from dgent.store.engine.key_range import (
    RANGES,
    KeyRange,
    compares_keys,
    find_equal_keys,
    find_key_range,
    find_one_key,
    find_order_range,
    holds_any,
    make_key,
)

PROBE = 256  # indexes shorter than this are simply read
SORTABLE = 2048  # a range with fewer entries is read and sorted rather than walked past
_ALL = 2**62  # counts to the end
_WORTH = 32  # about so many entries are counted, or looked up in another index, in the time of one row
NEAR = 32  # how sparse an index is shows in the time of the entry after so many
SEARCHED = 4  # so many entries are looked up in other indexes rather than reading one row more
MERGED = 64  # the scans of more parents are read and sorted, not merged while all are open
OTHERS = 8  # an entry is looked up in at most so many other indexes; `matches` decides the rest


class Lacking(NamedTuple):
    """Rows without a field that the caller reads as a default; `key` is their order key if all have one."""

    scan: IndexScan
    key: bytes | None


class Plan(NamedTuple):
    """The scans to read and the work left to do with their rows."""

    scans: tuple[IndexScan, ...]
    ordered: bool  # the scans run in the query's order, so reading can stop early
    exact: bool  # every row matches; nothing is left to check
    repeats: bool = False  # a row may come from two scans
    prefix: str | None = None  # walk the ids instead of scans
    ids: tuple[str, ...] | None = None  # look these up instead of scans
    lapsing: bool = False  # some of the rows may be expired, so each is looked at
    unindexed: tuple[int, ...] = ()  # schemas whose unindexed rows must be looked at too
    lacking: tuple[Lacking, ...] = ()
    explain: str = ""


def few_rows(wanted: int) -> int:
    """Return how many rows are read and sorted rather than walking an index until some are found."""
    return min(max(PROBE, wanted * _WORTH), SORTABLE)


class _Candidate(NamedTuple):
    """A way to read one schema in time order, and the parts of the query it proves."""

    label: str
    indexes: tuple[IndexName, ...]
    keys: tuple[bytes, ...]
    proves: frozenset[object]
    by_field: bool = False
    path: str | None = None  # the field, where a record without it may be in the answer all the same


class _IndexKey(NamedTuple):
    """A part of a query that a record meets exactly if it is in one index under one key."""

    label: str
    name: IndexName
    key: bytes


def make_plan(reading: Reading, query: Query, view: View) -> Plan:
    """Return the plan for a query, judged by the sizes of the indexes it could read."""
    plan = _expired_plan(reading, query) if query.expired else _plan(reading, query, view)
    if query.by_update:
        plan = plan._replace(explain=f"log; {plan.explain}")
    # No index knows what a gate allows, or when a record was updated, so every row is looked at.
    untimed = query.updated_since is None and query.updated_until is None
    return plan if query.allow is None and untimed else plan._replace(exact=False)


def _plan(reading: Reading, query: Query, view: View) -> Plan:
    if query.ids is not None:
        return Plan((), False, False, ids=tuple(sorted(query.ids)), lapsing=True, explain="ids")
    if query.parent is not None or query.parents is not None:
        return _parent_plan(reading, query)
    if query.prefix is not None and _walks_ids(reading, query, query.prefix):
        return Plan((), False, False, prefix=query.prefix, lapsing=True, explain="id prefix")
    if query.schema is None:
        states = reading.states()
    else:
        state = reading.state(query.schema)
        states = [] if state is None else [state]
    if len(states) == 1:
        plan = _direct_plan(reading, query, view, states[0]) or _weigh(reading, query, view, states[0])
    else:
        plan = _join_plans([_weigh(reading, query, view, state) for state in states])
    for state in states:
        if state.expires and may_hide(reading, states):
            return plan._replace(lapsing=True, explain=f"{plan.explain}, expiry")
    return plan


def _expired_plan(reading: Reading, query: Query) -> Plan:
    """Return the plan of all records that have expired, each of which is looked at."""
    moment = find_moment(reading)
    states = reading.states() if query.schema is None else [reading.state(query.schema)]
    scans = (scan_expired(reading, state, moment) for state in states if state is not None)
    return Plan(
        tuple(scan for scan in scans if scan is not None), False, False, lapsing=True, explain="expiry"
    )


def _weigh(reading: Reading, query: Query, view: View, state: SchemaState) -> Plan:
    walk = None
    if query.order_path is not None:
        walk = _field_order(reading, query, view, state)
        if walk is not None and walk.plan.exact:
            return walk.plan  # it has the rows of the page and no others
    return _Planner(reading, query, view, state, walk).plan()


def _walks_ids(reading: Reading, query: Query, prefix: str) -> bool:
    """Return whether to walk the ids: there are few, or no other index would narrow the query."""
    narrowed = query.tags or query.any_tags or query.author or query.source or query.where
    return not narrowed or reading.size_ids(prefix, PROBE) < PROBE


def _join_plans(parts: list[Plan]) -> Plan:
    return Plan(
        tuple(scan for part in parts for scan in part.scans),
        all(part.ordered for part in parts),
        all(part.exact for part in parts),
        any(part.repeats for part in parts),
        unindexed=tuple(number for part in parts for number in part.unindexed),
        lacking=tuple(each for part in parts for each in part.lacking),
        explain="; ".join(part.explain for part in parts),
    )


def _parent_plan(reading: Reading, query: Query) -> Plan:
    index = reading.index_number(IndexName(0, 0, "", PARENT))
    parents = sorted(query.parents or ()) if query.parent is None else [query.parent]
    keys = () if index is None else dict.fromkeys(order.index_key(parent)[0] for parent in parents)
    scans = tuple(IndexScan(index or 0, *_bounds(key, query)) for key in keys)
    ordered = query.by_creation and len(scans) <= MERGED
    return Plan(scans, ordered, False, lapsing=True, explain="parent")


def _bounds(key: bytes, query: Query) -> tuple[Position, Position]:
    """Return the part of one key's run that lies in the query's time window."""
    first = low(key) if query.since is None else (key, clock.to_us(query.since), T_MIN)
    last = high(key) if query.until is None else (key, clock.to_us(query.until), T_MIN)
    return first, last


def _direct_plan(reading: Reading, query: Query, view: View, state: SchemaState) -> Plan | None:
    """Return the plan of the usual page: one schema, tags, at most one indexed field by value.

    `_Planner` would find the same; agents ask such queries all day, and there is little to weigh.
    """
    conditions = query.filter.parts
    if len(conditions) > 1 or len(query.tags) > OTHERS or not _asks_for_little(query):
        return None
    parts = [_tag_part(state, tag) for tag in sorted(query.tags)] if query.tags else []
    if conditions:
        field = _find_field(state, view, conditions[0])
        if field is None:
            return None
        parts.insert(0, field)
    unindexed = (state.number,) if conditions else ()
    if len(parts) > 1:
        scan, explain = _narrow_sparsest(reading, query, parts)
    else:
        (part,) = parts or (_IndexKey("schema", IndexName(state.number, 0, "", ""), b""),)
        index = reading.index_number(part.name)
        scan = None if index is None else IndexScan(index, *_bounds(part.key, query))
        explain = f"schema, {part.label}" if parts else "schema"
    return Plan(() if scan is None else (scan,), True, True, unindexed=unindexed, explain=explain)


def _asks_for_little(query: Query) -> bool:
    """Return whether a query asks by schema, tags, time and data alone, in the order of time."""
    if query.author is not None or query.source is not None or query.prefix is not None:
        return False
    return not query.any_tags and query.by_creation


def _narrow_sparsest(reading: Reading, query: Query, parts: list[_IndexKey]) -> tuple[IndexScan | None, str]:
    """Return the scan of the sparsest of some indexes, narrowed by the others, and what explains it."""
    scans = []
    for part in parts:
        index = reading.index_number(part.name)
        if index is None:
            return None, ", ".join(["schema", *(part.label for part in parts)])
        scans.append(IndexScan(index, *_bounds(part.key, query)))
    place = _find_sparsest(reading, [(scan,) for scan in scans], query.descending)
    parts.insert(0, parts.pop(place))
    walked = scans.pop(place)
    others = tuple((scan.index_number, scan.low[0]) for scan in scans)
    return walked._replace(others=others), ", ".join(["schema", *(part.label for part in parts)])


def _tag_part(state: SchemaState, tag: str) -> _IndexKey:
    return _IndexKey("tag", IndexName(state.number, 0, tag, ""), b"")


def _find_field(state: SchemaState, view: View, condition: object) -> _IndexKey | None:
    """Return the index and its key that have exactly the rows of a condition; None if there is no such."""
    if not isinstance(condition, Condition) or condition.op != "$eq" or not are_fields_usable(state, view):
        return None
    path = paths.text(condition.path)
    if (
        path not in state.ready
        or condition.path[-1] == paths.EACH
        or not _is_exact_index(state, view.lookup(state.name), condition, path)
    ):
        return None
    (key,), sure = find_equal_keys(condition, state.kinds.get(path))
    return _IndexKey("field", field_index(state, path), key) if sure else None


def _find_sparsest(reading: Reading, ways: Sequence[tuple[IndexScan, ...]], descending: bool) -> int:
    """Return which way to read has the fewest entries for a span of time, where the reading begins."""
    some = [scans[:OTHERS] for scans in ways]
    asked = [scan for scans in some for scan in scans]
    times = iter(reading.times(asked, descending, NEAR) if asked else ())
    best, furthest = 0, None
    for place, scans in enumerate(some):
        reached = [time for time in islice(times, len(scans)) if time is not None]
        if not reached:
            return place  # short, or empty
        near = max(reached) if descending else -min(reached)
        if furthest is None or near < furthest:
            best, furthest = place, near
    return best


def are_fields_usable(state: SchemaState, view: View) -> bool:
    """Return whether the caller sees records in the shape of the field indexes, and so may use them."""
    known = view.version(state.name)
    return known == state.index_version if known is not None else state.seen <= {state.index_version}


def _is_exact_index(state: SchemaState, lookup: Lookup | None, condition: Condition, path: str) -> bool:
    """Return whether a field's index has exactly the records with a value; `_Planner` handles the rest."""
    kind, defaults = (None, ()) if lookup is None else lookup.at(condition.path)
    if kind != state.kinds.get(path) or type(condition.value) in KINDS:
        return False
    return defaults is not None and not (defaults and order.same(defaults[0], condition.value))


def _is_keyed(state: SchemaState, lookup: Lookup | None, condition: Condition) -> bool:
    """Return whether the keys of a field are those of the values that a condition compares."""
    path = (*condition.path, paths.EACH) if condition.op == "$contains" else condition.path
    kind = state.kinds.get(paths.text(path))
    if kind != _kind(lookup, path):
        return False
    return compares_keys(condition, kind)


def _kind(lookup: Lookup | None, path: paths.Path) -> Kind | None:
    """Return the kind of value that the texts at a path stand for, as the caller sees them."""
    return None if lookup is None else lookup.kind(path)


def _may_default(lookup: Lookup | None, condition: Condition) -> bool:
    """Return whether a record without the field may pass, because the caller reads it as a default."""
    return holds_any(condition, () if lookup is None else lookup.defaults(condition.path))


def _needs(query: Query) -> frozenset[object]:
    """Return every part of the query that an index would have to prove."""
    needs: set[object] = {("tag", tag) for tag in query.tags}
    needs |= {part for part in ("any_tags", "author", "source", "prefix") if getattr(query, part)}
    needs |= {id(part) for part in query.filter.parts}
    return frozenset(needs)


class _FieldOrder(NamedTuple):
    """The plan that walks the index of the field that orders the answer, and what that index proves."""

    plan: Plan
    proves: frozenset[object]


def _field_order(reading: Reading, query: Query, view: View, state: SchemaState) -> _FieldOrder | None:
    """Return the walk in the order of a field; None when its index cannot give that order."""
    field, lookup = query.order_path, view.lookup(state.name)
    assert field is not None
    path = paths.text(field)
    kind, defaults = (None, ()) if lookup is None else lookup.at(field)
    listed = field[-1] == paths.EACH
    if (
        listed
        or path not in state.ready
        or kind != state.kinds.get(path)
        or not are_fields_usable(state, view)
    ):
        return None
    conditions = [part for part in query.filter.parts if isinstance(part, Condition) and part.path == field]
    first, last, proves = find_order_range(conditions, kind, defaults)
    index = reading.index_number(field_index(state, path))
    # A record without the field has its place by the default, and is merged in there.
    lacks = defaults != () and all(holds_any(part, defaults) for part in conditions)
    exact = len(proves) == len(query.filter.parts) and not query.tags and _is_bare(query)
    plan = Plan(
        () if index is None else (IndexScan(index, (first, T_MIN, T_MIN), (last, T_MIN, T_MIN)),),
        True,
        exact,
        unindexed=(state.number,),
        lacking=_lacking(reading, state, path, find_one_key(defaults)) if lacks else (),
        explain="field order",
    )
    return _FieldOrder(plan, proves)


def _is_bare(query: Query) -> bool:
    """Return whether a query asks for nothing but a schema, tags and a `where`."""
    named = query.any_tags or query.author or query.source or query.prefix
    return not named and query.since is None and query.until is None


def _lacking(reading: Reading, state: SchemaState, path: str, key: bytes | None) -> tuple[Lacking, ...]:
    """Return the rows without a field, with any tags; each is checked as the caller reads it."""
    index = reading.index_number(field_index(state, path))
    return () if index is None else (Lacking(IndexScan(index, low(UNLISTED), high(UNLISTED)), key),)


_Narrowing = tuple[tuple[tuple[int, bytes], ...], int | None]
"""The other indexes and the author of an IndexScan."""


class _Planner:
    """Plans a query for one schema."""

    def __init__(
        self,
        reading: Reading,
        query: Query,
        view: View,
        state: SchemaState,
        walk: _FieldOrder | None = None,
    ) -> None:
        self.reading, self.query, self.state = reading, query, state
        usable = are_fields_usable(state, view)
        self.lookup = lookup = view.lookup(state.name)
        kinds = state.kinds
        ready = [
            p
            for p in state.paths
            if usable and p in state.ready and kinds.get(p) == _kind(lookup, paths.parse(p))
        ]
        self.ready = {p for p in ready if paths.list_path(p) is None}
        self.listed = {found: p for p in ready if (found := paths.list_path(p)) is not None}
        conditions = [part for part in query.filter.parts if isinstance(part, Condition)]
        self.conditions = [part for part in conditions if _is_keyed(state, lookup, part)]
        self.needs = _needs(query)
        self.parts = dict(islice(self._parts(), OTHERS + 1))
        self.author = None if query.author is None else reading.number(query.author)
        self.met = self.parts.keys() | ({"author"} if query.author is not None else frozenset())
        self.walk = None if walk is None else self._narrow_walk(walk)

    def plan(self) -> Plan:
        """Return the best of the candidates."""
        candidates = self._drop_dominated(list(self._candidates()))
        if not self.query.by_creation:
            return self._by_field(candidates)
        best, size = self._best(candidates)
        if size >= PROBE:
            narrower = self._narrow_range()
            if narrower is not None:
                return narrower[0]
        return self._in_order(best)

    def _in_order(self, best: _Candidate) -> Plan:
        repeats = len(best.indexes) > 1
        unindexed = self._unindexed_schemas() if self._uses_field(best) else ()
        lacking = () if best.path is None else _lacking(self.reading, self.state, best.path, b"")
        explain = self._explain(best)
        return Plan(
            self._scans(best),
            True,
            self._is_exact(best),
            repeats,
            unindexed=unindexed,
            lacking=lacking,
            explain=explain,
        )

    def _is_exact(self, candidate: _Candidate) -> bool:
        return self.needs <= candidate.proves | self.met

    def _uses_field(self, candidate: _Candidate) -> bool:
        return candidate.by_field or any(part.label == "field" for part in self.parts.values())

    def _explain(self, candidate: _Candidate) -> str:
        """Return the label of what is walked, followed by what each of its entries is looked up in."""
        others = [part.label for need, part in self.parts.items() if need not in candidate.proves]
        if self.query.author is not None and "author" not in candidate.proves:
            others.append("author")
        return ", ".join([candidate.label, *others])

    def _parts(self) -> Iterator[tuple[object, _IndexKey]]:
        """Yield the needs that one index proves by one key."""
        for condition in self.conditions if self.ready else ():
            path = paths.text(condition.path)
            keys, sure = find_equal_keys(condition, self.state.kinds.get(path))
            if path in self.ready and sure and len(keys) == 1 and self._narrows(condition, keys) is None:
                yield id(condition), _IndexKey("field", field_index(self.state, path), keys[0])
        for tag in sorted(self.query.tags):
            yield ("tag", tag), _tag_part(self.state, tag)
        if self.query.source is not None:
            name = IndexName(self.state.number, 0, "", SOURCE)
            yield "source", _IndexKey("source", name, number_key(self.reading.number(self.query.source) or 0))

    def _narrows(self, condition: Condition, keys: Sequence[bytes]) -> str | None:
        """Return why being in a field's index under one of the keys proves nothing; None: it does."""
        if _may_default(self.lookup, condition):
            return "lacks"
        return "default" if UNLISTED in keys and self._has_defaults(condition.path) else None

    def _candidates(self) -> Iterator[_Candidate]:
        """Yield ways to read the schema in time order, the ones that usually prove most first."""
        yield from self._item_candidates()
        yield from self._field_candidates()
        query, number = self.query, self.state.number
        if query.any_tags:
            indexes = tuple(IndexName(number, 0, tag, "") for tag in sorted(query.any_tags))
            yield _Candidate("schema, any tag", indexes, (b"",), frozenset(["any_tags"]))
        for field, name in (("author", AUTHOR), ("source", SOURCE)):
            text = getattr(query, field)
            if text is not None:
                named = self.reading.number(text)
                if field == "author" and named is not None and named == self.state.usual_author:
                    continue  # its records have no entries of their own
                keys: tuple[bytes, ...] = () if named is None else (number_key(named),)
                yield _Candidate(
                    f"schema, {field}", (IndexName(number, 0, "", name),), keys, frozenset([field])
                )
        for tag in sorted(query.tags):
            yield _Candidate(
                "schema, tag", (IndexName(number, 0, tag, ""),), (b"",), frozenset([("tag", tag)])
            )
        yield _Candidate("schema", (IndexName(number, 0, "", ""),), (b"",), frozenset())

    def _item_candidates(self) -> Iterator[_Candidate]:
        for condition in self.conditions if self.listed else ():
            if _may_default(self.lookup, condition):
                continue  # a record without the list has no entry to find it by
            if condition.op == "$contains" and condition.path in self.listed:
                path = self.listed[condition.path]
                name = field_index(self.state, path)
                key, _ = make_key(condition.value, self.state.kinds.get(path))
                # It proves nothing: values that are not lists must be checked too. But none is narrower.
                narrows = frozenset([("item", id(condition))])
                yield _Candidate("schema, item", (name,), tuple(sorted({key, UNLISTED})), narrows, True)

    def _field_candidates(self) -> Iterator[_Candidate]:
        for condition in self.conditions if self.ready else ():
            path = paths.text(condition.path)
            keys, sure = find_equal_keys(condition, self.state.kinds.get(path))
            if path not in self.ready or not keys:
                continue
            unproven = self._narrows(condition, keys)
            # What proves nothing narrows all the same; then each row must be looked at.
            proves = id(condition) if sure and unproven is None else ("narrows", id(condition))
            lacks = path if unproven == "lacks" else None
            name = field_index(self.state, path)
            yield _Candidate("schema, field", (name,), keys, frozenset([proves]), True, lacks)

    def _drop_dominated(self, candidates: list[_Candidate]) -> list[_Candidate]:
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
        if not self._ranges():
            if len(candidates) == 1:
                return candidates[0], 0
            if self.query.by_creation:
                ways = [self._scans(candidate) for candidate in candidates]
                return candidates[_find_sparsest(self.reading, ways, self.query.descending)], 0
        return self._smallest(candidates, PROBE)

    def _smallest(self, candidates: list[_Candidate], cap: int) -> tuple[_Candidate, int]:
        sized = [(self._size(candidate, cap), place) for place, candidate in enumerate(candidates)]
        size, place = min(sized)
        return candidates[place], size

    def _size(self, candidate: _Candidate, cap: int) -> int:
        return sum(self._scan_size(scan, cap) for scan in self._scans(candidate))

    def _scan_size(self, scan: IndexScan, cap: int) -> int:
        """Return about how many entries a scan has, up to a cap; the cap if counting takes long."""
        bare, most = scan.bare(), min(SEARCHED * cap, _ALL)
        if scan != bare and self.reading.estimate(bare, most) == most:
            return cap
        return self.reading.estimate(scan, cap)

    def _scans(self, candidate: _Candidate) -> tuple[IndexScan, ...]:
        narrowing = self._narrowing(candidate.proves)
        if narrowing is None:
            return ()
        scans = []
        for name in candidate.indexes:
            index = self.reading.index_number(name)
            if index is not None:
                scans += [IndexScan(index, *_bounds(key, self.query), *narrowing) for key in candidate.keys]
        return tuple(scans)

    def _narrowing(self, proven: frozenset[object]) -> _Narrowing | None:
        """Return what narrows a scan that proves some needs; None when nothing can be in it."""
        others = []
        for need, part in self.parts.items():
            index = self.reading.index_number(part.name)
            if index is None:
                return None
            if need not in proven:
                others.append((index, part.key))
        if self.query.author is None or "author" in proven:
            return tuple(others), None
        return None if self.author is None else (tuple(others), self.author)

    def _unindexed_schemas(self) -> tuple[int, ...]:
        return (self.state.number,)

    def _has_defaults(self, path: paths.Path) -> bool:
        """Return whether a record without the field may be read as if it had it."""
        return self.lookup is not None and self.lookup.defaults(path) != ()

    # -- ranges of a field ----------------------------------------------------------------

    def _ranges(self) -> list[tuple[str, KeyRange]]:
        found = []
        for condition in self.conditions:
            path = paths.text(condition.path)
            bounds = find_key_range(condition, self.state.kinds.get(path))
            if bounds is not None and path in self.ready and condition.op in RANGES:
                found.append((path, bounds))
        return found

    def _narrow_range(self) -> tuple[Plan, int] | None:
        """Return a short range of an indexed field, to be sorted, and its size; None when there is none.

        The field that orders the answer has its range in the walk already.
        """
        by_path: dict[str, tuple[bytes, bytes]] = {}
        ordering = None if self.walk is None else self.query.order_path
        for path, bounds in self._ranges():
            before = by_path.get(path, (b"", b"\xff"))
            if paths.parse(path) != ordering:
                by_path[path] = (max(before[0], bounds.first), min(before[1], bounds.last))
        for path, (first, last) in by_path.items():
            scan, unindexed = self._field_scan(path, first, last), self._unindexed_schemas()
            if scan is None:
                return Plan((), False, False, unindexed=unindexed, explain="schema, empty field"), 0
            size = self._scan_size(scan, SORTABLE)
            if size < SORTABLE:
                lacks = self._has_defaults(paths.parse(path))
                lacking = _lacking(self.reading, self.state, path, None) if lacks else ()
                explain = "schema, field range"
                return Plan(
                    (scan,), False, False, unindexed=unindexed, lacking=lacking, explain=explain
                ), size
        return None

    def _field_scan(self, path: str, first: bytes, last: bytes) -> IndexScan | None:
        index, narrowing = (
            self.reading.index_number(field_index(self.state, path)),
            self._narrowing(frozenset()),
        )
        if index is None or narrowing is None:
            return None
        return IndexScan(index, low(first), low(last), *narrowing)

    # -- the order of a field -------------------------------------------------------------

    def _narrow_walk(self, walk: _FieldOrder) -> _FieldOrder:
        """Return the walk with each of its entries looked up in the other indexes of the query."""
        narrowing, scans = self._narrowing(walk.proves), walk.plan.scans
        scans = () if narrowing is None else tuple(IndexScan(*scan[:3], *narrowing) for scan in scans)
        at_all_times = self.query.since is None and self.query.until is None
        exact = at_all_times and self.needs <= walk.proves | self.met
        return walk._replace(plan=walk.plan._replace(scans=scans, exact=exact))

    def _by_field(self, candidates: list[_Candidate]) -> Plan:
        """Return the walk in the order of the field, or a few rows to sort if that reads less."""
        if self.walk is None:
            best, size = self._best(candidates)
            narrow = self._narrow_range() if size >= PROBE else None
            return self._add_sort(best) if narrow is None else narrow[0]
        wanted = None if self.query.limit is None else self.query.offset + self.query.limit + 1
        few = self._few(candidates, wanted, self.walk.proves)
        return self.walk.plan if few is None or self._walks_less(few[1], wanted) else few[0]

    def _few(
        self, candidates: list[_Candidate], wanted: int | None, known: frozenset[object]
    ) -> tuple[Plan, int] | None:
        """Return a plan of a few rows to sort, and their number; None when there are too many."""
        if self.query.since is None and self.query.until is None:
            # What the index of the field proves by itself, too, it gives in order.
            candidates = [each for each in candidates if not each.proves <= known]
        cap = _ALL if wanted is None else few_rows(wanted)
        if candidates:
            best, size = self._smallest(candidates, cap)
            if size < cap:
                return self._add_sort(best), size
        return self._narrow_range()

    def _walks_less(self, few: int, wanted: int | None) -> bool:
        """Return whether walking until a page is full reads no more rows than there are to sort.

        The matching rows are among the `few`. So at most one in (length of the walk / few) rows of the walk
        matches, and a page is full after `wanted` times as many.
        """
        assert self.walk is not None
        # An exact walk reads matching rows only; what it passes on the way are entries.
        spared = _WORTH if self.walk.plan.exact else 1
        enough = few + 1 if wanted is None else min(-(-few * few * spared // wanted), few * _WORTH)
        length = sum(self.reading.estimate(scan.bare(), enough) for scan in self.walk.plan.scans)
        return enough > 0 and length < enough

    def _add_sort(self, best: _Candidate) -> Plan:
        plan = self._in_order(best)
        return plan._replace(ordered=False, explain=plan.explain + ", sorted")
