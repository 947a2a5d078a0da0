"""Agents: they compose, in any grouping, and `Id` is nothing."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from dgent.errors import InputError
from dgent.flow import AGENT_MEMORY, Agent, Category, Id
from dgent.model import lens

add = Agent.from_function(lambda n: n + 1, "add")
double = Agent.from_function(lambda n: n * 2, "double")
show = Agent.from_function(str)


async def test_agents_compose_in_order() -> None:
    assert await (add >> double >> show).invoke(4) == "10"
    assert (add >> double >> show).name == "add >> double >> str"


async def test_grouping_and_identity_change_nothing() -> None:
    assert (add >> double) >> show == add >> (double >> show)
    assert Id >> add is add and add >> Id is add and Id >> Id is Id
    assert await Id.invoke("as it is") == "as it is"


async def test_a_function_may_be_async_or_return_something_to_wait_for() -> None:
    async def wait(n: int, more: int = 1) -> int:
        await asyncio.sleep(0)
        return n + more

    assert await Agent.from_function(wait).invoke(1) == 2
    assert await Agent.from_function(partial(wait, more=5)).invoke(1) == 6
    assert await Agent.from_function(lambda n: wait(n)).invoke(1) == 2


async def test_what_is_no_agent_is_refused() -> None:
    with pytest.raises(TypeError):
        add >> (lambda n: n)  # type: ignore[operator]
    with pytest.raises(InputError, match="made from a function"):
        Agent.from_function(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Agent()  # type: ignore[abstract]


def test_the_lenses_of_memory_are_a_category() -> None:
    arrows = [lens.key("a"), lens.key("b"), lens.key("c")]
    sample = ({"a": {"b": {"c": 1}}}, 5)
    assert AGENT_MEMORY.broken_laws(arrows[:1], [({"a": 1}, 2)]) == []
    assert AGENT_MEMORY.broken_laws([arrows[0], arrows[1], arrows[2]], [sample]) == []


def test_a_composition_that_loses_an_arrow_is_caught() -> None:
    broken: Category[Any] = Category(
        "broken", AGENT_MEMORY.objects, lens.Lens, lens.identity, lambda f, g: g, AGENT_MEMORY.same
    )
    found = broken.broken_laws([lens.key("a")], [({"a": 1}, 2)])
    assert found and "right identity" in found[0]
