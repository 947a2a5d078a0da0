"""Verbs that carry a cupboard in and out: folders of the original program, and issues of beads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dgent.errors import Conflict, InputError, NoBackendAvailable, NotFound, StorageFull
from dgent.exchange.foreign import (
    Existing,
    ExportResult,
    ImportResult,
    export_beads,
    export_folder,
    import_beads,
    import_folder,
)
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.data.record import DryRun
from dgent.verbs.registry import Ask, argument, option, verb

Rule = Annotated[
    Existing, option("what is there already with other content: the newer wins, it stays, or is replaced")
]
WRITING = (InputError, Conflict, StorageFull, NoBackendAvailable)
Replace = Annotated[bool, option("write over what is there")]


class TakeIn(Ask):
    """Input of `cupboard.import`."""

    path: Annotated[str, argument("the folder of crumbs.jsonl and its kin, or one of them", complete="file")]
    existing: Rule = "newer"
    dry_run: DryRun = False


@verb("cupboard.import", effect="write", errors=(InputError, NotFound, Conflict), local=True, makes=True)
async def take_in(context: Context, ask: TakeIn) -> ImportResult:
    """Read a folder of the original program; what is odd in it is reported, and nothing is lost."""
    cupboard = await input.cupboard_of(context)
    return await import_folder(
        cupboard, Path(ask.path), existing=ask.existing, dry_run=ask.dry_run, progress=context.report
    )


class WriteOut(Ask):
    """Input of `cupboard.export`."""

    path: Annotated[str, argument("the folder", complete="file")]
    replace: Replace = False


@verb(
    "cupboard.export",
    effect="read",
    errors=(InputError, Conflict, StorageFull, NoBackendAvailable),
    local=True,
)
async def write_out(context: Context, ask: WriteOut) -> ExportResult:
    """Write the cupboard as a folder of the original program."""
    cupboard = await input.cupboard_of(context)
    return await export_folder(cupboard, Path(ask.path), replace=ask.replace, progress=context.report)


class TakeInIssues(Ask):
    """Input of `beads.import`."""

    path: Annotated[str, argument("the issues.jsonl of beads", complete="file")]
    existing: Rule = "newer"
    dry_run: DryRun = False


@verb("beads.import", effect="write", errors=(InputError, NotFound, Conflict), local=True, makes=True)
async def take_in_issues(context: Context, ask: TakeInIssues) -> ImportResult:
    """Read issues of beads: what blocks them becomes links, the rest is kept beside."""
    cupboard = await input.cupboard_of(context)
    return await import_beads(
        cupboard, Path(ask.path), existing=ask.existing, dry_run=ask.dry_run, progress=context.report
    )


class WriteOutIssues(Ask):
    """Input of `beads.export`."""

    path: Annotated[str, argument("the file", complete="file")]
    imported: Annotated[bool, option("only the crumbs that came from beads")] = False
    replace: Replace = False
    watch: Annotated[bool, option("go on, and write it again after every change, until interrupted")] = False


@verb(
    "beads.export", effect="read", errors=(InputError, Conflict, StorageFull, NoBackendAvailable), local=True
)
async def write_out_issues(context: Context, ask: WriteOutIssues) -> ExportResult:
    """Write the crumbs as issues of beads: those that came from there as they came, but for changes."""
    cupboard = await input.cupboard_of(context)
    path = Path(ask.path)
    done = await export_beads(
        cupboard, path, imported=ask.imported, replace=ask.replace, progress=context.report
    )
    if ask.watch:
        async for change in cupboard.universe.watch(done.seq):
            ours = any((item.schema or "").startswith("cupboard.") for item in change.items)
            if ours and (change.seq or 0) > done.seq:  # else the last one has it
                done = await export_beads(cupboard, path, imported=ask.imported, replace=True)
    return done
