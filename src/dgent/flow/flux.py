"""Agents over streams: events in, outputs out, with backpressure, errors by policy and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

from dgent import clock, codec
from dgent.errors import Conflict, DgentError, InputError
from dgent.flow.agent import Agent
from dgent.flow.buffer import Buffer, Event, FluxStats, late
from dgent.flow.progress import Progress
from dgent.flow.record import UniverseKeeper
from dgent.flow.source import Changes, Folder, Lines, Numbered, Source, Timer
from dgent.flow.state import StatefulAgent
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.universe.universe import Universe

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

DEAD_LETTER = Schema[dict[str, Any]]("flow.dead_letter")
"""Events that an agent could not take, with the error: `flow`, `position`, `event`, `error`."""

LONGEST_BACKOFF_S = 30.0


class FluxState(Enum):
    """The condition of a flow."""

    DORMANT = "dormant"  # not started yet
    FLOWING = "flowing"
    DRAINING = "draining"  # takes no more events, and gives what it has
    STOPPED = "stopped"  # may be started again


@dataclass(frozen=True)
class FluxConfig:
    """The settings of a flow.

    `buffer_size` events are read ahead. When an agent is slower than its source, `block` makes the source
    wait; the others drop events and count them. `on_error` stops the flow, skips the event and keeps it as
    a dead letter, or retries it with growing pauses, `attempts` in all. Events of one `key` stay in order
    while `workers` of them run at once. A flow with a `name` remembers in the state's own commit how far it
    came, `batch` events at a time: started again, it goes on there, and every event changes the state once.
    """

    buffer_size: int = 100
    drop_policy: Literal["block", "drop_oldest", "drop_newest"] = "block"
    on_error: Literal["stop", "skip", "retry"] = "stop"
    attempts: int = 5
    backoff_s: float = 0.05
    workers: int = 1
    key: Callable[[Any], Any] | None = None
    name: str | None = None
    batch: int = 256
    dead_letters: Universe | None = None

    def __post_init__(self) -> None:
        for field in ("buffer_size", "attempts", "workers", "batch"):
            value = getattr(self, field)
            if type(value) is not int or value < 1:
                raise InputError(f"{field} is {value!r}, and must be a whole number above 0", field=field)
        if self.drop_policy not in ("block", "drop_oldest", "drop_newest"):
            raise InputError(
                f"drop_policy is {self.drop_policy!r}",
                hint="write block, drop_oldest or drop_newest",
                field="drop_policy",
            )
        if self.on_error not in ("stop", "skip", "retry"):
            raise InputError(
                f"on_error is {self.on_error!r}", hint="write stop, skip or retry", field="on_error"
            )
        if not self.backoff_s >= 0:
            raise InputError(f"backoff_s is {self.backoff_s!r}, and must not be negative", field="backoff_s")


class Flux:
    """Makes flows: `Flux.lift(agent).start(source)`; and sources that can be read again from a position."""

    @staticmethod
    def lift(agent: Agent[A, B], config: FluxConfig | None = None) -> FluxAgent[A, B]:
        """Return the agent as one that takes streams."""
        return FluxAgent(agent, config or FluxConfig())

    @staticmethod
    def unlift(flow: FluxAgent[A, B]) -> Agent[A, B]:
        """Return the agent that takes single inputs."""
        return flow.inner

    @staticmethod
    def from_changes(universe: Universe, query: Query | None = None, *, since: int = 0) -> Changes:
        """Return the commits of a universe as a source."""
        return Changes(universe, query, since=since)

    @staticmethod
    def from_file(path: str | Path, *, follow: bool = False) -> Lines:
        """Return the lines of a file as a source."""
        return Lines(path, follow=follow)

    @staticmethod
    def from_folder(path: str | Path, *, follow: bool = False) -> Folder:
        """Return the files of a folder as a source."""
        return Folder(path, follow=follow)

    @staticmethod
    def from_timer(every_s: float, *, count: int | None = None) -> Timer:
        """Return ticks as a source."""
        return Timer(every_s, count=count)

    @staticmethod
    def numbered(events: AsyncIterable[A]) -> Numbered:
        """Return a stream that gives the same events each time as a source."""
        return Numbered(events)


class FluxAgent(Agent[A, B]):
    """An agent that takes streams. Not flowing, it answers `invoke` as the agent within does."""

    def __init__(self, inner: Agent[A, B], config: FluxConfig) -> None:
        if not isinstance(inner, Agent):
            raise InputError(f"a flow is made from an agent, not {inner!r:.60}", field="agent")
        self.inner = inner
        self.config = config
        self.state = FluxState.DORMANT
        self.stats = FluxStats()
        self._buffer: Buffer | None = None
        self._ended = asyncio.Event()
        self._letters = self._find_letters()

    @property
    def name(self) -> str:
        """The name of the agent within."""
        return f"Flux({self.inner.name})"

    async def invoke(self, input: A, /) -> B:
        """Answer one input. In a flow it takes its place among the events, and sees what they did.

        What it gives is given to the caller alone. It waits until whoever reads the flow comes to it.
        """
        if self._buffer is None:
            return await self.inner.invoke(input)
        event = Event(input, answer=asyncio.get_running_loop().create_future())
        await self._buffer.put(event, "block")
        return cast("B", await cast("asyncio.Future[Any]", event.answer))

    async def start(self, source: AsyncIterable[A] | Source[A]) -> AsyncGenerator[B, None]:
        """Yield an output for each event of a source, until it ends, `stop` is called or an agent fails."""
        if self._buffer is not None:
            raise Conflict(f"{self.name} is flowing already", hint="make another flow of the same agent")
        progress = await self._open_progress()
        events = _read(source, progress)
        self._buffer = buffer = Buffer(self.config.buffer_size)
        self.state, self.stats = FluxState.FLOWING, buffer.stats
        self._ended.clear()
        pump = asyncio.create_task(_pump(events, buffer, self.config.drop_policy))
        batch: list[Event] = []
        try:
            while batch := await buffer.take(self.config.batch):
                async with aclosing(self._handle(batch, progress)) as outputs:
                    async for output in outputs:
                        self.stats.given += 1
                        yield output
            if self.state is FluxState.FLOWING:
                await pump  # the source has ended; if it failed, this raises its error
        finally:
            await self._end(pump, [*batch, *buffer.close()])

    async def stop(self) -> None:
        """Take no more events; those that were read are still given."""
        if self._buffer is not None:
            self.state = FluxState.DRAINING
            self._buffer.close()

    async def wait(self) -> None:
        """Wait until the flow has ended."""
        if self._buffer is not None:
            await self._ended.wait()

    def __or__(self, other: FluxAgent[B, C] | FluxPipeline[B, C]) -> FluxPipeline[A, C]:
        return FluxPipeline((self, *_stages(other)))

    async def _end(self, pump: asyncio.Task[None], left: Sequence[Event]) -> None:
        self._buffer, self.state = None, FluxState.STOPPED
        pump.cancel()
        with suppress(asyncio.CancelledError, Exception):  # what it raised was raised by `start` already
            await pump
        for event in left:
            if event.answer is not None and not event.answer.done():
                event.answer.set_exception(late(f"{self.name} ended before it came to this input"))
        self._ended.set()

    # -- handling events --------------------------------------------------------------------

    async def _handle(self, batch: Sequence[Event], progress: Progress | None) -> AsyncGenerator[B, None]:
        if progress is not None:
            outputs, failed = await progress.apply(batch, self._attempt)
            for output in outputs:
                yield output
            if failed is not None:
                raise failed
        elif self.config.workers == 1:
            for event in batch:
                done, output = await self._attempt(event, self.inner.invoke)
                if done and event.answer is None:
                    yield output
        else:
            for output in await self._handle_at_once(batch):
                yield output

    async def _handle_at_once(self, batch: Sequence[Event]) -> list[B]:
        """Run events of different keys at once and give their outputs in the order of the events."""
        key = self.config.key or (lambda value: id(value))
        rows: dict[Any, list[int]] = {}
        for number, event in enumerate(batch):
            rows.setdefault(key(event.value), []).append(number)
        outputs: dict[int, B] = {}
        free = asyncio.Semaphore(self.config.workers)

        async def run(row: list[int]) -> None:
            for number in row:
                async with free:
                    done, output = await self._attempt(batch[number], self.inner.invoke)
                if done and batch[number].answer is None:
                    outputs[number] = output

        try:
            async with asyncio.TaskGroup() as tasks:
                for row in rows.values():
                    tasks.create_task(run(row))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [outputs[number] for number in sorted(outputs)]

    async def _attempt(self, event: Event, invoke: Callable[[Any], Any]) -> tuple[bool, Any]:
        """Run the agent on an event, as the policy says; whether it has an output, and that."""
        attempts = self.config.attempts if self.config.on_error == "retry" and event.answer is None else 1
        for attempt in range(1, attempts + 1):
            try:
                output = await invoke(event.value)
            except Exception as error:
                if event.answer is not None:
                    if not event.answer.done():
                        event.answer.set_exception(error)
                    return False, None
                if attempt < attempts:
                    pause_s = min(self.config.backoff_s * 2 ** (attempt - 1), LONGEST_BACKOFF_S)
                    await asyncio.sleep(clock.jitter(pause_s / 2, pause_s))
                    continue
                if self.config.on_error != "skip":
                    raise
                await self._keep_letter(event, error)
                return False, None
            if event.answer is not None and not event.answer.done():
                event.answer.set_result(output)
            return True, output
        raise AssertionError("the last attempt returns or raises")

    def _find_letters(self) -> Universe | None:
        if self.config.on_error != "skip":
            return None
        found = self.config.dead_letters
        if found is None and isinstance(self.inner, StatefulAgent):
            keeper = self.inner.keeper
            found = keeper.universe if isinstance(keeper, UniverseKeeper) else None
        if found is None:
            raise InputError(
                'on_error="skip" keeps what it skips, and has no place for it',
                hint="give FluxConfig(dead_letters=u)",
                field="dead_letters",
            )
        found.register(DEAD_LETTER)
        return found

    async def _keep_letter(self, event: Event, error: Exception) -> None:
        assert self._letters is not None, "a flow that skips has a place for it"
        self.stats.skipped += 1
        flow = self.config.name or self.inner.name
        try:
            value = codec.plain({"event": event.value})["event"]
        except DgentError:
            value = repr(event.value)[:10_000]
        data = {"flow": flow, "position": event.position, "event": value}
        data["error"] = f"{type(error).__name__}: {error}"[:2000]
        # Of an event with a position there is one letter, also when it is met again after a crash.
        named = f"{flow}:dead:{event.position}" if self.config.name else None
        if named is None:
            await self._letters.remember(data, schema=DEAD_LETTER)
        elif not await self._letters.exists(named):
            await self._letters.remember(data, schema=DEAD_LETTER, id=named)

    async def _open_progress(self) -> Progress | None:
        if self.config.name is None:
            return None
        if not isinstance(self.inner, StatefulAgent) or not isinstance(self.inner.keeper, UniverseKeeper):
            raise InputError(
                "a flow with a name keeps its place with the state, and its agent has no state on a universe",
                hint="lift the agent with a StateFunctor first, or leave out the name",
                field="name",
            )
        progress = Progress(self.inner, self.config.name)
        await progress.load()
        return progress


class FluxPipeline(Generic[A, B]):
    """Flows in a row, each of which takes what the one before it gives."""

    def __init__(self, stages: tuple[FluxAgent[Any, Any], ...]) -> None:
        self.stages = stages

    async def start(self, source: AsyncIterable[A] | Source[A]) -> AsyncGenerator[B, None]:
        """Yield what comes out at the end."""
        stream: Any = source
        for stage in self.stages:
            stream = stage.start(stream)
        async with aclosing(stream):
            async for output in stream:
                yield output

    async def stop(self) -> None:
        """Stop the first flow; the others end when they have given what it gave."""
        await self.stages[0].stop()

    def __or__(self, other: FluxAgent[B, C] | FluxPipeline[B, C]) -> FluxPipeline[A, C]:
        return FluxPipeline((*self.stages, *_stages(other)))


async def _pump(events: AsyncGenerator[tuple[Any, Any], None], buffer: Buffer, policy: str) -> None:
    try:
        async with aclosing(events):
            async for position, value in events:
                if not await buffer.put(Event(value, position), policy):
                    break
    finally:
        buffer.close()


def _read(source: Any, progress: Progress | None) -> AsyncGenerator[tuple[Any, Any], None]:
    if hasattr(source, "read"):
        found: AsyncGenerator[tuple[Any, Any], None] = source.read(
            None if progress is None else progress.position
        )
        return found
    if not hasattr(source, "__aiter__"):
        raise InputError(
            f"a source is an async iterable, not {type(source).__name__}",
            hint="write an async generator, or use one of Flux.from_…",
            field="source",
        )
    if progress is not None:
        raise InputError(
            "a flow with a name goes on from a position, and this source has none",
            hint="use Flux.numbered(source) if it gives the same events each time, or one of Flux.from_…",
            field="source",
        )
    return Numbered(source).read(None)


def _stages(flow: FluxAgent[Any, Any] | FluxPipeline[Any, Any]) -> tuple[FluxAgent[Any, Any], ...]:
    if isinstance(flow, FluxPipeline):
        return flow.stages
    if isinstance(flow, FluxAgent):
        return (flow,)
    raise InputError(f"a flow can be joined with a flow, not {flow!r:.60}", hint="lift it with Flux.lift")
