"""A store on a file system that is not mounted: its folder is there, and empty."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import dgent
from dgent.errors import StorageFull
from tests.offline.world import NOTE, Note, World, back

pytestmark = pytest.mark.filterwarnings("ignore::dgent.errors.Degraded")


class Disk:
    """A small file system of its own."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder, self.size = folder, size
        folder.mkdir(exist_ok=True)

    def mount(self, *more: str) -> bool:
        """Mount it, or mount it where it was before; False where that is not allowed."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={self.size}", "none", str(self.folder)]
        return subprocess.run([*command, *more], capture_output=True).returncode == 0

    def unmount(self) -> None:
        """Take it away; what was in it is gone, unless it was moved."""
        subprocess.run(["umount", "-l", str(self.folder)], capture_output=True)

    def move(self, to: Path) -> None:
        """Mount what is here somewhere else."""
        to.mkdir(exist_ok=True)
        subprocess.run(["mount", "--move", str(self.folder), str(to)], capture_output=True, check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "server", "64m")
    if not made.mount():
        pytest.skip("this user may not mount file systems")
    yield made
    made.unmount()
    Disk(tmp_path / "elsewhere", "").unmount()


async def test_an_empty_folder_is_not_the_store(disk: Disk, tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.open() as u:
        u.register(NOTE)
        await u.remember(Note("there"), id="a")
    disk.move(tmp_path / "elsewhere")
    for _ in range(2):
        async with world.open() as u:
            u.register(NOTE)
            assert u.degraded is not None and "is gone from" in u.degraded.reason
            await u.remember(Note("pending"), id="b")
    assert not (disk.folder / "store.db").exists(), "no second store was made in its place"
    # Nor is an empty one that somebody else made there.
    async with world.plain():
        pass
    async with world.open() as u:
        assert u.degraded is not None and "is empty, and not the one that was there" in u.degraded.reason
        for file in disk.folder.iterdir():
            file.unlink()
        Disk(tmp_path / "elsewhere", "").move(disk.folder)
        await back(u, 30)
        assert sorted(d.id for d in await u.query(raw=True, partial=True)) == ["a", "b"]
        assert len(await u.history("b")) == 1, "the same content twice is one version"


async def test_a_full_disk_under_the_outbox_refuses_and_loses_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "small", "1m")
    if not disk.mount():
        pytest.skip("this user may not mount file systems")
    try:
        world = World(tmp_path)
        world.outbox = str(disk.folder / "outbox.db")
        world.leave()
        ballast = disk.folder / "ballast"
        ballast.write_bytes(bytes(300_000))
        async with world.open() as u:
            kept = 0
            with pytest.raises(StorageFull):
                for n in range(1000):
                    await u.put(dgent.Datum(id=f"r{n}", content=bytes(20_000)))
                    kept = n + 1
            assert kept > 5 and u.degraded is not None and u.degraded.pending == kept
            assert await u.count(partial=True) == kept
            world.come_back()
            # It cannot leave an outbox that cannot be written, and says why.
            with pytest.raises(StorageFull, match=r"outbox\.db"):
                await u.backend.reconnect()  # type: ignore[attr-defined]
            assert u.degraded is not None and "outbox.db" in u.degraded.reason
            ballast.unlink()
            await back(u, 60)
            assert await u.count(partial=True) == kept
            assert (await u.stats()).details["pending"] == 0
        async with world.plain() as u:
            assert await u.seq() == kept
    finally:
        disk.unmount()
