"""What a plan was chosen by is kept for some seconds: fewer round trips, and the same answers."""

from __future__ import annotations

import dataclasses

import pytest

import dgent
from dgent import Query
from dgent.store.postgres.backend import PostgresBackend


@dataclasses.dataclass(frozen=True)
class Note:
    """A record to sort."""

    rank: int


SCHEMA = dgent.Schema("weighing.note", 1, Note, indexes=("rank",))
QUERY = Query(schema=SCHEMA.name, tags={"odd"}, order_by="rank", limit=20)


def _datums(first: int, count: int) -> list[dgent.Datum]:
    made = {"schema": SCHEMA.name, "schema_version": 1}
    return [
        dgent.Datum(data={"rank": n}, tags=frozenset({"odd"} if n % 2 else {"even"}), **made)
        for n in range(first, first + count)
    ]


def _first(count: int) -> list[int]:
    """Return what a page shows of so many records."""
    return [n for n in reversed(range(count)) if n % 2][:20]


async def _ranks(u: dgent.Universe) -> list[int]:
    return [each.data["rank"] for each in await u.query(QUERY, raw=True)]


async def test_a_page_by_tag_in_the_order_of_a_field(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    fetch = PostgresBackend._fetch

    async def noting(self: PostgresBackend, sql: str, *values: object) -> object:
        statements.append(sql)
        return await fetch(self, sql, *values)

    async def refuse(self: PostgresBackend, work: object) -> object:
        raise AssertionError("it needs no transaction")

    universe = dgent.open(url)
    universe.register(SCHEMA)
    async with universe as u:
        await u.put_many(_datums(0, 3000))
        assert await _ranks(u) == _first(3000)
        monkeypatch.setattr(PostgresBackend, "_fetch", noting)
        monkeypatch.setattr(PostgresBackend, "_read", refuse)
        assert await _ranks(u) == _first(3000)
        assert len(statements) == 1
        # What it was chosen by is outdated; the answer is not.
        await u.put_many(_datums(3000, 3000))
        assert await _ranks(u) == _first(6000)


async def test_few_records_that_became_many(url: str) -> None:
    universe = dgent.open(url)
    universe.register(SCHEMA)
    async with universe as u:
        await u.put_many(_datums(0, 5))
        assert await _ranks(u) == _first(5)
        await u.put_many(_datums(5, 2000))
        assert await _ranks(u) == _first(2005)
