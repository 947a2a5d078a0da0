"""The tools `write` and `remove`: a file becomes a text, or is gone."""

from __future__ import annotations

from typing import Annotated

from dgent.errors import NotFound
from dgent.runtime.code.change import FileChange
from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.workspace import FileState
from dgent.runtime.tool.function import function_tool
from dgent.runtime.tool.tool import Answer, Call, Tool


def write_tool(context: CodeContext) -> Tool:
    """Return the tool that writes a whole file."""

    async def write(
        path: Annotated[str, "the file, relative to the workspace"],
        text: Annotated[str, "its whole content"],
        call: Call,
    ) -> Answer:
        """Write a whole text file; folders on the way are made. To change a part of a file, use edit."""
        name, before = await context.look("write", path, call)
        context.workspace.check_text(name, text)
        return await context.change("write", [FileChange(name, before, FileState(text, before.mode))], call)

    return function_tool(write, effect="write", kind="edit")


def remove_tool(context: CodeContext) -> Tool:
    """Return the tool that removes a file."""

    async def remove(path: Annotated[str, "the file, relative to the workspace"], call: Call) -> Answer:
        """Remove a text file."""
        name, before = await context.look("remove", path, call)
        if before.text is None:
            raise NotFound(f"there is no file {name!r}", hint="find it with glob")
        return await context.change("remove", [FileChange(name, before, FileState(None))], call)

    return function_tool(remove, effect="destroy", kind="delete")
