"""Verbs that carry the graph of the reference memory server in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dgent.errors import Conflict, InputError, NoBackendAvailable, NotFound, StorageFull
from dgent.exchange.foreign import ExistingEntity, ExportResult, ImportResult, export_graph, import_graph
from dgent.verbs.context import Context
from dgent.verbs.data.record import DryRun
from dgent.verbs.registry import Ask, argument, option, verb


class ImportGraph(Ask):
    """Input of `graph.import`."""

    path: Annotated[str, argument("the memory.jsonl of the reference memory server", complete="file")]
    existing: Annotated[
        ExistingEntity,
        option("what is or was there already: it stays as it is, or gets the observations that it lacks"),
    ] = "skip"
    dry_run: DryRun = False


@verb("graph.import", effect="write", errors=(InputError, NotFound, Conflict), local=True, makes=True)
async def import_(context: Context, ask: ImportGraph) -> ImportResult:
    """Read a file of the reference memory server; what is odd in it is reported."""
    return await import_graph(
        await context.universe(),
        Path(ask.path),
        existing=ask.existing,
        dry_run=ask.dry_run,
        progress=context.report,
    )


class ExportGraph(Ask):
    """Input of `graph.export`."""

    path: Annotated[str, argument("the file", complete="file")]
    replace: Annotated[bool, option("write over what is there")] = False


@verb(
    "graph.export", effect="read", errors=(InputError, Conflict, StorageFull, NoBackendAvailable), local=True
)
async def export(context: Context, ask: ExportGraph) -> ExportResult:
    """Write the graph as a file of the reference memory server."""
    return await export_graph(await context.universe(), Path(ask.path), replace=ask.replace)
