"""The tool diagnostics: the language servers of a workspace, one for each language, started when asked."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from dgent.config.command import command_environment
from dgent.errors import InputError, Unavailable
from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.language_server import Diagnostic, LanguageServer, find_language
from dgent.runtime.code.workspace import Workspace
from dgent.runtime.tool.function import function_tool
from dgent.runtime.tool.tool import Answer, Call, Tool

MAX_SHOWN = 200  # diagnostics
KNOWN: Mapping[str, Sequence[tuple[str, ...]]] = {
    "python": (("basedpyright-langserver", "--stdio"), ("pyright-langserver", "--stdio"), ("pylsp",)),
    "c": (("clangd",),),
    "cpp": (("clangd",),),
}
"""Servers that are used where they are installed: only those that do not run what a project brings along.

Others build the project, or load its plugins, as those of Rust and TypeScript do. They take a setting.
"""


def find_servers(
    configured: Mapping[str, Sequence[str]] | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the command of a server for each language: the one that is set, or one that is installed."""
    # A relative folder in the path would be one of the project.
    folders = command_environment(environment).get("PATH", "").split(os.pathsep)
    path = os.pathsep.join(each for each in folders if os.path.isabs(each))
    found = {
        language: next((each for each in known if shutil.which(each[0], path=path)), ())
        for language, known in KNOWN.items()
    }
    found |= {language: tuple(command) for language, command in (configured or {}).items()}
    return {language: command for language, command in found.items() if command}


class LanguageServers:
    """The language servers of a workspace, by language. Each starts with the first file of its language."""

    def __init__(self, workspace: Workspace, commands: Mapping[str, Sequence[str]]) -> None:
        self.workspace, self.commands = workspace, commands
        self._servers: dict[tuple[str, ...], LanguageServer] = {}
        self._failed: dict[tuple[str, ...], Unavailable] = {}
        self._lock = asyncio.Lock()

    async def diagnose(self, name: str, text: str | None = None) -> list[Diagnostic]:
        """Return the diagnostics of a file; InputError for a language without a server.

        One at a time: a server that ended is started again, one that did not start is left alone.
        """
        language = find_language(name)
        command = tuple(self.commands.get(language, ()))
        if not command:
            known = ", ".join(sorted(self.commands))
            raise InputError(f"there is no language server for {name!r}", hint=f"there is one for {known}")
        async with self._lock:
            if command in self._failed:
                raise self._failed[command]
            server = self._servers.get(command)
            if server is None or not server.running:
                server = await self._start(command)
            return await server.diagnose(name, text=text)

    async def _start(self, command: tuple[str, ...]) -> LanguageServer:
        if command in self._servers:
            await self._servers.pop(command).close()
        server = LanguageServer(command, self.workspace)
        try:
            await server.start()
        except Unavailable as error:
            self._failed[command] = error
            raise
        self._servers[command] = server
        return server

    async def close(self) -> None:
        """End all servers."""
        servers, self._servers = self._servers, {}
        await asyncio.gather(*(each.close() for each in servers.values()))


def diagnostics_tool(context: CodeContext, server: LanguageServer | LanguageServers) -> Tool:
    """Return the tool that asks a language server about a file."""

    async def diagnostics(path: Annotated[str, "the file, relative to the workspace"], call: Call) -> Answer:
        """Return errors and warnings that the language server finds in a file."""
        name, state = await context.read("diagnostics", path, call)
        found = await server.diagnose(name, text=state.text)
        count = f"{len(found)} found in {name}" if found else f"nothing found in {name}"
        rows = [msgspec.to_builtins(each) for each in found[:MAX_SHOWN]]
        return {"ok": True, "message": count, "data": {"path": name, "diagnostics": rows}}

    return function_tool(diagnostics, effect="read", kind="read")
