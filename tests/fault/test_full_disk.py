"""A full disk: a clear error, nothing half-done, reads go on, and the same handle works again.

The disk is a small tmpfs. `fill` takes what room is left with a ballast file, `free` gives it back.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import dgent
from dgent.errors import StorageFull
from dgent.store.sqlite import writer
from tests.fault.check import check_store
from tests.fault.jobs import NOTE, Note
from tests.fault.known_gaps import skip
from tests.fault.nursery import Nursery


class Disk:
    """A disk that can be filled up and freed again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ballast = folder / "ballast"

    def fill(self, leave: int = 0) -> None:
        """Take all room but so many bytes."""
        with open(self.ballast, "ab") as ballast:
            step = 1 << 20
            while step >= 4096:
                try:
                    os.posix_fallocate(ballast.fileno(), os.fstat(ballast.fileno()).st_size, step)
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    step //= 4
            ballast.truncate(max(0, os.fstat(ballast.fileno()).st_size - leave))

    def fill_up(self) -> None:
        """Take all room, also what is less than a step of `fill`."""
        self.fill()
        with open(self.ballast, "ab", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(b"x" * 256)

    def free(self) -> None:
        self.ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    size = getattr(request, "param", "4m")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "dgent-full", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        skip("mount")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def mount_ext4(folder: Path, block_bytes: int) -> Iterator[Disk]:
    """Mount a small disk of the usual kind, with blocks of a size."""
    image, place = folder / "image", folder / "disk"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    make = ["mkfs.ext4", "-q", "-b", str(block_bytes), "-m", "0", str(image)]
    mount = ["mount", "-o", "loop", str(image), str(place)]
    if os.getuid() != 0 or shutil.which(make[0]) is None:
        skip("mount")
    if any(subprocess.run(command, capture_output=True).returncode for command in (make, mount)):
        skip("mount")
    try:
        yield Disk(place)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


_ON_A_FULL_DISK = """
import asyncio, sys
import dgent
from dgent.errors import StorageFull

async def main():
    try:
        async with dgent.open(f"sqlite:///{sys.argv[1]}") as u:
            print("opened", await u.count())
            while True:
                await u.put(dgent.Datum(data={"text": "x" * 30}))
    except StorageFull:
        print("full")

asyncio.run(main())
"""


@pytest.mark.parametrize("block_bytes", [1024, 4096])
async def test_a_full_disk_ends_no_process(tmp_path: Path, block_bytes: int) -> None:
    """SQLite's shared memory is a file; with small blocks it has holes, and using one can be a signal."""
    with mount_ext4(tmp_path, block_bytes) as disk:
        path = disk.folder / "store.db"
        async with dgent.open(f"sqlite:///{path}") as u:
            await u.put_many([big(f"old.{i}", 30) for i in range(50)])
        for kilobytes in (0, 8, 10, 28, 48, 64, 90, 150, 300):
            disk.fill_up()
            os.truncate(disk.ballast, os.path.getsize(disk.ballast) - kilobytes * 1024)
            os.sync()
            command = [sys.executable, "-c", _ON_A_FULL_DISK, str(path)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, (kilobytes, done)
            assert done.stdout.endswith("full\n"), (kilobytes, done)
            assert kilobytes < 90 or "opened" in done.stdout, (kilobytes, done)
        disk.free()
        check_store(str(path))


def big(id: str, size: int = 3000) -> dgent.Datum:
    return dgent.Datum(id=id, data={"text": "x" * size}, tags=frozenset({"big"}))


@pytest.mark.parametrize("durability", ["full", "relaxed"])
async def test_full_and_free_again(disk: Disk, durability: str) -> None:
    path = disk.folder / "store.db"
    async with dgent.open(f"sqlite:///{path}", durability=durability) as u:
        u.register(NOTE)
        await u.put_many([big(f"old.{i}") for i in range(50)])
        changed = await u.put(dgent.Datum(id="changed"))
        disk.fill()
        calls = {
            "put": u.put(big("new")),
            "many": u.put_many([big(f"many.{i}") for i in range(20)]),
            "value": u.remember(Note(1, "x"), id="note"),
            "large": u.put(dgent.Datum(id="large", content=os.urandom(1_000_000))),
        }
        for call in calls.values():
            with pytest.raises(StorageFull) as caught:
                await call
            assert str(path) in str(caught.value) and caught.value.retryable
        # Reads of every kind go on, also on threads that never read before.
        assert len(await u.query(dgent.Query(tags={"big"}, limit=None))) == 50
        assert await u.count() == 51 and await u.exists("old.7")
        assert len(await u.history("old.3")) == 1 and len(await u.changes()) == 2
        assert [c async for c in u.iterate(dgent.Query(prefix="old."), raw=True)]
        assert await u.seq() == changed.seq
        disk.free()
        await u.put(big("new"))
        await u.put_many([big(f"many.{i}") for i in range(20)])
        await u.remember(Note(1, "x"), id="note")
        assert await u.count() == 73
    check_store(str(path))


@pytest.mark.parametrize("durability", ["full", "relaxed"])
async def test_groups_that_run_out_of_room(disk: Disk, durability: str) -> None:
    """64 commits at once with room for some of them: each happens whole, or says StorageFull."""
    path = disk.folder / "store.db"
    done: set[str] = set()
    refused = 0
    async with dgent.open(f"sqlite:///{path}", durability=durability) as u:
        await u.put(big("first"))
        for turn in range(12):
            disk.fill(leave=random.randrange(0, 300_000))
            wanted = [[big(f"{turn}.{i}.{part}") for part in range(i % 4 + 1)] for i in range(64)]
            ended = await asyncio.gather(*(u.put_many(each) for each in wanted), return_exceptions=True)
            for datums, end in zip(wanted, ended, strict=True):
                if isinstance(end, BaseException):
                    assert isinstance(end, StorageFull), end
                    refused += 1
                else:
                    done |= {datum.id for datum in datums}
            disk.free()
            stored = {datum.id for datum in await u.list(limit=None)}
            assert stored == done | {"first"}
            if turn % 4 == 3:
                # Make room again, or nothing fits any more.
                await u.put_many([datum.replace(data={}) for datum in await u.list(limit=None)])
                await u.compact(0)
    print(f"\nfull disk, {durability}: {len(done)} records stored, {refused} commits refused")
    assert refused and done
    check_store(str(path))


async def test_a_full_disk_from_the_start(disk: Disk) -> None:
    path = disk.folder / "store.db"
    disk.fill()
    with pytest.raises(StorageFull):
        async with dgent.open(f"sqlite:///{path}") as u:
            await u.put(big("x"))
    disk.free()
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(big("x"))
        assert await u.count() == 1
    # An existing store: it needs a little room for its log before it can even be read.
    disk.fill()
    with pytest.raises(StorageFull):
        await dgent.open(f"sqlite:///{path}").open()
    disk.free()
    async with dgent.open(f"sqlite:///{path}") as u:
        assert await u.exists("x")
    check_store(str(path))


@pytest.mark.parametrize("disk", ["48m"], indirect=True)
async def test_the_log_and_its_index_grow_into_a_full_disk(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has its room already; what finds none is its index, which grows every 4,000 pages."""
    monkeypatch.setattr(writer, "GROWN_PAGES", 10**9)
    path = disk.folder / "store.db"
    acked = 0
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(big("first"))
        with open(f"{path}-wal", "rb+") as log:
            os.posix_fallocate(log.fileno(), 0, 30_000_000)
        disk.fill()
        before = os.stat(f"{path}-shm").st_size
        with pytest.raises(StorageFull):
            for _ in range(6000):
                await u.put_many([big(f"{acked}.{i}", 2000) for i in range(10)])
                acked += 1
        assert os.stat(f"{path}-shm").st_size == before and acked > 100
        assert await u.count() == acked * 10 + 1
        more = 0
        with pytest.raises(StorageFull):
            while more < 100:  # a few small ones may fit where ten large ones did not
                await u.put(big(f"more{more}"))
                more += 1
        assert await u.count() == acked * 10 + 1 + more
        disk.free()
        await u.put_many([big(f"again.{i}", 2000) for i in range(10)])
        assert os.stat(f"{path}-shm").st_size > before
    check_store(str(path))


async def test_the_log_is_folded_again_after_a_full_disk(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folding in the background fails on a full disk; it must not have given up when there is room."""
    monkeypatch.setattr(writer, "GROWN_PAGES", 50)
    path = disk.folder / "store.db"
    async with dgent.open(f"sqlite:///{path}") as u:
        disk.fill(leave=600_000)
        with pytest.raises(StorageFull):
            for i in range(1000):
                await u.put(big(f"{i}"))
        disk.free()
        for i in range(600):
            await u.put(big(f"after.{i % 20}", i))
        assert os.stat(f"{path}-wal").st_size < 2_500_000, "the log only grows"
    check_store(str(path))


async def test_killed_on_a_full_disk(disk: Disk) -> None:
    """Killed while the disk is full, with the log unfolded: the next process finds all of it."""
    path = disk.folder / "store.db"
    with Nursery() as nursery:
        worker = nursery.start("fill_up", path=str(path))
        nursery.hear(worker)
        disk.fill(leave=200_000)
        acked = nursery.hear_until(worker, "full")
        worker.kill()
        nursery.wait(worker)
    disk.free()
    async with dgent.open(f"sqlite:///{path}") as u:
        assert set(acked) <= {datum.id for datum in await u.list(limit=None)}
    check_store(str(path))


async def test_an_index_that_found_no_room_is_not_called_complete(disk: Disk) -> None:
    """It is filled in the background, so whoever waits for it hears of the failure, now or later."""
    path = disk.folder / "store.db"
    async with dgent.open(f"sqlite:///{path}") as u:
        note = dgent.Datum(schema=NOTE.name, schema_version=1, data={"n": 1, "owner": "ann"})
        await u.put_many([note.replace(id=f"{i}") for i in range(3000)])
        disk.fill(leave=60_000)  # enough to declare the index
        u.register(NOTE)
        assert await u.count() == 3000
        while any(task.get_name().startswith("dgent-fill") for task in asyncio.all_tasks()):
            await asyncio.sleep(0.01)
        with pytest.raises(StorageFull):
            await u.indexed()
        disk.free()
        await u.indexed()
        schemas = {each.name: each for each in await u.schemas()}
        assert not schemas[NOTE.name].building
    check_store(str(path))
