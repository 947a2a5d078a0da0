"""Single puts in a long stream into a large store: the usual one, the slow ones, and the slowest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from time import perf_counter, process_time
from typing import NamedTuple

from bench.bare import Bare
from bench.measure import Row, Stopwatch, Times, Took, compared, interleave, quartiles, say, verdict
from bench.plan import Plan, size_text
from bench.puts import TASKS
from bench.record import Sample, samples
from bench.stores import Stores, open_store
from dgent import Universe

_LIMIT_MS = 20.0
_PARTS = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "longest": 1.0}


class Single(NamedTuple):
    """Milliseconds of a single put: on the clock, and of the processor meanwhile, in all threads."""

    wall: float
    cpu: float


Streams = dict[str, list[list[Single]]]
"""The single puts of each stream, by system."""


async def pauses(plan: Plan, stores: Stores) -> list[Row]:
    """By one task, and by 64; relaxed, so that the disk says little."""
    return [*await _pauses(plan, stores, 1), *await _pauses(plan, stores, TASKS)]


async def _pauses(plan: Plan, stores: Stores, tasks: int) -> list[Row]:
    by = "one task" if tasks == 1 else f"{tasks} tasks"
    say(f"  {plan.singles:,} single puts by {by}, into {size_text(plan.paused)}")
    streams: Streams = {"bare": [], "dgent": []}
    source = samples(11)
    bare = Bare(stores.copy(await stores.bare(plan.paused)), "relaxed")
    async with open_store(stores.copy(await stores.sized(plan.paused)), "relaxed") as universe:

        async def by_hand() -> Took:
            return _stream_by_hand(bare, list(islice(source, plan.singles)), tasks, streams)

        async def ours() -> Took:
            return await _stream(universe, list(islice(source, plan.singles)), tasks, streams)

        times = await interleave({"bare": by_hand, "dgent": ours}, plan.pause_rounds, warm=0)
    bare.close()
    return _rows(f"put, a stream of {plan.singles:,} by {by}", plan, times, streams)


def _stream_by_hand(bare: Bare, records: list[Sample], tasks: int, streams: Streams) -> Took:
    """A transaction for as many records as there are tasks."""
    noted = []
    watch = Stopwatch()
    for first in range(0, len(records), tasks):
        began = _now()
        bare.put_together(records[first : first + tasks])
        noted.append(_since(began))
    took = watch.each(len(records))
    streams["bare"].append(noted)
    return took


async def _stream(universe: Universe, records: list[Sample], tasks: int, streams: Streams) -> Took:
    """Each task puts the next record as soon as its last one is stored."""
    noted: list[Single] = []
    left: Iterator[Sample] = iter(records)

    async def put() -> None:
        for value, tags in left:
            began = _now()
            await universe.remember(value, tags=tags)
            noted.append(_since(began))

    watch = Stopwatch()
    await asyncio.gather(*[put() for _ in range(tasks)])
    took = watch.each(len(records))
    streams["dgent"].append(noted)
    return took


def _now() -> tuple[float, float]:
    return perf_counter(), process_time()


def _since(began: tuple[float, float]) -> Single:
    return Single((perf_counter() - began[0]) * 1e3, (process_time() - began[1]) * 1e3)


def _rows(work: str, plan: Plan, times: Times, streams: Streams) -> list[Row]:
    rows = [compared(f"{work} into {size_text(plan.paused)}, each", times, "dgent", "bare")]
    for name in _PARTS:
        rows.append(_row(f"  {name} of a single put", streams, name, 0, _LIMIT_MS))
    # On a busy machine the clock runs on while others compute.
    rows.append(_row("    of the processor", streams, "longest", 1, _LIMIT_MS))
    return rows


def _row(work: str, streams: Streams, name: str, field: int, limit: float) -> Row:
    base, ours = (
        [_part(sorted(each[field] for each in stream), _PARTS[name]) for stream in streams[system]]
        for system in ("bare", "dgent")
    )
    low, middle, high = quartiles(ours)
    at_most = limit if name == "longest" else None
    return Row(
        work,
        "—" if at_most is None else f"≤ {at_most:g} ms",
        middle,
        low,
        high,
        min(ours),
        quartiles(base)[1],
        middle,
        verdict(middle, low, high, at_most),
        "ms",
    )


def _part(ordered: list[float], part: float) -> float:
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
