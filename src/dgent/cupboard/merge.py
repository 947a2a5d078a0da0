"""Merge rules for records of the cupboard that two copies of a store changed independently.

A finished crumb stays finished, a counter has the increments of both sides, and the readiness of crumbs is
recomputed from states and links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dgent.cupboard.builtin import CATEGORIES, PROPERTIES
from dgent.cupboard.definition import Definitions
from dgent.cupboard.kind import ENDED, FINISHED, LINK_RULES, WAITING
from dgent.cupboard.record import (
    CATALOG,
    CATEGORY,
    CRUMB,
    LEASE,
    LINK,
    PROPERTY,
    STASH,
    TRAIL,
    CategoryRecord,
    PropertyRecord,
)
from dgent.cupboard.short_id import separate
from dgent.cupboard.waiting import Edge, count_waiting, with_parts
from dgent.model.datum import Datum
from dgent.model.order import same
from dgent.store.engine.merge import (
    MISSING,
    MergedRecord,
    Resolve,
    Rules,
    Settlement,
    merge_lists,
    merge_records,
)

_DERIVED = ("open_parents", "queue", "updated_at", "short_id", "former_ids", "parts")
_CLAIM = ("state", "holder", "lease_until")
_END = ("state", "completed_at", "reason", "lesson")


def _merge_crumb(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
    return _merge_staged(base, left, right, _CLAIM, FINISHED)


def _merge_trail(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
    return _merge_staged(base, left, right, _END, ENDED)


def _merge_staged(
    base: Datum | None, left: Datum | None, right: Datum | None, group: Sequence[str], final: Sequence[str]
) -> MergedRecord:
    """Merge a record with a state: the fields of `group` come from one side, and a final state stays."""
    merged = merge_records(base, left, right, _resolve_common, _DERIVED)
    if left is None or right is None or merged.version is None:
        return merged
    one, other, was = (_pick_fields(each, group) for each in (left, right, base))
    disputed = [field for field in merged.disputed if field not in group]
    if base is not None and same(other, was):
        chosen = one
    elif same(one, other) or (base is not None and same(one, was)):
        chosen = other
    else:
        chosen, dispute = _choose_state(one, other, final)
        disputed += dispute
    data = {name: value for name, value in merged.version.data.items() if name not in group} | chosen
    return MergedRecord(merged.version.replace(data=data), tuple(disputed))


def _choose_state(
    one: dict[str, Any], other: dict[str, Any], final: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Choose between states that both sides changed; return the fields of one side and what is disputed."""
    ended = [each.get("state") in final for each in (one, other)]
    chosen = one if ended == [True, False] else other
    if ended[0] == ended[1] and one.get("state") != other.get("state"):
        return chosen, ["state"]
    if ended == [False, False] and one.get("holder") != other.get("holder"):
        return chosen, ["holder"]
    return chosen, []


def _pick_fields(datum: Datum | None, names: Sequence[str]) -> dict[str, Any]:
    return {} if datum is None else {name: datum.data[name] for name in names if name in datum.data}


def _resolve_common(path: str, base: Any, left: Any, right: Any) -> Any:
    """Resolve fields that all entities have: times and tokens only grow, lists of values merge as sets."""
    if path in ("updated_at", "token", "parts") and type(left) is type(right):
        return max(left, right)
    if path == "short_id":  # two lengths of one hash: the longer one is understood as well
        return min(left, right, key=lambda each: (len(str(each)), str(each)))
    if path in ("open_parents", "queue"):
        return right  # recomputed at the end
    lists = isinstance(left, list) and isinstance(right, list)
    if lists and (path in ("crumbs", "former_ids") or path.startswith("properties.")):
        return merge_lists(base, left, right)
    return MISSING


# -- stashes ------------------------------------------------------------------------------------

_LAST_CHANGE = ("operation", "changed_by", "history_id")  # about the last change: the later side wins


def _merge_stash(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
    """Merge a stash: its version is above both, and a counter has the increments of both sides."""
    kinds = {each.data.get("stash_type") for each in (base, left, right) if each is not None}
    is_counter = kinds == {"counter"}
    resolve: Resolve = _resolve_counter if is_counter else _resolve_stash
    merged = merge_records(base, left, right, resolve, ("updated_at",))
    if left is None or right is None or merged.version is None:
        return merged
    versions = [each.data.get("version") for each in (left, right)]
    if base is not None and any(same(version, base.data.get("version")) for version in versions):
        return merged
    numbers = [number for number in versions if type(number) is int]
    data = {**merged.version.data, "version": max(numbers, default=0) + 1}
    if is_counter:  # also where both hold the same number: each side added something
        before = 0 if base is None else _read_count(base.data.get("value"))
        ours, theirs = _read_count(left.data.get("value")), _read_count(right.data.get("value"))
        data["value"] = {"value": _clamp(ours + theirs - before)}
    return MergedRecord(merged.version.replace(data=data), merged.disputed)


def _resolve_stash(path: str, base: Any, left: Any, right: Any) -> Any:
    if path in _LAST_CHANGE or path == "version":
        return right
    return _resolve_common(path, base, left, right)


def _resolve_counter(path: str, base: Any, left: Any, right: Any) -> Any:
    return right if path == "value" else _resolve_stash(path, base, left, right)  # counted afterwards


def _read_count(value: Any) -> int:
    """Return the number of a counter; a missing or invalid value counts as 0."""
    found = value.get("value") if isinstance(value, dict) else value
    return found if type(found) is int else 0


def _clamp(total: int) -> int:
    return max(-(2**63), min(2**63 - 1, total))


# -- internal records ---------------------------------------------------------------------------


def _merge_catalog(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
    """Merge the version of the definitions: it must differ from that of either side."""
    if left is None or right is None:
        return MergedRecord(left or right)
    counts = [_read_count({"value": each.data.get("changes")}) for each in (left, right)]
    return MergedRecord(right.replace(data={**right.data, "changes": sum(counts)}))


def _merge_lease(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
    """Merge leases: that of the newest holder wins, and of one holder the longest."""
    if left is None or right is None:
        return MergedRecord(None)
    return MergedRecord(
        max(left, right, key=lambda each: (each.data.get("token", 0), str(each.data.get("until"))))
    )


# -- fields derived from other records -----------------------------------------------------------


def _settle(settlement: Settlement) -> None:
    """Drop links that are void after the merge, and recompute the readiness of the crumbs concerned."""
    touched = settlement.touched_ids
    crumbs, links = touched.get(CRUMB.name, set()), touched.get(LINK.name, set())
    ranked = touched.get(CATEGORY.name) or touched.get(PROPERTY.name)
    if not crumbs and not links and not ranked and TRAIL.name not in touched:
        return
    edges: list[Edge] = []
    wanted = set(crumbs)
    for link in _settle_links(settlement):
        if link.data.get("link_type") in WAITING:
            edge = _read_edge(link)
            edges.append(edge)
            if link.id in links or edge[2] in crumbs:
                wanted.add(edge[1])
    definitions = _load_definitions(settlement)
    if ranked:
        wanted.update(each.id for each in settlement.records(CRUMB.name) if each.data.get("state") == "ready")
    found = {id: _find_crumb(settlement, id) for id in with_parts(wanted, edges)}
    known = {id: crumb for id, crumb in found.items() if crumb is not None}
    counts = count_waiting(
        known,
        edges,
        lambda id: _is_open(_find_crumb(settlement, id)),
        lambda id: _is_waiting(_find_crumb(settlement, id)),
    )
    for id in sorted(known):
        _recount(settlement, known[id], counts[id], definitions)
    for schema in (CRUMB.name, TRAIL.name):
        if schema in touched:
            _settle_short_ids(settlement, schema)


def _settle_short_ids(settlement: Settlement, schema: str) -> None:
    """Give the later of two records with one short id the next free one; the old one stays a former one."""
    found = sorted(settlement.records(schema), key=lambda each: (each.created_at, each.id))
    given = separate((each.id, str(each.data.get("short_id") or "")) for each in found)
    for each in found:
        if each.id in given:
            former = [*(each.data.get("former_ids") or ()), each.data["short_id"]]
            data = {**each.data, "short_id": given[each.id], "former_ids": former}
            settlement.put({each.id: each.replace(data=data, tags=each.tags | {each.data["short_id"]})})


def _read_edge(link: Datum) -> Edge:
    kind, start, end = (str(link.data.get(name)) for name in ("link_type", "from_id", "to_id"))
    return kind, start, end


def _find_crumb(settlement: Settlement, id: str) -> Datum | None:
    found = settlement.get(id)
    return found if found is not None and found.schema == CRUMB.name else None


def _settle_links(settlement: Settlement) -> list[Datum]:
    """Drop links that are void after the merge, and return the rest."""
    kept = [link for link in settlement.records(LINK.name) if not _drop_if_trail_ended(settlement, link)]
    return _drop_duplicates(settlement, kept)


def _drop_if_trail_ended(settlement: Settlement, link: Datum) -> bool:
    """Drop a link to a trail that ended in the other copy; its crumb then has no trail. True if dropped."""
    if link.data.get("link_type") != "belongs_to":
        return False
    trail = settlement.get(str(link.data.get("to_id")))
    ended = trail is not None and trail.schema == TRAIL.name and trail.data.get("state") in ENDED
    if ended:
        settlement.put({link.id: None})
    return ended


def _drop_duplicates(settlement: Settlement, links: Iterable[Datum]) -> list[Datum]:
    """Drop all but the first of equal links, which both copies may have made, and return the rest."""
    first: dict[tuple[str, ...], Datum] = {}
    for link in sorted(links, key=lambda each: (each.created_at, each.id)):
        kind, *ends = _read_edge(link)
        mutual = kind in LINK_RULES and LINK_RULES[kind].mutual
        key = (kind, *(sorted(ends) if mutual else ends))
        if first.setdefault(key, link) is not link:
            settlement.put({link.id: None})
    return list(first.values())


def _recount(settlement: Settlement, crumb: Datum, count: int, definitions: Definitions) -> None:
    free = crumb.data.get("state") == "ready" and not count
    queue = definitions.rank(crumb.data.get("properties") or {}) if free else None
    if (crumb.data.get("open_parents", 0), crumb.data.get("queue")) != (count, queue):
        data = {**crumb.data, "open_parents": count, "queue": queue}
        settlement.put({crumb.id: crumb.replace(data=data)})


def _is_open(crumb: Datum | None) -> bool:
    return crumb is not None and crumb.data.get("state") != "pebble"


def _is_waiting(crumb: Datum | None) -> bool:
    count = None if crumb is None else crumb.data.get("open_parents")
    return isinstance(count, int) and count > 0


def _load_definitions(settlement: Settlement) -> Definitions:
    """Return the merged definitions, or the built-in ones if none are stored."""
    properties = {each.id: each.data for each in settlement.records(PROPERTY.name)}
    categories = {each.id: each.data for each in settlement.records(CATEGORY.name)}
    return Definitions(
        {id: PropertyRecord(**_filter_fields(data, PropertyRecord)) for id, data in properties.items()}
        or PROPERTIES,
        {id: CategoryRecord(**_filter_fields(data, CategoryRecord)) for id, data in categories.items()}
        or CATEGORIES,
    )


def _filter_fields(data: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name in kind.__dataclass_fields__}


RULES = Rules(
    {
        CRUMB.name: _merge_crumb,
        TRAIL.name: _merge_trail,
        STASH.name: _merge_stash,
        CATALOG.name: _merge_catalog,
        LEASE.name: _merge_lease,
    },
    internal=frozenset((CATALOG.name, LEASE.name)),
    settle=_settle,
)
