"""Hosts of agents: which file lists a host's servers, and in what form."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dgent.config.places import home_folder
from dgent.errors import ConfigError, InputError


class Host(NamedTuple):
    """A host: the key of its servers, its file in a project if it reads one, and whether it wants a type."""

    title: str
    key: str
    project: str | None = None
    typed: bool = False
    toml: bool = False


HOSTS = {
    "claude-code": Host("Claude Code", "mcpServers", ".mcp.json", typed=True),
    "claude-desktop": Host("Claude Desktop", "mcpServers"),
    "cursor": Host("Cursor", "mcpServers", ".cursor/mcp.json", typed=True),
    "vscode": Host("VS Code", "servers", ".vscode/mcp.json", typed=True),
    "zed": Host("Zed", "context_servers"),
    "codex": Host("Codex", "mcp_servers", ".codex/config.toml", toml=True),
}


def project_file(name: str, folder: Path) -> Path:
    """Return the file of a host in a project; InputError if it reads none."""
    host = HOSTS[name]
    if host.project is None:
        raise InputError(f"{host.title} reads no file of a project", hint="leave out --project")
    return folder / host.project


def user_file(name: str, environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path:
    """Return the file of a host in the user's home, which may not exist."""
    env = os.environ if environment is None else environment
    home = home_folder(environment)
    if home is None:
        raise ConfigError("no home folder is set", hint="set HOME to an absolute path")
    if name == "claude-code":
        return _folder(env, "CLAUDE_CONFIG_DIR", home) / ".claude.json"
    if name == "cursor":
        return home / ".cursor" / "mcp.json"
    if name == "codex":
        return _folder(env, "CODEX_HOME", home / ".codex") / "config.toml"
    config = _folder(env, "XDG_CONFIG_HOME", home / ".config")
    if platform == "win32":
        config = _folder(env, "APPDATA", home / "AppData" / "Roaming")
    if name == "zed":
        return config / ("Zed" if platform == "win32" else "zed") / "settings.json"
    if platform == "darwin":
        config = home / "Library" / "Application Support"
    if name == "vscode":
        return config / "Code" / "User" / "mcp.json"
    return config / "Claude" / "claude_desktop_config.json"


def _folder(env: Mapping[str, str], variable: str, usual: Path) -> Path:
    chosen = env.get(variable, "")
    return Path(chosen) if os.path.isabs(chosen) else usual
