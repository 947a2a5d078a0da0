"""Python functions as tools: schemas, arguments that models get wrong, and answers."""

from __future__ import annotations

import threading
from typing import Annotated, Any, Literal

import msgspec
import pytest

import dgent
from dgent.errors import InputError
from dgent.runtime.tool.function import function_tool
from dgent.runtime.tool.tool import Call, Toolset, ToolSource, call_tool, find_tool
from dgent.tools import Toolbox


class Point(msgspec.Struct):
    """A place."""

    x: int
    y: int = 0


def add(a: int, b: Annotated[int, "the second number"] = 1) -> int:
    """Add two numbers.

    Args:
        a (int): the first number,
            which may be negative
    """
    return a + b


async def place(at: Point, how: Literal["fast", "slow"], call: Call, tags: list[str] | None = None) -> Any:
    """Go to a place."""
    return {"x": at.x, "how": how, "by": call.caller, "tags": tags}


def test_a_schema_is_flat_and_says_what_each_argument_is() -> None:
    tool = function_tool(add, effect="read")
    assert tool.description == "Add two numbers."
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first number, which may be negative"},
            "b": {"type": "integer", "description": "the second number", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert tool.repeatable
    assert not function_tool(add).repeatable
    made = function_tool(place).parameters
    assert "$ref" not in str(made)
    assert set(made["properties"]) == {"at", "how", "tags"}
    assert made["properties"]["at"]["properties"]["x"] == {"type": "integer"}


async def test_functions_answer_with_their_values() -> None:
    tools = Toolset([function_tool(add), function_tool(place)])
    assert await tools.call("add", {"a": 1}) == {"ok": True, "message": "done", "data": 2}
    assert (await tools.call("add", '{"a": "4", "b": null}'))["data"] == 5
    answer = await call_tool(tools, "place", {"at": {"x": 3}, "how": "fast"}, Call(caller="scout"))
    assert answer["data"] == {"x": 3, "how": "fast", "by": "scout", "tags": None}


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("add", {"a": "many"}, "a of add"),
        ("add", {}, "'a'"),
        ("add", {"a": 1, "c": 2}, "'c'"),
        ("add", "{", "not JSON"),
        ("add", "[1]", "list"),
        ("add", "[" * 100_000, "not JSON"),
        ("add", "1" * 3_000_000, "more than"),
        ("ad", {}, "no tool 'ad'"),
        ("place", {"at": {"x": 1}, "how": "never"}, "how of place"),
    ],
)
async def test_wrong_arguments_are_an_answer(name: str, arguments: Any, words: str) -> None:
    answer = await Toolset([function_tool(add), function_tool(place)]).call(name, arguments)
    assert answer["ok"] is False
    assert words in answer["message"]
    assert answer["data"]["code"] == "input"
    assert answer["data"]["hint"]


async def test_a_tool_that_raises_is_an_answer_and_long_answers_are_cut() -> None:
    def bad() -> None:
        raise RuntimeError("out of \ud800 order")

    def long() -> str:
        return "x" * 1_000_000

    def thread() -> bool:
        return threading.current_thread() is threading.main_thread()

    tools = Toolset(map(function_tool, (bad, long, thread)))
    answer = await tools.call("bad")
    assert answer["message"] == "RuntimeError: out of \\ud800 order"
    assert answer["data"]["code"] == "tool_failed"
    cut = await tools.call("long")
    assert "of 1000000 characters" in cut["message"]
    assert len(cut["data"]["text"]) == 25_000
    assert (await tools.call("thread"))["data"] is False


def test_functions_that_no_model_can_call_are_refused() -> None:
    def many(*args: int) -> None: ...

    with pytest.raises(InputError, match=r"\*args"):
        function_tool(many)
    with pytest.raises(InputError, match="not a valid name"):
        function_tool(lambda: None)
    with pytest.raises(InputError, match="two tools"):
        Toolset([function_tool(add), function_tool(add)])


async def test_a_toolbox_is_a_source_like_others() -> None:
    async with dgent.open("memory:", author="scout") as u:
        source: ToolSource = Toolbox(u)
        names = [each["name"] for each in source.schemas()]
        assert find_tool(source, names[0]) is None
        answer = await call_tool(source, "nothing", {}, Call())
        assert answer["ok"] is False
        assert {"ok", "message", "data"} == set(answer)
