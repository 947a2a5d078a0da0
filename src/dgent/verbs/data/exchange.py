"""Verbs that export and import records as lines of JSON."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Literal

from dgent.errors import (
    Corrupt,
    Denied,
    InputError,
    NoBackendAvailable,
    NotFound,
    StorageFull,
    VersionConflict,
)
from dgent.exchange import export as jsonl
from dgent.exchange import folders
from dgent.model.query import Query
from dgent.universe.universe import Universe
from dgent.verbs.context import Context
from dgent.verbs.data.record import DryRun, FindRecords, query_of
from dgent.verbs.registry import Ask, argument, option, verb

STREAM = "-"  # in place of a file's name: standard input or output, or the body of a request


class Export(FindRecords):
    """Input of `data.export`."""

    to: Annotated[str, option("a new file; - writes to standard output", short="o")] = "-"


@verb(
    "data.export",
    effect="read",
    errors=(InputError, StorageFull, NoBackendAvailable),
    local=True,
    unless=lambda ask: ask.to == STREAM,
)
async def export(context: Context, ask: Export) -> jsonl.Exported:
    """Write records as lines of JSON."""
    u = await context.universe()
    if ask.as_of is not None:
        raise InputError("export writes what is there now", hint="leave as_of out", field="as_of")
    wanted = query_of(ask).replace(limit=None)
    if ask.to == STREAM:
        if context.out is None:
            raise InputError("there is no standard output here", hint="name a file", field="to")
        return await jsonl.export(u, context.out, query=wanted, progress=context.report)
    target = folders.check_path(Path(ask.to), "to")
    if os.path.lexists(target):
        raise _name_error(target)
    with folders.translate_errors(target):
        return await _export_to(target, u, wanted, context)


async def _export_to(target: Path, u: Universe, wanted: Query, context: Context) -> jsonl.Exported:
    # Under a temporary name, readable by the user only, until it is complete.
    handle, unfinished = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".partial"
    )
    try:
        with os.fdopen(handle, "wb") as file:
            done = await jsonl.export(u, file.write, query=wanted, progress=context.report)
            file.flush()
            os.fsync(file.fileno())
        os.link(unfinished, target)  # unlike a rename, this never takes the place of another file
    except FileExistsError:
        raise _name_error(target) from None
    finally:
        os.unlink(unfinished)
    return done


def _name_error(target: Path) -> InputError:
    return InputError(f"{target} exists already", hint="name a new file", field="to")


class Import(Ask):
    """Input of `data.import`."""

    path: Annotated[str, argument("a file that export wrote", complete="file")]
    existing: Annotated[
        Literal["refuse", "skip", "replace"], option("what to do with records that are there already")
    ] = "refuse"
    dry_run: DryRun = False


@verb(
    "data.import",
    effect="write",
    errors=(InputError, NotFound, Corrupt, Denied, VersionConflict),
    local=True,
    makes=True,
    unless=lambda ask: ask.path == STREAM,
)
async def import_(context: Context, ask: Import) -> jsonl.Imported:
    """Read records from lines that export wrote; a damaged file imports nothing."""
    path = Path(ask.path)
    if ask.path == STREAM:
        if not isinstance(context.upload, Path):
            raise InputError("there is nothing to read here", hint="name a file", field="path")
        path = context.upload
    elif not path.exists():
        raise NotFound(f"there is no file {ask.path}", path=ask.path)
    u = await context.universe()
    return await jsonl.import_(u, path, existing=ask.existing, dry_run=ask.dry_run, progress=context.report)
