"""A query right after puts, here and in another process, against the same query in a store that is settled.

Any write drops what readers have cached, also that of a row of no concern to dgent. So the base is a settled
store that just got such a row; beside it stands one that nobody writes to at all.

The other process is `python -m bench.fresh`: a line with a path, a tag and a kind has it ask there once, and
it answers with the microseconds that this took, on the clock and of the processor.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from itertools import islice

import apsw

from bench.measure import Row, Stopwatch, Times, Took, compared, say
from bench.plan import Plan
from bench.puts import TASKS, by_tasks
from bench.reads import NEWEST, query_newest
from bench.record import KINDS, TOPICS, Sample, samples
from bench.stores import Stores, open_store
from dgent import Universe

_COUNTS = (1, 100, 10_000)
_LIMIT = 1.3
_PLACES = ("same process", "another process")


async def fresh(plan: Plan, stores: Stores) -> list[Row]:
    """After 1, 100 and 10,000 puts, each in a store of its own."""
    rows: list[Row] = []
    for count in _COUNTS:
        puts = "1 put" if count == 1 else f"{count:,} puts"
        say(f"  newest {NEWEST} right after {puts}")
        async with AsyncExitStack() as stack:
            sides = Sides(stores, await stores.sized(plan.middle))
            await sides.open(stack)
            times = await sides.measure(count, max(plan.rounds // 3, 5) if count > 1_000 else plan.rounds * 5)
        for place in _PLACES:
            work = f"newest {NEWEST} right after {puts}, {place}"
            rows.append(compared(work, times, f"written, {place}", f"touched, {place}", _LIMIT))
            work = "  against a store that nobody writes to"
            rows.append(compared(work, times, f"written, {place}", f"still, {place}"))
    return rows


class Sides:
    """Three copies of a store, all open here and in another process; one is written to, one is touched."""

    def __init__(self, stores: Stores, base: str) -> None:
        self._paths = {name: stores.copy(base) for name in ("written", "touched", "still")}
        self._opened: dict[str, Universe] = {}

    async def open(self, stack: AsyncExitStack) -> None:
        """Open them here, and start the other process."""
        self._other = await _start(stack)
        for name, path in self._paths.items():
            self._opened[name] = await stack.enter_async_context(open_store(path, "relaxed"))
        self._by_hand = apsw.Connection(self._paths["touched"])
        stack.callback(self._by_hand.close)
        self._by_hand.execute("CREATE TABLE bench_touched (n INT)")

    async def measure(self, count: int, rounds: int) -> Times:
        """Put so many, then ask each store once in each process; so many times."""
        choose, source = random.Random(8), samples(9)
        times: dict[str, list[Took]] = {}
        for turn in range(-3, rounds):
            tag, kind = choose.choice(TOPICS), choose.choice(KINDS)
            await _put(self._opened["written"], list(islice(source, count)))
            for place in _PLACES:  # so that no store finds the processor's caches colder than the next one
                await self._ask("still", place, tag, kind)
            names = list(self._paths)
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                if name == "touched":
                    self._by_hand.execute("INSERT INTO bench_touched VALUES (1)")
                for place in _PLACES:
                    took = await self._ask(name, place, tag, kind)
                    if turn >= 0:
                        times.setdefault(f"{name}, {place}", []).append(took)
        return times

    async def _ask(self, name: str, place: str, tag: str, kind: str) -> Took:
        if place == _PLACES[0]:
            return await _ask(self._opened[name], tag, kind)
        assert self._other.stdin is not None and self._other.stdout is not None
        self._other.stdin.write(json.dumps([self._paths[name], tag, kind]).encode() + b"\n")
        wall, cpu = (await self._other.stdout.readline()).split()
        return Took(float(wall), float(cpu))


async def _put(universe: Universe, records: list[Sample]) -> None:
    put = by_tasks(universe)
    for first in range(0, len(records), TASKS):
        await put(records[first : first + TASKS])


async def _ask(universe: Universe, tag: str, kind: str) -> Took:
    watch = Stopwatch()
    found = await query_newest(universe, tag, kind, NEWEST)
    took = watch.each(1)
    assert len(found) == NEWEST
    return took


async def _start(stack: AsyncExitStack) -> Process:
    command = [sys.executable, "-m", "bench.fresh"]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    stack.push_async_callback(process.wait)
    assert process.stdin is not None
    stack.callback(process.stdin.close)
    return process


async def _serve() -> None:
    async with AsyncExitStack() as stack:
        opened: dict[str, Universe] = {}
        while line := await asyncio.to_thread(sys.stdin.readline):
            path, tag, kind = json.loads(line)
            if path not in opened:
                opened[path] = await stack.enter_async_context(open_store(path, "relaxed"))
            took = await _ask(opened[path], tag, kind)
            print(float(took), took.cpu, flush=True)


if __name__ == "__main__":
    asyncio.run(_serve())
