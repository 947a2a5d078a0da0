"""Indexes of declared fields: old records are found from the first second on."""

from __future__ import annotations

from typing import Any

import pytest

from dgent.model.query import Query
from dgent.store.backend import Backend, Declaration, Delete, Put, Shaped
from dgent.testing.contract import (
    STORED,
    Contract,
    Steps,
    commit,
    delete,
    expect_error,
    fill,
    find_ids,
    put,
    stats_of,
    typed_record,
)


class IndexContract(Contract):
    """Indexes that are made, built, replaced and dropped while the store is used."""

    @pytest.mark.parametrize("known", [1, 2, 3])
    async def test_old_records_are_found_during_a_fill(self, store: Backend, known: int) -> None:
        """Before, during and after it: 1,100 records take several batches, and an old writer goes on."""
        old = [typed_record(f"old{n:04}", n % 50, day=n // 60) for n in range(1100)]
        await put(store, *old)
        view = Steps(known)
        field = "n" if known == 1 else "number"
        await store.declare(Declaration("note", known, indexes=(field,)))
        data = {1: {"n": 7}, 2: {"number": 7}, 3: {"number": 7, "double": 14}}[known]
        await put(store, typed_record("new", version=known, data=data, day=99))
        query = Query(schema="note", where={field: 7}, limit=None)
        wanted = {"new", *(datum.id for datum in old if datum.data["n"] == 7)}
        assert set(await find_ids(store, query, view=view)) == wanted
        for step in range(100):
            more = await store.fill("note", view)
            if known > 1:
                await put(store, typed_record(f"late{step}", 7, day=step))
                wanted.add(f"late{step}")
            await put(store, typed_record(f"old{step:04}", 7))
            wanted.add(f"old{step:04}")
            ids = await find_ids(store, query, view=view)
            assert set(ids) == wanted
            assert len(ids) == len(wanted)
            assert await store.count(query, view) == len(wanted)
            if not more:
                break
        ordered = await store.query(Query(schema="note", order_by=field, limit=None), view)
        values = [view.shape(datum)[field] for datum in ordered.items]
        assert values == sorted(values, reverse=True)
        assert len(values) == 1101 + (step + 1 if known > 1 else 0)

    async def test_a_record_that_cannot_be_upgraded_stays_and_is_found_as_it_is(self, store: Backend) -> None:
        await put(store, typed_record("good", 5), typed_record("bad", data={"m": 5, "number": 5}))
        await store.declare(Declaration("note", 2, indexes=("number",)))
        view = Steps(2)
        for _ in range(2):
            assert await find_ids(store, schema="note", where={"number": 5}, view=view) == ["bad", "good"]
            assert await find_ids(store, schema="note", where={"number": {"$exists": False}}, view=view) == []
            await fill(store, view)
        assert (await stats_of(store)).lagging == 1
        await put(store, typed_record("bad", version=2, data={"number": 6}))
        assert (await stats_of(store)).lagging == 0
        assert await find_ids(store, schema="note", where={"number": 6}, view=view) == ["bad"]

    async def test_a_writer_with_the_steps_indexes_at_once(self, store: Backend) -> None:
        await store.declare(Declaration("note", 2, indexes=("number",), refs=("number",)))
        b = Put(typed_record("b", "x"), indexed=Shaped(2, {"number": "x"}))
        await commit(store, Put(typed_record("a", 5), indexed=Shaped(2, {"number": 5})), b)
        assert (await stats_of(store)).lagging == 0
        assert await find_ids(store, schema="note", where={"number": 5}, view=Steps(2)) == ["a"]
        assert [datum.id for datum in await store.referrers("x", None)] == ["b"]
        await commit(store, Put(typed_record("a", 6), indexed=Shaped(2, {"number": 6})), Delete("b"))
        assert await find_ids(store, schema="note", where={"number": 5}, view=Steps(2)) == []
        assert await find_ids(store, schema="note", where={"number": 6}, view=Steps(2)) == ["a"]
        assert await store.referrers("x", None) == []

    async def test_a_writer_of_an_older_version_leaves_its_records_unindexed(self, store: Backend) -> None:
        """Its shape is not that of the index, so a query reads the record until someone indexes it."""
        await store.declare(Declaration("note", 3, indexes=("double",), refs=("double",)))
        await commit(store, Put(typed_record("a", 5), indexed=Shaped(2, {"number": 5})))
        await commit(store, Put(typed_record("b", 6), indexed=Shaped(3, {"number": 6, "double": 12})))
        assert (await stats_of(store)).lagging == 1
        for where, wanted in (({"double": 10}, ["a"]), ({"double": 12}, ["b"])):
            assert await find_ids(store, schema="note", where=where, view=Steps(3)) == wanted
        assert await find_ids(store, schema="note", where={"double": {"$exists": False}}, view=Steps(3)) == []
        await commit(store, Put(typed_record("b", 7), indexed=Shaped(2, {"number": 7})))
        assert await find_ids(store, schema="note", where={"double": 14}, view=Steps(3)) == ["b"]
        assert await find_ids(store, schema="note", where={"double": 12}, view=Steps(3)) == []
        await commit(
            store, Put(typed_record("a", version=2, data={"number": 5}), indexed=Shaped(4, {"double": 9}))
        )
        assert await find_ids(store, schema="note", where={"double": 10}, view=Steps(3)) == ["a"]

    async def test_refs_of_an_upgraded_copy_are_exact(self, store: Backend) -> None:
        """Also where ids begin alike for longer than an index key is."""
        await store.declare(Declaration("note", 2, refs=("number",)))
        ids = ["x" * 300 + end for end in "abc"]
        await commit(
            store, *(Put(typed_record(id[-1], id), indexed=Shaped(2, {"number": id})) for id in ids[:2])
        )
        await put(store, typed_record("c", ids[2]))
        for view in (STORED, Steps(2)):
            for id in ids[:2]:
                assert [datum.id for datum in await store.referrers(id, None)] == [id[-1]]
            await fill(store, view)
        await store.declare(Declaration("note", 2, indexes=("number",)))
        await fill(store, Steps(2))
        assert [datum.id for datum in await store.referrers(ids[2], None)] == ["c"]

    async def test_refs_of_an_older_upgraded_copy_are_not_taken_for_the_newest(self, store: Backend) -> None:
        """A record indexed by the refs of version 2, which lie elsewhere in version 3."""
        await store.declare(Declaration("note", 2, refs=("number",)))
        await commit(store, Put(typed_record("a", "x"), indexed=Shaped(2, {"number": "x"})))
        await store.declare(Declaration("note", 3, refs=("double",)))
        for _ in range(2):
            assert [datum.id for datum in await store.referrers("xx", None, Steps(3))] == ["a"]
            assert await store.referrers("x", None, Steps(3)) == []
            await fill(store, Steps(3))

    async def test_refs_of_old_records_are_found_during_a_fill(self, store: Backend) -> None:
        await put(
            store,
            typed_record("a", "x", day=1),
            typed_record("b", ["y", "x"], day=2),
            typed_record("c", "z", day=3),
        )
        await store.declare(Declaration("note", 2, refs=("number",)))
        for _ in range(2):
            assert [datum.id for datum in await store.referrers("x", None, Steps(2))] == ["b", "a"]
            assert [datum.id for datum in await store.referrers("z", None, Steps(2))] == ["c"]
            await fill(store, Steps(2))

    async def test_items_of_a_list_are_found_before_during_and_after_a_fill(self, store: Backend) -> None:
        """An index on `n.*` is on each item of `n`. A value that is not a list is found as without it."""
        long = "x" * 300
        values: dict[str, Any] = {
            "words": ["tea", "green", "tea"],
            "more": ["tea", long + "a", long + "b"],
            "mixed": [1, True, None, ["tea"], {"tea": 1}, 2.0],
            "empty": [],
            "text": "green tea",
            "map": {"tea": 1, "*": "tea"},
            "number": 7,
        }
        await put(
            store, *(typed_record(id, value, day=day) for day, (id, value) in enumerate(values.items()))
        )
        asked: list[Any] = [
            "tea",
            "green",
            "te",
            1,
            1.0,
            2,
            True,
            None,
            ["tea"],
            {"tea": 1},
            long + "b",
            long,
            7,
        ]
        queries = [Query(schema="note", where={"n": {"$contains": value}}) for value in asked]
        queries.append(Query(schema="note", where={"n": {"$contains": "tea"}}, tags={"odd"}))
        queries.append(Query(schema="note", where={"n.*": "tea"}))  # the key of that name, in a query
        queries.append(Query(schema="note", where={"n": {"$contains": "tea"}}, order_by="n.*"))
        wanted = [await find_ids(store, query) for query in queries]
        assert wanted[:2] == [["map", "text", "more", "words"], ["text", "words"]]
        await store.declare(Declaration("note", 1, indexes=("n.*",)))
        assert [await find_ids(store, query) for query in queries] == wanted
        await fill(store, Steps(1))
        assert [await find_ids(store, query) for query in queries] == wanted
        page = await store.query(queries[0], STORED)
        assert page.explain == "schema, item"
        await put(store, typed_record("words", ["green"], day=0), typed_record("empty", ["tea"], day=3))
        await delete(store, "more")
        assert await find_ids(store, queries[0]) == ["map", "text", "empty"]

    async def test_older_code_and_code_without_contracts_see_their_own_shape(self, store: Backend) -> None:
        await put(store, typed_record("a", 1), typed_record("b", version=2, data={"number": 1}))
        await store.declare(Declaration("note", 2, indexes=("number", "n")))
        await fill(store, Steps(2))
        assert await find_ids(store, schema="note", where={"number": 1}, view=Steps(2)) == ["b", "a"]
        assert await find_ids(store, schema="note", where={"n": 1}, view=Steps(2)) == []
        for view in (Steps(1), STORED):
            assert await find_ids(store, schema="note", where={"number": 1}, view=view) == ["b"]
            assert await find_ids(store, schema="note", where={"n": 1}, view=view) == ["a"]

    async def test_only_code_that_knows_the_version_can_fill(self, store: Backend) -> None:
        await put(store, typed_record("a", 1))
        await store.declare(Declaration("note", 2, indexes=("number",)))
        for view in (STORED, Steps(1), Steps(3)):
            assert not await store.fill("note", view)
        assert (await stats_of(store)).building == ("number",)
        await fill(store, Steps(2))
        assert (await stats_of(store)).building == ()
        assert not await store.fill("never", Steps(2))

    async def test_several_versions_in_a_row(self, store: Backend) -> None:
        await put(store, *(typed_record(f"a{n}", n) for n in range(9)))
        for version, field in ((1, "n"), (2, "number"), (3, "double")):
            await store.declare(Declaration("note", version, indexes=(field,)))
            view = Steps(version)
            wanted = ["a3"]
            value = 6 if field == "double" else 3
            assert await find_ids(store, schema="note", where={field: value}, view=view) == wanted
            await put(store, typed_record("a3", 3, content=bytes([version])))
            await fill(store, view)
            assert await find_ids(store, schema="note", where={field: value}, view=view) == wanted
        stats = await stats_of(store)
        assert (stats.index_version, stats.indexes, stats.lagging) == (3, ("double",), 0)

    async def test_a_dropped_index_is_gone_and_the_rest_works_on(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("a", "b", "c")))
        tags = frozenset({"t"})
        records = [typed_record(f"r{n}", data={"a": n, "b": n, "c": n}, tags=tags) for n in range(300)]
        await put(store, *records)
        await store.drop_index("note", "a")
        for _ in range(2):
            assert (await stats_of(store)).indexes == ("b", "c")
            for field in "abc":
                for where_tags in (tags, frozenset[str]()):
                    query = Query(schema="note", tags=where_tags, where={field: 7})
                    assert await find_ids(store, query) == ["r7"]
                    query = Query(schema="note", tags=where_tags, order_by=field, limit=2)
                    assert await find_ids(store, query) == ["r299", "r298"]
            await fill(store, Steps(1))
            await put(
                store, typed_record("r8", data={"a": 7, "b": 9, "c": 7}), typed_record("r7", data={"a": 8})
            )
            await put(store, *records[7:9])
        await expect_error("not_found", store.drop_index("note", "a"))
        await expect_error("not_found", store.drop_index("never", "a"))

    async def test_an_index_dropped_and_declared_again(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("n",)))
        await put(store, *(typed_record(f"r{n}", n) for n in range(300)))
        await store.drop_index("note", "n")
        await put(store, typed_record("r5", 1000), typed_record("r6", 1001))
        await delete(store, "r7")
        await store.forget(["r8"], "tester", None)
        assert (await store.declare(Declaration("note", 1, indexes=("n",)))).filling
        await fill(store, Steps(1))
        for value, wanted in ((5, []), (7, []), (8, []), (9, ["r9"]), (1000, ["r5"])):
            assert await find_ids(store, schema="note", where={"n": value}, view=Steps(1)) == wanted
        assert len(await find_ids(store, schema="note", order_by="n", limit=None, view=Steps(1))) == 298
