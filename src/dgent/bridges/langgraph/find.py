"""Reads and commits of the store's items in a universe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp

from dgent.bridges.langgraph import item as items
from dgent.bridges.langgraph.item import ITEM, ItemChange, Namespace, part_id, read_item, within
from dgent.errors import Conflict, InputError, VersionConflict
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.search.hybrid import join_legs
from dgent.store.backend import AsOf, Delete, Expect, Op, Put
from dgent.sync.handle import begin_anywhere
from dgent.universe.expiry import is_due, prolong
from dgent.universe.universe import Universe

Mode: TypeAlias = Literal["auto", "meaning", "text", "hybrid"]

PAGE = 64
FEW = 256
ATTEMPTS = 20
BATCH = 500  # items that one commit of a sweep deletes
MAX_WORDS = 1_000


class Plan(msgspec.Struct):
    """Ops with all that user code computes for them: the vectors of their texts."""

    ops: Sequence[Any]
    vectors: Mapping[str, bytes]
    texts: Mapping[tuple[Namespace, str], Sequence[tuple[str, str]]]  # paths and texts to embed, by item
    schema: Schema[Any] | None
    mode: Mode = "auto"
    expect: Expect = None
    as_of: AsOf = None


@begin_anywhere
async def run_plan(u: Universe, plan: Plan) -> list[Any]:
    """Return the answers of ops: reads see the state before the puts, which are one commit."""
    results: list[Any] = [None] * len(plan.ops)
    refreshed: list[Datum] = []
    puts: dict[tuple[Namespace, str], PutOp] = {}
    for at, op in enumerate(plan.ops):
        if isinstance(op, PutOp):
            puts[op.namespace, op.key] = op
        elif isinstance(op, GetOp):
            found = await u.get(items.item_id(op.namespace, op.key), as_of=plan.as_of, raw=True)
            if found is not None:
                results[at] = read_item(found)
                refreshed += [found] if op.refresh_ttl and not plan.as_of else []
        elif isinstance(op, SearchOp):
            hits = await search(u, op, plan)
            results[at] = [read_item(datum, score, search=True) for score, datum in hits]
            refreshed += [datum for _, datum in hits] if op.refresh_ttl else []
        elif isinstance(op, ListNamespacesOp):
            results[at] = await list_namespaces(u, op)
        else:
            raise ValueError(f"{type(op).__name__} is not an operation of a store")
    await refresh(u, refreshed)
    if puts:
        await put_items(u, plan, puts)
    return results


# -- writing ------------------------------------------------------------------------------


async def put_items(u: Universe, plan: Plan, puts: Mapping[tuple[Namespace, str], PutOp]) -> None:
    """Store and delete items with their vectors and expiries, in one commit."""
    names = [items.item_id(*name) for name in puts]
    for _ in range(ATTEMPTS):
        before = await u.get_many(names, raw=True)
        ops: list[Op] = []
        for op, old in zip(puts.values(), before, strict=True):
            ops += _put_ops(plan, op, old)
        try:
            await u.commit(ops)
            return
        except VersionConflict:
            if plan.expect is not None:
                raise
    raise Conflict(f"{names[0]!r} keeps changing")


def _put_ops(plan: Plan, op: PutOp, old: Datum | None) -> list[Op]:
    id = items.item_id(op.namespace, op.key)
    texts = plan.texts.get((op.namespace, op.key), ()) if op.value is not None else ()
    had = [] if old is None else old.data.get("vectors", [])
    expect = plan.expect
    if expect is None and (had or texts):
        expect = 0 if old is None else old.rev  # or vectors of another put would stay
    kept = [path for path, _ in texts]
    ops: list[Op] = [Delete(part_id("vector", id, path)) for path in had if path not in kept]
    if op.value is None:
        if old is not None or expect is not None:
            ops.append(Delete(id, expect))
    else:
        datum = items.make_item(op.namespace, op.key, op.value, op.ttl, kept, old)
        ops.append(Put(datum, expect))
        ops += [Put(_make_vector(plan, datum, path, text)) for path, text in texts]
    return ops


def _make_vector(plan: Plan, item: Datum, path: str, text: str) -> Datum:
    schema = plan.schema
    assert schema is not None, "texts are embedded where there is an index"
    return Datum(
        part_id("vector", item.id, path),
        data={"place": item.data["place"], "item": item.id, "path": path},
        content=plan.vectors[text],
        schema=schema.name,
        schema_version=schema.version,
        expires_at=item.expires_at,
    )


# -- times to live ------------------------------------------------------------------------


async def refresh(u: Universe, datums: Sequence[Datum]) -> None:
    """Let items live on for their ttl from now, with their vectors."""
    given = [(datum, items.lifetime_of(datum.data["ttl"])) for datum in datums if "ttl" in datum.data]
    due = [(datum, lifetime) for datum, lifetime in given if is_due(datum, lifetime)]
    vectors = [
        (part_id("vector", datum.id, path), lifetime)
        for datum, lifetime in due
        for path in datum.data.get("vectors", ())
    ]
    found = await u.get_many([id for id, _ in vectors], raw=True) if vectors else []
    parts = zip(found, [lifetime for _, lifetime in vectors], strict=True)
    prolong(u, [*due, *((datum, lifetime) for datum, lifetime in parts if datum is not None)])


async def sweep(u: Universe) -> int:
    """Delete the items that have expired; returns how many they were."""
    count = 0
    while found := await u.query(Query(schema=ITEM.name, expired=True, limit=BATCH), raw=True):
        ops: list[Op] = []
        for datum in found:
            ops.append(Delete(datum.id, datum.rev))
            ops += [Delete(part_id("vector", datum.id, path)) for path in datum.data.get("vectors", ())]
        try:
            await u.commit(ops)
            count += len(found)
        except VersionConflict:
            continue  # one of them was put again, or swept by another program: look again
    return count


# -- searching ----------------------------------------------------------------------------


Scored: TypeAlias = tuple[float | None, Datum]


async def search(u: Universe, op: SearchOp, plan: Plan) -> list[Scored]:
    """Return items with their scores, nearest first; without a query the newest first."""
    items.check_filter(op.filter)
    if op.limit <= 0:
        return []
    mode = plan.mode
    if op.query and mode in ("text", "hybrid"):
        return await _search_words(u, op, plan)
    if op.query and plan.schema is not None:
        return await _search_meaning(u, op, plan.schema, plan.vectors[op.query])
    if mode == "meaning":
        raise InputError("a search by meaning needs index=", hint="DgentStore(place, index={...})")
    found = await find_items(u, op, op.offset + op.limit)
    return [(None, datum) for datum in found[op.offset :]]


async def find_items(u: Universe, op: SearchOp, count: int, bare: bool = False) -> list[Datum]:
    """Return so many items of a search in the order of their updates; `bare` those without vectors."""
    found: list[Datum] = []
    # Sorting a few is quicker than walking the log for them.
    order = "place" if op.namespace_prefix else "created_at"
    page = await u.page(within(ITEM.name, op.namespace_prefix, order_by=order, limit=FEW), raw=True)
    is_imported = any("updated_us" in datum.data for datum in page.items)
    few = sorted(page.items, key=_update if is_imported else _seq, reverse=True)
    query = None
    if page.cursor is not None:
        size = max(PAGE, min(count, 1_000))
        query = within(ITEM.name, op.namespace_prefix, order_by="updated_at", limit=size)
        page = await u.page(query, raw=True)
        few = page.items
    while True:
        for datum in few:
            if passes(datum, op) and not (bare and "vectors" in datum.data):
                found.append(datum)
                if len(found) == count:
                    return found
        if query is None or page.cursor is None:
            return found
        query = query.replace(cursor=page.cursor)
        page = await u.page(query, raw=True)
        few = page.items


def _update(datum: Datum) -> tuple[Any, int]:
    return items.updated_of(datum), datum.seq or 0


def _seq(datum: Datum) -> int:
    return datum.seq or 0  # commits are in the order of their times


def passes(datum: Datum, op: SearchOp) -> bool:
    """Return whether a record passes the filter of a search."""
    return not op.filter or items.fits(items.value_of(datum), op.filter)


async def _search_meaning(u: Universe, op: SearchOp, schema: Schema[Any], vector: bytes) -> list[Scored]:
    wanted, k = op.offset + op.limit, max(PAGE, 2 * (op.offset + op.limit))
    while True:
        page = await u.search_vectors(vector, within(schema.name, op.namespace_prefix), k)
        best: dict[str, float] = {}
        for hit in page.items:
            best.setdefault(hit.datum.data["item"], hit.score)
        found = await _select(u, best, op)
        if len(found) >= wanted or len(page.items) < k:
            break
        k *= 4
    found = found[op.offset : wanted]
    if len(found) < op.limit:
        found += [(None, datum) for datum in await find_items(u, op, op.limit - len(found), bare=True)]
    return found


async def _search_words(u: Universe, op: SearchOp, plan: Plan) -> list[Scored]:
    """Search by words; hybrid together with the vectors."""
    assert op.query is not None
    query = within(ITEM.name, op.namespace_prefix)
    hits = await u.search(op.query, query, k=MAX_WORDS, mode="text")
    scores = {hit.datum.id: hit.score for hit in hits}
    if plan.mode == "hybrid" and plan.schema is not None:
        near = within(plan.schema.name, op.namespace_prefix)
        page = await u.search_vectors(plan.vectors[op.query], near, MAX_WORDS)
        meaning: dict[str, float] = {}
        for hit in page.items:
            meaning.setdefault(hit.datum.data["item"], hit.score)
        joined = join_legs(scores, meaning, MAX_WORDS, complete=False)
        scores = {id: each.score for id, each in sorted(joined.items(), key=lambda each: -each[1].score)}
    found = await _select(u, scores, op)
    return found[op.offset : op.offset + op.limit]


async def _select(u: Universe, scores: Mapping[str, float], op: SearchOp) -> list[Scored]:
    """Return the live items of ids, in their order, that pass the filter of a search."""
    datums = [each for each in await u.get_many(list(scores), raw=True) if each is not None]
    return [(scores[datum.id], datum) for datum in datums if passes(datum, op)]


# -- namespaces ---------------------------------------------------------------------------


async def list_namespaces(u: Universe, op: ListNamespacesOp) -> list[Namespace]:
    """Return the namespaces of items, in order, from the index of their places."""
    conditions = op.match_conditions or ()
    start = next((each.path for each in conditions if each.match_type == "prefix"), ())
    fixed = items.place_of(start[: start.index("*")] if "*" in start else start)
    found = [await _namespace_at(u, place) for place, _ in await u.values(ITEM.name, "place", prefix=fixed)]
    wanted = [ns for ns in found if ns is not None and all(_matches(each, ns) for each in conditions)]
    names = sorted({ns[: op.max_depth] for ns in wanted} if op.max_depth is not None else wanted)
    return names[op.offset : op.offset + op.limit]


async def _namespace_at(u: Universe, place: str) -> Namespace | None:
    known = items.labels_of(place)
    if known is None:
        query = Query(schema=ITEM.name, where={"place": place}, limit=1)
        known = next(map(items.namespace_of, await u.query(query, raw=True)), None)
    return known


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path) or not path:
        return not path
    if condition.match_type == "prefix":
        part = namespace[: len(path)]
    elif condition.match_type == "suffix":
        part = namespace[-len(path) :]
    else:
        raise ValueError(f"{condition.match_type!r} is not a valid match type (use prefix or suffix)")
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))


# -- versions -----------------------------------------------------------------------------


async def history(u: Universe, namespace: Namespace, key: str, limit: int | None) -> list[Any]:
    """Return the kept versions of an item, newest first; None stands for a deletion."""
    versions = await u.history(items.item_id(namespace, key), limit=limit)
    return [None if each.datum is None else read_item(each.datum) for each in versions]


async def changes(u: Universe, since: int, limit: int | None) -> list[ItemChange]:
    """Return the changes of items in the commits after one."""
    found = []
    for change in await u.changes(since, limit=limit):
        for each in change.items:
            if each.schema == ITEM.name and each.id is not None:
                datum = each.datum if each.op == "put" else None
                made = None if datum is None else read_item(datum)
                found.append(ItemChange(change.seq, change.at, change.author, each.id, made))
    return found
