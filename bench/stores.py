"""Stores of some sizes, built once a run in a folder that is removed at the end."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType

import dgent
from bench.measure import say
from bench.raw import Raw
from bench.record import SCHEMA, datums
from dgent import Universe

CHUNK = 20_000
VERSIONED = [f"versioned-{n}" for n in range(200)]  # in every store, each with so many versions:
VERSIONS = 5


class Stores:
    """The folder of a run. A store of n records is the one of fewer records with more put into it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dgent-bench-"))
        self.second_seq = 0  # the commit after which the records of VERSIONED had two versions
        self._made: dict[int, Path] = {}
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
        return str(self._made[count])

    async def _build(self, count: int) -> Path:
        smaller = max((n for n in self._made if n < count), default=0)
        target = self.folder / f"store-{count}.db"
        if smaller:
            shutil.copyfile(self._made[smaller], target)
        began = time.perf_counter()
        async with open_store(str(target), "relaxed") as universe:
            if not smaller:
                await self._add_versioned(universe)
            for first in range(smaller, count, CHUNK):
                batch = datums(first, min(CHUNK, count - first), first)
                await universe.put_many(batch)
        took = time.perf_counter() - began
        per_row = took / (count - smaller) * 1e6
        size = target.stat().st_size / 1e6
        say(f"  built {count:,} records ({size:.0f} MB): {took:.1f} s, {per_row:.0f} µs a record")
        return target

    async def _add_versioned(self, universe: Universe) -> None:
        made = datums(-1, len(VERSIONED))
        batch = [datum.replace(id=id) for id, datum in zip(VERSIONED, made, strict=True)]
        for version in range(1, VERSIONS + 1):
            await universe.put_many([d.replace(data=d.data | {"attempts": 10 + version}) for d in batch])
            if version == 2:
                self.second_seq = await universe.seq()


def open_store(path: str, durability: str) -> Universe:
    """A universe on a file, with the schema of the records."""
    universe = dgent.open(f"sqlite:///{path}", durability=durability)
    universe.register(SCHEMA)
    return universe


def check_same(raw_path: str, raw_id: str, path: str, id: str) -> None:
    """Refuse to compare unless both sides wrote the same for the same sample."""
    sides = []
    for where, which in ((raw_path, raw_id), (path, id)):
        raw = Raw(where, "relaxed")
        sides.append(raw.written(which))
        raw.close()
    if sides[0] != sides[1]:
        raise AssertionError(f"the raw side does not write what dgent writes:\n{sides[0]}\n{sides[1]}")
