"""Stores of some sizes, built once a run in a folder that is removed at the end."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType

import dgent
from bench.bare import Bare
from bench.measure import say
from bench.record import SCHEMA, datums
from dgent import Datum, Universe

CHUNK = 20_000
SETTLE_S = 0.5  # for what a store does behind its commits, before it is copied and measured
VERSIONED = [f"versioned-{n}" for n in range(200)]  # in every store, each with so many versions:
VERSIONS = 5


class Stores:
    """The folder of a run. A store of n records is the one of fewer records with more put into it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dgent-bench-"))
        self.second_seq = 0  # the commit after which the records of VERSIONED had two versions
        self._made: dict[int, str] = {}
        self._others: dict[tuple[str, int], str] = {}
        self._copies = 0

    def __enter__(self) -> Stores:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name: str) -> str:
        """A path in the folder that nothing uses yet."""
        self._copies += 1
        return str(self.folder / f"{name}-{self._copies}.db")

    def copy(self, path: str) -> str:
        """A copy of a closed store, to be written to."""
        target = self.path("copy")
        shutil.copyfile(path, target)
        return target

    async def sized(self, count: int) -> str:
        """A closed store of so many records (and a few with history), for reading."""
        if count not in self._made:
            self._made[count] = await self._build(count)
        return self._made[count]

    async def bare(self, count: int) -> str:
        """A bare table with the same records, closed."""
        return _twin(await self.sized(count))

    async def other(self, name: str, count: int, build: Callable[[str, int], Awaitable[None]]) -> str:
        """A closed file of so many records that another system builds, once."""
        if (name, count) not in self._others:
            path = self._others[name, count] = self.path(name)
            await build(path, count)
        return self._others[name, count]

    async def _build(self, count: int) -> str:
        smaller = max((n for n in self._made if n < count), default=0)
        target = str(self.folder / f"store-{count}.db")
        if smaller:
            shutil.copyfile(self._made[smaller], target)
            shutil.copyfile(_twin(self._made[smaller]), _twin(target))
        took = 0.0
        bare = Bare(_twin(target), "relaxed")
        async with open_store(target, "relaxed") as universe:
            if not smaller:
                bare.put_many(await self._add_versioned(universe))
            for first in range(smaller, count, CHUNK):
                batch = datums(first, min(CHUNK, count - first), first)
                began = time.perf_counter()
                await universe.put_many(batch)
                took += time.perf_counter() - began
                bare.put_many(batch)
            await asyncio.sleep(SETTLE_S)
        bare.close()
        per_row = took / (count - smaller) * 1e6
        size = os.path.getsize(target) / 1e6
        say(f"  built {count:,} records ({size:.0f} MB): {took:.1f} s, {per_row:.0f} µs a record")
        return target

    async def _add_versioned(self, universe: Universe) -> list[Datum]:
        """Put the oldest records of all, each some times; their last versions."""
        made = datums(-1, len(VERSIONED), -len(VERSIONED))
        batch = [datum.replace(id=id) for id, datum in zip(VERSIONED, made, strict=True)]
        for version in range(1, VERSIONS + 1):
            batch = [datum.replace(data=datum.data | {"attempts": 10 + version}) for datum in batch]
            await universe.put_many(batch)
            if version == 2:
                self.second_seq = await universe.seq()
        return batch


def open_store(path: str, durability: str) -> Universe:
    """A universe on a file, with the schema of the records."""
    universe = dgent.open(f"sqlite:///{path}", durability=durability)
    universe.register(SCHEMA)
    return universe


def _twin(path: str) -> str:
    return f"{path}.bare"
