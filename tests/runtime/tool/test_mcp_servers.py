"""The MCP servers of an agent: those of its settings, at work in turns, and through whatever goes wrong."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.config.agent import AgentSettings
from dgent.config.mcp import McpServer
from dgent.runtime.agent import AgentRuntime
from dgent.runtime.event import Done, Notice
from dgent.runtime.model.script import ScriptedModel
from dgent.runtime.opener import open_agent
from dgent.universe.universe import Universe
from tests.runtime.tool.test_mcp import hostile, servers

GONE = McpServer(name="gone", command=("/nonexistent/server",))
READ = {"calls": [{"name": "h__read", "arguments": {}}]}


@pytest.fixture
async def u() -> AsyncIterator[Universe]:
    async with dgent.open("memory:") as universe:
        yield universe


def names(agent: AgentRuntime) -> set[str]:
    return {str(each["name"]) for each in agent.belt.schemas()}


async def test_an_agent_has_the_tools_of_its_servers(u: Universe) -> None:
    settings = AgentSettings(mcp=(hostile("plain"), GONE))
    async with open_agent(u, "scout", settings, model=ScriptedModel([READ, "read", "again"])) as agent:
        assert servers() == []  # not before there is work
        found = [each async for each in agent.respond("go")]
        assert "h__read" in names(agent)
        assert isinstance(found[-1], Done) and found[-1].text == "read"
        (notice,) = [each for each in found if isinstance(each, Notice)]
        assert "'gone' did not start" in notice.text and notice.code == "mcp"
        found = [each async for each in agent.respond("go")]
        assert not [each for each in found if isinstance(each, Notice)]  # it was said
        assert len(servers()) == 1
    assert servers() == []


async def test_turns_at_once_share_one_start(u: Universe) -> None:
    model = ScriptedModel([READ, "a", "b", "c", "d"])
    async with AgentRuntime(u, "scout", model=model, servers=[hostile("plain")]) as agent:
        await asyncio.gather(*(agent.run(f"go {n}") for n in range(3)))
        assert len(servers()) == 1
    assert servers() == []


async def test_a_turn_that_is_interrupted_leaves_the_start_under_way(u: Universe) -> None:
    hangs = McpServer(name="h", command=(sys.executable, "-c", "import time; time.sleep(60)"))
    async with AgentRuntime(u, "scout", model=ScriptedModel(["x"]), servers=[hangs]) as agent:
        turn: Any = asyncio.create_task(agent.run("go"))
        while not agent.running:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        await agent.interrupt()
        assert (await asyncio.wait_for(turn, 10)).finish == "interrupted"
        assert agent.servers.names == {"h"}


async def test_two_servers_of_one_name_are_reported(u: Universe) -> None:
    pair = [hostile("plain"), hostile("plain")]
    async with AgentRuntime(u, "scout", model=ScriptedModel(["x"]), servers=pair) as agent:
        found = [each async for each in agent.respond("go")]
        assert ["two tools named" in each.text for each in found if isinstance(each, Notice)] == [True]
        assert len(servers()) == 1
    assert servers() == []


async def test_an_agent_can_be_closed_before_a_server_has_started(u: Universe, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    program = f"import pathlib, time; pathlib.Path({str(mark)!r}).touch(); time.sleep(60)"
    slow = McpServer(name="slow", command=(sys.executable, "-c", program))
    agent = AgentRuntime(u, "scout", model=ScriptedModel(["x"]), servers=[slow])
    agent.servers.begin()
    while not mark.exists():
        await asyncio.sleep(0.01)
    await asyncio.wait_for(agent.close(), 10)
    assert agent.servers.names == set()
