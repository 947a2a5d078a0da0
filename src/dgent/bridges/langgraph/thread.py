"""The threads of LangGraph in a universe: reads and commits of their records."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence, Set
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec

from dgent.bridges.langgraph import record
from dgent.bridges.langgraph.content import NODE, Contents, KnownContents, references, split_references
from dgent.bridges.langgraph.record import (
    CHECKPOINT,
    CONTENT,
    WRITES,
    StoredCheckpoint,
    StoredValue,
    StoredWrites,
    content_id,
    line_prefix,
    read_checkpoint,
    read_writes,
    thread_prefix,
    unpack,
)
from dgent.errors import Conflict, VersionConflict
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Check, Delete, Op, Put
from dgent.sync.handle import begin_anywhere
from dgent.universe.position import known_seq
from dgent.universe.universe import Universe

PAGE = 200
BATCH = 5_000  # records in a commit of a copy
ATTEMPTS = 20


class Found(msgspec.Struct):
    """A checkpoint with the writes at it and the contents of its values."""

    checkpoint: StoredCheckpoint
    writes: list[StoredWrites]
    contents: Contents


def between(schema: str, prefix: str, **rest: Any) -> Query:
    """Return a query for the records whose place begins with a prefix, newest checkpoint first."""
    # The prefix ends in "/", and "0" is the character after it.
    where = {"place": {"$gte": prefix, "$lt": prefix[:-1] + "0", **rest.pop("place", {})}}
    return Query(schema=schema, where=where, order_by="place", descending=True, **{"limit": None, **rest})


# -- writing ------------------------------------------------------------------------------


@begin_anywhere
async def put_checkpoint(
    u: Universe,
    make: Callable[[Mapping[str, StoredValue]], tuple[Datum, StoredCheckpoint]],
    parent: str | None,
    made: Contents,
) -> None:
    """Store a checkpoint and the contents that its parent does not have, in one commit.

    `make` returns the record, given the values of the parent.
    """
    for _ in range(ATTEMPTS):
        before = None if parent is None else await u.get(parent, raw=True)
        values = {} if before is None else read_checkpoint(before).values
        datum, stored = make(values)
        known = set(references(values.values()))
        new = set(references(stored.values.values())) - known
        new |= {each for ref in new if ref[:1] == NODE for each in nodes_of(made[ref])} - known
        ops: list[Op] = [Put(record.make_content(stored, ref, made[ref])) for ref in new if ref in made]
        ops.append(Put(datum))
        if before is not None:
            # Whoever prunes the parent away may take its contents along.
            ops.append(Check(before.id, before.rev))
        try:
            await u.commit(ops, note=record.describe(datum))
        except VersionConflict:
            continue
        return
    raise Conflict(f"the checkpoint {parent!r} keeps changing while its child is stored")


@begin_anywhere
async def put_writes(u: Universe, checkpoint: str, thread: str, namespace: str, new: StoredWrites) -> None:
    """Store the writes of a task: of an ordinary one the first counts, of a special one the last."""
    writes, expect = new, 0
    for _ in range(ATTEMPTS):
        try:
            await u.put(record.make_writes(checkpoint, thread, namespace, writes), expect=expect)
            return
        except VersionConflict:
            before = await u.get(record.writes_id(checkpoint, new.task), raw=True)
        old = StoredWrites(new.task, new.path, []) if before is None else read_writes(before)
        expect = 0 if before is None else before.rev
        merged = {each.index: each for each in old.writes}
        for each in new.writes:
            if each.index < 0 or each.index not in merged:
                merged[each.index] = each
        if list(merged.values()) == old.writes and before is not None:
            return
        writes = StoredWrites(new.task, new.path, list(merged.values()))
    raise Conflict(f"the writes of the task {new.task!r} keep changing")


# -- reading ------------------------------------------------------------------------------


async def find_newest(u: Universe, thread: str, namespace: str) -> Datum | None:
    """Return the record of the newest checkpoint of a namespace."""
    found = await u.query(between(CHECKPOINT.name, line_prefix(thread, namespace), limit=1), raw=True)
    return found[0] if found else None


@begin_anywhere
async def find(
    u: Universe, thread: str, namespace: str, id: str | None, known: KnownContents
) -> Found | None:
    """Return a checkpoint, or the newest one; the one that was found last, if nothing was committed since."""
    asked, seq, last = (thread, namespace, id), known_seq(u.backend), known.last
    if seq is not None and last is not None and last[:2] == (asked, seq):
        kept: Found | None = last[2]
        return kept
    if id is None:
        datum = await find_newest(u, thread, namespace)
    else:
        datum = await u.get(line_prefix(thread, namespace) + id, raw=True)
    found = None if datum is None else (await complete(u, [datum], known))[0]
    if seq is not None and seq == known_seq(u.backend):
        known.last = asked, seq, found
    return found


@begin_anywhere
async def complete(u: Universe, datums: Sequence[Datum], known: KnownContents) -> list[Found]:
    """Return checkpoints of records, with their writes and the contents of their values."""
    stored = [read_checkpoint(datum) for datum in datums]
    writes = await find_writes(u, [datum.id for datum in datums])
    wanted: dict[str, list[bytes]] = {}
    for each in stored:
        wanted.setdefault(each.thread, []).extend(references(each.values.values()))
    contents = {thread: await load_contents(u, thread, found, known) for thread, found in wanted.items()}
    return [
        Found(each, writes.get(datum.id, []), contents[each.thread])
        for datum, each in zip(datums, stored, strict=True)
    ]


async def find_writes(u: Universe, places: Sequence[str]) -> dict[str, list[StoredWrites]]:
    """Return the writes at checkpoints, by their ids."""
    found: dict[str, list[StoredWrites]] = {}
    for at in range(0, len(places), PAGE):
        some = list(places[at : at + PAGE])
        where = {"place": some[0] if len(some) == 1 else {"$in": some}}
        for datum in await u.query(Query(schema=WRITES.name, where=where, limit=None), raw=True):
            found.setdefault(datum.data["place"], []).append(read_writes(datum))
    return found


async def load_contents(
    u: Universe, thread: str, wanted: Iterable[bytes], known: KnownContents | None = None
) -> Contents:
    """Return the contents of references, and those of the groups that they lead to."""
    found: Contents = {}
    left = list(dict.fromkeys(wanted))
    while left:
        loaded = {} if known is None else known.find(left)
        left = [ref for ref in left if ref not in loaded]
        datums = await u.get_many([content_id(thread, ref) for ref in left], raw=True) if left else []
        read = {ref: unpack(d.content) for ref, d in zip(left, datums, strict=True) if d is not None}
        if known is not None and read:
            known.add(read)
        loaded |= read
        found |= loaded
        inner = [each for ref, data in loaded.items() if ref[:1] == NODE for each in nodes_of(data)]
        left = [ref for ref in dict.fromkeys(inner) if ref not in found]
    return found


def nodes_of(content: bytes) -> list[bytes]:
    """Return the references in the content of a node."""
    return split_references(content.partition(b"\0")[2])


@begin_anywhere
async def find_all(
    u: Universe,
    thread: str | None,
    namespace: str | None,
    id: str | None,
    before: str | None,
    limit: int | None = None,
) -> list[Datum]:
    """Return the records of checkpoints, newest id first; of all threads or namespaces for None.

    `limit` is how many are enough.
    """
    if thread is not None and namespace is not None and id is None and limit is not None and limit > 0:
        return await find_page(u, thread, namespace, before, limit)
    if thread is not None and namespace is not None and id is not None:
        one = await u.get(line_prefix(thread, namespace) + id, raw=True)
        datums = [] if one is None else [one]
    elif thread is None:
        datums = await u.query(Query(schema=CHECKPOINT.name, limit=None), raw=True)
    else:
        prefix = thread_prefix(thread) if namespace is None else line_prefix(thread, namespace)
        datums = await u.query(between(CHECKPOINT.name, prefix), raw=True)
    found = [
        datum
        for datum in datums
        if (id is None or datum.data["checkpoint"] == id)
        and (before is None or datum.data["checkpoint"] < before)
    ]
    return sorted(found, key=lambda datum: datum.data["checkpoint"], reverse=True)


@begin_anywhere
async def find_page(u: Universe, thread: str, namespace: str, before: str | None, limit: int) -> list[Datum]:
    """Return records of checkpoints of a namespace whose ids are below one, newest first."""
    prefix = line_prefix(thread, namespace)
    place = {} if before is None else {"place": {"$lt": prefix + before}}
    return await u.query(between(CHECKPOINT.name, prefix, limit=limit, **place), raw=True)


async def walk(u: Universe, thread: str, namespace: str, id: str | None) -> AsyncGenerator[Datum, None]:
    """Yield a checkpoint's record and its ancestors', nearest first."""
    prefix = line_prefix(thread, namespace)
    datum = await (find_newest(u, thread, namespace) if id is None else u.get(prefix + id, raw=True))
    page: dict[str, Datum] = {}
    seen: set[str] = set()
    while datum is not None and datum.id not in seen:  # a checkpoint that was stored again may be its own
        seen.add(datum.id)
        yield datum
        if datum.parent_id is None:
            return
        if datum.parent_id not in page:
            # Parents are nearly always the next ones below; a page of those is one read.
            below = await find_page(u, thread, namespace, datum.data["checkpoint"], PAGE)
            page = {each.id: each for each in below}
        datum = page.get(datum.parent_id) or await u.get(datum.parent_id, raw=True)


# -- deleting -----------------------------------------------------------------------------


async def delete_thread(u: Universe, thread: str) -> None:
    """Delete everything of a thread."""
    await _keep(u, thread, lambda _: set())


async def prune(u: Universe, thread: str, deltas: Callable[[StoredCheckpoint], Iterable[str]]) -> None:
    """Delete all checkpoints of a thread but the newest of each namespace, and what those stand on.

    `deltas` names the delta channels of a checkpoint: their writes are needed back to a stored value.
    """

    def choose(datums: Mapping[str, Datum]) -> set[str]:
        newest: dict[str, str] = {}
        for id in sorted(datums):
            newest[id.rpartition("/")[0]] = id
        keep = set(newest.values())
        for id in newest.values():
            keep |= _ancestors(datums, id, deltas)
        return keep

    await _keep(u, thread, choose)


def _ancestors(
    datums: Mapping[str, Datum], id: str, deltas: Callable[[StoredCheckpoint], Iterable[str]]
) -> set[str]:
    """Return the ids of the checkpoints back to a stored value of each delta channel."""
    stored = read_checkpoint(datums[id])
    missing = {name for name in deltas(stored) if not _has_value(stored, name)}
    kept: set[str] = set()
    at: str | None = datums[id].parent_id
    while missing and at is not None and at in datums and at not in kept:
        kept.add(at)
        stored = read_checkpoint(datums[at])
        missing = {name for name in missing if not _has_value(stored, name)}
        at = datums[at].parent_id
    return kept


def _has_value(stored: StoredCheckpoint, channel: str) -> bool:
    value = stored.values.get(channel)
    return value is not None and value.kind != "none"


async def delete_runs(u: Universe, runs: Sequence[str]) -> None:
    """Delete the checkpoints of runs, the writes at them, and contents that nothing else refers to."""
    for at in range(0, len(runs), PAGE):
        where = {"run": {"$in": list(runs[at : at + PAGE])}}
        gone = await u.query(Query(schema=CHECKPOINT.name, where=where, limit=None), raw=True)
        ids = frozenset(datum.id for datum in gone)
        for thread in {read_checkpoint(datum).thread for datum in gone}:
            await _keep(u, thread, partial(_without, ids))


def _without(ids: Set[str], datums: Mapping[str, Datum]) -> Set[str]:
    return datums.keys() - ids


async def _keep(u: Universe, thread: str, choose: Callable[[Mapping[str, Datum]], Set[str]]) -> None:
    """Keep the chosen checkpoints of a thread; delete the others, their writes, and unused contents."""
    queries = [between(name, thread_prefix(thread)) for name in (CHECKPOINT.name, WRITES.name)]
    datums, writes = [await u.query(query, raw=True) for query in queries]
    keep = choose({datum.id: datum for datum in datums})
    gone = [datum.id for datum in datums if datum.id not in keep]
    gone += [datum.id for datum in writes if datum.data["place"] not in keep]
    if gone:
        await u.commit([Delete(id) for id in gone])
    await sweep(u, thread)


async def sweep(u: Universe, thread: str) -> None:
    """Delete the contents of a thread that no checkpoint refers to.

    A checkpoint that is stored meanwhile takes its contents from a live parent, or stores them: then they
    are of a new version, which this does not delete.
    """
    prefix = thread_prefix(thread)
    checkpoints = between(CHECKPOINT.name, prefix)
    contents = Query(schema=CONTENT.name, prefix=f"{prefix}~=/", content=False, limit=None)
    for _ in range(ATTEMPTS):
        since = await u.seq()
        live = [read_checkpoint(datum) for datum in await u.query(checkpoints, as_of=since, raw=True)]
        used = references([value for stored in live for value in stored.values.values()])
        used += await find_groups(u, thread, used)
        ids = {content_id(thread, each) for each in used}
        unused = [each for each in await u.query(contents, as_of=since, raw=True) if each.id not in ids]
        try:
            if unused:
                await u.commit([Delete(datum.id, datum.rev) for datum in unused])
            return
        except VersionConflict:
            continue
    raise Conflict(f"the contents of the thread {thread!r} keep changing")


async def find_groups(u: Universe, thread: str, wanted: Iterable[bytes]) -> list[bytes]:
    """Return the references in those contents that are nodes."""
    return [*await load_contents(u, thread, [each for each in wanted if each[:1] == NODE])]


async def copy_thread(u: Universe, source: str, target: str) -> None:
    """Copy everything of a thread to another one; its checkpoints appear last."""
    prefix, since = thread_prefix(source), await u.seq()
    contents = await u.query(
        Query(schema=CONTENT.name, prefix=f"{prefix}~=/", limit=None), as_of=since, raw=True
    )
    writes = await u.query(between(WRITES.name, prefix), as_of=since, raw=True)
    datums = await u.query(between(CHECKPOINT.name, prefix), as_of=since, raw=True)
    copies = [_copy(datum, prefix, target) for datum in (*contents, *writes, *datums)]
    for at in range(0, len(copies), BATCH):
        await u.commit([Put(datum) for datum in copies[at : at + BATCH]])


def _copy(datum: Datum, prefix: str, target: str) -> Datum:
    head = thread_prefix(target)
    data = {**datum.data, "thread": record.printable(target)}
    parent, content = datum.parent_id, datum.content
    if "place" in data:
        data["place"] = head + data["place"].removeprefix(prefix)
    if datum.schema == CHECKPOINT.name:
        stored = read_checkpoint(datum)
        stored.name = (record.bytes_of(target), stored.name[1])
        content = record.pack(record.encode(stored))
    if parent is not None:
        parent = head + parent.removeprefix(prefix)
    return datum.replace(
        id=head + datum.id.removeprefix(prefix),
        data=data,
        content=content,
        parent_id=parent,
        rev=None,
        seq=None,
    )


History = tuple[dict[str, list[list[StoredWrites]]], dict[str, StoredValue], Contents]
"""Of each channel the writes of each step, newest first, and its seed; with the contents of the seeds."""


@begin_anywhere
async def find_history(
    u: Universe, thread: str, namespace: str, id: str | None, channels: Sequence[str]
) -> History:
    """Return the writes of channels at the ancestors of a checkpoint, back to a stored value of each."""
    seeds: dict[str, StoredValue] = {}
    visited: list[tuple[str, tuple[str, ...]]] = []  # an ancestor, and the channels that still need it
    left: dict[str, None] = dict.fromkeys(channels)
    target = True
    async with aclosing(walk(u, thread, namespace, id)) as steps_up:
        async for datum in steps_up:
            if target:  # its own writes are those of the next step
                target = False
                continue
            visited.append((datum.id, tuple(left)))
            stored = read_checkpoint(datum)
            for name in [name for name in left if _has_value(stored, name)]:
                seeds[name] = stored.values[name]
                del left[name]
            if not left:
                break
    writes = await find_writes(u, [place for place, _ in visited])
    steps: dict[str, list[list[StoredWrites]]] = {name: [] for name in channels}
    for place, names in visited:
        for name in names:
            steps[name].append(writes.get(place, []))
    return steps, seeds, await load_contents(u, thread, references(seeds.values()))
