"""Records that expire: hidden from every read, found by a sweep, and there as of an earlier moment."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import LIVE, Backend, Check, Declaration, Delete, Put
from dgent.testing.contract import (
    STORED,
    Contract,
    check_queries,
    commit,
    delete,
    expect_all,
    expect_error,
    find_ids,
    put,
    record,
    typed_record,
)
from dgent.testing.query import ENVELOPE, RECORDS, WHERE

OVER = datetime(2020, 1, 1, tzinfo=UTC)
FAR = datetime(9999, 1, 1, tzinfo=UTC)


def _soon() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=0.3)


class ExpiryContract(Contract):
    """A record that has expired is not there, until someone puts it again."""

    async def test_no_read_shows_what_has_expired(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("n",), refs=("to",)))
        await put(store, record("top"), typed_record("kept", 1, expires_at=FAR, data={"n": 1, "to": "top"}))
        gone = typed_record("gone", 1, expires_at=OVER, parent_id="top", data={"n": 1, "to": "top"})
        await put(store, gone, record("below", parent_id="gone"))
        assert [await store.get("gone"), await store.get("gone", lazy=True)] == [None, None]
        assert [each and each.id for each in await store.get_many(["gone", "kept"])] == [None, "kept"]
        assert [each.id for each in await store.ancestors("below", 9)] == ["below"]
        assert [each.id for each in await store.referrers("top", 9)] == ["kept"]
        for query in (
            Query(schema="note"),
            Query(schema="note", where={"n": 1}),
            Query(schema="note", order_by="n"),
            Query(schema="note", order_by="updated_at"),
            Query(schema="note", order_by="seq", limit=1),
            Query(ids={"gone", "kept"}),
            Query(updated_since=OVER, schema="note"),
        ):
            assert await find_ids(store, query) == ["kept"], query
            assert await store.count(query, STORED) == 1, query
        for nothing in (Query(parent="top"), Query(prefix="gon"), Query(parents={"top"})):
            assert await find_ids(store, nothing) == [], nothing
        kept = await store.get("kept")
        assert kept is not None
        assert kept.expires_at == FAR

    async def test_queries_count_and_page_without_expired_records(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("n", "k")))
        mixed = [each.replace(expires_at=(OVER, FAR, None)[n % 3]) for n, each in enumerate(RECORDS)]
        for start in range(0, len(mixed), 100):
            await put(store, *mixed[start : start + 100])
        live = [each for each in mixed if each.expires_at != OVER]
        queries = [*ENVELOPE, *WHERE[::4], Query(order_by="k", limit=9), Query(schema="note", order_by="n")]
        await check_queries(store, expect_all(live, queries))
        gone = [each for each in mixed if each.expires_at == OVER]
        asked = [query.replace(expired=True) for query in queries[::3]]
        await check_queries(store, expect_all(gone, asked))

    async def test_a_swept_store_has_no_expired_records(self, store: Backend) -> None:
        await put(store, *(typed_record(f"a{n}", n, expires_at=OVER) for n in range(5)), record("b"))
        found = (await store.query(Query(expired=True, limit=3), STORED)).items
        assert len(found) == 3
        await commit(store, *(Delete(each.id, each.rev) for each in found))
        await delete(store, *await find_ids(store, expired=True))
        assert await find_ids(store, expired=True) == []
        assert await find_ids(store) == ["b"]
        assert len(await store.history("a1", None)) == 2

    async def test_a_record_that_is_put_again_lives_again(self, store: Backend) -> None:
        await put(store, typed_record("a", 1, expires_at=OVER), typed_record("b", 1, expires_at=OVER))
        await commit(store, Put(typed_record("a", 2), expect=0))
        await put(store, typed_record("b", 1, expires_at=FAR))
        assert await find_ids(store, schema="note", descending=False) == ["a", "b"]
        assert await find_ids(store, expired=True) == []
        await expect_error("version_conflict", commit(store, Put(typed_record("a", 3), expect=0)))
        await put(store, typed_record("a", 4, expires_at=OVER))
        await expect_error("version_conflict", commit(store, Check("a", LIVE)))

    async def test_an_earlier_moment_has_what_was_live_then(self, store: Backend) -> None:
        await put(store, typed_record("a", 1, expires_at=_soon()), typed_record("b", 1))
        then = await store.last_seq()
        await asyncio.sleep(0.35)
        assert [await find_ids(store), await store.get("a")] == [["b"], None]
        await put(store, typed_record("b", 2))
        assert sorted(await find_ids(store, as_of=then)) == ["a", "b"]
        assert await store.count(Query(schema="note"), STORED, then) == 2
        assert await store.get("a", then) is not None
        await put(store, typed_record("a", 2))
        assert sorted(await find_ids(store, as_of=then + 1)) == ["b"]

    async def test_a_time_that_is_none_is_kept_and_does_nothing(self, store: Backend) -> None:
        odd: list[Any] = ["soon", 5, None, "2020-01-01T00:00:00", {"a": 1}, "", "9" * 400]
        await put(store, *(record(f"a{n}", extra={"expires_at": each}) for n, each in enumerate(odd)))
        assert await store.count(Query(), STORED) == len(odd)
        found = await store.get_many([f"a{n}" for n in range(len(odd))])
        assert [each and (each.extra, each.expires_at) for each in found] == [
            ({"expires_at": each}, None) for each in odd
        ]
        assert await find_ids(store, expired=True) == []

    async def test_a_time_can_be_extended_in_place(self, store: Backend) -> None:
        extend: Any = getattr(store, "extend", None)
        if not getattr(store, "extends", False):
            return  # such an engine gets puts
        await put(store, typed_record("a", 1, expires_at=_soon()), typed_record("b", 1, expires_at=OVER))
        await put(store, typed_record("c", 1), typed_record("d", 1, expires_at=FAR))
        before = await store.changes(0, 100), await store.get("d")
        given = [
            ("a", 1, FAR),
            ("b", 1, FAR),
            ("c", 1, FAR),
            ("d", 1, _soon()),
            ("never", 1, FAR),
            ("a", 2, FAR),
        ]
        assert await extend(given) == 1
        await asyncio.sleep(0.35)
        assert sorted(await find_ids(store, schema="note")) == ["a", "c", "d"]
        assert await find_ids(store, expired=True) == ["b"]
        kept = await store.get("a")
        assert kept is not None
        assert [kept.rev, kept.expires_at] == [1, FAR]
        assert (len(await store.changes(0, 100)), await store.get("d")) == (len(before[0]), before[1])
        await put(store, typed_record("a", 2, expires_at=OVER))
        await delete(store, "a", "b")
        assert await find_ids(store, expired=True) == []

    async def test_a_reopened_store_knows_what_expires(self, store: Backend, backend: Any) -> None:
        await put(store, *_three())
        if not self.persistent:
            return
        await store.close()
        again: Backend = await backend()
        await again.open()
        try:
            assert [await find_ids(again), await find_ids(again, expired=True)] == [["b"], ["c", "a"]]
        finally:
            await again.close()


def _three() -> list[Datum]:
    return [
        typed_record("a", expires_at=OVER),
        typed_record("b", day=1, expires_at=FAR),
        record("c", day=2, expires_at=OVER),
    ]
