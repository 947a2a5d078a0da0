"""The order of updates comes from the log: few rows are read, and never many more than there are to sort."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Check, Keep, Put
from dgent.store.engine.kernel import IndexScan
from dgent.store.engine.row import Row
from dgent.store.memory.backend import MemoryBackend
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.testing.contract import STORED, commit, delete, expected_ids, find_ids, put, typed_record

SIZE = 3000


class Counting:
    """A kernel that counts the rows it gives out."""

    rows_read = 0
    calls = 0

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def walk(self, scan: IndexScan, descending: bool, content: bool) -> Any:
        for found in self._kernel.walk(scan, descending, content):
            Counting.rows_read += 1
            yield found

    def rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        found: list[Row] = self._kernel.rows(record_keys, content)
        Counting.rows_read += len(found)
        Counting.calls += 1
        return found


@pytest.fixture(params=["memory", "sqlite"])
async def store(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    path = str(tmp_path / "store.db")
    store = MemoryBackend(wrap=Counting) if request.param == "memory" else SQLiteBackend(path, wrap=Counting)
    await store.open()
    for first in range(0, SIZE, 500):
        some = range(first, first + 500)
        await put(store, *(_record(n, 0) for n in some))
    for n in range(0, SIZE, 30):
        await put(store, _record(n, 1))
    yield store
    await store.close()


def _record(n: int, value: int) -> Datum:
    schema, tags = "seldom" if n < 10 else "note", frozenset({f"t{n % 2}"})
    return typed_record(f"{n:04}", value, schema=schema, day=-n, tags=tags)


async def _records(store: Any) -> list[Datum]:
    return [datum for datum in await store.get_many([f"{n:04}" for n in range(SIZE)]) if datum is not None]


async def _count(store: Any, query: Query) -> int:
    """Return how many rows are read for a query, whose answer is checked."""
    wanted = expected_ids(await _records(store), query)
    Counting.rows_read = 0
    assert await find_ids(store, query) == wanted, query
    return Counting.rows_read


async def test_the_newest_updates_are_read_from_the_log(store: Any) -> None:
    newest = Query(schema="note", order_by="updated_at", limit=50)
    assert await _count(store, newest) <= 64
    assert await _count(store, newest.replace(schema=None)) <= 64
    assert await _count(store, newest.replace(tags=frozenset({"t0"}), where={"n": 1})) <= 110
    assert await _count(store, newest.replace(limit=10, descending=False)) <= 600
    Counting.calls = 0
    page = await store.query(newest, STORED)
    assert Counting.calls == 1, "each is a round trip on Postgres"
    assert await _count(store, newest.replace(offset=50)) <= 330
    Counting.rows_read = 0
    following = await store.query(newest.replace(cursor=page.cursor), STORED)
    assert [datum.id for datum in following.items] == expected_ids(
        await _records(store), newest.replace(offset=50)
    )
    assert Counting.rows_read <= 330


async def test_only_what_wrote_a_version_is_an_update(store: Any) -> None:
    newest = Query(order_by="updated_at", limit=5)
    before = await find_ids(store, newest)
    await commit(store, Put(_record(50, 0)), Check("0051"), key="k")
    assert await find_ids(store, newest) == before
    await delete(store, before[0])
    await commit(store, Put(_record(50, 0)), Put(_record(51, 1)), key="other")
    await _count(store, newest)
    assert await find_ids(store, newest) == ["0051", *before[1:]]


async def test_few_records_are_sorted_instead(store: Any) -> None:
    assert await _count(store, Query(schema="seldom", order_by="updated_at", limit=5)) == 10
    assert await _count(store, Query(prefix="000", order_by="updated_at", limit=5)) == 0, "ids are walked"


async def test_a_walk_that_finds_nothing_ends_early(store: Any) -> None:
    never = Query(schema="note", order_by="updated_at", limit=5, where={"n": 7})
    assert await _count(store, never) < 2 * SIZE
    odd = never.replace(tags=frozenset({"t1"}))
    assert await _count(store, odd) < 2 * SIZE


async def test_what_was_updated_since_is_read_from_the_log(store: Any) -> None:
    records = await _records(store)
    since = sorted(datum.updated_at for datum in records if datum.updated_at is not None)[-20]
    for query in (
        Query(updated_since=since),
        Query(updated_since=since, limit=None),
        Query(updated_since=since, order_by="n", limit=5),
        Query(updated_since=since, order_by="updated_at", descending=False, limit=5),
    ):
        assert await _count(store, query) <= 20
    Counting.rows_read = 0
    assert await store.count(Query(updated_since=since, schema="note"), STORED) == 20
    assert Counting.rows_read <= 20


async def test_without_a_log_the_rest_is_sorted(store: Any) -> None:
    await store.compact(Keep(versions=0))
    await put(store, _record(77, 2), _record(78, 2))
    newest = Query(schema="note", order_by="updated_at", limit=2)
    assert await _count(store, newest) <= SIZE
    assert await _count(store, newest.replace(limit=1)) == 2
    assert await _count(store, newest.replace(limit=20)) <= SIZE + 2
    assert await _count(store, newest.replace(limit=20, descending=False)) <= SIZE
