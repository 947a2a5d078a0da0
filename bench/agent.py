"""An agent at work: what a turn costs beside the model, the first token, and many agents at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from tempfile import TemporaryDirectory
from time import perf_counter

import dgent
from bench.measure import Growth, Row, Stopwatch, say, within
from bench.messages import fill
from bench.plan import Plan, size_text
from dgent.blocks import Library
from dgent.messages import Messages, Part
from dgent.runtime.agent import AgentRuntime
from dgent.runtime.event import Text
from dgent.runtime.model.call import ModelCall, Piece, Reply, TextDelta, TokenUsage

_BLOCKS, _MESSAGES, _AGENTS = 50, 10_000, 100
_TURN_MS, _FIRST_MS, _TOGETHER_MS = 15, 2, 1
_TEXT = "the keeper of the lighthouse writes a letter about the storm and the ships\n" * 8


class _Model:
    """Answers at once, and says when its first piece was given."""

    name = "bench:model"
    gave = 0.0

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece]:
        self.gave = perf_counter()
        yield TextDelta("It ")
        yield Reply((Part("text", "It stands on the coast."),), TokenUsage(10, 5, cost=0.0))

    async def close(self) -> None:
        pass


async def agents(plan: Plan) -> list[Row | Growth]:
    """Measure turns of an agent, of which a scripted model takes next to nothing, on SQLite."""
    say("  agents")
    rows: list[Row | Growth] = []
    grown: dict[str, float] = {}
    with TemporaryDirectory(prefix="dgent-bench-") as folder:
        async with dgent.open(f"sqlite:///{folder}/store.db", author="ann") as u:
            library, messages, have = Library(u, "scout"), Messages(u, "scout"), 0
            for number in range(_BLOCKS):
                await library.create(f"block-{number}", text=_TEXT, kind="core" if number < 30 else "working")
            for size in sorted({*plan.sizes, _MESSAGES}):
                await fill(messages, have, size)
                have, model = size, _Model()
                async with AgentRuntime(u, "scout", model=model, instructions=_TEXT, compress=None) as agent:
                    whole, first = await _take_turns(agent, model, max(plan.rounds, 10))
                grown[size_text(size)] = sorted(whole)[len(whole) // 2]
                if size == _MESSAGES:
                    named = f"{_BLOCKS} blocks and {size_text(size)} messages"
                    rows.append(within(f"a turn beside the model, {named} (processor)", whole, [], _TURN_MS))
                    rows.append(within("first token, from the model to the reader", first, [], _FIRST_MS))
    rows += [await _work_together(plan, durability) for durability in ("full", "relaxed")]
    return [*rows, Growth("a turn beside the model (processor)", grown)]


async def _take_turns(agent: AgentRuntime, model: _Model, turns: int) -> tuple[list[float], list[float]]:
    """Return what each turn took, and how long its first token was on the way."""
    whole, first = list[float](), list[float]()
    for number in range(turns + 2):  # the first ones read what the others keep
        watch = Stopwatch()
        passed = 0.0
        async for event in agent.respond("Where is the lighthouse?"):
            if isinstance(event, Text) and not passed:
                passed = perf_counter() - model.gave
        if number >= 2:
            whole.append(watch.each(1).cpu)
            first.append(passed * 1e6)
    return whole, first


async def _work_together(plan: Plan, durability: str) -> Row:
    """Measure a turn of many agents that work at once in one process."""
    took: list[float] = []
    with TemporaryDirectory(prefix="dgent-bench-") as folder:
        async with dgent.open(f"sqlite:///{folder}/store.db", author="ann", durability=durability) as u:  # type: ignore[arg-type]
            team = [AgentRuntime(u, f"agent-{number}", model=_Model(), own=()) for number in range(_AGENTS)]
            for number in range(max(5, plan.rounds // 3) + 2):  # the first ones read what the others keep
                watch = Stopwatch()
                await asyncio.gather(*(each.run("Where is it?") for each in team))
                if number >= 2:
                    took.append(watch.each(_AGENTS).cpu)
    return within(f"a turn, {_AGENTS} agents at once, {durability} (processor)", took, [], _TOGETHER_MS)
