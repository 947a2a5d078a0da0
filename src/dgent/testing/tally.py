"""Distinct values and tags with counts: the same from an index as from the records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Declaration
from dgent.store.tally import Tally, count_records
from dgent.testing.contract import DAY, STORED, Contract, delete, put, typed_record
from dgent.testing.query import RECORDS

PATHS = ("n", "deep.list.*", "deep", None)
LONG = "x" * 200
QUERIES = (
    Query(schema="note"),
    Query(schema="note", where={"k": {"$gte": 2}}),
    Query(schema="note", tags=frozenset({"t1"}), limit=1, offset=7),
    Query(schema="note", ids={each.id for each in RECORDS[:40]}),
    Query(schema="never"),
)


def _work_out(records: Sequence[Datum], tally: Tally) -> list[tuple[object, int]]:
    query = tally.everything()
    oldest = sorted(enumerate(records), key=lambda each: (each[1].created_at, each[0]))
    return count_records(tally, STORED, [datum for _, datum in oldest if query.matches(datum)])


async def _check(store: Backend, records: Sequence[Datum]) -> None:
    for query in QUERIES:
        for path in PATHS:
            for prefix, limit in ((None, None), ("a", 3), (LONG[:150], 2)):
                tally = Tally(query, path, prefix, limit)
                assert await store.tally(tally, STORED) == _work_out(records, tally), tally


class TallyContract(Contract):
    """Count distinct values of fields, and tags."""

    @pytest.mark.parametrize(
        "indexes", [(), ("n", "k", "deep.list.*", "deep.list")], ids=["plain", "indexed"]
    )
    async def test_values_and_tags_are_those_of_the_records(
        self, store: Backend, indexes: tuple[str, ...]
    ) -> None:
        await store.declare(Declaration("note", 1, indexes=indexes))
        records = [*RECORDS, *(typed_record(f"l{n}", LONG + str(n % 3), day=n) for n in range(9))]
        for start in range(0, len(records), 150):
            await put(store, *records[start : start + 150])
        await _check(store, records)
        changed = [each.replace(data={"n": "abc"}, tags=frozenset({"new"})) for each in records[::5]]
        await put(store, *changed)
        gone = [each.id for each in records[1::5]]
        await delete(store, *gone)
        by_id = {each.id: each for each in changed}
        left = [by_id.get(each.id, each) for each in records if each.id not in set(gone)]
        await _check(store, left)
        every = Tally(Query(), None)
        assert await store.tally(every, STORED) == _work_out(left, every)

    async def test_an_earlier_moment_and_expired_records(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("n",)))
        first = await put(store, typed_record("a", 1, tags=frozenset({"t"})), typed_record("b", 2))
        await put(store, typed_record("a", 2), typed_record("c", 9, expires_at=DAY, tags=frozenset({"gone"})))
        values, tags = Tally(Query(schema="note"), "n"), Tally(Query(schema="note"), None)
        assert await store.tally(values, STORED) == [(2, 2)]
        assert await store.tally(tags, STORED) == []
        assert await store.tally(values, STORED, first.seq) == [(1, 1), (2, 1)]
        assert await store.tally(tags, STORED, first.seq) == [("t", 1)]
