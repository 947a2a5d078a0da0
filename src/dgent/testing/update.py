"""The time of a version: on every read, in queries and as an order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from dgent import clock
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Declaration, Keep, Put, StoredView
from dgent.testing.contract import (
    DAY,
    STORED,
    Contract,
    Numbered,
    check_queries,
    commit,
    delete,
    expect_all,
    find_ids,
    put,
    record,
    typed_record,
)


class _Lazy(StoredView):
    lazy = True


def _time(answer: Numbered, place: int = 0) -> datetime:
    at_us = answer.written[place].at_us
    assert at_us is not None
    return clock.from_us(at_us)


class UpdateContract(Contract):
    """`updated_at` is the time of the commit that wrote a version."""

    async def test_every_read_has_the_time_of_the_version(self, store: Backend) -> None:
        first = _time(await put(store, typed_record("a", 1, updated_at=DAY), record("b", parent_id="a")))
        await asyncio.sleep(0.002)
        second = _time(await put(store, typed_record("a", 2)))
        assert second > first
        seq = (await store.changes(0, 1))[0].seq
        for datum in (
            await store.get("a"),
            await store.get("a", lazy=True),
            *await store.get_many(["a"]),
            *(await store.query(Query(schema="note"), STORED)).items,
            *(await store.query(Query(schema="note"), _Lazy())).items,
            *(await store.query(Query(schema="note", where={"n": 2}), STORED)).items,
            *(await store.ancestors("b", 5))[1:],
            *(item.datum for item in (await store.changes(0, 9))[1].items),
        ):
            assert datum is not None
            assert (datum.updated_at, datum.created_at) == (second, DAY)
        old = [await store.get("a", seq), *await store.get_many(["a"], seq)]
        old += (await store.query(Query(schema="note"), STORED, seq)).items
        old += [item.datum for item in (await store.changes(0, 9))[0].items if item.id == "a"]
        assert [datum and datum.updated_at for datum in old] == [first] * 4
        history = await store.history("a", None)
        assert [(each.at, each.datum and each.datum.updated_at) for each in history] == [
            (second, second),
            (first, first),
        ]

    async def test_what_changes_nothing_keeps_the_time(self, store: Backend) -> None:
        made = await commit(store, Put(record("a", 1)), key="k")
        await asyncio.sleep(0.002)
        for again in (await put(store, record("a", 1)), await commit(store, Put(record("a", 1)), key="k")):
            assert _time(again) == _time(made)
        idle = await commit(store, Put(record("a", 1)), Put(record("b")), key="other")
        assert [_time(idle), _time(idle, 1) > _time(made)] == [_time(made), True]
        outcome = await store.outcome("other")
        assert outcome is not None
        assert outcome.written == idle.written
        # A repeated put is in the log, but is no update.
        assert await find_ids(store, order_by="updated_at") == ["b", "a"]

    async def test_a_recreated_record_has_the_time_of_its_new_version(self, store: Backend) -> None:
        await put(store, record("a", 1), record("b", 1))
        await delete(store, "a")
        assert await find_ids(store, order_by="updated_at") == ["b"]
        await asyncio.sleep(0.002)
        again = await put(store, record("a", 1))
        found = await store.get("a")
        assert found is not None
        assert found.updated_at == _time(again)
        assert await find_ids(store, order_by="updated_at") == ["a", "b"]

    async def test_records_by_the_time_of_their_update(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("n",)))
        ids, middle = await _make_updates(store)
        records = await _get_stored(store, ids)
        await check_queries(store, expect_all(records, _queries(records, middle)))

    async def test_the_order_of_updates_outlives_the_log(self, store: Backend) -> None:
        ids, middle = await _make_updates(store)
        records = await _get_stored(store, ids)
        await store.compact(Keep(after=middle))
        await check_queries(store, expect_all(records, _queries(records, middle)))
        await put(store, typed_record("0007", "new"))
        await store.compact(Keep(versions=0))
        assert (await find_ids(store, order_by="updated_at", limit=2))[0] == "0007"
        records = await _get_stored(store, ids)
        await check_queries(store, expect_all(records, _queries(records, middle)))

    async def test_the_order_of_updates_at_an_earlier_moment(self, store: Backend) -> None:
        ids, middle = await _make_updates(store)
        seq = await store.last_seq()
        records = await _get_stored(store, ids)
        queries = [query for query in _queries(records, middle) if query.limit != 3]
        wanted = [await find_ids(store, query) for query in queries]
        await put(store, *(typed_record(id, "later") for id in ids[::7]))
        await delete(store, *ids[1::70])
        await put(store, typed_record("new"))
        for query, ids_then in zip(queries, wanted, strict=True):
            assert await find_ids(store, query, as_of=seq) == ids_then, query


async def _make_updates(store: Backend) -> tuple[list[str], datetime]:
    """Make 600 records of two schemas and update some; return their ids, and a time in between."""
    ids = [f"{n:04}" for n in range(600)]
    schemas = ["note", "note", "note", "other"]
    records = {
        id: typed_record(id, n % 10, schema=schemas[n % 4], day=-n, tags=frozenset({f"t{n % 3}"}))
        for n, id in enumerate(ids)
    }
    for first in range(0, 600, 150):
        await put(store, *(records[id] for id in ids[first : first + 150]))
    moment = None
    for n, place in enumerate([*range(0, 600, 9), 5, 5, 5, 17, 5]):
        changed = records[ids[place]]
        answer = await put(store, changed.replace(data={"n": n % 7, "update": n}))
        moment = _time(answer) if n == 30 else moment
        await asyncio.sleep(0)
    await delete(store, ids[18])
    assert moment is not None
    return ids, moment


async def _get_stored(store: Backend, ids: Sequence[str]) -> list[Datum]:
    return [datum for datum in await store.get_many(ids) if datum is not None]


def _queries(records: Sequence[Datum], middle: datetime) -> Iterator[Query]:
    """Yield queries for the time of updates, each in several orders."""
    last = max(datum.updated_at or middle for datum in records)
    tick = timedelta(microseconds=1)
    for query in (
        Query(),
        Query(schema="note"),
        Query(schema="other", tags=frozenset({"t1"})),
        Query(schema="note", where={"n": {"$lt": 3}}),
        Query(any_tags=frozenset({"t0", "t2"}), author="system"),
        Query(prefix="00"),
        Query(ids={datum.id for datum in records[::5]}),
        Query(schema="never"),
        Query(updated_since=middle),
        Query(updated_since=middle + tick, schema="note"),
        Query(updated_until=middle, tags=frozenset({"t1"})),
        Query(updated_since=middle, updated_until=last),
        Query(updated_since=last, where={"n": {"$exists": True}}),
        Query(updated_since=last + tick),
        Query(updated_until=middle - timedelta(days=1)),
    ):
        for order_by in ("updated_at", "seq"):
            for descending in (True, False):
                yield query.replace(order_by=order_by, descending=descending, limit=20, offset=3)
            yield query.replace(order_by=order_by, limit=3, content=False)
            yield query.replace(order_by=order_by, limit=None)
        if query.updated_since is not None or query.updated_until is not None:
            yield query.replace(limit=20)
            yield query.replace(limit=None, order_by="n", descending=False)
