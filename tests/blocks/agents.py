"""Two agents of one store, and a store that counts: for what agents may do with each other's blocks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.blocks import Block, Library
from tests.contract.columns import SETTINGS
from tests.soak import first
from tests.universe.conftest import SameMemory

Open = Callable[..., Library]


@pytest.fixture(params=first(["sqlite", "memory"], 1))
async def u(request: pytest.FixtureRequest, store_path: Path) -> AsyncIterator[dgent.Universe]:
    """A universe on the two engines that need nothing else."""
    async with dgent.open(SETTINGS[request.param][0].url(store_path)) as universe:
        yield universe


@pytest.fixture
def library(u: dgent.Universe) -> Open:
    """Makes the library of an agent."""

    def made(agent: str = "scout", **options: Any) -> Library:
        return Library(u, agent=agent, **options)

    return made


@pytest.fixture
async def scout(library: Open) -> Library:
    """An agent with a block `persona`."""
    made = library("scout")
    await made.create("persona", text="I like short answers.")
    return made


@pytest.fixture
async def scribe(library: Open) -> Library:
    """Another agent, on the roster, with nothing yet."""
    made = library("scribe")
    await made.agents.create("scribe")
    return made


class Counting(SameMemory):
    """The same store, which counts what it is asked."""

    asked = 0

    def __getattr__(self, name: str) -> Any:
        self.asked += name in ("get", "get_many", "query")
        return super().__getattr__(name)


def before_commit(block: Block, work: Callable[[], Awaitable[object]]) -> None:
    """Have something done between an edit of a handle and its next commit, as another program would."""
    universe = block._version_log._universe
    commit = universe.commit

    async def later(*args: Any, **named: Any) -> Any:
        universe.commit = commit  # type: ignore[method-assign]
        await work()
        return await commit(*args, **named)

    universe.commit = later  # type: ignore[method-assign]
