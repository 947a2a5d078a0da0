"""Models and events: the first piece of an answer through all layers, and events to many consumers."""

from __future__ import annotations

from contextlib import aclosing

import dgent
from bench.agent import agents
from bench.context import contexts
from bench.measure import Block, Growth, Row, Stopwatch, Took, cpu_of, interleave, say, within
from bench.plan import Plan
from bench.stores import Stores
from dgent.messages.part import Part
from dgent.runtime.event import Text
from dgent.runtime.hub import EventHub
from dgent.runtime.model.call import Model, ModelCall, SystemPart, TextDelta, Turn
from dgent.runtime.model.record import RecordingModel
from dgent.runtime.model.retry import open_model
from dgent.runtime.model.script import ScriptedModel

_FIRST_MS, _CALLS, _TAPS, _EVENTS = 2.0, 50, 10, 1_000
_HISTORY = tuple(
    Turn(role, (Part("text", f"what was said at step {n}; " * 10),))
    for n in range(100)
    for role in ("user", "assistant")
)
_CALL = ModelCall(system=(SystemPart("You are scout. " * 200),), messages=_HISTORY)


async def runtime(plan: Plan, stores: Stores) -> list[Row | Growth]:
    """Measure calls to a scripted model, with 200 messages of history, and contexts."""
    say("  models and events")
    async with dgent.open(f"sqlite:///{stores.path('runtime')}", durability="relaxed") as u:
        bare = ScriptedModel(["x" * 200], repeat=True)
        recorded = RecordingModel(ScriptedModel(["x" * 200], repeat=True), u.storage.telemetry, agent="scout")
        times = await interleave(
            {
                "script": _first(bare, None),
                "layers": _first(open_model(recorded), recorded),
                "hub": _publish(),
            },
            plan.rounds,
        )
        await recorded.close()
    times = cpu_of(times)
    return [
        within(
            "first piece of an answer, through all layers, processor",
            times["layers"],
            times["script"],
            _FIRST_MS,
        ),
        within(f"one event to {_TAPS} consumers, processor", times["hub"], [], 0.1),
        *await contexts(plan),
        *await agents(plan),
    ]


def _first(model: Model, recorded: RecordingModel | None) -> Block:
    async def block() -> Took:
        hub = EventHub()
        tap = hub.tap()
        watch = Stopwatch()
        for _ in range(_CALLS):
            async with aclosing(model.stream(_CALL)) as pieces:
                piece = await anext(pieces)
                assert isinstance(piece, TextDelta)
                hub.publish(Text(text=piece.text))
                await anext(tap)
        took = watch.each(_CALLS)
        if recorded is not None:
            await recorded.flush()  # behind the answer, so not a part of the wait for it
        await hub.close()
        return took

    return block


def _publish() -> Block:
    async def block() -> Took:
        async with EventHub() as hub:
            taps = [hub.tap() for _ in range(_TAPS)]
            watch = Stopwatch()
            for number in range(_EVENTS):
                hub.publish(Text(text=str(number)))
                for tap in taps:
                    await anext(tap)
            return watch.each(_EVENTS)

    return block
