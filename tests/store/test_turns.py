"""A put that is alone in a turn of the event loop is committed at once; the loop still gets its turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import dgent
from dgent import Datum, Universe
from dgent.errors import VersionConflict


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[Universe]:
    async with dgent.open(f"sqlite:///{tmp_path}/a.db", durability="relaxed") as universe:
        yield universe


async def give_a_turn(u: Universe) -> None:
    """Have a put that goes by way of the loop, so that others may follow it at once."""
    await asyncio.gather(u.put(Datum()), u.put(Datum()))
    u.backend._turn_ends = perf_counter() + 60  # type: ignore[attr-defined]  # on a slow machine too


def run_at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing; fails if it does wait."""
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    return ended.value.value


async def test_a_lone_put_takes_no_turn_of_the_loop(u: Universe) -> None:
    await give_a_turn(u)
    stored = run_at_once(u.put(Datum("a", data={"n": 1})))
    assert (stored.id, stored.rev) == ("a", 1)
    assert (await u.get("a")).data == {"n": 1}


async def test_a_refused_lone_put_says_so(u: Universe) -> None:
    await give_a_turn(u)
    run_at_once(u.put(Datum("a")))
    with pytest.raises(VersionConflict, match="exists already"):
        await u.put(Datum("a", data={"n": 2}), expect=0)
    assert (await u.get("a")).data == {}


async def test_puts_of_one_turn_wait_for_each_other(u: Universe) -> None:
    await give_a_turn(u)
    before = u.backend._shared.writer.connection.total_changes()  # type: ignore[attr-defined]
    tasks = [asyncio.create_task(u.put(Datum())) for _ in range(3)]
    await asyncio.sleep(0)
    assert u.backend._shared.writer.connection.total_changes() == before  # type: ignore[attr-defined]
    assert [stored.rev for stored in await asyncio.gather(*tasks)] == [1, 1, 1]


async def test_the_loop_gets_its_turns_while_one_task_puts(u: Universe) -> None:
    fired: list[int] = []
    asyncio.get_running_loop().call_later(0.005, fired.append, 1)
    until = perf_counter() + 30
    puts = 0
    while not fired and perf_counter() < until:
        await u.put(Datum())
        puts += 1
    assert fired
    assert puts > 0


async def test_the_loop_gets_its_turns_while_one_task_counts(u: Universe) -> None:
    fired: list[int] = []
    asyncio.get_running_loop().call_soon(fired.append, 1)
    for _ in range(100):
        assert await u.count() == 0
    assert fired
