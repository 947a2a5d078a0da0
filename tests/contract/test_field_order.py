"""The order of a field: a page reads its own rows and no others, and stands as a plain sort says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import Query, Schema
from dgent.model.datum import Datum
from dgent.store.backend import STORED, Declaration, View
from dgent.store.memory.backend import MemoryBackend
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.testing.contract import (
    Steps,
    expected_ids,
    find_ids,
    find_ids_by_page,
    open_handle,
    put,
    typed_record,
)
from dgent.universe.contract import Contracts
from tests.contract.columns import READING, Column
from tests.contract.test_plan import Counting
from tests.soak import times

DECLARED = Declaration("note", 1, ("n", "m", "third"))
LONG = "x" * 119  # with one letter more its key is cut
VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    1.0,
    7,
    -2.5,
    2**60,
    "",
    "a",
    LONG[1:],
    LONG,
    LONG + "a",
    LONG + "b",
    LONG + "é" * 9,
    [1],
    {"a": 1},
]
WHERE: list[dict[str, Any] | None] = [
    None,
    {"n": {"$gte": 1}},
    {"n": {"$gt": 1, "$lt": 7}},
    {"n": {"$lte": 0}},
    {"n": {"$gt": LONG}},
    {"n": {"$gt": LONG + "a"}},
    {"n": {"$lt": LONG + "b"}},
    {"n": {"$prefix": "x"}},
    {"n": {"$prefix": LONG + "a"}},
    {"n": {"$exists": True}},
    {"n": {"$exists": False}},
    {"n": 1},
    {"n": LONG + "a"},
    {"n": {"$ne": 1}},
    {"n": {"$in": [1, "a", LONG + "a"]}},
    {"m": 3},
    {"m": {"$lt": 2}},
    {"m": 3, "n": {"$gte": 0}},
    {"other": {"$gte": 5}},
    {"$or": [{"n": 1}, {"m": 1}]},
]


def make_record(rng: random.Random, place: int) -> Datum:
    """Make a record that shares its value, and often its time, with others."""
    data: dict[str, Any] = {"m": rng.randrange(40) or 3, "other": rng.randrange(9)}
    if rng.random() < 0.8:
        data["n"] = rng.choice(VALUES)
    tags = frozenset(rng.sample(["a", "b"], rng.randrange(3)))
    return typed_record(f"{place:04}", data=data, day=rng.randrange(4), tags=tags)


def make_query(rng: random.Random) -> Query:
    """Make a query in the order of a field, with any other parts."""
    narrowed: dict[str, Any] = rng.choice(
        [{}, {}, {"tags": {"a"}}, {"tags": {"a", "b"}}, {"any_tags": {"a", "b"}}, {"since": DAYS[1]}]
    )
    return Query(
        schema=rng.choice(["note", "note", None]),
        where=rng.choice(WHERE),
        order_by=rng.choice(["n", "n", "n", "m", "other"]),
        descending=rng.random() < 0.5,
        limit=rng.choice([None, 1, 7, 60]),
        offset=rng.choice([0, 0, 3, 120]),
        **narrowed,
    )


DAYS = [typed_record("x", day=day).created_at for day in range(4)]


@pytest.mark.parametrize("column", READING, ids=lambda column: column.name)
async def test_pages_stand_as_a_plain_sort_says(tmp_path: Path, column: Column) -> None:
    rng = random.Random(7)
    records = [make_record(rng, place) for place in range(400)]
    async with open_handle(lambda: _open(column, tmp_path)) as store:
        await store.declare(DECLARED)
        await put(store, *records)
        await put(store, *(each.replace(data=make_record(rng, 0).data) for each in records[::5]))
        records = [each for each in await store.get_many([each.id for each in records]) if each is not None]
        for place in range(times(60)):
            query = make_query(rng)
            assert await find_ids(store, query) == expected_ids(records, query), query
            if place % 4 == 0:
                pages = query.replace(offset=0, limit=rng.choice([1, 9, 50]) if query.where else 50)
                everything = expected_ids(records, query.replace(limit=None, offset=0))
                assert await find_ids_by_page(store, pages) == everything, pages


async def _open(column: Column, folder: Path) -> Any:
    return column.make(folder)


@dataclass(frozen=True)
class Note:
    """A record whose fields may be missing in what is stored."""

    m: int
    other: int = 0
    n: Any = 1


async def test_records_without_the_field_stand_where_their_default_does(tmp_path: Path) -> None:
    rng = random.Random(8)
    contracts = Contracts()
    contracts.add(Schema("note", contract=Note, indexes=("n", "m")))
    records = [make_record(rng, place) for place in range(300)]
    store = SQLiteBackend(str(tmp_path / "store.db"))
    await store.open()
    try:
        await store.declare(Declaration("note", 1, ("n", "m")))
        await put(store, *records)
        for _ in range(times(60)):
            query = make_query(rng)
            await check_pages(store, records, query, contracts)
    finally:
        await store.close()


@pytest.mark.parametrize("default", [1, [1], LONG + "a"])
async def test_many_records_without_the_field_are_not_all_read(tmp_path: Path, default: Any) -> None:
    """Unless the default is one whose key does not tell its place."""
    contracts = Contracts()
    fields: Any = [("m", int), ("n", Any, field(default_factory=lambda: default))]
    contracts.add(Schema("note", contract=make_dataclass("Made", fields, frozen=True), indexes=("n", "m")))
    data: list[dict[str, Any]] = [{"m": n} if n % 3 else {"m": n, "n": n % 7} for n in range(600)]
    records = [typed_record(f"{n:04}", data=each, day=n % 5) for n, each in enumerate(data)]
    store = SQLiteBackend(str(tmp_path / "store.db"), wrap=Counting)
    await store.open()
    try:
        await store.declare(Declaration("note", 1, ("n", "m")))
        await put(store, *records)
        for descending in (True, False):
            query = Query(schema="note", order_by="n", descending=descending, limit=5)
            await check_pages(store, records, query, contracts)
            await check_pages(store, records, query.replace(where={"m": {"$gte": 300}}), contracts)
            await check_pages(store, records, query.replace(where={"n": default}, order_by="m"), contracts)
            await check_pages(store, records, Query(schema="note", where={"n": default}, limit=5), contracts)
            Counting.rows = 0
            await store.query(query, contracts)
            assert (Counting.rows < 20) is (default != LONG + "a")
    finally:
        await store.close()


async def test_a_cursor_as_of_the_newest_commit_stays_there(counted: Any) -> None:
    records = [typed_record(f"{n:04}", n % 5, day=n % 3) for n in range(30)]
    await put(counted, *records)
    query = Query(schema="note", order_by="n", limit=10)
    page = await counted.query(query, STORED, await counted.last_seq())
    await put(counted, *(each.replace(data={"n": 9}) for each in records[::2]))
    found = [datum.id for datum in page.items]
    while page.cursor is not None:
        page = await counted.query(query.replace(cursor=page.cursor), STORED)
        found += [datum.id for datum in page.items]
    assert found == expected_ids(records, query.replace(limit=None))


async def test_rows_in_no_index_stand_among_the_others(tmp_path: Path) -> None:
    rng = random.Random(9)
    records = [
        typed_record(f"{place:03}", data={"number": rng.randrange(9)}, version=2, day=rng.randrange(3))
        if rng.random() < 0.9
        else typed_record(f"{place:03}", n=rng.randrange(9), day=rng.randrange(3))
        for place in range(120)
    ]
    store = SQLiteBackend(str(tmp_path / "store.db"))
    await store.open()
    try:
        await store.declare(Declaration("note", 2, ("number",)))
        await put(store, *records)
        for descending in (True, False):
            for where in (None, {"number": {"$gte": 4}}, {"number": 4}):
                query = Query(schema="note", order_by="number", descending=descending, where=where, limit=10)
                await check_pages(store, records, query, Steps(2))
    finally:
        await store.close()


async def check_pages(store: Any, records: list[Datum], query: Query, view: View) -> None:
    """Compare a query, at once and by pages, with a plain sort."""
    assert await find_ids(store, query, view=view) == expected_ids(records, query, view), query
    everything = expected_ids(records, query.replace(limit=None, offset=0), view)
    assert await find_ids_by_page(store, query.replace(offset=0, limit=13), view) == everything, query


# -- rows that are read -----------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
async def counted(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    path = str(tmp_path / "store.db")
    store = MemoryBackend(wrap=Counting) if request.param == "memory" else SQLiteBackend(path, wrap=Counting)
    await store.open()
    await store.declare(DECLARED)
    yield store
    await store.close()


def pages_of_five() -> Iterator[Query]:
    """Yield pages that the index of the field gives alone."""
    for descending in (True, False):
        for where in (None, {"n": {"$gte": 2}}, {"n": {"$exists": True}}):
            for tags in (frozenset[str](), frozenset(("a",))):
                yield Query(
                    schema="note", order_by="n", where=where, tags=tags, descending=descending, limit=5
                )


@pytest.mark.parametrize("size", [10, 255, 257, 600])
async def test_a_page_reads_only_its_own_rows(counted: Any, size: int) -> None:
    records = [typed_record(f"{n:04}", n * 7 % size, tags={"a"}, day=n % 3) for n in range(size)]
    await put(counted, *records)
    for query in pages_of_five():
        Counting.rows = 0
        page = await counted.query(query, STORED)
        assert [datum.id for datum in page.items] == expected_ids(records, query), query
        assert Counting.rows == min(6, size), "one more tells that there is a next page"
        Counting.rows = 0
        further = await counted.query(query.replace(cursor=page.cursor), STORED)
        assert [datum.id for datum in further.items] == expected_ids(records, query.replace(offset=5))
        assert Counting.rows == min(6, len(expected_ids(records, query.replace(offset=5, limit=None))))


async def test_what_another_index_narrows_to_few_rows_is_sorted(counted: Any) -> None:
    records = [typed_record(f"{n:04}", data={"n": n * 7 % 3000, "m": n // 10}) for n in range(3000)]
    await put(counted, *records)
    query = Query(schema="note", order_by="n", where={"m": 70}, limit=5)
    Counting.rows = 0
    assert await find_ids(counted, query) == expected_ids(records, query)
    assert Counting.rows == 10, "the ten of this m, instead of hundreds in the order of n"
    wide = query.replace(where={"m": {"$lt": 290}})
    Counting.rows = 0
    assert await find_ids(counted, wide) == expected_ids(records, wide)
    assert Counting.rows < 20, "nearly every row matches, so the walk soon has a page"
    narrow = query.replace(where={"m": {"$gte": 290, "$lt": 292}})
    Counting.rows = 0
    assert await find_ids(counted, narrow) == expected_ids(records, narrow)
    assert Counting.rows == 20, "a short range of another field is sorted, too"


async def test_a_page_in_field_order_is_one_round_trip_on_postgres(tmp_path: Path) -> None:
    (column,) = [each for each in READING if each.name == "postgres"]
    records = [typed_record(f"{n:03}", n * 7 % 300, tags={"a"}) for n in range(300)]
    async with open_handle(lambda: _open(column, tmp_path)) as store:
        await store.declare(DECLARED)
        await put(store, *records)
        asked: list[str] = []
        fetch = store._fetch  # type: ignore[attr-defined]

        async def count(sql: str, *values: Any) -> Any:
            asked.append(sql)
            return await fetch(sql, *values)

        store._fetch = count  # type: ignore[attr-defined]
        for query in pages_of_five():
            page = await store.query(query, STORED)  # the first one learns the numbers of names
            asked.clear()
            page = await store.query(query, STORED)
            assert [datum.id for datum in page.items] == expected_ids(records, query)
            further = await store.query(query.replace(cursor=page.cursor), STORED)
            assert [datum.id for datum in further.items] == expected_ids(records, query.replace(offset=5))
            # With a tag, walking the field's index is weighed against sorting what has the tag.
            assert query.tags or len(asked) == 2, query


@dataclass(frozen=True)
class Price:
    amount: Decimal


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{path}/store.db"])
async def test_decimals_with_many_digits_stand_by_all_of_them(tmp_path: Path, url: str) -> None:
    """Keys of numbers are short, those of decimals are cut: their order needs the whole value."""
    async with dgent.open(url.format(path=tmp_path)) as u:
        u.register(Schema("price", contract=Price, indexes=("amount",)))
        amounts = [Decimal("1." + "3" * 130 + digit) for digit in "5172946"]
        for amount in amounts:
            await u.remember(Price(amount))
        where = {"amount": {"$gte": Decimal(1)}}
        for descending in (False, True):
            query = Query(schema="price", where=where, order_by="amount", descending=descending, limit=4)
            page = await u.page(query)
            rest = await u.page(query.replace(cursor=page.cursor))
            found = [each.value.amount for each in (*page.items, *rest.items)]
            assert found == sorted(amounts, reverse=descending)
