"""Diagnostics of a language server, and servers that are silent, die, lie or do not end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dgent.errors import Unavailable
from dgent.runtime.code import language_server
from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.diagnose import diagnostics_tool
from dgent.runtime.code.language_server import Diagnostic, LanguageServer
from dgent.runtime.tool.tool import Toolset
from dgent.system.files import is_alive


def server_that(how: str, context: CodeContext) -> LanguageServer:
    """Return a server that behaves so, not started yet."""
    script = Path(__file__).with_name("server.py")
    return LanguageServer([sys.executable, "-IS", str(script), how], context.workspace)


@pytest.mark.parametrize("how", ["push", "pull"])
async def test_diagnostics_follow_the_file(context: CodeContext, root: Path, how: str) -> None:
    (root / "ü.py").write_text("fine\n  bad\n")
    async with server_that(how, context) as server:
        tools = Toolset([diagnostics_tool(context, server)])
        answer = await tools.call("diagnostics", {"path": "ü.py"})
        assert answer["data"]["diagnostics"] == [
            {"line": 2, "column": 3, "severity": "warning", "message": "bad word", "source": "", "code": ""}
        ]
        (root / "ü.py").write_text("fine\nbad\nbad\n")
        found = await server.diagnose("ü.py")
        assert found == [Diagnostic(line, 1, "warning", "bad word") for line in (2, 3)]
        process = server._process
        assert process is not None
        for path in ("missing.py", "../secret.txt"):
            assert not (await tools.call("diagnostics", {"path": path}))["ok"]
    assert not is_alive(process.pid)
    with pytest.raises(Unavailable, match=r"ended|not running"):
        await server.diagnose("ü.py")


@pytest.mark.parametrize(
    ("how", "words"),
    [("silent", "within 1 s"), ("garbage", "not its protocol"), ("huge", "not its protocol")],
)
async def test_a_server_that_does_not_begin_well_is_ended(context: CodeContext, how: str, words: str) -> None:
    server = server_that(how, context)
    with pytest.raises(Unavailable, match=words):
        await server.start(timeout=1 if how == "silent" else 30)
    assert server._process is None
    with pytest.raises(Unavailable, match="cannot be started"):
        await LanguageServer(["no-such-server-here"], context.workspace).start()


async def test_endless_output_is_bounded(context: CodeContext) -> None:
    with pytest.raises(Unavailable, match="not its protocol"):
        await server_that("endless", context).start()


async def test_a_server_that_dies_or_says_nothing_is_reported(context: CodeContext) -> None:
    async with server_that("dies", context) as server:
        with pytest.raises(Unavailable, match="ended"):
            await server.diagnose("notes.txt")
    async with server_that("mute", context) as server:
        with pytest.raises(Unavailable, match=r"no diagnostics within 0\.2 s"):
            await server.diagnose("notes.txt", timeout=0.2)


async def test_a_server_that_does_not_end_is_killed(
    context: CodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_server, "END_S", 0.2)
    async with server_that("stubborn", context) as server:
        process = server._process
        assert process is not None
    assert process.returncode == -9
