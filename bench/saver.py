"""LangGraph's calls on dgent beside its own SQLite saver and store: time, and bytes on the disk."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bench.langgraph import SKIPPED
from bench.measure import Block, Row, Stopwatch, Took, compared, interleave, say, verdict
from bench.plan import Plan
from bench.stores import Stores

OURS, BASE = "dgent", "langgraph"
_STEPS, _CALLS, _ITEMS, _NAMESPACES = 200, 10, 2_000, 50
_ROUNDS = 12
_DISK = {200: 20.0, 1_000: 50.0}
_TIME = 1.0
_THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


async def saver(plan: Plan, stores: Stores) -> list[Row]:
    """Measure the saver and the store."""
    say("  LangGraph's calls on dgent")
    if SKIPPED:
        return SKIPPED
    with TemporaryDirectory() as folder:
        rows = await _measure_saver(plan, Path(folder))
        rows += [await _compare_disk(Path(folder), steps) for steps in _DISK]
        return rows + await _measure_store(plan, Path(folder))


class Talk:
    """A conversation that a saver keeps: each step adds two messages."""

    def __init__(self, saver: Any) -> None:
        self.saver, self.config, self.version, self.messages = saver, _THREAD, None, []
        self._source = random.Random(5)
        self._step = itertools.count()

    def _text(self, count: int) -> str:
        return " ".join(
            f"{self._source.choice('abcdefgh')}{self._source.randrange(900)}" for _ in range(count)
        )

    def next(self) -> tuple[Any, ...]:
        """Return the arguments of the next put."""
        from langchain_core.messages import AIMessage, HumanMessage
        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.base.id import uuid6

        step = next(self._step)
        new = [HumanMessage(self._text(60), id=f"h{step}"), AIMessage(self._text(100), id=f"a{step}")]
        self.messages = [*self.messages, *new]
        self.version = self.saver.get_next_version(self.version, None)
        versions = {"messages": self.version, "turn": self.version}
        made = empty_checkpoint() | {
            "id": str(uuid6(clock_seq=step)),
            "channel_values": {"messages": self.messages, "turn": step},
            "channel_versions": versions,
        }
        return made, {"source": "loop", "step": step, "parents": {}}, versions

    async def put(self, made: tuple[Any, ...]) -> None:
        """Store a step."""
        self.config = await self.saver.aput(self.config, *made)

    async def put_writes(self, made: tuple[Any, ...]) -> None:
        """Store the writes of a task."""
        await self.saver.aput_writes(self.config, [("messages", self.messages[-1:])], made[0]["id"])

    async def get_tuple(self, _: Any = None) -> None:
        """Read the newest checkpoint."""
        await self.saver.aget_tuple(_THREAD)

    async def list(self, _: Any = None) -> None:
        """Read the ten newest checkpoints."""
        found = [each async for each in self.saver.alist(_THREAD, limit=10)]
        assert len(found) == 10, "there are more"


async def _open_savers(stack: AsyncExitStack, folder: Path) -> dict[str, Talk]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from dgent.bridges.langgraph import DgentSaver

    ours = await stack.enter_async_context(DgentSaver(f"sqlite:///{folder / 'ours.db'}"))
    peer = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(folder / "base.db")))
    return {OURS: Talk(ours), BASE: Talk(peer)}


async def _measure_saver(plan: Plan, folder: Path) -> list[Row]:
    rows = []
    async with AsyncExitStack() as stack:
        talks = await _open_savers(stack, folder)
        for talk in talks.values():
            for _ in range(_STEPS):
                await talk.put(talk.next())
        for name in ("put", "put_writes", "get_tuple", "list"):
            calls = 1 if name == "list" else _CALLS

            def block(talk: Talk, single: list[float], name: str = name, calls: int = calls) -> Block:
                async def run() -> Took:
                    made = [talk.next() for _ in range(calls)] if name.startswith("put") else [None] * calls
                    return await time_each(
                        [lambda each=each: getattr(talk, name)(each) for each in made], single
                    )

                return run

            what = f"LangGraph's {name} after {_STEPS} steps / its SQLite saver"
            rows += await _compare_calls(plan, what, talks, block)
    return rows


async def _compare_calls(
    plan: Plan, what: str, systems: Mapping[str, Any], block: Callable[[Any, list[float]], Block]
) -> list[Row]:
    """Compare the medians of blocks, and the slowest hundredth of single calls."""
    singles: dict[str, list[float]] = {name: [] for name in systems}
    blocks = {name: block(system, singles[name]) for name, system in systems.items()}
    times = await interleave(blocks, _ROUNDS)
    slow = {name: sorted(taken)[len(taken) * 99 // 100] for name, taken in singles.items()}
    ratio = slow[OURS] / slow[BASE]
    goal = f"≤ {_TIME:g} ×"
    late = Row(
        f"  its p99 ({len(singles[OURS])} calls)",
        goal,
        ratio,
        base=slow[BASE],
        ours=slow[OURS],
        verdict=verdict(ratio, ratio, ratio, _TIME),
    )
    return [compared(what, times, OURS, BASE, at_most=_TIME), late]


async def time_each(calls: Sequence[Callable[[], Awaitable[Any]]], single: list[float]) -> Took:
    """Make calls one after another; `single` gets the microseconds of each."""
    watch = Stopwatch()
    for call in calls:
        began = perf_counter()
        await call()
        single.append((perf_counter() - began) * 1e6)
    return watch.each(len(calls))


async def _compare_disk(folder: Path, steps: int) -> Row:
    place = folder / f"disk-{steps}"
    place.mkdir()
    async with AsyncExitStack() as stack:
        for talk in (await _open_savers(stack, place)).values():
            for _ in range(steps):
                made = talk.next()
                await talk.put(made)
                await talk.put_writes(made)
    sizes = {
        name: sum(each.stat().st_size for each in place.glob(f"{name}.db*")) for name in ("ours", "base")
    }
    ratio = sizes["base"] / sizes["ours"]
    what = f"{steps} steps of a growing conversation: LangGraph's bytes / ours ({sizes['ours']:,})"
    goal = _DISK[steps]
    return Row(what, f"≥ {goal:g} ×", ratio, verdict=verdict(ratio, ratio, ratio, at_least=goal))


async def _measure_store(plan: Plan, folder: Path) -> list[Row]:
    from langgraph.store.base import PutOp
    from langgraph.store.sqlite.aio import AsyncSqliteStore

    from dgent.bridges.langgraph import DgentStore

    rows = []
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(DgentStore(f"sqlite:///{folder / 'items.db'}"))
        peer = await stack.enter_async_context(AsyncSqliteStore.from_conn_string(str(folder / "peer.db")))
        await peer.setup()
        found: dict[str, Any] = {OURS: ours, BASE: peer}
        for each in found.values():
            ops = [PutOp(_name(at), f"k{at}", {"text": f"note {at} " * 20, "n": at}) for at in range(_ITEMS)]
            await each.abatch(ops)
        count = itertools.count()
        work = {
            "put": lambda store: store.aput(_name(next(count)), f"new{next(count)}", {"text": "x" * 200}),
            "get": lambda store: store.aget(_name(7), "k7"),
            "search": lambda store: store.asearch(_name(3), filter={"n": {"$gt": 5}}),
            "list_namespaces": lambda store: store.alist_namespaces(prefix=("bench",)),
        }
        for name, call in work.items():

            def block(store: Any, single: list[float], call: Any = call) -> Block:
                async def run() -> Took:
                    return await time_each([lambda: call(store)] * _CALLS, single)

                return run

            what = f"LangGraph's store: {name} among {_ITEMS:,} items / its SQLite store"
            rows += await _compare_calls(plan, what, found, block)
        if (task := getattr(peer, "_task", None)) is not None:
            task.cancel()  # or closing the loop would complain
    return rows


def _name(at: int) -> tuple[str, ...]:
    return "bench", f"ns{at % _NAMESPACES}"
