"""The agent: something that turns an input into an output, and composes with others by `>>`."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, cast

from dgent.errors import InputError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class Agent(ABC, Generic[A, B]):
    """Turns an A into a B. A class of your own needs only `invoke`."""

    @property
    def name(self) -> str:
        """The name that errors and logs show."""
        return type(self).__name__

    @abstractmethod
    async def invoke(self, input: A, /) -> B:
        """Turn an input into an output."""

    def __rshift__(self, other: Agent[B, C]) -> Agent[A, C]:
        if not isinstance(other, Agent):
            return NotImplemented
        steps = [*_steps(self), *_steps(other)]
        if not steps:
            return cast("Agent[A, C]", Id)
        return steps[0] if len(steps) == 1 else ComposedAgent(tuple(steps))

    @staticmethod
    def from_function(function: Callable[[A], B | Awaitable[B]], name: str | None = None) -> Agent[A, B]:
        """Return an agent that calls a function, which may be async."""
        return FunctionAgent(function, name)

    def __repr__(self) -> str:
        return f"<agent {self.name}>"


class FunctionAgent(Agent[A, B]):
    """Calls a function."""

    def __init__(self, function: Callable[[A], B | Awaitable[B]], name: str | None = None) -> None:
        if not callable(function):
            raise InputError(f"an agent is made from a function, not {function!r:.60}", field="function")
        self.function = function
        self._name = name or str(getattr(function, "__name__", type(function).__name__))

    @property
    def name(self) -> str:
        """The name of the function, unless another one was given."""
        return self._name

    async def invoke(self, input: A, /) -> B:
        """Call the function; what it returns is awaited if it can be."""
        return cast("B", await settle(self.function(input)))


class ComposedAgent(Agent[A, B]):
    """Some agents, each of which takes what the one before it gave.

    They are kept in one row, so `(f >> g) >> h` and `f >> (g >> h)` are the same agent.
    """

    def __init__(self, steps: tuple[Agent[Any, Any], ...]) -> None:
        self.steps = steps

    @property
    def name(self) -> str:
        """The names of the agents in their order."""
        return " >> ".join(step.name for step in self.steps)

    async def invoke(self, input: A, /) -> B:
        """Pass an input through every agent."""
        value: Any = input
        for step in self.steps:
            value = await step.invoke(value)
        return cast("B", value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposedAgent) and self.steps == other.steps

    def __hash__(self) -> int:
        return hash(self.steps)


async def settle(value: Any) -> Any:
    """Return a value, or what it stands for if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


def _steps(agent: Agent[Any, Any]) -> tuple[Agent[Any, Any], ...]:
    if agent is Id:
        return ()
    return agent.steps if isinstance(agent, ComposedAgent) else (agent,)


Id: Agent[Any, Any] = FunctionAgent(lambda input: input, "Id")
"""The agent that returns what it is given: `Id >> f` and `f >> Id` are `f`."""
