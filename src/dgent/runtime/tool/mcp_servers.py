"""The MCP servers of one agent: started together, closed together; one that fails leaves the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from dgent.config.mcp import McpServer
from dgent.errors import DgentError
from dgent.runtime.tool.belt import ToolBelt
from dgent.runtime.tool.mcp import McpTools
from dgent.universe.universe import Universe


class McpServers:
    """Adds the tools of servers to a belt. They start with the first turn, or with `begin`."""

    def __init__(self, belt: ToolBelt, universe: Universe, servers: Iterable[McpServer] = ()) -> None:
        self._belt, self._universe = belt, universe
        self._waiting = list(servers)
        self._running: list[McpTools] = []
        self._notices: list[str] = []
        self._starting: asyncio.Task[None] | None = None

    @property
    def names(self) -> set[str]:
        """The names of all servers, also of those that have not started."""
        return {each.name for each in self._waiting} | {each.server.name for each in self._running}

    def add(self, server: McpServer) -> None:
        """Add a server, which starts with those that have not started."""
        self._waiting.append(server)

    def note(self, text: str) -> None:
        """Add something that the partner should know."""
        self._notices.append(text)

    def begin(self) -> None:
        """Begin to start what has not started; does not wait for it."""
        if self._waiting and self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start_all())

    async def ready(self) -> None:
        """Wait until every server has started or failed; who leaves early does not stop it."""
        self.begin()
        while self._starting is not None:
            await asyncio.shield(self._starting)
            self.begin()

    def take_notices(self) -> list[str]:
        """Return what the partner should know and was not told yet."""
        found, self._notices = self._notices, []
        for each in self._running:
            found += each.notices
            each.notices.clear()
        return found

    async def close(self) -> None:
        """End all servers, also those that are about to start."""
        self._waiting.clear()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        running, self._running = self._running, []
        await asyncio.gather(*(each.close() for each in running), return_exceptions=True)

    async def _start_all(self) -> None:
        try:
            servers, self._waiting = self._waiting, []
            await asyncio.gather(*map(self._start, servers))
        finally:
            self._starting = None

    async def _start(self, server: McpServer) -> None:
        tools = McpTools(server, blobs=self._universe.storage.blob)
        self._running.append(tools)
        try:
            await tools.start()
            self._belt.add(tools)
        except DgentError as error:
            self._running.remove(tools)
            self._notices.append(error.message if not error.hint else f"{error.message} ({error.hint})")
            await tools.close()
