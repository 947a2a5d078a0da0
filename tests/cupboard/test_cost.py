"""What a claim costs: it reads the crumb that it takes, however many are done, waiting or ready."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import clock
from dgent.cupboard import Crumb, Cupboard
from dgent.cupboard.record import CATALOG_ID
from dgent.store.memory.backend import MemoryBackend
from dgent.store.sqlite.backend import SQLiteBackend
from tests.calls import Calls


class Counting:
    """A kernel that notes the ids of the records that it gives out."""

    ids: list[str] = []  # noqa: RUF012 - shared by all handles, emptied by each test

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def walk(self, *asked: Any) -> Iterator[Any]:
        for key, row in self._kernel.walk(*asked):
            Counting.ids.append(row.id)
            yield key, row

    def fetch(self, *asked: Any) -> Any:
        found = self._kernel.fetch(*asked)
        Counting.ids += [row[1] for row in found]
        return found

    def fetch_id(self, id: str) -> Any:
        Counting.ids.append(id)
        return self._kernel.fetch_id(id)

    def head(self, id: str) -> Any:
        Counting.ids.append(id)
        return self._kernel.head(id)

    def heads(self, ids: Sequence[str]) -> Any:
        Counting.ids += ids
        return self._kernel.heads(ids)


async def fill(cupboard: Cupboard) -> None:
    """Add 21 crumbs: some done, some taken, some waiting, some put off, and the rest ready."""
    made = [Crumb(f"c{n}", "ready") for n in range(17)]
    made += [Crumb(f"later {n}", "ready", clock.now() + timedelta(days=1)) for n in range(2)]
    made += [Crumb("parent"), Crumb("child", "ready")]
    await cupboard.add_many(made, [("child_of", 20, 19)])
    for n in range(6):
        taken = await cupboard.take("ann")
        assert taken is not None and taken.name == f"c{n}"
        if n % 2:
            await cupboard.done(taken)


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
async def test_a_claim_reads_the_crumb_that_it_takes(tmp_path: Path, engine: str) -> None:
    path = str(tmp_path / "store.db")
    store = MemoryBackend(wrap=Counting) if engine == "memory" else SQLiteBackend(path, wrap=Counting)
    async with dgent.Universe(store) as u:
        cupboard = Cupboard(u)
        await fill(cupboard)
        Counting.ids.clear()
        taken = await cupboard.take("ann")
        assert taken is not None and taken.name == "c6"
        read = [id for id in Counting.ids if id != CATALOG_ID]
        assert len(read) <= 3 and taken.id in read
        Counting.ids.clear()
        assert [each.name for each in await cupboard.ready(limit=2)] == ["c7", "c8"]
        assert len([id for id in Counting.ids if id != CATALOG_ID]) == 3


async def test_a_claim_runs_few_functions(tmp_path: Path) -> None:
    with Calls() as calls:
        async with dgent.open(f"sqlite:///{tmp_path}/a.db") as u:
            cupboard = Cupboard(u)
            await fill(cupboard)
            with calls.counting():
                assert await cupboard.take("ann") is not None
            assert calls.python < 600
            assert calls.decoded < 6
