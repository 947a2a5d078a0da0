"""Tools for models: `from dgent.tools import Toolbox`."""

from dgent.doors.tools.toolbox import Toolbox

__all__ = ["Toolbox"]
