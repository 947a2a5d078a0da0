"""The queue of ready work, however long it is and wherever in it the wanted crumb stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import dgent
from dgent.cupboard import Crumb, Cupboard

MANY = 1_200  # more than two pages


@pytest.fixture(params=["memory", "sqlite"])
async def cupboard(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cupboard]:
    place = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'work.db'}"
    async with dgent.open(place) as u:
        yield Cupboard(u)


async def test_all_of_a_long_queue_in_order(cupboard: Cupboard) -> None:
    priorities = ("low", "highest", "medium")
    made = [Crumb(f"c{n}", "ready", properties={"priority": priorities[n % 3]}) for n in range(MANY)]
    await cupboard.add_many(made)
    names = [crumb.name for crumb in await cupboard.ready()]
    assert names == [f"c{n}" for start in (1, 2, 0) for n in range(start, MANY, 3)]
    for limit in (1, 4, 5, 500, 501, MANY + 1):
        assert [crumb.name for crumb in await cupboard.ready(limit)] == names[:limit]
    assert await cupboard.ready(limit=3, offset=600) == (await cupboard.ready())[600:603]


async def test_the_one_that_fits_is_far_behind(cupboard: Cupboard) -> None:
    made = [
        Crumb(f"c{n}", "ready", properties={"owner": "ann" if n == MANY - 10 else ""}) for n in range(MANY)
    ]
    await cupboard.add_many(made)
    taken = await cupboard.take("ann", properties={"owner": "ann"})
    assert taken is not None
    assert taken.name == f"c{MANY - 10}"
    assert await cupboard.take("ann", properties={"owner": "ann"}) is None


async def test_what_is_put_off_stands_in_nobodys_way(cupboard: Cupboard) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    await cupboard.add_many([Crumb(f"c{n}", "ready", later if n < 50 else None) for n in range(52)])
    assert [crumb.name for crumb in await cupboard.ready(1)] == ["c50"]
    taken = [await cupboard.take("ann") for _ in range(3)]
    assert [crumb and crumb.name for crumb in taken] == ["c50", "c51", None]


async def test_a_lease_that_ended_comes_back_at_its_place(cupboard: Cupboard) -> None:
    await cupboard.add_many([Crumb(f"c{n}", "ready") for n in range(20)])
    assert (await cupboard.take("ann", lease_s=0.01)) is not None
    await asyncio.sleep(0.05)
    assert [crumb.name for crumb in await cupboard.ready(2)] == ["c0", "c1"]


async def test_many_takers_at_once_share_all_of_it(cupboard: Cupboard) -> None:
    await cupboard.add_many([Crumb(f"c{n}", "ready") for n in range(120)])

    async def work(agent: str) -> list[str]:
        taken = []
        while (crumb := await cupboard.take(agent)) is not None:
            taken.append(crumb.name)
        return taken

    shares = await asyncio.gather(*(work(f"agent-{n}") for n in range(12)))
    assert sorted(name for share in shares for name in share) == sorted(f"c{n}" for n in range(120))
