"""Writers that go on whatever happens, and a look at what came of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import msgspec

import dgent
from dgent.errors import Busy, OutcomeUnknown, Unavailable
from dgent.ids import new_id

# What does not end by itself does not end at all: this tells it from what a loaded machine delays.
LATE_S = 20


def set_timeout(u: Any, timeout_s: float) -> None:
    """Change the timeout of a store that is open: to open it, a loaded machine may need longer."""
    backend = u.backend
    backend.address = msgspec.structs.replace(backend.address, timeout=timeout_s)
    backend._require_open().address = backend.address


class Load:
    """Tasks that put records through one universe and remember what they were told.

    Every third record has an id that is looked up first, every third one that was made just now,
    and every third goes without a key, so that nobody but the engine can tell whether it was done.
    """

    def __init__(self, u: Any, name: str, *, pause_s: float = 0.0) -> None:
        self.u, self.name, self.pause_s = u, name, pause_s
        self.told: dict[str, int] = {}  # id -> the seq that the call returned
        self.unknown: set[str] = set()  # without a key, and nobody said whether it happened
        self.asked: set[str] = set()
        self.refused = 0
        self.longest_s = 0.0
        self._stop = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, tasks: int = 16) -> Load:
        """Begin to write."""
        self._tasks = [asyncio.ensure_future(self._write(task)) for task in range(tasks)]
        return self

    async def stop(self) -> Load:
        """Let each task end what it is about."""
        self._stop = True
        await asyncio.gather(*self._tasks)
        return self

    async def reach(self, told: int, timeout_s: float = 30) -> None:
        """Wait until so many writes were acknowledged."""
        async with asyncio.timeout(timeout_s):
            while len(self.told) < told:
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.005)

    async def _write(self, task: int) -> None:
        turn = 0
        while not self._stop:
            turn += 1
            way = turn % 3
            id = new_id() if way == 1 else f"{self.name}.{task}.{turn}"
            self.asked.add(id)
            await self._until_told(id, None if way == 2 else f"{self.name}.key.{task}.{turn}")
            if self.pause_s:
                await asyncio.sleep(self.pause_s)

    async def _until_told(self, id: str, key: str | None) -> None:
        while True:
            began = time.monotonic()
            try:
                put = await self.u.put(dgent.Datum(id=id, data={"load": self.name}), key=key)
                assert put.rev == 1, f"{id} was written before"
                self.told[id] = put.seq
                return
            except OutcomeUnknown:
                self.refused += 1
                if key is None:
                    self.unknown.add(id)
                    return
            except (Unavailable, Busy):
                self.refused += 1
                await asyncio.sleep(0.01)
            finally:
                self.longest_s = max(self.longest_s, time.monotonic() - began)

    async def check(self, u: Any) -> str:
        """Everything told is there, once, under the seq it was told; a line of figures."""
        seqs = await feed(u)
        twice = [id for id, found in seqs.items() if len(found) > 1]
        lost = [id for id in self.told if id not in seqs]
        assert not twice, f"written twice: {twice[:5]}"
        assert not lost, f"acknowledged and lost: {lost[:5]}"
        wrong = [id for id, seq in self.told.items() if seqs[id] != [seq]]
        assert not wrong, f"another seq than the one told: {wrong[:5]}"
        mine = {id for id in seqs if id in self.asked}
        assert mine - self.unknown == self.told.keys(), "there is more than was told"
        return (
            f"{self.name}: {len(self.told)} acknowledged, 0 lost, 0 doubled, {len(self.unknown)} unknown,"
            f" {self.refused} refusals, longest call {self.longest_s:.2f} s"
        )


async def feed(u: Any) -> dict[str, list[int]]:
    """The seqs of every record of the whole feed; one that is skipped fails."""
    seqs: dict[str, list[int]] = {}
    last = 0
    while changes := await u.changes(last, limit=2000):
        for change in changes:
            assert change.seq == last + 1, f"the feed skips from {last} to {change.seq}"
            last = change.seq
            repeated = [id for id, n in Counter(item.id for item in change.items).items() if n > 1]
            assert not repeated, f"twice in one commit: {repeated}"
            for item in change.items:
                seqs.setdefault(item.id, []).append(last)
    assert last == await u.seq()
    return seqs
