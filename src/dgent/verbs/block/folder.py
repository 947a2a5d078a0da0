"""The verb that makes a folder of files and an agent's blocks agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dgent.errors import Busy, Denied, InputError, StorageFull
from dgent.verbs.block.answer import SyncResult
from dgent.verbs.block.library import library_of
from dgent.verbs.context import Context
from dgent.verbs.data.record import DryRun
from dgent.verbs.registry import Ask, argument, option, verb

if TYPE_CHECKING:
    pass


class Sync(Ask):
    """Input of `block.sync`."""

    folder: Annotated[str, argument("the folder; it is made when it is not there", complete="file")]
    by: Annotated[str | None, option("in whose name edits are taken in, for the partner")] = None
    dry_run: DryRun = False


@verb("block.sync", effect="write", errors=(InputError, Denied, Busy, StorageFull), local=True)
async def sync(context: Context, ask: Sync) -> SyncResult:
    """Make a folder of files and the agent's blocks agree: edits of both sides are kept."""
    library = await library_of(context)
    done = await library.sync(ask.folder, by=ask.by, dry_run=ask.dry_run)
    return SyncResult(
        *(done.folder, done.taken, done.written, done.deleted, done.conflicts, done.refused),
        healthy=not done.conflicts and not done.refused,
        dry_run=done.dry_run,
    )
