"""Reads and commits of the store's items in a universe."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp

from dgent.bridges.langgraph import item as items
from dgent.bridges.langgraph.item import EXPIRY, ITEM, ItemChange, Namespace, part_id, read_item, within
from dgent.errors import Conflict, InputError, VersionConflict
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.search.hybrid import join_legs
from dgent.store.backend import AsOf, Delete, Expect, Op, Put
from dgent.universe.universe import Universe

Mode: TypeAlias = Literal["auto", "meaning", "text", "hybrid"]

PAGE = 64
FEW = 256
ATTEMPTS = 20
REFRESH = 100  # a read moves an expiry if that changes by this part of the ttl, or more
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
            live = [] if found is None else [found] if plan.as_of else await keep_live(u, [found])
            results[at] = read_item(live[0]) if live else None
            refreshed += live if op.refresh_ttl and not plan.as_of else []
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
        if op.ttl is not None:
            ops.append(Put(items.make_expiry(id, op.ttl)))
        ops += [Put(_make_vector(plan, datum, path, text)) for path, text in texts]
    if old is not None and "ttl" in old.data and (op.value is None or op.ttl is None):
        ops.append(Delete(part_id("expiry", id)))
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
    )


# -- times to live ------------------------------------------------------------------------


async def keep_live(u: Universe, datums: Sequence[Datum]) -> list[Datum]:
    """Return the records of items that have not expired."""
    mortal = [datum for datum in datums if "ttl" in datum.data]
    if not mortal:
        return list(datums)
    ends = await u.get_many([part_id("expiry", datum.id) for datum in mortal], raw=True)
    now = time.time()
    gone = {d.id for d, end in zip(mortal, ends, strict=True) if end is None or end.data["at"] <= now}
    return [datum for datum in datums if datum.id not in gone]


async def refresh(u: Universe, datums: Sequence[Datum]) -> None:
    """Let items live on for their ttl from now."""
    mortal = {datum.id: datum.data["ttl"] for datum in datums if "ttl" in datum.data}
    if not mortal:
        return
    ends = await u.get_many([part_id("expiry", id) for id in mortal], raw=True)
    ops = []
    for (id, ttl), end in zip(mortal.items(), ends, strict=True):
        made = items.make_expiry(id, ttl)
        if end is not None and made.data["at"] - end.data["at"] >= ttl * 60 / REFRESH:
            ops.append(Put(made, end.rev))
    try:
        if ops:
            await u.commit(ops)
    except VersionConflict:
        return  # somebody else has just refreshed, put or deleted one of them


async def sweep(u: Universe) -> int:
    """Delete the items that have expired; returns how many they were."""
    count = 0
    while True:
        where = {"at": {"$lte": time.time()}}
        ends = await u.query(Query(schema=EXPIRY.name, where=where, limit=500), raw=True)
        if not ends:
            return count
        found = await u.get_many([end.data["item"] for end in ends], raw=True)
        ops: list[Op] = [Delete(end.id, end.rev) for end in ends]
        for datum in found:
            if datum is not None:
                ops.append(Delete(datum.id, datum.rev))
                ops += [Delete(part_id("vector", datum.id, path)) for path in datum.data.get("vectors", ())]
                count += 1
        try:
            await u.commit(ops)
        except VersionConflict:
            continue  # one of them lives on: look again


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
    found: list[Scored] = []
    async for datum in iterate(u, op):
        found.append((None, datum))
        if len(found) == op.offset + op.limit:
            break
    return found[op.offset :]


async def iterate(u: Universe, op: SearchOp, bare: bool = False) -> AsyncIterator[Datum]:
    """Yield the live items of a search in the order of their updates; `bare` those without vectors."""
    # Sorting a few is quicker than walking the log for them.
    query = within(ITEM.name, op.namespace_prefix, order_by="place" if op.namespace_prefix else "created_at")
    page = await u.page(query.replace(limit=FEW), raw=True)
    few = sorted(page.items, key=_update, reverse=True)
    if page.cursor is not None:
        size = max(PAGE, min(op.offset + op.limit, 1_000))
        query = query.replace(order_by="updated_at", limit=size)
        page = await u.page(query, raw=True)
        few = page.items
    while True:
        for datum in await keep_live(u, [each for each in few if passes(each, op)]):
            if not (bare and "vectors" in datum.data):
                yield datum
        if page.cursor is None:
            return
        query = query.replace(cursor=page.cursor)
        page = await u.page(query, raw=True)
        few = page.items


def _update(datum: Datum) -> tuple[Any, int]:
    return items.updated_of(datum), datum.seq or 0


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
        async for datum in iterate(u, op, bare=True):
            found.append((None, datum))
            if len(found) == op.limit:
                break
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
    live = await keep_live(u, [each for each in datums if passes(each, op)])
    return [(scores[datum.id], datum) for datum in live]


# -- namespaces ---------------------------------------------------------------------------


async def list_namespaces(u: Universe, op: ListNamespacesOp) -> list[Namespace]:
    """Return the namespaces of live items, in order, by stepping through the index of places."""
    prefixes = [each for each in op.match_conditions or () if each.match_type == "prefix"]
    start = prefixes[0].path if prefixes else ()
    fixed = tuple(start[: start.index("*")] if "*" in start else start)
    found: dict[str, Namespace] = {}
    base, size = within(ITEM.name, fixed, order_by="place", descending=False), 1
    limits: dict[str, Any] = dict((base.where or {}).get("place", {}))
    while True:
        where = {"place": limits} if limits else None
        datums = await u.query(base.replace(where=where, limit=size), raw=True)
        for datum in await keep_live(u, datums):
            found.setdefault(datum.data["place"], items.namespace_of(datum))
        if len(datums) < size:
            break
        # Small namespaces are read together; of a large one a single item is enough.
        several = len({datum.data["place"] for datum in datums}) > size // 2
        size = min(2 * size, 4 * PAGE) if several else max(size // 4, 1)
        last = datums[-1].data["place"]
        # All of a namespace that has a live item is skipped; of any other the rest may have one.
        skip = last in found
        if not skip:
            found |= await _first_live(u, last)
        limits = {**limits, "$gt": last}
        limits.pop("$gte", None)
    wanted = [ns for ns in found.values() if all(_matches(each, ns) for each in op.match_conditions or ())]
    names = sorted({ns[: op.max_depth] for ns in wanted} if op.max_depth is not None else wanted)
    return names[op.offset : op.offset + op.limit]


async def _first_live(u: Universe, place: str) -> dict[str, Namespace]:
    async for datum in u.iterate(Query(schema=ITEM.name, where={"place": place}, limit=None), raw=True):
        if await keep_live(u, [datum]):
            return {place: items.namespace_of(datum)}
    return {}


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
