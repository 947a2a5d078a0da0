"""A restore puts a proven copy in the place of a store that nobody uses, in one step, and forgets again."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent.errors import Busy, Conflict, Corrupt, InputError
from dgent.exchange import folders
from dgent.exchange.backup import backup, check_not_in_use, inspect_backup, restore
from dgent.store.registry import telemetry_for
from tests.exchange import worker
from tests.exchange.constellation import everything, make, url
from tests.fault.check import check_store
from tests.fault.nursery import Nursery
from tests.soak import times


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    await make(tmp_path / "home")
    async with dgent.open(url(tmp_path / "home")) as u:
        await backup(u, tmp_path / "home", tmp_path / "b")
    return tmp_path / "home"


async def test_what_was_there_is_kept(folder: Path, tmp_path: Path) -> None:
    before = await everything(folder)
    async with dgent.open(url(folder)) as u:
        await u.put(dgent.Datum(id="later"))
        await u.delete("n1")
    after = await everything(folder)
    with pytest.raises(Conflict, match="already exists") as caught:
        await restore(tmp_path / "b", folder)
    assert "replace" in caught.value.hint
    assert await everything(folder) == after
    done = await restore(tmp_path / "b", folder, replace=True)
    assert done.kept is not None
    assert await everything(folder) == before
    assert await everything(Path(done.kept)) == after
    assert sorted(os.listdir(tmp_path)) == sorted(["b", "home", Path(done.kept).name])
    check_store(str(folder / "membrane.db"))


@pytest.mark.parametrize("way", ["missing", "empty", "link"])
async def test_places(folder: Path, tmp_path: Path, way: str) -> None:
    target = tmp_path / "new"
    if way == "empty":
        target.mkdir()
    if way == "link":
        (tmp_path / "real").mkdir()
        target.symlink_to(tmp_path / "real")
    done = await restore(tmp_path / "b", target)
    assert done.kept is None
    assert await everything(target) == await everything(folder)
    assert target.is_symlink() == (way == "link")


async def test_a_file_in_the_place(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    with pytest.raises(InputError, match="not a folder"):
        await restore(tmp_path / "b", tmp_path / "new", replace=True)


async def test_old_cursors_do_not_fit(folder: Path, tmp_path: Path) -> None:
    query = dgent.Query(limit=5)
    async with dgent.open(url(folder)) as u:
        cursor = (await u.page(query)).cursor
    await restore(tmp_path / "b", folder, replace=True)
    async with dgent.open(url(folder)) as u:
        with pytest.raises(dgent.errors.CursorInvalid):
            await u.page(query.replace(cursor=cursor))


# -- never over a live store --------------------------------------------------------------


async def test_this_process_has_it_open(folder: Path, tmp_path: Path) -> None:
    async with dgent.open(url(folder)) as u:
        with pytest.raises(Busy, match="this process"):
            await restore(tmp_path / "b", folder, replace=True)
        with pytest.raises(Busy):
            check_not_in_use(folder)
        # The looks at it took nothing away from this handle.
        await u.put(dgent.Datum(id="later"))
    check_not_in_use(folder)
    assert "later" in (await everything(folder))["records"]
    assert sorted(os.listdir(tmp_path)) == ["b", "home"]


async def test_an_idle_process_has_it_open(folder: Path, tmp_path: Path) -> None:
    with Nursery(worker.JOBS) as nursery:
        other = worker.start(nursery, "keep_open", folder=folder)
        with pytest.raises(Busy, match=f"process {other.pid}") as caught:
            await restore(tmp_path / "b", folder, replace=True)
        assert caught.value.details["pid"] == other.pid and caught.value.retryable
    # Killed, it holds nothing any more.
    await restore(tmp_path / "b", folder, replace=True)


async def test_telemetry_in_use(folder: Path, tmp_path: Path) -> None:
    events = telemetry_for(f"sqlite:///{folder / 'telemetry.db'}")
    assert await events.count() == 1
    with pytest.raises(Busy):
        await restore(tmp_path / "b", folder, replace=True)
    await events.close()


async def test_others_wait_while_it_trades_places(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Whoever opens the store in that moment gets the old one or the new one, never parts of both."""
    real, held = folders.replace_folder, threading.Event()

    def slowly(new: Path, old: Path) -> Path:
        held.set()
        time.sleep(0.3)
        return real(new, old)

    monkeypatch.setattr(folders, "replace_folder", slowly)
    async with dgent.open(url(folder)) as u:
        await u.put(dgent.Datum(id="later"))

    async def look(pause: float) -> int | None:
        await asyncio.to_thread(held.wait)
        await asyncio.sleep(pause)
        try:
            async with dgent.open(url(folder)) as u:
                await u.put(dgent.Datum(id="during"))
                return await u.count()
        except dgent.errors.Unavailable:
            return None

    looks = [look(pause) for pause in (0, 0.1, 0.28, 0.3, 0.32)]
    done, *seen = await asyncio.gather(restore(tmp_path / "b", folder, replace=True), *looks)
    assert set(seen) <= {51, None}, "51: the new store and one record more; None: told to try again"
    for place_ in (folder, Path(done.kept)):
        check_store(str(place_ / "membrane.db"))
    assert "later" in (await everything(Path(done.kept)))["records"]
    assert "later" not in (await everything(folder))["records"]


async def test_others_come_and_go(folder: Path, tmp_path: Path) -> None:
    """What others write in between is in the store that was there; nobody meets parts of two stores."""
    restored = 0
    with Nursery(worker.JOBS) as nursery:
        others = [worker.start(nursery, "come_and_go", folder=folder, name=f"w{n}") for n in range(3)]
        while any(other.code is None for other in others):
            with suppress(Busy):
                await restore(tmp_path / "b", folder, replace=True)
                restored += 1
            await asyncio.sleep(random.uniform(0, 0.01))
        nursery.finish(*others)
    acknowledged = {id for other in others for id in other.said[1:]}
    found: set[str] = set()
    for each in tmp_path.glob("home*"):
        check_store(str(each / "membrane.db"))
        async with dgent.open(url(each)) as u:
            found |= {datum.id for datum in await u.list(limit=None)}
    print(f"\n{restored} restores among {len(acknowledged)} writes")
    assert restored and acknowledged and acknowledged <= found


# -- forgotten records --------------------------------------------------------------------


async def test_forgotten_records_stay_forgotten(folder: Path, tmp_path: Path) -> None:
    async with dgent.open(url(folder)) as u:
        await u.put(dgent.Datum(id="born-later", data={"x": 1}))
        await u.put(dgent.Datum(id="n4", data={"n": 44}))
        await u.forget("n3", "n4", "born-later")
    done = await restore(tmp_path / "b", folder, replace=True)
    assert (done.forgotten, done.records) == (2, 48)
    async with dgent.open(url(folder)) as u:
        assert await u.get_many(["n3", "n4", "born-later"]) == [None] * 3
        assert await u.history("n3") == []
        # Revs go on where the forgotten ones ended, also those that only the replaced store knew.
        assert (await u.put(dgent.Datum(id="n4"))).rev == 3
        assert (await u.put(dgent.Datum(id="born-later"))).rev == 2
        assert (await u.put(dgent.Datum(id="n3"))).rev == 2
    check_store(str(folder / "membrane.db"))
    # Restored once more: what was made anew after the first time is older than no forget of it.
    done = await restore(tmp_path / "b", folder, replace=True)
    assert done.forgotten == 2


async def test_a_record_made_anew_before_the_backup_is_kept(folder: Path, tmp_path: Path) -> None:
    async with dgent.open(url(folder)) as u:
        await u.forget("n3", "n5")
        await u.put(dgent.Datum(id="n3", data={"anew": True}))
        await backup(u, folder, tmp_path / "b2")
        await u.put(dgent.Datum(id="n5"))
        await u.forget("n5")
    done = await restore(tmp_path / "b2", folder, replace=True)
    assert done.forgotten == 0
    assert (await everything(folder))["records"]["n3"].data == {"anew": True}
    async with dgent.open(url(folder)) as u:
        await u.forget("n3")
    assert (await restore(tmp_path / "b2", folder, replace=True)).forgotten == 1
    assert "n3" not in (await everything(folder))["records"]


async def test_rooms_forget_theirs(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    await make(folder)
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Owned:
        x: int

    async with dgent.open(url(folder)) as u:
        u.register(dgent.Schema("room.thing", contract=Owned, owner="room"))
        room = u.for_room("room")
        await room.remember(Owned(1), id="mine")
        await backup(u, folder, tmp_path / "b")
        await room.forget("mine")
        await u.forget("n1")
    done = await restore(tmp_path / "b", folder, replace=True)
    assert done.forgotten == 2
    assert not {"mine", "n1"} & set((await everything(folder))["records"])


async def test_another_universe_has_no_say(folder: Path, tmp_path: Path) -> None:
    await make(tmp_path / "other")
    async with dgent.open(url(tmp_path / "other")) as u:
        await u.forget("n3")
    done = await restore(tmp_path / "b", tmp_path / "other", replace=True)
    assert done.forgotten == 0
    assert await everything(tmp_path / "other") == await everything(folder)


@pytest.mark.parametrize("damage", ["text", "foreign"])
async def test_over_a_store_that_cannot_be_read(folder: Path, tmp_path: Path, damage: str) -> None:
    """Nobody knows what it has forgotten, so the user has to move it away himself."""
    path = folder / "membrane.db"
    if damage == "text":
        path.write_bytes(b"not a database at all" * 1000)
    else:
        path.unlink()
        other = apsw.Connection(str(path))
        other.execute("CREATE TABLE t (x)")
        other.close()
    raw = path.read_bytes()
    with pytest.raises(Corrupt) as caught:
        await restore(tmp_path / "b", folder, replace=True)
    assert "rename its folder" in caught.value.hint
    assert path.read_bytes() == raw and sorted(os.listdir(tmp_path)) == ["b", "home"]
    folder.rename(tmp_path / "aside")
    assert (await restore(tmp_path / "b", folder)).records == 50


# -- killed at any moment -----------------------------------------------------------------


async def test_killed_while_backing_up(folder: Path, tmp_path: Path) -> None:
    """Under the name of a backup there is a whole one or none."""
    async with dgent.open(url(folder)) as u:
        await u.put_many([dgent.Datum(id=f"pad{i}", content=os.urandom(100_000)) for i in range(300)])
    before = await everything(folder)
    whole = 0
    for _ in range(times(6)):
        target = tmp_path / "killed"
        with Nursery(worker.JOBS) as nursery:
            worker.start(nursery, "back_up", folder=folder, target=target)
            time.sleep(random.uniform(0, 0.4))
        if target.exists():
            whole += 1
            assert inspect_backup(target).seq == before["seq"]
            shutil.rmtree(target)
        for left in tmp_path.glob("killed.left-*"):
            # Complete, and killed before it got its name: the next one puts it aside instead of removing it.
            assert inspect_backup(left).seq == before["seq"]
            shutil.rmtree(left)
        assert {p.name for p in tmp_path.iterdir()} <= {"b", "home", "killed.partial"}
    async with dgent.open(url(folder)) as u:
        await backup(u, folder, tmp_path / "killed")
    print(f"\nkilled while backing up: {whole} of {times(6)} were complete")
    assert not (tmp_path / "killed.partial").exists()
    assert await everything(folder) == before


async def test_killed_while_restoring(folder: Path, tmp_path: Path) -> None:
    """At the place there is always the old store or the new one, whole."""
    async with dgent.open(url(folder)) as u:
        await u.put_many([dgent.Datum(id=f"pad{i}", content=os.urandom(50_000)) for i in range(300)])
        await backup(u, folder, tmp_path / "big")
        await u.put(dgent.Datum(id="later"))
        await u.forget("n7")
    old = await everything(folder)
    swapped = 0
    for _ in range(times(6)):
        with Nursery(worker.JOBS) as nursery:
            worker.start(nursery, "put_back", source=tmp_path / "big", folder=folder)
            time.sleep(random.uniform(0, 0.35))
        found = await everything(folder)
        assert "n7" not in found["records"]
        if "later" in found["records"]:
            assert found == old
        else:
            assert len(found["records"]) == 349
            check_store(str(folder / "membrane.db"))
            async with dgent.open(url(folder)) as u:
                await u.put(dgent.Datum(id="later"))
            old = await everything(folder)
            swapped += 1
    print(f"\nkilled while restoring: {swapped} of {times(6)} had traded places")
    done = await restore(tmp_path / "big", folder, replace=True)
    assert done.records == 349 and not (tmp_path / "home.restoring").exists()


@pytest.mark.parametrize("exchange", [True, False])
async def test_without_a_call_that_exchanges(
    folder: Path, tmp_path: Path, monkeypatch: Any, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(folders, "_exchange", lambda one, other: False)
    async with dgent.open(url(folder)) as u:
        await u.put(dgent.Datum(id="later"))
    done = await restore(tmp_path / "b", folder, replace=True)
    assert "later" not in (await everything(folder))["records"]
    assert "later" in (await everything(Path(done.kept)))["records"]
    assert sorted(os.listdir(tmp_path)) == sorted(["b", "home", Path(done.kept).name])
