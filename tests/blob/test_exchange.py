"""Blobs in copies, mirrors, backups, forks, exports and what forgets."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

import dgent
from dgent.errors import Conflict, Corrupt
from dgent.exchange import backup, export
from dgent.exchange.copy import copy, mirror
from dgent.store.port.blob import BlobInfo
from dgent.store.port.telemetry import TelemetryEvent
from dgent.universe.blob import BlobStore, key_id, open_blobs
from dgent.universe.room import load_room
from tests.blob.damage import damage
from tests.postgres.lease import url_for


@dataclass(frozen=True)
class Photo:
    image: dgent.Ref[BlobInfo]


PHOTO = dgent.Schema("photo", contract=Photo)


async def fill(u: dgent.Universe) -> dgent.Crystal[Photo]:
    """One key, one whose content was collected, and a record with a content that has no key."""
    u.register(PHOTO)
    blobs = open_blobs(u)
    await blobs.put("gone", b"gone")
    await blobs.delete("gone")
    await blobs.put("key", b"old")
    await blobs.collect(grace=timedelta(0))
    await blobs.put("key", b"new", "text/plain")
    photo = await u.remember(Photo(dgent.Ref(await blobs.put("photo", b"pixels"))))
    await blobs.delete("photo")
    await blobs.collect(grace=timedelta(0))
    return photo


@pytest.mark.parametrize("to", ["sqlite", "memory"])
async def test_a_copy_has_the_contents_and_forgets_them(u: dgent.Universe, tmp_path: Path, to: str) -> None:
    photo = await fill(u)
    target_url = "memory:" if to == "memory" else f"sqlite:///{tmp_path / 'copy.db'}"
    async with dgent.open(target_url) as target:
        await copy(u, target)
        copied = open_blobs(target)
        # Nobody has declared a schema there yet, and still nothing that is used is garbage.
        assert (await copied.collect(grace=timedelta(0))).removed == 0
        info = await copied.info("key")
        assert info is not None and info.content_type == "text/plain" and await copied.get("key") == b"new"
        assert await copied.get(photo.value.image) == b"pixels"
        assert await copied.contents.list() == await open_blobs(u).contents.list()
        await u.forget(photo.id)
        await open_blobs(u).forget("key")
        await copy(u, target)
        assert await copied.contents.list() == [] == await open_blobs(u).contents.list()


async def test_a_mirror_has_each_content_before_its_key(tmp_path: Path, kept: str) -> None:
    async with dgent.open("memory:") as u, dgent.open(f"sqlite:///{tmp_path / 'copy.db'}") as target:
        blobs, copied = open_blobs(u), open_blobs(target)
        await blobs.put("one", b"1")
        async with aclosing(mirror(u, target)) as seqs:
            await anext(seqs)
            assert await copied.get("one") == b"1"
            info = await blobs.put("two", b"2")
            async for seq in seqs:
                if seq == await u.seq():
                    break
            assert await copied.get("two") == b"2" and await copied.info("two") is not None
            assert info.sha256 in await copied.contents.list()


async def test_a_mirror_follows_puts_and_collections_on_both_sides(tmp_path: Path, kept: str) -> None:
    urls = [f"sqlite:///{tmp_path / name}" for name in ("store.db", "copy.db")]
    async with dgent.open(urls[0]) as u, dgent.open(urls[1]) as target:
        blobs, copied = open_blobs(u), open_blobs(target)

        async def collect() -> None:
            while True:
                await blobs.collect(grace=timedelta(0))
                await copied.collect(grace=timedelta(0))

        async with aclosing(mirror(u, target)) as seqs:
            await anext(seqs)
            collecting = asyncio.create_task(collect())
            for n in range(40):
                await blobs.put(f"{n % 5}", b"%d" % (n % 7))
                if n % 3 == 0:
                    await blobs.delete(f"{n % 4}")
            last = await u.seq()
            async for seq in seqs:
                if seq == last:
                    break
            collecting.cancel()
            await asyncio.gather(collecting, return_exceptions=True)
        keys = [each.key for each in await blobs.list()]
        assert keys and keys == [each.key for each in await copied.list()]
        for key in keys:
            assert await copied.get(key) == await blobs.get(key)
        for each in (blobs, copied):
            await each.collect(grace=timedelta(0))
        assert await copied.contents.list() == await blobs.contents.list()


async def test_a_copy_of_a_damaged_store_is_refused(tmp_path: Path, kept: str) -> None:
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u, dgent.open("memory:") as target:
        blobs = open_blobs(u)
        await damage(blobs, await blobs.put("key", b"data"), None)
        with pytest.raises(Corrupt, match="'key'"):
            await copy(u, target)


@pytest.mark.parametrize("name", ["membrane.db", "other.db"])
async def test_a_backup_has_blobs_and_a_restore_brings_them_back(
    tmp_path: Path, name: str, kept: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    folder = home if name == "membrane.db" else None
    async with dgent.open(f"sqlite:///{home / name}") as u:
        photo = await fill(u)
        blobs = open_blobs(u)
        assert blobs.contents.place == str(home / ("blobs" if folder else "other.db.blobs"))
        async with blobs.contents.upload() as upload:
            await upload.write(bytes(2 << 20))  # an upload under way is no part of it
            made = await backup.backup(u, folder, tmp_path / "backup")
        files = [each for each in made.files if each.startswith("blobs/")]
        assert len(files) == (2 if kept == "files" else 0) and not made.damaged
        await blobs.forget("key")
    await backup.restore(tmp_path / "backup", tmp_path / "new")
    async with dgent.open(f"sqlite:///{tmp_path / 'new' / 'membrane.db'}") as u:
        restored = open_blobs(u)
        assert await restored.get("key") == b"new" and await restored.get(photo.value.image) == b"pixels"
    if folder:  # in the place of the store that forgot, it is forgotten again
        await backup.restore(tmp_path / "backup", home, replace=True)
        async with dgent.open(f"sqlite:///{home / name}") as u:
            assert await open_blobs(u).get("key") is None
            assert await open_blobs(u).contents.list() == [photo.value.image.id.removeprefix("blob:")]


@pytest.mark.parametrize("place", ["files", "postgres"])
async def test_a_backup_has_blobs_and_events_that_are_elsewhere(tmp_path: Path, place: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    url = f"files:{tmp_path / 'far'}" if place == "files" else url_for(tmp_path)
    storage = {"blob": {"url": url}, "telemetry": {"url": f"sqlite:///{tmp_path / 'far.db'}"}}
    async with dgent.open(f"sqlite:///{home / 'membrane.db'}", storage=storage) as u:
        photo = await fill(u)
        blobs, sha256 = open_blobs(u), photo.value.image.id.removeprefix("blob:")
        await u.storage.telemetry.append([TelemetryEvent("span", id="a"), TelemetryEvent("span", id="b")])
        made = await backup.backup(u, home, tmp_path / "backup")
        assert len([each for each in made.files if each.startswith("blobs/")]) == 2 and not made.damaged
        assert "telemetry.db" in made.files
        (tmp_path / "fork").mkdir()
        await backup.copy_into(u, home, tmp_path / "fork")
        assert os.listdir(tmp_path / "fork") == ["membrane.db"]  # whose settings say the same place
        await blobs.forget("key")
        await blobs.contents.remove(sha256, _is_unused)
        await u.storage.telemetry.append([TelemetryEvent("span", id="c")])
    # In the place of the store that forgot, it is forgotten again; what is new at the place stays.
    await backup.restore(tmp_path / "backup", home, replace=True, storage=storage)
    assert os.listdir(home) == ["membrane.db"]
    async with dgent.open(f"sqlite:///{home / 'membrane.db'}", storage=storage) as u:
        assert await open_blobs(u).get("key") is None
        assert await open_blobs(u).get(photo.value.image) == b"pixels"
        assert await open_blobs(u).contents.list() == [sha256]
        assert sorted(each.id for each in await u.storage.telemetry.query()) == ["a", "b", "c"]
    await backup.restore(tmp_path / "backup", tmp_path / "new")
    async with dgent.open(f"sqlite:///{tmp_path / 'new' / 'membrane.db'}") as u:
        assert await open_blobs(u).get("key") == b"new"
        assert sorted(each.id for each in await u.storage.telemetry.query()) == ["a", "b"]


@pytest.mark.parametrize("place", ["files", "postgres"])
async def test_stores_at_one_place_remove_nothing_of_each_other(tmp_path: Path, place: str) -> None:
    url = f"files:{tmp_path / 'far'}" if place == "files" else url_for(tmp_path)
    storage = {"blob": {"url": url}}
    async with dgent.open(f"sqlite:///{tmp_path / 'a.db'}", storage=storage) as u:
        ours = open_blobs(u)
        await ours.put("key", b"of a")
        await ours.put("unused", b"unused")
        await ours.delete("unused")
        async with dgent.open(f"sqlite:///{tmp_path / 'b.db'}", storage=storage) as other:
            theirs = open_blobs(other)
            await theirs.put("key", b"of b")
            for blobs in (ours, theirs):
                with pytest.raises(Conflict, match=r"contents of other stores too \(.*\.db\)"):
                    await blobs.collect(grace=timedelta(0))
            with pytest.raises(Conflict, match="none of them is removed"):
                await theirs.forget("key")
            assert await theirs.info("key") is None and await ours.get("key") == b"of a"
        (tmp_path / "b.db").unlink()
        assert (await ours.collect(grace=timedelta(0))).removed == 2
        assert await ours.get("key") == b"of a"


async def _is_unused() -> bool:
    return False


async def test_a_backup_says_which_blobs_are_damaged(kept: str, local: BlobStore, tmp_path: Path) -> None:
    info = await local.put("key", b"data")
    await damage(local, info, b"what?")
    made = await backup.backup(local._universe._twin(_room=None), None, tmp_path / "backup")
    assert made.damaged == (info.id,)


async def test_an_export_leaves_keys_out(local: BlobStore) -> None:
    await local.put("key", b"data")
    lines: list[bytes] = []
    done = await export.export(local._universe, lines.append)
    assert done.records == 0 and key_id("key").encode() not in b"".join(lines)


async def test_doctor_finds_missing_damaged_and_unused_contents(kept: str, local: BlobStore) -> None:
    room, u = load_room("blobs"), local._universe._twin(_room=None)
    for key in ("missing", "damaged", "unused", "right"):
        info = await local.put(key, key.encode())
        if key in ("missing", "damaged"):
            await damage(local, info, None if key == "missing" else b"damageD")
    await local.delete("unused")
    first, unused = await room.inspect(u)
    assert (first.level, unused.level) == ("problem", "note") and "'missing'" in first.message
    assert "'damaged'" not in first.message and "1 content is not used" in unused.message
    first, _ = await room.inspect(u, deep=True)
    assert "'missing'" in first.message and "'damaged'" in first.message
    for key in ("missing", "damaged"):
        await local.put(key, key.encode())
    await local.collect(grace=timedelta(0))
    assert [each.level for each in await room.inspect(u, deep=True)] == ["ok"]
