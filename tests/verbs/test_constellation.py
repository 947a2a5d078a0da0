"""Constellations come and go whole, also when several want one name, a disk is full, or one is killed."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dgent
from dgent.config import settings
from dgent.errors import Conflict, NoBackendAvailable, NotFound, StorageFull
from dgent.exchange import backup, folders
from dgent.verbs.context import Context
from dgent.verbs.store import constellation as verbs
from tests.cli.terminal import Terminal
from tests.fault.check import check_store
from tests.fault.nursery import Nursery


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the constellations, with one in it."""
    terminal = Terminal(tmp_path / "home", monkeypatch)
    assert terminal("constellation", "create", "first").code == 0
    return terminal.store.parents[1]


def context() -> Context:
    return Context(settings=settings.load())


def killed(at: str, *words: str) -> None:
    """Run `dgent` in a process, and kill it when it calls a function."""
    module, name = at.rsplit(".", 1)
    lines = (
        f"import pkgutil, time; module = pkgutil.resolve_name({module!r})",
        "from dgent.doors.cli.main import main",
        f"module.{name} = lambda *_, **__: (print('begin', flush=True), time.sleep(60))",
        f"main({list(words)!r})",
    )
    worker = subprocess.Popen([sys.executable, "-c", "\n".join(lines)], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    try:
        assert worker.stdout.readline() == b"begin\n"
    finally:
        worker.kill()
        worker.communicate()


async def test_there_and_back(folder: Path) -> None:
    made = await verbs.create(context(), verbs.OneConstellation(name="a"))
    async with dgent.open(f"sqlite:///{made.path}/membrane.db") as u:
        await u.put(dgent.Datum(id="x"))
    await verbs.copy(context(), verbs.CopyConstellation(name="a", to="b"))
    assert sorted(os.listdir(folder)) == ["a", "b", "first"]
    assert os.listdir(folder / "b") == os.listdir(folder / "a") == ["membrane.db"]
    assert (folder / "b").stat().st_mode & 0o777 == 0o700
    check_store(str(folder / "b" / "membrane.db"))
    for ask in (verbs.CopyConstellation(name="a", to="b"), verbs.CopyConstellation(name="a", to="a")):
        with pytest.raises(Conflict):
            await verbs.copy(context(), ask)
    with pytest.raises(Conflict):
        await verbs.create(context(), verbs.OneConstellation(name="b"))
    assert (await verbs.delete(context(), verbs.DeleteConstellation(name="a", dry_run=True))).dry_run
    await verbs.delete(context(), verbs.DeleteConstellation(name="a"))
    with pytest.raises(NotFound):
        await verbs.delete(context(), verbs.DeleteConstellation(name="a"))
    assert sorted(os.listdir(folder)) == ["b", "first"]


def at_once(*commands: tuple[str, ...]) -> Counter[str]:
    """Run some commands at the same time; how often each code came."""
    codes: Counter[str] = Counter()
    with Nursery("tests.verbs.jobs") as nursery:
        running = [nursery.start("run", words=[*words, "--json"], env=dict(os.environ)) for words in commands]
        for code, err in nursery.finish(*running):
            assert "Traceback" not in err
            codes["ok" if code == 0 else msgspec.json.decode(err.splitlines()[-1])["code"]] += 1
    return codes


@pytest.mark.parametrize("words", [("copy", "first", "k"), ("create", "k"), ("delete", "first", "-y")])
def test_one_of_many_wins(folder: Path, words: tuple[str, ...]) -> None:
    codes = at_once(*[("constellation", *words)] * 5)
    assert codes.pop("ok") == 1
    assert set(codes) <= ({"not_found", "conflict", "busy"} if words[0] == "delete" else {"conflict"})
    assert sorted(os.listdir(folder)) == ([] if words[0] == "delete" else ["first", "k"])


def test_all_at_once(folder: Path) -> None:
    words = [("copy", "first", "k"), ("create", "k"), ("delete", "k", "-y"), ("copy", "k", "first")]
    for _ in range(2):
        codes = at_once(*[("constellation", *each) for each in words * 2])
        assert set(codes) <= {"ok", "conflict", "not_found", "busy"}, codes
        assert set(os.listdir(folder)) <= {"first", "k"}
        for name in os.listdir(folder):
            check_store(str(folder / name / "membrane.db"))


async def test_someone_came_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put = folders.publish_folder

    def late(new: Path, target: Path) -> None:
        shutil.copytree(folder / "first", target)
        put(new, target)

    monkeypatch.setattr(folders, "publish_folder", late)
    with pytest.raises(Conflict):
        await verbs.create(context(), verbs.OneConstellation(name="a"))
    with pytest.raises(Conflict):
        await verbs.copy(context(), verbs.CopyConstellation(name="first", to="b"))
    assert sorted(os.listdir(folder)) == ["a", "b", "first"]


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EACCES, NoBackendAvailable),
        (errno.EROFS, NoBackendAvailable),
        (errno.ENOTDIR, NoBackendAvailable),
        (errno.ENAMETOOLONG, NoBackendAvailable),
    ],
)
async def test_a_disk_that_refuses(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    for owner, name in ((os, "fsync"), (Path, "rename"), (os, "rename"), (Path, "mkdir")):
        with monkeypatch.context() as broken:
            broken.setattr(owner, name, refuse)
            with pytest.raises(error):
                await verbs.create(context(), verbs.OneConstellation(name="a"))
            with pytest.raises(error):
                await verbs.copy(context(), verbs.CopyConstellation(name="first", to="a"))
        assert os.listdir(folder) == ["first"]
    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", refuse)
        with pytest.raises(error):
            await verbs.delete(context(), verbs.DeleteConstellation(name="first"))
    check_store(str(folder / "first" / "membrane.db"))
    await verbs.create(context(), verbs.OneConstellation(name="a"))


async def test_a_store_that_cannot_be_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: str) -> Any:
        raise StorageFull("there is no room left")

    with monkeypatch.context() as broken:
        broken.setattr(verbs, "open_universe", full)
        with pytest.raises(StorageFull):
            await verbs.create(context(), verbs.OneConstellation(name="a"))
    assert os.listdir(folder) == ["first"]
    await verbs.create(context(), verbs.OneConstellation(name="a"))


async def test_killed(folder: Path) -> None:
    """The next run of the same clears up, and so does whoever looks for leftovers."""
    killed("dgent.exchange.folders.publish_folder", "constellation", "create", "a")
    assert folders.find_leftovers(folder / "first") == [folder / ".a.making"]
    killed("dgent.exchange.folders.publish_folder", "constellation", "copy", "first", "a")
    assert folders.find_leftovers(folder / "first") == [folder / ".a.making"]
    await verbs.create(context(), verbs.OneConstellation(name="a"))
    assert folders.find_leftovers(folder / "first") == []
    killed("shutil.rmtree", "constellation", "delete", "a", "-y")
    assert folders.find_leftovers(folder / "first") == [folder / ".a.deleting"]
    assert [each.name for each in (await verbs.list_(context(), verbs.NoInput())).items] == ["first"]
    await verbs.create(context(), verbs.OneConstellation(name="a"))
    await verbs.delete(context(), verbs.DeleteConstellation(name="a"))
    assert os.listdir(folder) == ["first"]

    killed("dgent.exchange.folders.publish_folder", "constellation", "copy", "first", "a")
    killed("dgent.exchange.folders.publish_folder", "-C", "first", "backup")
    found = folders.find_leftovers(folder / "first")
    assert found[0] == folder / ".a.making" and found[1].parent == folder.parent / "backups"
    assert folders.clear_leftovers(found) == found
    assert folders.find_leftovers(folder / "first") == [] and os.listdir(folder.parent / "backups") == []


async def test_killed_just_before_it_gets_its_name(folder: Path) -> None:
    killed("pathlib.Path.rename", "constellation", "copy", "first", "a")
    assert (folder / ".a.making" / folders.FINISHED).exists()
    assert folders.find_leftovers(folder / "first") == [folder / ".a.making"]
    await verbs.copy(context(), verbs.CopyConstellation(name="first", to="a"))
    assert sorted(os.listdir(folder)) == ["a", "first"]


async def test_what_someone_makes_now_is_no_leftover(folder: Path) -> None:
    with folders.build_folder(folder / ".a.making") as new:
        (new / "membrane.db").touch()
        assert folders.find_leftovers(folder / "first") == []
        assert folders.clear_leftovers([new]) == [] and new.exists()
        with pytest.raises(Conflict):
            await verbs.create(context(), verbs.OneConstellation(name="a"))
    for name in (".mine.making", "b.partial", "c.restoring", ".d.deleting"):
        (folder / name).mkdir()
        (folder / name / "mine").touch()
    assert folders.find_leftovers(folder / "first") == [], "only what carries the marker"
    assert folders.clear_leftovers([folder / "first", folder / "missing"]) == []
    check_store(str(folder / "first" / "membrane.db"))


async def test_in_use(folder: Path) -> None:
    async with dgent.open(f"sqlite:///{folder / 'first' / 'membrane.db'}") as u:
        with pytest.raises(dgent.errors.Busy):
            await verbs.delete(context(), verbs.DeleteConstellation(name="first"))
        await u.put(dgent.Datum(id="still there"))
        copying = asyncio.create_task(verbs.copy(context(), verbs.CopyConstellation(name="first", to="a")))
        await copying
    assert sorted(os.listdir(folder)) == ["a", "first"]


async def test_a_damaged_store_can_be_deleted(folder: Path) -> None:
    (folder / "first" / "membrane.db").write_bytes(b"no database" * 1000)
    await verbs.delete(context(), verbs.DeleteConstellation(name="first"))
    assert os.listdir(folder) == []


async def test_the_source_goes_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = verbs.open_universe

    def gone(url: str) -> Any:
        shutil.rmtree(folder / "first")
        return opened(url)

    monkeypatch.setattr(verbs, "open_universe", gone)
    with pytest.raises(NotFound):
        await verbs.copy(context(), verbs.CopyConstellation(name="first", to="a"))
    assert os.listdir(folder) == []


def test_backup_is_one_place(folder: Path) -> None:
    with backup.lock_folder(folder / "first"):
        (folder / "first").rename(folder / "other")
    check_store(str(folder / "other" / "membrane.db"))
