"""Blobs and telemetry of a store on a server: the same calls as where the store is."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import dgent
from dgent.errors import (
    Corrupt,
    Denied,
    InputError,
    NotFound,
    Unavailable,
    Unsupported,
    VersionConflict,
)
from dgent.store.port.blob import IBlobStore
from dgent.store.port.telemetry import TelemetryEvent
from dgent.universe.blob import open_blobs
from dgent.universe.telemetry import telemetry_of
from dgent.universe.universe import Universe
from tests.blob.damage import damage
from tests.remote.conftest import OpenAs, Place


async def test_a_blob_goes_there_and_comes_back(u: Universe, place: Place) -> None:
    blobs = u.storage.blob
    assert isinstance(blobs, IBlobStore) and blobs is u.storage.blob
    for key in ("a/b.bin", "../x", "Key", "key", "é ?#%&+", "n\0l", "x" * 300):
        made = await blobs.put(key, key.encode(), "text/plain; charset=utf-8")
        assert made.sha256 == hashlib.sha256(key.encode()).hexdigest() and made.rev == 1
        assert await blobs.get(key) == key.encode() and await blobs.info(key) == made
        assert await place.here(lambda here, key=key: open_blobs(here).get(key)) == key.encode()
    assert await blobs.get("nobody") is None and await blobs.info("nobody") is None
    assert not await blobs.exists("nobody") and await blobs.references("key") == 1
    assert [each.key for each in await blobs.list("a")] == ["a/b.bin"]
    keys = [each.key async for each in blobs.iterate()]
    assert keys == sorted(keys, key=str.encode) and len(keys) == 7
    assert [each.key for each in await blobs.list(after="Key", limit=1)] == [keys[keys.index("Key") + 1]]
    assert await blobs.delete("key") and not await blobs.delete("key")
    assert await blobs.forget("Key") == 1 and await blobs.get("Key") is None
    assert (await blobs.collect(grace=timedelta(0))).removed == 1
    assert await blobs.put("empty", b"") and await blobs.get("empty") == b""


async def test_streams_and_parts(u: Universe) -> None:
    blobs = u.storage.blob
    whole = bytes(range(256)) * 20_000  # five megabytes

    async def produce() -> AsyncIterator[bytes]:
        for at in range(0, len(whole), 300_000):
            yield whole[at : at + 300_000]

    info = await blobs.put("large", produce())
    assert info.size == len(whole) and await blobs.get("large") == whole
    async with blobs.open("large") as reader:
        sizes = [len(part) async for part in reader]
    assert sum(sizes) == len(whole) and len(sizes) > 3
    for start, end in ((0, 3), (999_999, 1_000_003), (len(whole) - 2, None), (5, 5), (len(whole), None)):
        async with blobs.open("large", start=start, end=end) as reader:
            assert await reader.read() == whole[start:end]
    async with blobs.open("large") as reader:  # one that is not read to its end
        assert await reader.read(10) == whole[:10]
    async with blobs.open("other", "w", content_type="image/png") as writer:
        await writer.write(b"one")
        await writer.write(b"two")
    assert writer.info is not None and writer.info.content_type == "image/png"
    with pytest.raises(ZeroDivisionError):
        async with blobs.open("other", "w") as writer:
            await writer.write(whole)
            raise ZeroDivisionError
    assert await blobs.get("other") == b"onetwo"
    with pytest.raises(NotFound):
        async with blobs.open("nobody"):
            pass
    with pytest.raises(InputError):
        async with blobs.open("large", start=5, end=3):
            pass


async def test_conditions_and_refusals(u: Universe, open_as: OpenAs, place: Place) -> None:
    blobs = u.storage.blob
    first = await blobs.put("key", b"1", expect=0)
    with pytest.raises(VersionConflict):
        await blobs.put("key", b"2", expect=0)
    second = await blobs.put("key", b"2", expect=first.rev)
    with pytest.raises(VersionConflict):
        await blobs.put("key", b"3", expect=first.rev)
    assert await blobs.get("key") == b"2" and second.rev == 2
    with pytest.raises(InputError):
        await blobs.put("", b"")
    with pytest.raises(Unsupported, match="by their keys"):
        await blobs.get(dgent.Ref(second))
    guest = (await open_as("conversant", "eve")).storage.blob
    with pytest.raises(Denied):
        await guest.put("key", b"3")
    assert await guest.get("key") == b"2"
    with pytest.raises(Denied):
        await guest.collect()
    other: Any = await open_as()
    pool = other.backend.pool
    pool.address = msgspec.structs.replace(pool.address, token="wrong")
    with pytest.raises(Denied):  # as the server says before it has read the body
        await other.storage.blob.put("large", (bytes(1 << 20) for _ in range(64)))
    with pytest.raises(Denied):
        await other.storage.blob.get("key")

    await place.here(lambda here: damage(open_blobs(here), second, b"?"))
    with pytest.raises((Corrupt, Unavailable)):
        await blobs.get("key")
    assert (await blobs.put("key", b"2")).rev is not None and await blobs.get("key") == b"2"


async def test_telemetry_is_asked_for_and_pruned(u: Universe, open_as: OpenAs, place: Place) -> None:
    call = {"gen_ai.request.model": "m1", "gen_ai.usage.input_tokens": 7}
    at = datetime.now(UTC) - timedelta(days=40)

    async def fill(here: Universe) -> None:
        await telemetry_of(here).append(
            [
                TelemetryEvent("span", data=call, agent="ann", trace_id="t1", id="a"),
                TelemetryEvent("span", data=call, agent="bob", timestamp=at, id="b"),
            ]
        )

    await place.here(fill)
    telemetry = u.storage.telemetry
    assert [event.id for event in await telemetry.query(trace="t1")] == ["a"]
    assert [event.id for event in await telemetry.query(until=at + timedelta(days=1))] == ["b"]
    assert sorted((each.agent, each.input_tokens) for each in await telemetry.usage(by=["agent"])) == [
        ("ann", 7),
        ("bob", 7),
    ]
    with pytest.raises(Unsupported, match="appending events"):
        await telemetry.append([TelemetryEvent("span")])
    other = await open_as("friend", "ann")
    assert [event.id for event in await other.storage.telemetry.query()] == ["a"]
    assert await telemetry.prune(older_than_days=30) == 1
    assert [event.id for event in await telemetry.query()] == ["a"]
