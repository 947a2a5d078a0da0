"""What a store makes on the disk is for the user alone, also where no setting and no door sees to it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import dgent
from dgent.cupboard import Config, Crumb, Cupboard
from dgent.errors import Degraded
from dgent.exchange import backup
from dgent.store.jsonl.backend import JSONLBackend


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """As loose as it can be."""
    before = os.umask(0)
    yield
    os.umask(before)


def loose(folder: Path) -> dict[str, str]:
    """The files and folders below one that others may use."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600) and not path.is_symlink():
            found[str(path.relative_to(folder))] = oct(mode)
    return found


@pytest.mark.parametrize("url", ["sqlite:///{}/s.db", "jsonl:{}/lines"])
async def test_a_store_at_a_place(url: str, tmp_path: Path) -> None:
    records = [dgent.Datum(f"r{n}", data={"n": n}, schema=f"s{n % 3}", schema_version=1) for n in range(9)]
    async with dgent.open(url.format(tmp_path)) as u:
        await u.put_many(records)
        await u.put(dgent.Datum("r1", data={"n": 10}, schema="s1", schema_version=1))
        assert len(list(tmp_path.rglob("*"))) > 2, "its log and its cache are there now"
        assert not loose(tmp_path)
        if isinstance(u.backend, JSONLBackend):
            await u.backend.rewrite(history=True)
        await u.forget("r2")
        assert not loose(tmp_path)
    assert not loose(tmp_path)


async def test_the_outbox(tmp_path: Path) -> None:
    url = "postgresql://nobody@127.0.0.1:9/none?timeout=1"
    (tmp_path / "out").mkdir(0o700)
    with pytest.warns(Degraded):
        async with dgent.open(url, degrade=True, outbox=str(tmp_path / "out" / "box.db")) as u:
            await u.put(dgent.Datum(data={"n": 1}))
            assert not loose(tmp_path)


async def test_backups_and_cupboards(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(0o700)
    async with dgent.open(f"sqlite:///{tmp_path}/store/membrane.db") as u:
        await u.put(dgent.Datum(data={"n": 1}))
        await backup.backup(u, tmp_path / "store", tmp_path / "backup")
    await backup.restore(tmp_path / "backup", tmp_path / "again")
    for kind in ("sqlite", "jsonl"):
        cupboard = await Cupboard.attach(Config(backend=kind, data_dir=str(tmp_path / "deep" / kind)))
        await cupboard.crumbs.set(None, Crumb(name="x"))
        await cupboard.detach()
    assert (tmp_path / "deep" / "sqlite").exists()
    assert not loose(tmp_path)


async def test_what_exists_keeps_its_permissions(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    place = tmp_path / "lines"
    async with dgent.open(f"jsonl:{place}") as u:
        await u.put(dgent.Datum("a", data={"n": 1}, schema="s", schema_version=1))
    place.chmod(0o750)
    (place / "s.jsonl").chmod(0o640)
    (tmp_path / "s.db").touch(0o640)
    async with dgent.open(f"jsonl:{place}") as u, dgent.open(f"sqlite:///{tmp_path}/s.db") as other:
        await u.put(dgent.Datum("a", data={"n": 2}, schema="s", schema_version=1))
        await other.put(dgent.Datum("a", data={"n": 2}, schema="s", schema_version=1))
        assert isinstance(u.backend, JSONLBackend)
        await u.backend.rewrite(history=True)
    assert stat.S_IMODE(place.stat().st_mode) == 0o750
    assert stat.S_IMODE((place / "s.jsonl").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "s.db").stat().st_mode) == 0o640
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
