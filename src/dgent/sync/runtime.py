"""Agents for code without an event loop: `from dgent.sync.runtime import AgentRuntime`.

`respond` and `resume` give events as they come, and `run` blocks until the answer is there. Tools and the
function that asks the partner may be plain functions: they run on threads.
"""

from __future__ import annotations

from typing import Any

from dgent.errors import InputError
from dgent.runtime import agent
from dgent.sync import messages
from dgent.sync.twin import Twin, make_twin
from dgent.sync.universe import Universe

__all__ = ["AgentRuntime"]

_PARTS = (messages.Messages, messages.Inbox)  # loaded, so that those of an agent block too


def _init(self: Twin, universe: Any, name: str, **given: Any) -> None:
    if not isinstance(universe, Universe):
        raise InputError(
            f"this AgentRuntime takes a universe of dgent.sync, not a {type(universe).__name__}",
            hint="with dgent.open use dgent.runtime",
        )
    self._source, self._home = agent.AgentRuntime(universe._source, name, **given), universe._home


AgentRuntime = make_twin(agent.AgentRuntime, instead={"__init__": _init}, module=__name__)
