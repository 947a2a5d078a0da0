"""Errors: bad input gets one of ours, with a code and a message, and nothing is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from dgent.errors import InputError
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import (
    Backend,
    Check,
    Commit,
    Declaration,
    Delete,
    Guard,
    Keep,
    Put,
    Shaped,
    StoredView,
)
from dgent.testing.contract import (
    DAY,
    STORED,
    Contract,
    commit,
    everything,
    expect_error,
    find_ids,
    put,
    record,
    typed_record,
)

HALF = "\ud800"  # half of a surrogate pair: a text that is not valid Unicode
NAN = float("nan")
TEXTS: list[Any] = ["", "a\0b", HALF, 5, None, b"a", ["a"], "x" * 513]
NAMES: list[Any] = [*TEXTS[:-1], "x" * 257]


def _nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


BAD: dict[str, list[dict[str, Any]]] = {
    "id": [{"id": text} for text in TEXTS if text is not None],
    "data": [{"data": value} for value in ([], "x", 5, object())],
    "created_at": [
        {"created_at": moment}
        for moment in (
            datetime(2026, 1, 1),
            5,
            "2026",
            datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
            datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=12))),
        )
    ],
    "content": [{"content": value} for value in ("text", None, [1])],
    "tags": [
        {"tags": tags} for tags in ("text", {"a", 5}, {""}, {HALF}, {"x" * 257}, set(map(str, range(65))))
    ],
    "author": [{"author": text} for text in NAMES if text is not None],
    "source": [{"source": text} for text in NAMES if text is not None],
    "schema": [{"schema": text, "schema_version": 1} for text in NAMES if text is not None],
    "parent_id": [{"parent_id": text} for text in TEXTS if text is not None],
    "schema_version": [{"schema": "s", "schema_version": v} for v in (None, 0, -1, "1", True, 1.0, 2**31)],
    "values": [
        {"data": {"v": value}}
        for value in (NAN, -NAN, 2**63, -(2**63) - 1, 1e999, HALF, {1: 2}, {HALF: 1}, object(), _nest(70))
    ],
    "extra": [{"extra": value} for value in ({"v": object()}, {"v": NAN}, {1: 2}, {"v": HALF}, [1])],
}


class ErrorContract(Contract):
    """Wrong input is refused, by every engine alike."""

    @pytest.fixture
    async def one_record(self, store: Backend) -> Backend:
        """Return a store with one record, which must not change."""
        await put(store, typed_record("kept", 1))
        return store

    @pytest.mark.parametrize("field", BAD)
    async def test_a_datum_that_cannot_be_stored_is_refused(self, one_record: Backend, field: str) -> None:
        before = await everything(one_record, ["kept", "a", "b"])
        for fields in BAD[field]:
            bad = Datum(**{"id": "a", "created_at": DAY, **fields})
            error = await expect_error("input", commit(one_record, Put(record("b")), Put(bad)))
            assert isinstance(error, InputError)
            assert isinstance(error, ValueError)
        assert await everything(one_record, ["kept", "a", "b"]) == before

    async def test_a_commit_that_makes_no_sense_is_refused(self, one_record: Backend) -> None:
        before = await everything(one_record, ["kept", "a"])
        op = Put(record("a"))
        odd_numbers: list[Any] = [-1, 1.5, "2", True, "dead"]
        sinces: list[Any] = [-1, None, "1", 2**63]
        no_map: Any = [1]
        odd: list[dict[str, Any]] = [
            *({"ops": [Put(record("a"), expect=expect)]} for expect in odd_numbers),
            *({"ops": [Delete(id)]} for id in TEXTS),
            *({"ops": [Check(id)]} for id in TEXTS),
            *({"ops": ops} for ops in (["a"], [None], [record("a")], None, 5)),
            *({"key": key} for key in TEXTS if key is not None),
            *({"author": author} for author in NAMES),
            *({"note": note} for note in (5, HALF, b"note", "a\0b")),
            *({"kind": kind} for kind in ("other", None, 0)),
            *({"of_seq": seq} for seq in ("1", 1.5, 2**63)),
            *({"guard": Guard(since)} for since in sinces),
            {"ops": [Put(typed_record("a"), indexed=Shaped(2, {"n": 2**70}))]},
            {"ops": [Put(typed_record("a"), indexed=no_map)]},
        ]
        await one_record.declare(Declaration("note", 2, indexes=("n",)))
        for fields in odd:
            made: Any = {"ops": [op], **fields}
            await expect_error("input", one_record.commit(Commit(**made), STORED))
        assert await everything(one_record, ["kept", "a"]) == before

    async def test_reads_with_bad_arguments_are_refused(self, one_record: Backend) -> None:
        any_: Any = one_record
        for id in TEXTS:
            for call in (any_.get, lambda id: any_.get_many(["kept", id]), lambda id: any_.get(id, 1)):
                await expect_error("input", call(id))
            await expect_error("input", any_.history(id, None))
            await expect_error("input", any_.referrers(id, None))
            await expect_error("input", any_.outcome(id))
        seqs: list[Any] = [-1, "1", 1.5, True, 2**63]
        for seq in seqs:
            await expect_error("input", any_.get("kept", seq))
            await expect_error("input", any_.get_many(["kept"], seq))
            await expect_error("input", any_.query(Query(), STORED, seq))
            await expect_error("input", any_.count(Query(), STORED, seq))
            await expect_error("input", any_.changes(seq, 10))
            await expect_error("input", any_.states_before(seq))
            await expect_error("input", any_.wait(seq, 0))
            await expect_error("input", any_.validate(Guard(seq), STORED))
        for limit in (0, -1, "1", True, 2**63):
            await expect_error("input", any_.changes(0, limit))
            await expect_error("input", any_.history("kept", limit))
            await expect_error("input", any_.referrers("kept", limit))
        for moment in (datetime(2026, 1, 1), None, "2026", 5):
            await expect_error("input", any_.seq_at(moment))
        for call in (any_.get_many, lambda ids: any_.forget(ids, "tester", None)):
            for ids in ("kept", None, 5, [None], ["kept", ""]):
                await expect_error("input", call(ids))
        assert await find_ids(one_record) == ["kept"]

    async def test_upkeep_with_bad_arguments_is_refused(self, one_record: Backend) -> None:
        any_: Any = one_record
        for name in NAMES:
            await expect_error("schema", any_.declare(Declaration(name, 1)))
            await expect_error("input", any_.versions(name))
            if name != "":  # records without a schema have texts to index
                await expect_error("input", any_.fill(name, STORED))
            await expect_error("input", any_.drop_index(name, "n"))
            await expect_error("input", any_.forget(["kept"], name, None))
        for path in ("", "a..b", ".", "a\\", HALF, 5, None, "x" * 600, ".".join("a" * 40)):
            for field in ("indexes", "refs"):
                await self._expect_refusal(one_record, version=1, **{field: (path,)})
        odd: list[dict[str, Any]] = [
            *({"version": version} for version in (0, -1, "1", None, True, 1.5, 2**31)),
            *({"history": history} for history in ("some", -1, None, 1.5, True)),
            *({"owner": owner} for owner in NAMES if owner is not None),
            *({"indexes": indexes} for indexes in ("n", 5, None)),
            {"feed": None},
        ]
        for fields in odd:
            await self._expect_refusal(one_record, **{"version": 1, **fields})
        for keep in (
            Keep(),
            Keep(versions=-1),
            Keep(versions="1"),  # type: ignore[arg-type]
            Keep(versions=True),
            Keep(after=datetime(2026, 1, 1)),
            Keep(after="2026"),  # type: ignore[arg-type]
            Keep(versions=1, schema=""),
        ):
            await expect_error("input", any_.compact(keep))
        stats = (await one_record.stats()).schemas
        assert [(schema.name, schema.indexes, schema.index_version) for schema in stats] == [("note", (), 0)]
        assert await find_ids(one_record) == ["kept"]

    async def _expect_refusal(self, store: Backend, **fields: Any) -> None:
        await expect_error("schema", store.declare(Declaration("note", **fields)))

    async def test_the_store_works_on_after_every_refusal(self, one_record: Backend) -> None:
        await expect_error("input", put(one_record, record("a", float("nan"))))
        await expect_error("version_conflict", commit(one_record, Delete("kept", 9)))
        await put(one_record, record("a", 1))
        assert await find_ids(one_record, until=datetime.now(UTC)) == ["a", "kept"]

    async def test_an_error_in_the_callers_view_harms_nobody_else(self, one_record: Backend) -> None:
        class RaisingView(StoredView):
            lazy = False

            def version(self, schema: str) -> int | None:
                return None

            def shape(self, datum: Datum) -> dict[str, Any]:
                raise RuntimeError("a bug in a migration step")

        query = Query(where={"n": 1})
        guard = Guard(0, queries=(query,))
        before = await everything(one_record, ["kept", "a"])
        with pytest.raises(RuntimeError):
            await one_record.query(query, RaisingView())
        with pytest.raises(RuntimeError):
            await commit(one_record, Put(record("a")), guard=guard, view=RaisingView())
        assert await everything(one_record, ["kept", "a"]) == before
        await put(one_record, record("a"))
        assert await find_ids(one_record) == ["a", "kept"]
