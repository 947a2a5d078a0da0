"""Tools over the protocol: their schemas and hints, and their answers as structured content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
import msgspec

from dgent.doors.mcp.client import Client
from dgent.doors.tools.answer import Answer
from dgent.doors.tools.catalog import GROUPS
from dgent.doors.tools.tool import Tool, tool_of

ANSWER = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "message": {"type": "string"}, "data": {}},
    "required": ["ok", "message"],
}
"""The schema of every answer; `data` is what the verb returns, or code and hint of a mistake."""


def list_tools(client: Client) -> list[types.Tool]:
    """Return the tools of a client."""
    return [_tool(tool_of(name)) for name in client.toolbox.names]


def _tool(tool: Tool) -> types.Tool:
    schema = tool.schema()
    reads = all(each.verb.effect == "read" for each in tool.operations.values())
    # Every version that a write replaces is kept, so only an erasure destroys anything.
    destroys = any(each.verb.effect == "destroy" for each in tool.operations.values())
    return types.Tool(
        name=tool.name,
        description=schema["description"],
        input_schema=schema["parameters"],
        output_schema=ANSWER,
        annotations=types.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=None if reads else destroys,
            idempotent_hint=None if reads else GROUPS[tool.name].repeatable,
            open_world_hint=False,
        ),
    )


async def call_tool(client: Client, name: str, arguments: Mapping[str, Any] | None) -> types.CallToolResult:
    """Call a tool; what the model did wrong is an answer that says what to change."""
    answer = await client.toolbox.call(name, arguments)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=_text(answer))],
        structured_content=answer,
        is_error=not answer["ok"],
    )


def _text(answer: Answer) -> str:
    if answer["ok"]:
        return msgspec.json.encode(answer).decode()
    data = answer["data"]
    hint = f"\nhint: {data['hint']}" if data["hint"] else ""
    again = "\nThe same call may work later." if data["retryable"] else ""
    return f"{data['code']}: {answer['message']}{hint}{again}"
