"""A library on every engine of the registry, and a second one on the same store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import dgent
from dgent.blocks import Library
from dgent.store.registry import Engine
from tests.contract.columns import SETTINGS
from tests.soak import first
from tests.universe.conftest import SameMemory, engine

__all__ = ["engine"]

Rival = Callable[..., Awaitable[Library]]


@pytest.fixture
def url(engine: Engine, tmp_path: Path) -> str:
    return SETTINGS[engine.name][0].url(tmp_path)


@pytest.fixture
async def lib(url: str) -> AsyncIterator[Library]:
    """A library on an open universe, of each engine in turn."""
    async with dgent.open(url, author="scout") as u:
        yield Library(u, agent="scout")


@pytest.fixture
async def rival(lib: Library, url: str) -> AsyncIterator[Rival]:
    """Opens one more library on the same store, as another program would."""
    opened: list[dgent.Universe] = []

    async def open_one(agent: str = "scout") -> Library:
        same = {"backend": SameMemory(lib._universe.backend)} if url == "memory:" else {"url": url}
        other = dgent.open(**same, author=agent)
        opened.append(await other)
        return Library(other, agent=agent)

    yield open_one
    for other in opened:
        await other.close()


@pytest.fixture(params=first(["sqlite", "memory"], 1))
async def quick(request: pytest.FixtureRequest, store_path: Path) -> AsyncIterator[Library]:
    """A library for rules that are the same on all engines: in a short look on the one most used."""
    async with dgent.open(SETTINGS[request.param][0].url(store_path), author="scout") as u:
        yield Library(u, agent="scout")
