"""Language servers of a workspace: found, set, started when asked, and a real one at work."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

import dgent
from dgent.config.agent import AgentSettings
from dgent.errors import InputError, Unavailable
from dgent.runtime.code import diagnose
from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.diagnose import LanguageServers, find_servers
from dgent.runtime.code.language_server import LanguageServer
from dgent.runtime.code.task import CodingAgent
from dgent.runtime.code.toolset import code_tools
from dgent.runtime.event import ToolFinished
from dgent.runtime.model.script import ScriptedModel
from dgent.system.files import is_alive

SCRIPT = str(Path(__file__).with_name("server.py"))
REAL = Path(sys.prefix) / "bin" / "basedpyright-langserver"


def scripted(how: str) -> tuple[str, ...]:
    return (sys.executable, "-IS", SCRIPT, how)


def make_program(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


def test_servers_are_found_in_the_path_and_settings_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pylsp", "clangd", "rust-analyzer"):
        make_program(tmp_path / "bin", name)
    env = {"PATH": f"/nowhere:{tmp_path / 'bin'}"}
    assert find_servers(None, env) == {"python": ("pylsp",), "c": ("clangd",), "cpp": ("clangd",)}
    make_program(tmp_path / "bin", "basedpyright-langserver")
    assert find_servers(None, env)["python"] == ("basedpyright-langserver", "--stdio")
    configured = AgentSettings(language_servers={"rust": ("rust-analyzer",), "c": ()}).language_servers
    found = find_servers(configured, env)
    assert found["rust"] == ("rust-analyzer",)
    assert "c" not in found
    assert find_servers(None, {}) == {}
    for relative in (f"bin{os.pathsep}", "", "."):  # a project could bring a program of that name
        assert find_servers(None, {"PATH": relative}) == {}


async def test_a_server_starts_when_asked_and_again_when_it_ended(context: CodeContext, root: Path) -> None:
    (root / "b.py").write_text("bad\n")
    servers = LanguageServers(context.workspace, {"python": scripted("push")})
    tools = code_tools(context, servers)
    assert "diagnostics" in tools.tools and "diagnostics" not in code_tools(context).tools
    assert servers._servers == {}
    answers = await asyncio.gather(*(tools.call("diagnostics", {"path": "b.py"}) for _ in range(3)))
    assert [each["message"] for each in answers] == ["1 found in b.py"] * 3
    (server,) = servers._servers.values()
    process = server._process
    assert process is not None
    process.kill()
    await process.wait()
    assert (await servers.diagnose("b.py"))[0].message == "bad word"
    assert await servers.diagnose("b.py", "fine\n") == []  # as an editor has it, not saved
    with pytest.raises(InputError, match="no language server for"):
        await servers.diagnose("notes.txt")
    (server,) = servers._servers.values()
    assert server._process is not None
    pid = server._process.pid
    await servers.close()
    assert not is_alive(pid)


async def test_one_that_does_not_start_is_not_waited_for_twice(
    context: CodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[LanguageServer] = []

    class Counted(LanguageServer):
        async def start(self, timeout: float = 0.3) -> None:
            started.append(self)
            await super().start(timeout)

    monkeypatch.setattr(diagnose, "LanguageServer", Counted)
    servers = LanguageServers(context.workspace, {"python": scripted("silent")})
    for _ in range(2):
        with pytest.raises(Unavailable, match="did not answer initialize"):
            await servers.diagnose("src/a.py")
    assert len(started) == 1
    await servers.close()


async def test_a_coding_agent_with_a_real_server(root: Path) -> None:
    (root / "b.py").write_text("x: int = 'text'\nprint(y)\n")
    ask = {"calls": [{"name": "diagnostics", "arguments": {"path": "b.py"}}]}
    model = ScriptedModel([ask, "two"])
    commands = {"python": (str(REAL), "--stdio")}
    async with dgent.open("memory:") as u:
        async with CodingAgent(
            u, "coder", root, model=model, mode="plan", language_servers=commands
        ) as coder:
            assert "(python)" in (await coder.runtime.context())["instructions"].text
            found = [each async for each in coder.work("look")]
            (done,) = [each for each in found if isinstance(each, ToolFinished)]
            assert not done.error, done.text
            assert "y" in done.text and "is not assignable" in done.text
            (server,) = coder._servers._servers.values() if coder._servers else ()
            assert await server.diagnose("b.py", text="x = 1\nprint(x)\n") == []
            changed = await server.diagnose("b.py", text="\nprint(zebra)\n")
            assert (2, 7, "error") in {(each.line, each.column, each.severity) for each in changed}
            pid = server._process.pid if server._process else 0
        assert not is_alive(pid)
