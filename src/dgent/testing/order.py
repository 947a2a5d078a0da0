"""Order and pages: every record once, in one order, however it is read."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Declaration
from dgent.testing.contract import (
    DAY,
    STORED,
    Contract,
    Factory,
    check_queries,
    delete,
    expect_all,
    expect_error,
    expected_ids,
    find_ids,
    find_ids_by_page,
    open_handle,
    put,
    typed_record,
)

LONG = "x" * 130
MIXED: list[Any] = [
    *(None, False, True, -(2**63), -1.5, -1, -0.0, 0, 1, 1.0, 1.5, 2**53, 2**53 + 1, 2**63 - 1, 1e300),
    *("", "0", "A", "a", "\u00e9", "e\u0301", "\uffff", "\U00010000", [], [1], {}, {"a": 1}),
    *(LONG, LONG + "a", LONG + "b", LONG[:119], LONG[:118] + "é", LONG[:118] + "è", LONG[:120], LONG[:121]),
]


def _field(size: int) -> list[Datum]:
    """Return records whose field `v` has every kind of value, long equal beginnings, null, or is missing."""
    records = []
    for i in range(size):
        value = MIXED[i % len(MIXED)] if i % 3 else LONG + format(i * 7919 % 1000, "04")
        data = {} if i % 11 == 0 else {"v": value, "w": i % 4}
        tags = frozenset({"even"}) if i % 2 == 0 else frozenset[str]()
        records.append(typed_record(f"r{i:04}", data=data, day=i * 13 % 50, tags=tags))
    return records


class OrderContract(Contract):
    """The order of answers, and reading them page by page."""

    async def test_newest_first_and_ties_in_order_of_commit(self, store: Backend) -> None:
        days = {"c": 2, "a": 1, "b": 1, "z": 1, "d": 0}
        for id, day in days.items():
            await put(store, typed_record(id, day=day))
        await put(store, typed_record("a", "changed", day=9))
        assert await find_ids(store) == ["c", "z", "b", "a", "d"]
        assert await find_ids(store, descending=False) == ["d", "a", "b", "z", "c"]
        assert await find_ids(store, schema="note", limit=2) == ["c", "z"]

    @pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
    @pytest.mark.parametrize("size", [60, 400], ids=["few", "many"])
    async def test_by_a_field_of_every_kind(self, store: Backend, indexed: bool, size: int) -> None:
        if indexed:
            await store.declare(Declaration("note", 1, indexes=("v", "w")))
        records = _field(size)
        await put(store, *records)
        ways = itertools.product((True, False), ("v", "w", "nowhere"), ("note", None))
        queries = [
            Query(order_by=by, descending=down, schema=schema, limit=None) for down, by, schema in ways
        ]
        for down in (True, False):
            queries += [
                Query(order_by="v", descending=down, schema="note", tags=frozenset({"even"})),
                Query(order_by="v", descending=down, schema="note", where={"v": {"$gte": LONG}}),
                Query(order_by="v", descending=down, schema="note", where={"v": {"$lt": 5, "$gt": -1.5}}),
                Query(order_by="v", descending=down, schema="note", where={"w": 1}, limit=7, offset=3),
                Query(order_by="w", descending=down, schema="note", where={"v": {"$prefix": LONG}}),
                Query(order_by="v", descending=down, since=DAY + timedelta(days=20)),
                Query(order_by="v", descending=down, any_tags=frozenset({"even", "odd"})),
            ]
        await check_queries(store, expect_all(records, queries))

    @pytest.mark.parametrize("by", ["created_at", "v"])
    @pytest.mark.parametrize("descending", [True, False], ids=["down", "up"])
    async def test_pages_while_others_write(self, store: Backend, by: str, descending: bool) -> None:
        """Each record that stays and keeps its place appears exactly once."""
        await store.declare(Declaration("note", 1, indexes=("v",)))
        stay = [typed_record(f"stay{i:03}", data={"v": LONG + str(i % 40)}, day=i % 30) for i in range(300)]
        go = [typed_record(f"go{i:03}", data={"v": LONG + str(i % 40)}, day=i % 30) for i in range(60)]
        await put(store, *stay, *go)
        query = Query(schema="note", order_by=by, descending=descending, limit=37)
        seen: list[str] = []
        for step in itertools.count():
            page = await store.query(query, STORED)
            seen += [datum.id for datum in page.items]
            if page.cursor is None:
                break
            query = query.replace(cursor=page.cursor)
            new = [typed_record(f"new{step}.{i}", data={"v": LONG + str(i * 5)}, day=i * 4) for i in range(8)]
            await put(store, *new)
            await delete(store, *(datum.id for datum in go[step * 6 : step * 6 + 6]))
            await put(store, *(datum.replace(content=b"touched") for datum in stay[step::50]))
        assert len(seen) == len(set(seen))
        stayed = {datum.id for datum in stay}
        assert [id for id in seen if id in stayed] == expected_ids(
            stay, query.replace(limit=None, cursor=None)
        )

    async def test_pages_of_the_past_are_pinned(self, store: Backend) -> None:
        records = [typed_record(f"r{i:02}", i, day=i % 5) for i in range(40)]
        first = await put(store, *records)
        query = Query(schema="note", limit=9)
        page = await store.query(query, STORED, first.seq)
        seen = [datum.id for datum in page.items]
        while page.cursor is not None:
            await put(store, *(typed_record(f"new{len(seen)}.{i}", day=i) for i in range(9)))
            await delete(store, records[-len(seen)].id)
            page = await store.query(query.replace(cursor=page.cursor), STORED)
            seen += [datum.id for datum in page.items]
        assert seen == expected_ids(records, query.replace(limit=None))

    async def test_an_offset_counts_from_the_start_and_not_again_on_each_page(self, store: Backend) -> None:
        records = [typed_record(f"r{i:02}", i, day=i) for i in range(30)]
        await put(store, *records)
        for where in (None, {"n": {"$gte": 0}}):
            query = Query(offset=4, limit=5, where=where, schema="note")
            assert await find_ids_by_page(store, query) == expected_ids(records, query.replace(limit=None))

    async def test_no_cursor_after_the_last_record(self, store: Backend) -> None:
        await put(store, *(typed_record(f"r{i}", i) for i in range(4)))
        for limit, more in ((1, True), (3, True), (4, False), (5, False), (None, False)):
            for query in (Query(), Query(order_by="n"), Query(prefix="r"), Query(schema="note")):
                page = await store.query(query.replace(limit=limit), STORED)
                assert (page.cursor is not None) is more
        assert (await store.query(Query(schema="none"), STORED)).cursor is None

    async def test_a_cursor_fits_only_its_query(self, store: Backend) -> None:
        await put(store, *(typed_record(f"r{i}", i) for i in range(9)))
        query = Query(schema="note", limit=2)
        cursor = (await store.query(query, STORED)).cursor
        assert cursor is not None
        for other in (
            query.replace(schema=None),
            query.replace(descending=False),
            query.replace(order_by="n"),
            query.replace(where={"n": 1}),
            query.replace(tags=frozenset({"t"})),
            query.replace(prefix="r"),
        ):
            await expect_error("cursor", store.query(other.replace(cursor=cursor), STORED))
        for text in (cursor[:-2], cursor[2:], cursor + "A", "é", "\0", "=" * 50, cursor.swapcase()):
            await expect_error("cursor", store.query(query.replace(cursor=text), STORED))
        await expect_error(
            "query", store.query(query.replace(cursor=await self._pin_cursor(store, query)), STORED, 0)
        )

    async def _pin_cursor(self, store: Backend, query: Query) -> str:
        cursor = (await store.query(query, STORED, await store.last_seq())).cursor
        assert cursor is not None
        return cursor

    async def test_a_cursor_fits_only_its_store(self, store: Backend, backend: Factory) -> None:
        await put(store, *(typed_record(f"r{i}", i) for i in range(9)))
        query = Query(limit=4)
        cursor = (await store.query(query, STORED)).cursor
        async with open_handle(backend) as other:
            if self.persistent:
                assert await find_ids(other, query.replace(cursor=cursor)) == ["r4", "r3", "r2", "r1"]
            else:
                await expect_error("cursor", other.query(query.replace(cursor=cursor), STORED))

    async def test_any_number_of_records_without_a_limit(self, store: Backend) -> None:
        records = [typed_record(f"r{i:04}", i, day=i % 9) for i in range(2500)]
        await put(store, *records)
        for query in (Query(limit=None), Query(limit=None, order_by="n"), Query(limit=2**62, prefix="r")):
            assert await find_ids(store, query) == expected_ids(records, query)
