"""A backup holds one moment of a constellation, proves itself, and is there whole or not at all."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import apsw
import msgspec
import pytest

import dgent
from dgent.errors import (
    Conflict,
    Corrupt,
    FormatTooNew,
    InputError,
    NoBackendAvailable,
    NotFound,
    StorageFull,
    Unsupported,
)
from dgent.exchange import folders
from dgent.exchange.backup import Backup, Manifest, _sum, backup, inspect_backup, restore
from dgent.store.sqlite import shared
from dgent.store.upkeep import upkeep_of
from dgent.universe.telemetry import telemetry_of
from tests.exchange import worker
from tests.exchange.constellation import everything, make, url
from tests.fault.check import check_store
from tests.fault.known_gaps import skip
from tests.fault.nursery import Nursery


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    await make(tmp_path / "home")
    return tmp_path / "home"


async def back_up(folder: Path, target: Path) -> Backup:
    async with dgent.open(url(folder)) as u:
        return await backup(u, folder, target)


async def test_holds_everything(folder: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    async with dgent.open(url(folder)) as u:
        made = await backup(u, folder, tmp_path / "deep" / "b", progress=lambda *at: told.append(at))
    assert made.path == str(tmp_path / "deep" / "b")
    assert made.records == 50 and made.seq == 2 and told
    assert set(made.files) == {"membrane.db", "telemetry.db", "blobs/ab/abcd", "blobs/empty"}
    assert inspect_backup(tmp_path / "deep" / "b") == made
    assert sorted(os.listdir(made.path)) == ["blobs", "manifest.json", "membrane.db", "telemetry.db"]
    assert os.listdir(tmp_path / "deep") == ["b"]
    done = await restore(Path(made.path), tmp_path / "new")
    assert (done.seq, done.records, done.kept, done.forgotten) == (2, 50, None, 0)
    assert await everything(tmp_path / "new") == await everything(folder)
    for name in ("blobs/ab/abcd", "blobs/empty"):
        assert (tmp_path / "new" / name).read_bytes() == (folder / name).read_bytes()
    async with dgent.open(f"sqlite:///{tmp_path / 'new' / 'membrane.db'}") as u:
        assert [event.id for event in await telemetry_of(u).query()] == ["span"]
    check_store(str(tmp_path / "new" / "membrane.db"))


async def test_is_for_its_owner_only(folder: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        await back_up(folder, tmp_path / "b")
        await restore(tmp_path / "b", tmp_path / "new")
    finally:
        os.umask(before)
    for top in (tmp_path / "b", tmp_path / "new"):
        assert stat.S_IMODE(top.stat().st_mode) == 0o700
        for path in top.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


async def test_target_must_be_new(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name in ("full", "file"):
        with pytest.raises(Conflict, match="already exists"):
            await back_up(folder, tmp_path / name)
    with pytest.raises(InputError, match="inside the constellation"):
        await back_up(folder, folder / "backups" / "b")
    await back_up(folder, tmp_path / "empty")
    assert inspect_backup(tmp_path / "empty").records == 50


async def test_memory_has_nothing_to_copy(tmp_path: Path) -> None:
    async with dgent.open("memory:") as u:
        with pytest.raises(Unsupported) as caught:
            await backup(u, None, tmp_path / "b")
    assert "sqlite" in caught.value.hint and not (tmp_path / "b").exists()


async def test_leftovers_of_a_crash_are_cleared_and_finished_ones_kept(folder: Path, tmp_path: Path) -> None:
    partial = tmp_path / "b.partial"
    partial.mkdir()
    (partial / ".dgent-unfinished").touch()
    (partial / "membrane.db").touch()
    await back_up(folder, tmp_path / "b")
    assert not partial.exists()
    partial = tmp_path / "c.partial"
    partial.mkdir()
    (partial / "mine").touch()
    await back_up(folder, tmp_path / "c")
    (left,) = tmp_path.glob("c.left-*")
    assert (left / "mine").exists()


async def test_only_what_is_in_the_way_of_a_blob_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "blobs" / "link").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        await back_up(folder, tmp_path / "b")
    assert sorted(os.listdir(tmp_path)) == ["home"]


async def test_forgotten_bytes_are_in_no_backup(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a reader keeps the source from being erased."""
    monkeypatch.setattr(shared, "SCRUB_S", 0.3)
    reader = apsw.Connection(str(folder / "membrane.db"))
    async with dgent.open(url(folder)) as u:
        await u.put(dgent.Datum(id="secret", data={"text": "the-secret-itself"}))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM datum").fetchall()
        assert not (await u.forget("secret")).erased
        await backup(u, folder, tmp_path / "b")
        reader.close()
    raw = (tmp_path / "b" / "membrane.db").read_bytes()
    assert b"the-secret-itself" not in raw and b"erasing" not in raw


# -- damage -------------------------------------------------------------------------------


async def test_one_flipped_byte_anywhere(folder: Path, tmp_path: Path) -> None:
    made = await back_up(folder, tmp_path / "b")
    for name in (*made.files, "manifest.json"):
        path = tmp_path / "b" / name
        raw = path.read_bytes()
        for at in range(0, len(raw), max(1, len(raw) // 7)):
            path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
            with pytest.raises(Corrupt):
                inspect_backup(tmp_path / "b")
        path.write_bytes(raw + b" " if name == "manifest.json" else raw[:-1])
        if name != "manifest.json" and raw:
            with pytest.raises(Corrupt):
                await restore(tmp_path / "b", tmp_path / "new")
        path.write_bytes(raw)
    inspect_backup(tmp_path / "b")
    assert not (tmp_path / "new").exists() and not (tmp_path / "new.restoring").exists()


async def test_a_missing_file(folder: Path, tmp_path: Path) -> None:
    made = await back_up(folder, tmp_path / "b")
    for name in made.files:
        shutil.copytree(tmp_path / "b", tmp_path / "less")
        (tmp_path / "less" / name).unlink()
        with pytest.raises(Corrupt, match="missing"):
            inspect_backup(tmp_path / "less")
        shutil.rmtree(tmp_path / "less")
    (tmp_path / "b" / "manifest.json").unlink()
    with pytest.raises(NotFound, match="not a backup"):
        inspect_backup(tmp_path / "b")


def rewrite(target: Path, **changes: object) -> None:
    """A manifest with other content and a fitting sum: hostile, not damaged."""
    path = target / "manifest.json"
    said = {**json.loads(path.read_bytes()), **changes}
    said["sum"] = _sum(msgspec.convert(said, Manifest, strict=False))
    path.write_text(json.dumps(said))


@pytest.mark.parametrize(
    "name",
    ["../../x", "/etc/passwd", "blobs/../../x", "blobs//x", "blobs", "x", "blobs\\..\\x", "blobs/a\0b", ""],
)
async def test_names_that_lead_elsewhere(folder: Path, tmp_path: Path, name: str) -> None:
    await back_up(folder, tmp_path / "b")
    files = json.loads((tmp_path / "b" / "manifest.json").read_bytes())["files"]
    rewrite(tmp_path / "b", files=[*files, {"name": name, "size": 0, "sha256": "e3b0"}])
    for call in (inspect_backup, lambda b: asyncio.run(restore(b, tmp_path / "new"))):
        with pytest.raises(Corrupt):
            await asyncio.to_thread(call, tmp_path / "b")
    assert sorted(os.listdir(tmp_path)) == ["b", "home"]


async def test_a_newer_format(folder: Path, tmp_path: Path) -> None:
    await back_up(folder, tmp_path / "b")
    (tmp_path / "b" / "manifest.json").write_text('{"dgent": "backup", "format": 2, "else": 1}')
    with pytest.raises(FormatTooNew):
        inspect_backup(tmp_path / "b")
    for odd in ("[]", "{}", '{"dgent": "backup"}', "[" * 5000, '{"dgent":"backup","format":1e999}', ""):
        (tmp_path / "b" / "manifest.json").write_text(odd)
        with pytest.raises(Corrupt):
            inspect_backup(tmp_path / "b")


async def test_a_manifest_that_lies_about_the_store(folder: Path, tmp_path: Path) -> None:
    await back_up(folder, tmp_path / "b")
    rewrite(tmp_path / "b", seq=7)
    inspect_backup(tmp_path / "b")
    with pytest.raises(Corrupt, match="manifest says"):
        await restore(tmp_path / "b", tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == ["b", "home"]


# -- while others write -------------------------------------------------------------------


async def test_eight_writers(tmp_path: Path) -> None:
    """Each writer counts up in order, so a copy of one moment holds a run from the start of each."""
    folder = tmp_path / "home"
    folder.mkdir()
    async with dgent.open(url(folder)) as u:
        await u.put_many([dgent.Datum(id=f"pad{i}", data={"x": "y" * 500}) for i in range(3000)])
        with Nursery(worker.JOBS) as nursery:
            writers = [worker.start(nursery, "write", folder=folder, name=f"w{n}") for n in range(8)]
            made = [await backup(u, folder, tmp_path / f"b{n}") for n in range(3)]
            worker.end(nursery, *writers)
        whole = {change.seq: change.items for change in await u.changes(limit=None)}
    assert made[0].seq < made[1].seq < made[2].seq, "writers went on meanwhile"
    for each in made:
        done = await restore(Path(each.path), tmp_path / f"new{each.seq}")
        assert done.seq == each.seq
        check_store(str(tmp_path / f"new{each.seq}" / "membrane.db"))
        async with dgent.open(url(tmp_path / f"new{each.seq}")) as copy:
            copied = {change.seq: change.items for change in await copy.changes(limit=None)}
        assert copied == {seq: items for seq, items in whole.items() if seq <= each.seq}


async def test_a_cancelled_backup_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    async with dgent.open(url(folder)) as u:
        await u.put_many([dgent.Datum(id=f"pad{i}", content=os.urandom(100_000)) for i in range(200)])
        for pause in (0, 0.005, 0.02, 0.05):
            task = asyncio.create_task(backup(u, folder, tmp_path / "b"))
            await asyncio.sleep(pause)
            if pause and task.done():  # a quick machine had the time for all of it
                shutil.rmtree(tmp_path / "b")
                continue
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sorted(os.listdir(tmp_path)) == ["home"]
        await backup(u, folder, tmp_path / "b")
    inspect_backup(tmp_path / "b")


async def test_a_fork_while_it_runs(folder: Path, tmp_path: Path) -> None:
    """The child has SQLite's table of locks without the locks, so it must not open that store."""
    with Nursery(worker.JOBS) as nursery:
        other = nursery.start("fork_inside", folder=str(folder), target=str(tmp_path / "b"))
        assert nursery.finish(other) == [[7]]
    assert "goes on" in (await everything(folder))["records"]
    inspect_backup(tmp_path / "b")


async def test_a_full_disk(folder: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "dgent-full", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        skip("mount")
    try:
        async with dgent.open(url(folder)) as u:
            await backup(u, folder, disk / "fits")
            await u.put(dgent.Datum(id="large", content=os.urandom(1_000_000)))
            with pytest.raises(StorageFull):
                await backup(u, folder, disk / "b")
            assert os.listdir(disk) == ["fits"]
            (folder / "blobs" / "large").write_bytes(os.urandom(1_000_000))
            await u.forget("large")
            with pytest.raises(StorageFull):
                await backup(u, folder, disk / "b")
            assert os.listdir(disk) == ["fits"]
        await back_up(folder, tmp_path / "b")
        with pytest.raises(StorageFull):
            await restore(tmp_path / "b", disk / "new")
        assert os.listdir(disk) == ["fits"]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# -- damaged records ----------------------------------------------------------------------


def tamper(folder: Path, *sql: str) -> None:
    """Change the file behind everybody's back."""
    other = apsw.Connection(str(folder / "membrane.db"))
    for each in sql:
        other.execute(each).fetchall()
    other.close()


@pytest.mark.parametrize(
    "change",
    [
        "data = x'7b226e223a'",
        "data = x'7b226e223a22ff227d'",
        "data = 'text'",
        "tags = '[1]'",
        "tags = CAST(x'5b22ff225d' AS TEXT)",
        "rev = 'abc'",
        "t = 9223372036854775807",
        "content = 'text'",
        "x = x'ff'",
        "parent = x'00'",
        "live = 'yes'",
    ],
)
async def test_damaged_records_are_named(folder: Path, tmp_path: Path, change: str) -> None:
    assert (await back_up(folder, tmp_path / "whole")).damaged == ()
    assert "damaged" not in (tmp_path / "whole" / "manifest.json").read_text()
    tamper(folder, f"UPDATE datum SET {change} WHERE id = 'n7'")
    made = await back_up(folder, tmp_path / "b")
    assert made.damaged == ("n7",)
    assert inspect_backup(tmp_path / "b") == made
    done = await restore(tmp_path / "b", tmp_path / "new")
    assert done.records == made.records
    async with dgent.open(url(tmp_path / "new")) as u:
        assert (await u.get("n8")) is not None


async def test_a_store_that_lost_records_can_be_restored(folder: Path, tmp_path: Path) -> None:
    tamper(folder, "DELETE FROM datum WHERE id = 'n7'")
    assert (await back_up(folder, tmp_path / "b")).records == 49
    assert (await restore(tmp_path / "b", folder, replace=True)).records == 49
    async with dgent.open(url(folder)) as u:
        found = await upkeep_of(u.backend).inspect(deep=True)
        assert [each.subject for each in found if each.level == "problem"] == ["missing"]


async def test_only_the_first_damaged_records_are_named(folder: Path, tmp_path: Path) -> None:
    tamper(
        folder, "UPDATE datum SET data = x'ff'", "UPDATE datum SET id = CAST(x'61ff' AS TEXT) WHERE id = 'n0'"
    )
    made = await back_up(folder, tmp_path / "b")
    assert len(made.damaged) == 20 and made.records == 50
    assert made.damaged[:2] == ("a\\xff", "n1")
    await restore(tmp_path / "b", tmp_path / "new")


async def test_bytes_overwritten_inside_a_page(folder: Path, tmp_path: Path) -> None:
    """A page whose structure is whole tells SQLite nothing."""
    async with dgent.open(url(folder)) as u:
        await u.put(dgent.Datum(id="long", data={"text": "here" * 200}))
    raw = bytearray((folder / "membrane.db").read_bytes())
    at = raw.index(b"here" * 100)
    raw[at + 100 : at + 160] = bytes(range(196, 256))
    (folder / "membrane.db").write_bytes(raw)
    assert (await back_up(folder, tmp_path / "b")).damaged == ("long",)


# -- paths and disks ----------------------------------------------------------------------


async def test_paths_that_are_no_text(folder: Path, tmp_path: Path) -> None:
    before = sorted(os.listdir(tmp_path))
    for name in (os.fsdecode(b"b\xff"), "b\0c"):
        with pytest.raises(InputError, match="UTF-8"):
            await back_up(folder, tmp_path / name)
        with pytest.raises(InputError, match="UTF-8"):
            await restore(tmp_path / name, tmp_path / "new")
        with pytest.raises(InputError, match="UTF-8"):
            await restore(tmp_path / "b", tmp_path / name)
        with pytest.raises(InputError, match="UTF-8"):
            inspect_backup(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == before


async def test_a_manifest_that_cannot_be_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await back_up(folder, tmp_path / "b")

    def refuse(self: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(NoBackendAvailable, match="Permission denied"):
        inspect_backup(tmp_path / "b")
    with pytest.raises(NoBackendAvailable, match="Permission denied"):
        await restore(tmp_path / "b", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENAMETOOLONG]
)
@pytest.mark.parametrize("name", ["os.write", "os.fsync", "os.rename", "os.mkdir", "os.open", "os.listdir"])
async def test_a_disk_that_refuses(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    await back_up(folder, tmp_path / "good")
    (tmp_path / "b").mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    wanted = StorageFull if number in (errno.ENOSPC, errno.EDQUOT) else NoBackendAvailable
    async with dgent.open(url(folder)) as u:
        with monkeypatch.context() as broken:
            broken.setattr(name, refuse)
            with pytest.raises(wanted):
                await backup(u, folder, tmp_path / "b" / "b" if name == "os.mkdir" else tmp_path / "b")
        assert not any(path.suffix == ".partial" for path in tmp_path.rglob("*"))
    with monkeypatch.context() as broken:
        broken.setattr(name, refuse)
        with pytest.raises(wanted):
            await restore(tmp_path / "good", tmp_path / "b")
    assert sorted(os.listdir(tmp_path)) == ["b", "good", "home"]


async def test_a_file_on_the_way(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NoBackendAvailable, match="file"):
        await back_up(folder, tmp_path / "file" / "b")
    with pytest.raises(NoBackendAvailable, match="long"):
        await back_up(folder, tmp_path / ("long" * 100))


async def test_what_is_translated(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), folders.translate_errors(tmp_path):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    with pytest.raises(StorageFull, match=str(tmp_path)), folders.translate_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(Conflict), folders.translate_errors(tmp_path):
        raise Conflict("ours")
    assert folders.check_path(tmp_path / "ö", "to") == tmp_path / "ö"
