"""The server over HTTP: several clients at once, and nobody without the token."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

import dgent
from tests.mcp.host import command, connect, environment

TOKEN = "a-token-of-some-length"


@pytest.fixture
async def url(store_path: Path) -> AsyncIterator[str]:
    token = store_path / "token"
    token.write_text(TOKEN + "\n")
    words = (
        "--url",
        f"sqlite:///{store_path}/s.db",
        "mcp",
        "--http",
        "--port",
        "0",
        "--token-file",
        str(token),
    )
    process = await asyncio.create_subprocess_exec(
        *command(*words), stdout=asyncio.subprocess.PIPE, env=environment(store_path)
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        found = re.search(r"http://127\.0\.0\.1:\d+/mcp", line)
        assert found, line
        yield found[0]
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) in (0, -15, 143)


async def test_several_clients(url: str, store_path: Path) -> None:
    async def work(name: str) -> None:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http,
            connect(streamable_http_client(url, http_client=http), name) as host,
        ):
            for n in range(10):
                assert (await host.do("remember", data={"n": n}))["author"] == name

    await asyncio.gather(*(work(f"agent-{n}") for n in range(4)))
    async with dgent.open(f"sqlite:///{store_path}/s.db") as u:
        assert await u.count() == 40


async def test_nobody_without_the_token(url: str) -> None:
    async with httpx2.AsyncClient(timeout=60) as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            answer = await http.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
            assert answer.status_code == 401 and "jsonrpc" not in answer.text
        good = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        answer = await http.post(url, json=body, headers={**good, "Host": "evil.example"})
        assert answer.status_code in (403, 421)
        answer = await http.post(url, json=body, headers={**good, "Origin": "http://evil.example"})
        assert answer.status_code == 403
        answer = await http.post(url, content=b"x" * 5_000_000, headers=good)
        assert 400 <= answer.status_code < 500
