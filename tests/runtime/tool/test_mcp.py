"""MCP servers as tools: real servers in processes, our own and hostile ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import dgent
from dgent.config.mcp import McpServer
from dgent.cupboard.cupboard import Cupboard
from dgent.errors import InputError, Unavailable
from dgent.runtime.tool import mcp
from dgent.runtime.tool.mcp import McpTools
from dgent.runtime.tool.mcp_translate import MAX_TEXT, name_tools
from dgent.universe.blob import open_blobs
from tests.mcp import host

HOSTILE = str(Path(__file__).with_name("hostile_server.py"))
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def hostile(mode: str, *more: str, **settings: Any) -> McpServer:
    command = (sys.executable, HOSTILE, mode, *more)
    return McpServer(name="h", command=command, **{"timeout_s": 20.0} | settings)


def own(store: Path, *words: str, **settings: Any) -> McpServer:
    command = host.command("--url", f"sqlite:///{store}", "mcp", *words)
    return McpServer(name="memory", command=tuple(command), env={"HOME": str(store.parent)}, **settings)


def servers() -> list[psutil.Process]:
    """Return the hostile servers that run; a worker of the tests may have other programs under way."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if HOSTILE in each.cmdline():
                found.append(each)
    return found


async def test_dgent_serves_dgent(tmp_path: Path) -> None:
    """The tools of `dgent mcp`, called over a real process, keep what they were given."""
    store = tmp_path / "m.db"
    async with McpTools(own(store, "--trust", "partner", trust="partner")) as tools:
        names = [each["name"] for each in tools.schemas()]
        assert all(name.startswith("memory__") and NAME.fullmatch(name) for name in names)
        find = tools.find("memory__find")
        assert find is not None
        assert (find.effect, find.kind, find.repeatable) == ("read", "read", True)
        made = await tools.call("memory__work_add", {"name": "water the ferns"})
        assert made["ok"], made
        found = await tools.call("memory__work_ready", {})
        assert "water the ferns" in str(found["data"]["structured"]), found
        assert "text" not in found["data"]  # it would only repeat the value
        wrong = await tools.call("memory__work_add", {"nam": "x"})
        assert not wrong["ok"]
        assert wrong["data"]["code"] == "tool_failed"
    async with dgent.open(f"sqlite:///{store}") as u:
        assert await Cupboard(u).ready()


async def test_server_over_http(tmp_path: Path) -> None:
    words = host.command("--url", f"sqlite:///{tmp_path}/m.db", "mcp", "--http", "--port", "0")
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, env=host.environment(tmp_path)
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().split()[-1]
        token = (await process.stdout.readline()).decode().split()[-1]
        bearer = {"Authorization": f"Bearer {token}"}
        async with McpTools(McpServer(name="m", url=url, headers=bearer)) as tools:
            assert tools.schemas()
            answer = await tools.call(tools.schemas()[0]["name"], {"nonsense": True})
            assert not answer["ok"]
        with pytest.raises(Unavailable, match="did not start"):
            await McpTools(McpServer(name="m", url=url)).start()
    finally:
        process.terminate()
        await process.communicate()


async def test_an_untrusted_server_is_not_believed_that_it_only_reads() -> None:
    for trust, expected in (("untrusted", ("write", "read", False)), ("friend", ("read", "read", True))):
        async with McpTools(hostile("plain", trust=trust)) as tools:
            read, write = tools.find("h__read"), tools.find("h__write")
            assert read is not None
            assert write is not None
            assert (read.effect, read.kind, read.repeatable) == expected
            assert (write.effect, write.kind, write.repeatable) == ("destroy", "delete", False)


@pytest.mark.parametrize("mode", ["endless", "same_page", "many"])
async def test_long_lists_are_bounded(mode: str) -> None:
    async with McpTools(hostile(mode)) as tools:
        assert 1 <= len(tools.schemas()) <= mcp.MAX_TOOLS
        assert "more than" in tools.notices[0]


async def test_odd_names_become_unique_ones() -> None:
    async with McpTools(hostile("names")) as tools:
        names = [each["name"] for each in tools.schemas()]
        assert len(names) == 10  # `delete` was listed twice
        assert len(set(names)) == 10
        assert all(map(NAME.fullmatch, names))
        for name in names:
            assert (await tools.call(name))["ok"]
        answer = await tools.call("h__a_b")
        assert answer["data"]["text"] == "a_b done"  # the one that needed no change has its name


def test_names_do_not_depend_on_the_order() -> None:
    names = ["a.b", "a b", "a_b", "ü", "é", "x" * 80, "x" * 81]
    assert name_tools("s", names) == name_tools("s", reversed(names))


async def test_schemas_that_no_model_can_take_are_left_out() -> None:
    async with McpTools(hostile("schemas")) as tools:
        names = [each["name"] for each in tools.schemas()]
        assert names == ["h__long", "h__good"]
        assert len(tools.schemas()[0]["description"]) <= 2_000
        for name in ("deep", "wide", "circle", "bomb"):
            assert any(repr(name) in each for each in tools.notices), tools.notices


async def test_a_list_that_breaks_the_protocol_is_refused_with_the_reason() -> None:
    with pytest.raises(Unavailable, match="should be 'object'"):
        await McpTools(hostile("broken")).start()
    assert servers() == []


async def test_a_changed_list_is_read_again() -> None:
    changed = asyncio.Event()
    async with McpTools(hostile("changing"), on_change=changed.set) as tools:
        assert (await tools.call("h__change"))["ok"]
        await asyncio.wait_for(changed.wait(), 30)
        assert [each["name"] for each in tools.schemas()] == ["h__v1", "h__change"]
        gone = await tools.call("h__v0")
        assert not gone["ok"]


async def test_answers_are_bounded() -> None:
    async with McpTools(hostile("huge_text")) as tools:
        answer = await tools.call("h__read")
        assert answer["ok"]
        assert len(answer["data"]["text"]) == MAX_TEXT
        assert "left out" in answer["message"]
    async with McpTools(hostile("deep")) as tools:
        assert "structured value" in (await tools.call("h__read"))["message"]


async def test_a_schema_of_answers_is_not_a_trap() -> None:
    """An expression that takes for ever is never tried on the answer."""
    async with McpTools(hostile("trap")) as tools:
        answer = await asyncio.wait_for(tools.call("h__answer"), 10)
        assert answer["data"]["structured"]["a"].endswith("!")


async def test_images_become_blobs(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/u.db") as u:
        blobs = open_blobs(u)
        async with McpTools(hostile("image"), blobs=blobs) as tools:
            answer = await tools.call("h__read")
        (image,) = answer["data"]["images"]
        assert image["media_type"] == "image/png"
        assert "an image, an image" in answer["message"]
        (info,) = [each async for each in blobs.iterate()]
        assert info.id == image["blob"]
        content = await blobs.get(info.key)
        assert content is not None
        assert content.startswith(b"\x89PNG")


async def test_a_failure_is_an_answer() -> None:
    async with McpTools(hostile("error")) as tools:
        answer = await tools.call("h__read")
        assert not answer["ok"]
        assert answer["message"] == "no such thing"
        assert not (await tools.call("h__reed"))["ok"]
        assert not (await tools.call("h__read", "[1"))["ok"]


async def test_a_server_that_ends_is_started_again_once() -> None:
    async with McpTools(hostile("die")) as tools:
        first = await tools.call("h__write")
        assert "not known whether it was done" in first["message"]
        assert tools.notices == ["MCP server h: started again, since it ended"]
        second = await tools.call("h__write")
        assert "is gone" in second["message"]
        assert len(tools.notices) == 1
    assert servers() == []


async def test_a_read_of_a_trusted_server_is_made_again(tmp_path: Path) -> None:
    flag = tmp_path / "died"
    async with McpTools(hostile("die_once", str(flag), trust="friend")) as tools:
        answer = await tools.call("h__read")
        assert answer["ok"], answer
        assert flag.exists()
        assert len(tools.notices) == 1


async def test_a_server_killed_between_two_calls_does_both(tmp_path: Path) -> None:
    async with McpTools(hostile("plain")) as tools:
        assert (await tools.call("h__write"))["ok"]
        (process,) = servers()
        process.kill()
        process.wait(10)
        for _ in range(500):
            if tools._ending.ended:
                break
            await asyncio.sleep(0.01)
        assert (await tools.call("h__write"))["ok"]
        assert len(tools.notices) == 1
        (again,) = servers()
        again.kill()  # it answered since, so it is started once more
        again.wait(10)
        for _ in range(500):
            if tools._ending.ended:
                break
            await asyncio.sleep(0.01)
        assert (await tools.call("h__write"))["ok"]


async def test_a_message_without_end_ends_the_server() -> None:
    async with McpTools(hostile("huge_line")) as tools:
        answer = await tools.call("h__read")
        assert not answer["ok"]
        assert "more than 8388608 bytes" in tools.notices[0]


async def test_a_call_has_a_time_limit() -> None:
    async with McpTools(hostile("silent", timeout_s=0.3)) as tools:
        answer = await tools.call("h__read")
        assert not answer["ok"]
        assert "timed out" in answer["message"]
    assert servers() == []


async def test_a_server_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="the configuration is missing"):
        await McpTools(hostile("crash")).start()
    with pytest.raises(Unavailable, match="cannot be started"):
        await McpTools(McpServer(name="x", command=("/nonexistent/server",))).start()
    monkeypatch.setattr(mcp, "START_S", 1.0)
    with pytest.raises(Unavailable, match="no answer in 1 s"):
        await McpTools(hostile("mute")).start()
    assert servers() == []


async def test_noise_before_messages_is_passed_over() -> None:
    async with McpTools(hostile("noise")) as tools:
        assert (await tools.call("h__read"))["ok"]


async def test_a_cancelled_call_leaves_the_server_usable() -> None:
    async with McpTools(hostile("silent", timeout_s=60)) as tools:
        task = asyncio.create_task(tools.call("h__read"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        begun = time.monotonic()
    assert time.monotonic() - begun < 30
    assert servers() == []


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="not a valid name"):
        McpServer(name="a b", command=("x",))
    with pytest.raises(InputError, match="needs a command or a url"):
        McpServer(name="a")
    with pytest.raises(InputError, match="not an address"):
        McpServer(name="a", url="file:///etc/passwd")


async def test_secrets_of_our_environment_are_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    script = "import os,sys; sys.stderr.write(','.join(sorted(os.environ))); sys.exit(1)"
    with pytest.raises(Unavailable) as caught:
        await McpTools(McpServer(name="x", command=(sys.executable, "-c", script), env={"ZZZ": "1"})).start()
    assert "ZZZ" in str(caught.value)
    assert "ANTHROPIC" not in str(caught.value)


async def test_answers_over_http_are_bounded_and_redirects_not_followed() -> None:
    """A server that answers with too much is connected to again; one that points elsewhere is not obeyed."""
    begun = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "h", "version": "1"}}
    results: dict[str, Any] = {
        "initialize": begun,
        "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    }
    answers: list[Any] = [{"content": [{"type": "text", "text": "x" * (9 << 20)}]}, None, {"content": []}]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = re.search(rb"content-length: (\d+)", head.lower())
                message = json.loads(await reader.readexactly(int(size[1]))) if size else {}
                status, more, body = b"202 Accepted", b"", b""
                if not head.startswith(b"POST"):
                    status = b"405 No"
                elif "id" in message:
                    method = message["method"]
                    result = answers.pop(0) if method == "tools/call" else results[method]
                    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
                    status, more = b"200 OK", b"content-type: application/json\r\n"
                    if result is None:
                        status, more, body = b"307 There", b"location: http://127.0.0.1:1/\r\n", b""
                writer.write(
                    b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, more, len(body), body)
                )
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with McpTools(McpServer(name="h", url=f"http://127.0.0.1:{port}/mcp")) as tools:
            huge = await tools.call("h__t")
            assert "not known whether it was done" in huge["message"]
            assert len(tools.notices) == 1
            assert "not followed" in (await tools.call("h__t"))["message"]
            assert (await tools.call("h__t"))["ok"]
