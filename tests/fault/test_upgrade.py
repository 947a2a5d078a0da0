"""Upgrading the format of a store: with a backup, by steps, killed, on a full disk, while it is in use."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import dgent
from dgent.errors import Busy, FormatTooOld, InputError, NotFound, StorageError, StorageFull
from dgent.exchange.backup import backup, restore
from dgent.store.jsonl import cache
from dgent.store.sqlite import connection as waiting
from dgent.store.sqlite import format as storage
from dgent.store.sqlite import upgrade
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.store.sqlite.upgrade import list_backups
from dgent.store.upgrade import upgrade_store
from dgent.store.upkeep import upkeep_of
from dgent.system.progress import ProgressReporter
from tests.fault.check import check_store
from tests.fault.nursery import Nursery
from tests.fault.test_format import OLD, STEP, ask, next_format, old_store
from tests.fault.test_full_disk import Disk, disk
from tests.soak import times

__all__ = ["disk"]

ROUNDS = times(8)
EPOCH = "SELECT value FROM meta WHERE name = 'epoch'"
NUMBER = "SELECT value FROM meta WHERE name = 'format'"


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with Nursery() as running:
        yield running


@pytest.fixture
async def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of an old format, and a step to the next."""
    path = tmp_path / "old.db"
    await old_store(path)
    next_format(monkeypatch, STEP)
    return path


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def format_of(path: Path) -> int:
    ((number,),) = ask(path, NUMBER)
    return int(number)


# -- the backup ---------------------------------------------------------------------------


async def test_the_backup_is_the_store_as_it_was(old: Path) -> None:
    async with dgent.open(url(old)) as u:
        upgraded = u.backend.upgraded
        await u.put(dgent.Datum(id="later"))
    made = Path(upgraded.backup)
    assert made == Path(f"{old}.format-{OLD}.bak") and list_backups(str(old)) == [str(made)]
    assert (upgraded.from_format, upgraded.to_format) == (OLD, OLD + 1)
    assert [step.number for step in upgraded.steps] == [OLD + 1]
    assert format_of(made) == OLD and format_of(old) == storage.FORMAT
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert sorted(os.listdir(old.parent)) == ["old.db", f"old.db.format-{OLD}.bak"]
    # It can take the place of the store.
    os.replace(made, old)
    async with dgent.open(url(old)) as u:
        assert await u.count() == 20 and not await u.exists("later")
    check_store(str(old))


async def test_a_store_of_this_format_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    async with dgent.open(url(path)) as u:
        await u.put(dgent.Datum(id="a"))
        assert u.backend.upgraded is None
        done = await upgrade_store(SQLiteBackend(str(path)))  # also while it is in use
    assert done.steps == [] and done.backup is None
    assert os.listdir(tmp_path) == ["new.db"]


async def test_an_empty_store_has_no_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.db"
    async with dgent.open(url(path)):
        pass
    next_format(monkeypatch, STEP)
    async with dgent.open(url(path)) as u:
        assert await u.count() == 0
    assert os.listdir(tmp_path) == ["old.db"] and format_of(path) == storage.FORMAT


async def test_without_a_backup(old: Path) -> None:
    async with dgent.open(url(old), upgrade="no-backup") as u:
        assert await u.count() == 20
    assert os.listdir(old.parent) == ["old.db"]


async def test_never(old: Path) -> None:
    before = old.read_bytes()
    with pytest.raises(FormatTooOld, match=f"storage format {OLD}"):
        await dgent.open(url(old), upgrade="never").open()
    assert old.read_bytes() == before and os.listdir(old.parent) == ["old.db"]
    with pytest.raises(InputError, match="backup, no-backup, never"):
        dgent.open(url(old), upgrade="sometimes")
    # The other engines take it, too.
    async with dgent.open("memory:", upgrade="never"), dgent.open(f"jsonl:{old.parent}/j", upgrade="never"):
        pass


async def test_a_backup_of_another_store_is_kept(old: Path, tmp_path: Path) -> None:
    taken = Path(f"{old}.format-{OLD}.bak")
    async with dgent.open(url(taken)) as u:
        await u.put(dgent.Datum(id="other"))
    before = taken.read_bytes()
    async with dgent.open(url(old)) as u:
        assert u.backend.upgraded.backup == f"{old}.format-{OLD}.2.bak"
    assert taken.read_bytes() == before
    assert len(list_backups(str(old))) == 2


async def test_an_earlier_backup_of_the_same_store_is_replaced(old: Path) -> None:
    """As when a process was killed after it made the backup, and before the first step."""
    shutil.copy(old, f"{old}.format-{OLD}.bak")
    Path(f"{old}.format-{OLD}.bak.partial").write_bytes(b"half of one")
    async with dgent.open(url(old)):
        pass
    assert sorted(os.listdir(old.parent)) == ["old.db", f"old.db.format-{OLD}.bak"]


async def test_forgetting_removes_the_backup(old: Path) -> None:
    async with dgent.open(url(old)) as u:
        found = await upkeep_of(u.backend).inspect()
        assert [each.message for each in found if each.subject == "backup"]
        await u.forget("7")
        assert list_backups(str(old)) == []
        found = await upkeep_of(u.backend).inspect()
        assert not [each for each in found if each.subject == "backup"]


async def test_a_dry_run_changes_nothing(old: Path) -> None:
    before = old.read_bytes()
    planned = await upgrade_store(SQLiteBackend(str(old)), dry_run=True)
    assert planned.dry_run and planned.backup == f"{old}.format-{OLD}.bak"
    assert planned.size_bytes == len(before)
    assert planned.steps[0].description == "mark it"
    assert old.read_bytes() == before and os.listdir(old.parent) == ["old.db"]
    with pytest.raises(NotFound):
        await upgrade_store(SQLiteBackend(str(old) + ".not"), dry_run=True)
    assert os.listdir(old.parent) == ["old.db"]


async def test_a_log_that_was_left_is_upgraded_and_not_touched_before(
    tmp_path: Path, nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last writer was killed: its commits are in the log alone, and in the backup afterwards."""
    path = tmp_path / "old.db"
    await old_store(path)
    worker = nursery.start("put_and_die", path=str(path), name="late")
    nursery.wait(worker)
    assert worker.said == ["late"] and os.path.getsize(f"{path}-wal")
    next_format(monkeypatch, STEP)
    before = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    await upgrade_store(SQLiteBackend(str(path)), dry_run=True)
    with pytest.raises(FormatTooOld):
        await dgent.open(url(path), upgrade="never").open()
    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == before
    async with dgent.open(url(path)) as u:
        assert await u.exists("late") and await u.count() == 21
    assert ask(Path(f"{path}.format-{OLD}.bak"), "SELECT count(*) FROM datum") == [(21,)]


# -- steps --------------------------------------------------------------------------------


async def test_each_step_is_stored_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step stays when the second fails, and is not repeated."""
    path = tmp_path / "old.db"
    await old_store(path)

    def fail(connection: apsw.Connection, pace: ProgressReporter) -> None:
        connection.execute("CREATE TABLE half (n)")
        raise ValueError("a fault of the step")

    next_format(monkeypatch, STEP, fail)
    with pytest.raises(StorageError, match=rf"step {OLD + 2} \(.*\) of .*old.db failed: a fault") as failed:
        await dgent.open(url(path)).open()
    assert f"storage format {OLD + 1}" in failed.value.hint
    assert f"{path}.format-{OLD}.bak" in failed.value.hint
    assert format_of(path) == OLD + 1
    assert ask(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'half'") == [(0,)]
    next_format(monkeypatch, STEP, "CREATE TABLE whole (n)")
    async with dgent.open(url(path)) as u:
        assert await u.count() == 20
    assert ask(path, "SELECT count(*) FROM migrated") == [(1,)]
    assert list_backups(str(path)) == [f"{path}.format-{OLD}.bak", f"{path}.format-{OLD + 1}.bak"]


async def test_steps_that_leave_other_tables_are_undone(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is wrong must not leave a store that no dgent opens."""
    next_format(monkeypatch, STEP, "DROP TABLE lag")
    with pytest.raises(StorageError, match="lacks lag"):
        await dgent.open(url(old)).open()
    assert format_of(old) == OLD + 1


POINTS = (
    *("in the backup", "before the backup has its name", "after the backup"),
    *("in the first step", "between two steps", "in the last step"),
)


@pytest.mark.parametrize("at", POINTS)
async def test_killed_at(old: Path, nursery: Nursery, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Wherever it is killed, the next one finds the old or the new format, and goes on from there."""
    worker = nursery.start("upgrade_killed", path=str(old), at=at, step=STEP)
    nursery.wait(worker)
    assert worker.code == -9 and not worker.said
    assert format_of(old) == OLD + (at in ("between two steps", "in the last step"))
    next_format(monkeypatch, STEP, "CREATE TABLE second (n)")
    async with dgent.open(url(old)) as u:
        assert await u.count() == 20
        await u.put(dgent.Datum(id="after"))
    assert ask(old, "SELECT count(*) FROM migrated") == [(1,)]
    assert check_store(str(old))["rows"] == 21
    assert not [name for name in os.listdir(old.parent) if name.endswith(".partial")]
    assert format_of(Path(f"{old}.format-{OLD}.bak")) == OLD


async def test_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open that is given up stops its upgrade: in the backup, or in a step, which is undone."""
    path = tmp_path / "old.db"
    await old_store(path)
    endless = STEP + "; WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c"
    next_format(monkeypatch, endless)
    opening = asyncio.ensure_future(dgent.open(url(path)).open())
    await asyncio.sleep(0.3)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert format_of(path) == OLD
    next_format(monkeypatch, STEP)
    async with dgent.open(url(path)) as u:
        assert await u.count() == 20


# -- others -------------------------------------------------------------------------------


async def test_many_handles_of_one_process(old: Path) -> None:
    """They find the old format together; one upgrades it, in whatever durability the others open it."""
    opening = [dgent.open(url(old), durability=("full", "relaxed")[n % 2]).open() for n in range(8)]
    opened = await asyncio.gather(*opening)
    assert [await u.count() for u in opened] == [20] * 8
    for u in opened:
        await u.close()
    assert sorted(os.listdir(old.parent)) == ["old.db", f"old.db.format-{OLD}.bak"]
    check_store(str(old))


async def test_killed_among_many(tmp_path: Path, nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four processes come at once and some are killed at any moment: the others upgrade it, once."""
    for turn in range(ROUNDS):
        monkeypatch.undo()
        path = tmp_path / f"old{turn}.db"
        async with dgent.open(url(path)) as u:
            await u.put_many([dgent.Datum(id=f"{n}", content=os.urandom(10_000)) for n in range(100)])
        workers = [nursery.start("create", path=str(path), name=f"w{n}", step=STEP) for n in range(4)]
        for worker in workers[: random.randrange(1, 5)]:
            await asyncio.sleep(random.uniform(0, 0.05))
            worker.kill()
        nursery.wait(*workers)
        next_format(monkeypatch, STEP)
        told = {f"w{n}" for n, worker in enumerate(workers) if worker.said}
        async with dgent.open(url(path)) as u:
            assert told <= {datum.id for datum in await u.list(limit=None)}
        assert ask(path, "SELECT count(*) FROM migrated") == [(1,)]
        assert check_store(str(path))["rows"] >= 100 + len(told)
        backups = list_backups(str(path))
        assert len(backups) == 1 and format_of(Path(backups[0])) == OLD


async def test_a_store_in_use_is_not_upgraded(
    old: Path, nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has it open goes by the old format: the error names the process, and nothing changes."""
    monkeypatch.setattr(waiting, "WAIT_S", 0.5)
    ask(old, "PRAGMA journal_mode = WAL")
    other = nursery.start("hold_open", path=str(old))
    nursery.hear(other)
    with pytest.raises(Busy, match=f"process {other.pid} with storage format {OLD}"):
        await dgent.open(url(old)).open()
    assert list_backups(str(old)) == [] and format_of(old) == OLD
    monkeypatch.setattr(waiting, "WAIT_S", 30)
    opening = asyncio.ensure_future(dgent.open(url(old)).open())
    await asyncio.sleep(0.2)
    other.kill()
    nursery.wait(other)
    u = await opening
    assert await u.count() == 20
    await u.close()


async def test_old_processes_that_come_later_are_refused(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dgent.open(url(old)):
        pass
    monkeypatch.setattr(storage, "FORMAT", OLD)
    with pytest.raises(dgent.errors.FormatTooNew):
        await dgent.open(url(old)).open()


async def test_the_outbox_is_upgraded_too(old: Path) -> None:
    async with dgent.open("memory:", degrade=True, outbox=str(old)) as u:
        await u.put(dgent.Datum(id="a"))
    assert format_of(old) == storage.FORMAT and list_backups(str(old))


# -- other stores -------------------------------------------------------------------------


async def test_a_cache_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of a folder of text files is derived: it is neither upgraded nor backed up."""
    place = f"jsonl:{tmp_path}/notes"
    async with dgent.open(place) as u:
        await u.put(dgent.Datum(id="a", data={"n": 1}))
        path = Path(u.backend.path)
    assert path.name == cache.NAME and path.parent.parent == tmp_path / "notes"
    epoch = ask(path, EPOCH)

    def refuse(*_: object) -> None:
        raise AssertionError("a cache has no steps")

    next_format(monkeypatch, refuse)
    async with dgent.open(place) as u:
        assert (await u.get("a", raw=True)).data == {"n": 1}
        assert u.backend._details()["cache"] == str(path)
    assert ask(path, EPOCH) != epoch and format_of(path) == storage.FORMAT
    assert list_backups(str(path)) == []
    done = await upgrade_store(dgent.open(place).backend)
    assert done.steps == [] and "cache" in done.note


async def test_a_backup_of_an_old_format_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a store of an old format, too: what that has forgotten stays forgotten."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    path = home / "membrane.db"
    async with dgent.open(url(path)) as u:
        await u.put_many([dgent.Datum(id=f"{n}") for n in range(5)])
        await backup(u, home, tmp_path / "saved")
        await u.forget("3")
    next_format(monkeypatch, STEP)
    done = await restore(tmp_path / "saved", home, replace=True)
    assert (done.records, done.forgotten) == (4, 1)
    assert os.listdir(home) == ["membrane.db"]
    check_store(str(path))


# -- a full disk --------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
@pytest.mark.parametrize("leave", [0, 16 << 10, 128 << 10, 480 << 10])
async def test_no_room_for_the_backup(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, leave: int, told: bool
) -> None:
    """It is noticed before, or in the middle where the system does not say how much room there is."""
    if not told:
        monkeypatch.setattr(upgrade, "_check_room", lambda *_: None)
    path = disk.folder / "old.db"
    async with dgent.open(url(path)) as u:
        await u.put(dgent.Datum(id="a", content=os.urandom(500_000)))
    next_format(monkeypatch, STEP)
    disk.fill(leave)
    before = path.read_bytes()
    # With hardly any room, not even the index of the log can be made.
    message = "before its upgrade failed" if leave > 100_000 else "no space left|before its upgrade failed"
    with pytest.raises(StorageFull, match=message):
        await dgent.open(url(path)).open()
    assert path.read_bytes() == before and not list_backups(str(path))
    assert not [name for name in os.listdir(disk.folder) if name.endswith(".partial")]
    disk.free()
    async with dgent.open(url(path)) as u:
        assert await u.exists("a")
    check_store(str(path))


async def test_no_room_for_a_step(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = disk.folder / "old.db"
    async with dgent.open(url(path)) as u:
        await u.put(dgent.Datum(id="a", content=os.urandom(100_000)))
    big = STEP + "; CREATE TABLE big (b); INSERT INTO big VALUES (randomblob(2000000))"
    next_format(monkeypatch, big)
    disk.fill(1_000_000)
    with pytest.raises(StorageFull, match=f"step {OLD + 1}") as failed:
        await dgent.open(url(path)).open()
    assert f"storage format {OLD}" in failed.value.hint and str(path) in failed.value.hint
    assert format_of(path) == OLD
    disk.free()
    next_format(monkeypatch, STEP)
    async with dgent.open(url(path)) as u:
        assert await u.exists("a")
    check_store(str(path))
