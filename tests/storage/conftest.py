"""Universes with tables, on each engine that has some."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.universe.relational import RelationalStore
from tests.postgres.lease import url_for

ENGINES = ("sqlite", "postgres", "memory")


def url_of(engine: str, folder: Path) -> str:
    """Return the URL of an empty universe of an engine."""
    if engine == "postgres":
        return url_for(folder)
    return "memory:" if engine == "memory" else f"sqlite:///{folder / 'store.db'}"


@pytest.fixture(params=ENGINES)
async def universe(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    """An open universe without tables of the caller's."""
    async with dgent.open(url_of(request.param, tmp_path)) as u:
        if request.param == "postgres":
            await empty(u.storage.relational)
        yield u


@pytest.fixture
def store(universe: dgent.Universe) -> RelationalStore:
    """The caller's tables of the universe."""
    return universe.storage.relational


async def empty(tables: RelationalStore) -> None:
    """Drop the tables that an earlier test left on the server."""
    sql = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    for row in await tables.fetch_all(sql):
        await tables.execute(f'DROP TABLE "{row["tablename"]}" CASCADE')
