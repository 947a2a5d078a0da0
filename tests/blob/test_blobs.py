"""Blobs: the same answers over files, Postgres and memory."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Conflict, Corrupt, Denied, InputError, NotFound, VersionConflict
from dgent.store.port.blob import CHUNK, BlobContents, BlobInfo, IBlobStore
from dgent.universe import blob as module
from dgent.universe.blob import BlobStore, key_id, open_blobs
from dgent.universe.gate import Principal
from tests.blob.damage import damage

NOW = timedelta(0)
LARGE = os.urandom(CHUNK) * 2 + b"the end"


async def test_bytes_come_back_with_type_hash_and_size(blobs: BlobStore) -> None:
    assert isinstance(blobs, IBlobStore) and isinstance(blobs.contents, BlobContents)
    for data in (b"", b"hello", LARGE):
        info = await blobs.put("a/b.bin", data, "image/png")
        assert (info.size, info.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert await blobs.get("a/b.bin") == data
        found = await blobs.info("a/b.bin")
        assert found == info and found.content_type == "image/png"
    assert info.rev == 3 and await blobs.exists("a/b.bin")
    assert await blobs.delete("a/b.bin") and not await blobs.delete("a/b.bin")
    assert await blobs.get("a/b.bin") is None and not await blobs.exists("a/b.bin")
    with pytest.raises(NotFound):
        async with blobs.open("a/b.bin"):
            pass


HOSTILE = [
    *("../x", "....//x/y", "/etc/passwd", "a\0b", "con", "C:\\x", "x.meta", " ", ".", "~0", "a/../b"),
    *("k" * 300, "é" * 500, "Key", "key", "caf\u00e9", "cafe\u0301", "a\nb", "%2e%2e", "🦜"),
    "blob:" + "0" * 64,
]


async def test_any_key_is_found_exactly(blobs: BlobStore) -> None:
    for number, key in enumerate(HOSTILE):
        await blobs.put(key, b"%d" % number, expect=0)
    for number, key in enumerate(HOSTILE):
        assert await blobs.get(key) == b"%d" % number, key
    assert [each.key for each in await blobs.list()] == sorted(HOSTILE, key=str.encode)
    for folder, _, names in os.walk(blobs.contents.place):  # only hashes become names of files
        assert all(re.fullmatch("[0-9a-f]{64}", name) for name in names), folder
    for wrong in ("", "k" * 1025, "\ud800", 5, None, b"key"):
        with pytest.raises(InputError):
            await blobs.put(wrong, b"x")  # type: ignore[arg-type]
    for wrong in ("text", "a/b\r\nX-Evil: 1", "x" * 300, 7):
        with pytest.raises(InputError):
            await blobs.put("key", b"x", wrong)  # type: ignore[arg-type]


async def test_a_page_begins_after_a_key_and_a_prefix_is_exact(blobs: BlobStore) -> None:
    for key in ("a", "a/1", "a/2", "ab.bin", "b", "é"):
        await blobs.put(key, key.encode())
    assert [each.key for each in await blobs.list("a")] == ["a", "a/1", "a/2", "ab.bin"]
    assert [each.key for each in await blobs.list("a/")] == ["a/1", "a/2"]
    assert [each.key for each in await blobs.list(limit=2)] == ["a", "a/1"]
    assert [each.key for each in await blobs.list("a", after="a/1", limit=2)] == ["a/2", "ab.bin"]
    assert [each.key async for each in blobs.iterate()] == ["a", "a/1", "a/2", "ab.bin", "b", "é"]
    for wrong in (0, -1, 10_001, True, "5"):
        with pytest.raises(InputError):
            await blobs.list(limit=wrong)  # type: ignore[arg-type]


async def test_streams_go_in_and_come_out_in_parts(blobs: BlobStore) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(LARGE), 400_000):
            yield LARGE[at : at + 400_000]

    await blobs.put("stream", parts())
    async with blobs.open("other", "w", content_type="text/plain") as writer:
        await writer.write(LARGE[:10])
        await writer.write([LARGE[10:20], memoryview(LARGE)[20:]])
    assert writer.info is not None and writer.info.sha256 == hashlib.sha256(LARGE).hexdigest()
    async with blobs.open("stream") as reader:
        assert await reader.read(10) == LARGE[:10]
        assert await reader.read(CHUNK) == LARGE[10 : CHUNK + 10]
        assert await reader.read() == LARGE[CHUNK + 10 :] and await reader.read(5) == b""
    async with blobs.open("stream") as reader:
        sizes = [len(part) async for part in reader]
    assert sum(sizes) == len(LARGE) and max(sizes) <= CHUNK
    for start, end in ((5, 9), (CHUNK - 2, CHUNK + 2), (2 * CHUNK, None), (10, 10**9), (len(LARGE), None)):
        async with blobs.open("stream", start=start, end=end) as reader:
            assert await reader.read() == LARGE[start:end]
    for start, end in ((-1, None), (5, 4)):
        with pytest.raises(InputError):
            async with blobs.open("stream", start=start, end=end):
                pass


class Slow:
    """A file of another kind: it has `read` alone, and gives less than it was asked for."""

    def __init__(self, data: bytes, error: Exception | None = None) -> None:
        self.data, self.error = data, error

    def read(self, size: int) -> bytes:
        if not self.data and self.error is not None:
            raise self.error
        part, self.data = self.data[: min(size, 300_000)], self.data[min(size, 300_000) :]
        return part

    def __iter__(self) -> Any:
        raise AssertionError("a file is not read by lines")


@pytest.mark.parametrize("size", [0, 1, 1 << 16, 1 << 18, (1 << 18) + 1, CHUNK, CHUNK + 1, 5 * CHUNK + 7])
async def test_an_open_file_is_read_to_its_end(blobs: BlobStore, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(b"skip" + data)
    for buffering in (-1, 0):
        with open(tmp_path / "file", "rb", buffering=buffering) as file:
            file.seek(4)
            info = await blobs.put("key", file)
        assert info.sha256 == hashlib.sha256(data).hexdigest() and await blobs.get("key") == data
    async with blobs.open("other", "w") as writer:
        await writer.write(b"head")
        await writer.write(Slow(data))
        await writer.write(b"tail")
    assert await blobs.get("other") == b"head" + data + b"tail"


@pytest.mark.parametrize("size", [10, 3 * CHUNK])
async def test_a_file_that_fails_or_is_text_stores_nothing(
    blobs: BlobStore, tmp_path: Path, size: int
) -> None:
    (tmp_path / "text").write_text("x" * size)
    with pytest.raises(InputError), open(tmp_path / "text", encoding="utf-8") as file:
        await blobs.put("key", file)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        await blobs.put("key", Slow(bytes(size), ZeroDivisionError()))  # type: ignore[arg-type]
    assert not await blobs.exists("key") and await blobs.contents.list() == []
    assert (await blobs.collect(grace=NOW)).leftovers == 0


async def test_a_write_that_fails_leaves_the_blob_as_it_was(blobs: BlobStore) -> None:
    await blobs.put("key", b"old")
    with pytest.raises(ZeroDivisionError):
        async with blobs.open("key", "w") as writer:
            await writer.write(LARGE)
            raise ZeroDivisionError
    with pytest.raises(InputError):
        await blobs.put("key", [LARGE, "text"])  # type: ignore[list-item]
    with pytest.raises(VersionConflict):
        await blobs.put("key", b"new", expect=0)
    assert await blobs.get("key") == b"old"
    assert (await blobs.collect(grace=NOW)).kept == 1
    assert await blobs.contents.list() == [hashlib.sha256(b"old").hexdigest()]


async def test_a_content_is_stored_once_and_stays_while_it_is_used(blobs: BlobStore) -> None:
    first = await blobs.put("one", b"same")
    await blobs.put("two", b"same")
    assert await blobs.contents.list() == [first.sha256] and await blobs.references("one") == 2
    await blobs.delete("one")
    assert (await blobs.collect(grace=NOW)).removed == 0 and await blobs.get("two") == b"same"
    await blobs.delete("two")
    assert (await blobs.collect(grace=NOW, dry_run=True)).removed == 1
    done = await blobs.collect(grace=NOW)
    assert (done.removed, done.removed_bytes, done.kept) == (1, 4, 0)
    assert await blobs.contents.list() == []


async def test_garbage_waits_for_its_time(blobs: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await blobs.put("key", b"data")
    await blobs.delete("key")
    assert (await blobs.collect()).waiting == 1 and (await blobs.collect()).removed == 0
    later = module.clock.now() + timedelta(days=2)
    await blobs.put("key", b"data")  # its time begins anew
    await blobs.delete("key")
    monkeypatch.setattr(module.clock, "now", lambda: later)
    assert (await blobs.collect()).waiting == 1
    monkeypatch.setattr(module.clock, "now", lambda: later + timedelta(days=2))
    assert (await blobs.collect()).removed == 1
    with pytest.raises(InputError):
        await blobs.collect(grace=timedelta(-1))


async def test_a_put_under_way_is_never_collected(blobs: BlobStore) -> None:
    async with blobs.contents.upload() as upload:
        await upload.write(LARGE)
        assert (await blobs.collect(grace=NOW)).leftovers == 0
        content, _ = await upload.publish()
        assert (await blobs.collect(grace=NOW)).removed == 0
        async with blobs.contents.upload() as second:  # another put of the same
            await second.write(LARGE)
            assert await second.publish() == (content, True)
            assert (await blobs.collect(grace=NOW)).removed == 0
        assert (await blobs.collect(grace=NOW)).removed == 0
    assert (await blobs.collect(grace=NOW)).removed == 1


async def test_damage_is_reported_and_healed_by_storing_again(blobs: BlobStore) -> None:
    for data in (b"right", LARGE):
        info = await blobs.put("key", data)
        await damage(blobs, info, b"wrong")
        with pytest.raises(Corrupt, match=info.sha256):
            await blobs.get("key")
        with pytest.raises(Corrupt):
            async with blobs.open("key", start=1, end=3) as reader:
                await reader.read()
        given = b""
        with pytest.raises(Corrupt):
            async with blobs.open("key") as reader:
                async for part in reader:
                    given += part
        assert len(given) < max(len(data), 2)  # the last part is never given
        await blobs.put("other", data)
        assert await blobs.get("key") == data
        await damage(blobs, info, None)
        with pytest.raises(Corrupt, match=r"missing|not in"):
            await blobs.get("key")
        await blobs.put("key", data)
        assert await blobs.get("other") == data


@dataclass(frozen=True)
class Photo:
    title: str
    image: dgent.Ref[BlobInfo]


async def test_a_ref_in_a_record_keeps_a_content(u: dgent.Universe, blobs: BlobStore) -> None:
    u.register(dgent.Schema("photo", contract=Photo))
    info = await blobs.put("upload/1", b"pixels")
    photo = await u.remember(Photo("sea", dgent.Ref(info)))
    assert await blobs.references("upload/1") == 2
    await blobs.delete("upload/1")
    assert (await blobs.collect(grace=NOW)).kept == 1
    assert await blobs.get(photo.value.image) == b"pixels"
    assert (await blobs.info(photo.value.image) or info).size == 6
    guest = open_blobs(u.acting(Principal("guest", "friend")))
    assert await guest.get(photo.value.image) == b"pixels"
    await u.delete(photo.id)
    assert await guest.get(photo.value.image) is None  # no record that they may see has it
    assert (await blobs.collect(grace=NOW)).removed == 1
    assert await blobs.get(photo.value.image) is None
    with pytest.raises(InputError):
        await blobs.get(dgent.Ref("something"))


async def test_a_key_has_history_feed_and_undo(u: dgent.Universe, blobs: BlobStore) -> None:
    await blobs.put("key", b"one")
    await blobs.put("key", b"two")
    seq = await u.seq()
    await blobs.put("key", b"two")  # the same again is nothing new
    assert await u.seq() == seq and len(await u.history(key_id("key"))) == 2
    await u.undo(seq)
    assert await blobs.get("key") == b"one"
    await blobs.delete("key")
    seq = await u.seq()
    await u.undo(seq)
    assert await blobs.get("key") == b"one"
    await blobs.put("key", b"three")
    seq = await u.seq()
    await blobs.collect(grace=NOW)
    with pytest.raises(Conflict, match="collected"):
        await u.undo(seq)
    with pytest.raises(Denied):
        await u.delete(key_id("key"))


async def test_forget_leaves_no_byte_of_any_version(u: dgent.Universe, blobs: BlobStore) -> None:
    for data in (b"secret 1", b"secret 2", b"shared"):
        await blobs.put("key", data)
    await blobs.put("other", b"shared")
    assert await blobs.forget("key") == 1
    assert await blobs.get("key") is None and await u.history(key_id("key")) == []
    assert await blobs.contents.list() == [hashlib.sha256(b"shared").hexdigest()]


@pytest.mark.parametrize("trust", ["friend", "conversant", "untrusted"])
async def test_trust_holds_for_blobs(u: dgent.Universe, blobs: BlobStore, trust: Any) -> None:
    await blobs.put("key", b"old")
    other = open_blobs(u.acting(Principal("guest", trust)))
    sha256 = hashlib.sha256(b"old").hexdigest()
    for denied in (other.collect(), other.forget("key"), other.drop([sha256])):
        with pytest.raises(Denied):
            await denied
    if trust == "untrusted":
        for denied in (other.get("key"), other.list(), other.put("new", b"x"), other.delete("key")):
            with pytest.raises(Denied):
                await denied
        return
    assert await other.get("key") == b"old"
    await other.put("new", b"fresh")
    if trust == "friend":
        await other.put("key", b"changed")
        assert await other.delete("new")
        return
    with pytest.raises((Denied, Conflict)):
        await other.put("key", b"changed")
    with pytest.raises(Denied):
        await other.delete("key")
    assert await blobs.get("key") == b"old" and await blobs.get("new") == b"fresh"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
async def test_what_is_no_file_is_damage_and_stops_nothing_else(
    local: BlobStore, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.contents, "most_bytes", 0)
    content = (await local.put("a", b"bytes")).sha256
    path, outside = Path(local.contents.place, content[:2], content), tmp_path / "outside"
    path.unlink()
    outside.write_bytes(b"bytes")
    {"link": lambda: path.symlink_to(outside), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    with pytest.raises(Corrupt, match="is not a file"):
        await local.get("a")
    await local.put("b", b"others")
    await local.delete("a")
    await local.delete("b")
    assert (await local.collect(grace=timedelta(0))).removed == 1
    assert outside.read_bytes() == b"bytes"
    if kind != "folder":
        await local.put("a", b"bytes")
        assert path.is_file() and not path.is_symlink() and await local.get("a") == b"bytes"
