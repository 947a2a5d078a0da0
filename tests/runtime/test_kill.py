"""`kill -9` at each step of a turn: what was paid is not paid again, and what was done is not done again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import randrange

import pytest

import dgent
from dgent.blocks import Library
from dgent.messages import Inbox, Messages
from tests.contract.columns import SETTINGS
from tests.fault.nursery import Nursery
from tests.runtime.jobs import LAST
from tests.soak import SOAK, some

MOST = 80  # points that a run can have


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.runtime.jobs") as made:
        yield made


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


async def count_answers(url: str) -> int:
    """The answers of the model that are stored."""
    async with dgent.open(url) as u:
        page = await Messages(u, "scout").page(50, role="assistant")
        return len(page.items)


async def check_end(url: str, folder: Path, stored: int, notices: list[str]) -> None:
    """Everything is done, once."""
    async with dgent.open(url) as u:
        messages = Messages(u, "scout")
        (batch,) = await messages.list_batches()
        assert batch.state == "complete" and batch.trust == "partner"
        shown = await (await messages.get_batch(batch.id)).messages()
        numbers = ["1", "2", "2.1", "2.2", "2.3", "2.4", "3", "3.1", "3.2", "4"]
        assert [each.number for each in shown] == numbers and shown[-1].text == LAST
        journeys = await u.count(tags=["journey"])
        assert (await (await Library(u, "scout").get("places")).text()) == "coast"
        assert len(await Inbox(u, "bob").list()) == 1
        unknown = [each.number for each in shown if "outcome is not known" in each.text]
    paid, acts = Counter(lines(folder, "paid")), Counter(lines(folder, "acts"))
    steps = ["0", "4", "6"]
    assert [paid[step] for step in steps[:stored]] == [1] * stored, "an answer that was stored was paid again"
    assert all(paid[step] in (1, 2) for step in steps) and sum(paid.values()) <= 4
    assert acts["charge"] <= 1 and acts["book"] <= 1 and acts["look"] in (1, 2) and acts["gaze"] in (1, 2)
    assert journeys == 1 or unknown == ["3.1"]
    assert acts["charge"] == 1 or unknown == ["2.3"]
    assert len(unknown) == len(notices)


async def run_points(
    nursery: Nursery, url_of: Callable[[Path], str], tmp_path: Path, points: list[int]
) -> list[str]:
    reached: list[str] = []
    for point in points:
        folder = tmp_path / str(point)
        folder.mkdir()
        url = url_of(folder)
        child = nursery.start("answer", url=url, folder=str(folder), kill_at=point)
        nursery.wait(child)
        killed = lines(folder, "killed")
        if not killed:
            assert child.said == [LAST] and child.code == 0
            break
        assert child.code == -9
        reached.append(killed[0])
        stored = await count_answers(url)
        again = nursery.start("go_on", url=url, folder=str(folder))
        ((left, notices),) = nursery.finish(again)
        if not left:
            continue  # nothing was stored yet, or everything
        await check_end(url, folder, stored, notices)
    return reached


@pytest.mark.timeout(300)
async def test_killed_at_each_step(nursery: Nursery, tmp_path: Path) -> None:
    def place(folder: Path) -> str:
        return f"sqlite:///{folder}/a.db"

    points = list(range(1, MOST)) if SOAK > 1 else list(range(1 + randrange(3), MOST, 3))
    reached = await run_points(nursery, place, tmp_path, points)
    print(f"\n{len(reached)} points")
    assert len(reached) > (30 if SOAK > 1 else 9), reached


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["jsonl", "postgres"])
async def test_killed_on_other_engines(nursery: Nursery, name: str, tmp_path: Path) -> None:
    assert await run_points(nursery, SETTINGS[name][0].url, tmp_path, some(range(6, 30), 3))
