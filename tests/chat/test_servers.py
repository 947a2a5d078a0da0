"""MCP servers that the settings of an agent name, at the doors of the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.chat.talk import Talker

HOSTILE = Path(__file__).parent.parent / "runtime" / "tool" / "hostile_server.py"
SETTINGS = f"""
[agent.scout.mcp.files]
command = ["{sys.executable}", "{HOSTILE}", "plain"]
trust = "partner"

[agent.scout.mcp.gone]
command = "/nonexistent/server"
"""


@pytest.mark.parametrize("door", ["chat", "code"])
def test_an_agent_has_the_servers_of_its_settings(talk: Talker, door: str) -> None:
    """The tool runs, and the server that does not start is reported beside the answer."""
    own = talk.home / ".config" / "dgent"
    own.mkdir(parents=True)
    (own / "config.toml").write_text(SETTINGS)
    model = talk.write_script({"calls": [{"name": "files__read", "arguments": {}}]}, "It is read.")
    task = ("-m", "read it") if door == "chat" else ("read it",)
    done = talk.run("--agent", "scout", door, *task, "--model", model, "--yes")
    assert (done.returncode, done.stdout) == (0, "It is read.\n"), done.stderr
    assert "✓ files__read" in done.stderr
    assert "the MCP server 'gone' did not start" in done.stderr


def test_a_wrong_server_is_said_at_once(talk: Talker) -> None:
    own = talk.home / ".config" / "dgent"
    own.mkdir(parents=True)
    (own / "config.toml").write_text("[agent.scout.mcp.files]\ntrust = 'friend'\n")
    done = talk.run("--agent", "scout", "chat", "-m", "hi", "--model", talk.write_script("x"))
    assert done.returncode == 3
    assert "'files' needs a command or a url" in done.stderr
