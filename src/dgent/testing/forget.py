"""Forgetting: gone from every read, and the rev goes on."""

from __future__ import annotations

from typing import Any

from dgent.model.query import Query
from dgent.store.backend import Backend, Commit, Declaration, Delete, Put
from dgent.testing.contract import STORED, Contract, commit, delete, expect_error, find_ids, put, typed_record

QUERIES = [
    Query(),
    Query(schema="note"),
    Query(tags=frozenset({"t"})),
    Query(author="ann"),
    Query(source="s"),
    Query(parent="p"),
    Query(prefix="a"),
    Query(schema="note", where={"n": 2}),
    Query(schema="note", where={"n": {"$gte": 0}}, order_by="n"),
]


def _full(id: str, n: int) -> Any:
    return typed_record(
        id, n, tags=frozenset({"t"}), author="ann", source="s", parent_id="p", content=b"secret"
    )


class ForgetContract(Contract):
    """Erasing records for good."""

    async def test_it_is_gone_from_every_read(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("n",), refs=("n",)))
        first = await put(store, _full("a", 1), _full("b", 1), note="the secret note")
        await put(store, _full("a", 2))
        last = await put(store, _full("b", 2))
        done = await store.forget(["a"], "tester", None)
        assert (done.records, done.versions, done.erased) == (1, 2, True)
        assert done.seq == last.seq + 1
        for as_of in (None, first.seq, last.seq, done.seq):
            assert await store.get("a", as_of) is None
            (gone, other) = await store.get_many(["a", "b"], as_of)
            assert gone is None
            assert other is not None
            for query in QUERIES:
                assert "a" not in await find_ids(store, query, as_of=as_of), query
                assert await store.count(query, STORED, as_of) == len(
                    await find_ids(store, query, as_of=as_of)
                )
        assert await store.history("a", None) == []
        assert (await store.stats()).records == 1

    async def test_the_feed_tells_that_and_not_what(self, store: Backend) -> None:
        await put(store, _full("a", 1), _full("b", 1), note="the secret note")
        await put(store, _full("a", 2))
        await delete(store, "a")
        done = await store.forget(["a"], "ann", None)
        changes = await store.changes(0, 10)
        assert [[(item.op, item.id) for item in change.items] for change in changes] == [
            [("put", "b")],
            [("forget", None)],
        ]
        assert [change.note for change in changes] == [None, None]
        assert (changes[1].seq, changes[1].kind, changes[1].author) == (done.seq, "forget", "ann")
        assert changes[1].items[0].datum is None

    async def test_a_note_goes_even_when_the_version_went_before(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, history="none"))
        await put(store, _full("a", 1), typed_record("b", 1), note="the secret note")
        await put(store, _full("a", 2))
        await store.forget(["a"], "tester", None)
        assert [change.note for change in await store.changes(0, 10)] == [None, None]

    async def test_deleted_records_can_be_forgotten(self, store: Backend) -> None:
        await put(store, _full("a", 1))
        await delete(store, "a")
        done = await store.forget(["a"], "tester", None)
        assert (done.records, done.versions) == (1, 1)
        assert await store.history("a", None) == []

    async def test_only_what_is_deleted_when_asked(self, store: Backend) -> None:
        await put(store, _full("a", 1), _full("b", 1), _full("c", 1))
        await delete(store, "a")
        await delete(store, "b")
        await put(store, _full("b", 2))
        done = await store.forget(["a", "b", "c", "never"], "tester", None, only_deleted=True)
        assert (done.records, done.versions) == (1, 1)
        assert await store.history("a", None) == []
        assert set(await find_ids(store)) == {"b", "c"}
        assert (await store.history("b", None))[0].rev == 3
        again = await store.forget(["a", "b", "c"], "tester", None, only_deleted=True)
        assert (again.records, again.seq) == (0, done.seq)

    async def test_what_is_not_there_is_no_error(self, store: Backend) -> None:
        await put(store, _full("b", 1))
        before = await store.last_seq()
        for ids in (["a", "never"], []):
            done = await store.forget(ids, "tester", None)
            assert (done.seq, done.records, done.versions, done.erased) == (before, 0, 0, True)
        assert await store.last_seq() == before
        assert (await store.forget(["a", "b", "b"], "tester", None)).records == 1

    async def test_a_new_record_of_the_same_id_starts_afresh(self, store: Backend) -> None:
        first = await put(store, _full("a", 1), _full("b", 1))
        await put(store, _full("a", 2))
        await store.forget(["a"], "tester", None)
        again = await put(store, _full("a", 3))
        assert again.written[0].rev == 3
        assert [version.rev for version in await store.history("a", None)] == [3]
        await put(store, _full("a", 4))
        for as_of in (first.seq, first.seq + 1, first.seq + 2):
            assert await store.get("a", as_of) is None
            assert await find_ids(store, as_of=as_of) == ["b"]
        stored = await store.get("a", again.seq)
        assert stored is not None
        assert stored.data == {"n": 3}

    async def test_a_retry_does_not_bring_it_back(self, store: Backend) -> None:
        work = Commit([Put(_full("a", 1))], key="k")
        await store.commit(work, STORED)
        await store.forget(["a"], "tester", None)
        await expect_error("key_reused", store.commit(work, STORED))
        assert await store.get("a") is None
        assert await store.outcome("k") is not None

    async def test_records_with_the_same_names_are_untouched(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("n",)))
        await put(store, *(_full(f"a{n}", n % 3) for n in range(30)))
        await store.forget([f"a{n}" for n in range(0, 30, 2)], "tester", None)
        left = {f"a{n}" for n in range(1, 30, 2)}
        for query in (*QUERIES[:7], QUERIES[8]):
            assert set(await find_ids(store, query)) == left, query
        await put(store, _full("a0", 2))
        for query in QUERIES:
            assert "a0" in await find_ids(store, query), query

    async def test_it_works_while_an_index_is_being_replaced(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("n",)))
        await put(store, _full("a1", 2), _full("a2", 2))
        await store.declare(Declaration("note", 2, indexes=("n",)))
        await store.forget(["a1"], "tester", None)
        for query in QUERIES:
            assert await find_ids(store, query) == ["a2"], query

    async def test_an_owned_record_is_forgotten_only_by_its_room(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, owner="room"))
        await commit(store, Put(_full("a", 1)), room="room")
        await commit(store, Put(typed_record("b", schema="free")))
        await expect_error("denied", store.forget(["b", "a"], "tester", None))
        await expect_error("denied", store.forget(["a"], "tester", "other"))
        assert await find_ids(store) == ["b", "a"]
        assert (await store.forget(["a", "b"], "tester", "room")).records == 2

    async def test_the_last_record_of_a_schema_can_go_and_come_back(self, store: Backend) -> None:
        await put(store, _full("a", 1))
        await store.forget(["a"], "tester", None)
        assert await find_ids(store) == []
        await commit(store, Put(_full("a", 2)), Put(_full("b", 2)))
        for query in QUERIES[:6]:
            assert await find_ids(store, query) == ["b", "a"], query
        await commit(store, Delete("a"), Delete("b"))
        assert await find_ids(store) == []
