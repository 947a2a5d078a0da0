"""Queries for several indexed things at once: every engine gives what a look at each record gives."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dgent import Datum, Query
from dgent.store.backend import STORED, Backend, Commit, Declaration, Delete, Put
from dgent.store.engine.catalog import AUTHOR, T_MIN, IndexName
from dgent.store.engine.kernel import IndexScan, Reading
from tests.contract.columns import READING, Column
from tests.soak import times

TAGS = [
    "a",
    "b",
    ",",
    "]",
    "[",
    'x"',
    '"a',
    'a"',
    "\\",
    "\\a",
    "a,",
    'a","b',
    "é",
    "\u2028",
    "a b",
    "\x7f",
    "a\n",
]
FILLING = [f"filling {n}" for n in range(60)]  # so many tags share bits in the entries of SQLite's indexes
AUTHORS = ["first", "second", "third", "x" * 200]
SOURCES = [None, None, "web", "mail"]
KINDS = ["k", "k" * 200, "k" * 200 + "!", "", None, 1, 1.0, True, [1], "\x00"]
START = datetime(2024, 1, 1, tzinfo=UTC)
DECLARED = Declaration("note", 1, ("kind", "n"), (), "all", True, None, "")


def make_datum(rng: random.Random, number: int) -> Datum:
    data = {"kind": rng.choice(KINDS), "n": rng.randrange(4), "other": rng.randrange(3)}
    if not rng.randrange(8):
        del data["kind"]
    tags = {*rng.sample(TAGS, rng.choice([0, 1, 3, 6])), *(rng.sample(FILLING, 3) if number % 4 == 1 else ())}
    return Datum(
        id=f"0190d000-0000-7000-8000-{number:012}" if number % 3 else f"{number:04}",
        created_at=START + timedelta(seconds=rng.randrange(400)),
        data=data,
        tags=frozenset(tags),
        author=AUTHORS[0] if number == 0 else rng.choice(AUTHORS),
        source=rng.choice(SOURCES),
        schema="note",
        schema_version=1,
    )


def make_query(rng: random.Random) -> Query:
    where: dict[str, Any] = {}
    if rng.randrange(3):
        where["kind"] = rng.choice([*KINDS, {"$in": ["k", 1]}, {"$exists": False}])
    if not rng.randrange(3):
        where["n"] = rng.choice([1, 2, {"$gt": 1}])
    if not rng.randrange(6):
        where["other"] = 1
    pick: list[dict[str, Any]] = [
        {"tags": frozenset(rng.sample([*TAGS, "gone"], rng.choice([0, 1, 1, 2, 3])))},
        {"any_tags": frozenset(rng.sample(TAGS, 2))} if not rng.randrange(6) else {},
        {"author": rng.choice([*AUTHORS, "first", "gone"])} if not rng.randrange(3) else {},
        {"source": rng.choice(["web", "gone"])} if not rng.randrange(5) else {},
        {"since": START + timedelta(seconds=100)} if not rng.randrange(4) else {},
        {"until": START + timedelta(seconds=300)} if not rng.randrange(4) else {},
        {"order_by": rng.choice(["n", "kind"])} if not rng.randrange(5) else {},
        {"limit": rng.choice([1, 5, 50, None])},
        {"offset": rng.choice([0, 0, 3, 130])},
        {"descending": bool(rng.randrange(2))},
    ]
    asked = {name: value for part in pick for name, value in part.items()}
    return Query(schema="note", where=where or None, **asked)


async def commit(backend: Backend, *ops: Put | Delete) -> None:
    await backend.commit(Commit(tuple(ops), author="tester"), STORED)


async def find(backend: Backend, query: Query) -> list[str]:
    """All ids that match, in order, page by page."""
    found: list[str] = []
    while True:
        page = await backend.query(query, STORED)
        found += [datum.id for datum in page.items]
        if page.cursor is None:
            return found
        query = query.replace(cursor=page.cursor)


def match(records: Iterable[Datum], query: Query) -> list[str]:
    """The ids that match by looking at each record; the order among equals is left to the caller."""
    return sorted(datum.id for datum in records if query.matches(datum))


async def change(backend: Backend, rng: random.Random, records: dict[str, Datum]) -> None:
    """Replace and delete some records."""
    for id in rng.sample(sorted(records), 40):
        if rng.randrange(3):
            old = records[id]
            new = make_datum(rng, int(id[-4:])).replace(created_at=old.created_at)
            records[id] = new
            await commit(backend, Put(new))
        else:
            del records[id]
            await commit(backend, Delete(id))


@pytest.mark.parametrize("column", READING, ids=lambda column: column.name)
async def test_narrowed_queries_find_what_matches(column: Column, tmp_path: Path) -> None:
    rng = random.Random(7)
    backend = column.make(tmp_path)
    await backend.open()
    try:
        await backend.declare(DECLARED)
        records = {datum.id: datum for datum in (make_datum(rng, number) for number in range(300))}
        await commit(backend, *map(Put, records.values()))
        await change(backend, rng, records)
        for _ in range(times(60)):
            query = make_query(rng)
            everything = query.replace(limit=None, offset=0)
            wanted = match(records.values(), query)
            ordered = await find(backend, everything)
            assert sorted(ordered) == wanted, query
            assert await backend.count(everything, STORED) == len(wanted), query
            found = await find(backend, query)
            assert found == ordered[query.offset :], query
            if query.order_path is None:
                times_found = [records[id].created_at for id in ordered]
                assert times_found == sorted(times_found, reverse=query.descending), query
    finally:
        await backend.close()


@pytest.mark.parametrize("column", READING, ids=lambda column: column.name)
async def test_only_other_authors_have_entries(column: Column, tmp_path: Path) -> None:
    backend: Any = column.make(tmp_path)
    await backend.open()
    try:
        made = [
            make_datum(random.Random(1), n).replace(author=a) for n, a in enumerate(["ann", "bob", "ann"])
        ]
        await commit(backend, *map(Put, made))
        asked = Query(schema="note", author="ann")

        def count_entries(reading: Reading) -> int:
            reading.refresh()
            state = reading.state("note")
            assert state is not None and reading.name(state.usual_author or 0) == "ann"
            index = reading.index_number(IndexName(state.number, 0, "", AUTHOR))
            assert index is not None
            return reading.size(IndexScan(index, (b"", T_MIN, 0), (b"\xff", T_MIN, 0)), 100)

        assert await backend._read(count_entries) == 1
        assert sorted(await find(backend, asked)) == [made[0].id, made[2].id]
        assert await find(backend, asked.replace(author="bob")) == [made[1].id]
    finally:
        await backend.close()
