"""Agents with a state: one step, a flow of events, and a run of 200 steps beside LangGraph's saver."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters
from tempfile import TemporaryDirectory
from typing import Any

import dgent
from bench.measure import Block, Row, Stopwatch, Took, compared, interleave, say, verdict
from bench.plan import Plan
from bench.stores import Stores
from dgent.flow import Flux, FluxConfig, Id, StatefulAgent, StateFunctor

_STEP, _EVENTS, _DURABLE, _DISK, _TIME = 1.5, 20_000, 5_000, 10.0, 5.0
_STEPS, _GROWTH = 200, 3.0
_LINE = "what was said at this step, and what it was answered; " * 9  # some 500 bytes
_INSTALLED = all(map(importlib.util.find_spec, ("langgraph", "aiosqlite")))
_SKIPPED = Row("LangGraph's saver", verdict="skipped: pip install 'dgent[bench]' brings it")


async def flow(plan: Plan, stores: Stores) -> list[Row]:
    """Measure a step, flows, and a long run."""
    say("  agents with a state")
    with TemporaryDirectory() as folder:
        async with dgent.open(f"sqlite:///{folder}/s.db", durability="relaxed") as u:
            rows = [await _step(plan, u), await _events(plan, u, None), await _events(plan, u, "f")]
        rows += [await _grow(Path(folder), dict), await _grow(Path(folder), _Log)]
        rows += await _runs(plan, Path(folder)) if _INSTALLED else [_SKIPPED]
    return rows


@dataclass(frozen=True)
class _Log:
    log: tuple[str, ...] = ()


async def _grow(folder: Path, kind: type) -> Row:
    """Compare the bytes of a run whose texts hardly compress with those that changed."""
    source, paths = random.Random(7), [folder / f"{kind.__name__}-{name}.db" for name in ("empty", "full")]
    lines = ["".join(source.choices(ascii_letters, k=500)) for _ in range(40 + _STEPS)]

    def say_line(n: int, state: Any) -> tuple[None, Any]:
        log = state["log"] if kind is dict else state.log
        return None, kind(log=[*log, lines[40 + n]])

    for path in paths:
        async with dgent.open(f"sqlite:///{path}") as u:
            await u.put(dgent.Datum(data={"a": 1}))
            agent = StateFunctor(kind, u, kind(log=lines[:40]), "run").lift_logic(say_line)
            for n in range(_STEPS if path is paths[1] else 0):
                await agent.invoke(n)
    ratio = (paths[1].stat().st_size - paths[0].stat().st_size) / sum(map(len, lines))
    what = (
        f"{_STEPS} steps of a {'dict' if kind is dict else 'dataclass'} of 20 to 120 KB: bytes / what changed"
    )
    return Row(what, f"≤ {_GROWTH:g} ×", ratio, verdict=verdict(ratio, ratio, ratio, at_most=_GROWTH))


async def _step(plan: Plan, u: dgent.Universe) -> Row:
    u.register(dgent.Schema("bench.state"))
    first = {"count": 0, "text": "x" * 300}
    functor: StateFunctor[dict[str, Any]] = StateFunctor(dict, u, first, "bench")
    agent: StatefulAgent[Any, int, int] = functor.lift_logic(lambda n, s: (n, {**s, "count": s["count"] + 1}))
    await u.remember(first, schema="bench.state", id="by hand")

    async def steps() -> Took:
        watch = Stopwatch()
        for n in range(_STEPS):
            await agent.invoke(n)
        return watch.each(_STEPS)

    async def by_hand() -> Took:
        watch = Stopwatch()
        for _ in range(_STEPS):
            found = await u.get("by hand")
            changed = {**found.value, "count": found.value["count"] + 1}
            await u.store(found.replace(value=changed), expect=found.rev)
        return watch.each(_STEPS)

    times = await interleave({"step": steps, "by hand": by_hand}, plan.rounds)
    return compared("a step of an agent / a get and a put of its state", times, "step", "by hand", _STEP)


async def _events(plan: Plan, u: dgent.Universe, name: str | None) -> Row:
    count, goal = (20_000, _EVENTS) if name is None else (5_000, _DURABLE)
    rates = []
    for turn in range(plan.rounds):
        agent: Any = Id
        if name is not None:
            functor: StateFunctor[dict[str, Any]] = StateFunctor(dict, u, {"sum": 0}, f"sum {turn}")
            agent = functor.lift_logic(lambda n, s: (n, {"sum": s["sum"] + n}))
        watch = Stopwatch()
        stream = Flux.lift(agent, FluxConfig(name=name, buffer_size=256))
        given = sum([1 async for _ in stream.start(Flux.numbered(_numbers(count)))])
        assert given == count, "every event has an output"
        rates.append(1e6 / watch.each(count))
    rate = sorted(rates)[len(rates) // 2]
    work = "events a second through Id" if name is None else "events a second with a state that is saved"
    return Row(work, f"≥ {goal:,}", rate, verdict=verdict(rate, rate, rate, at_least=goal), unit="/s")


async def _numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


async def _runs(plan: Plan, folder: Path) -> list[Row]:
    """Compare runs of 200 steps whose state grows from 20 to 120 KB: time, and bytes on the disk."""
    sizes: dict[str, list[int]] = {"dgent": [], "langgraph": []}

    def block(name: str) -> Block:
        async def run() -> Took:
            path = folder / f"{name}{len(sizes[name])}.db"
            watch = Stopwatch()
            await (_run_dgent if name == "dgent" else _run_langgraph)(path)
            took = watch.each(_STEPS)
            sizes[name].append(sum(each.stat().st_size for each in folder.glob(f"{path.name}*")))
            return took

        return run

    times = await interleave({name: block(name) for name in sizes}, min(plan.rounds, 5))
    disk = sizes["langgraph"][-1] / sizes["dgent"][-1]
    what = f"{_STEPS} steps of a state of 20 to 120 KB"
    return [
        compared(f"{what} / LangGraph's saver", times, "dgent", "langgraph", at_least=_TIME),
        Row(
            f"{what}: LangGraph's bytes / ours ({sizes['dgent'][-1]:,})",
            f"≥ {_DISK:g} ×",
            disk,
            verdict=verdict(disk, disk, disk, at_least=_DISK),
        ),
    ]


async def _run_dgent(path: Path) -> None:
    async with dgent.open(f"sqlite:///{path}", durability="relaxed") as u:
        functor: StateFunctor[dict[str, Any]] = StateFunctor(dict, u, {"log": [_LINE] * 40}, "run")
        agent: StatefulAgent[Any, str, int] = functor.lift_logic(lambda m, s: (1, {"log": [*s["log"], m]}))
        for n in range(_STEPS):
            await agent.invoke(f"{n} {_LINE}")


async def _run_langgraph(path: Path) -> None:
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        await saver.conn.execute("PRAGMA synchronous=NORMAL")
        config: Any = {"configurable": {"thread_id": "run", "checkpoint_ns": ""}}
        log = [_LINE] * 40
        for n in range(_STEPS):
            found = await saver.aget_tuple(config)
            log = [*(found.checkpoint["channel_values"]["log"] if found else log), f"{n} {_LINE}"]
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"log": log}
            config = await saver.aput(config, checkpoint, {"source": "loop", "step": n, "parents": {}}, {})
            config["configurable"].pop("checkpoint_id")
