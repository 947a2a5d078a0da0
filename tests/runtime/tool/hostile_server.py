"""An MCP server without the SDK, which misbehaves as its first word says: `hostile_server.py MODE`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

OBJECT = {"type": "object", "properties": {}}


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name: str, schema: Any = OBJECT, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"{name[:40]} does it", "inputSchema": schema, **more}


def nest(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        made = {"type": "object", "properties": {"a": made}}
    return made


def double(steps: int) -> dict[str, Any]:
    defs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(steps)}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs}


def list_tools(mode: str, cursor: str | None, state: dict[str, int]) -> dict[str, Any]:
    if mode == "endless":
        number = int(cursor or 0)
        return {"tools": [tool(f"t{number}")], "nextCursor": str(number + 1)}
    if mode == "same_page":
        return {"tools": [tool("only")], "nextCursor": "again"}
    if mode == "many":
        return {"tools": [tool(f"t{number:04}") for number in range(1000)]}
    if mode == "names":
        names = ["a.b", "a b", "a_b", "ü", "💥", "x" * 500, "x" * 501, "../../etc", "a\nb", "delete"]
        return {"tools": [tool(name) for name in [*names, "delete"]]}
    if mode == "schemas":
        wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(5000)}}
        return {
            "tools": [
                tool("deep", nest(60)),
                tool("wide", wide),
                tool(
                    "circle", {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
                ),
                tool("bomb", double(40)),
                tool("long", description="word " * 10_000),
                tool("good"),
            ]
        }
    if mode == "broken":
        return {"tools": [tool("list", {"type": "array"})]}
    if mode == "changing":
        return {"tools": [tool(f"v{state['calls']}"), tool("change")]}
    hints = {"readOnlyHint": True, "idempotentHint": True}
    trap = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    return {
        "tools": [
            tool("read", annotations=hints),
            tool("write", annotations={"destructiveHint": True}),
            tool("answer", outputSchema=trap),
        ]
    }


def answer(mode: str, name: str, state: dict[str, int]) -> dict[str, Any] | None:
    state["calls"] += 1
    if mode == "die" or (mode == "die_once" and not Path(sys.argv[2]).exists()):
        if mode == "die_once":
            Path(sys.argv[2]).touch()
        os._exit(3)
    if mode == "silent":
        return None
    if mode == "huge_line":
        sys.stdout.write("x" * (9 * 1024 * 1024))
        sys.stdout.flush()
        return None
    if mode == "huge_text":
        return {"content": [{"type": "text", "text": "long " * 300_000}]}
    if mode == "deep":
        value: Any = 1
        for _ in range(90):
            value = {"a": value}
        return {"content": [], "structuredContent": value}
    if mode == "trap":
        return {"content": [], "structuredContent": {"a": "a" * 40 + "!"}}
    if mode == "image":
        pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
        return {
            "content": [
                {"type": "image", "data": pixel, "mimeType": "image/png"},
                {"type": "image", "data": "?", "mimeType": "image/png"},
                {"type": "image", "data": pixel, "mimeType": "text/html"},
            ]
        }
    if mode == "error":
        return {"content": [{"type": "text", "text": "no such thing"}], "isError": True}
    if mode == "changing":
        write({"method": "notifications/tools/list_changed"})
    return {"content": [{"type": "text", "text": f"{name} done"}]}


def main() -> None:
    mode = sys.argv[1]
    state = {"calls": 0}
    if mode == "crash":
        sys.stderr.write("the configuration is missing\n")
        sys.exit(2)
    if mode == "noise":
        for number in range(200):
            print("starting up", number)
    for line in sys.stdin:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        if mode == "mute" or id is None:
            continue
        if method == "initialize":
            info = {"name": "hostile", "version": "1"}
            can = {"tools": {"listChanged": True}}
            result: Any = {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": info}
        elif method == "tools/list":
            result = list_tools(mode, (message.get("params") or {}).get("cursor"), state)
        elif method == "tools/call":
            result = answer(mode, message["params"]["name"], state)
            if result is None:
                continue
        else:
            write({"id": id, "error": {"code": -32601, "message": "no such method"}})
            continue
        write({"id": id, "result": result})


if __name__ == "__main__":
    main()
