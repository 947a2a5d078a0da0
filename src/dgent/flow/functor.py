"""Functors: ways to give any agent a new ability; and the search for inputs that break their laws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec

from dgent.errors import InputError, NotFound
from dgent.flow.agent import Agent, Id
from dgent.system.near import find_near

SMALL = (0, 1, -1, 2, -2, 3)
RANDOM = 40  # inputs beyond the small ones
SEED = 20


class Functor(ABC):
    """Makes of an agent from A to B one from F(A) to F(B).

    Its laws: the lifted `Id` changes nothing, and lifting `f >> g` is the same as lifting both.
    """

    name: str
    loses: str = ""
    """The information that a lossy functor drops, which its result cannot give back."""

    @abstractmethod
    def lift(self, agent: Agent[Any, Any]) -> Agent[Any, Any]:
        """Return the agent with the ability."""

    @abstractmethod
    def unlift(self, lifted: Any) -> Agent[Any, Any]:
        """Return the agent without it."""

    def pure(self, value: Any) -> Any:
        """Return a value as an input of lifted agents."""
        return value

    def samples(self, values: Sequence[Any]) -> Iterable[Any]:
        """Yield inputs of lifted agents made of some values, the smallest first."""
        return (self.pure(value) for value in values)

    async def observe(self, lifted: Any, given: Any) -> Any:
        """Return all that can be seen of running a lifted agent."""
        return await lifted.invoke(given)

    async def observe_unchanged(self, given: Any) -> Any:
        """Return what would be seen if nothing were done to an input."""
        return given

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[Functor]:
        """Hold what the functor needs while its laws are checked."""
        yield self


class FunctorLawResult(msgspec.Struct, frozen=True):
    """One law of one functor: whether it held, and if not, the smallest input for which it did not."""

    law: str
    passed: bool
    tried: int
    input: str = ""
    left: str = ""
    right: str = ""


class FunctorVerificationReport(msgspec.Struct, frozen=True):
    """The laws of one functor."""

    functor: str
    identity_law: FunctorLawResult
    composition_law: FunctorLawResult

    @property
    def passed(self) -> bool:
        """True if both laws held."""
        return self.identity_law.passed and self.composition_law.passed


class FunctorRegistry:
    """The functors that are known by name: those of dgent, and your own."""

    def __init__(self, functors: Iterable[Functor] = ()) -> None:
        self._functors: dict[str, Functor] = {}
        for functor in functors:
            self.register(functor)

    def register(self, functor: Functor) -> None:
        """Add a functor under its name."""
        if not isinstance(functor, Functor):
            raise InputError(f"a functor is registered, not {functor!r:.60}", field="functor")
        if functor.name.lower() in self._functors:
            raise InputError(f"a functor {functor.name!r} is registered already", field="name")
        self._functors[functor.name.lower()] = functor

    def get(self, name: str) -> Functor:
        """Return the functor of a name, in any case."""
        found = self._functors.get(name.lower())
        if found is None:
            near = ", ".join(find_near(name.lower(), self._functors, 3)) or ", ".join(sorted(self._functors))
            raise NotFound(f"no functor {name!r} is registered", hint=f"there are: {near}")
        return found

    def all_functors(self) -> dict[str, Functor]:
        """Return the functors by name."""
        return {functor.name: functor for functor in self._functors.values()}

    async def verify_all(self, *, seed: int = SEED) -> dict[str, FunctorVerificationReport]:
        """Check the laws of every functor."""
        return {name: await verify_functor(each, seed=seed) for name, each in self.all_functors().items()}


async def verify_functor(functor: Functor, *, seed: int = SEED) -> FunctorVerificationReport:
    """Look for inputs that break the laws of a functor, the smallest first."""
    async with functor.ready() as held:
        return FunctorVerificationReport(
            functor.name, await verify_identity_law(held, seed), await verify_composition_law(held, seed)
        )


async def verify_identity_law(functor: Functor, seed: int = SEED) -> FunctorLawResult:
    """Check that the lifted `Id` gives what `Id` gives."""

    async def sides(given: Any) -> tuple[Any, Any]:
        return await _see(functor, functor.lift(Id), given), await functor.observe_unchanged(given)

    return await _search("identity", functor, seed, [("Id", sides)])


async def verify_composition_law(functor: Functor, seed: int = SEED) -> FunctorLawResult:
    """Check that lifting `f >> g` gives what lifting both and composing them gives."""

    def pair(f: Agent[Any, Any], g: Agent[Any, Any]) -> Callable[[Any], Awaitable[tuple[Any, Any]]]:
        async def sides(given: Any) -> tuple[Any, Any]:
            left = await _see(functor, functor.lift(f >> g), given)
            return left, await _see(functor, functor.lift(f) >> functor.lift(g), given)

        return sides

    pairs = [(f"{f.name} >> {g.name}", pair(f, g)) for f in AGENTS for g in AGENTS]
    return await _search("composition", functor, seed, pairs)


async def _search(
    law: str,
    functor: Functor,
    seed: int,
    checks: Sequence[tuple[str, Callable[[Any], Awaitable[tuple[Any, Any]]]]],
) -> FunctorLawResult:
    """Try inputs from small to large, so that the first one that fails is the smallest."""
    tried = 0
    for given in functor.samples(_values(seed)):
        for name, sides in checks:
            tried += 1
            left, right = await sides(given)
            if left != right:
                shown = f"{name} on {given!r:.200}"
                return FunctorLawResult(law, False, tried, shown, f"{left!r:.200}", f"{right!r:.200}")
    return FunctorLawResult(law, True, tried)


async def _see(functor: Functor, lifted: Any, given: Any) -> Any:
    """Return what is seen, an error as its kind and text: laws hold for failing agents too."""
    try:
        return await functor.observe(lifted, given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _values(seed: int) -> list[int]:
    random = Random(seed)
    return [*SMALL, *sorted((random.randrange(-(10**6), 10**6) for _ in range(RANDOM)), key=abs)]


def _refuse_large(n: int) -> int:
    if abs(n) > 1000:
        raise ValueError("too large")
    return n


AGENTS: tuple[Agent[Any, Any], ...] = (
    Agent.from_function(lambda n: n + 1, "add one"),
    Agent.from_function(lambda n: n * 2, "double"),
    Agent.from_function(lambda n: -n, "negate"),
    Agent.from_function(_refuse_large, "refuse large"),
)
"""The agents that are composed in the search: they do not commute, and one of them fails at times."""
