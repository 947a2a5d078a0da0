"""Import an agent file of Letta (`.af`): blocks, messages and passages; the rest is kept as records.

Ids follow from contents, since the file numbers its messages anew each time it is written. So a run that was
interrupted is simply repeated, and a later file of the same agent adds what is new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dgent.blocks import Library
from dgent.blocks.context import archive
from dgent.blocks.errors import BlockNotFound
from dgent.errors import DgentError, InputError
from dgent.exchange.foreign.database import parse_moment
from dgent.exchange.foreign.letta_messages import MessageImport
from dgent.exchange.foreign.migration import (
    DIFFERENT,
    FORGOTTEN,
    Migration,
    MigrationTally,
    find_forgotten,
    is_same_data,
    read_json_file,
)
from dgent.model.datum import Datum
from dgent.model.schema import Schema
from dgent.system.progress import Progress, ProgressReporter
from dgent.universe.universe import Universe

KEPT: Schema[Any] = Schema("letta.part", indexes=("kind", "agent"))
SECRETS = ("tool_exec_environment_variables", "secrets", "mcp_servers")
PARTS = ("tools", "groups", "sources", "files", "files_agents", "skills")
NOTE = "import from Letta"


async def import_letta(
    universe: Universe,
    path: Path,
    *,
    agent: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Migration:
    """Import the agents of a file, which stays as it is; `agent` renames the one of a file with one agent."""
    given = await read_json_file(path)
    if not isinstance(given, dict):
        raise InputError(f"{path} is not an agent file: it is not a JSON object", field="source")
    agents, blocks = _find_agents(given, path)
    if agent is not None:
        if len(agents) > 1:
            raise InputError(f"{path} has {len(agents)} agents", hint="leave the name out", field="name")
        agents[0]["name"] = agent
    universe.register(KEPT)
    run = _Import(universe, dry_run, ProgressReporter(progress, None))
    for each in agents:
        await run.take_agent(each, blocks, alone=len(agents) == 1)
    run.leave_unused(blocks)
    for kind in (*PARTS, "mcp_servers"):
        await run.keep_all(kind, given.get(kind) if "agents" in given else None)
    run.pace.end()
    return run.tally.done(str(path), dry_run)


def _find_agents(given: dict[str, Any], path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the agents of a file, and its blocks by their ids; those of the older format are inside."""
    agents = given.get("agents")
    if isinstance(agents, list):
        listed = given.get("blocks")
        rows = listed if isinstance(listed, list) else []
        return [each for each in agents if isinstance(each, dict)], {
            str(block.get("id")): block for block in rows if isinstance(block, dict)
        }
    if isinstance(given.get("core_memory"), list) or isinstance(given.get("messages"), list):
        return [given], {}
    raise InputError(f"{path} is not an agent file: it has neither agents nor core_memory", field="source")


class _Import:
    def __init__(self, universe: Universe, dry_run: bool, pace: ProgressReporter) -> None:
        self._universe, self._dry_run, self.pace = universe, dry_run, pace
        self.tally = MigrationTally()
        self._owners: dict[str, str] = {}  # of blocks, by their ids

    async def take_agent(self, given: dict[str, Any], blocks: Mapping[str, Any], alone: bool) -> None:
        """Import an agent: its blocks, messages and passages, and all else as a record."""
        name = given.get("name")
        try:
            library = Library(self._universe, agent=name)  # type: ignore[arg-type]
            messages = MessageImport(self._universe, str(name), self.tally, self._dry_run)
            if not self._dry_run:
                await library.agents.enrol(str(name))
        except DgentError as error:
            self.tally.leave("agents", "agents", 0, f"{name!r:.60}: {error.message}")
            return
        inner = given.get("core_memory") or given.get("memory_blocks") or []
        own = {str(each.get("label")): each for each in inner if isinstance(each, dict)}
        wanted = given.get("block_ids")
        named = [id for id in wanted if isinstance(id, str)] if isinstance(wanted, list) else []
        shared = {id: blocks[id] for id in (blocks if alone and not named else named) if id in blocks}
        for at, (id, block) in enumerate([*own.items(), *shared.items()], 1):
            await self._take_block(library, id if id in shared else None, block, at)
        listed = given.get("messages")
        await messages.take(listed if isinstance(listed, list) else [])
        passages = given.get("passages") or given.get("archival_memory") or []
        for at, each in enumerate(passages if isinstance(passages, list) else [], 1):
            await self._take_passage(library, each, at)
        self.pace.add(1)
        for part in ("tools", "files_agents"):
            await self.keep_all(part, given.get(part), str(name))
        left = {"messages", "core_memory", "memory_blocks", "passages", "archival_memory", "tools"}
        for secret in SECRETS:
            if given.get(secret):
                self.tally.leave("settings", secret, 0, f"the {secret} of {name} may have secrets")
        settings = {key: value for key, value in given.items() if key not in (*left, *PARTS, *SECRETS)}
        await self._keep("settings", settings, str(name), 0)

    # -- blocks and passages ------------------------------------------------------------------

    async def _take_block(self, library: Library, id: str | None, block: dict[str, Any], at: int) -> None:
        label, text, limit = block.get("label"), block.get("value"), block.get("limit")
        try:
            if id is not None and id in self._owners and self._owners[id] != library.agent:
                await self._share(library, self._owners[id], block)
                return
            if not isinstance(label, str) or not isinstance(text, str):
                raise InputError("its label or its value is not a text")
            verdict = await self._find_block(library, label, text)
            if id is not None:
                self._owners[id] = library.agent
            if verdict is None:
                verdict = "written"
                if not self._dry_run:
                    await library.create(
                        label,
                        text=text,
                        limit=max(limit, len(text)) if type(limit) is int else None,
                        description=block.get("description") or None,
                        kind="core",
                        permission="read_only" if block.get("read_only") else None,
                    )
        except DgentError as error:
            verdict = error.message
        if verdict in ("written", "already_there"):
            self.tally.count("blocks", verdict)
        else:
            self.tally.leave("blocks", "blocks", at, f"{verdict} ({library.agent}, {label!r:.60})")

    async def _find_block(self, library: Library, label: str, text: str) -> str | None:
        try:
            found = await library.get(label, owner=library.agent)
        except BlockNotFound:
            return None
        same = text in (await found.text(), (await found.at(1)).text)  # it may have been edited since
        return "already_there" if same else DIFFERENT

    async def _share(self, library: Library, owner: str, block: dict[str, Any]) -> None:
        """Share a block of one agent with another agent of the file."""
        if not self._dry_run:
            theirs = Library(self._universe, agent=owner)
            permission = "read_only" if block.get("read_only") else "read_write"
            await theirs.share(str(block.get("label")), with_agent=library.agent, permission=permission)

    def leave_unused(self, blocks: Mapping[str, Any]) -> None:
        """Report the blocks that no agent of the file has."""
        for at, (id, block) in enumerate(blocks.items(), 1):
            if id not in self._owners:
                self.tally.leave("blocks", "blocks", at, f"no agent has it ({block.get('label')!r:.60})")

    async def _take_passage(self, library: Library, given: Any, at: int) -> None:
        passage = given if isinstance(given, dict) else {"text": given}
        text, tags = passage.get("text"), passage.get("tags")
        id = f"letta-{digest_of([library.agent, text, passage.get('created_at')])}"
        if await find_forgotten(self._universe, [id]):
            self.tally.leave("passages", "passages", at, FORGOTTEN)
        elif await library.universe.exists(id):
            self.tally.count("passages", "already_there")
        else:
            names = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
            made_at = parse_moment(passage.get("created_at"))
            try:
                archive.check_text(text)
                if not self._dry_run:
                    room = self._universe.for_room("blocks")
                    await archive.put(room, library.agent, text, names, id, made_at)
                self.tally.count("passages", "written")
            except InputError as error:
                self.tally.leave("passages", "passages", at, error.message)

    # -- the rest -------------------------------------------------------------------------------

    async def keep_all(self, kind: str, given: Any, agent: str = "") -> None:
        """Keep each of some parts as a record; what may have secrets is left out."""
        for at, each in enumerate(given if isinstance(given, list) else [], 1):
            if kind in SECRETS:
                self.tally.leave(kind, kind, at, "it may have secrets")
            else:
                await self._keep(kind, each, agent, at)

    async def _keep(self, kind: str, given: Any, agent: str, at: int) -> None:
        id = f"letta/{kind}/{digest_of([agent, given])}"
        data = {"kind": kind, "agent": agent, "value": given}
        try:
            if await find_forgotten(self._universe, [id]):
                self.tally.leave(kind, kind, at, FORGOTTEN)
                return
            found = await self._universe.get(id, raw=True)
            made = Datum(id, data=data, schema=KEPT.name, schema_version=KEPT.version).check()
            if found is None and not self._dry_run:
                await self._universe.put(made, expect=0, note=NOTE)
            same = found is None or is_same_data(found.data, made.data)
        except InputError as error:
            self.tally.leave(kind, kind, at, error.message)
            return
        if same:
            self.tally.count(kind, "written" if found is None else "already_there")
        else:
            self.tally.leave(kind, kind, at, DIFFERENT)


def digest_of(parts: Iterable[Any]) -> str:
    """Return a digest of JSON values."""
    return hashlib.sha256(msgspec.json.encode(list(parts), order="sorted")).hexdigest()[:32]
