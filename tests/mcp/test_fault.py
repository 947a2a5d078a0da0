"""Faults at the door: lines that are no requests, huge arguments, kills, disks that are full or away."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import dgent
from tests.fault.check import check_store
from tests.fault.test_full_disk import Disk, disk
from tests.mcp.host import connect, environment, inside, own_command
from tests.offline.cable import Cable, connected

__all__ = ["disk"]  # a fixture
ANSWER_S = 60.0  # of a machine that is busy


class Line:
    """A client that writes its lines itself."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self._sent = process, 0
        self.heard: list[dict[str, Any]] = []

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")

    def request(self, method: str, **params: Any) -> int:
        self._sent += 1
        self.write(
            json.dumps({"jsonrpc": "2.0", "id": self._sent, "method": method, "params": params}).encode()
        )
        return self._sent

    async def read(self) -> dict[str, Any]:
        """The next message; raises EOFError at the end."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), ANSWER_S)
        if not line.endswith(b"\n"):
            raise EOFError
        found: dict[str, Any] = json.loads(line)
        return found

    async def answer(self, id: int) -> dict[str, Any]:
        """The answer to a request; others that come before it are left out."""
        while (message := await self.read()).get("id") != id:
            self.heard.append(message)
        return message

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a tool."""
        answer = await self.answer(self.request("tools/call", name=tool, arguments=arguments))
        found: dict[str, Any] = answer["result"]["structuredContent"]
        return found


@asynccontextmanager
async def start(folder: Path, *words: str) -> AsyncIterator[Line]:
    """Start a server as a host does, and greet it."""
    process = await asyncio.create_subprocess_exec(
        *own_command("--url", f"sqlite:///{folder}/s.db", "mcp", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(folder),
        limit=1 << 26,
    )
    line = Line(process)
    info = {"name": "scout", "version": "1"}
    try:
        await line.answer(
            line.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        )
        line.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        yield line
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def remember(id: int, data: bytes) -> bytes:
    head = (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"remember","arguments":{"data":'
        % id
    )
    return head + data + b"}}}"


async def test_lines_that_are_no_requests(store_path: Path) -> None:
    """Each is answered if it names a request, and the server goes on; then the client leaves in a call."""
    async with start(store_path) as line:
        for odd in (
            *(b"garbage", b"", b"{", b"[]", b"null", b"\xff\xfe\0", b"[" * 100_000, b"7", b'"text"'),
            b'{"jsonrpc":"2.0"}',
            b'{"jsonrpc":"1.0","id":905,"method":"ping"}',
            remember(906, b'{"a":' * 5_000 + b"1" + b"}" * 5_000),
            b'{"jsonrpc":"2.0","id":true,"method":"ping","params":{"a":"\\ud800"}}',
        ):
            line.write(odd)
        for id, data in ((911, b'"\\ud800"'), (912, b'{"a":' + b"9" * 5_000 + b"}")):
            line.write(remember(id, data))
            answer = await line.answer(id)
            assert answer["error"]["code"] == -32700 and "cannot be read" in answer["error"]["message"]
        for id, data in (
            (921, b'{"a":1e999}'),
            (922, b'{"a":' * 100 + b"1" + b"}" * 100),
            (923, b'{"a":99999999999999999999}'),
        ):
            line.write(remember(id, data))
            answer = await line.answer(id)
            assert (
                answer["result"]["isError"]
                and answer["result"]["structuredContent"]["data"]["code"] == "input"
            )
        assert (await line.call("remember", data={"text": "x" * 5_000_000}))["ok"]
        refused = await line.call("block_create", label="big", text="y" * 5_000_000)
        assert not refused["ok"] and "1000000" in refused["message"]
        assert not (await line.call("remember", data={"text": "x" * 5_000_000}, id="y" * 5_000_000))["ok"]
        assert not any(message.get("id") is not None for message in line.heard), "nothing else was answered"

        asked = [line.request("resources/subscribe", uri=f"dgent://schema/s{n}") for n in range(1_001)]
        answers = [await line.answer(id) for id in asked]
        assert all("result" in each for each in answers[:-1])
        assert "at most 1000" in answers[-1]["error"]["message"]
        await line.call("remember", data={"a": 1}, schema="s7")
        while not line.heard:
            line.heard.append(await line.read())
        assert [each["params"]["uri"] for each in line.heard] == ["dgent://schema/s7"]

        for n in range(50):
            line.request("tools/call", name="remember", arguments={"data": {"n": n}, "id": f"last-{n}"})
        assert line.process.stdin is not None
        line.process.stdin.close()
        assert await asyncio.wait_for(line.process.wait(), ANSWER_S) == 0
    check_store(str(store_path / "s.db"))


async def test_an_answered_call_survives_a_kill(store_path: Path) -> None:
    answered = set()
    async with start(store_path) as line:
        await line.call("block_create", label="notes", text="")
        for n in range(200):
            line.request("tools/call", name="remember", arguments={"data": {"n": n}, "id": f"r{n}"})
            line.request("tools/call", name="block_append", arguments={"label": "notes", "text": f"<{n}>"})
        while len(answered) < 60:
            found = (await line.read())["result"]["structuredContent"]
            assert found["ok"], found
            answered.add(found["data"].get("id") or f"v{found['data']['version']['version']}")
        line.process.send_signal(signal.SIGKILL)
        try:
            while True:
                found = (await line.read())["result"]["structuredContent"]
                answered.add(found["data"].get("id") or f"v{found['data']['version']['version']}")
        except EOFError:
            pass
    async with start(store_path) as line:
        versions = (await line.call("block_get", label="notes"))["data"]["version"]
        records = {f"r{n}" for n in range(200)}
        async with dgent.open(f"sqlite:///{store_path}/s.db") as u:
            stored = {id for id in records if await u.get(id) is not None}
        assert answered & records <= stored
        assert max((int(each[1:]) for each in answered if each[0] == "v"), default=0) <= versions
    check_store(str(store_path / "s.db"))


async def test_a_full_disk(disk: Disk) -> None:
    """Errors are answers, reads go on, and so do writes as soon as there is room."""
    async with start(disk.folder) as line:
        await line.call("remember", data={"n": 1}, id="kept")
        await line.call("block_create", label="notes", text="a")
        disk.fill()
        refused = None
        for _ in range(200):
            answer = await line.call("remember", data={"text": "x" * 50_000})
            if not answer["ok"]:
                refused = answer
                break
        assert refused is not None and refused["data"]["code"] == "storage_full"
        assert (await line.call("block_get", label="notes"))["ok"]
        disk.free()
        assert (await line.call("block_append", label="notes", text="b"))["ok"]
        assert (await line.call("block_get", label="notes"))["data"]["text"] == "ab"


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")
async def test_a_store_that_is_unavailable_for_a_while(store_path: Path) -> None:
    cable = Cable(store_path / "s.db")
    plain = dgent.Universe(cable.make(), author="ann")
    async with plain as u, connect(inside(u)) as host:
        await host.do("remember", data={"a": 1}, schema="note")
        await host.client.subscribe_resource("dgent://schema/note")
        cable.cut()
        for tool, arguments in (
            ("memory", {}),
            ("remember", {"data": {"a": 2}}),
            ("work_take", {}),
            ("find", {"words": "words"}),
        ):
            answer = await host.call(tool, **arguments)
            assert answer["data"]["code"] == "unavailable" and answer["data"]["retryable"]
        await asyncio.sleep(0.1)
        cable.mend()
        await host.do("remember", data={"a": 2}, schema="note")
        async with asyncio.timeout(60):
            while not host.heard:
                await asyncio.sleep(0.01)


@pytest.mark.filterwarnings("ignore::dgent.errors.Degraded")
async def test_an_outbox_keeps_what_agents_write(store_path: Path) -> None:
    cable = Cable(store_path / "s.db")
    async with connected(cable, store_path / "outbox.db") as u, connect(inside(u)) as host:
        await host.do("remember", data={"a": 1}, id="one")
        cable.cut()
        assert (await host.call("remember", data={"a": 2}, id="two"))["ok"], "it is kept in the outbox"
        cable.mend()
        async with asyncio.timeout(60):
            while u.degraded is not None:
                await asyncio.sleep(0.02)
        assert [(await u.get(id, raw=True)).author for id in ("one", "two")] == ["scout", "scout"]
