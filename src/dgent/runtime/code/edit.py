"""The tool `edit`: replace an exact text in a file."""

from __future__ import annotations

from typing import Annotated

from dgent.errors import InputError, NotFound
from dgent.runtime.code.change import FileChange
from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.workspace import FileState
from dgent.runtime.tool.function import function_tool
from dgent.runtime.tool.tool import Answer, Call, Tool

MAX_NAMED = 10  # places that a refusal names


def edit_tool(context: CodeContext) -> Tool:
    """Return the tool that edits a file."""

    async def edit(
        path: Annotated[str, "the file, relative to the workspace"],
        old: Annotated[str, "the text to replace, exactly as it is in the file, without line numbers"],
        new: Annotated[str, "the text to put there"],
        call: Call,
        all: Annotated[bool, "replace every place; else there must be just one"] = False,
    ) -> Answer:
        """Replace a text in a file. It must be there exactly once, unless `all` is true."""
        name, before = await context.look("edit", path, call)
        if before.text is None:
            raise NotFound(f"there is no file {name!r}", hint="find it with glob, or make it with write")
        text = replace(before.text, old, new, every=all, name=name)
        context.workspace.check_text(name, text)
        return await context.change("edit", [FileChange(name, before, FileState(text, before.mode))], call)

    return function_tool(edit, effect="write", kind="edit")


def replace(text: str, old: str, new: str, *, every: bool, name: str) -> str:
    """Return a text with `old` replaced; InputError if it is not there, or in several places."""
    if not old or old == new:
        what = "is empty" if not old else "is the same as new"
        raise InputError(f"old {what}", hint="give the text to replace, with enough around it", field="old")
    if "\r\n" in text and "\r\n" not in old and text.count("\n") == text.count("\r\n"):
        # Models see lines without their ends.
        old, new = (each.replace("\r\n", "\n").replace("\n", "\r\n") for each in (old, new))
    count = text.count(old)
    if count == 0:
        raise InputError(f"old is not in {name!r}", hint=_suggest(text, old), field="old")
    if count > 1 and not every:
        lines: list[str] = []
        at = text.find(old)
        while at >= 0 and len(lines) < MAX_NAMED:
            lines.append(str(text.count("\n", 0, at) + 1))
            at = text.find(old, at + len(old))
        raise InputError(
            f"old is in {name!r} {count} times, at the lines {', '.join(lines)}{', …' * (count > MAX_NAMED)}",
            hint="give more of what is around it, or pass all=true",
            field="old",
        )
    return text.replace(old, new)


def _suggest(text: str, old: str) -> str:
    """Return where the text is but for its spaces, which models get wrong most often."""
    wanted = [line.split() for line in old.strip("\n").split("\n")]
    lines = [line.split() for line in text.split("\n")]
    for at in range(len(lines) - len(wanted) + 1):
        if lines[at] == wanted[0] and lines[at : at + len(wanted)] == wanted:
            return f"it is at line {at + 1} with other spaces; read it and copy them exactly"
    return "read the file and copy the text exactly"
