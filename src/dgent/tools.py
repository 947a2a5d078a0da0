"""Tools for models: `from dgent.tools import Toolbox`."""

from collections.abc import Iterable

from dgent.doors.tools.catalog import SETS
from dgent.doors.tools.toolbox import Toolbox
from dgent.universe.universe import Universe

__all__ = ["Toolbox", "open_own_tools"]


def open_own_tools(universe: Universe, sets: Iterable[str]) -> Toolbox:
    """Return the tools that an agent has for its own memory, work and search, by the names of their sets.

    `AgentRuntime` finds this function by its name: it is below the doors, and imports none.
    """
    names = dict.fromkeys(name for each in sets for name in SETS.get(each, (each,)))
    return Toolbox(universe, tools=names)
