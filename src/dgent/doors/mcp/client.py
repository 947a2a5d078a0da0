"""The clients of a server: the agent that each one is, its tools, and its calls of verbs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dgent.doors.tools.catalog import SETS
from dgent.doors.tools.tool import suggest
from dgent.doors.tools.toolbox import Toolbox
from dgent.errors import InputError
from dgent.universe.gate import Principal
from dgent.universe.universe import Universe
from dgent.verbs import registry
from dgent.verbs.caller import Trust

DEFAULT_SET = "everyday"
ALL = "all"
UNNAMED = "mcp"
MAX_NAME = 64
MOST_KNOWN = 256  # clients whose handles are kept
_ODD = re.compile(r"[^\w.-]+")


class Client:
    """One agent at the door; its trust is checked at each call, and its commits carry its name."""

    def __init__(self, universe: Universe, agent: str, trust: Trust, tools: Sequence[str]) -> None:
        self.agent = agent
        self.universe = universe.acting(Principal(agent, trust))
        self.toolbox = Toolbox(self.universe, tools=tools)

    async def call(self, verb: str, **given: Any) -> Any:
        """Call a verb as this agent."""
        return await registry.call(registry.find(verb), self.toolbox.context, given)


class Clients:
    """The clients of one server, by their names; `agent` is the name of all of them if it is given."""

    def __init__(self, universe: Universe, trust: Trust, agent: str | None, tools: Sequence[str]) -> None:
        self.universe, self._trust, self._agent, self._tools = universe, trust, agent, tools
        self._known: dict[str, Client] = {}

    def find(self, name: str | None) -> Client:
        """Return the client that calls itself so."""
        agent = self._agent or agent_name(name)
        if agent not in self._known:
            if len(self._known) >= MOST_KNOWN:
                del self._known[next(iter(self._known))]  # a client may call itself anything, each time anew
            self._known[agent] = Client(self.universe, agent, self._trust, self._tools)
        return self._known[agent]


def agent_name(client: str | None) -> str:
    """Return the name of an agent for the name that a client gives itself, which may be any text."""
    return _ODD.sub("-", client or "").strip("-.")[:MAX_NAME] or UNNAMED


def tools_of(sets: str) -> tuple[str, ...]:
    """Return the tools of some sets, given by their names with commas between them."""
    named = [each.strip() for each in sets.split(",") if each.strip()] or [DEFAULT_SET]
    if ALL in named:
        named = [each for each in SETS if each != DEFAULT_SET]
    for each in named:
        if each not in SETS:
            raise InputError(f"there are no tools {each!r}", hint=suggest(each, (*SETS, ALL)), field="tools")
    return tuple(dict.fromkeys(tool for each in named for tool in SETS[each]))
