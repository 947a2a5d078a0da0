"""The coding tools together, for one workspace."""

from __future__ import annotations

from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.diagnose import LanguageServers, diagnostics_tool
from dgent.runtime.code.edit import edit_tool
from dgent.runtime.code.find import glob_tool, grep_tool
from dgent.runtime.code.patch import patch_tool
from dgent.runtime.code.read import read_tool
from dgent.runtime.code.run import run_tool
from dgent.runtime.code.write import remove_tool, write_tool
from dgent.runtime.tool.tool import Toolset


def code_tools(context: CodeContext, servers: LanguageServers | None = None) -> Toolset:
    """Return the tools of a workspace: read, write, edit, patch, remove, glob, grep and run.

    With language servers, diagnostics is another one.
    """
    makers = (read_tool, write_tool, edit_tool, patch_tool, remove_tool, glob_tool, grep_tool, run_tool)
    more = [] if servers is None else [diagnostics_tool(context, servers)]
    return Toolset([*(make(context) for make in makers), *more])
