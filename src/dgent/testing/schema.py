"""Declarations, owners and versions: a store's knowledge of schemas."""

from __future__ import annotations

from dgent.model.query import Query
from dgent.store.backend import EVERY_ROOM, NEW, Backend, Commit, Declaration, Delete, Put
from dgent.testing.contract import (
    STORED,
    Contract,
    Factory,
    Steps,
    commit,
    delete,
    expect_error,
    fill,
    find_ids,
    open_handle,
    put,
    record,
    stats_of,
    typed_record,
)


class SchemaContract(Contract):
    """A store's knowledge of schemas."""

    async def test_declaring_is_seen_in_stats(self, store: Backend) -> None:
        declared = await store.declare(Declaration("note", 2, indexes=("a", "b.c"), owner=None))
        assert not declared.filling
        await put(
            store,
            typed_record("x", version=2),
            typed_record("y", version=1),
            typed_record("z", schema="other"),
        )
        stats = await stats_of(store)
        assert (stats.records, stats.index_version, stats.indexes) == (2, 2, ("a", "b.c"))
        assert (stats.building, stats.lagging, stats.versions) == ((), 1, (1, 2))
        assert await store.versions("note") == {1: 1, 2: 1}
        assert await store.versions("never") == {}
        await delete(store, "y")
        assert await store.versions("note") == {2: 1}
        assert (await stats_of(store)).lagging == 0

    async def test_declarations_of_one_version_add_up(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("a",)))
        await store.declare(Declaration("note", 1, indexes=("b", "a")))
        await store.declare(Declaration("note", 1))
        assert (await stats_of(store)).indexes == ("a", "b")

    async def test_a_higher_version_replaces_and_a_lower_one_is_ignored(self, store: Backend) -> None:
        await store.declare(Declaration("note", 2, indexes=("a",)))
        await store.declare(Declaration("note", 1, indexes=("b",), history="none", feed=False))
        stats = await stats_of(store)
        assert (stats.index_version, stats.indexes) == (2, ("a",))
        await put(store, typed_record("x", 1, version=2))
        await put(store, typed_record("x", 2, version=2))
        assert len(await store.history("x", None)) == 2
        assert len(await store.changes(0, 9)) == 2
        assert (await store.declare(Declaration("note", 3, indexes=("c",)))).filling
        stats = await stats_of(store)
        assert (stats.index_version, stats.indexes, stats.building) == (3, ("c",), ("c",))

    async def test_another_contract_under_the_same_version_is_told(self, store: Backend) -> None:
        assert not (await store.declare(Declaration("note", 1, digest="a"))).disputed
        assert not (await store.declare(Declaration("note", 1, digest="a"))).disputed
        assert (await store.declare(Declaration("note", 1, digest="b"))).disputed
        assert not (await store.declare(Declaration("note", 2, digest="c"))).disputed

    async def test_declaring_the_same_again_changes_nothing(self, store: Backend) -> None:
        await put(store, *(typed_record(f"r{n}", n) for n in range(5)))
        same = Declaration("note", 1, indexes=("n",), refs=("to",))
        assert (await store.declare(same)).filling
        assert (await store.declare(same)).filling
        await fill(store, Steps(1))
        assert not (await store.declare(same)).filling
        assert not await store.fill("note", Steps(1))
        assert (await stats_of(store)).building == ()

    async def test_only_the_owner_writes(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, owner="blocks"))
        await commit(store, Put(typed_record("a", 1)), room="blocks")
        await put(store, record("free"))
        for op in (
            Put(typed_record("b")),
            Put(typed_record("a", 2)),
            Delete("a"),
            Put(record("a")),
            Put(typed_record("free")),
        ):
            for room in (None, "other"):
                error = await expect_error("denied", store.commit(Commit([op], room=room), STORED))
                assert error.hint
        await commit(store, Put(typed_record("a", 2)), Delete("free"), room="blocks")
        assert (await stats_of(store)).owner == "blocks"

    async def test_a_room_owns_the_ids_below_its_records(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, owner="blocks"))
        await commit(store, Put(typed_record("a", 1)), Put(typed_record("gone", 1)), room="blocks")
        await commit(store, Delete("gone"), room="blocks")
        below = ("a/u/1", "a/", "a//", "note/x", "gone/u/1", "gone", "block.agent/x", "cupboard/x")
        for id in below:
            for expect in (None, 0) if id == "gone" else (None, 0, NEW):
                op = Put(record(id), expect=expect)
                for room in (None, "other"):
                    await expect_error("denied", store.commit(Commit([op], room=room), STORED))
                    await expect_error(
                        "denied", store.commit(Commit([op, Put(record("x"))], room=room), STORED)
                    )
        assert await find_ids(store, Query(limit=None)) == ["a"]
        await put(store, record("b/u/1"), record("aa/u"), record("/a"), record("/"), record("notes/x"))
        await commit(store, Put(typed_record("a/u/1")), Put(typed_record("gone/u")), room="blocks")

    async def test_what_is_in_the_way_of_a_room_is_not_there(self, store: Backend) -> None:
        await put(store, record("a/u/1"), record("b/u/1"))
        await store.declare(Declaration("note", 1, owner="blocks"))
        await commit(store, Put(typed_record("a", 1)), room="blocks")
        await expect_error(
            "version_conflict", commit(store, Put(typed_record("b/u/1"), expect=0), room="blocks")
        )
        await expect_error("denied", put(store, record("a/u/1", 2)))
        await commit(store, Put(typed_record("a/u/1", 5), expect=0), room="blocks")
        assert [version.rev for version in await store.history("a/u/1", None)] == [2, 1]
        await expect_error(
            "version_conflict", commit(store, Put(typed_record("a/u/1", 6), expect=0), room="blocks")
        )
        await expect_error("denied", delete(store, "a/u/1"))

    async def test_what_is_foreign_below_a_room_can_be_deleted(self, store: Backend) -> None:
        await put(store, record("a/u/1"))
        await store.declare(Declaration("note", 1, owner="blocks"))
        await commit(store, Put(typed_record("a", 1)), room="blocks")
        await delete(store, "a/u/1")
        await expect_error("denied", put(store, record("a/u/1", 2)))

    async def test_reserved_schemas_have_their_owner_from_the_start(self, store: Backend) -> None:
        for name, owner in (("block.version", "blocks"), ("cupboard.crumb", "cupboard")):
            await expect_error("denied", put(store, typed_record("x", schema=name)))
            await expect_error("denied", commit(store, Put(typed_record("x", schema=name)), room="other"))
            await expect_error("denied", store.declare(Declaration(name, 1, owner="other")))
            await store.declare(Declaration(name, 1))
            await expect_error("denied", put(store, typed_record("x", schema=name)))
            await commit(store, Put(typed_record("x", schema=name)), room=owner)
            await commit(store, Delete("x"), room=owner)
            await expect_error("denied", put(store, record("x")))
            await commit(store, Put(record("x")), Put(record("x/y")), room=EVERY_ROOM)
            await commit(store, Delete("x"), Delete("x/y"))

    async def test_what_every_cupboard_starts_with_has_its_ids_from_the_start(self, store: Backend) -> None:
        id = "01941f29-7c00-7000-8000-000000000001"
        for expect in (None, 0, NEW):
            await expect_error("denied", commit(store, Put(record(id), expect=expect)))
            await expect_error("denied", commit(store, Put(record(id), expect=expect), room="other"))
        await commit(store, Put(record(id)), room=EVERY_ROOM)  # as it may be there from before
        made = typed_record(id, 1, schema="cupboard.property")
        await commit(store, Put(made, expect=0), room="cupboard")
        await expect_error("version_conflict", commit(store, Put(made, expect=0), room="cupboard"))

    async def test_an_owner_is_not_lost_by_declaring_without_one(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, owner="blocks"))
        await store.declare(Declaration("note", 1))
        await store.declare(Declaration("note", 2))
        await expect_error("denied", store.declare(Declaration("note", 3, owner="other")))
        await expect_error("denied", put(store, typed_record("a", version=2)))
        assert (await stats_of(store)).index_version == 2

    async def test_a_newer_record_is_not_overwritten_by_older_code(self, store: Backend) -> None:
        await put(store, typed_record("a", 1, version=3))
        await expect_error("newer_record", put(store, typed_record("a", 2, version=2)))
        await put(store, typed_record("a", 2, version=3))
        await put(store, typed_record("a", 3, version=4))
        undone = Commit([Put(typed_record("a", 2, version=3))], kind="undo", of_seq=3)
        assert (await store.commit(undone, STORED)).written[0].rev == 4
        await delete(store, "a")
        await put(store, typed_record("a", 1, version=1))

    async def test_another_handle_knows_what_was_declared(self, store: Backend, backend: Factory) -> None:
        if not self.persistent:
            return
        async with open_handle(backend) as other:
            await put(store, *(typed_record(f"r{n}", n) for n in range(5)))
            await put(other, typed_record("r5", 5))
            await other.declare(Declaration("note", 2, indexes=("number",)))
            await put(store, typed_record("r6", version=2, data={"number": 2}))
            await fill(other, Steps(2))
            await put(store, typed_record("r7", version=2, data={"number": 2}))
            query = Query(schema="note", where={"number": 2})
            for handle in (store, other):
                assert set(await find_ids(handle, query, view=Steps(2))) == {"r2", "r6", "r7"}
                assert (await stats_of(handle)).indexes == ("number",)
            await store.forget(["r6"], "tester", None)
            assert set(await find_ids(other, query, view=Steps(2))) == {"r2", "r7"}
