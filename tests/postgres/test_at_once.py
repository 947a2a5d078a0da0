"""Commits that are sent before the loop comes round, and coroutines that begin before their task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import dgent
from dgent.ids import new_id
from dgent.store.postgres.bridge import Begun
from dgent.store.postgres.writer import AT_ONCE
from tests.postgres.load import LATE_S, feed


def _puts(u: Any, count: int) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(u.put(dgent.Datum(id=new_id(), data={"n": n}))) for n in range(count)]


async def _steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_full_group_is_sent_while_others_still_come(url: str) -> None:
    async with dgent.open(url) as u:
        await asyncio.gather(*_puts(u, AT_ONCE))
        writer = u.backend._writer
        tasks = _puts(u, AT_ONCE + 3)
        seen: list[tuple[int, bool]] = []
        asyncio.get_running_loop().call_soon(
            lambda: seen.append(
                (len(writer._queue), all(job.offered for (g,) in [writer._groups.values()] for job in g))
            )
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert seen == [(3, True)], "the first are on their way, the last three wait for the loop"
        put = await asyncio.gather(*tasks)
        assert len({each.seq for each in put}) == AT_ONCE + 3


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
async def test_cancelled_on_the_way(url: str, steps: int) -> None:
    """Whoever leaves takes nobody with him, and no connection; what he asked for happens once at most."""
    async with dgent.open(f"{url}&pool=2") as u:
        await asyncio.gather(*_puts(u, AT_ONCE))
        for leaving in (1, AT_ONCE, 2 * AT_ONCE):
            tasks = _puts(u, 2 * AT_ONCE)
            await _steps(1 + steps)
            for task in tasks[:leaving]:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            stayed = [end for end in ends if isinstance(end, dgent.Datum)]
            assert len(stayed) >= 2 * AT_ONCE - leaving
            told = await feed(u)
            assert all(told[each.id] == [each.seq] for each in stayed)
            assert all(len(seqs) == 1 for seqs in told.values())
        assert (await asyncio.wait_for(u.put(dgent.Datum(id=f"after.{steps}")), 5)).rev == 1
        async with asyncio.timeout(LATE_S):  # given back a moment after the work was cancelled
            while u.backend._require_open()._out:
                await asyncio.sleep(0.01)


async def test_one_that_is_refused_does_not_take_the_others_along(url: str) -> None:
    async with dgent.open(url) as u:
        await u.put(dgent.Datum(id="there"))
        refused = asyncio.ensure_future(u.put(dgent.Datum(id="there", data={"n": 2}), expect=0))
        ends = await asyncio.gather(refused, *_puts(u, 2 * AT_ONCE), return_exceptions=True)
        assert isinstance(ends[0], dgent.VersionConflict)
        assert all(isinstance(end, dgent.Datum) and end.rev == 1 for end in ends[1:])


# -- what begins before its task --------------------------------------------------------------


async def test_begun_runs_up_to_its_first_wait() -> None:
    steps: list[str] = []
    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        steps.append("begun")
        steps.append(await asked)
        await asyncio.sleep(0)
        return "done"

    begun = Begun(work())
    assert steps == ["begun"]
    asked.set_result("answered")

    async def see() -> str:
        return await begun

    assert await asyncio.ensure_future(see()) == "done" and steps == ["begun", "answered"]


async def test_begun_that_never_waits() -> None:
    async def give() -> int:
        return 7

    async def fail() -> int:
        raise KeyError("x")

    assert await Begun(give()) == 7
    failed = Begun(fail())
    with pytest.raises(KeyError):
        await failed


async def test_begun_hears_of_a_cancellation() -> None:
    ends: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    begun = Begun(work())

    async def see() -> None:
        await begun

    task = asyncio.ensure_future(see())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends == ["cancelled"]
