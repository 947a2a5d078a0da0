"""Several processes that put at the same time, each `python -m bench.postgres.processes`.

A line with a number has one draw so many groups, the line `put` has it put them; it answers each line.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import islice
from time import perf_counter
from typing import Any

from bench.measure import Block
from bench.postgres.databases import open_postgres
from bench.postgres.raw import RawPostgres
from bench.puts import TASKS
from bench.record import Sample, samples
from dgent import Universe

PROCESSES = 8
WARM = 100  # groups; after a checkpoint the log takes a copy of every page that is touched for the first time

Put = Callable[[list[Sample]], Awaitable[Any]]


def by_tasks(universe: Universe) -> Put:
    """One task for each sample."""

    async def put(group: list[Sample]) -> None:
        await asyncio.gather(*[universe.remember(value, tags=tags) for value, tags in group])

    return put


async def warm_up(put: Put, groups: int = WARM) -> None:
    """Put until the log holds the pages that are written to."""
    source = samples(4)
    for _ in range(groups):
        await put(list(islice(source, TASKS)))


class Team:
    """The processes of one system; closing it ends them."""

    def __init__(self, system: str, url: str, groups: int) -> None:
        self._command = [sys.executable, "-m", "bench.postgres.processes", system, url]
        self._groups = groups
        self._members: list[Process] = []

    async def __aenter__(self) -> Team:
        for number in range(PROCESSES):
            command = [*self._command, str(number)]
            self._members.append(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))
        for member in self._members:
            await _said(member)
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
            await self._tell(b"%d\n" % self._groups)
            began = perf_counter()
            await self._tell(b"put\n")
            return (perf_counter() - began) / (PROCESSES * self._groups * TASKS) * 1e6

        return work

    async def _tell(self, line: bytes) -> None:
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write(line)
        await asyncio.gather(*map(_said, self._members))


async def _said(member: Process) -> None:
    assert member.stdout is not None
    if await member.stdout.readline() != b"ready\n":
        raise AssertionError("a putting process failed")


async def _member(system: str, url: str, number: int) -> None:
    async with AsyncExitStack() as stack:
        if system == "raw":
            raw = await RawPostgres.open(url, apart=number + 1)
            stack.push_async_callback(raw.close)
            put: Put = raw.put_together
        else:
            put = by_tasks(await stack.enter_async_context(open_postgres(url)))
        await warm_up(put, WARM // PROCESSES)
        source = samples(100 + number)
        print("ready", flush=True)
        groups: list[list[Sample]] = []
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line == "put\n":
                for group in groups:
                    await put(group)
            else:
                groups = [list(islice(source, TASKS)) for _ in range(int(line))]
            print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(_member(sys.argv[1], sys.argv[2], int(sys.argv[3])))
