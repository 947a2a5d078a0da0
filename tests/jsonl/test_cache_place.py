"""The cache is ours or is made anew, links are not followed, and a cache that fails stops nobody."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from dgent.config.places import machine_key
from dgent.errors import Busy, DgentError, StorageFull
from dgent.store.jsonl import backend
from dgent.testing.contract import find_ids, put, record, typed_record
from tests.fault.check import move_entries
from tests.fault.test_full_disk import Disk, mount_ext4
from tests.jsonl.stores import data_of, odd, opened, without_cache

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def _forge(folder: Path) -> None:
    """Let the cache say something that no line says."""
    connection = apsw.Connection(str(folder / ".cache" / "cache.db"))
    connection.execute("UPDATE datum SET data = ?", (b'{"n":666}',))
    connection.close()


async def _store(folder: Path) -> None:
    async with opened(folder) as store:
        await put(store, typed_record("a", 1))


async def _cache_of(store: Any) -> str:
    return str((await store.stats()).details["cache"])


# -- what came with a folder --------------------------------------------------------------


async def test_a_cache_that_came_with_a_folder_is_not_believed(folder: Path, tmp_path: Path) -> None:
    await _store(folder)
    _forge(folder)
    async with opened(folder) as store:
        assert await data_of(store, "a") == [{"n": 666}], "whoever may write to our cache is us"
    shutil.copytree(folder, tmp_path / "copy")
    async with opened(tmp_path / "copy") as store:
        assert await data_of(store, "a") == [{"n": 1}]
    # The same folder removed and unpacked again may get the same inodes.
    for _ in range(3):
        shutil.copytree(folder, tmp_path / "again")
        async with opened(tmp_path / "again") as store:
            assert await data_of(store, "a") == [{"n": 1}]
        shutil.rmtree(tmp_path / "again")
    shutil.move(folder, tmp_path / "moved")
    async with opened(tmp_path / "moved") as store:
        assert await data_of(store, "a") == [{"n": 666}], "a folder that was moved keeps its cache"


async def test_a_cache_of_another_machine_is_not_believed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _store(folder)
    _forge(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "other home"))
    async with opened(folder) as store:
        assert await data_of(store, "a") == [{"n": 1}]


async def test_our_cache_is_used_again(folder: Path) -> None:
    await _store(folder)
    async with opened(folder) as store:
        epoch, inode = store.epoch, os.stat(folder / ".cache" / "cache.db").st_ino
    async with opened(folder) as store:
        assert store.epoch == epoch
    assert os.stat(folder / ".cache" / "cache.db").st_ino == inode
    assert os.stat(folder / ".cache" / "cache.db").st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["cache.db", "cache.db-wal", "proof", "."])
async def test_a_linked_cache_is_not_followed(folder: Path, tmp_path: Path, name: str) -> None:
    await _store(folder)
    kept = tmp_path / "elsewhere"
    place = folder / ".cache" / name if name != "." else folder / ".cache"
    if place.exists():
        shutil.move(place, kept)
    else:
        kept.write_bytes(b"precious")
    before = kept.read_bytes() if kept.is_file() else sorted(os.listdir(kept))
    place.symlink_to(kept)
    async with opened(folder) as store:
        await put(store, typed_record("b", 2))
        assert await data_of(store, "a", "b") == [{"n": 1}, {"n": 2}]
    assert (kept.read_bytes() if kept.is_file() else sorted(os.listdir(kept))) == before


async def test_without_a_place_for_a_key_the_cache_is_private(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    assert machine_key() is None
    async with opened(folder) as one, opened(folder) as two:
        await put(one, typed_record("a", 1))
        assert await _cache_of(two) == "private"
        assert await data_of(two, "a") == [{"n": 1}]
        places = [one._private, two._private]
        assert all(place is not None and os.path.isdir(place) for place in places)
    assert not any(place is not None and os.path.exists(place) for place in places)
    assert not (folder / ".cache" / "cache.db").exists()


# -- linked data files --------------------------------------------------------------------


async def test_linked_data_files_are_not_followed(folder: Path, tmp_path: Path) -> None:
    await _store(folder)
    other = tmp_path / "other"
    async with opened(other) as store:
        await put(store, typed_record("stolen", 1, schema="tick"))
    (folder / "tick.jsonl").symlink_to(other / "tick.jsonl")
    os.mkfifo(folder / "pipe.jsonl")
    before = (other / "tick.jsonl").read_bytes()
    async with opened(folder) as store:
        assert await find_ids(store) == ["a"]
        assert await odd(store) == [(name, 0, "not a plain file") for name in ("pipe.jsonl", "tick.jsonl")]
        with pytest.raises(DgentError):
            await put(store, typed_record("b", 1, schema="tick"))
        await put(store, typed_record("c", 1))
        await store.rewrite(history=True)
        assert sorted(await find_ids(store)) == ["a", "c"]
    assert (other / "tick.jsonl").read_bytes() == before


@pytest.mark.parametrize("name", ["dgent.json", ".lock"])
async def test_linked_files_of_the_folder_itself_are_refused(folder: Path, tmp_path: Path, name: str) -> None:
    await _store(folder)
    shutil.move(folder / name, tmp_path / "there")
    (folder / name).symlink_to(tmp_path / "there")
    with pytest.raises(DgentError):
        async with opened(folder):
            pass


# -- a cache that fails -------------------------------------------------------------------


async def test_a_cache_that_is_damaged_while_it_is_open(folder: Path) -> None:
    async with opened(folder) as store:
        await put(store, *(typed_record(f"r{n}", n) for n in range(300)))
    path = folder / ".cache" / "cache.db"
    raw = bytearray(path.read_bytes())
    raw[4096:] = os.urandom(len(raw) - 4096)
    path.write_bytes(raw)
    async with opened(folder) as store:
        assert len(await find_ids(store, limit=None)) == 300
        await put(store, typed_record("new", 1))
        assert len(await find_ids(store, limit=None)) == 301
    async with opened(folder) as store:
        assert await _cache_of(store) == str(path), "it was made anew"
        assert len(await find_ids(store, limit=None)) == 301


@pytest.mark.parametrize("sql", ["DELETE FROM entry WHERE dk = 2", "UPDATE entry SET t = 7 WHERE dk = 2"])
async def test_wrong_index_entries_are_repaired(folder: Path, sql: str) -> None:
    async with opened(folder) as store:
        await put(store, *(typed_record(f"r{n}", n) for n in range(5)))
        await move_entries(store)
        connection = apsw.Connection(str(folder / ".cache" / "cache.db"))
        connection.execute(sql)
        connection.close()
        for fix, fixed in ((False, [False]), (True, [True]), (False, [])):
            found = await store.upkeep().inspect(deep=True, fix=fix)
            assert [each.fixed for each in found if each.subject == "entries"] == fixed
        assert len(await find_ids(store, limit=None)) == 5


@pytest.mark.parametrize("ways", ["first", "put"])
async def test_a_damaged_cache_stops_no_write(folder: Path, ways: str) -> None:
    async with opened(folder) as store:
        await put(store, *(typed_record(f"r{n}", n) for n in range(300)))
        if ways == "first":
            await find_ids(store, limit=None)
        path = folder / ".cache" / "cache.db"
        store._require_open().writer.truncate()
        handle = os.open(path, os.O_WRONLY)  # kept open: closing it would drop SQLite's locks
        size = os.fstat(handle).st_size
        os.pwrite(handle, os.urandom(size - 4096), 4096)
        for n in range(40):
            await put(store, typed_record(f"r{n}", n + 1000), typed_record(f"new{n}", n))
        assert len(await find_ids(store, limit=None)) == 340
    os.close(handle)
    without_cache(folder)
    async with opened(folder) as store:
        assert len(await find_ids(store, limit=None)) == 340


# -- a stopped writer ---------------------------------------------------------------------

_HOLDER = """
import sys, os, signal
from dgent.store.jsonl.folder import StoreFolder
folder = StoreFolder(sys.argv[1])
folder.lock.acquire()
os.write(1, b"locked")
signal.pause()
"""


@pytest.fixture
def stopped(folder: Path) -> Iterator[Any]:
    """A way to have another process take the folder's lock and stop."""
    processes = []

    def stop() -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.read(6) == b"locked"
        process.send_signal(signal.SIGSTOP)

    yield stop
    for process in processes:
        process.kill()
        process.communicate()


async def test_reads_go_on_while_a_writer_is_stopped(
    folder: Path, stopped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "LOOK_S", 0.2)
    async with opened(folder) as first:
        await put(first, *(typed_record(f"r{n}", n) for n in range(20)))
        with open(folder / "note.jsonl", "ab") as file:
            file.write(b'{"id": "by hand", "data": {"n": 1}}\n')
        stopped()
        async with opened(folder) as second:
            assert len(await find_ids(second, limit=None)) == 21
            assert await data_of(second, "r3") == [{"n": 3}]
            assert await _cache_of(second) == "private"
            began = time.monotonic()
            assert len(await find_ids(first, limit=None)) == 21, "one that was open before reads on too"
            assert time.monotonic() - began < 10
            assert len(await first.changes(0, 100)) == 2


async def test_writes_are_busy_while_a_writer_is_stopped(
    folder: Path, stopped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dgent.store.jsonl import kernel

    monkeypatch.setattr(backend, "LOOK_S", 0.2)
    monkeypatch.setattr(kernel, "WAIT_S", 0.3)
    await _store(folder)
    stopped()
    before = (folder / "note.jsonl").read_bytes()
    async with opened(folder) as store:
        with pytest.raises(Busy):
            await put(store, typed_record("b", 1))
        assert await data_of(store, "a", "b") == [{"n": 1}, None]
    assert (folder / "note.jsonl").read_bytes() == before


# -- a full disk --------------------------------------------------------------------------


@pytest.fixture(params=[1024, 4096])
def ext4(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    """A small disk of the usual kind, with small blocks and with the usual ones."""
    with mount_ext4(tmp_path, request.param) as disk:
        yield disk


_READER = """
import asyncio, sys
from dgent.errors import DgentError, StorageFull
from dgent.store.jsonl.backend import JSONLBackend
from dgent.testing.contract import find_ids, put, record

async def main():
    store = JSONLBackend(sys.argv[1])
    await store.open()
    n = len(await find_ids(store, limit=None))
    for k in range(30):
        try:
            await put(store, record(f"new{k}", data={"text": "x" * 5000}))
        except StorageFull:
            pass
        n = len(await find_ids(store, limit=None))
    print(n)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("fresh", [False, True], ids=["cached", "anew"])
async def test_reads_go_on_on_a_full_disk(ext4: Disk, fresh: bool) -> None:
    folder = ext4.folder / "store"
    async with opened(folder) as store:
        await put(store, *(record(f"old{n}", data={"text": "x" * 3000}) for n in range(50)))
        ext4.fill_up()
        with pytest.raises(StorageFull):
            await put(store, *(record(f"many{n}", data={"text": "x" * 5000}) for n in range(50)))
        assert len(await find_ids(store, limit=None)) == 50
    if fresh:
        without_cache(folder)
        ext4.fill_up()
    done = subprocess.run(
        [sys.executable, "-c", _READER, str(folder)], cwd=ROOT, capture_output=True, timeout=120
    )
    assert done.returncode == 0, (done.returncode, done.stderr.decode()[-2000:])
    there = int(done.stdout)
    assert there >= 50
    ext4.free()
    async with opened(folder) as store:
        assert len(await find_ids(store, limit=None)) == there
        await put(store, record("last"))
    without_cache(folder)
    async with opened(folder) as store:
        assert len(await find_ids(store, limit=None)) == there + 1


async def test_a_read_does_not_make_a_folder_that_was_removed(folder: Path) -> None:
    async with opened(folder) as store:
        await put(store, typed_record("a", 1))
        shutil.move(folder, folder.with_name("away"))
        with pytest.raises(DgentError):
            await find_ids(store, limit=None)
        assert not folder.exists()
        shutil.move(folder.with_name("away"), folder)
        assert await find_ids(store, limit=None) == ["a"]
