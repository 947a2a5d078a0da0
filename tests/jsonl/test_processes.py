"""Several processes on one folder: killed at any moment, or all at once."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from dgent.model.query import Query
from dgent.store.jsonl.backend import JSONLBackend
from dgent.testing.contract import STORED, find_ids, put, typed_record
from tests.fault.nursery import Nursery
from tests.jsonl.stores import data_of, odd, opened, without_cache
from tests.jsonl.worker import ACCOUNTS
from tests.soak import times

KILLS = times(12)


class Worker:
    """A process that does a job on a folder."""

    def __init__(self, job: str, folder: Path, name: str) -> None:
        self._nursery = Nursery("tests.jsonl.worker")
        self._child = self._nursery.start("work", job=job, folder=str(folder), name=name)

    def kill(self) -> list[Any]:
        """End it in the middle of its work, however slow it was to begin; what it said before."""
        assert self._nursery.hear(self._child, timeout_s=60) == ["ready"]
        time.sleep(random.choice((0.02, 0.1, 0.3)))
        self._child.kill()
        return self.finish(-9)[1:]

    def finish(self, code: int = 0) -> list[Any]:
        """Wait until it ends; what it said."""
        self._nursery.wait(self._child, timeout_s=120)
        assert self._child.code == code, self._child.said[-1:]
        return self._child.said


async def _check(store: JSONLBackend, said: list[Any]) -> Any:
    """Everything that was acknowledged is there, and every commit is whole."""
    page = await store.query(Query(limit=None), STORED)
    there = {datum.id: datum for datum in page.items}
    for kind, *told in said:
        if kind == "one":
            assert (there[told[0]].rev, there[told[0]].data["n"]) == (told[1], told[2])
        elif kind == "pair":
            assert set(told) <= there.keys()
            outcome = await store.outcome(told[0])
            assert outcome is not None
            assert {each.id for each in outcome.written} == set(told)
        elif kind == "gone":
            assert told[0] not in there or there[told[0]].rev > 1
    pairs = {id[:-2] for id in there if id.endswith((".a", ".b"))}
    assert all({pair + ".a", pair + ".b"} <= there.keys() for pair in pairs)
    assert sum(there[account].data["n"] for account in ACCOUNTS) == 100 * len(ACCOUNTS)
    return {id: (datum.rev, datum.data) for id, datum in there.items()}, await store.last_seq()


async def test_killed_writers_lose_nothing_and_leave_nothing_half_done(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with opened(folder) as store:
        for n, account in enumerate(ACCOUNTS):
            await put(store, typed_record(account, 100, schema=f"money{n % 2}"))
    said: list[Any] = []
    kills = started = 0
    while kills < KILLS:
        alive: list[Worker] = []
        for _ in range(8):
            while len(alive) < 3:
                started += 1
                alive.append(Worker("scribble", folder, f"w{started}"))
            said += alive.pop(random.randrange(len(alive))).kill()
            kills += 1
        for worker in alive:
            said += worker.kill()
            kills += 1
        async with opened(folder) as store:
            before = await _check(store, said)
            assert {kind for _, _, kind in await odd(store)} <= {"cut off", "bad line", "incomplete commit"}
        without_cache(folder)
        async with opened(folder, cache=str(tmp_path / "other")) as store:
            assert (await _check(store, said))[0] == before[0]
    assert len(said) > kills // 4, "the workers hardly wrote anything"
    assert not list(folder.glob(".*.tmp")) or (folder / ".gitignore").read_text().endswith("*.tmp\n")


async def test_eight_processes_count_exactly(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with opened(folder) as store:
        await put(store, typed_record("counter", 0))
    began = time.monotonic()
    workers = [Worker("count_up", folder, f"p{n}") for n in range(8)]
    assert [worker.finish() for worker in workers] == [[["ready"], ["counted", 30]]] * 8
    async with opened(folder) as store:
        assert await data_of(store, "counter") == [{"n": 240}]
        history = await store.history("counter", None)
        assert [version.rev for version in history] == list(range(241, 0, -1))
        assert await odd(store) == []
    print(f"\neight processes: 240 steps in {time.monotonic() - began:.1f} s")
    without_cache(folder)
    async with opened(folder) as store:
        assert await data_of(store, "counter") == [{"n": 240}]


async def test_two_processes_with_caches_of_their_own_see_each_other_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with opened(folder) as one, opened(folder, cache=str(tmp_path / "cache")) as two:
        for n in range(30):
            here, there = (one, two) if n % 2 else (two, one)
            answer = await put(here, typed_record("a", n), typed_record(f"r{n}", n, schema=f"s{n % 3}"))
            assert (answer.seq, answer.written[0].rev) == (n + 1, n + 1)
            assert await data_of(there, "a", f"r{n}") == [{"n": n}, {"n": n}]
            assert len(await find_ids(there, limit=None)) == n + 2
        assert await two.changes(0, 100) == await one.changes(0, 100)
