"""Calling the tools of an agent in tests."""

from __future__ import annotations

import json
from typing import Any

from dgent.blocks import Toolbox, tools


async def ok(box: Toolbox, tool: str, operation: str | None = None, **given: Any) -> Any:
    """Call a tool that must do what it is told; its data."""
    arguments = given if operation is None else {"operation": operation, **given}
    answer = await box.call(tool, arguments)
    assert set(answer) == {"success", "message", "data"}
    assert answer["success"] is True, answer
    assert json.loads(json.dumps(answer)) == answer, "plain JSON"
    return answer["data"]


async def no(box: Toolbox, tool: str, code: str, operation: str | None = None, **given: Any) -> str:
    """Call a tool that must refuse; its message."""
    arguments = given if operation is None else {"operation": operation, **given}
    answer = await box.call(tool, arguments)
    assert set(answer) == {"success", "message", "data"}
    assert answer["success"] is False and answer["data"]["code"] == code, answer
    json.dumps(answer).encode()
    return str(answer["message"])


def minimal(name: str, operation: str) -> dict[str, Any]:
    """The least that an operation can be called with."""
    values = {"version": 1, "place": 1, "to": "x", "start": 1, "end": 1, "value": {"a": 1}, "query": "x"}
    if name == "search":
        return {"query": "x"}
    found = tools.OPERATIONS[name][operation]
    given = {each: values.get(each, "x") for each in found.needs}
    given |= {"to": 1} if operation == "move_item" else {}
    given |= {"description": "x"} if operation == "describe" else {}
    return {"operation": operation, **given}
