"""Verbs that import what other frameworks keep: LangGraph, OpenAI's Agents SDK, Letta and mem0."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, cast

from dgent.errors import Conflict, Corrupt, InputError, NotFound, StorageFull, Unsupported
from dgent.exchange.foreign.letta import import_letta
from dgent.exchange.foreign.mem0 import import_mem0
from dgent.exchange.foreign.migration import Migration
from dgent.verbs.context import Context
from dgent.verbs.data.record import DryRun
from dgent.verbs.registry import Ask, argument, option, verb

ERRORS = (InputError, NotFound, Conflict, Corrupt, StorageFull)


class ImportLanggraph(Ask):
    """Input of `langgraph.import`."""

    source: Annotated[
        str,
        argument("a file of SqliteSaver or SqliteStore, or a postgresql:// URL", complete="file"),
    ]
    distance: Annotated[
        Literal["cosine", "l2", "inner_product"], option("the distance that the store's vectors are for")
    ] = "cosine"
    dry_run: DryRun = False


@verb("langgraph.import", effect="write", errors=(*ERRORS, Unsupported), local=True, makes=True)
async def import_langgraph(context: Context, ask: ImportLanggraph) -> Migration:
    """Import checkpoints, writes and items of LangGraph, for DgentSaver and DgentStore."""
    # The bridge, a layer above, has the shapes of its records, and needs the framework.
    found = await import_module("dgent.bridges.langgraph.migrate").import_langgraph(
        await context.universe(),
        ask.source,
        distance=ask.distance,
        dry_run=ask.dry_run,
        progress=context.report,
    )
    return cast(Migration, found)


class ImportSessions(Ask):
    """Input of `openai-agents.import`."""

    source: Annotated[str, argument("a file of SQLiteSession or AdvancedSQLiteSession", complete="file")]
    dry_run: DryRun = False


@verb("openai-agents.import", effect="write", errors=(*ERRORS, Unsupported), local=True, makes=True)
async def import_sessions(context: Context, ask: ImportSessions) -> Migration:
    """Import sessions of OpenAI's Agents SDK, with branches and usage, for DgentSession."""
    found = await import_module("dgent.bridges.openai_agents.migrate").import_sessions(
        await context.universe(), Path(ask.source), dry_run=ask.dry_run, progress=context.report
    )
    return cast(Migration, found)


class ImportLetta(Ask):
    """Input of `letta.import`."""

    source: Annotated[str, argument("an agent file (.af)", complete="file")]
    name: Annotated[str | None, option("the name of the agent here, if the file has one agent")] = None
    dry_run: DryRun = False


@verb("letta.import", effect="write", errors=ERRORS, local=True, makes=True)
async def import_agents(context: Context, ask: ImportLetta) -> Migration:
    """Import an agent file: blocks, messages and passages; the rest is kept as a record."""
    return await import_letta(
        await context.universe(),
        Path(ask.source),
        agent=ask.name,
        dry_run=ask.dry_run,
        progress=context.report,
    )


class ImportMem0(Ask):
    """Input of `mem0.import`."""

    source: Annotated[
        str, argument("a history.db, a JSON file of memories, or a folder with them", complete="file")
    ]
    dry_run: DryRun = False


@verb("mem0.import", effect="write", errors=ERRORS, local=True, makes=True)
async def import_memories(context: Context, ask: ImportMem0) -> Migration:
    """Import memories of mem0 with their versions."""
    return await import_mem0(
        await context.universe(), Path(ask.source), dry_run=ask.dry_run, progress=context.report
    )
