"""`kill -9` of writers at any moment leaves nothing half-done and holds nobody up.

Four processes write as fast as they can; one after the other is killed and replaced. A worker tells
of a write only after its call returned. `DGENT_KILLS=1000` runs longer.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest

import dgent
from tests.fault.nursery import Child, Nursery
from tests.postgres.jobs import ACCOUNTS, made
from tests.postgres.load import LATE_S, feed
from tests.soak import times

KILLS = times(12)
AT_ONCE = 4


@pytest.mark.timeout(120 + KILLS)
async def test_killed_writers(url: str) -> None:
    async with dgent.open(url) as u:
        await u.put_many([made(f"account.{n}", n=100) for n in range(ACCOUNTS)])
        everyone: list[Child] = []
        longest = 0.0
        with Nursery("tests.postgres.jobs") as nursery:
            alive: list[Child] = []
            for turn in range(KILLS):
                while len(alive) < AT_ONCE:
                    alive.append(
                        nursery.start("scribble", url=url, name=f"w{len(everyone)}.{len(alive)}.{turn}")
                    )
                await asyncio.sleep(random.choice((0.02, 0.1, 0.2, 0.3)))
                victim = alive.pop(random.randrange(len(alive)))
                if turn % 3 == 0:  # others are killed wherever they are, while they start perhaps
                    await asyncio.to_thread(nursery.hear, victim, 5)
                victim.kill()
                everyone.append(victim)
                began = time.monotonic()
                await u.put(made(f"between.{turn}"))
                longest = max(longest, time.monotonic() - began)
            for child in alive:
                child.kill()
            everyone += alive
            nursery.wait(*everyone)
        assert {child.code for child in everyone} == {-9}, [c.said[-1:] for c in everyone if c.code != -9]
        said = [what for child in everyone for what in child.said]
        await _check(u, said)
        assert len(said) > len(everyone), "the writers hardly wrote anything"
        assert longest < 5, "a killed writer held the others up"
        print(
            f"\nkill -9: {len(everyone)} kills, {len(said)} acknowledged, 0 lost,"
            f" longest put of a bystander {longest:.2f} s"
        )


async def _check(u: Any, said: list[Any]) -> None:
    found = {datum.id: datum async for datum in u.iterate(dgent.Query(limit=None), raw=True)}
    for kind, *told in said:
        if kind == "one":
            assert found[told[0]].rev == told[1] == 1
        elif kind == "many":
            assert all(told[0] + str(i) in found for i in range(told[1]))
    sizes = Counter(id.rsplit(".", 1)[0] for id in found if id.startswith("many."))
    for group, count in sizes.items():
        assert count == found[group + ".0"].data["size"], f"{group} is torn"
    assert sum(found[f"account.{n}"].data["n"] for n in range(ACCOUNTS)) == 100 * ACCOUNTS
    seqs = await feed(u)
    assert seqs.keys() == found.keys()
    assert all(len(seqs[id]) == datum.rev for id, datum in found.items())


async def test_the_clock_of_a_killed_process_is_free(url: str) -> None:
    with Nursery("tests.postgres.jobs") as nursery:
        async with dgent.open(f"{url}&timeout={3 * LATE_S}") as u:
            holder = nursery.start("hold_clock", url=f"{url}&timeout={9 * LATE_S}")
            nursery.hear(holder)
            put = asyncio.ensure_future(u.put(made("x")))
            await asyncio.sleep(0.2)
            assert not put.done()
            holder.kill()
            assert (await asyncio.wait_for(put, LATE_S)).rev == 1


async def test_the_clock_of_a_stopped_process_is_freed(url: str) -> None:
    """Its connection stays, and nobody is there to end what it began: the server does after a while."""
    with Nursery("tests.postgres.jobs") as nursery:
        async with dgent.open(f"{url}&timeout={3 * LATE_S}") as u:
            holder = nursery.start("hold_clock", url=f"{url}&timeout=3")
            nursery.hear(holder)
            os.kill(holder.pid, signal.SIGSTOP)
            assert (await asyncio.wait_for(u.put(made("x")), LATE_S)).rev == 1
            holder.kill()
            nursery.wait(holder)


async def test_a_writer_that_was_stopped_goes_on(url: str) -> None:
    """The server ended what it was about; once it runs again it does that again, and once."""
    with Nursery("tests.postgres.jobs") as nursery:
        async with dgent.open(url) as u:
            await u.put_many([made(f"account.{n}", n=100) for n in range(ACCOUNTS)])
            writer = nursery.start("scribble", url=f"{url}&timeout=3", name="w")
            for turn in range(2):
                nursery.hear(writer, len(writer.said) + 5)
                os.kill(writer.pid, signal.SIGSTOP)
                await asyncio.sleep(1.2)
                await asyncio.wait_for(u.put(made(f"between.{turn}")), 20)
                os.kill(writer.pid, signal.SIGCONT)
            nursery.hear(writer, len(writer.said) + 10)
            writer.kill()
            nursery.wait(writer)
            assert writer.code == -9, writer.said[-1:]
            await _check(u, writer.said)
