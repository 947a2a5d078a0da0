"""The plan of the usual page is the one that weighing all ways to read would choose."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from dgent import Query
from dgent.store import plan as planning
from dgent.store.backend import STORED, Declaration, View
from dgent.store.kernel import Reading
from dgent.store.memory.backend import MemoryBackend
from dgent.testing.contract import Steps, put, typed

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
            await put(store, *[typed(f"{version}-{i}", i, version=version, tags={"a"}) for i in range(5)])
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
