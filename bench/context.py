"""The context of an agent: that of a turn with 50 blocks, among ever more messages."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import dgent
from bench.measure import Growth, Row, Stopwatch, say, within
from bench.messages import fill
from bench.plan import Plan, size_text
from dgent.blocks import Library
from dgent.messages import Messages
from dgent.runtime.context.build import ContextBuilder

_AT_MOST_MS = 10
_BLOCKS = 50
_SHOWN = 30
_MESSAGES = 10_000
_TEXT = "the keeper of the lighthouse writes a letter about the storm and the ships\n" * 8


async def contexts(plan: Plan) -> list[Row | Growth]:
    """Measure the context of an agent on SQLite."""
    say("  contexts")
    with TemporaryDirectory(prefix="dgent-bench-") as folder:
        async with dgent.open(f"sqlite:///{folder}/store.db", durability="relaxed", author="scout") as u:
            library, messages = Library(u, "scout"), Messages(u, "scout")
            for number in range(_BLOCKS):
                kind = "core" if number < _SHOWN else "working"
                await library.create(f"block-{number}", text=_TEXT, kind=kind)
            builder = ContextBuilder(u, "scout", instructions=_TEXT)
            rows: list[Row | Growth] = []
            grown: dict[str, float] = {}
            have = 0
            for size in sorted({*plan.sizes, _MESSAGES}):
                await fill(messages, have, size)
                have = size
                first, further = await _take_turns(messages, builder, max(plan.rounds, 10))
                grown[size_text(size)] = sorted(first)[len(first) // 2]
                if size == _MESSAGES:
                    named = f"{_BLOCKS} blocks and {size_text(size)} messages (processor)"
                    rows.append(within(f"the context of a turn, {named}", first, [], _AT_MOST_MS))
                    rows.append(within(f"that of its next call, {named}", further, [], _AT_MOST_MS))
    return [*rows, Growth("the context of a turn (processor)", grown)]


async def _take_turns(
    messages: Messages, builder: ContextBuilder, turns: int
) -> tuple[list[float], list[float]]:
    """Return what the first context of each turn took, and that of its next call."""
    first, further = list[float](), list[float]()
    for number in range(turns + 2):  # the first ones read what the others keep
        batch = await messages.begin()
        await batch.add("user", "what is the weather?")
        watch = Stopwatch()
        await builder.build(batch)
        took = watch.each(1).cpu
        await batch.add("assistant", "I look.")
        watch = Stopwatch()
        context = await builder.build(batch)
        again = watch.each(1).cpu
        assert context.history and not context.overflow
        await batch.complete()
        if number >= 2:
            first.append(took)
            further.append(again)
    return first, further
