"""Blobs beside plain files: storing and reading, and lists of many keys page by page."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import dgent
from bench.measure import Growth, Row, Stopwatch, Took, compared, interleave, say, verdict
from bench.plan import Plan, size_text
from bench.stores import Stores
from dgent.model.datum import Datum
from dgent.store.backend import Put
from dgent.store.port.blob import CHUNK
from dgent.universe.blob import KEY, BlobStore, key_id, open_blobs

_SPEED = 0.7
_SIZES = {64 << 10: 16, 1 << 20: 8, 32 << 20: 1}  # bytes of a blob, and how many in a block
_PAGE_BYTES = 4 << 20  # that a list may hold at once, however many keys there are


async def blob(plan: Plan, stores: Stores) -> list[Row | Growth]:
    """Measure blobs in files."""
    say("  blobs")
    rows: list[Row | Growth] = []
    with TemporaryDirectory(prefix="dgent-bench-") as folder:
        for size, count in _SIZES.items():
            rows += await _copies(plan, Path(folder), size, count)
        rows += await _lists(plan, Path(folder))
    return rows


async def _copies(plan: Plan, folder: Path, size: int, count: int) -> list[Row]:
    """Store files and read them, beside a copy that is synced, and a plain read."""
    source = folder / f"source-{size}"
    work = folder / f"work-{size}"
    work.mkdir()
    rounds = max(3, plan.rounds // 3)
    async with dgent.open(f"sqlite:///{work / 'store.db'}") as u:
        blobs, turn = open_blobs(u), 0

        def renew() -> None:
            nonlocal turn
            turn += 1
            source.write_bytes(os.urandom(64) + bytes(size - 64))  # no two contents are the same

        async def copy() -> Took:
            renew()
            for n in range(count):
                (work / f"copy-{n}").unlink(missing_ok=True)
            watch = Stopwatch()
            for n in range(count):
                _copy_synced(source, work / f"copy-{n}")
            return watch.each(count)

        async def put() -> Took:
            files = []
            # As the copies are removed: memory that was never used before takes longer than the copy itself.
            await blobs.collect(grace=timedelta(0))
            for n in range(count):
                renew()
                files.append(shutil.copy(source, work / f"source-{n}"))
            watch = Stopwatch()
            for n, path in enumerate(files):
                with open(path, "rb", buffering=0) as file:
                    await blobs.put(f"key {n}", file)
            return watch.each(count)

        async def read() -> Took:
            watch = Stopwatch()
            for n in range(count):
                (work / f"copy-{n}").read_bytes()
            return watch.each(count)

        async def get() -> Took:
            watch = Stopwatch()
            for n in range(count):
                await blobs.get(f"key {n}")
            return watch.each(count)

        name = f"{size >> 10:,} KiB"
        stored = await interleave({"put": put, "copy": copy}, rounds)
        got = await interleave({"get": get, "read": read}, rounds)
    shutil.rmtree(work)
    # A blob above 256 KiB waits twice for the disk, for its file with its name, and for its key; a copy once.
    work_name = f"storing a blob of {name} / a copy of the file with fsync"
    return [
        compared(work_name, stored, "put", "copy", at_least=_SPEED),
        compared(f"a checked blob of {name} / reading the file", got, "get", "read"),
    ]


def _copy_synced(source: Path, target: Path) -> None:
    with open(source, "rb", buffering=0) as here, open(target, "wb", buffering=0) as there:
        while part := here.read(CHUNK):
            there.write(part)
        os.fsync(there.fileno())


async def _lists(plan: Plan, folder: Path) -> list[Row | Growth]:
    times: dict[str, float] = {}
    peak = 0
    async with dgent.open(f"sqlite:///{folder / 'many.db'}", durability="relaxed") as u:
        blobs, have = open_blobs(u), 0
        await blobs.put("first", b"content")
        for size in plan.sizes:
            await _add_keys(blobs, have, size)
            have = size
            watch, seen = Stopwatch(), 0
            async for _ in blobs.iterate():
                seen += 1
            times[size_text(size)] = watch.each(seen)
            assert seen == size + 1, "each key is listed once"
            tracemalloc.start()
            async for _ in blobs.iterate():
                pass
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    mebibytes = peak / 2**20
    goal = _PAGE_BYTES / 2**20
    return [
        Row(
            f"memory while {size_text(have)} keys are listed",
            f"≤ {goal:g} MiB",
            mebibytes,
            verdict=verdict(mebibytes, mebibytes, mebibytes, goal),
            unit="MiB",
        ),
        Growth("a key in a list of all, page by page", times),
    ]


async def _add_keys(blobs: BlobStore, first: int, last: int) -> None:
    """Add keys of one content: a list reads no contents."""
    info = await blobs.info("first")
    assert info is not None
    for start in range(first, last, 1000):
        puts = []
        for n in range(start, min(last, start + 1000)):
            key = f"folder {n % 100}/blob {n}"
            data = {"key": key, "content": info.id, "size": info.size, "content_type": info.content_type}
            puts.append(Put(Datum(key_id(key), data=data, schema=KEY.name, schema_version=1, author="bench")))
        await blobs._universe.commit(puts)
