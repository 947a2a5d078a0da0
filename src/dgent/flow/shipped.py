"""The functors of dgent, and the registry that holds them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dgent.errors import InputError
from dgent.flow.agent import Agent, ComposedAgent, Id
from dgent.flow.bridge import BridgeFunctor
from dgent.flow.flux import Flux, FluxAgent, FluxPipeline
from dgent.flow.functor import Functor, FunctorRegistry
from dgent.flow.state import StatefulAgent, StateFunctor
from dgent.universe.universe import open


class Just(msgspec.Struct, frozen=True):
    """A value that is there."""

    value: Any


class _Nothing(msgspec.Struct, frozen=True):
    """No value."""


NOTHING = _Nothing()


class Left(msgspec.Struct, frozen=True):
    """A failure, which agents pass on."""

    error: str


class Right(msgspec.Struct, frozen=True):
    """A success."""

    value: Any


class Logged(msgspec.Struct, frozen=True):
    """A value, and the names of the agents that it went through."""

    value: Any
    log: tuple[str, ...] = ()


class _Lifted(Agent[Any, Any]):
    """An agent within another one, run as its functor says."""

    def __init__(
        self, functor: str, inner: Agent[Any, Any], run: Callable[[Agent[Any, Any], Any], Any]
    ) -> None:
        self.inner = inner
        self._functor = functor
        self._run = run

    @property
    def name(self) -> str:
        """The name of the functor and of the agent within."""
        return f"{self._functor}({self.inner.name})"

    async def invoke(self, input: Any, /) -> Any:
        """Run the agent within."""
        return await self._run(self.inner, input)


class RunFunctor(Functor):
    """A functor that is one way to run the agent within: `async (agent, input) -> output`."""

    def __init__(self, name: str, run: Callable[[Agent[Any, Any], Any], Any]) -> None:
        self.name = name
        self._run = run

    def lift(self, agent: Agent[Any, Any]) -> Agent[Any, Any]:
        """Return the agent that is run this way."""
        return _Lifted(self.name, agent, self._run)

    def unlift(self, lifted: Any) -> Agent[Any, Any]:
        """Return the agent within."""
        if not isinstance(lifted, _Lifted):
            raise InputError(f"{lifted!r:.60} was not lifted by {self.name}", field="lifted")
        return lifted.inner


class IdentityFunctor(Functor):
    """Leaves agents as they are."""

    name = "Identity"

    def lift(self, agent: Agent[Any, Any]) -> Agent[Any, Any]:
        """Return the agent itself."""
        return agent

    def unlift(self, lifted: Any) -> Agent[Any, Any]:
        """Return the agent itself."""
        found: Agent[Any, Any] = lifted
        return found


class MaybeFunctor(RunFunctor):
    """Agents over values that may be missing."""

    def __init__(self) -> None:
        async def run(agent: Agent[Any, Any], given: Any) -> Any:
            return Just(await agent.invoke(given.value)) if isinstance(given, Just) else NOTHING

        super().__init__("Maybe", run)

    def pure(self, value: Any) -> Just:
        """Return a value that is there."""
        return Just(value)

    def samples(self, values: Sequence[Any]) -> Iterable[Any]:
        """Yield nothing, then each value."""
        yield NOTHING
        yield from map(Just, values)


class EitherFunctor(RunFunctor):
    """Agents whose failures become values that later agents pass on."""

    def __init__(self) -> None:
        async def run(agent: Agent[Any, Any], given: Any) -> Any:
            if not isinstance(given, Right):
                return given
            try:
                return Right(await agent.invoke(given.value))
            except Exception as error:
                return Left(f"{type(error).__name__}: {error}")

        super().__init__("Either", run)

    def pure(self, value: Any) -> Right:
        """Return a success."""
        return Right(value)

    def samples(self, values: Sequence[Any]) -> Iterable[Any]:
        """Yield a failure, then each value as a success."""
        yield Left("before")
        yield from map(Right, values)


class ListFunctor(RunFunctor):
    """Agents over lists, one value after the other."""

    def __init__(self) -> None:
        async def run(agent: Agent[Any, Any], given: Sequence[Any]) -> list[Any]:
            return [await agent.invoke(each) for each in given]

        super().__init__("List", run)

    def pure(self, value: Any) -> list[Any]:
        """Return a list of one value."""
        return [value]

    def samples(self, values: Sequence[Any]) -> Iterable[Any]:
        """Yield the empty list, then each value alone and with its neighbours."""
        yield []
        for number, value in enumerate(values):
            yield [value]
            yield list(values[max(0, number - 2) : number + 1])


class LoggedFunctor(RunFunctor):
    """Agents that write down each step; `Id` adds none, and a row of agents as many as it has."""

    def __init__(self) -> None:
        async def run(agent: Agent[Any, Any], given: Logged) -> Logged:
            steps = agent.steps if isinstance(agent, ComposedAgent) else (() if agent is Id else (agent,))
            value, log = given.value, given.log
            for step in steps:
                value, log = await step.invoke(value), (*log, step.name)
            return Logged(value, log)

        super().__init__("Logged", run)

    def pure(self, value: Any) -> Logged:
        """Return a value that went through no agent."""
        return Logged(value)

    def samples(self, values: Sequence[Any]) -> Iterable[Any]:
        """Yield each value with an empty log and with one that has an entry."""
        for value in values:
            yield Logged(value)
            yield Logged(value, ("before",))


class FixFunctor(RunFunctor):
    """Agents that are run again when they fail, a few times."""

    def __init__(self, attempts: int = 3) -> None:
        async def run(agent: Agent[Any, Any], given: Any) -> Any:
            for _ in range(attempts - 1):
                try:
                    return await agent.invoke(given)
                except Exception:
                    await asyncio.sleep(0)
            return await agent.invoke(given)

        super().__init__("Fix", run)


class StateLaws(Functor):
    """`StateFunctor` as the registry checks it: on a store in memory, its state among what is seen."""

    name = "State"

    def __init__(self, functor: StateFunctor[Any] | None = None) -> None:
        self._functor = functor

    def lift(self, agent: Agent[Any, Any]) -> Agent[Any, Any]:
        """Return the agent with a state."""
        if self._functor is None:
            raise InputError("State needs a store", hint="use StateFunctor(...).lift(agent)")
        return self._functor.lift(agent)

    def unlift(self, lifted: Any) -> Agent[Any, Any]:
        """Return the agent without its state."""
        return StateFunctor.unlift(lifted)

    async def observe(self, lifted: Any, given: Any) -> Any:
        """Return the output, and the state after it."""
        return await lifted.invoke(given), await self._state()

    async def observe_unchanged(self, given: Any) -> Any:
        """Return the input, and the state as it is."""
        return given, await self._state()

    async def _state(self) -> Any:
        return await self.lift(Id).current_state()  # type: ignore[attr-defined]

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[Functor]:
        """Hold a store in memory with a state that has been through a step."""
        async with open("memory:") as u:
            functor: StateFunctor[Any] = StateFunctor(dict, u, {"steps": 0}, "laws")
            step: StatefulAgent[Any, int, int] = functor.lift_logic(
                lambda n, s: (n, {"steps": s["steps"] + n})
            )
            await step.invoke(7)
            yield StateLaws(functor)


class FluxLaws(Functor):
    """`Flux` as the registry checks it: all that comes out of a stream is seen."""

    name = "Flux"

    def lift(self, agent: Agent[Any, Any]) -> Agent[Any, Any]:
        """Return the agent over streams."""
        return Flux.lift(agent)

    def unlift(self, lifted: Any) -> Agent[Any, Any]:
        """Return the agent over single inputs."""
        return Flux.unlift(lifted)

    def samples(self, values: Sequence[Any]) -> Iterable[Any]:
        """Yield the empty stream, then streams of one value and of three."""
        return ListFunctor().samples(values)

    async def observe(self, lifted: Any, given: Any) -> Any:
        """Return what came out, and the error that ended it."""
        steps = lifted.steps if isinstance(lifted, ComposedAgent) else (lifted,)
        row: FluxPipeline[Any, Any] = FluxPipeline(
            tuple(each for each in steps if isinstance(each, FluxAgent))
        )
        seen: list[Any] = []
        try:
            async for output in row.start(_stream(given)):
                seen.append(output)
        except ValueError as error:
            seen.append(f"{type(error).__name__}: {error}")
        return seen


async def _stream(values: Sequence[Any]) -> AsyncIterator[Any]:
    for value in values:
        yield value


async def _run_apart(agent: Agent[Any, Any], given: Any) -> Any:
    return await asyncio.create_task(agent.invoke(given))


def functors() -> FunctorRegistry:
    """Return a registry with the functors of dgent."""
    return FunctorRegistry(
        (
            IdentityFunctor(),
            MaybeFunctor(),
            EitherFunctor(),
            ListFunctor(),
            RunFunctor("Async", _run_apart),
            LoggedFunctor(),
            FixFunctor(),
            StateLaws(),
            FluxLaws(),
            BridgeFunctor(),
        )
    )
