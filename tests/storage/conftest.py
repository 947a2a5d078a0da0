"""Universes with tables, on each engine that has some."""

from __future__ import annotations

import atexit
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

import pytest

import dgent
from dgent.universe.relational import RelationalStore
from tests.postgres.bouncer import Bouncer, program
from tests.postgres.known_gaps import skip
from tests.postgres.lease import server_url, url_for
from tests.soak import SOAK

# All of it behind a pooler takes long: `test_pooler.py` has the rest of it.
ENGINES = ("sqlite", "postgres", "memory", *(("pgbouncer",) if SOAK > 1 else ()))


@cache
def find_bouncer() -> Bouncer:
    """Return the pooler of this process, in front of the tests' server."""
    if program() is None:
        skip("pgbouncer")
    made = Bouncer(server_url()).start()
    atexit.register(made.remove)
    return made


def url_of(engine: str, folder: Path) -> str:
    """Return the URL of an empty universe of an engine; `pgbouncer` is Postgres behind a pooler."""
    if engine == "postgres":
        return url_for(folder)
    if engine == "pgbouncer":
        return find_bouncer().lead(url_for(folder))
    return "memory:" if engine == "memory" else f"sqlite:///{folder / 'store.db'}"


@pytest.fixture(params=ENGINES)
async def universe(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    """An open universe without tables of the caller's."""
    async with dgent.open(url_of(request.param, tmp_path)) as u:
        if request.param in ("postgres", "pgbouncer"):
            await empty(u.storage.relational)
        yield u


@pytest.fixture
def store(universe: dgent.Universe) -> RelationalStore:
    """The caller's tables of the universe."""
    return universe.storage.relational


async def empty(tables: RelationalStore) -> None:
    """Drop the tables and types that an earlier test left on the server."""
    sql = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    for row in await tables.fetch_all(sql):
        await tables.execute(f'DROP TABLE "{row["tablename"]}" CASCADE')
    sql = "SELECT typname FROM pg_type WHERE typnamespace = current_schema()::regnamespace AND typtype = 'e'"
    for row in await tables.fetch_all(sql):
        await tables.execute(f'DROP TYPE "{row["typname"]}" CASCADE')
