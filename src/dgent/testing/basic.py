"""Put, get and delete: what goes in comes out, and nothing else does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Check, Delete, Put, StoredView, Written
from dgent.testing.contract import (
    DAY,
    STORED,
    Contract,
    commit,
    delete,
    everything,
    find_ids,
    put,
    record,
    stored_fields,
    typed_record,
)

VALUES: dict[str, Any] = {
    "empty": {},
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "negative zero": -0.0,
    "one": 1,
    "one as float": 1.0,
    "exponent": 1e2,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "int64 low": -(2**63),
    "int64 high": 2**63 - 1,
    "beyond 53 bits": 2**53 + 1,
    "nul": "a\0b",
    "quotes": "'\"\\%_;--",
    "accents apart": "e\u0301",
    "accents joined": "\u00e9",
    "last character": "\U0010ffff",
    "list": [1, [2, [3, []]], {"a": None}],
    "map": {"a.b": {"": 1}, "$gt": 2, "\0": 3},
    "long": "x" * 100_000,
}

FULL = Datum(
    id="a/b c",
    created_at=datetime(1969, 7, 20, 20, 17, 40, 123456, tzinfo=UTC),
    data={"title": "moon", "n": 1},
    content=bytes(range(256)) * 3,
    tags=frozenset({"x", "ü", "a b"}),
    author="ann",
    source="radio",
    parent_id="apollo",
    schema="log.entry",
    schema_version=7,
    extra={"from": {"newer": [1, 2.0, None]}},
)

CHANGES: dict[str, dict[str, Any]] = {
    "another value": {"data": {"title": "moon", "n": 2}},
    "a float for an int": {"data": {"title": "moon", "n": 1.0}},
    "a bool for an int": {"data": {"title": "moon", "n": True}},
    "one more key": {"data": {"title": "moon", "n": 1, "m": None}},
    "no data": {"data": {}},
    "other content": {"content": b"d"},
    "no content": {"content": b""},
    "one more tag": {"tags": FULL.tags | {"v"}},
    "no tags": {"tags": frozenset()},
    "another author": {"author": "bob"},
    "another source": {"source": "television"},
    "no source": {"source": None},
    "another parent": {"parent_id": "gemini"},
    "no parent": {"parent_id": None},
    "another schema": {"schema": "log.other"},
    "a newer version": {"schema_version": 8},
    "other unknown fields": {"extra": {"e": 2}},
    "no unknown fields": {"extra": None},
}

IDS = ["a", "A", "a ", " a", "aa", "e\u0301", "\u00e9", "a\nb", " ", "%", "_", "\\", "5", "05", "5.0"]
IDS += ["x" * 511, "x" * 512, "\ud7ff", "\U0010ffff"]


class BasicContract(Contract):
    """Records go in and come out unchanged."""

    async def test_a_record_comes_back_as_it_was(self, store: Backend) -> None:
        answer = await put(store, FULL)
        (written,) = answer.written
        assert written == Written(FULL.id, 1, answer.seq, True, written.at_us)
        assert await store.get(FULL.id) == FULL.replace(**stored_fields(written))

    async def test_a_record_read_lazily_is_the_same(self, store: Backend) -> None:
        class Lazy(StoredView):
            lazy = True

        await put(store, FULL, record("plain", [1, {"a": None}]), typed_record("typed", 1))
        for id in (FULL.id, "plain", "typed"):
            lazily, at_once = await store.get(id, lazy=True), await store.get(id)
            assert lazily is not None
            assert at_once is not None
            assert lazily == at_once
            assert repr(lazily.data) == repr(at_once.data)
        for query in (Query(), Query(limit=1), Query(schema="note"), Query(where={"n": 1})):
            page = await store.query(query, Lazy())
            assert page.items == (await store.query(query, STORED)).items
            assert all(datum.data for datum in page.items)

    async def test_the_least_record_comes_back(self, store: Backend) -> None:
        least = Datum(id="a", created_at=DAY)
        answer = await put(store, least, author="bob")
        assert await store.get("a") == least.replace(**stored_fields(answer.written[0]), author="bob")

    async def test_every_kind_of_value_comes_back(self, store: Backend) -> None:
        await put(store, *(record(kind, value) for kind, value in VALUES.items()))
        for kind, value in VALUES.items():
            stored = await store.get(kind)
            assert stored is not None
            assert repr(stored.data) == repr({"n": value}), kind

    async def test_the_order_of_keys_is_kept(self, store: Backend) -> None:
        await put(store, record("a", data={"z": 1, "a": 2, "m": {"y": 1, "b": 2}}))
        stored = await store.get("a")
        assert stored is not None
        assert list(stored.data) == ["z", "a", "m"]
        assert list(stored.data["m"]) == ["y", "b"]

    async def test_times_keep_their_moment_and_become_utc(self, store: Backend) -> None:
        there = timezone(timedelta(hours=5, minutes=45))
        moments = {
            "first": datetime(1, 1, 1, tzinfo=UTC),
            "last": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            "away": datetime(2026, 5, 5, 0, 0, 0, 1, tzinfo=there),
        }
        await put(store, *(Datum(id=id, created_at=moment) for id, moment in moments.items()))
        for id, moment in moments.items():
            stored = await store.get(id)
            assert stored is not None
            assert stored.created_at == moment
            assert stored.created_at.utcoffset() == timedelta(0)

    async def test_ids_are_exact(self, store: Backend) -> None:
        for place, id in enumerate(IDS):
            assert await store.get(id) is None, ascii(id)
            await put(store, record(id, place))
        for place, id in enumerate(IDS):
            stored = await store.get(id)
            assert stored is not None
            assert (stored.id, stored.data, stored.rev) == (id, {"n": place}, 1)
        assert await store.count(Query(), STORED) == len(IDS)

    async def test_get_many_answers_in_the_order_asked(self, store: Backend) -> None:
        await put(store, *(record(f"r{n}", n) for n in range(60)))
        for wanted in (["r3", "none", "r1", "r3"], [f"r{n}" for n in reversed(range(60))], []):
            answers = await store.get_many(wanted)
            assert [answer.id if answer else "none" for answer in answers] == wanted

    async def test_get_many_sees_one_moment_in_the_past(self, store: Backend) -> None:
        first = await put(store, record("a", 1), record("b", 1))
        await put(store, record("a", 2))
        await delete(store, "b")
        answers = await store.get_many(["a", "b", "c"], first.seq)
        assert [answer.data["n"] if answer else None for answer in answers] == [1, 1, None]

    async def test_a_delete_removes_the_record_from_every_read(self, store: Backend) -> None:
        await put(store, typed_record("a", tags=frozenset({"t"}), parent_id="p", source="s"), record("b"))
        answer = await delete(store, "a")
        (written,) = answer.written
        assert written == Written("a", 2, answer.seq, True, written.at_us)
        assert await store.get("a") is None
        assert await store.get_many(["a", "b"]) == [None, await store.get("b")]
        for query in (
            Query(),
            Query(schema="note"),
            Query(tags=frozenset({"t"})),
            Query(any_tags=frozenset({"t"})),
            Query(parent="p"),
            Query(source="s"),
            Query(prefix="a"),
        ):
            assert "a" not in await find_ids(store, query)
            assert await store.count(query, STORED) == len(await find_ids(store, query))

    async def test_deleting_what_is_not_there_changes_nothing(self, store: Backend) -> None:
        await put(store, record("a"))
        await delete(store, "a")
        before = await everything(store, ["a", "b"])
        answer = await delete(store, "a", "b")
        assert [(written.id, written.changed) for written in answer.written] == [("a", False), ("b", False)]
        assert await everything(store, ["a", "b"]) == before

    async def test_putting_the_same_again_changes_nothing(self, store: Backend) -> None:
        same = typed_record(
            "a", data={"x": 1, "y": [1, 2]}, content=b"c", tags=frozenset({"t", "u"}), extra={"e": 1, "f": 2}
        )
        first = await put(store, same)
        before = await everything(store, ["a"])
        for again in (
            same,
            same.replace(data={"y": [1, 2], "x": 1}),
            same.replace(created_at=DAY + timedelta(days=5)),
            same.replace(rev=17, seq=99, updated_at=DAY),
            same.replace(extra={"f": 2, "e": 1}),
        ):
            answer = await put(store, again)
            assert answer.written == (Written("a", 1, first.seq, False, first.written[0].at_us),)
        assert await everything(store, ["a"]) == before

    async def test_any_other_field_makes_a_new_version(self, store: Backend) -> None:
        for what, change in CHANGES.items():
            await put(store, FULL.replace(id=what))
            other = FULL.replace(id=what, **change)
            answer = await put(store, other)
            (written,) = answer.written
            assert written == Written(what, 2, answer.seq, True, written.at_us)
            assert await store.get(what) == other.replace(**stored_fields(written))

    async def test_one_commit_may_put_delete_and_check(self, store: Backend) -> None:
        await put(store, record("a"), record("b"), record("c"))
        answer = await commit(store, Put(record("a", 1)), Delete("b"), Check("c"), Put(record("d")))
        assert [(w.id, w.rev, w.changed) for w in answer.written] == [
            ("a", 2, True),
            ("b", 2, True),
            ("c", 1, False),
            ("d", 1, True),
        ]
        assert [d.id if d else None for d in await store.get_many(["a", "b", "c", "d"])] == [
            "a",
            None,
            "c",
            "d",
        ]

    async def test_an_empty_commit_is_fine_and_does_nothing(self, store: Backend) -> None:
        first = await put(store, record("a"))
        answer = await commit(store)
        assert (answer.seq, answer.written) == (first.seq, ())

    async def test_one_large_commit_is_one_seq(self, store: Backend) -> None:
        many = [typed_record(f"r{n:05}", n, day=n, tags=frozenset({f"t{n % 7}"})) for n in range(3000)]
        answer = await put(store, *many)
        assert {written.seq for written in answer.written} == {answer.seq}
        assert await store.count(Query(schema="note"), STORED) == 3000
        assert await store.count(Query(tags=frozenset({"t3"})), STORED) == 429
        assert await find_ids(store, limit=2) == ["r02999", "r02998"]

    async def test_what_is_given_out_is_not_what_is_kept(self, store: Backend) -> None:
        mine: dict[str, Any] = {"list": [1]}
        await put(store, record("a", data=mine))
        mine["list"].append(2)
        stored = await store.get("a")
        assert stored is not None
        stored.data["list"].append(3)
        again = await store.get("a")
        assert again is not None
        assert again.data == {"list": [1]}
