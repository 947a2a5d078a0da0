"""The tool `read`: lines of a file, with their numbers."""

from __future__ import annotations

from typing import Annotated

from dgent.runtime.code.context import CodeContext
from dgent.runtime.tool.function import function_tool
from dgent.runtime.tool.tool import Answer, Call, Tool

MAX_LINES = 2_000
MAX_LINE = 2_000  # characters
MAX_TEXT = 80_000  # characters of an answer


def read_tool(context: CodeContext) -> Tool:
    """Return the tool that reads a file."""

    async def read(
        path: Annotated[str, "the file, relative to the workspace"],
        call: Call,
        offset: Annotated[int, "the first line, from 1"] = 1,
        limit: Annotated[int, "how many lines"] = MAX_LINES,
    ) -> Answer:
        """Read a text file. Each line has its number and a tab before it."""
        name, state = await context.read("read", path, call)
        lines = split_lines((state.text or "").removeprefix("\ufeff"))
        first = max(offset, 1)
        shown, size = [], 0
        for number, line in enumerate(lines[first - 1 :][: max(1, min(limit, MAX_LINES))], first):
            text = line.rstrip("\r\n")
            text = text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}… ({len(text)} characters)"
            size += len(text) + 8
            if size > MAX_TEXT:
                break
            shown.append(f"{number}\t{text}")
        end = first + len(shown) - 1
        note = (
            f"lines {first} to {end} of {len(lines)}"
            if shown
            else f"{len(lines)} lines, none from {first} on"
        )
        note += f"; go on with offset={end + 1}" if shown and end < len(lines) else ""
        data = {"path": name, "text": "\n".join(shown), "lines": len(lines)}
        return {"ok": True, "message": f"{name}: {note}", "data": data}

    return function_tool(read, effect="read", kind="read")


def split_lines(text: str) -> list[str]:
    """Split a text after each newline; other characters that Python counts as line ends stay inside."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
