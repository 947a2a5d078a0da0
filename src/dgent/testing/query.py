"""Queries: every filter finds what `Query.matches` says, with an index and without."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import pytest

from dgent.model import path
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Declaration
from dgent.testing.contract import (
    DAY,
    STORED,
    Contract,
    check_queries,
    delete,
    expect_all,
    expect_error,
    expected_ids,
    find_ids,
    put,
    record,
    typed_record,
)

LONG = "shared beginning " * 8  # longer than any index key
VALUES: list[Any] = [None, True, False, 0, -0.0, 1, 1.0, 1.5, -3, 2**53, 2**53 + 1, [1], {"a": 1}]
VALUES += ["", "a", "ab", "b", LONG, LONG + "a", LONG + "b", "\U0010ffff", "100%", "1_0"]


def library(size: int = 400) -> list[Datum]:
    """Return records that differ in all that a query can ask for; too many for a planner to just read."""
    records = []
    for i in range(size):
        data: dict[str, Any] = {"k": i % 5, "deep": {"list": [i % 3, i]}}
        if i % 8:
            data["n"] = VALUES[i % len(VALUES)] if i % 2 else i
        fields: dict[str, Any] = {
            "data": data,
            "day": (i * 7) % 200,
            "tags": frozenset({f"t{i % 3}", "all"} | ({"rare"} if i % 97 == 0 else set())),
            "author": f"author {i % 4}",
            "source": f"source {i % 5}" if i % 5 else None,
            "parent_id": "p" * 300 + str(i % 6) if i % 6 else None,
        }
        id = f"{'ab_%'[i % 4]}/{i:04}"
        records.append(typed_record(id, **fields) if i % 10 else record(id, **fields))
    return records


RECORDS = library()
T0, RARE, ALL = frozenset({"t0"}), frozenset({"rare"}), frozenset({"all", "t1"})

ENVELOPE: list[Query] = [
    Query(),
    Query(schema="note"),
    Query(schema="never used"),
    Query(tags=T0),
    Query(tags=ALL),
    Query(tags=frozenset({"t0", "t1"})),
    Query(schema="note", tags=RARE),
    Query(tags=frozenset({"never used"})),
    Query(any_tags=frozenset({"t0", "rare"})),
    Query(any_tags=frozenset({"t0", "t1", "t2", "all"}), schema="note"),
    Query(any_tags=frozenset({"never used", "rare"}), tags=T0),
    Query(author="author 2"),
    Query(author="nobody"),
    Query(source="source 3", author="author 1"),
    Query(source="source 0"),
    Query(parent="p" * 300 + "4"),
    Query(parent="p" * 300),
    Query(parent="p" * 300 + "2", tags=T0, schema="note"),
    Query(parents={"p" * 300 + "4", "p" * 300 + "2", "nobody"}),
    Query(parents={"p" * 300 + "1"} | {f"x{n}" for n in range(90)}, schema="note", limit=7),
    Query(parents={"p" * 300 + str(n) for n in range(6)}, descending=False, offset=3, limit=9, tags=T0),
    Query(parents={"p" * 300 + str(n) for n in range(6)}, parent="p" * 300 + "3"),
    Query(parents=frozenset()),
    Query(ids=frozenset()),
    Query(ids={each.id for each in RECORDS[:9]} | {"never"}),
    Query(ids={each.id for each in RECORDS[::3]}, schema="note", limit=11, order_by="k"),
    Query(ids={each.id for each in RECORDS[::2]}, parents={"p" * 300 + "4"}, prefix="a", content=False),
    Query(ids={RECORDS[5].id, RECORDS[6].id}, since=DAY + timedelta(days=10), where={"k": 1}),
    Query(since=DAY + timedelta(days=150)),
    Query(until=DAY + timedelta(days=7)),
    Query(since=DAY + timedelta(days=7), until=DAY + timedelta(days=7, microseconds=1)),
    Query(since=DAY + timedelta(days=50), until=DAY + timedelta(days=60), tags=T0, schema="note"),
    Query(since=DAY + timedelta(days=60), until=DAY + timedelta(days=50)),
    Query(prefix="a/"),
    Query(prefix="_"),
    Query(prefix="%"),
    Query(prefix="a/000", tags=frozenset({"all"})),
    Query(prefix="a", author="author 0", schema="note"),
    Query(prefix="never"),
    Query(offset=5, limit=3),
    Query(offset=399),
    Query(schema="note", offset=101, limit=3),
    Query(schema="note", offset=110, limit=500),
    Query(schema="note", offset=101, limit=2, descending=False),
    Query(schema="note", offset=2**62, limit=2),
    Query(offset=400),
    Query(descending=False, schema="note", offset=2),
]


def _where(*wheres: dict[Any, Any]) -> list[Query]:
    queries = [Query(where=where, schema="note", limit=None) for where in wheres]
    return queries + [Query(where=where, tags=T0) for where in wheres[1::4]]


WHERE: list[Query] = [
    *_where(*({"n": {"$eq": value}} for value in VALUES)),
    *_where(*({"n": {op: value}} for op in ("$gt", "$lte") for value in (1, 0.5, "a", LONG, True, 2**53))),
    *_where(*({"n": {op: value}} for op in ("$gte", "$lt") for value in (300, "", LONG + "a", False))),
    *_where({"n": {"$ne": 1}}, {"n": {"$ne": None}}, {"n": {"$nin": [1, None, LONG]}}, {"n": {"$in": []}}),
    *_where({"n": Decimal(1)}, {"n": {"$gt": Decimal("0.5")}}, {"n": {"$in": [Decimal("1E0"), "1"]}}),
    *_where({"n": {"$lt": timedelta(days=1)}}, {"n": {"$gte": Decimal(-1), "$lt": 2**60}}),
    *_where({"n": {"$in": [1, True, LONG + "a", None, [1]]}}, {"n": {"$in": list(range(200))}}),
    *_where({"n": {"$exists": True}}, {"n": {"$exists": False}}, {"nowhere": {"$exists": False}}),
    *_where(*({"n": {"$prefix": start}} for start in ("", LONG, "1", "\U0010ffff"))),
    *_where({"n": {"$contains": 1}}, {"n": {"$contains": "a"}}, {"deep.list": {"$contains": 2}}),
    *_where({"deep.list.0": 2}, {("deep", "list", "1"): {"$gte": 390}}, {"deep.list.9": {"$exists": True}}),
    *_where({"k": 3, "n": {"$gt": 100}}, {"k": {"$gte": 1, "$lt": 3}}, {"k": {"$gt": 3, "$lt": 2}}),
    *_where({"$or": [{"k": 1}, {"n": {"$prefix": "a"}}]}, {"$not": {"k": {"$in": [0, 1]}}}),
    *_where({"$and": [{"k": 2}, {"$or": [{"n": {"$gt": 9}}, {"n": None}]}]}, {"n": {"$not": {"$gt": 5}}}),
]


@cache
def _expect_envelope() -> list[tuple[Query, list[str]]]:
    """Work out the answers once for all engines."""
    return expect_all(RECORDS, ENVELOPE)


@cache
def _expect_where() -> list[tuple[Query, list[str]]]:
    """Work out the answers once for all engines."""
    return expect_all(RECORDS, WHERE)


class QueryContract(Contract):
    """Find records by everything a query can express."""

    @pytest.fixture(params=["plain", "indexed"])
    async def library_store(self, store: Backend, request: pytest.FixtureRequest) -> Backend:
        """Return a store with the library, its fields declared or not."""
        if request.param == "indexed":
            await store.declare(Declaration("note", 1, indexes=("n", "k", "deep.list.1")))
        for start in range(0, len(RECORDS), 200):
            await put(store, *RECORDS[start : start + 200])
        return store

    async def test_the_queries_of_this_contract_find_something(self) -> None:
        sizes = [len(expected_ids(RECORDS, query)) for query in (*ENVELOPE, *WHERE)]
        assert sum(size > 0 for size in sizes) > 0.7 * len(sizes)
        assert sum(size == 0 for size in sizes) > 5

    async def test_by_envelope(self, library_store: Backend) -> None:
        await check_queries(library_store, _expect_envelope())

    async def test_by_data(self, library_store: Backend) -> None:
        await check_queries(library_store, _expect_where())

    async def test_changed_and_deleted_records_are_found_as_they_are(self, library_store: Backend) -> None:
        records = list(RECORDS)
        for place in range(0, 400, 3):
            changed = records[place].replace(data={"n": place, "k": "text"}, tags=frozenset({"t1"}))
            records[place] = changed.replace(author="author 9")
        await put(library_store, *records)
        gone = [records[place].id for place in range(1, 400, 3)]
        await delete(library_store, *gone)
        left = [datum for datum in records if datum.id not in set(gone)]
        queries = [Query(author="author 9"), *_where({"k": "text"}, {"n": {"$gte": 300}})]
        expected = expect_all(left, [*ENVELOPE[::2], *WHERE[::3], *queries])
        await check_queries(library_store, expected)

    async def test_a_page_tells_how_it_was_found(self, library_store: Backend) -> None:
        page = await library_store.query(Query(schema="note", limit=1), STORED)
        assert page.explain

    async def test_content_is_left_out_on_request(self, store: Backend) -> None:
        first = await put(store, *(typed_record(f"a{n}", n, content=b"body", tags=T0) for n in range(3)))
        await put(store, typed_record("a1", 5, content=b"later", tags=T0))
        data = Query(where={"n": {"$lt": 9}}), Query(order_by="n")
        for query in (Query(), Query(prefix="a"), Query(tags=T0), *data):
            for as_of in (None, first.seq):
                with_content = await store.query(query, STORED, as_of)
                assert all(datum.content for datum in with_content.items)
                without = await store.query(query.replace(content=False), STORED, as_of)
                assert without.items == [datum.replace(content=b"") for datum in with_content.items]

    async def test_a_prefix_is_not_a_pattern(self, store: Backend) -> None:
        ids = ["a", "a%", "a%b", "a_", "axb", "A%", "a*", "a[b]", "\ud7ff", "\ud7ffx", "\ue000", "\U0010ffff"]
        ids += ["\U0010ffff\U0010ffff", "\U0010ffffx", "a\U0010ffff", "b", "a'", 'a"', "a\\"]
        records = [record(id) for id in ids]
        await put(store, *records)
        await delete(store, "b")
        for prefix in {*ids, "a\\%", "\U0010ffff" * 3, "['"}:
            wanted = [id for id in ids if id.startswith(prefix) and id != "b"]
            assert sorted(await find_ids(store, prefix=prefix)) == sorted(wanted), ascii(prefix)
            assert await store.count(Query(prefix=prefix), STORED) == len(wanted)

    async def test_names_are_never_taken_for_something_else(self, store: Backend) -> None:
        odd = ["'; DROP TABLE datum; --", "%", "_", '"', "@author", ".n", "a\x01b", "0", "é", "null"]
        for place, name in enumerate(odd):
            names: dict[str, Any] = {"schema": name, "author": name, "source": name, "parent_id": name}
            await put(store, typed_record(f"r{place}", tags=frozenset({name}), **names))
        for place, name in enumerate(odd):
            queries = [Query(schema=name), Query(author=name), Query(source=name), Query(parent=name)]
            queries += [Query(tags=frozenset({name})), Query(schema=name, any_tags=frozenset({name, "x"}))]
            for query in queries:
                assert await find_ids(store, query) == [f"r{place}"], query

    async def test_a_field_may_be_called_anything(self, store: Backend) -> None:
        odd = ["a.b", "$x", "'", '"; --', "é", "@author", "\U0010ffff", "a\\", "0", "\x01"]
        await store.declare(Declaration("note", 1, indexes=tuple(path.text((name,)) for name in odd)))
        await put(store, *(typed_record(f"r{place}", data={name: place}) for place, name in enumerate(odd)))
        for place, name in enumerate(odd):
            for condition in (place, {"$exists": True}):
                assert await find_ids(store, schema="note", where={(name,): condition}) == [f"r{place}"], name

    async def test_referrers_are_the_records_whose_refs_hold_an_id(self, store: Backend) -> None:
        long = "x" * 400
        await store.declare(Declaration("link", 1, refs=("to", "also")))
        await put(
            store,
            typed_record("a", schema="link", data={"to": "x", "also": ["y", "x", 5]}, day=1),
            typed_record("b", schema="link", data={"to": "y"}, day=2),
            typed_record("c", schema="link", data={"to": long + "1", "also": "x"}, day=3),
            typed_record("d", schema="link", data={"to": long + "2"}, day=4),
            typed_record("e", schema="other", data={"to": "x"}, day=5),
        )
        wanted = {"x": ["c", "a"], "y": ["b", "a"], long + "1": ["c"], long + "2": ["d"], long: [], "5": []}
        for id, referrers in wanted.items():
            assert [datum.id for datum in await store.referrers(id, None)] == referrers
        assert [datum.id for datum in await store.referrers("x", 1)] == ["c"]
        await delete(store, "c")
        await put(store, typed_record("a", schema="link", data={"to": "z"}))
        assert await store.referrers("x", None) == []

    async def test_a_where_that_is_not_understood_is_refused(self, store: Backend) -> None:
        odd: list[dict[str, Any]] = [{"n": {"$like": 1}}, {"$nor": [{"n": 1}]}, {"n": {"$gt": None}}, {"": 1}]
        for where in odd:
            with pytest.raises(ValueError, match="where"):
                Query(where=where)
        await expect_error("cursor", store.query(Query(cursor="x"), STORED))
