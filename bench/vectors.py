"""Near vectors, against numpy comparing all of them in 32 bits: time, recall, memory, and with a filter.

Recall is only worth something on real vectors: DGENT_VECTORS names a file of numpy (`.npy`) with one embedded
text in each row. Without it, vectors with the spectrum of such texts stand in, and no recall is claimed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.measure import Row, Stopwatch, Took, awaits, calls, compared, interleave, say, verdict
from bench.plan import Plan
from bench.stores import Stores
from dgent import Universe
from dgent import open as open_universe
from dgent.universe.vectors import Vectors

FILE = "DGENT_VECTORS"
ASKED = 200  # vectors that are searched for, and are not among the others
GROUPS = 20  # a filter leaves one of so many
_DIM = 384

Matrix = NDArray[np.float32]


async def vectors(plan: Plan, stores: Stores) -> list[Row]:
    """In a store of the middle size."""
    path = os.environ.get(FILE)
    given = _read(path) if path else _make(plan.middle + ASKED)
    asked, held = given[:ASKED], given[ASKED : ASKED + plan.middle]
    kind = "embedded texts" if path else f"made-up vectors, set {FILE} for real ones"
    say(f"  vectors, {len(held):,} {kind}")
    name = f"{len(held):,} {'texts' if path else 'made-up'} × {held.shape[1]}"
    async with open_universe(f"sqlite:///{stores.path('vectors')}", durability="relaxed") as u:
        mine = u.vectors("bench", dim=held.shape[1], indexes=("group",))
        watch = Stopwatch()
        for start in range(0, len(held), 10_000):
            some = range(start, min(start + 10_000, len(held)))
            await mine.add_many(
                held[start : start + 10_000], [str(n) for n in some], [_group(n) for n in some]
            )
        added = watch.each(len(held))
        watch = Stopwatch()
        while await u.backend.fill(mine.schema.name, u.contracts):
            await asyncio.sleep(0)
        folded = watch.each(len(held))
        rows = await _race(plan, mine, held, asked, name)
        rows += [
            _recall(name, found, bool(path), goal) for name, found, goal in await _recalls(mine, held, asked)
        ]
        rows.append(_memory(u, held, name))
        rows += [
            Row(f"add many vectors, CPU each, {name}", measured=added.cpu, unit="µs"),
            Row(f"index vectors, CPU each, {name}", measured=folded.cpu, unit="µs"),
            await _news(plan, mine, asked, name),
        ]
    return rows


def _read(path: str) -> Matrix:
    """The vectors of a file, in an order of their own."""
    found = np.load(path, mmap_mode="r")
    chosen = np.random.RandomState(7).permutation(len(found))
    return np.ascontiguousarray(found[chosen], np.float32)


def _make(count: int) -> Matrix:
    """Vectors that vary much in some directions and little in most, as embedded texts do."""
    random = np.random.RandomState(7)
    spread = 1 / np.sqrt(np.arange(1, _DIM + 1) + 5)
    made = np.empty((count, _DIM), np.float32)
    for part in np.array_split(made, max(1, count // 50_000)):  # a million at once would take 9 GB
        drawn = random.standard_normal(part.shape) * spread + 0.02
        part[:] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return made


def _group(number: int) -> dict[str, int]:
    return {"group": number % GROUPS}


async def _race(plan: Plan, mine: Vectors, held: Matrix, asked: Matrix, name: str) -> list[Row]:
    def exact(vector: Matrix) -> None:
        scores = held @ vector
        best = np.argpartition(scores, len(scores) - 10)[-10:]
        best[np.argsort(-scores[best])]

    async def search(vector: Matrix) -> None:
        await mine.search(vector)

    async def filtered(vector: Matrix) -> None:
        await mine.search(vector, where={"group": 3})

    def some(start: int) -> Callable[[], list[tuple[Matrix]]]:
        choose = random.Random(start)
        return lambda: [(asked[choose.randrange(len(asked))],) for _ in range(3)]

    systems = {
        "numpy": calls(exact, some(1)),
        "dgent": awaits(search, some(1)),
        "filtered": awaits(filtered, some(1)),
    }
    times = await interleave(systems, plan.read_rounds // 5, pause_s=0)
    return [
        compared(f"nearest 10 of {name}, against numpy", times, "dgent", "numpy", 0.35),
        compared("  with a 5 % filter, against without", times, "filtered", "dgent", 1.0),
    ]


async def _recalls(mine: Vectors, held: Matrix, asked: Matrix) -> list[tuple[str, float, float]]:
    plain: list[float] = []
    filtered: list[float] = []
    for n, vector in enumerate(asked):
        scores, group = held @ vector, n % GROUPS
        plain.append(_share(await mine.search(vector), scores))
        scores[np.arange(len(held)) % GROUPS != group] = -9
        filtered.append(_share(await mine.search(vector, where={"group": group}), scores))
    return [("recall of the nearest 10", fmean(plain), 0.98), ("  with a 5 % filter", fmean(filtered), 0.99)]


def _share(hits: list[Any], scores: NDArray[np.float32]) -> float:
    """The share of hits that are as near as the tenth nearest."""
    bar = np.partition(scores, len(scores) - 10)[-10]
    return sum(scores[int(hit.id)] >= bar - 1e-6 for hit in hits) / 10


def _recall(name: str, found: float, real: bool, goal: float) -> Row:
    judged = verdict(found, found, found, at_least=goal) if real else "stand-in"
    return Row(name, f"≥ {goal:g}" if real else "—", found, verdict=judged, unit="")


def _memory(u: Universe, held: Matrix, name: str) -> Row:
    """The arrays that a process keeps, against those of the vectors themselves."""
    known: Any = u.backend._vectors.known.values()  # type: ignore[attr-defined]
    share = sum(each.snapshot.size_bytes() for each in known) / held.nbytes
    return Row(
        f"memory of {name}, against all in 32 bits",
        "≤ 0.1 ×",
        share,
        verdict=verdict(share, share, share, 0.1),
    )


async def _news(plan: Plan, mine: Vectors, asked: Matrix, name: str) -> Row:
    """How much longer a search takes when a vector was added since the last one."""
    quiet, fresh = list[Took](), list[Took]()
    for n in range(plan.read_rounds // 10):
        vector = asked[n % len(asked)]
        await mine.add(vector, "news", _group(n))
        for times in (fresh, quiet):
            watch = Stopwatch()
            await mine.search(vector)
            times.append(watch.each(1))
    more = sorted(one - other for one, other in zip(fresh, quiet, strict=True))[len(fresh) // 2]
    return Row(f"find a vector that was just added, more than a search, {name}", measured=more, unit="µs")
