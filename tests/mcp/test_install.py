"""The configuration of hosts: dgent is written into it and taken out, and nothing else changes."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters

from dgent.config import hosts
from dgent.doors.mcp import install
from dgent.errors import ConfigError, InputError
from tests.cli.terminal import Terminal
from tests.mcp.host import connect, environment

HOSTS = list(hosts.HOSTS)
PROJECT = [name for name, host in hosts.HOSTS.items() if host.project]
WRONG = {"claude-code": '{\n"a": 1,\n', "zed": "{\n// x\nfalse\n}", "codex": "a = 1\nb = \n"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal(tmp_path, monkeypatch)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    for variable in ("CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(variable, raising=False)
    return terminal


def place(host: str, home: Path) -> Path:
    return hosts.user_file(host, {"HOME": str(home)})


def read(path: Path, host: str) -> dict[str, Any]:
    text = path.read_text()
    table: dict[str, Any] = tomllib.loads(text) if hosts.HOSTS[host].toml else json.loads(text)
    return table


def change(path: Path, host: str, *words: str, name: str = "dgent", project: Path | None = None) -> bool:
    kind = hosts.HOSTS[host]
    return install.change(path, kind, name, install.entry(kind, words) if words else None, project)


@pytest.mark.parametrize("host", HOSTS)
async def test_the_host_starts_the_server(tmp_path: Path, run: Terminal, host: str) -> None:
    """A host that reads the file gets a working server, with the store that was named."""
    said = run("--url", "sqlite:///s.db", "--agent", "ann", "mcp", "install", host, "--tools", "memory")
    assert (said.code, said.err) == (0, "")
    path = place(host, tmp_path)
    entry = read(path, host)[hosts.HOSTS[host].key]["dgent"]
    assert entry.get("type") == ("stdio" if hosts.HOSTS[host].typed else None)
    assert os.path.isabs(entry["command"]) and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (
        "already"
        in run("--url", "sqlite:///s.db", "--agent", "ann", "mcp", "install", host, "--tools", "memory").out
    )
    if host == "cursor":
        server = StdioServerParameters(
            command=entry["command"], args=entry["args"], env=environment(tmp_path), cwd=tmp_path
        )
        async with connect(server) as client:
            await client.do("block", operation="create", label="notes", text="x")
        assert (tmp_path / "project" / "s.db").exists()
    assert run("mcp", "uninstall", host, "--json").data == {
        "host": host,
        "path": str(path),
        "changed": True,
    }
    assert not read(path, host).get(hosts.HOSTS[host].key)


@pytest.mark.parametrize("host", HOSTS)
def test_print_changes_nothing(tmp_path: Path, run: Terminal, host: str) -> None:
    said = run("mcp", "install", host, "--print")
    table = tomllib.loads(said.out) if hosts.HOSTS[host].toml else json.loads(said.out)
    assert table[hosts.HOSTS[host].key]["dgent"]["args"][-1] == "mcp"
    assert str(place(host, tmp_path)) in said.err and not place(host, tmp_path).exists()


@pytest.mark.parametrize("host", HOSTS)
def test_project(tmp_path: Path, run: Terminal, host: str) -> None:
    said = run("mcp", "install", host, "--project")
    if host not in PROJECT:
        assert said.code == 2 and "reads no file of a project" in said.err
        return
    path = hosts.project_file(host, tmp_path / "project")
    assert path.exists() and not place(host, tmp_path).exists()
    said = run("--url", "postgresql://me:secret@db/x", "mcp", "install", host, "--project")
    assert said.code == 2 and "password" in said.err and "secret" not in path.read_text() + said.err


ZED = """// Settings of mine
{
  "theme": "One", // dark
  /* servers */
  "context_servers": {
    "other": { "command": "x", "args": [], }, // keep
  },
}
"""
CODEX = """model = "o"  # the model

[mcp_servers.other]
command = "x"
args = [
  "[mcp_servers.dgent]",
]

[mcp_servers.other.env]
A = "1"

# profiles
[[profiles]]
name = "a"
"""


@pytest.mark.parametrize(("host", "text"), [("zed", ZED), ("codex", CODEX), ("codex", CODEX.rstrip("\n"))])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_all_else_stays(tmp_path: Path, host: str, text: str, newline: str, mark: str) -> None:
    path = tmp_path / "file"
    old = (mark + text.replace("\n", newline)).encode()
    path.write_bytes(old)
    path.chmod(0o644)
    assert change(path, host, "/bin/dgent", "mcp")
    new = path.read_bytes()
    assert not change(path, host, "/bin/dgent", "mcp"), "it is there"
    pieces = new.decode().split('"other"' if host == "zed" else "# profiles")
    assert old.decode().startswith(pieces[0]) and len(new) > len(old)
    assert change(path, host, "/bin/dgent", "mcp", "--tools", "all") and change(
        path, host, "/bin/dgent", "mcp"
    )
    assert path.read_bytes() == new, "changed and changed back"
    assert change(path, host, "/b", name="second") and change(path, host, name="second")
    assert path.read_bytes() == new
    assert change(path, host) and not change(path, host)
    assert path.read_bytes().rstrip() == old.rstrip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644, "a file that was there keeps its permissions"


def test_what_the_user_added_to_the_entry_stays(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"dgent": {"command": "old", "env": {"A": "1"}}}}')
    assert change(path, "cursor", "/new", "mcp")
    assert read(path, "cursor")["mcpServers"]["dgent"] == {
        "command": "/new",
        "env": {"A": "1"},
        "type": "stdio",
        "args": ["mcp"],
    }
    path = tmp_path / "config.toml"
    path.write_text(
        '[mcp_servers.dgent]\nstartup_timeout_sec = 9\ncommand = "old" # mine\n\n'
        '[mcp_servers.dgent.env]\nA = "1"\n\n[other]\n'
    )
    assert change(path, "codex", "/new", "mcp")
    assert '\ncommand = "/new" # mine\n' in path.read_text()
    assert read(path, "codex")["mcp_servers"]["dgent"] == {
        "startup_timeout_sec": 9,
        "command": "/new",
        "args": ["mcp"],
        "env": {"A": "1"},
    }
    assert change(path, "codex") and read(path, "codex") == {"other": {}}


@pytest.mark.parametrize("host", WRONG)
def test_a_file_that_is_not_understood_stays(tmp_path: Path, run: Terminal, host: str) -> None:
    path = place(host, tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(WRONG[host])
    for words in (("install", host), ("uninstall", host)):
        said = run("mcp", *words, "--json")
        assert said.error["code"] == "config" and f"{path}, line " in said.error["error"]
    assert path.read_text() == WRONG[host]


@pytest.mark.parametrize(
    ("host", "text", "reason"),
    [
        ("cursor", '{"mcpServers": {"dgent": {"url": "http://x"}}}', "at an address"),
        ("cursor", '{"mcpServers": []}', "not an object"),
        ("cursor", "3", "not an object"),
        ("codex", 'mcp_servers = {other = {command = "x"}}', "only an editor"),
        ("codex", 'mcp_servers.dgent.command = "x"', "only an editor"),
        ("cursor", "\udcff", "not UTF-8"),
    ],
)
def test_refused(tmp_path: Path, host: str, text: str, reason: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(text.encode(errors="surrogateescape"))
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=reason):
        change(path, host, "/bin/dgent")
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["file"]


def test_links(tmp_path: Path) -> None:
    """A link in the home stays one; in a project none is followed."""
    real, link = tmp_path / "dotfiles.json", tmp_path / "home" / "mcp.json"
    real.write_text("{}")
    link.parent.mkdir()
    link.symlink_to(real)
    assert change(link, "cursor", "/bin/dgent") and link.is_symlink() and "dgent" in real.read_text()
    project = tmp_path / "project"
    project.mkdir()
    (project / ".cursor").symlink_to(tmp_path / "home")
    before = real.read_text()
    for words in (("/bin/other",), ()):
        with pytest.raises(ConfigError, match="link"):
            change(project / ".cursor" / "mcp.json", "cursor", *words, project=project)
    assert real.read_text() == before


@pytest.mark.parametrize("name", ["", "a.b", "a b", "x" * 65, "]\n[x"])
def test_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="not a valid name"):
        change(tmp_path / "file", "codex", "/bin/dgent", name=name)
    with pytest.raises(InputError, match="variable"):
        change(tmp_path / "file", "codex", "/bin/${HOME}")
    with pytest.raises(InputError, match="not valid text"):
        change(tmp_path / "file", "codex", "/bin/\udcff")
    assert change(tmp_path / "file", "codex", '/a "b"\\c\n\x7fü', "'")
    assert read(tmp_path / "file", "codex")["mcp_servers"]["dgent"]["command"] == '/a "b"\\c\n\x7fü'


def test_options_of_http_are_not_for_a_host(run: Terminal) -> None:
    said = run("mcp", "--http", "install", "zed")
    assert said.code == 2 and "--http" in said.err
    assert "partner" in run("mcp", "--trust", "partner", "install", "zed", "--print").out
    assert "partner" in run("mcp", "install", "zed", "--print", "--trust", "partner").out
    assert run("mcp", "install", "emacs").code == 2
    said = run("mcp", "--compat", "memory-server", "--import", "m.jsonl", "install", "zed", "--print")
    (entry,) = json.loads(said.out)["context_servers"].values()
    assert entry["args"][-4:] == ["--compat", "memory-server", "--import", str(Path.cwd() / "m.jsonl")]


@pytest.mark.parametrize(
    ("host", "linux", "mac", "windows"),
    [
        ("claude-code", ".claude.json", ".claude.json", ".claude.json"),
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
            "Library/Application Support/Claude/claude_desktop_config.json",
            "AppData/Roaming/Claude/claude_desktop_config.json",
        ),
        ("cursor", ".cursor/mcp.json", ".cursor/mcp.json", ".cursor/mcp.json"),
        (
            "vscode",
            ".config/Code/User/mcp.json",
            "Library/Application Support/Code/User/mcp.json",
            "AppData/Roaming/Code/User/mcp.json",
        ),
        (
            "zed",
            ".config/zed/settings.json",
            ".config/zed/settings.json",
            "AppData/Roaming/Zed/settings.json",
        ),
        ("codex", ".codex/config.toml", ".codex/config.toml", ".codex/config.toml"),
    ],
)
def test_places(host: str, linux: str, mac: str, windows: str) -> None:
    for platform, usual in {"linux": linux, "darwin": mac, "win32": windows}.items():
        assert hosts.user_file(host, {"HOME": "/home/a"}, platform) == Path("/home/a") / usual
    elsewhere = {"HOME": "/h", "CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/c", "XDG_CONFIG_HOME": "relative"}
    assert str(hosts.user_file("codex", elsewhere)) == "/c/config.toml"
    assert str(hosts.user_file("claude-code", elsewhere)) == "/c/.claude.json"
    assert str(hosts.user_file("zed", elsewhere, "linux")) == "/h/.config/zed/settings.json"


def test_the_command_needs_no_folder() -> None:
    """Started in a folder with modules of the same names, it is still this dgent."""
    words = install.command()
    assert os.path.isabs(words[0]) and (words[0] != sys.executable or words[1] == "-P")
