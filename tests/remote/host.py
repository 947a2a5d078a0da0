"""A server in a thread of its own, for all tests of a process, and stores to serve with it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import uvicorn

# Both, now and here: a thread that imports while pytest reads a file's source breaks CPython 3.11's parser.
import dgent.blocks.room
import dgent.cupboard.room
from dgent import clock
from dgent.doors.http import serve
from dgent.doors.http.app import Server
from dgent.doors.http.house import House, Opener
from dgent.doors.http.limit import Limits
from dgent.universe.gate import Principal, Trust
from dgent.universe.token import KnownToken, Token, create_token
from dgent.universe.universe import Universe

R = TypeVar("R")
AGENT = "ann"


class Host:
    """A server with stores that come and go."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._openers: dict[str, Opener] = {"none": _refuse}
        self.house = House(self._openers)
        self._limits = limits
        self._names = itertools.count()
        self._ready = threading.Event()
        self._socket = serve.listen("127.0.0.1", 0)
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="server of the tests", daemon=True)
        self._thread.start()
        assert self._ready.wait(30), "the server did not start"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            app = Server(self.house, hosts=("127.0.0.1", "localhost"), limits=self._limits)
            config = uvicorn.Config(
                app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=1
            )
            self._server = uvicorn.Server(config)
            self._loop.call_soon(self._ready.set)
            await self._server.serve(sockets=[self._socket])

        asyncio.run(main())

    async def run(self, make: Callable[[], Awaitable[R]]) -> R:
        """Run something in the loop of the server."""

        async def work() -> R:
            return await make()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    async def add(self, store: str) -> str:
        """Serve a store; returns its name on the server."""
        name = f"s{next(self._names)}"

        async def open(stack: AsyncExitStack) -> Universe:
            return await stack.enter_async_context(dgent.open(store))

        self._openers[name] = open
        await self.run(lambda: self.house.reload(self._openers))
        return name

    async def remove(self, name: str) -> None:
        """Close a store."""
        self._openers.pop(name, None)
        await self.run(lambda: self.house.reload(self._openers))

    async def token(self, name: str, agent: str = AGENT, trust: Trust = "partner") -> str:
        """Return a new token of a store."""

        async def make() -> str:
            served = await self.house.store(name)
            return (await create_token(served.universe, Principal(agent, trust)))[1]

        return await self.run(make)

    async def let_in(self, name: str, agent: str = AGENT, trust: Trust = "partner") -> str:
        """Return a token that the server takes, and that is no record of the store: it stays empty."""
        text = f"dgent_{agent}_{trust}_{name}"
        token = Token(agent=agent, trust=trust, secret_hash="", made_at=clock.now())

        async def make() -> str:
            served = await self.house.store(name)
            served._right[text] = float("inf"), KnownToken("test", token)
            return text

        return await self.run(make)

    async def serve_one(self, store: str, agent: str) -> tuple[str, str]:
        """Serve a store until it is removed; returns its URL and a partner's token."""
        name = await self.add(store)
        return f"{self.url}/{name}", await self.token(name, agent)

    async def universe(self, name: str, work: Callable[[Universe], Awaitable[R]]) -> R:
        """Do something with a store where it is."""

        async def run() -> R:
            return await work((await self.house.store(name)).universe)

        return await self.run(run)

    def stop(self) -> None:
        """Stop the server, as a kill would."""
        self._server.should_exit = True
        self._thread.join(30)


async def _refuse(_stack: AsyncExitStack) -> Universe:
    raise AssertionError("no test uses this store")


_host: Host | None = None


def find_host() -> Host:
    """Return the server of this process."""
    global _host
    if _host is None:
        _host = Host()
    return _host
