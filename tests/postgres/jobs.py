"""What worker processes do to a universe on Postgres; each function is one job."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import dgent
from dgent.errors import Conflict
from dgent.store.postgres import format as storage
from dgent.store.upgrade import Step
from dgent.universe.universe import open as open_universe  # here, so that no worker spends its life importing
from tests.fault.nursery import say

ACCOUNTS = 6
COUNTERS = 8


def made(id: str, **data: Any) -> dgent.Datum:
    """A record of no schema."""
    return dgent.Datum(id=id, data=data)


# -- opening ------------------------------------------------------------------------------


def open_at(url: str, at: float, step: str | None = None) -> None:
    """Open a universe at a moment, with a next format if there is a step to it; say which one it is."""
    if step is not None:
        storage.FORMAT += 1
        storage.STEPS += (Step(storage.FORMAT, "mark it", step),)
    asyncio.run(_open_at(url, at))


async def _open_at(url: str, at: float) -> None:
    await asyncio.sleep(max(0, at - time.time()))
    async with open_universe(url) as u:
        await u.put(made(f"by.{random.getrandbits(64)}"))
        say(u.backend.epoch.hex())


# -- many writers -------------------------------------------------------------------------


def crowd(url: str, name: str, tasks: int, each: int) -> None:
    """Put records from many tasks, some alone and some together."""
    asyncio.run(_crowd(url, name, tasks, each))


async def _crowd(url: str, name: str, tasks: int, each: int) -> None:
    longest = 0.0
    commits = 0
    async with open_universe(url, author=name) as u:

        async def work(task: int) -> None:
            nonlocal longest, commits
            for turn in range(each):
                began = time.monotonic()
                size = random.choice((1, 1, 1, 4))
                await u.put_many([made(f"{name}.{task}.{turn}.{i}", size=size) for i in range(size)])
                commits += 1
                longest = max(longest, time.monotonic() - began)

        await asyncio.gather(*(work(task) for task in range(tasks)))
    say({"commits": commits, "longest_s": longest})


def count_up(url: str, way: str, tasks: int, each: int) -> None:
    """Read, add one, write: by compare-and-set or in a transaction."""
    asyncio.run(_count_up(url, way, tasks, each))


async def _count_up(url: str, way: str, tasks: int, each: int) -> None:
    lost = 0

    def one() -> str:
        return f"counter.{random.randrange(COUNTERS)}"

    async with open_universe(url) as u:

        async def by_expect() -> None:
            found = await u.get(one(), raw=True)
            await u.put(made(found.id, n=found.data["n"] + 1), expect=found.rev)

        async def by_transaction() -> None:
            async def work(tx: Any) -> None:
                found = await tx.get(counter, raw=True)
                await tx.put(made(counter, n=found.data["n"] + 1))

            counter = one()

            await u.transact(work, attempts=50)

        step = {"expect": by_expect, "transact": by_transaction}[way]

        async def work() -> None:
            nonlocal lost
            for _ in range(each):
                while True:
                    try:
                        # One of a process at a time: it is the processes that compete here.
                        async with turn:
                            await step()
                        break
                    except Conflict:
                        lost += 1
                        await asyncio.sleep(random.uniform(0, 0.05))

        turn = asyncio.Semaphore(2)
        await asyncio.gather(*(work() for _ in range(tasks)))
    say({"steps": tasks * each, "lost": lost})


# -- what only a guard prevents -----------------------------------------------------------


def go_off_call(url: str, me: str, other: str, rounds: int) -> None:
    """Leave only when the other one stays: both may not look, and then both leave."""
    asyncio.run(_go_off_call(url, me, other, rounds))


async def _go_off_call(url: str, me: str, other: str, rounds: int) -> None:
    left = 0
    async with open_universe(url) as u:
        for round in range(rounds):

            async def work(tx: Any, round: int = round) -> bool:
                found = [await tx.get(f"{who}.{round}", raw=True) for who in (me, other)]
                if not all(each.data["on"] for each in found):
                    return False
                await asyncio.sleep(random.uniform(0, 0.003))
                await tx.put(made(f"{me}.{round}", on=False))
                return True

            left += await u.transact(work, attempts=30)
    say(left)


def take_room(url: str, me: str, rounds: int) -> None:
    """Book a room that nobody has booked: a record that is not there yet cannot be expected."""
    asyncio.run(_take_room(url, me, rounds))


async def _take_room(url: str, me: str, rounds: int) -> None:
    taken = 0
    async with open_universe(url) as u:
        for round in range(rounds):

            async def work(tx: Any, round: int = round) -> bool:
                if await tx.count(dgent.Query(where={"room": round})):
                    return False
                await asyncio.sleep(random.uniform(0, 0.003))
                await tx.put(made(f"{me}.{round}", room=round))
                return True

            taken += await u.transact(work, attempts=30)
    say(taken)


# -- kill -9 ------------------------------------------------------------------------------


def scribble(url: str, name: str) -> None:
    """Write all kinds of commits until killed, saying so after each call has returned."""
    asyncio.run(_scribble(url, name))


async def _scribble(url: str, name: str) -> None:
    n = 0
    async with open_universe(url, author=name) as u:
        while True:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(random.randrange(1, 6)):
                    n += 1
                    tasks.create_task(random.choice(_STROKES)(u, name, n))


async def _one(u: Any, name: str, n: int) -> None:
    put = await u.put(made(f"one.{name}.{n}", n=n), key=f"{name}.{n}")
    say(["one", put.id, put.rev])


async def _many(u: Any, name: str, n: int) -> None:
    size = random.choice((3, 40, 1200 if n % 10 == 0 else 5))
    await u.put_many([made(f"many.{name}.{n}.{i}", size=size) for i in range(size)])
    say(["many", f"many.{name}.{n}.", size])


async def _named(u: Any, name: str, n: int) -> None:
    """The first record of a schema is written under the lock, in more than one round trip."""
    schema = f"s{random.getrandbits(32)}"
    put = await u.put(dgent.Datum(id=f"one.{name}.{n}", data={"n": n}, schema=schema, schema_version=1))
    say(["one", put.id, put.rev])


async def _move(u: Any, name: str, n: int) -> None:
    """Money from one account to another: the sum stays."""
    source, target = random.sample(range(ACCOUNTS), 2)

    async def work(tx: Any) -> None:
        found = [await tx.get(f"account.{n}", raw=True) for n in (source, target)]
        await tx.put(made(f"account.{source}", n=found[0].data["n"] - 1))
        await tx.put(made(f"account.{target}", n=found[1].data["n"] + 1))

    try:
        await u.transact(work)
    except Conflict:
        return  # others were faster eight times
    say(["moved"])


_STROKES = (_one, _many, _named, _move)


def hold_clock(url: str) -> None:
    """Take the clock and keep it until killed."""
    asyncio.run(_hold_clock(url))


async def _hold_clock(url: str) -> None:
    async with open_universe(url) as u:
        connection = await u.backend._require_open().take()
        await connection.execute("BEGIN")
        await connection.fetch(u.backend._texts.lock)
        say("held")
        await asyncio.sleep(600)
