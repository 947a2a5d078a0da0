"""A host of agents: starts `dgent mcp` as a real process, and speaks to it with the official client."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters

from dgent.doors.mcp.client import Clients, tools_of
from dgent.doors.mcp.server import McpDoor
from dgent.doors.tools.answer import Answer
from dgent.universe.universe import Universe
from dgent.verbs.caller import Trust
from tests.command import dgent

MODES = ("legacy", "auto")  # the handshake of 2025-11-25, and 2026-07-28
PROGRAM = "import sys; from dgent.doors.cli.main import main; main(sys.argv[1:])"


def environment(home: Path) -> dict[str, str]:
    """The environment of a process with a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DGENT_", "XDG_"))}
    return {**kept, "HOME": str(home)}


def command(*words: str) -> list[str]:
    """The command line of dgent, as a process that has loaded it already."""
    return [dgent(), *words]


def own_command(*words: str) -> list[str]:
    """The command line of dgent as a Python of its own, for tests that look at the process itself."""
    return [sys.executable, "-c", PROGRAM, *words]


def server(store: Path, *words: str) -> StdioServerParameters:
    """How a host starts the server of a store."""
    program, *rest = command("--url", f"sqlite:///{store}", "mcp", *words)
    return StdioServerParameters(command=program, args=rest, env=environment(store.parent))


def inside(u: Universe, trust: Trust = "friend", agent: str | None = None, tools: str = "") -> Any:
    """The same server in this process, which starts sooner."""
    return McpDoor(Clients(u, trust, agent, tools_of(tools))).server()


class Host:
    """A connected host."""

    def __init__(self, client: Client, heard: list[Any]) -> None:
        self.client, self.heard = client, heard

    async def call(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool; its structured answer, which its text and its error flag must fit."""
        result = await self.client.call_tool(tool, arguments)
        answer: Answer = result.structured_content
        assert result.is_error is not answer["ok"]
        (content,) = result.content
        assert isinstance(content, types.TextContent)
        assert (
            answer["message"] in content.text if not answer["ok"] else content.text.startswith('{"ok":true')
        )
        return answer

    async def do(self, tool: str, **arguments: Any) -> Any:
        """Call a tool that must succeed; its data."""
        answer = await self.call(tool, **arguments)
        assert answer["ok"], answer
        return answer["data"]

    async def read(self, uri: str) -> str:
        """The text of a resource."""
        (content,) = (await self.client.read_resource(uri)).contents
        assert isinstance(content, types.TextResourceContents)
        return content.text


@asynccontextmanager
async def connect(to: Any, name: str = "scout", mode: str = "legacy") -> AsyncIterator[Host]:
    """Connect a client of this name: to a server that is started for it, or to one at a transport."""
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        heard.append(message)

    info = types.Implementation(name=name, version="1")
    async with Client(to, mode=mode, client_info=info, message_handler=hear, cache=None) as client:
        yield Host(client, heard)
