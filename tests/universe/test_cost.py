"""What the daily calls cost: each record that is read is decoded once, and few functions run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import Query, Schema
from tests.calls import Calls
from tests.fault.check import move_entries

DAY = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Note:
    text: str
    rank: int
    at: datetime = DAY
    kind: str = "a"


@dataclass(frozen=True)
class Line:
    text: str
    rank: int


NOTE = Schema("note", contract=Note, indexes=("rank", "kind", "at"))
ROWS = 300

RECALLS: list[tuple[dict[str, Any], int]] = [
    ({"limit": 10}, 10),
    ({"limit": None}, ROWS),
    ({"limit": 200}, 200),
    ({"limit": 10, "where": {"kind": "b"}}, 10),
    ({"limit": 10, "tags": {"t"}, "order_by": "rank"}, 10),
    ({"limit": 200, "order_by": "rank"}, 200),
    ({"limit": 10, "order_by": "at", "descending": False}, 10),
    ({"limit": 10, "order_by": "rank", "where": {"rank": {"$gt": 5, "$lte": 250}}}, 10),
    ({"limit": None, "where": {"text": {"$prefix": "x"}}}, ROWS),
    ({"limit": 10, "where": {"text": {"$prefix": "x"}}}, 11),  # one more tells of a next page
    ({"limit": None, "where": {"text": "x 7"}}, ROWS),
    ({"limit": None, "where": {"text": {"$prefix": "x"}}, "order_by": "rank"}, ROWS),
    ({"limit": 10, "where": {"text": {"$prefix": "x"}}, "order_by": "text"}, ROWS),
    ({"limit": None, "any_tags": {"t", "u"}, "where": {"text": {"$prefix": "x"}}}, ROWS),
]


@pytest.mark.parametrize("engine", ["memory", "sqlite", "jsonl"])
async def test_a_recall_decodes_each_record_once(tmp_path: Path, engine: str) -> None:
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/a.db", "jsonl": f"jsonl:{tmp_path}/a"}
    with Calls() as calls:
        async with dgent.open(urls[engine]) as u:
            u.register(NOTE)
            async with u.transaction() as tx:
                for n in range(ROWS):
                    note = Note(f"x {n}", n * 7 % ROWS, DAY + timedelta(n), "ab"[n % 2])
                    await tx.remember(note, tags=("t", "u"))
            for filters, decoded in RECALLS:
                query = Query(schema="note", **filters)
                found = await u.recall(query)
                with calls.counting():
                    again = await u.recall(query)
                    assert [each.value for each in again] == [each.value for each in found]
                assert calls.decoded == decoded, filters


async def test_the_daily_calls_run_few_functions(tmp_path: Path) -> None:
    with Calls() as calls:
        async with dgent.open(f"sqlite:///{tmp_path}/a.db", durability="relaxed") as u:
            u.register(Schema("line", contract=Line, indexes=("rank",)))
            for n in range(20):
                stored = await u.remember(Line("x", n), tags=("t", "u"))
            line = Line("x", 20)
            with calls.counting():
                await u.remember(line, tags=("t", "u"))
            assert calls.python < 95
            id = stored.id
            await u.get(id)  # the first read of a thread opens its connection
            with calls.counting():
                found = await u.get(id)
            assert found == stored and calls.python < 25
            query = Query(schema="line", order_by="rank", limit=10)
            for most in (95, 75):  # while index entries wait behind their commits, and afterwards
                await u.recall(query)
                with calls.counting():
                    await u.recall(query)
                assert calls.python < most
                await move_entries(u.backend)
