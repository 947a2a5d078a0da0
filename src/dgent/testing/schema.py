"""Declarations, versions and indexes: old records are found from the first second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Commit, Declaration, Delete, Put, SchemaStats, View
from dgent.testing.contract import (
    STORED,
    Contract,
    Factory,
    commit,
    delete,
    found,
    opened,
    put,
    record,
    refused,
    typed,
)


class Steps:
    """A caller that knows `note` up to a version: 1 has `n`, 2 calls it `number`, 3 adds `double`."""

    def __init__(self, version: int) -> None:
        self.known = version

    lazy = False

    def version(self, schema: str) -> int | None:
        """The version of a schema that the caller has registered."""
        return self.known if schema == "note" else None

    def shape(self, datum: Datum) -> Mapping[str, Any]:
        """The data brought to the known version; as stored when that cannot be done."""
        if datum.schema != "note" or datum.schema_version is None or datum.schema_version >= self.known:
            return datum.data
        data = dict(datum.data)
        try:
            if datum.schema_version < 2 <= self.known:
                data["number"] = data.pop("n")
            if self.known >= 3:
                data["double"] = data["number"] * 2
        except (KeyError, TypeError):
            return datum.data
        return data


async def _fill(store: Backend, view: View, schema: str = "note") -> int:
    """Fill to the end; how many batches it took."""
    batches = 1
    while await store.fill(schema, view):
        batches += 1
        assert batches < 100, "fill does not come to an end"
    return batches


async def _stats(store: Backend, schema: str = "note") -> SchemaStats:
    (stats,) = [stats for stats in (await store.stats()).schemas if stats.name == schema]
    return stats


class SchemaContract(Contract):
    """What a store knows of schemas."""

    async def test_declaring_is_seen_in_stats(self, store: Backend) -> None:
        declared = await store.declare(Declaration("note", 2, indexes=("a", "b.c"), owner=None))
        assert not declared.filling
        await put(store, typed("x", version=2), typed("y", version=1), typed("z", schema="other"))
        stats = await _stats(store)
        assert (stats.records, stats.index_version, stats.indexes) == (2, 2, ("a", "b.c"))
        assert (stats.building, stats.lagging, stats.versions) == ((), 1, (1, 2))
        assert await store.versions("note") == {1: 1, 2: 1}
        assert await store.versions("never") == {}
        await delete(store, "y")
        assert await store.versions("note") == {2: 1}
        assert (await _stats(store)).lagging == 0

    async def test_declarations_of_one_version_add_up(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("a",)))
        await store.declare(Declaration("note", 1, indexes=("b", "a")))
        await store.declare(Declaration("note", 1))
        assert (await _stats(store)).indexes == ("a", "b")

    async def test_a_higher_version_replaces_and_a_lower_one_is_ignored(self, store: Backend) -> None:
        await store.declare(Declaration("note", 2, indexes=("a",)))
        await store.declare(Declaration("note", 1, indexes=("b",), history="none", feed=False))
        stats = await _stats(store)
        assert (stats.index_version, stats.indexes) == (2, ("a",))
        await put(store, typed("x", 1, version=2))
        await put(store, typed("x", 2, version=2))
        assert len(await store.history("x", None)) == 2
        assert len(await store.changes(0, 9)) == 2
        assert (await store.declare(Declaration("note", 3, indexes=("c",)))).filling
        stats = await _stats(store)
        assert (stats.index_version, stats.indexes, stats.building) == (3, ("c",), ("c",))

    async def test_another_contract_under_the_same_version_is_told(self, store: Backend) -> None:
        assert not (await store.declare(Declaration("note", 1, digest="a"))).disputed
        assert not (await store.declare(Declaration("note", 1, digest="a"))).disputed
        assert (await store.declare(Declaration("note", 1, digest="b"))).disputed
        assert not (await store.declare(Declaration("note", 2, digest="c"))).disputed

    async def test_declaring_the_same_again_changes_nothing(self, store: Backend) -> None:
        await put(store, *(typed(f"r{n}", n) for n in range(5)))
        same = Declaration("note", 1, indexes=("n",), refs=("to",))
        assert (await store.declare(same)).filling
        assert (await store.declare(same)).filling
        await _fill(store, Steps(1))
        assert not (await store.declare(same)).filling
        assert not await store.fill("note", Steps(1))
        assert (await _stats(store)).building == ()

    @pytest.mark.parametrize("known", [1, 2, 3])
    async def test_old_records_are_found_during_a_fill(self, store: Backend, known: int) -> None:
        """Before, during and after it: 2,100 records take several batches, and an old writer goes on."""
        old = [typed(f"old{n:04}", n % 50, day=n % 40) for n in range(2100)]
        await put(store, *old)
        view = Steps(known)
        field = "n" if known == 1 else "number"
        await store.declare(Declaration("note", known, indexes=(field,)))
        data = {1: {"n": 7}, 2: {"number": 7}, 3: {"number": 7, "double": 14}}[known]
        await put(store, typed("new", version=known, data=data, day=99))
        query = Query(schema="note", where={field: 7}, limit=None)
        wanted = {"new", *(datum.id for datum in old if datum.data["n"] == 7)}
        assert set(await found(store, query, view=view)) == wanted
        for step in range(100):
            more = await store.fill("note", view)
            if known > 1:
                await put(store, typed(f"late{step}", 7, day=step))
                wanted.add(f"late{step}")
            await put(store, typed(f"old{step:04}", 7))
            wanted.add(f"old{step:04}")
            ids = await found(store, query, view=view)
            assert set(ids) == wanted
            assert len(ids) == len(wanted)
            assert await store.count(query, view) == len(wanted)
            if not more:
                break
        ordered = await store.query(Query(schema="note", order_by=field, limit=None), view)
        values = [view.shape(datum)[field] for datum in ordered.items]
        assert values == sorted(values, reverse=True)
        assert len(values) == 2101 + (step + 1 if known > 1 else 0)

    async def test_a_record_that_cannot_be_upgraded_stays_and_is_found_as_it_is(self, store: Backend) -> None:
        await put(store, typed("good", 5), typed("bad", data={"m": 5, "number": 5}))
        await store.declare(Declaration("note", 2, indexes=("number",)))
        view = Steps(2)
        for _ in range(2):
            assert await found(store, schema="note", where={"number": 5}, view=view) == ["bad", "good"]
            assert await found(store, schema="note", where={"number": {"$exists": False}}, view=view) == []
            await _fill(store, view)
        assert (await _stats(store)).lagging == 1
        await put(store, typed("bad", version=2, data={"number": 6}))
        assert (await _stats(store)).lagging == 0
        assert await found(store, schema="note", where={"number": 6}, view=view) == ["bad"]

    async def test_a_writer_with_the_steps_indexes_at_once(self, store: Backend) -> None:
        await store.declare(Declaration("note", 2, indexes=("number",), refs=("number",)))
        b = Put(typed("b", "x"), indexed={"number": "x"})
        await commit(store, Put(typed("a", 5), indexed={"number": 5}), b)
        assert (await _stats(store)).lagging == 0
        assert await found(store, schema="note", where={"number": 5}, view=Steps(2)) == ["a"]
        assert [datum.id for datum in await store.referrers("x", None)] == ["b"]
        await commit(store, Put(typed("a", 6), indexed={"number": 6}), Delete("b"))
        assert await found(store, schema="note", where={"number": 5}, view=Steps(2)) == []
        assert await found(store, schema="note", where={"number": 6}, view=Steps(2)) == ["a"]
        assert await store.referrers("x", None) == []

    async def test_refs_of_an_upgraded_copy_are_exact(self, store: Backend) -> None:
        """Also where ids begin alike for longer than an index key is."""
        await store.declare(Declaration("note", 2, refs=("number",)))
        ids = ["x" * 300 + end for end in "abc"]
        await commit(store, *(Put(typed(id[-1], id), indexed={"number": id}) for id in ids[:2]))
        await put(store, typed("c", ids[2]))
        for view in (STORED, Steps(2)):
            for id in ids[:2]:
                assert [datum.id for datum in await store.referrers(id, None)] == [id[-1]]
            await _fill(store, view)
        await store.declare(Declaration("note", 2, indexes=("number",)))
        await _fill(store, Steps(2))
        assert [datum.id for datum in await store.referrers(ids[2], None)] == ["c"]

    async def test_older_code_and_code_without_contracts_see_their_own_shape(self, store: Backend) -> None:
        await put(store, typed("a", 1), typed("b", version=2, data={"number": 1}))
        await store.declare(Declaration("note", 2, indexes=("number", "n")))
        await _fill(store, Steps(2))
        assert await found(store, schema="note", where={"number": 1}, view=Steps(2)) == ["b", "a"]
        assert await found(store, schema="note", where={"n": 1}, view=Steps(2)) == []
        for view in (Steps(1), STORED):
            assert await found(store, schema="note", where={"number": 1}, view=view) == ["b"]
            assert await found(store, schema="note", where={"n": 1}, view=view) == ["a"]

    async def test_only_code_that_knows_the_version_can_fill(self, store: Backend) -> None:
        await put(store, typed("a", 1))
        await store.declare(Declaration("note", 2, indexes=("number",)))
        for view in (STORED, Steps(1), Steps(3)):
            assert not await store.fill("note", view)
        assert (await _stats(store)).building == ("number",)
        await _fill(store, Steps(2))
        assert (await _stats(store)).building == ()
        assert not await store.fill("never", Steps(2))

    async def test_several_versions_in_a_row(self, store: Backend) -> None:
        await put(store, *(typed(f"a{n}", n) for n in range(9)))
        for version, field in ((1, "n"), (2, "number"), (3, "double")):
            await store.declare(Declaration("note", version, indexes=(field,)))
            view = Steps(version)
            wanted = ["a3"]
            value = 6 if field == "double" else 3
            assert await found(store, schema="note", where={field: value}, view=view) == wanted
            await put(store, typed("a3", 3, content=bytes([version])))
            await _fill(store, view)
            assert await found(store, schema="note", where={field: value}, view=view) == wanted
        stats = await _stats(store)
        assert (stats.index_version, stats.indexes, stats.lagging) == (3, ("double",), 0)

    async def test_a_dropped_index_is_gone_and_the_rest_works_on(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("a", "b", "c")))
        tags = frozenset({"t"})
        records = [typed(f"r{n}", data={"a": n, "b": n, "c": n}, tags=tags) for n in range(300)]
        await put(store, *records)
        await store.drop_index("note", "a")
        for _ in range(2):
            assert (await _stats(store)).indexes == ("b", "c")
            for field in "abc":
                for where_tags in (tags, frozenset[str]()):
                    query = Query(schema="note", tags=where_tags, where={field: 7})
                    assert await found(store, query) == ["r7"]
                    query = Query(schema="note", tags=where_tags, order_by=field, limit=2)
                    assert await found(store, query) == ["r299", "r298"]
            await _fill(store, Steps(1))
            await put(store, typed("r8", data={"a": 7, "b": 9, "c": 7}), typed("r7", data={"a": 8}))
            await put(store, *records[7:9])
        await refused("not_found", store.drop_index("note", "a"))
        await refused("not_found", store.drop_index("never", "a"))

    async def test_an_index_dropped_and_declared_again(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("n",)))
        await put(store, *(typed(f"r{n}", n) for n in range(300)))
        await store.drop_index("note", "n")
        await put(store, typed("r5", 1000), typed("r6", 1001))
        await delete(store, "r7")
        await store.forget(["r8"], "tester", None)
        assert (await store.declare(Declaration("note", 1, indexes=("n",)))).filling
        await _fill(store, Steps(1))
        for value, wanted in ((5, []), (7, []), (8, []), (9, ["r9"]), (1000, ["r5"])):
            assert await found(store, schema="note", where={"n": value}, view=Steps(1)) == wanted
        assert len(await found(store, schema="note", order_by="n", limit=None, view=Steps(1))) == 298

    async def test_only_the_owner_writes(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, owner="blocks"))
        await commit(store, Put(typed("a", 1)), room="blocks")
        await put(store, record("free"))
        for op in (Put(typed("b")), Put(typed("a", 2)), Delete("a"), Put(record("a")), Put(typed("free"))):
            for room in (None, "other"):
                error = await refused("denied", store.commit(Commit([op], room=room), STORED))
                assert error.hint
        await commit(store, Put(typed("a", 2)), Delete("free"), room="blocks")
        assert (await _stats(store)).owner == "blocks"

    async def test_an_owner_is_not_lost_by_declaring_without_one(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, owner="blocks"))
        await store.declare(Declaration("note", 1))
        await store.declare(Declaration("note", 2))
        await refused("denied", store.declare(Declaration("note", 3, owner="other")))
        await refused("denied", put(store, typed("a", version=2)))
        assert (await _stats(store)).index_version == 2

    async def test_a_newer_record_is_not_overwritten_by_older_code(self, store: Backend) -> None:
        await put(store, typed("a", 1, version=3))
        await refused("newer_record", put(store, typed("a", 2, version=2)))
        await put(store, typed("a", 2, version=3))
        await put(store, typed("a", 3, version=4))
        undone = Commit([Put(typed("a", 2, version=3))], kind="undo", of_seq=3)
        assert (await store.commit(undone, STORED)).written[0].rev == 4
        await delete(store, "a")
        await put(store, typed("a", 1, version=1))

    async def test_another_handle_knows_what_was_declared(self, store: Backend, backend: Factory) -> None:
        if not self.persistent:
            return
        async with opened(backend) as other:
            await put(store, *(typed(f"r{n}", n) for n in range(5)))
            await put(other, typed("r5", 5))
            await other.declare(Declaration("note", 2, indexes=("number",)))
            await put(store, typed("r6", version=2, data={"number": 2}))
            await _fill(other, Steps(2))
            await put(store, typed("r7", version=2, data={"number": 2}))
            query = Query(schema="note", where={"number": 2})
            for handle in (store, other):
                assert set(await found(handle, query, view=Steps(2))) == {"r2", "r6", "r7"}
                assert (await _stats(handle)).indexes == ("number",)
            await store.forget(["r6"], "tester", None)
            assert set(await found(other, query, view=Steps(2))) == {"r2", "r7"}
