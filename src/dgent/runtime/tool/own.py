"""The tools of an agent for its own memory, work and search, as one call of them is made.

They are verbs, which are above the runtime. So the module that has them is named here, as rooms are named for
the universe, and loads when an agent is first made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, cast

from dgent.runtime.tool.tool import Answer, Arguments, CallInfo, ToolSource
from dgent.universe.gate import Principal, Trust
from dgent.universe.stamp import CallStamp, stamp_handle
from dgent.universe.universe import Universe

MODULE, FUNCTION = "dgent.doors.tools.toolbox", "open_own_tools"
USUAL = ("everyday",)
"""The sets of tools of an agent that is given none."""

OpenTools = Callable[[Universe, Iterable[str]], ToolSource]


def find_opener() -> OpenTools:
    """Return the function that opens tools on a handle."""
    return cast(OpenTools, getattr(import_module(MODULE), FUNCTION))


class OwnTools:
    """The own tools of one agent; each call acts as the agent, trusted as far as the call is."""

    def __init__(self, universe: Universe, agent: str, sets: Sequence[str] = USUAL) -> None:
        self._universe, self._agent, self._sets = universe, agent, tuple(sets)
        self._open = find_opener()
        self._shown: Any = self._open(universe.acting(Principal(agent, "partner")), self._sets)
        self._schemas: list[dict[str, Any]] = self._shown.schemas()

    def schemas(self) -> list[dict[str, Any]]:
        """Return name, description, and parameters as flat JSON schema of each tool."""
        return self._schemas

    def describe(self, name: str, arguments: Arguments = None) -> CallInfo | None:
        """Return the effect of a call."""
        return cast("CallInfo | None", self._shown.describe(name, arguments))

    async def call(self, name: str, arguments: Arguments = None) -> Answer:
        """Call a tool as the agent's partner would."""
        return (await self.call_as(name, arguments, "partner"))[0]

    async def call_as(
        self, name: str, arguments: Arguments, trust: str, key: str | None = None, place: str = ""
    ) -> tuple[Answer, str]:
        """Call a tool at a trust; return its answer, and the lowest trust of the records that it read.

        What it writes has the key of the call, and says where it came from.
        """
        handle = stamp_handle(self._universe, key, trust, place)
        tools = self._open(handle.acting(Principal(self._agent, cast(Trust, trust))), self._sets)
        answer = await tools.call(name, arguments)
        return answer, await cast(CallStamp, handle.backend).find_read(self._universe)
