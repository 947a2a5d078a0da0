"""Plans: the usual page is planned as weighing all ways would, and a far page reads no more than it shows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dgent import Query
from dgent.store.backend import STORED, Declaration, Page, View
from dgent.store.engine import plan as planning
from dgent.store.engine import read
from dgent.store.engine.kernel import Reading
from dgent.store.memory.backend import MemoryBackend
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.testing.contract import Steps, put, typed_record

TAGS = ["", "a", "gone"]
FIELDS: list[dict[str, Any] | None] = [
    None,
    {"n": 1},
    {"n": 1.5},
    {"n": "x" * 300},
    {"third": 3},
    {"other": 1},
    {"n": {"$gt": 0}},
    {"n": 1, "m": 2},
]
MOMENT = datetime(2024, 1, 2, tzinfo=UTC)


async def plans(reading_work: Any, versions: tuple[int, ...]) -> Any:
    store = MemoryBackend()
    await store.open()
    try:
        for version in versions:
            await store.declare(Declaration("note", version, ("n", "m", "third"), (), "all", True, None, ""))
            await put(
                store, *[typed_record(f"{version}-{i}", i, version=version, tags={"a"}) for i in range(5)]
            )
        return await store._read(reading_work)
    finally:
        await store.close()


@pytest.mark.parametrize("versions", [(1,), (1, 2)])
async def test_direct_and_weighed_agree(versions: tuple[int, ...]) -> None:
    queries = [
        Query(schema="note", tags={tag} if tag else frozenset(), where=where, since=since)
        for tag, where, since in itertools.product(TAGS, FIELDS, [None, MOMENT])
    ]

    def work(reading: Reading) -> int:
        state = reading.state("note")
        assert state is not None
        direct = 0
        views: list[View] = [STORED, Steps(1), Steps(2)]
        for query, view in itertools.product(queries, views):
            planned = planning._direct_plan(reading, query, view, state)
            if planned is not None:
                direct += 1
                assert planned == planning._Planner(reading, query, view, state).plan(), query
        return direct

    assert await plans(work, versions) >= 3 * 2 * 3, "the usual pages are planned directly"


class Counting:
    """A kernel that counts the rows it gives out."""

    rows = 0

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def walk(self, *asked: Any) -> Iterator[Any]:
        for found in self._kernel.walk(*asked):
            Counting.rows += 1
            yield found

    def fetch(self, *asked: Any) -> Any:
        found = self._kernel.fetch(*asked)
        Counting.rows += len(found)
        return found


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("engine", ["memory", "sqlite"])
async def test_a_far_page_reads_only_its_own_rows(tmp_path: Path, engine: str, descending: bool) -> None:
    path = str(tmp_path / "store.db")
    store = MemoryBackend(wrap=Counting) if engine == "memory" else SQLiteBackend(path, wrap=Counting)
    await store.open()
    try:
        await put(store, *[typed_record(f"{n:05}", n, tags={"a"}) for n in range(12_000)])
        for query in (Query(schema="note"), Query(schema="note", tags={"a"})):
            page = query.replace(offset=11_000, limit=5, descending=descending)
            Counting.rows = 0
            found = [datum.id for datum in (await store.query(page, STORED)).items]
            assert found == [f"{11_999 - 11_000 - n if descending else 11_000 + n:05}" for n in range(5)]
            assert Counting.rows == 6  # one more tells that there is a next page
    finally:
        await store.close()


async def test_a_plan_goes_along_while_nothing_was_committed() -> None:
    store = MemoryBackend(wrap=Planning)
    await store.open()
    try:
        await put(store, *[typed_record(f"a{n}", n, tags={"a"}) for n in range(300)])
        query = Query(schema="note", any_tags={"a", "b"}, author="system", limit=None)

        def ask(planned: Any) -> list[str]:
            page = store._read_now(
                lambda reading: read.query(reading, query, STORED, None, store.epoch, planned)
            )
            return [datum.id for datum in page.items]

        planned = store._read_now(lambda reading: read.try_query(reading, query, STORED, store.epoch, 100))
        assert isinstance(planned, read.Planned), "it reads too many rows for the loop"
        Planning.asked = 0
        assert len(ask(planned)) == 300 and Planning.asked == 0, "the indexes are not compared again"
        # An index that nobody could plan with: this is the first record in it.
        await put(store, typed_record("b", tags={"b"}))
        assert set(ask(planned)) >= {"b"} and Planning.asked > 0
        planned = store._read_now(lambda reading: read.try_query(reading, query, STORED, store.epoch, 100))
        await store.declare(Declaration("note", 1, ("n",)))
        Planning.asked = 0
        assert len(ask(planned)) == 301 and Planning.asked > 0, "other declarations, another plan"
    finally:
        await store.close()


class Planning:
    """A kernel that counts how often an index is looked up by its name, as only a planner does."""

    asked = 0

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def index_number(self, *asked: Any) -> Any:
        Planning.asked += 1
        return self._kernel.index_number(*asked)


async def test_a_long_search_leaves_the_loop(tmp_path: Path) -> None:
    """Half of the records have one tag, the others the other: the few that have both are far apart."""
    store = SQLiteBackend(str(tmp_path / "store.db"))
    await store.open()
    try:
        await store.declare(Declaration("note", 1, ("n",), (), "all", True, None, ""))
        both = {0, 7_000}
        await put(
            store,
            *[
                typed_record(f"{n:05}", n % 2, tags={"a", "b"} if n in both else {"ab"[n % 2]})
                for n in range(14_000)
            ],
        )
        query = Query(schema="note", tags={"a", "b"}, limit=2)
        assert store._read_now(lambda reading: store._try_query(reading, query, STORED)) is None
        assert [datum.id for datum in (await store.query(query, STORED)).items] == ["07000", "00000"]
        assert await store.count(query.replace(limit=None), STORED) == 2
        short = query.replace(tags={"a"}, where={"n": 0})
        tried = store._read_now(lambda reading: store._try_query(reading, short, STORED))
        assert isinstance(tried, Page)
    finally:
        await store.close()
