"""The crumbs that both sides keep."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import perf_counter, process_time
from typing import NamedTuple

import dgent
from bench.cupboard.raw import Raw
from bench.measure import say
from bench.stores import Stores
from dgent import Universe
from dgent.cupboard import Crumb, Cupboard

READY = 100  # crumbs that can be taken, in a store of whatever size
PRIORITIES = ("highest", "high", "medium", "low", "lowest")

Links = list[tuple[str, int, int]]


def crumbs(count: int, ready: int = READY, seed: int = 1) -> list[Crumb]:
    """That many, with four values each; `ready` of them, evenly spread, are ready and the rest is done."""
    choose = random.Random(seed)
    every = max(1, count // ready) if ready else count + 1
    made = []
    for n in range(count):
        state = "ready" if n % every == every - 1 and n // every < ready else "pebble"
        values = {
            "priority": choose.choice(PRIORITIES),
            "type": choose.choice(("task", "bug", "chore")),
            "owner": f"agent-{choose.randrange(20)}",
            "description": " ".join(choose.choices(("look", "into", "the", "matter", "again"), k=12)),
        }
        made.append(Crumb(f"crumb {n}", state, properties=values))
    return made


def links(count: int, seed: int = 2) -> Links:
    """Two for each crumb: it waits for two of the hundred before it, all of which are done or ready."""
    choose = random.Random(seed)
    made: Links = []
    for n in range(2, count):
        made += [("child_of", n, parent) for parent in choose.sample(range(max(0, n - 100), n), 2)]
    return made


class Took(NamedTuple):
    """Seconds on the clock, and seconds of the processor."""

    seconds: float
    cpu: float


async def build(universe: Universe, count: int, ready: int = READY) -> Took:
    """A cupboard of so many crumbs and twice as many links, all in one commit."""
    cupboard = Cupboard(universe)
    made, edges = crumbs(count, ready), links(count)
    waits_for_ready = {n for n, crumb in enumerate(made) if crumb.state == "ready"}
    edges = [edge for edge in edges if edge[2] not in waits_for_ready or edge[1] not in waits_for_ready]
    await cupboard.properties.fetch()
    began, busy = perf_counter(), process_time()
    await cupboard.add_many(made, edges)
    return Took(perf_counter() - began, process_time() - busy)


def build_raw(path: str, count: int, ready: int = READY) -> float:
    """The same by hand."""
    made = crumbs(count, ready)
    named = [(f"c{n}", crumb.name, crumb.state, _rank(crumb)) for n, crumb in enumerate(made)]
    values = [
        (f"c{n}", name, value) for n, crumb in enumerate(made) for name, value in crumb.properties.items()
    ]
    edges = [(kind, f"c{start}", f"c{target}") for kind, start, target in links(count)]
    raw = Raw(path)
    raw.create_tables()
    began = perf_counter()
    raw.build(named, values, edges)
    took = perf_counter() - began
    raw.close()
    return took


def _rank(crumb: Crumb) -> int:
    return PRIORITIES.index(crumb.properties["priority"])


class Sides:
    """A cupboard and its counterpart by hand for each size, built once."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self.built: dict[int, tuple[Took, float]] = {}
        self._paths: dict[int, tuple[str, str]] = {}

    async def sized(self, count: int) -> tuple[str, str]:
        """The paths of both, closed."""
        if count not in self._paths:
            ours, raw = self._stores.path("cupboard"), self._stores.path("by-hand")
            async with dgent.open(f"sqlite:///{ours}") as universe:
                took = await build(universe, count)
            by_hand = build_raw(raw, count)
            what = f"{count:,} crumbs with {2 * count:,} links"
            say(f"  built {what}: {took.seconds:.1f} s (by hand {by_hand:.1f} s)")
            self.built[count] = took, by_hand
            self._paths[count] = ours, raw
        return self._paths[count]


def drawn(items: list[str], seed: int = 3) -> Iterator[str]:
    """Random ones of some, without end."""
    choose = random.Random(seed)
    while True:
        yield choose.choice(items)
