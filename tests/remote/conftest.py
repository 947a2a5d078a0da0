"""A store on a server, with tokens for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.universe.gate import Trust
from dgent.universe.universe import Universe
from tests.remote.host import AGENT, Host, find_host

OpenAs = Callable[..., Awaitable[Universe]]


class Place:
    """A store on the server of this process."""

    def __init__(self, host: Host, name: str) -> None:
        self.host, self.name = host, name

    @property
    def url(self) -> str:
        return f"{self.host.url}/{self.name}"

    async def token(self, trust: Trust = "partner", agent: str = AGENT) -> str:
        return await self.host.token(self.name, agent, trust)

    async def here(self, work: Callable[[Universe], Awaitable[Any]]) -> Any:
        """Do something with the store on the server itself."""
        return await self.host.universe(self.name, work)


@pytest.fixture
async def place(store_path: Path) -> AsyncIterator[Place]:
    host = find_host()
    name = await host.add(f"sqlite:///{store_path / 'store.db'}")
    yield Place(host, name)
    await host.remove(name)


@pytest.fixture
async def open_as(place: Place) -> AsyncIterator[OpenAs]:
    """Open the store as an agent of some trust."""
    async with AsyncExitStack() as stack:

        async def open(trust: Trust = "partner", agent: str = AGENT, **options: Any) -> Universe:
            token = await place.token(trust, agent)
            return await stack.enter_async_context(dgent.open(place.url, token=token, **options))

        yield open


@pytest.fixture
async def u(open_as: OpenAs) -> Universe:
    """The store, as a partner has it."""
    return await open_as()
