"""A server at a real socket among clients that mean harm: it refuses them, and goes on serving others."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

import dgent
from tests.http.client import token_for
from tests.http.process import Process, exchange, serve, status_of
from tests.mcp.host import environment, own_command

HOST = b"Host: 127.0.0.1\r\n"


class Victim:
    """A server, and a token for it."""

    def __init__(self, process: Process, token: str) -> None:
        self.process, self.token, self.port = process, token, process.port
        self.auth = f"Authorization: Bearer {token}\r\n".encode()

    async def is_well(self) -> None:
        async with httpx2.AsyncClient(timeout=30) as http:
            answer = await http.get(
                self.process.url + "/v1/status", headers={"Authorization": f"Bearer {self.token}"}
            )
        assert answer.status_code == 200


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[Victim]:
    url = f"sqlite:///{tmp_path}/store.db"
    async with dgent.open(url) as u:
        token = await token_for(u)
    async with serve(url, tmp_path, ("--patience", "2")) as process:
        yield Victim(process, token)


def post(auth: bytes, rest: bytes, body: bytes = b"") -> bytes:
    return b"POST /v1/data/note HTTP/1.1\r\n" + HOST + auth + rest + b"\r\n" + body


async def test_requests_that_mean_harm(victim: Victim) -> None:
    a = victim.auth
    bomb = gzip.compress(b'{"data": {"a": "' + b"x" * 10_000_000 + b'"}}')
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    abuses = {
        "10 GB announced": post(a, b"Content-Length: 10000000000\r\n"),
        "a negative length": post(a, b"Content-Length: -1\r\n"),
        "two lengths": post(a, b"Content-Length: 2\r\nContent-Length: 40\r\n", b"{}GET / HTTP/1.1\r\n\r\n"),
        "length and chunks": post(
            a, b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n"
        ),
        "odd chunks": post(a, b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
        "a chunk of a wrong size": post(a, b"Transfer-Encoding: chunked\r\n", b"zz\r\n{}\r\n0\r\n\r\n"),
        "endless chunks": post(a, b"Transfer-Encoding: chunked\r\n", chunk * 200),
        "a bomb": post(a, b"Content-Encoding: gzip\r\nContent-Length: %d\r\n" % len(bomb), bomb),
        "a huge head": b"GET /v1/status HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 200_000,
        "many headers": b"GET /v1/status HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 30_000,
        "a huge address": b"GET /" + b"y" * 200_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        "another host": b"GET /v1/status HTTP/1.1\r\nHost: evil.example\r\n" + a + b"\r\n",
        "no host": b"GET /v1/status HTTP/1.1\r\n" + a + b"\r\n",
        "another origin": b"GET /v1/status HTTP/1.1\r\nOrigin: http://evil.example\r\n" + HOST + a + b"\r\n",
        "a folder above": b"GET /../../etc/passwd HTTP/1.1\r\n" + HOST + a + b"\r\n",
        "an encoded folder above": b"GET /v1/data/note/%2e%2e%2f%00 HTTP/1.1\r\n" + HOST + a + b"\r\n",
        "bytes that are no text": b"GET /v1/data/note/%ff%fe HTTP/1.1\r\n" + HOST + a + b"\r\n",
        "no method": b"WAT /v1/status HTTP/1.1\r\n" + HOST + a + b"\r\n",
        "a proxy's method": b"CONNECT evil.example:80 HTTP/1.1\r\n" + HOST + a + b"\r\n",
        "a socket": b"GET /v1/log HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + HOST + b"\r\n",
        "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + b"\0" * 100,
        "another HTTP": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "line feeds in a header": b"GET /v1/status HTTP/1.1\r\n" + HOST + b"X: a\nb: c\r\n" + b"\r\n",
        "a limit below nothing": b"GET /v1/data/note?limit=-1 HTTP/1.1\r\n" + HOST + a + b"\r\n",
        "a limit of a billion": b"GET /v1/data/note?limit=1000000000 HTTP/1.1\r\n" + HOST + a + b"\r\n",
        "many fields": b"GET /v1/data/note?" + b"a=1&" * 5_000 + b" HTTP/1.1\r\n" + HOST + a + b"\r\n",
        "a token that is too long": b"GET /v1/status HTTP/1.1\r\n" + HOST + b"Authorization: Bearer "
        + b"x" * 50_000 + b"\r\n\r\n",
    }  # fmt: skip
    for name, raw in abuses.items():
        status = status_of(await exchange(victim.port, raw))
        assert 400 <= status < 500, f"{name}: {status}"
    await victim.is_well()

    # Bytes behind a request are the next one, or an error; they never run with the first one's token.
    inner = b"POST /v1/data/note HTTP/1.1\r\n" + HOST + b"Content-Length: 12\r\n\r\n" + b'{"data":{}} '
    outer = b"GET /v1/status HTTP/1.1\r\n" + HOST + victim.auth + b"\r\n" + inner
    got = await exchange(victim.port, outer, b"WWW-Authenticate".lower())
    assert got.count(b"HTTP/1.1 401") == 1, "the second one has no token of its own"


async def test_slow_clients_do_not_hold_up_others(victim: Victim) -> None:
    slow = [await asyncio.open_connection("127.0.0.1", victim.port) for _ in range(200)]
    try:
        for number, (_, writer) in enumerate(slow):
            head = b"POST /v1/data/note HTTP/1.1\r\n" + HOST + victim.auth + b"Content-Length: 100\r\n\r\n{"
            writer.write(head if number % 2 else head[:30])
        await victim.is_well()
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*(reader.read() for reader, _ in slow))
        assert {status_of(each) for each in answers} == {408}
        await victim.is_well()
    finally:
        for _, writer in slow:
            writer.close()


async def test_heads_are_bounded_at_any_time(victim: Victim) -> None:
    """Also lines behind a body, and a second request while the first is being answered."""
    endless = {
        "lines behind a body": b"POST /login HTTP/1.1\r\n" + HOST + b"X-Dgent-Studio: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 40_000,
        "one endless line behind a body": b"POST /login HTTP/1.1\r\n" + HOST + b"X-Dgent-Studio: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\na: " + b"b" * 300_000,
        "a second head behind a stream": b"GET /v1/changes HTTP/1.1\r\n" + HOST + victim.auth + b"\r\n"
        b"GET / HTTP/1.1\r\nX: " + b"y" * 300_000,
    }  # fmt: skip
    for name, raw in endless.items():
        async with asyncio.timeout(30):
            await exchange(victim.port, raw, b"nothing says this")  # until it closes the connection
        assert name
    await victim.is_well()


async def test_who_leaves_in_the_middle_is_not_a_fault(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *own_command("--url", f"sqlite:///{tmp_path}/store.db", "serve", "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(tmp_path),
    )
    assert process.stdout is not None
    port = int((await asyncio.wait_for(process.stdout.readline(), 60)).decode().rpartition(":")[2])
    for _ in range(3):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /login HTTP/1.1\r\n" + HOST + b"X-Dgent-Studio: 1\r\nContent-Length: 100\r\n\r\nabc"
        )
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
    wrong = b'{"token":"\xff"}'
    raw = b"POST /login HTTP/1.1\r\n" + HOST + b"X-Dgent-Studio: 1\r\nContent-Length: %d\r\n\r\n" % len(wrong)
    assert status_of(await exchange(port, raw + wrong)) == 400
    process.terminate()
    _, told = await asyncio.wait_for(process.communicate(), 60)
    assert b"Traceback" not in told, told
