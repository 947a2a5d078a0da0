"""Small contents, which are records of an SQLite store in the commit of their key."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Corrupt, Denied
from dgent.exchange.copy import copy
from dgent.store.backend import Put
from dgent.universe import blob as module
from dgent.universe.blob import BlobStore, open_blobs
from dgent.universe.blob_record import CONTENT, MOST_BYTES, content_id
from dgent.universe.gate import Principal
from tests.blob.damage import damage

NOW = timedelta(0)


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as universe:
        yield universe


def find_in_files(folder: Path, wanted: bytes) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and wanted in path.read_bytes()]


async def test_a_small_blob_is_one_commit_and_no_file(u: dgent.Universe) -> None:
    blobs = open_blobs(u)
    await blobs.put("first", b"")
    seq = await u.seq()
    await blobs.put("key", bytes(MOST_BYTES))
    assert await u.seq() == seq + 1 and not os.path.exists(blobs.contents.place)
    await blobs.put("other", bytes(MOST_BYTES))
    assert await blobs.references("key") == 2 and len(await blobs.contents.list()) == 2
    await blobs.put("large", bytes(MOST_BYTES + 1))
    found = [name for _, _, names in os.walk(blobs.contents.place) for name in names]
    assert len(found) == 1 and len(await blobs.contents.list()) == 3
    assert [len(await blobs.get(key) or b"") - MOST_BYTES for key in ("key", "large")] == [0, 1]
    pages = [await blobs.contents.list(limit=1)]
    while pages[-1]:
        pages.append(await blobs.contents.list(pages[-1][-1], limit=1))
    assert [each for page in pages for each in page] == await blobs.contents.list()


async def test_a_content_that_is_a_file_already_stays_one(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = open_blobs(u)
    contents: Any = blobs.contents
    monkeypatch.setattr(contents, "most_bytes", 0)
    info = await blobs.put("old", b"data")
    monkeypatch.setattr(contents, "most_bytes", MOST_BYTES)
    await blobs.put("new", b"data")
    assert await u.get(content_id(info.sha256)) is None and await contents.inner.size(info.sha256) == 4
    await blobs.put("other", b"small")
    monkeypatch.setattr(contents, "most_bytes", 0)  # as when the settings place contents elsewhere
    assert await blobs.get("other") == b"small"


async def test_no_file_holds_a_forgotten_byte(u: dgent.Universe, tmp_path: Path) -> None:
    blobs, secret = open_blobs(u), os.urandom(3000)
    info = await blobs.put("key", secret)
    await blobs.put("other", b"stays")
    assert find_in_files(tmp_path, secret[:50])
    await blobs.forget("key")
    for trace in (secret[:50], secret[-50:], info.sha256.encode()):
        assert not find_in_files(tmp_path, trace)
    assert await blobs.get("other") == b"stays"


async def test_forgetting_a_record_takes_the_content_that_only_it_used(
    u: dgent.Universe, tmp_path: Path
) -> None:
    blobs, secret = open_blobs(u), os.urandom(3000)
    info = await blobs.put("key", secret)
    await u.put(dgent.Datum("holder", data={"image": info.id}))
    await blobs.delete("key")
    assert (await blobs.collect(grace=NOW)).kept == 1
    await u.forget("holder")
    assert await blobs.contents.size(info.sha256) is None
    assert not find_in_files(tmp_path, secret[:50])


@pytest.mark.parametrize("trust", ["friend", "conversant"])
async def test_nobody_reads_or_writes_contents_past_their_keys(u: dgent.Universe, trust: Any) -> None:
    await open_blobs(u).put("mine", b"known")
    sha256 = (await open_blobs(u).contents.list())[0]
    guest = u.acting(Principal("guest", trust))
    assert await guest.get(content_id(sha256), raw=True) is None
    assert await guest.query(schema=CONTENT.name, raw=True) == []
    assert all(each.schema != CONTENT.name for each in await guest.query(raw=True))
    with pytest.raises(Denied):
        await guest.commit(
            [Put(dgent.Datum(content_id(sha256), content=b"other", schema=CONTENT.name, schema_version=1))]
        )
    with pytest.raises(Denied):
        await u.put(dgent.Datum(content_id(sha256), content=b"other", schema=CONTENT.name, schema_version=1))
    await open_blobs(guest).put("theirs", b"known")  # the same bytes as another's
    await open_blobs(u).delete("mine")
    await open_blobs(u).collect()
    await open_blobs(guest).put("again", b"known")
    assert await open_blobs(guest).get("again") == b"known"


async def test_puts_while_contents_are_collected_lose_nothing(u: dgent.Universe) -> None:
    blobs = open_blobs(u)

    async def store(name: int) -> None:
        for turn in range(30):
            key, data = f"{name}/{turn}", b"%d" % (turn % 3)
            await blobs.put(key, data)
            assert await blobs.get(key) == data
            await blobs.delete(key)

    async def collect() -> None:
        while True:
            await blobs.collect(grace=NOW)

    collecting = asyncio.create_task(collect())
    await asyncio.gather(*map(store, range(4)))
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    assert (await blobs.collect(grace=NOW)).kept == 0 and await blobs.contents.list() == []


async def test_a_content_in_use_again_waits_its_whole_time(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = open_blobs(u)
    info = await blobs.put("key", b"data")

    async def is_used() -> bool:
        return True

    assert not await blobs.contents.remove(info.sha256, is_used)  # found used in the last moment
    await blobs.delete("key")
    later = module.clock.now() + timedelta(days=2)
    monkeypatch.setattr(module.clock, "now", lambda: later)
    assert (await blobs.collect()).waiting == 1


async def test_a_copy_has_many_small_contents(u: dgent.Universe, tmp_path: Path) -> None:
    blobs = open_blobs(u)
    for n in range(30):
        await blobs.put(f"{n}", b"%d" % n)
    async with dgent.open(f"sqlite:///{tmp_path / 'copy.db'}") as target:
        await copy(u, target)
        await copy(u, target)
        assert await open_blobs(target).contents.list() == await blobs.contents.list()
        assert not os.path.exists(open_blobs(target).contents.place)
        await blobs.delete("7")
        await copy(u, target)
        assert await open_blobs(target).get("7") is None


async def test_a_damaged_content_is_said_and_replaced(u: dgent.Universe) -> None:
    blobs: BlobStore = open_blobs(u)
    info = await blobs.put("key", b"right")
    await damage(blobs, info, b"wrong")
    with pytest.raises(Corrupt):
        async with blobs.open("key", start=1, end=2) as reader:
            await reader.read()
    await blobs.put("other", b"right")
    assert await blobs.get("key") == b"right"
