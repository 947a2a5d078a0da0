"""Commands: limits on time and output, a clean end, and an environment without secrets."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dgent.runtime.code import run
from dgent.runtime.tool.tool import Toolset
from dgent.system.files import is_alive


async def test_a_command_gives_its_code_and_output(tools: Toolset, root: Path) -> None:
    answer = await tools.call("run", {"command": "cat - missing", "input": "given", "path": "src"})
    assert answer["ok"] is False
    assert answer["data"]["exit_code"] == 1
    assert answer["data"]["output"].startswith("given")
    assert "missing" in answer["data"]["output"]
    where = await tools.call("run", {"command": "pwd", "path": "src"})
    assert where["data"]["output"] == f"{root.resolve()}/src\n"
    both = await tools.call("run", {"command": "echo a | tr a b; printf '\\377\\0'", "shell": True})
    assert both["data"]["output"] == "b\n\\xff\\x00"


@pytest.mark.parametrize(
    "command", ["", " ", "a\0b", "echo 'open", "ls | wc", "no-such-program-here", "x" * 30_000]
)
async def test_commands_that_cannot_run_are_answers(tools: Toolset, command: str) -> None:
    answer = await tools.call("run", {"command": command})
    assert answer["ok"] is False
    assert answer["data"]["hint"] or answer["data"]["code"] == "input"
    assert not (await tools.call("run", {"command": "true", "timeout": float("nan")}))["ok"]


async def test_secrets_stay_out_of_the_environment(tools: Toolset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("LD_PRELOAD", "")
    output = (await tools.call("run", {"command": "env"}))["data"]["output"]
    assert "PATH=" in output
    assert "sk-secret" not in output
    assert "LD_PRELOAD" not in output


async def test_endless_output_is_cut_and_ended(tools: Toolset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MAX_WRITTEN", 1_000_000)
    answer = await tools.call("run", {"command": "yes"})
    assert answer["message"] == "ended: it wrote more than 1000000 bytes"
    output = answer["data"]["output"]
    assert "bytes are left out" in output
    assert len(output) < 41_000
    program = "import sys; sys.stdout.write('begin' + 'x' * 500_000 + 'end')"
    answer = await tools.call("run", {"command": f'{sys.executable} -c "{program}"'})
    assert answer["ok"]
    assert answer["data"]["output"].startswith("begin")
    assert answer["data"]["output"].endswith("end")


async def test_a_command_that_ignores_the_signal_ends_with_all_it_started(
    tools: Toolset, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "GRACE_S", 0.2)
    command = "trap '' TERM; sleep 60 & echo $! > child; echo $$ > parent; wait; sleep 60"
    answer = await tools.call("run", {"command": command, "shell": True, "timeout": 0.5})
    assert answer["message"] == "ended: it took longer than 0.5 s"
    assert answer["data"]["exit_code"] == -9
    assert answer["data"]["seconds"] < 20
    for name in ("parent", "child"):
        assert await _ends(int((root / name).read_text()))


async def test_what_a_command_leaves_running_is_ended_with_it(tools: Toolset, root: Path) -> None:
    answer = await tools.call("run", {"command": "sleep 60 & echo $! > child", "shell": True})
    assert answer["ok"]
    assert answer["data"]["seconds"] < 20
    assert await _ends(int((root / "child").read_text()))


async def test_a_cancelled_call_ends_its_command(tools: Toolset, root: Path) -> None:
    call = asyncio.ensure_future(
        tools.call("run", {"command": "echo $$ > pid; exec sleep 60", "shell": True})
    )
    while not (root / "pid").exists() or not (root / "pid").read_text():
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await _ends(int((root / "pid").read_text()))


async def test_no_descriptor_is_left_open(tools: Toolset) -> None:
    await tools.call("run", {"command": "true"})
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await tools.call("run", {"command": "true"})
        await tools.call("run", {"command": "no-such-program-here"})
        await tools.call("read", {"path": "notes.txt"})
        await tools.call("read", {"path": "src"})
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) <= before


async def _ends(pid: int) -> bool:
    """Wait until a process is gone, or a zombie that nobody has asked after."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z" or not is_alive(pid):
            return True
        await asyncio.sleep(0.02)
    return False
