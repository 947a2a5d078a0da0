"""The settings of agents: the tables `[agent.NAME]` of the user's own file.

    [agent.scout]
    model = "anthropic:claude-sonnet-5-5"
    instructions_file = "scout.md"
    tools = ["blocks", "cupboard"]
    rules = [{ rule = "consent", tools = ["data.delete"] }]

    [agent.scout.mcp.files]
    command = ["mcp-files"]

A project's file cannot have them: a model's server gets the user's key, instructions the user's trust, and
programs are started.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from dgent.config import file
from dgent.config.mcp import McpServer, read_servers, split_command
from dgent.errors import ConfigError

if TYPE_CHECKING:
    from dgent.config.settings import Settings

MAX_INSTRUCTIONS = 200_000  # bytes of a file with instructions
_EXPANDED = ("model", "url", "key")  # options that may be a variable

Count = Annotated[int, msgspec.Meta(ge=1)]


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one agent; None is the runtime's default.

    `url` and `key` are for the provider of the model. `tools` are rooms of the store or single tools. The
    limits `calls`, `tokens` and `cost` (in US dollars) are for one turn. `language_servers` has commands by
    language, in place of those that are found; an empty one is none.
    """

    model: str | None = None
    fallback: tuple[str, ...] = ()
    url: str | None = None
    key: str | None = None
    instructions: str = ""
    instructions_file: str | None = None
    tools: tuple[str, ...] | None = None
    mcp: tuple[McpServer, ...] = ()
    language_servers: dict[str, tuple[str, ...]] = {}
    rules: tuple[dict[str, Any], ...] = ()
    window: Count | None = None
    answer: Count | None = None
    temperature: float | None = None
    thinking: bool | str | None = None
    calls: Count | None = None
    tokens: Count | None = None
    cost: float | None = None

    def __repr__(self) -> str:
        shown = msgspec.structs.asdict(self) | ({"key": "***"} if self.key else {})
        return f"AgentSettings({', '.join(f'{name}={value!r}' for name, value in shown.items() if value)})"

    def read_instructions(self) -> str:
        """Return the instructions: the text, then that of the file; ConfigError if it cannot be read."""
        if self.instructions_file is None:
            return self.instructions
        path = Path(self.instructions_file)
        if not path.exists():
            raise ConfigError(f"there are no instructions at {path}", hint="correct instructions_file")
        text = file.read(path, MAX_INSTRUCTIONS)
        return f"{self.instructions}\n\n{text}".strip()


def find_agent(settings: Settings, name: str) -> AgentSettings:
    """Return the settings of an agent, the usual ones if it has no table; ConfigError where that is wrong."""
    tables = settings.agent_tables
    try:
        if not isinstance(tables, dict):
            raise ValueError("must be tables such as [agent.scout]")
        found = _read_agent(tables[name], settings) if name in tables else AgentSettings()
    except ValueError as fault:
        raise ConfigError(f"agent.{name} in {settings.user} {fault}", hint="correct it there") from None
    model = settings.values["model"].value
    return found if found.model or not model else msgspec.structs.replace(found, model=model)


def list_agents(settings: Settings) -> list[str]:
    """Return the names of the agents that have settings of their own."""
    return sorted(settings.agent_tables) if isinstance(settings.agent_tables, dict) else []


def _read_agent(table: Any, settings: Settings) -> AgentSettings:
    """Return the settings in a table; ValueError says what is wrong, and shows no value."""
    if not isinstance(table, dict):
        raise ValueError("must be a table such as [agent.scout]")
    given = dict(table)
    for option in _EXPANDED:
        if isinstance(given.get(option), str):
            given[option] = file.expand_variables(given[option], settings.environment)[0]
    if isinstance(given.get("instructions_file"), str):
        given["instructions_file"] = str(settings.user.parent / Path(given["instructions_file"]).expanduser())
    if "mcp" in given:
        given["mcp"] = read_servers(given["mcp"], settings.user.parent, settings.environment)
    if isinstance(given.get("language_servers"), dict):
        given["language_servers"] = {
            language: split_command(command) for language, command in given["language_servers"].items()
        }
    try:
        return msgspec.convert(given, AgentSettings)
    except msgspec.ValidationError as error:
        # The message of msgspec names the field and the type, and never shows the value.
        raise ValueError(f"is wrong: {error}") from None
