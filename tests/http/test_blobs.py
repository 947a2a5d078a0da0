"""Blobs over HTTP: streams, parts, conditions, limits, and who may."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import dgent
from dgent.doors.http.limit import Limits
from dgent.universe.blob import BlobStore, open_blobs
from tests.blob.damage import damage
from tests.http.client import Client, serve_universe, token_for

DATA = bytes(range(256)) * 5000  # more than one part


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}", durability="relaxed") as universe:
        yield universe


@pytest.fixture
def blobs(u: dgent.Universe) -> BlobStore:
    return open_blobs(u)


@pytest.fixture
async def client(u: dgent.Universe) -> Client:
    return await make_client(u)


async def make_client(u: dgent.Universe, trust: Any = "friend", **limits: Any) -> Client:
    server = await serve_universe(u, limits=Limits(**limits)) if limits else await serve_universe(u)
    return Client(server, await token_for(u, trust, "scout"))


async def test_a_blob_goes_in_and_comes_out(client: Client, blobs: BlobStore) -> None:
    etag = f'"{hashlib.sha256(DATA).hexdigest()}"'
    made = await client.send("PUT", "/v1/blobs/a/b.png", DATA, {"content-type": "image/png"})
    assert (made.status, made.headers["etag"], made.data["size_bytes"]) == (201, etag, len(DATA))
    assert await blobs.get("a/b.png") == DATA
    got = await client.send("GET", "/v1/blobs/a%2Fb.png")
    assert (got.status, got.body, got.headers["etag"]) == (200, DATA, etag)
    assert got.headers["content-type"] == "image/png" and got.headers["content-length"] == str(len(DATA))
    assert "sandbox" in got.headers["content-security-policy"]  # a page that was stored must not run
    assert got.headers["content-disposition"] == "attachment"
    head = await client.send("HEAD", "/v1/blobs/a/b.png")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(DATA)))
    assert (await client.send("GET", "/v1/blobs/a/b.png", headers={"if-none-match": etag})).status == 304
    assert [each["key"] for each in (await client.send("GET", "/v1/blobs?prefix=a/")).data["items"]] == [
        "a/b.png"
    ]
    assert (await client.send("DELETE", "/v1/blobs/a/b.png")).status == 200
    assert (await client.send("GET", "/v1/blobs/a/b.png")).status == 404


@pytest.mark.parametrize(
    ("asked", "status", "start", "end"),
    [
        ("bytes=0-0", 206, 0, 1),
        ("bytes=5-9", 206, 5, 10),
        ("bytes=1279990-", 206, 1279990, 1280000),
        ("bytes=-3", 206, 1279997, 1280000),
        ("bytes=10-99999999", 206, 10, 1280000),
        ("bytes=1280000-", 416, 0, 0),
        ("bytes=-0", 416, 0, 0),
        ("bytes=9-5", 200, 0, 1280000),
        ("bytes=0-1,5-6", 200, 0, 1280000),
        ("bytes=-", 200, 0, 1280000),
        ("lines=1-2", 200, 0, 1280000),
        ("bytes=1e3-", 200, 0, 1280000),
    ],
)
async def test_a_part_of_a_blob(
    client: Client, blobs: BlobStore, asked: str, status: int, start: int, end: int
) -> None:
    info = await blobs.put("key", DATA)
    got = await client.send("GET", "/v1/blobs/key", headers={"range": asked})
    assert got.status == status
    if status == 416:
        assert got.headers["content-range"] == "bytes */1280000"
        return
    assert got.body == DATA[start:end]
    assert got.headers.get("content-range") == (f"bytes {start}-{end - 1}/1280000" if status == 206 else None)
    for tag, expected in ((f'"{info.sha256}"', status), ('"other"', 200)):
        again = await client.send("GET", "/v1/blobs/key", headers={"range": asked, "if-range": tag})
        assert again.status == expected


async def test_any_key_is_found_and_a_wrong_address_is_refused(client: Client, blobs: BlobStore) -> None:
    for key in ("../x", "a\0b", "caf\u00e9", "cafe\u0301", "Key", "key", "k" * 300, "a b?c#d%2F", "/", "//"):
        put = await client.send("PUT", "/v1/blobs/" + quote(key, safe=""), key.encode())
        assert put.status == 201, key
        assert await blobs.get(key) == key.encode()
        assert (await client.send("GET", "/v1/blobs/" + quote(key, safe=""))).body == key.encode()
    assert (await client.send("GET", "/v1/blobs/%ff")).status == 400
    assert (await client.send("PUT", "/v1/blobs/" + "k" * 1025, b"x")).status == 400
    assert (await client.send("PUT", "/v1/blobs/x", b"x", {"content-type": "no"})).status == 400
    assert (await client.send("POST", "/v1/blobs/x", b"x")).status == 405


async def test_conditions_name_the_content(client: Client) -> None:
    first = (await client.send("PUT", "/v1/blobs/key", b"one", {"if-none-match": "*"})).headers["etag"]
    assert (await client.send("PUT", "/v1/blobs/key", b"two", {"if-none-match": "*"})).status == 412
    assert (await client.send("PUT", "/v1/blobs/key", b"two", {"if-match": '"other"'})).status == 412
    assert (await client.send("PUT", "/v1/blobs/key", b"two", {"if-match": first})).status == 200
    assert (await client.send("PUT", "/v1/blobs/key", b"three", {"if-match": first})).status == 412
    assert (await client.send("GET", "/v1/blobs/key")).body == b"two"


@pytest.mark.parametrize("size", [5, 2 << 20])
async def test_of_many_that_make_a_key_one_does(client: Client, blobs: BlobStore, size: int) -> None:
    sent = [b"%d" % n * size for n in range(6)]

    async def put(data: bytes) -> int:
        return (await client.send("PUT", "/v1/blobs/key", data, {"if-none-match": "*"})).status

    found = await asyncio.gather(*map(put, sent))
    assert sorted(found) == [201, 412, 412, 412, 412, 412]
    assert await blobs.get("key") == sent[found.index(201)]
    await blobs.collect(grace=timedelta(0))
    assert len(await blobs.contents.list()) == 1


@pytest.mark.parametrize("size", [10, 3 << 20])
async def test_a_client_that_leaves_stores_nothing(client: Client, blobs: BlobStore, size: int) -> None:
    messages = [
        {"type": "http.request", "body": bytes(size), "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    headers = {"host": "127.0.0.1:8730", "authorization": f"Bearer {client.token}"}
    scope = {
        "type": "http",
        "method": "PUT",
        "path": "/v1/blobs/half",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    with suppress(Exception):  # whatever the server makes of it
        await client.server(scope, receive, send)
    assert not await blobs.exists("half") and await blobs.contents.list() == []
    assert (await blobs.collect(grace=timedelta(0))).leftovers == 0


async def test_damage_is_an_error_and_not_a_blob(client: Client, blobs: BlobStore) -> None:
    info = await blobs.put("key", b"right")
    await damage(blobs, info, b"wrong")
    got = await client.send("GET", "/v1/blobs/key")
    assert got.status == 500 and got.json["code"] == "corrupt"


async def test_a_body_is_bounded_in_size_and_time(u: dgent.Universe, blobs: BlobStore) -> None:
    client = await make_client(u, body_bytes=100, blob_bytes=1000, body_s=0.05)
    assert (await client.send("PUT", "/v1/blobs/key", bytes(1000))).status == 201
    too_large = await client.send("PUT", "/v1/blobs/key", bytes(1001))
    assert too_large.status == 413 and "1,000" in too_large.json["hint"]
    lying = await client.send("PUT", "/v1/blobs/key", bytes(1001), {"content-length": "5"})
    assert lying.status == 413
    packed = await client.send("PUT", "/v1/blobs/key", b"x", {"content-encoding": "gzip"})
    assert packed.status == 400

    async def never() -> Any:
        await asyncio.sleep(60)

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = {"host": "127.0.0.1:8730", "authorization": f"Bearer {client.token}", "content-length": "5"}
    scope = {
        "type": "http",
        "method": "PUT",
        "path": "/v1/blobs/slow",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    await client.server(scope, never, send)
    assert sent[0]["status"] == 408
    assert await blobs.get("key") == bytes(1000) and not await blobs.exists("slow")
    assert len(await blobs.contents.list()) == 1


async def test_trust_comes_from_the_token(u: dgent.Universe, blobs: BlobStore) -> None:
    await blobs.put("key", b"old")
    server = (await make_client(u)).server
    assert (await Client(server).send("GET", "/v1/blobs/key")).status == 401
    guest = Client(server, await token_for(u, "conversant", "guest"))
    assert (await guest.send("GET", "/v1/blobs/key")).body == b"old"
    assert (await guest.send("PUT", "/v1/blobs/new", b"x", {"if-none-match": "*"})).status == 201
    for method in ("PUT", "DELETE"):
        assert (await guest.send(method, "/v1/blobs/key", b"")).status == 403
    assert (await guest.post("/v1/verbs/blob.gc", {})).status == 403
    assert (await guest.post("/v1/verbs/blob.put", {"key": "x", "path": "/etc/hostname"})).status == 403
    assert await blobs.get("key") == b"old"
