"""A universe on every engine of the registry: adding an engine adds a column to all of these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.store.backend import Backend
from dgent.store.registry import ENGINES, Engine
from tests.contract.columns import SETTINGS
from tests.universe.marks import MARK

Another = Callable[..., Awaitable[dgent.Universe]]


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


@pytest.fixture
def url(engine: Engine, store_path: Path) -> str:
    return SETTINGS[engine.name][0].url(store_path)


@pytest.fixture
async def u(url: str) -> AsyncIterator[dgent.Universe]:
    """An open universe that knows the newest Mark."""
    async with dgent.open(url, author="scout") as universe:
        universe.register(MARK)
        yield universe


class SameMemory:
    """A second handle on a memory store: opening and closing it is left to the first one."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def is_available(self) -> bool:
        return True

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.fixture
async def another(u: dgent.Universe, url: str) -> AsyncIterator[Another]:
    """Opens one more universe on the store of `u`, as another program would, with its own schemas."""
    opened: list[dgent.Universe] = []

    async def open_one(*schemas: dgent.Schema, author: str = "rival") -> dgent.Universe:
        if url == "memory:":
            other = dgent.open(backend=SameMemory(u.backend), author=author)
        else:
            other = dgent.open(url, author=author)
        opened.append(await other)
        other.register(*schemas)
        return other

    yield open_one
    for other in opened:
        await other.close()


@pytest.fixture(params=[engine for engine in ENGINES if engine.name != "memory"], ids=lambda e: e.name)
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place that several processes can open."""
    return SETTINGS[request.param.name][0].url(tmp_path)


@pytest.fixture(
    params=[engine for engine in ENGINES if engine.name in ("sqlite", "jsonl")], ids=lambda e: e.name
)
def file_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place that is files in the test's folder."""
    return SETTINGS[request.param.name][0].url(tmp_path)
