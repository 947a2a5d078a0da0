"""`dgent serve` as people run it: it stops in order, takes new settings, and serves agents over MCP."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

import dgent
from dgent.doors.http import app
from dgent.doors.http import house as houses
from dgent.universe.token import list_tokens, revoke_token
from tests.cli.terminal import Terminal
from tests.http.client import Client, serve_universe, token_for
from tests.http.process import Process, serve
from tests.mcp.host import command, connect, environment
from tests.postgres.lease import url_for


async def make(url: str, trust: str = "friend", agent: str = "scout") -> dict[str, str]:
    """The header with a new token of a store."""
    async with dgent.open(url) as u:
        return {"Authorization": f"Bearer {await token_for(u, trust, agent)}"}  # type: ignore[arg-type]


async def test_it_stops_in_order(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    headers = await make(url)
    async with serve(url, tmp_path) as server, httpx2.AsyncClient(headers=headers, timeout=60) as http:
        done, refused, heard = list[int](), 0, list[str]()

        async def follow() -> None:
            async with http.stream("GET", server.url + "/v1/changes") as stream:
                async for line in stream.aiter_lines():
                    heard.append(line)

        async def write(writer: int) -> None:
            nonlocal refused
            for n in range(1000):
                try:
                    answer = await http.put(
                        f"{server.url}/v1/data/note/{writer}-{n}", json={"data": {"n": n}}
                    )
                except httpx2.TransportError:
                    refused += 1
                    return
                if answer.status_code == 200:
                    done.append(answer.json()["data"]["seq"])

        following = asyncio.create_task(follow())
        writing = [asyncio.create_task(write(each)) for each in range(4)]
        while len(done) < 40:
            await asyncio.sleep(0.01)
        server.signal(signal.SIGTERM)
        assert await server.ended() in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
        await asyncio.gather(*writing)
        await asyncio.wait_for(following, 60)
    assert refused, "it stopped in the middle"
    async with dgent.open(url) as u:
        stored = await u.query(schema="note", raw=True, limit=None)
    assert {each.seq for each in stored} >= set(done), "what was answered is stored"
    assert any("commit" in line for line in heard)


async def test_new_constellations_after_a_hangup(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *command("serve", "--port", "0"), stdout=asyncio.subprocess.PIPE, env=environment(tmp_path)
    )
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
    server = Process(process, int(line.strip().rpartition(":")[2]))
    try:
        folder = tmp_path / ".local/share/dgent/constellations/second"
        folder.mkdir(parents=True)
        headers = await make(f"sqlite:///{folder}/membrane.db")
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            assert (await http.get(server.url + "/second/v1/status")).status_code == 401
            server.signal(signal.SIGHUP)
            async with asyncio.timeout(60):
                while (await http.get(server.url + "/second/v1/status")).status_code != 200:
                    await asyncio.sleep(0.3)
    finally:
        process.terminate()
        await server.ended()


async def test_a_proxy_with_tls_makes_the_cookie_secure(tmp_path: Path) -> None:
    """A trusted proxy says how the browser came; nobody else is believed."""
    url = f"sqlite:///{tmp_path}/store.db"
    token = (await make(url))["Authorization"].removeprefix("Bearer ")
    async with serve(url, tmp_path) as server, httpx2.AsyncClient(timeout=60) as http:
        for said, secure in (("https", True), ("http", False), (None, False)):
            headers = {"X-Dgent-Studio": "1"} | ({} if said is None else {"X-Forwarded-Proto": said})
            answer = await http.post(server.url + "/login", json={"token": token}, headers=headers)
            assert answer.status_code == 200
            assert ("secure" in answer.headers["set-cookie"].lower()) == secure, said


async def test_agents_over_mcp_with_their_tokens(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    ann, eve = await make(url, "friend", "ann"), await make(url, "conversant", "eve")
    async with serve(url, tmp_path) as server:
        async with httpx2.AsyncClient(timeout=60) as http:
            assert (await http.post(server.url + "/mcp", json={})).status_code == 401
        async with (
            httpx2.AsyncClient(headers=ann, timeout=60) as one,
            httpx2.AsyncClient(headers=eve, timeout=60) as two,
            connect(streamable_http_client(server.url + "/mcp", http_client=one), "liar") as first,
            connect(streamable_http_client(server.url + "/mcp", http_client=two), "liar") as second,
        ):
            assert (await first.do("remember", data={"n": 1}))["author"] == "ann"
            assert (await second.do("remember", data={"n": 2}))["author"] == "eve"
            denied = await second.call("block_append", label="notes", text="x")
            assert not denied["ok"]


async def test_a_revoked_token_ends_its_agents_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream of the Model Context Protocol, which would else last as long as its client likes."""
    monkeypatch.setattr(app, "RECHECK_S", 0.1)
    monkeypatch.setattr(houses, "TOKEN_S", 0.0)
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as u:
        server = await serve_universe(u)
        client = Client(server, await token_for(u))
        hello = {
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": "2025-06-18", "capabilities": {},
                       "clientInfo": {"name": "t", "version": "1"}},
        }  # fmt: skip
        both = {"accept": "application/json, text/event-stream", "content_type": "application/json"}
        begun = await client.post("/mcp", hello, **both)
        assert begun.status == 200, begun
        session = {"mcp_session_id": begun.headers["mcp-session-id"], **both}
        stream = asyncio.create_task(client.get("/mcp", **session))
        await asyncio.sleep(0.5)
        assert not stream.done()
        await revoke_token(u, (await list_tokens(u))[0].id)
        await asyncio.wait_for(asyncio.gather(stream, return_exceptions=True), 30)
        await server.house.close()


async def test_two_servers_on_one_database(tmp_path: Path) -> None:
    """The servers have no state of their own: clients that switch between them see one store."""
    url = url_for(tmp_path)
    headers = await make(url)
    async with (
        serve(url, tmp_path) as one,
        serve(url, tmp_path) as two,
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
    ):

        async def work(agent: int) -> None:
            for n in range(10):
                first, second = (one, two) if (agent + n) % 2 else (two, one)
                address = f"/v1/data/note/{agent}"
                now = await http.get(first.url + address)
                rev = now.headers.get("etag", '"0"')
                body = {"data": {"n": n}}
                put = await http.put(second.url + address, json=body, headers={"If-Match": rev})
                assert put.status_code == 200, put.text

        async def follow() -> int:
            seen = 0
            async with http.stream("GET", two.url + "/v1/changes?schema=note") as stream:
                async for line in stream.aiter_lines():
                    seen += line.startswith("event: commit")
                    if seen == 40:
                        return seen
            return seen

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.5)
        await asyncio.gather(*(work(each) for each in range(4)))
        assert await asyncio.wait_for(following, 60) == 40
        late = await http.put(two.url + "/v1/data/note/0", json={"data": {}}, headers={"If-Match": '"3"'})
        assert late.status_code == 412


def test_where_it_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody but this machine without tokens; no port that is taken; no certificate that is none."""
    terminal = Terminal(tmp_path / "home", monkeypatch)
    (tmp_path / "none.pem").write_text("no certificate")
    pem = str(tmp_path / "none.pem")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wrong = {
            ("--host", "0.0.0.0", "--port", "0"): "no tokens",
            ("--port", str(taken.getsockname()[1])): "cannot be used",
            ("--port", "99999"): "not a valid port",
            ("--port", "0", "--tls-cert", pem, "--tls-key", pem): "certificate",
            ("--port", "0", "--tls-cert", pem): "both",
            ("--port", "0", "--store", "wat"): "name=URL",
        }
        for words, said in wrong.items():
            told = terminal("--url", f"sqlite:///{tmp_path}/store.db", "serve", *words)
            assert told.code not in (0, 70) and said in told.err, (words, told)
