"""Several processes that put at the same time, each `python -m bench.processes`.

A line with a number has one draw so many groups, the line `put` has it put them. It answers each line with
the seconds of the processor that it has used.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from itertools import islice
from statistics import median
from time import perf_counter

from bench.bare import Bare
from bench.measure import Block, Row, Times, Took, compared, cpu_of, interleave, quartiles, say
from bench.plan import Plan
from bench.puts import TASKS, Put, by_tasks
from bench.record import Sample, samples
from bench.stores import Stores, open_store

PROCESSES = 8
WARM = 96  # groups, of all processes; a first write to a page costs more than the next ones

# The processor's time of a put against a bare table's, when a commit wrote its index entries itself: the
# median of six runs on two busy cores (13.3 to 16.8). On the clock these gave 3.0 to 7.6 times, and 1,230 to
# 3,830 puts a second, by how busy the machine was: a goal for the clock needs a run on a quiet one.
BEFORE_CPU = 14.7


async def processes(plan: Plan, stores: Stores) -> list[Row]:
    """Eight processes of 64 tasks each on one file, full."""
    say(f"  put, {PROCESSES} processes")
    paths = {
        "bare": stores.copy(await stores.bare(plan.middle)),
        "dgent": stores.copy(await stores.sized(plan.middle)),
    }
    times = await measure_teams(paths, plan)
    work = f"put, {PROCESSES} processes of {TASKS} tasks, full, against a bare table"
    return [
        compared(work, times, "dgent", "bare"),
        compared(f"  the processor's (was {BEFORE_CPU:g} ×)", cpu_of(times), "dgent", "bare", BEFORE_CPU / 2),
        per_second("  of all processes together", times),
    ]


async def measure_teams(places: dict[str, str], plan: Plan) -> Times:
    """Microseconds of one put, by a team of processes for each system."""
    async with AsyncExitStack() as stack:
        systems = {}
        for system, place in places.items():
            team = Team(system, place, max(1, plan.groups // 2))
            systems[system] = (await stack.enter_async_context(team)).block
        return await interleave(systems, plan.peer_rounds)


def per_second(work: str, times: Times) -> Row:
    """Puts a second of all processes, instead of microseconds of one."""
    reached = {name: [1e6 / took for took in taken] for name, taken in times.items()}
    low, middle, high = quartiles(reached["dgent"])
    base = median(reached["bare"])
    return Row(work, measured=middle, low=low, high=high, base=base, ours=middle, unit="puts/s")


async def warm_up(put: Put, groups: int = WARM) -> None:
    """Put until the pages that are written to have been written to before."""
    source = samples(4)
    for _ in range(groups):
        await put(list(islice(source, TASKS)))


class Team:
    """The processes of one system; closing it ends them."""

    def __init__(self, system: str, place: str, groups: int) -> None:
        self._command = [sys.executable, "-m", "bench.processes", system, place]
        self._groups = groups
        self._members: list[Process] = []

    async def __aenter__(self) -> Team:
        for number in range(PROCESSES):
            command = [*self._command, str(number)]
            self._members.append(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))
        for member in self._members:
            await _answer(member)
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self._members:
            assert member.stdin is not None
            member.stdin.close()
        for member in self._members:
            await member.wait()

    @property
    def block(self) -> Block:
        """All of them put; microseconds of one put, counted over all processes."""

        async def work() -> float:
            busy = await self._tell(b"%d\n" % self._groups)
            began = perf_counter()
            busy = await self._tell(b"put\n") - busy
            operations = PROCESSES * self._groups * TASKS
            return Took((perf_counter() - began) / operations * 1e6, busy / operations * 1e6)

        return work

    async def _tell(self, line: bytes) -> float:
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write(line)
        return sum(await asyncio.gather(*map(_answer, self._members)))


async def _answer(member: Process) -> float:
    assert member.stdout is not None
    line = await member.stdout.readline()
    if not line:
        raise AssertionError("a putting process failed")
    return float(line)


async def _open(system: str, place: str, stack: AsyncExitStack) -> Put:
    if place.startswith("postgres"):
        from bench.postgres.bare import BarePostgres
        from bench.postgres.databases import open_postgres

        if system == "bare":
            table = await BarePostgres.open(place)
            stack.push_async_callback(table.close)
            return table.put_together
        return by_tasks(await stack.enter_async_context(open_postgres(place)))
    if system == "bare":
        bare = Bare(place, "full")
        stack.callback(bare.close)

        async def put(group: list[Sample]) -> None:
            bare.put_together(group)

        return put
    return by_tasks(await stack.enter_async_context(open_store(place, "full")))


async def _serve(system: str, place: str, number: int) -> None:
    async with AsyncExitStack() as stack:
        put = await _open(system, place, stack)
        await warm_up(put, WARM // PROCESSES)
        source = samples(100 + number)
        groups: list[list[Sample]] = []
        print(time.process_time(), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line == "put\n":
                for group in groups:
                    await put(group)
            else:
                groups = [list(islice(source, TASKS)) for _ in range(int(line))]
            print(time.process_time(), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
