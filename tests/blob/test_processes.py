"""Blobs of several processes: kills at any moment, collections meanwhile, and a disk that is full."""

from __future__ import annotations

import os
import random
import subprocess
import time
import tracemalloc
from datetime import timedelta
from pathlib import Path

import pytest

import dgent
from dgent.errors import StorageFull
from dgent.model.datum import Datum
from dgent.store.backend import Put
from dgent.universe.blob import KEY, BlobStore, key_id, open_blobs
from tests.command import python
from tests.contract.columns import SETTINGS
from tests.fault.test_full_disk import Disk, disk
from tests.soak import times

__all__ = ["disk"]
NOW = timedelta(0)

_WORK = """
import asyncio, hashlib, random, sys
from datetime import timedelta
import dgent
from dgent.errors import Busy
from dgent.universe.blob import open_blobs

async def main(url, role, turn):
    async with dgent.open(url, durability="relaxed") as u:
        blobs = open_blobs(u)
        print("ready", flush=True)
        while role == "collect":
            await blobs.collect(grace=timedelta(0))
        number = 0
        while True:
            number += 1
            # Few contents, so that the processes store, delete and collect the same ones.
            data = b"%d" % random.randrange(6) * random.choice((3, 400_000))
            key = f"{turn}/{role}/{number}"
            try:
                if random.random() < 0.3:
                    key = f"{turn}/{role}/{number - 1}"
                    await blobs.delete(key)
                    print("-", key, flush=True)
                else:
                    await blobs.put(key, data)
                    print("+", key, hashlib.sha256(data).hexdigest(), flush=True)
            except Busy:
                pass  # a collection was faster, and nothing was stored

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_kills_and_collections_leave_no_key_without_its_content(tmp_path: Path, engine: str) -> None:
    url = SETTINGS[engine][0].url(tmp_path)
    async with dgent.open(url) as u:
        for turn in range(times(1)):
            roles = ("one", "two", "collect")
            commands = [[python(), "-c", _WORK, url, role, str(turn)] for role in roles]
            running = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in commands]
            heard = [each.stdout for each in running if each.stdout is not None]
            assert [each.readline() for each in heard] == ["ready\n"] * 3
            # By what they have done, not by the clock: on a busy machine they would be killed before it.
            said = [[each.readline() for _ in range(3)] for each in heard[:2]]
            time.sleep(random.uniform(0, 0.4))
            for each in running:
                each.kill()
                each.wait()
            for lines, stream in zip(said, heard, strict=False):
                lines += stream.readlines()
            for stream in heard:
                stream.close()
            blobs = open_blobs(u)
            for lines in said:
                # Each key is as its last line says; that of the very last may have been deleted since.
                last = {line.split()[1]: line.split() for line in lines[:-1]}
                last.pop(lines[-1].split()[1], None)
                for key, words in last.items():
                    info = await blobs.info(key)
                    assert (info is None) == (words[0] == "-"), key
                    assert info is None or info.sha256 == words[2]
            async for info in blobs.iterate():
                assert await blobs.get(info.key) is not None  # whole, and checked by its hash
            assert (await blobs.collect(grace=NOW)).kept == len(await blobs.contents.list())
            place = Path(blobs.contents.place, "tmp")
            assert not place.exists() or not os.listdir(place)


async def test_a_full_disk_is_said_and_the_same_handle_works_again(disk: Disk) -> None:
    async with dgent.open(f"sqlite:///{disk.folder / 'store.db'}") as u:
        blobs = open_blobs(u)
        await blobs.put("old", b"old")
        with pytest.raises(StorageFull):
            await blobs.put("large", iter([bytes(1 << 20)] * 8))
        assert await blobs.get("old") == b"old" and not await blobs.exists("large")
        assert os.listdir(Path(blobs.contents.place, "tmp")) == []
        await blobs.put("small", bytes(1 << 20))
        assert len(await blobs.get("small") or b"") == 1 << 20


async def test_small_blobs_on_a_full_disk_are_there_or_refused(disk: Disk) -> None:
    async with dgent.open(f"sqlite:///{disk.folder / 'store.db'}") as u:
        blobs, stored = open_blobs(u), dict[str, bytes]()
        disk.fill(leave=300_000)
        with pytest.raises(StorageFull):
            for n in range(100):
                data = os.urandom(20_000)
                await blobs.put(f"{n}", data)
                stored[f"{n}"] = data
        assert {each.key for each in await blobs.list()} == {*stored}
        for key, data in stored.items():
            assert await blobs.get(key) == data
        disk.ballast.unlink()
        await blobs.put("again", b"small")
        assert await blobs.get("again") == b"small" and len(await blobs.contents.list()) == len(stored) + 1


async def test_a_large_blob_needs_little_memory(tmp_path: Path) -> None:
    """In a process of its own, whose memory may not grow by more than a few parts."""
    program = """
import asyncio, resource, sys
import dgent
from dgent.universe.blob import open_blobs

async def main(url, mebibytes):
    async with dgent.open(url, durability="relaxed") as u:
        blobs = open_blobs(u)
        await blobs.put("warm", bytes(9 << 20))
        await blobs.get("warm")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await blobs.put("large", (bytes(1 << 20) for _ in range(mebibytes)))
        async with blobs.open("large") as reader:
            size = sum([len(part) async for part in reader])
        print(size >> 20, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    wanted = min(1024, times(128))  # a gibibyte in a long look
    command = [python(), "-c", program, url, str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    size, grown = map(int, done.stdout.split())
    assert size == wanted and grown < 80


async def test_many_keys_are_listed_in_constant_memory(tmp_path: Path) -> None:
    """The peak of a list of all does not grow with their number."""
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}", durability="relaxed") as u:
        blobs, have = open_blobs(u), 0
        await blobs.put("first", b"content")
        peaks = []
        for count in (2_000, min(1_000_000, times(6_000))):
            await _add_keys(blobs, have, count)
            have = count
            seen = 0
            tracemalloc.start()
            async for _ in blobs.iterate():
                seen += 1
            assert seen == count + 1
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert max(peaks) < 4 << 20 and peaks[1] < 1.5 * peaks[0]


async def _add_keys(blobs: BlobStore, first: int, last: int) -> None:
    """Add keys of one content, many with a commit."""
    info = await blobs.info("first")
    assert info is not None
    for start in range(first, last, 1000):
        puts = []
        for n in range(start, min(last, start + 1000)):
            key = f"folder {n % 100}/blob {n}"
            data = {"key": key, "content": info.id, "size": info.size, "content_type": info.content_type}
            puts.append(Put(Datum(key_id(key), data=data, schema=KEY.name, schema_version=1)))
        await blobs._universe.commit(puts)
