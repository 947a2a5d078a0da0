"""Agents with a state that lasts: loaded before a step, given to the logic, saved if nobody was faster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from dgent import clock, codec
from dgent.errors import InputError, NotFound, TransactionConflict, Unsupported, VersionConflict
from dgent.flow.agent import Agent, settle
from dgent.flow.delta import DeltaKeeper
from dgent.flow.keep import Keeper, Kept, Mark
from dgent.flow.record import UniverseKeeper, find_schema
from dgent.flow.row import RowKeeper, Rows, find_key
from dgent.store.backend import Version
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from dgent.flow.flux import FluxAgent

A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S")

Logic: TypeAlias = Callable[[A, S], tuple[B, S] | Awaitable[tuple[B, S]]]
"""Turns an input and a state into an output and the next state."""

ATTEMPTS = 64  # of pure logic: each failed one means that another process took a step
LONGEST_PAUSE_S = 0.25


@dataclass(frozen=True)
class StateFunctor(Generic[S]):
    """Gives agents a state: `StateFunctor(Counter, u, Counter(0), "counter").lift_logic(count)`.

    A state is a dict, a dataclass, a pydantic model or a msgspec struct. It is one record of a universe,
    named by its `namespace`: agents of the same namespace share it, in any process. States of an older
    version of a registered schema are upgraded as every record is.
    """

    state_type: type[S]
    backend: Universe | Keeper[S]
    initial_state: S | None = None
    namespace: str = "default"

    def lift(
        self, agent: Agent[Any, Any], *, state: bool = False, attempts: int = 1
    ) -> StatefulAgent[S, Any, Any]:
        """Return the agent with a state.

        It is given the input alone and leaves the state as it is. With `state=True` it is given
        `(input, state)` and must return `(output, state)`. What an agent does may not be repeated lightly,
        so a step that meets another one raises VersionConflict, unless it may have more `attempts`.
        """
        if not isinstance(agent, Agent):
            raise InputError(
                f"lift takes an agent, not {agent!r:.60}",
                hint="use lift_logic for a function of input and state, Agent.from_function for others",
                field="agent",
            )
        if attempts < 1:
            raise InputError(f"attempts is {attempts}, and must be at least 1", field="attempts")
        return StatefulAgent(agent, self, self._keeper(), state, attempts)

    def lift_logic(self, logic: Logic[A, S, B], *, attempts: int = ATTEMPTS) -> StatefulAgent[S, A, B]:
        """Return an agent from `(input, state) -> (output, state)`, which may be async.

        The function is pure: when another process was faster, it is called again with the newer state.
        """
        return self.lift(_LogicAgent(logic), state=True, attempts=attempts)

    @staticmethod
    def unlift(agent: StatefulAgent[S, A, B]) -> Agent[Any, Any]:
        """Return the agent without its state."""
        return agent.inner

    @staticmethod
    def compose_flux(functor: StateFunctor[S], **how: Any) -> Callable[[Agent[A, B]], FluxAgent[A, B]]:
        """Return what makes `Flux(State(agent))` of an agent; `how` is passed to `lift`."""
        from dgent.flow.flux import Flux

        return lambda agent: Flux.lift(functor.lift(agent, **how))

    @classmethod
    def from_table_adapter(
        cls,
        adapter: Rows[S],
        initial_state: S | None = None,
        *,
        key: str | None = None,
        version_field: str | None = None,
    ) -> StateFunctor[S]:
        """Return a functor whose state is one row of a table; its id is `key`, or that of the initial state.

        A step writes the row only if it is still as it was read: its `version_field`, which every step
        increases, or else every column. A row has no versions, so history and fork raise Unsupported.
        """
        keeper = RowKeeper(adapter, find_key(adapter, initial_state, key), version_field)
        return cls(keeper.kind, keeper, initial_state, keeper.name)

    def start_state(self) -> S:
        """Return the state before the first step."""
        if self.initial_state is not None:  # copied, since logic may change it in place
            if isinstance(self.backend, RowKeeper):
                return cast("S", self.backend.copy(self.initial_state))
            return deepcopy(self.initial_state)
        try:
            return self.state_type()
        except TypeError as error:
            raise InputError(
                f"a {self.state_type.__name__} needs values to begin with: {error}",
                hint="give the functor an initial_state",
                field="initial_state",
            ) from error

    def _keeper(self) -> Keeper[S]:
        if isinstance(self.backend, Universe):
            return open_keeper(self.backend, self.state_type, self.namespace)
        return self.backend


def open_keeper(universe: Universe, state_type: type[S], namespace: str) -> UniverseKeeper[S]:
    """Return the keeper of a state on a universe."""
    schema: Any = find_schema(universe, state_type)
    if state_type is dict:
        return cast("UniverseKeeper[S]", DeltaKeeper(universe, schema, namespace))
    return UniverseKeeper(universe, schema, namespace)


def require_history(keeper: Keeper[S]) -> UniverseKeeper[S]:
    """Return a keeper that keeps versions; raises Unsupported for one that does not."""
    if isinstance(keeper, UniverseKeeper):
        return keeper
    raise Unsupported(
        f"the state {keeper.name!r} is a row of a table, which keeps no versions",
        hint="keep the state on a universe",
    )


class StatefulAgent(Agent[A, B], Generic[S, A, B]):
    """An agent with a state, as `StateFunctor.lift` makes it."""

    def __init__(
        self,
        inner: Agent[Any, Any],
        functor: StateFunctor[S],
        keeper: Keeper[S],
        takes_state: bool,
        attempts: int,
    ) -> None:
        self.inner = inner
        self.functor = functor
        self.keeper = keeper
        self.takes_state = takes_state
        self.attempts = attempts

    @property
    def name(self) -> str:
        """The name of the agent within, and the state's."""
        return f"State({self.inner.name}, {self.functor.namespace})"

    async def invoke(self, input: A, /, *, step: str | None = None) -> B:
        """Take a step: run the agent and save the state; if it fails, nothing is saved.

        A step with a name happens once: repeated, also after a crash, it gives what it gave before. Its
        output must be data that can be stored.
        """
        if not self.takes_state and step is None:
            return cast("B", await self.inner.invoke(input))
        for attempt in range(1, self.attempts + 1):
            try:
                return await self._take_step(input, step)
            except (VersionConflict, TransactionConflict):
                if attempt == self.attempts:
                    raise
            await asyncio.sleep(clock.jitter(0, min(0.001 * 2**attempt, LONGEST_PAUSE_S)))
        raise AssertionError("the last attempt raises")

    async def _take_step(self, input: A, step: str | None) -> B:
        async with self._alone():
            mark_id = f"{self.keeper.name}:step:{step}"
            if step is not None and (done := await self.keeper.find_mark(mark_id)) is not None:
                return cast("B", done.data["output"])
            run: Run[S, A, B] = Run(self, await self.keeper.load(), False)
            output = await run.step(input)
            await run.save(None if step is None else Mark(mark_id, {"output": _as_data(output)}))
            return output

    @asynccontextmanager
    async def run(self, *, copy_states: bool = False) -> AsyncIterator[Run[S, A, B]]:
        """Take several steps in memory and save them together; others of this program wait meanwhile.

        With `copy_states` a step that fails leaves the state as it was, also when it changed it in place.
        """
        async with self._alone():
            yield Run(self, await self.keeper.load(), copy_states)

    def _alone(self) -> AbstractAsyncContextManager[None]:
        if isinstance(self.keeper, UniverseKeeper):
            return self.keeper.universe.names.alone(f"flow {self.keeper.id}")
        if isinstance(self.keeper, RowKeeper):
            return self.keeper.names.alone(self.keeper.key)
        return nullcontext()

    def transition(self, state: S, input: A) -> tuple[S, B]:
        """Return the next state and the output, and save nothing; InputError if the agent has to wait.

        It is the transition of `PolyAgent.from_stateful`, a machine of values.
        """
        running: Any = self.inner.invoke((input, deepcopy(state)) if self.takes_state else input)
        try:
            running.send(None)
        except StopIteration as done:
            output, after = _pair(self, done.value) if self.takes_state else (done.value, state)
            return after, output
        running.close()
        raise InputError(
            f"{self.inner.name} waits for something, and a transition is a plain function",
            hint="lift a function that is not async",
            field="agent",
        )

    # -- the state itself -------------------------------------------------------------------

    async def current_state(self) -> S:
        """Return the state as it is stored now; before the first step, the one it begins with."""
        kept = await self.keeper.load()
        return self.functor.start_state() if kept is None else kept.state

    async def history(self, limit: int | None = None) -> list[Version]:
        """Return the versions of the state, newest first: one for each step that changed it."""
        return await require_history(self.keeper).history(limit)

    async def state_at(self, rev: int) -> S:
        """Return the state after an earlier step."""
        kept: Kept[S] = await require_history(self.keeper).load_at(rev)
        return kept.state

    async def resume(self, rev: int) -> S:
        """Go on from an earlier step: its state becomes the newest version, and none is lost."""
        state = await self.state_at(rev)
        async with self._alone():
            await require_history(self.keeper).overwrite(state)
        return state

    async def fork(self, namespace: str, *, rev: int | None = None) -> StatefulAgent[S, A, B]:
        """Return the same agent with a state of its own, which begins as this one is or was at a step."""
        keeper = require_history(self.keeper)
        if rev is None and (now := await keeper.load()) is None:
            raise NotFound(f"the state {keeper.name!r} has no step yet", hint="take one before a fork")
        state = await self.state_at(rev) if rev is not None else cast("Kept[S]", now).state
        twin = open_keeper(keeper.universe, self.functor.state_type, namespace)
        await twin.create(state, parent=keeper.id)
        functor = replace(self.functor, namespace=namespace)
        return StatefulAgent(self.inner, functor, twin, self.takes_state, self.attempts)


def _as_data(output: Any) -> Any:
    """Return an output that is the same when it is read back; InputError for any other."""
    data = codec.plain({"output": output})["output"]
    if data != output:
        raise InputError(
            f"the output of a named step, a {type(output).__name__}, would not come back as it is",
            hint="return texts, numbers, lists and maps of these, or leave out the step",
            field="output",
        )
    return data


def _pair(agent: StatefulAgent[S, A, B], result: Any) -> tuple[B, S]:
    """Return the output and the state that an agent returned; InputError for anything else."""
    if isinstance(result, tuple) and len(result) == 2:
        return result
    raise InputError(
        f"{agent.inner.name} returned {type(result).__name__}, not (output, state)",
        hint="lift(agent) without state=True is for agents that return an output alone",
        field="agent",
    )


class Run(Generic[S, A, B]):
    """Steps that are taken in memory; `save` makes them last."""

    def __init__(self, agent: StatefulAgent[S, A, B], kept: Kept[S] | None, copy_states: bool) -> None:
        self._agent = agent
        self._kept = kept
        self._copies = copy_states
        self.state: S = agent.functor.start_state() if kept is None else kept.state

    async def step(self, input: A) -> B:
        """Run the agent; the state changes only if it succeeds."""
        if not self._agent.takes_state:
            return cast("B", await self._agent.inner.invoke(input))
        state = deepcopy(self.state) if self._copies else self.state
        output, self.state = _pair(self._agent, await self._agent.inner.invoke((input, state)))
        return output

    async def save(self, mark: Mark | None = None) -> None:
        """Save the state, and a mark with it; raises VersionConflict if another one was saved meanwhile."""
        await self._agent.keeper.save(self.state, self._kept, mark)


class _LogicAgent(Agent[tuple[A, S], tuple[B, S]], Generic[A, B, S]):
    """Calls a function of input and state."""

    def __init__(self, logic: Logic[A, S, B]) -> None:
        if not callable(logic):
            raise InputError(f"logic is a function of input and state, not {logic!r:.60}", field="logic")
        self.logic = logic

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self.logic, "__name__", type(self.logic).__name__))

    async def invoke(self, input: tuple[A, S], /) -> tuple[B, S]:
        """Call the function."""
        result: tuple[B, S] = await settle(self.logic(*input))
        return result


def Symbiont(logic: Logic[A, S, B], store: StateFunctor[S]) -> StatefulAgent[S, A, B]:
    """Return logic joined with a store: the same as `store.lift_logic(logic)`."""
    return store.lift_logic(logic)
