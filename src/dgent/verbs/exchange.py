"""Verbs that carry records out of a store and into one, as lines of JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from dgent.errors import Corrupt, Denied, InputError, NotFound, VersionConflict
from dgent.exchange import jsonl
from dgent.verbs.data import DryRun, Find, query_of
from dgent.verbs.desk import Desk
from dgent.verbs.registry import Ask, argument, option, verb


class Export(Find):
    """What `data.export` takes."""

    to: Annotated[str, option("a new file; - writes to standard output", short="o")] = "-"


@verb("data.export", effect="read", errors=(InputError,), local=True)
async def export(desk: Desk, ask: Export) -> jsonl.Exported:
    """Write records as lines of JSON."""
    u = await desk.universe()
    if ask.as_of is not None:
        raise InputError("export writes what is there now", hint="leave as_of out", field="as_of")
    wanted = query_of(ask).replace(limit=None)
    if ask.to == "-":
        if desk.out is None:
            raise InputError("there is no standard output here", hint="name a file", field="to")
        return await jsonl.export(u, desk.out, query=wanted, progress=desk.report)
    target = Path(ask.to)
    if target.exists():
        raise InputError(f"{target} exists already", hint="name a new file", field="to")
    unfinished = target.with_name(target.name + ".partial")
    # Readable by the user only, and under its own name only when it is whole.
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            done = await jsonl.export(u, file.write, query=wanted, progress=desk.report)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return done


class Import(Ask):
    """What `data.import` takes."""

    path: Annotated[str, argument("a file that export wrote", complete="file")]
    existing: Annotated[
        Literal["refuse", "skip", "replace"], option("what to do with records that are there already")
    ] = "refuse"
    dry_run: DryRun = False


@verb(
    "data.import", effect="write", errors=(InputError, NotFound, Corrupt, Denied, VersionConflict), local=True
)
async def import_(desk: Desk, ask: Import) -> jsonl.Imported:
    """Read records from lines that export wrote; a damaged file imports nothing."""
    if not Path(ask.path).exists():
        raise NotFound(f"there is no file {ask.path}", path=ask.path)
    u = await desk.universe()
    return await jsonl.import_(
        u, Path(ask.path), existing=ask.existing, dry_run=ask.dry_run, progress=desk.report
    )
