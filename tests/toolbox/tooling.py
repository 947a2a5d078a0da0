"""Calling the tools of an agent in tests."""

from __future__ import annotations

import json
from typing import Any

from dgent.doors.tools.tool import tool_of
from dgent.tools import Toolbox


async def ok(box: Toolbox, tool: str, operation: str | None = None, **given: Any) -> Any:
    """Call a tool that must do what it is asked; its data."""
    arguments = given if operation is None else {"operation": operation, **given}
    answer = await box.call(tool, arguments)
    assert set(answer) == {"ok", "message", "data"}
    assert answer["ok"] is True, answer
    assert json.loads(json.dumps(answer)) == answer, "plain JSON"
    return answer["data"]


async def no(box: Toolbox, tool: str, code: str, operation: str | None = None, **given: Any) -> str:
    """Call a tool that must refuse; its message and hint."""
    arguments = given if operation is None else {"operation": operation, **given}
    answer = await box.call(tool, arguments)
    assert set(answer) == {"ok", "message", "data"}
    assert answer["ok"] is False and answer["data"]["code"] == code, answer
    assert set(answer["data"]) == {"code", "hint", "retryable"}
    json.dumps(answer).encode()
    return f"{answer['message']} ({answer['data']['hint']})"


def minimal(name: str, operation: str) -> dict[str, Any]:
    """The least that an operation can be called with."""
    found = tool_of(name).operations[operation]
    values: dict[str, Any] = {"integer": 1, "string": "x", "array": ["x"], "": {"a": 1}}
    given = {each: values[found.fields[each].type] for each in found.needs}
    given |= {"description": "x"} if operation == "describe" else {}
    given |= {"text": "x"} if operation == "append" else {}
    return ({"operation": operation} if operation else {}) | given
