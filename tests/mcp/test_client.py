"""Clients by their names."""

from __future__ import annotations

import dgent
from dgent.doors.mcp.client import MOST_KNOWN, Clients, agent_name, tools_of


async def test_names_cost_no_memory() -> None:
    async with dgent.open("memory:") as u:
        clients = Clients(u, "friend", None, tools_of(""))
        first = clients.find("scout")
        assert clients.find("scout") is first and first.agent == "scout"
        for number in range(2 * MOST_KNOWN):
            clients.find(f"client {number}")
        assert len(clients._known) == MOST_KNOWN
        assert (await clients.find("scout").call("data.schemas")).items is not None


def test_any_name_becomes_one_of_an_agent() -> None:
    assert [agent_name(each) for each in (None, "", "../..", "a b/c", "x" * 99)] == [
        *("mcp", "mcp", "mcp", "a-b-c", "x" * 64)
    ]
