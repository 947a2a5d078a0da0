"""A network between a client and a server that fails on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

CHUNK = 1 << 16


class Proxy:
    """Hands bytes on both ways, unless told to cut, to hold them back, or to lose the replies."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self.clear = asyncio.Event()
        self.clear.set()
        self.mute = False
        self.replies_left: int | None = None
        self.accepted = 0

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.clear.set()
        self.cut()
        while self._links:
            await asyncio.sleep(0.01)

    @property
    def port(self) -> int:
        """Where clients connect."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The server's URL, by way of this proxy."""
        user = self._parts.netloc.rpartition("@")[0]
        return self._parts._replace(netloc=f"{user}@127.0.0.1:{self.port}").geturl()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = _Link(self, writer)
        self._links.add(link)
        try:
            await link.run(reader, self._parts.hostname or "", self._parts.port or 5432)
        finally:
            self._links.discard(link)

    # -- what goes wrong ------------------------------------------------------------------

    def cut(self) -> int:
        """End every connection at once; how many there were."""
        links = list(self._links)
        for link in links:
            link.abort()
        return len(links)

    @asynccontextmanager
    async def hole(self, *, lose: bool = False) -> AsyncIterator[None]:
        """Nothing comes through, not even the end of a connection; with `lose`, it never will."""
        self.clear.clear()
        held = list(self._links)
        try:
            yield
        finally:
            for link in held:
                link.dead = link.dead or lose
            self.clear.set()

    def lose_replies_after(self, replies: int | None) -> None:
        """Let so many more replies through; the next is lost with its connection."""
        self.replies_left = replies

    def takes_reply(self, link: _Link) -> bool:
        """Whether a reply may pass."""
        if self.mute:
            return False
        if self.replies_left is None:
            return True
        if self.replies_left > 0:
            self.replies_left -= 1
            return True
        self.replies_left = None  # one is enough
        link.abort()
        return False


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter) -> None:
        self.proxy, self.client = proxy, client
        self.server: asyncio.StreamWriter | None = None
        self.dead = False

    def abort(self) -> None:
        """End it both ways."""
        for writer in (self.client, self.server):
            if writer is not None:
                writer.transport.abort()

    async def run(self, from_client: asyncio.StreamReader, host: str, port: int) -> None:
        """Hand on what comes until either side ends."""
        try:
            await self.proxy.clear.wait()
            from_server, self.server = await asyncio.open_connection(host, port)
            ways = (self._requests(from_client), self._replies(from_server))
            await asyncio.wait([asyncio.ensure_future(way) for way in ways])
        except OSError:
            pass  # no server behind: the client finds out by the end of the connection
        finally:
            self.abort()

    async def _requests(self, reader: asyncio.StreamReader) -> None:
        assert self.server is not None
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self.proxy.clear.wait()
                if not self.dead:
                    self.server.write(data)
                    await self.server.drain()
        await self.proxy.clear.wait()  # a lost network does not tell that a client has gone either
        self.abort()

    async def _replies(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self.proxy.clear.wait()
                if not self.dead and self.proxy.takes_reply(self):
                    self.client.write(data)
                    await self.client.drain()
        await self.proxy.clear.wait()
        self.abort()
