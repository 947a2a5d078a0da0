"""Tools without an event loop: the same names, and every call blocks until it is answered."""

from __future__ import annotations

import inspect

import pytest

import dgent
from dgent import blocks, sync
from dgent import tools as waiting
from dgent.errors import InputError
from dgent.sync import tools as blocking
from dgent.sync.blocks import Library


def test_the_same_names_and_methods() -> None:
    assert blocking.__all__ == waiting.__all__
    ours, theirs = blocking.Toolbox, waiting.Toolbox
    assert ours.__module__ == "dgent.sync.tools"
    for name, method in inspect.getmembers(theirs, inspect.isfunction):
        if not name.startswith("_"):
            assert list(inspect.signature(getattr(ours, name)).parameters) == list(
                inspect.signature(method).parameters
            )
            assert not inspect.iscoroutinefunction(getattr(ours, name))


def test_tools_are_plain_functions(u: sync.Universe) -> None:
    lib = Library(u, agent="scout")
    tools = blocking.Toolbox(lib)
    assert tools.call("block", {"operation": "create", "label": "notes", "text": "hello"})["ok"]
    assert [each["name"] for each in tools.schemas()] == list(tools.functions())
    search = tools.functions()["search"]
    assert not inspect.iscoroutinefunction(search) and search.__name__ == "search"
    assert search(query="hello")["data"]["items"][0]["label"] == "notes"
    assert "operation" in inspect.signature(tools.functions()["block"]).parameters
    assert tools.library.get("notes").text() == "hello"


def test_all_rooms_of_a_universe(u: sync.Universe) -> None:
    tools = blocking.Toolbox(u, rooms=("cupboard", "data"))
    assert list(tools.functions()) == ["work", "data"]
    assert tools.functions()["work"]("add", name="rest", state="ready")["ok"]
    assert tools.call("work", {"operation": "take"})["data"]["name"] == "rest"


async def test_what_waits_is_refused() -> None:
    async with dgent.open("memory:") as u:
        for source in (u, blocks.Library(u, agent="scout")):
            with pytest.raises(InputError, match=r"dgent\.sync"):
                blocking.Toolbox(source)
