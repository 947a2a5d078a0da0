"""Places of application tables, on each engine that has some."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.tables import Place, connect
from tests.storage.conftest import empty, url_of


@pytest.fixture(params=("sqlite", "postgres"))
async def universe(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    """An open universe without tables of the caller's."""
    async with dgent.open(url_of(request.param, tmp_path)) as u:
        if request.param == "postgres":
            await empty(u.storage.relational)
        yield u


@pytest.fixture
async def place(universe: dgent.Universe) -> AsyncIterator[Place]:
    """The tables of the universe's database."""
    async with await connect(universe) as made:
        yield made
