"""A remote universe answers as one that has the store itself, whatever is asked under a contract."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dgent
from dgent import Datum, Query, Schema
from dgent.errors import QueryError
from dgent.store.sqlite import kernel
from dgent.universe.universe import Universe
from tests.postgres.lease import url_for
from tests.remote.host import find_host
from tests.soak import times


class Part(msgspec.Struct, frozen=True):
    size: int = 7
    name: str | None = None


class Thing(msgspec.Struct, frozen=True):
    title: str
    weight: int = 3
    price: Decimal | None = None
    took: timedelta = timedelta(hours=1)
    part: Part = Part()
    parts: list[Part] = []
    labels: dict[str, Decimal] = {}


def _with_double(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "weight": data.get("weight", 0) * 2}


FIRST = Schema("thing", contract=Thing, indexes=["weight", "price"])
SECOND = Schema("thing", version=2, contract=Thing, indexes=["weight", "price"], migrations={1: _with_double})
PATHS = [
    "title",
    "weight",
    "price",
    "took",
    "part",
    "part.size",
    "part.name",
    "parts",
    "parts.0.size",
    "labels.a",
]
VALUES = ["a", "b", 3, 6, 7, Decimal("1.50"), Decimal(3), timedelta(hours=1), timedelta(days=2), None]


def some_data(rng: random.Random) -> dict[str, Any]:
    """Return the data of a thing, of which much may be missing."""
    whole = {
        "title": rng.choice("abc"),
        "weight": rng.randrange(8),
        "price": rng.choice(["1.50", "1.5", "3", "20", None]),
        "took": rng.choice(["PT1H", "P2D", "PT90M"]),
        "part": rng.choice([{}, {"size": 3}, {"size": 7, "name": "a"}]),
        "parts": rng.choice([[], [{}], [{"size": 6}, {"name": "b"}]]),
        "labels": rng.choice([{}, {"a": "1.5"}, {"a": "3", "b": "1"}]),
    }
    return {name: value for name, value in whole.items() if name == "title" or rng.random() < 0.7}


def some_condition(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """Return a condition of any kind."""
    if depth < 2 and rng.random() < 0.25:
        inside = [some_condition(rng, depth + 1) for _ in range(rng.randint(1, 3))]
        return rng.choice([{"$or": inside}, {"$and": inside}, {"$not": inside[0]}])
    path, op = (
        rng.choice(PATHS),
        rng.choice(["$eq", "$ne", "$gt", "$lte", "$in", "$nin", "$exists", "$contains"]),
    )
    if op == "$exists":
        return {path: {op: rng.random() < 0.5}}
    if op in ("$in", "$nin"):
        return {path: {op: rng.sample(VALUES, 3)}}
    return {path: {op: rng.choice(VALUES)}}


def some_query(rng: random.Random) -> Query | None:
    """Return a query; None where this one is not allowed, by whom ever."""
    try:
        return Query(
            schema=rng.choice(["thing", "thing", None]),
            where=some_condition(rng) if rng.random() < 0.8 else None,
            order_by=rng.choice(["created_at", "updated_at", *PATHS]),
            descending=rng.random() < 0.5,
            limit=rng.choice([None, 3, 50]),
            offset=rng.choice([0, 0, 2]),
            tags=frozenset(rng.choice([(), (), ("even",)])),
        )
    except QueryError:
        return None


@pytest.fixture(params=["sqlite", "postgres"])
async def both(store_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Universe, Universe]]:
    """One store, opened here and over HTTP."""
    kernel.MOVE_AT = 3
    store = f"sqlite:///{store_path / 'store.db'}" if request.param == "sqlite" else url_for(store_path)
    host = find_host()
    url, token = await host.serve_one(store, "scout")
    async with dgent.open(store) as here, dgent.open(url, token=token) as there:
        yield here, there
    await host.remove(url.rpartition("/")[2])


@pytest.mark.parametrize("mixed", [False, True])
async def test_the_same_answers(both: tuple[Universe, Universe], mixed: bool) -> None:
    here, there = both
    rng = random.Random(f"things {mixed}")
    began = datetime(2026, 1, 1, tzinfo=UTC)
    here.register(FIRST)
    for start in range(0, 60, 20):
        await here.put_many(
            Datum(
                f"t{n:02}",
                began + timedelta(minutes=n % 7),
                some_data(rng),
                schema="thing",
                schema_version=2 if mixed and n % 3 == 0 else 1,
                tags=frozenset({"even"} if n % 2 == 0 else ()),
            )
            for n in range(start, start + 20)
        )
    await here.put_many(Datum(f"p{n}", began, {"title": "a", "weight": n}) for n in range(5))
    schema = SECOND if mixed else FIRST
    for each in both:
        each.register(schema)
        await each.indexed()
    before = await here.seq()
    await here.put(Datum("t05", data={"title": "changed"}, schema="thing", schema_version=schema.version))
    asked = found = 0
    for _ in range(times(35)):
        query = some_query(rng)
        if query is None:
            continue
        as_of = rng.choice([None, None, before])
        try:
            wanted = [each.id for each in await here.query(query, as_of=as_of)]
        except QueryError:
            with pytest.raises(QueryError):
                await there.query(query, as_of=as_of)
            continue
        assert [each.id for each in await there.query(query, as_of=as_of)] == wanted, (query, as_of)
        assert await there.count(query, as_of=as_of) == await here.count(query, as_of=as_of), query
        asked, found = asked + 1, found + bool(wanted)
    assert asked > 20 and found > 5
    assert await there.get("t05") == await here.get("t05")
    assert await there.changes() == await here.changes()
