"""What the cupboard promises about time, measured against the same work by hand."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import dgent
from bench.cupboard.raw import Raw
from bench.cupboard.work import READY, Sides, build, build_raw, crumbs, drawn
from bench.measure import Block, Row, calls, compared, interleave, quartiles, say, timed, verdict, within
from bench.plan import Plan, size_text
from bench.stores import Stores
from dgent.cupboard import Crumb, Cupboard

Call = Callable[[], Awaitable[Any]]


async def cupboard(plan: Plan, stores: Stores) -> list[Row]:
    """All of it."""
    sides = Sides(stores)
    rows = await _bulk(plan, sides)
    rows += await _ready(plan, sides)
    rows += await _one_by_one(plan, sides, stores)
    rows += await _abandon(plan, stores)
    rows += await _processes(plan, stores)
    return rows


class Latencies:
    """Times of single calls, in milliseconds; a block of them is known by its slowest hundredth."""

    def __init__(self) -> None:
        self.every: dict[str, list[float]] = {}

    def block(self, name: str, call: Call, count: int) -> Block:
        """So many calls, one after another."""
        noted = self.every.setdefault(name, [])

        async def run() -> float:
            mine = []
            for _ in range(count):
                began = perf_counter()
                await call()
                mine.append((perf_counter() - began) * 1e3)
            noted.extend(mine)
            return _p99(mine)

        return run

    def row(self, work: str, blocks: list[float], at_most: float) -> Row:
        """The p99 of all calls, and the quartiles of the blocks'."""
        low, _, high = quartiles(blocks)
        value = _p99(self.every[work])
        return Row(
            work,
            f"p99 ≤ {at_most:g} ms",
            value,
            low,
            high,
            sorted(blocks)[len(blocks) // 10],
            median(self.every[f"raw {work}"]),
            median(self.every[work]),
            verdict(value, low, high, at_most),
            unit="ms",
        )


def _p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


async def _one_by_one(plan: Plan, sides: Sides, stores: Stores) -> list[Row]:
    """Get, create and update at the middle size."""
    size = plan.crumbs[1]
    path, raw_path = (stores.copy(path) for path in await sides.sized(size))
    say("  get, create and update a crumb")
    raw = Raw(raw_path)
    async with dgent.open(f"sqlite:///{path}") as universe:
        kept = Cupboard(universe)
        found = await kept.crumbs.fetch(limit=2_000)
        ids, held = drawn([crumb.id for crumb in found]), {crumb.id: crumb for crumb in found}
        raw_ids = drawn([f"c{n}" for n in range(size)])
        number = iter(range(10**9))

        async def create() -> None:
            made = Crumb(f"new {next(number)}", properties={"priority": "low", "owner": "agent-1"})
            await kept.crumbs.set(None, made)

        async def update() -> None:
            crumb = held[next(ids)]
            crumb.set_property("owner", f"agent {next(number)}")
            await kept.crumbs.set(crumb.id, crumb)

        async def by_hand(work: str) -> None:
            if work == "get":
                raw.get(next(raw_ids))
            elif work == "create":
                raw.create("new", {"priority": "low", "owner": "agent-1", "type": "", "labels": ""})
            else:
                raw.update(next(raw_ids), f"agent {next(number)}")

        limits = {"get": 1.0, "create": 10.0, "update": 10.0}
        ours: dict[str, Call] = {
            "get": lambda: kept.crumbs.get(next(ids)),
            "create": create,
            "update": update,
        }
        rows = []
        for name, limit in limits.items():
            work = f"cupboard: {name} a crumb, of {size_text(size)} with {size_text(2 * size)} links, full"
            noted, count = Latencies(), plan.gets * 4 if name == "get" else plan.puts
            blocks = {
                f"raw {work}": noted.block(f"raw {work}", lambda name=name: by_hand(name), count),
                work: noted.block(work, ours[name], count),
            }
            times = await interleave(blocks, plan.rounds, pause_s=0)
            rows.append(noted.row(work, list(times[work]), limit))
            # What a busy machine does to anybody: the p99 of the other side in the same rounds.
            rows.append(Row("  p99 by hand", measured=_p99(noted.every[f"raw {work}"]), unit="ms"))
    raw.close()
    return rows


async def _ready(plan: Plan, sides: Sides) -> list[Row]:
    """`ready()` with the same number of ready crumbs among few and among many."""
    say("  ready")
    systems: dict[str, Block] = {}
    opened: list[Any] = []
    for size in plan.crumbs:
        path, raw_path = await sides.sized(size)
        universe = await dgent.open(f"sqlite:///{path}")
        kept, raw = Cupboard(universe), Raw(raw_path)
        assert len(await kept.ready()) == READY
        opened.append((universe, raw))
        systems[size_text(size)] = timed(kept.ready)
        systems[f"raw {size_text(size)}"] = calls(raw.ready, lambda: [()])
    times = await interleave(systems, plan.read_rounds // 5, pause_s=0)
    for universe, raw in opened:
        await universe.close()
        raw.close()
    small, middle, large = (size_text(size) for size in plan.crumbs)
    return [
        within(f"cupboard: ready(), {READY} of {middle}", times[middle], times[f"raw {middle}"], 20.0),
        compared(f"  the same {READY} of {large} against {small}", times, large, small, 1.5),
    ]


async def _bulk(plan: Plan, sides: Sides) -> list[Row]:
    """All in one commit: what a crumb costs with ten times as many."""
    for size in plan.crumbs:
        await sides.sized(size)
    middle, large = plan.crumbs[1:]
    each = {size: took.seconds / size * 1e6 for size, (took, _) in sides.built.items()}
    busy = {size: took.cpu / size * 1e6 for size, (took, _) in sides.built.items()}
    by_hand = {size: took / size * 1e6 for size, (_, took) in sides.built.items()}
    grown = busy[large] / busy[middle]
    return [
        Row(
            f"cupboard: {size_text(size)} crumbs with {size_text(2 * size)} links in one commit, each",
            measured=each[size] / by_hand[size],
            base=by_hand[size],
            ours=each[size],
        )
        for size in (middle, large)
    ] + [
        Row(
            f"  {size_text(large)} against {size_text(middle)}, processor time",
            "≤ 1.5 ×",
            grown,
            base=busy[middle],
            ours=busy[large],
            verdict=verdict(grown, grown, grown, 1.5),
        )
    ]


async def _abandon(plan: Plan, stores: Stores) -> list[Row]:
    """A trail of a thousand crumbs, each of which waits for the one before it."""
    say("  abandon")
    count = 1_000
    path, raw_path = stores.path("abandon"), stores.path("abandon-by-hand")
    build_raw(raw_path, plan.crumbs[0])
    raw = Raw(raw_path)
    async with dgent.open(f"sqlite:///{path}") as universe:
        await build(universe, plan.crumbs[0])
        kept = Cupboard(universe)

        async def ours() -> float:
            trail = await kept.start("dead end")
            chain = [("child_of", n, n - 1) for n in range(1, count)]
            await kept.add_many(crumbs(count, count), chain, trail=trail)
            before = await universe.seq()
            began = perf_counter()
            ended = await kept.abandon(trail)
            took = (perf_counter() - began) * 1e6
            assert len(ended.crumbs) == count and await universe.seq() == before + 1
            return took

        async def by_hand() -> float:
            members = [f"t{n}" for n in range(count)]
            edges = [("child_of", f"t{n}", f"t{n - 1}") for n in range(1, count)]
            edges += [("belongs_to", id, "trail") for id in members]
            values = [(id, name, "x") for id in members for name in ("priority", "type", "owner", "labels")]
            raw.build([(id, id, "ready", 1) for id in members], values, edges)
            began = perf_counter()
            raw.abandon(members)
            return (perf_counter() - began) * 1e6

        times = await interleave({"raw": by_hand, "ours": ours}, plan.many_rounds)
    raw.close()
    return [within(f"cupboard: abandon a trail of {count:,} crumbs", times["ours"], times["raw"], 500.0)]


async def _processes(plan: Plan, stores: Stores) -> list[Row]:
    """Many processes take from one queue until it is empty; each crumb goes to exactly one."""
    count = plan.queue
    say(f"  {plan.takers} processes take {count:,} crumbs")
    path, raw_path = stores.path("queue"), stores.path("queue-by-hand")
    async with dgent.open(f"sqlite:///{path}") as universe:
        await Cupboard(universe).add_many(crumbs(count, count))
    build_raw(raw_path, count, count)
    took = {
        side: await _take_all(side, where, plan.takers, count)
        for side, where in (("raw", raw_path), ("ours", path))
    }
    each = {side: seconds / count * 1e6 for side, seconds in took.items()}
    return [
        Row(
            f"cupboard: {plan.takers} processes take {count:,}, each exactly once: {took['ours']:.1f} s",
            measured=each["ours"] / each["raw"],
            base=each["raw"],
            ours=each["ours"],
        )
    ]


async def _take_all(side: str, path: str, takers: int, count: int) -> float:
    program = [sys.executable, "-m", "bench.cupboard.taking", side, path]
    pipe = asyncio.subprocess.PIPE
    root = Path(__file__).parents[2]
    running = [
        await asyncio.create_subprocess_exec(*program, f"agent-{n}", stdin=pipe, stdout=pipe, cwd=root)
        for n in range(takers)
    ]
    for process in running:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    began = perf_counter()
    answers = await asyncio.gather(*(process.communicate(b"go\n") for process in running))
    took = perf_counter() - began
    taken = [line for answer, _ in answers for line in answer.decode().split()]
    assert len(taken) == len(set(taken)) == count, f"{len(taken)} taken, {len(set(taken))} different"
    return took
