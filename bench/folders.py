"""A store of text files: appending against a raw append and fsync, and opening what did not change."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import dgent
from bench.measure import Row, awaits, calls, compared, interleave, quartiles, say, verdict
from bench.plan import Plan, size_text
from bench.puts import TASKS, by_tasks, draw_groups, draw_samples, remember_block
from bench.record import SCHEMA, datums
from bench.stores import CHUNK, Stores
from dgent import Universe

_LIMIT = 1.5
_OPEN_MS = 100.0
_OPEN = """
import asyncio, json, sys, time
from dgent.store.jsonl.backend import JSONLBackend

async def main(path):
    store = JSONLBackend(path)
    began = time.process_time()
    await store.open()
    assert await store.last_seq() > 0
    took = time.process_time() - began
    await store.close()
    print(json.dumps(took * 1e3))

asyncio.run(main(sys.argv[1]))
"""


async def folders(plan: Plan, stores: Stores) -> list[Row]:
    """Appending one after another and many at once; opening an unchanged folder."""
    say("  folders of lines")
    return [*await _appends(plan, stores), *await _opens(plan, stores)]


async def _appends(plan: Plan, stores: Stores) -> list[Row]:
    path = stores.path("folder")
    async with open_folder(path) as universe:
        value, tags = draw_samples(1)()[0]
        await universe.remember(value, tags=tags)
        raw = RawFile(stores.path("raw"), _line(path))
        systems = {
            "raw": calls(raw.put, lambda: [()] * plan.puts),
            "dgent": remember_block(universe, plan.puts),
            "raw many": calls(raw.put_together, lambda: [()] * plan.batches, TASKS),
            "many": awaits(by_tasks(universe), draw_groups(plan.batches), TASKS),
        }
        times = await interleave(systems, plan.rounds)
        raw.close()
    return [
        compared("jsonl: put, one after another, immediate", times, "dgent", "raw", _LIMIT),
        compared(f"jsonl: put, {TASKS} tasks at once, immediate", times, "many", "raw many"),
    ]


class RawFile:
    """Appends a line of the same length as dgent's, and waits for the disk."""

    def __init__(self, path: str, line: bytes) -> None:
        self._line = line
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def put(self) -> None:
        """One line."""
        os.write(self._file, self._line)
        os.fsync(self._file)

    def put_together(self) -> None:
        """As many lines as there are tasks, and one wait."""
        os.write(self._file, self._line * TASKS)
        os.fsync(self._file)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def open_folder(path: str, sync: str = "immediate") -> Universe:
    """A universe on a folder, with the schema of the records."""
    universe = dgent.open(f"jsonl:{path}?sync={sync}")
    universe.register(SCHEMA)
    return universe


def _line(path: str) -> bytes:
    with open(os.path.join(path, f"{SCHEMA.name}.jsonl"), "rb") as file:
        return file.readline()


async def _opens(plan: Plan, stores: Stores) -> list[Row]:
    count = next((size for size in plan.sizes if size >= 100_000), plan.sizes[-1])
    path = stores.path("unchanged")
    async with open_folder(path, "on_close") as universe:
        for first in range(0, count, CHUNK):
            await universe.put_many(datums(first, min(CHUNK, count - first), first))
    took = []
    for _ in range(plan.starts):
        told = subprocess.run([sys.executable, "-c", _OPEN, path], capture_output=True, text=True, check=True)
        took.append(json.loads(told.stdout))
    low, middle, high = quartiles(took)
    return [
        Row(
            f"jsonl: open an unchanged store of {size_text(count)}, CPU",
            f"≤ {_OPEN_MS:g} ms",
            middle,
            low,
            high,
            min(took),
            None,
            middle,
            verdict(middle, low, high, at_most=_OPEN_MS),
            "ms",
        )
    ]
