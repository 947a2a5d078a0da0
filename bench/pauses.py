"""Single puts in a long stream into a large store: the usual one, the slow ones, and the slowest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from statistics import fmean
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
_PART = 1_024  # so many samples are there at a time: more would be most of what Python's collector looks at
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
            streams["bare"].append([])
            return _join([_stream_by_hand(bare, part, tasks, streams) for part in _parts(source, plan)])

        async def ours() -> Took:
            streams["dgent"].append([])
            return _join([await _stream(universe, part, tasks, streams) for part in _parts(source, plan)])

        times = await interleave({"bare": by_hand, "dgent": ours}, plan.pause_rounds, warm=0)
    bare.close()
    return _rows(f"put, a stream of {plan.singles:,} by {by}", plan, times, streams)


def _parts(source: Iterator[Sample], plan: Plan) -> Iterator[list[Sample]]:
    """Draw the samples of a stream, while nobody's clock runs."""
    for first in range(0, plan.singles, _PART):
        yield list(islice(source, min(_PART, plan.singles - first)))


def _join(parts: list[Took]) -> Took:
    """Return what one put of parts that are about as long took."""
    return Took(fmean(parts), fmean(part.cpu for part in parts))


def _stream_by_hand(bare: Bare, records: list[Sample], tasks: int, streams: Streams) -> Took:
    """A transaction for as many records as there are tasks."""
    noted = streams["bare"][-1]
    watch = Stopwatch()
    for first in range(0, len(records), tasks):
        began = _now()
        bare.put_together(records[first : first + tasks])
        noted.append(_since(began))
    return watch.each(len(records))


async def _stream(universe: Universe, records: list[Sample], tasks: int, streams: Streams) -> Took:
    """Each task puts the next record as soon as its last one is stored."""
    noted = streams["dgent"][-1]
    left: Iterator[Sample] = iter(records)

    async def put() -> None:
        for value, tags in left:
            began = _now()
            await universe.remember(value, tags=tags)
            noted.append(_since(began))

    watch = Stopwatch()
    await asyncio.gather(*[put() for _ in range(tasks)])
    return watch.each(len(records))


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
