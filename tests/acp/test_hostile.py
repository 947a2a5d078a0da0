"""What editors and the world do wrong: odd lines, unknown sessions, an editor that is gone, kill -9."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import acp
import pytest

import dgent
from dgent.messages.messages import Messages
from tests.acp.editor import call, command, start, write_script
from tests.mcp import host

HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


class Pipe:
    """The process with its raw lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def write(self, *lines: bytes | dict[str, Any]) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        await self.process.stdin.drain()

    async def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), 60)
        made: dict[str, Any] = json.loads(line)
        return made

    async def find(self, id: Any) -> dict[str, Any]:
        while (found := await self.read()).get("id", ...) != id:
            pass
        return found


async def open_pipe(folder: Path, steps: list[Any], *words: str) -> Pipe:
    script = write_script(folder / "script.jsonl", steps)
    process = await asyncio.create_subprocess_exec(
        *command(folder, script, *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=host.environment(folder),
        limit=1 << 26,
    )
    return Pipe(process)


async def test_odd_lines_are_answered_and_the_rest_goes_on(tmp_path: Path) -> None:
    pipe = await open_pipe(tmp_path, [{"text": "hi"}])
    odd = [b"{", b"[1, 2]", b"5", b"null", b'"x"', b'{"id": {}, "method": 5}', b"\xff\xfe", b"[" * 100_000]
    for line in odd:
        await pipe.write(line)
        answer = await pipe.read()
        assert answer["id"] is None
        assert answer["error"]["code"] in (-32700, -32600)
    await pipe.write(b"", b"   ", {"jsonrpc": "2.0", "id": 7}, {"jsonrpc": "2.0", "method": "nope"})
    await pipe.write({"jsonrpc": "2.0", "id": 8, "method": "nope/nope"})
    assert (await pipe.find(8))["error"]["code"] == -32601
    for number, params in enumerate((None, [], {"cwd": 5}, {"cwd": "relative", "mcpServers": []}), 20):
        await pipe.write({"jsonrpc": "2.0", "id": number, "method": "session/new", "params": params})
        assert (await pipe.find(number))["error"]["code"] == -32602
    await pipe.write(HELLO)
    assert (await pipe.find(1))["result"]["protocolVersion"] == 1
    _, errors = await asyncio.wait_for(pipe.process.communicate(b""), 60)
    assert pipe.process.returncode == 0, errors


async def test_a_line_without_end_ends_the_program(tmp_path: Path) -> None:
    pipe = await open_pipe(tmp_path, [])
    with pytest.raises((ConnectionError, BrokenPipeError)):
        for _ in range(40):
            assert pipe.process.stdin is not None
            pipe.process.stdin.write(b"x" * (1 << 20))
            await pipe.process.stdin.drain()
        await asyncio.wait_for(pipe.process.wait(), 60)
        raise ConnectionError
    assert (await pipe.read())["error"]["code"] == -32700
    await asyncio.wait_for(pipe.process.communicate(b""), 60)


async def test_unknown_sessions(tmp_path: Path) -> None:
    async with start(tmp_path, []) as editor:
        for id in ("", "unknown", "x" * 5_000, "../../etc/passwd", "a\x00b"):
            with pytest.raises(acp.RequestError):
                await editor.prompt(id, "hi")
            with pytest.raises(acp.RequestError):
                await editor.agent.load_session(session_id=id, cwd=str(tmp_path), mcp_servers=[])
            with pytest.raises(acp.RequestError):
                await editor.agent.close_session(session_id=id)


async def test_sessions_of_another_agent_are_not_shown(tmp_path: Path) -> None:
    async with start(tmp_path, []) as editor:
        session = (await editor.agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
    async with start(tmp_path, [], "--agent", "other") as editor:
        assert (await editor.agent.list_sessions()).sessions == []
        with pytest.raises(acp.RequestError, match="has no session"):
            await editor.agent.load_session(session_id=session, cwd=str(tmp_path), mcp_servers=[])


async def test_the_editor_goes_in_the_middle(tmp_path: Path) -> None:
    """The turn is interrupted, durably, the program ends by itself, and nothing of it is lost."""
    pipe = await open_pipe(tmp_path, [{"text": "word " * 200, "pause_s": 0.2}])
    await pipe.write(HELLO, {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": _new(tmp_path)})
    session = (await pipe.find(2))["result"]["sessionId"]
    params = {"sessionId": session, "prompt": [{"type": "text", "text": "tell me"}]}
    await pipe.write({"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": params})
    while (await pipe.read()).get("params", {}).get("update", {}).get(
        "sessionUpdate"
    ) != "agent_message_chunk":
        pass
    await asyncio.wait_for(pipe.process.communicate(b""), 60)
    assert pipe.process.returncode == 0
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as u:
        (batch,) = await Messages(u, "coder").list_batches()
        assert (batch.state, batch.session) == ("interrupted", session)


async def test_killed_and_loaded_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n")
    steps = [call("edit", path="a.txt", old="1", new="2"), {"text": "word " * 200, "pause_s": 0.2}]
    async with start(tmp_path, steps, "--mode", "auto") as editor:
        session = (await editor.agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        task = asyncio.create_task(editor.prompt(session, "make it 2"))
        await editor.wait(editor.text)
        editor.process.send_signal(signal.SIGKILL)
        with pytest.raises((ConnectionError, acp.RequestError)):
            await task
    async with start(tmp_path, [{"text": "It is 2 now."}], "--mode", "auto") as editor:
        await editor.agent.load_session(session_id=session, cwd=str(tmp_path), mcp_servers=[])
        assert editor.text("user_message_chunk") == "make it 2"
        assert [each.status for each in editor.of("tool_call_update")] == ["completed"]
        editor.updates.clear()
        assert (await editor.prompt(session, "/resume")).stop_reason == "end_turn"
        assert editor.text() == "It is 2 now."
        await editor.prompt(session, "/resume")
        assert "nothing to resume" in editor.text()
    assert (tmp_path / "a.txt").read_text() == "2\n"


async def test_paths_outside_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "inside"
    root.mkdir()
    (tmp_path / "secret").write_text("s3cret")
    (root / "link").symlink_to(tmp_path / "secret")
    steps = [call("read", path=path) for path in ("../secret", str(tmp_path / "secret"), "link")]
    async with start(tmp_path, [*steps, {"text": "no"}], "--mode", "auto") as editor:
        session = (await editor.agent.new_session(cwd=str(root), mcp_servers=[])).session_id
        await editor.prompt(session, "read it")
        ends = editor.of("tool_call_update")
        assert [each.status for each in ends] == ["failed"] * 3
        assert "s3cret" not in str(ends)


async def test_without_a_model_it_says_so(tmp_path: Path) -> None:
    words = host.own_command("--url", f"sqlite:///{tmp_path}/s.db", "acp")
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=host.environment(tmp_path)
    )
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out) == (3, b"")
    assert b"--model" in errors


def _new(folder: Path) -> dict[str, Any]:
    return {"cwd": str(folder), "mcpServers": []}
