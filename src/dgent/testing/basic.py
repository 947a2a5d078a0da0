"""Put, get and delete: what goes in comes out, and nothing else does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Check, Delete, Put, Written
from dgent.testing.contract import DAY, STORED, Contract, commit, delete, everything, found, put, record, typed

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


class BasicContract(Contract):
    """Records go in and come out unchanged."""

    async def test_a_record_comes_back_as_it_was(self, store: Backend) -> None:
        full = Datum(
            id="a/b c",
            created_at=datetime(1969, 7, 20, 20, 17, 40, 123456, tzinfo=UTC),
            data={"title": "moon", "n": 11},
            content=bytes(range(256)) * 3,
            tags=frozenset({"x", "ü", "a b"}),
            author="ann",
            source="radio",
            parent_id="apollo",
            schema="log.entry",
            schema_version=7,
            extra={"from": {"newer": [1, 2.0, None]}},
        )
        answer = await put(store, full)
        assert answer.written == (Written("a/b c", 1, answer.seq, True),)
        assert await store.get("a/b c") == full.replace(rev=1, seq=answer.seq)

    async def test_the_least_record_comes_back(self, store: Backend) -> None:
        least = Datum(id="a", created_at=DAY)
        answer = await put(store, least, author="bob")
        assert await store.get("a") == least.replace(rev=1, seq=answer.seq, author="bob")

    @pytest.mark.parametrize("kind", VALUES)
    async def test_every_kind_of_value_comes_back(self, store: Backend, kind: str) -> None:
        await put(store, record("a", VALUES[kind]))
        stored = await store.get("a")
        assert stored is not None
        value = stored.data["n"]
        assert (type(value), repr(value)) == (type(VALUES[kind]), repr(VALUES[kind]))

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

    @pytest.mark.parametrize("id", ["a", "A", "é", "é", "a\nb", " ", "%", "_", "x" * 512, "\U0010ffff"])
    async def test_ids_are_exact(self, store: Backend, id: str) -> None:
        near = [other for other in ("a", "A", "b", "é", "é", "a ", " a", "aa", "x" * 511) if other != id]
        await put(store, *(record(other, other) for other in dict.fromkeys(near)))
        assert await store.get(id) is None
        await put(store, record(id, "here"))
        stored = await store.get(id)
        assert stored is not None
        assert (stored.id, stored.data) == (id, {"n": "here"})
        assert await store.count(Query(), STORED) == len(set(near)) + 1

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
        await put(store, typed("a", tags=frozenset({"t"}), parent_id="p", source="s"), record("b"))
        answer = await delete(store, "a")
        assert answer.written == (Written("a", 2, answer.seq, True),)
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
            assert "a" not in await found(store, query)
            assert await store.count(query, STORED) == len(await found(store, query))

    async def test_deleting_what_is_not_there_changes_nothing(self, store: Backend) -> None:
        await put(store, record("a"))
        await delete(store, "a")
        before = await everything(store, ["a", "b"])
        answer = await delete(store, "a", "b")
        assert [(written.id, written.changed) for written in answer.written] == [("a", False), ("b", False)]
        assert await everything(store, ["a", "b"]) == before

    async def test_putting_the_same_again_changes_nothing(self, store: Backend) -> None:
        same = typed("a", data={"x": 1, "y": [1, 2]}, content=b"c", tags=frozenset({"t", "u"}), extra={"e": 1, "f": 2})
        first = await put(store, same)
        before = await everything(store, ["a"])
        for again in (
            same,
            same.replace(data={"y": [1, 2], "x": 1}),
            same.replace(created_at=DAY + timedelta(days=5)),
            same.replace(rev=17, seq=99),
            same.replace(extra={"f": 2, "e": 1}),
        ):
            answer = await put(store, again)
            assert answer.written == (Written("a", 1, first.seq, False),)
        assert await everything(store, ["a"]) == before

    @pytest.mark.parametrize(
        "change",
        [
            {"data": {"n": 2}},
            {"data": {"n": 1.0}},
            {"data": {"n": True}},
            {"data": {"n": 1, "m": None}},
            {"data": {}},
            {"content": b"d"},
            {"content": b""},
            {"tags": frozenset({"t", "v"})},
            {"tags": frozenset()},
            {"author": "other"},
            {"source": "other"},
            {"source": None},
            {"parent_id": "other"},
            {"parent_id": None},
            {"schema": "other"},
            {"schema_version": 3},
            {"extra": {"e": 2}},
            {"extra": None},
        ],
        ids=str,
    )
    async def test_any_other_field_makes_a_new_version(self, store: Backend, change: dict[str, Any]) -> None:
        one = typed(
            "a", 1, version=2, content=b"c", tags=frozenset({"t"}), author="ann", source="s", parent_id="p",
            extra={"e": 1},
        )  # fmt: skip
        await put(store, one)
        answer = await put(store, one.replace(**change))
        assert answer.written[0].changed
        assert answer.written[0].rev == 2
        assert await store.get("a") == one.replace(**change, rev=2, seq=answer.seq)

    async def test_one_commit_may_put_delete_and_check(self, store: Backend) -> None:
        await put(store, record("a"), record("b"), record("c"))
        answer = await commit(store, Put(record("a", 1)), Delete("b"), Check("c"), Put(record("d")))
        assert [(w.id, w.rev, w.changed) for w in answer.written] == [
            ("a", 2, True),
            ("b", 2, True),
            ("c", 1, False),
            ("d", 1, True),
        ]
        assert [d.id if d else None for d in await store.get_many(["a", "b", "c", "d"])] == ["a", None, "c", "d"]

    async def test_an_empty_commit_is_fine_and_does_nothing(self, store: Backend) -> None:
        first = await put(store, record("a"))
        answer = await commit(store)
        assert (answer.seq, answer.written) == (first.seq, ())

    async def test_one_large_commit_is_one_seq(self, store: Backend) -> None:
        many = [typed(f"r{n:05}", n, day=n, tags=frozenset({f"t{n % 7}"})) for n in range(3000)]
        answer = await put(store, *many)
        assert {written.seq for written in answer.written} == {answer.seq}
        assert await store.count(Query(schema="note"), STORED) == 3000
        assert await store.count(Query(tags=frozenset({"t3"})), STORED) == 429
        assert await found(store, limit=2) == ["r02999", "r02998"]

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
