"""A worker that is killed anywhere leaves what it was told is stored, and another one goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import dgent
from dgent.messages import Inbox, Messages
from tests.fault.nursery import Nursery
from tests.soak import times

KILLS = times(4)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.messages.jobs") as made:
        yield made


@pytest.mark.timeout(300)
async def test_each_message_is_handled_once_whoever_is_killed(nursery: Nursery, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with dgent.open(url) as u:
        for number in range(KILLS):
            await Inbox(u, "ann").send("scout", f"job {number}", type="user_request", attempts=50)
        said: list[list[object]] = []
        for number in range(KILLS):
            worker = nursery.start("answer_all", url=url, lease_s=0.2)
            for _ in range(400):
                if len(worker.said) > 2 * number:  # somewhere else each time
                    break
                await asyncio.sleep(0.01)
            worker.kill()
            await asyncio.sleep(0.02)
            said += worker.said
        last = nursery.start("answer_all", url=url, lease_s=0.2)
        nursery.finish(last, timeout_s=200)
        said += last.said
        messages = Messages(u, "scout")
        assert await Inbox(u, "scout").list() == []
        batches = await messages.list_batches(limit=None)
        assert {each.state for each in batches} == {"complete"} and len(batches) == KILLS
        for each in batches:
            shown = await (await messages.get_batch(each.id)).messages()
            assert [m.number for m in shown] == ["1", "2", "2.1", "3", "3.1", "4", "4.1", "5", "5.1"]
        called = Counter(tuple(each[1:]) for each in said if each[0] == "called")
        assert max(called.values()) == 1, "what was acknowledged was not done again"
