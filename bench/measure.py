"""Timing several systems in turns, so that a noisy machine is noisy for all of them."""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

Block = Callable[[], Awaitable[float]]
"""Does a number of operations and returns the microseconds one of them took."""

Draw = Callable[[], Sequence[tuple[Any, ...]]]
"""Makes the arguments of a block's operations, before the clock starts."""

Times = Mapping[str, Sequence[float]]

PAUSE_S = 0.02  # before each block of writing, for what the one before left to background threads


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: the median, the quartiles of the rounds, and the ratio of the calm ones.

    `calm` compares the best tenth of our rounds with the best tenth of the base's: what the machine
    gives when nobody else uses it.
    """

    work: str
    goal: str = "—"
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    calm: float | None = None
    base: float | None = None
    ours: float | None = None
    verdict: str = ""
    unit: str = "×"
    base_cpu: float | None = None  # microseconds of the processor, in all threads
    cpu: float | None = None


@dataclasses.dataclass(frozen=True)
class Growth:
    """One line of the table of sizes: microseconds of one operation at each number of records."""

    work: str
    at: dict[str, float]


class Took(float):
    """Microseconds of one operation on the clock; `cpu` has those of the processor, in all threads."""

    cpu: float

    def __new__(cls, wall: float, cpu: float) -> Took:
        took = super().__new__(cls, wall)
        took.cpu = cpu
        return took

    def __getnewargs__(self) -> tuple[float, float]:
        return float(self), self.cpu


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._busy, self._began = process_time(), perf_counter()

    def each(self, operations: int) -> Took:
        """Return what one of so many operations took."""
        wall, cpu = perf_counter() - self._began, process_time() - self._busy
        return Took(wall / operations * 1e6, cpu / operations * 1e6)


def calls(call: Callable[..., object], draw: Draw, each: int = 1) -> Block:
    """A block of plain calls, one after another; each of them does `each` operations."""

    async def block() -> Took:
        batch = draw()
        watch = Stopwatch()
        for arguments in batch:
            call(*arguments)
        return watch.each(len(batch) * each)

    return block


def awaits(call: Callable[..., Awaitable[object]], draw: Draw, each: int = 1) -> Block:
    """A block of awaited calls, one after another; each of them does `each` operations."""

    async def block() -> Took:
        batch = draw()
        watch = Stopwatch()
        for arguments in batch:
            await call(*arguments)
        return watch.each(len(batch) * each)

    return block


def timed(call: Callable[[], Awaitable[object]]) -> Block:
    """A block of one awaited call."""
    return awaits(call, lambda: [()])


async def interleave(
    systems: Mapping[str, Block], rounds: int, warm: int = 1, pause_s: float = PAUSE_S
) -> Times:
    """Run every system once a round, each round starting with another one."""
    names = list(systems)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-warm, rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            await asyncio.sleep(pause_s)
            took = await systems[name]()
            if turn >= 0:
                times[name].append(took)
    return times


def compared(
    work: str, times: Times, ours: str, base: str, at_most: float | None = None, at_least: float | None = None
) -> Row:
    """The median over the rounds of ours / base, or base / ours for an `at_least` goal."""
    top, bottom = (base, ours) if at_least is not None else (ours, base)
    ratios = [a / b for a, b in zip(times[top], times[bottom], strict=True)]
    low, middle, high = quartiles(ratios)
    goal = "—"
    if at_most is not None:
        goal = f"≤ {at_most:g} ×"
    if at_least is not None:
        goal = f"≥ {at_least:g} × faster"
    return Row(
        work,
        goal,
        middle,
        low,
        high,
        _best_tenth(times[top]) / _best_tenth(times[bottom]),
        statistics.median(times[base]),
        statistics.median(times[ours]),
        verdict(middle, low, high, at_most, at_least),
        base_cpu=_cpu(times[base]),
        cpu=_cpu(times[ours]),
    )


def within(work: str, ours: Sequence[float], base: Sequence[float], at_most: float) -> Row:
    """The median of our blocks, in milliseconds, against a limit."""
    low, middle, high = (each / 1e3 for each in quartiles(ours))
    judged = verdict(middle, low, high, at_most)
    by_hand = statistics.median(base) / 1e3 if base else None
    goal = f"≤ {at_most:g} ms"
    return Row(work, goal, middle, low, high, _best_tenth(ours) / 1e3, by_hand, middle, judged, unit="ms")


def verdict(
    value: float, low: float, high: float, at_most: float | None = None, at_least: float | None = None
) -> str:
    """Whether a goal is reached; with a question mark when the quartiles lie on both sides of it."""
    goal = at_least if at_most is None else at_most
    if goal is None:
        return ""
    reached = value <= goal if at_most is not None else value >= goal
    return ("ok" if reached else "MISS") + ("?" if low < goal < high else "")


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper one."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def cpu_of(times: Times) -> Times:
    """Return the microseconds of the processor instead of those on the clock."""
    return {name: [took.cpu for took in taken if isinstance(took, Took)] for name, taken in times.items()}


def _cpu(values: Sequence[float]) -> float | None:
    found = cpu_of({"": values})[""]
    return statistics.median(found) if found else None


def _best_tenth(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 10]


def servers_us() -> float:
    """Return the processor's time that the processes started by this one have used."""
    used = 0
    for child in Path("/proc/self/task").glob("*/children"):
        for pid in child.read_text().split():
            for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with suppress(OSError):  # the thread ended
                    used += int(thread.read_text().split()[0])
    return used / 1e3


def say(text: str) -> None:
    """Progress, apart from the answer."""
    print(text, file=sys.stderr, flush=True)
