"""Eight processes at one universe: no update is lost, and no decision is made on what is not so."""

from __future__ import annotations

import time

import pytest

import dgent
from tests.fault.nursery import Nursery
from tests.postgres.jobs import COUNTERS
from tests.postgres.load import feed

PROCESSES = 8
TASKS = 32


async def test_all_puts_of_all_processes(url: str) -> None:
    with Nursery("tests.postgres.jobs") as nursery:
        began = time.monotonic()
        args = {"url": url, "tasks": TASKS, "each": 4}
        workers = [nursery.start("crowd", name=f"p{i}", **args) for i in range(PROCESSES)]
        told = nursery.finish(*workers)
        took = time.monotonic() - began
    commits = PROCESSES * TASKS * 4
    assert sum(each["commits"] for each in told) == commits
    async with dgent.open(url) as u:
        seqs = await feed(u)
        assert await u.seq() == commits and {len(found) for found in seqs.values()} == {1}
        assert await u.count(dgent.Query()) == len(seqs)
    longest = max(each["longest_s"] for each in told)
    assert longest < 20
    print(f"\n{commits} commits of {PROCESSES} x {TASKS} tasks in {took:.1f} s, longest wait {longest:.2f} s")


@pytest.mark.parametrize("way", ["expect", "transact"])
async def test_a_counter_is_exact(url: str, way: str) -> None:
    async with dgent.open(url) as u:
        await u.put_many([dgent.Datum(id=f"counter.{n}", data={"n": 0}) for n in range(COUNTERS)])
    with Nursery("tests.postgres.jobs") as nursery:
        began = time.monotonic()
        workers = [nursery.start("count_up", url=url, way=way, tasks=TASKS, each=1) for _ in range(PROCESSES)]
        told = nursery.finish(*workers)
        took = time.monotonic() - began
    total = PROCESSES * TASKS
    async with dgent.open(url) as u:
        counters = [await u.get(f"counter.{n}", raw=True) for n in range(COUNTERS)]
        assert sum(counter.data["n"] for counter in counters) == total
        for counter in counters:
            steps = [version.datum.data["n"] for version in await u.history(counter.id)]
            assert steps == list(range(counter.rev - 1, -1, -1)), "an update was lost or made twice"
    lost = sum(each["lost"] for each in told)
    print(f"\ncounter by {way}: {total} steps in {took:.1f} s, {lost} times another was faster")


async def test_write_skew_between_processes(url: str) -> None:
    """Two transactions read the same two records and each writes another one: only one may stand."""
    rounds = 25
    async with dgent.open(url) as u:
        on = {"on": True}
        await u.put_many([dgent.Datum(id=f"{who}.{n}", data=on) for who in "ab" for n in range(rounds)])
    with Nursery("tests.postgres.jobs") as nursery:
        pairs = (("a", "b"), ("b", "a"), ("a", "b"), ("b", "a"))
        args = {"url": url, "rounds": rounds}
        workers = [nursery.start("go_off_call", me=me, other=other, **args) for me, other in pairs]
        assert sum(nursery.finish(*workers)) == rounds, "both left, or nobody did"
    async with dgent.open(url) as u:
        assert await u.count(dgent.Query(where={"on": True})) == rounds


async def test_phantoms_between_processes(url: str) -> None:
    """A transaction relies on a record not being there, and another makes it."""
    rounds = 25
    with Nursery("tests.postgres.jobs") as nursery:
        workers = [nursery.start("take_room", url=url, me=f"p{i}", rounds=rounds) for i in range(4)]
        assert sum(nursery.finish(*workers)) == rounds, "a room was booked twice, or not at all"
    async with dgent.open(url) as u:
        assert await u.count(dgent.Query()) == rounds
