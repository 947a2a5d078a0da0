"""Counts instead of times: the Python calls of one operation, and the records it decodes.

They are the same on a busy machine. Counted are calls of dgent's own functions, on all threads (a coroutine
counts once, however often it waits), and the records whose JSON was decoded, each as often as it was.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

import dgent
from bench.measure import Row, say, verdict
from bench.plan import Plan
from bench.reads import NEWEST
from bench.record import KINDS, MOODS, PLACES, SCHEMA, TOPICS, samples
from bench.stores import Stores, open_store
from dgent import Datum, Query, Universe
from dgent.cupboard import Crumb, Cupboard

_CRUMBS = 21
_TIMES = 9
_WARM = 20  # puts, after which everything has been seen
_REMEMBER, _TAKE = 80, 600
_TAKE_READS = 5  # three times a crumb, the catalog, and the new version, read as everyone will read it
_OWN = str(Path(dgent.__file__).parent)


class Counter:
    """Counts while it is on, in the threads that were started since it was installed."""

    def __init__(self) -> None:
        self.on = False
        self.calls = self.decoded = 0

    @contextmanager
    def installed(self) -> Iterator[Counter]:
        """Count also in threads that start meanwhile."""
        threading.setprofile(self._note)
        try:
            yield self
        finally:
            threading.setprofile(None)

    async def count(self, operation: Callable[[], Awaitable[object]]) -> tuple[int, int]:
        """Calls and decoded records of one operation, the fewest of some: a slow disk adds a thread's."""
        counted = []
        for _ in range(_TIMES):
            self.calls = self.decoded = 0
            self.on = True
            sys.setprofile(self._note)
            await operation()
            sys.setprofile(None)
            self.on = False
            counted.append((self.calls, self.decoded))
        return min(counted)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.on:
            return
        if event == "call":
            self.calls += frame.f_code.co_filename.startswith(_OWN) and _begins(frame)
        elif event == "c_call" and getattr(argument, "__name__", "") == "decode":
            self.decoded += _reads_record(argument.__self__)


def _begins(frame: FrameType) -> bool:
    """Tell a call from a coroutine or generator that goes on: the argument of RESUME says where it is."""
    return not frame.f_code.co_code[frame.f_lasti + 1] & 3


def _reads_record(decoder: object) -> bool:
    """Tell the decoder of a record's fields from that of its tags."""
    return isinstance(decoder, msgspec.json.Decoder) and decoder.type != list[str]


async def count_calls(plan: Plan, stores: Stores) -> list[Row]:
    """Of `remember`, `put`, `get`, `recall` and `take`."""
    say("  calls")
    path = stores.copy(await stores.sized(plan.middle))
    with Counter().installed() as counter:
        async with open_store(path, "relaxed") as universe:
            rows = await _count_writes(counter, universe) + await _count_reads(counter, universe)
        async with dgent.open(f"sqlite:///{stores.path('take')}", durability="relaxed") as universe:
            return rows + await _count_takes(counter, Cupboard(universe))


async def _count_writes(counter: Counter, universe: Universe) -> list[Row]:
    source = samples(12)
    tags = frozenset((TOPICS[0], PLACES[0], MOODS[0]))
    for value, _ in islice(source, _WARM):
        await universe.remember(value, tags=tags)

    async def remember() -> None:
        await universe.remember(next(source)[0], tags=tags)

    async def put() -> None:
        data = SCHEMA.encode(next(source)[0])
        await universe.put(Datum(data=data, tags=tags, schema=SCHEMA.name, schema_version=1))

    return [
        *_rows("remember", await counter.count(remember), _REMEMBER),
        *_rows("put(Datum)", await counter.count(put)),
    ]


async def _count_reads(counter: Counter, universe: Universe) -> list[Row]:
    newest = await universe.recall(Query(schema=SCHEMA.name, tags={TOPICS[0]}, limit=8 * NEWEST))
    done = [place for place, crystal in enumerate(newest, 1) if crystal.value.done]
    seen = done[NEWEST - 1]  # so many must be looked at

    async def get() -> None:
        assert (await universe.get(newest[0].id)).value is not None

    async def recall(**where: object) -> None:
        found = await universe.recall(Query(schema=SCHEMA.name, tags={TOPICS[0]}, where=where, limit=NEWEST))
        assert len([crystal.value for crystal in found]) == NEWEST

    indexed, unindexed = partial(recall, kind=KINDS[0]), partial(recall, done=True)
    work = f"recall of {NEWEST} in {seen} by an undeclared field"
    return [
        *_rows("get", await counter.count(get), None, 1),
        *_rows(f"recall of {NEWEST} by tag and field", await counter.count(indexed), None, NEWEST),
        *_rows(work, await counter.count(unindexed), None, seen),
    ]


async def _count_takes(counter: Counter, cupboard: Cupboard) -> list[Row]:
    await cupboard.add_many([Crumb(f"crumb {number}", "ready") for number in range(_CRUMBS)])

    async def take() -> None:
        assert await cupboard.take("agent") is not None

    return _rows(f"take, of {_CRUMBS} crumbs", await counter.count(take), _TAKE, _TAKE_READS)


def _rows(
    work: str, counted: tuple[int, int], calls: float | None = None, decoded: float | None = None
) -> list[Row]:
    limits = {"calls": calls, "decoded": decoded}
    return [
        Row(
            f"{'calls of' if unit == 'calls' else '  records decoded by'} {work}",
            "—" if limit is None else f"≤ {limit:g}",
            value,
            ours=value,
            verdict=verdict(value, value, value, limit),
            unit=unit,
        )
        for value, (unit, limit) in zip(counted, limits.items(), strict=True)
    ]
