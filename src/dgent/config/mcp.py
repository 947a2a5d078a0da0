"""The settings of MCP servers: the tables `[agent.NAME.mcp.SERVER]` of the user's own file.

[agent.scout.mcp.files]
command = ["mcp-files", "~/notes"]

[agent.scout.mcp.tracker]
url = "https://tracker.example/mcp"
headers = { Authorization = "Bearer ${TRACKER_TOKEN}" }
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from dgent.config import file
from dgent.config.secret import mask
from dgent.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


class McpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server: its name, and either a command or an address of streamable HTTP.

    `trust` is that of its answers. `env` is added to the few variables that commands get.
    """

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    folder: str | None = None
    url: str = ""
    headers: Mapping[str, str] = {}
    trust: Literal["partner", "friend", "conversant", "untrusted"] = "untrusted"
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 60.0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"{self.name!r:.60} is not a valid name of a server",
                hint="use up to 32 letters, digits, _ and -",
                field="name",
            )
        if bool(self.command) == bool(self.url):
            raise InputError(f"the server {self.name!r} needs a command or a url", field="command")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise InputError(f"{mask(self.url)!r:.80} is not an address of HTTP", field="url")

    def __repr__(self) -> str:
        where = self.command[0] if self.command else mask(self.url)
        return f"McpServer({self.name!r}, {where!r})"  # keys may be in all of the rest


def read_servers(
    tables: Any, folder: Path, environment: Mapping[str, str] | None
) -> tuple[dict[str, Any], ...]:
    """Return tables of servers as what `McpServer` takes; ValueError says what is wrong, and shows no value.

    Variables are expanded in all texts, and `folder` is what a relative one is relative to.
    """
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise ValueError("has mcp, which must be tables such as [agent.scout.mcp.files]")
    made = []
    for name, table in tables.items():
        try:
            given = _expand(table, environment)
            given["command"] = split_command(given.get("command", ()))
        except ValueError as fault:
            raise ValueError(f"has the MCP server {name[:60]!r}, which {fault}") from None
        if isinstance(given.get("folder"), str):
            given["folder"] = str(folder / Path(given["folder"]).expanduser())
        made.append({**given, "name": name})
    return tuple(made)


def _expand(value: Any, environment: Mapping[str, str] | None) -> Any:
    """Return a value of TOML with the variables in all its texts replaced."""
    if isinstance(value, dict):
        return {name: _expand(each, environment) for name, each in value.items()}
    if isinstance(value, list):
        return [_expand(each, environment) for each in value]
    return file.expand_variables(value, environment)[0] if isinstance(value, str) else value


def split_command(command: Any) -> Any:
    """Return the words of a command that is one text or a list, with the home folder for ~/."""
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"has a command that cannot be split: {error}") from None
    if not isinstance(command, list):
        return command
    return [
        str(Path(each).expanduser()) if isinstance(each, str) and each.startswith("~/") else each
        for each in command
    ]
