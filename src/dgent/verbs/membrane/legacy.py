"""The verb that imports what the ancestor kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dgent.config.places import home_folder
from dgent.errors import InputError, NotFound, StorageFull
from dgent.exchange.foreign.legacy import LegacyResult, import_legacy
from dgent.verbs.context import Context
from dgent.verbs.data.record import DryRun
from dgent.verbs.registry import Ask, argument, verb


class ImportLegacy(Ask):
    """Input of `legacy.import`."""

    folder: Annotated[
        str | None,
        argument("the ancestor's folder; without it ~/.kgents", complete="file"),
    ] = None
    dry_run: DryRun = False


@verb("legacy.import", effect="write", errors=(InputError, NotFound, StorageFull), local=True, makes=True)
async def import_(context: Context, ask: ImportLegacy) -> LegacyResult:
    """Import the ancestor's folder: records, states, sessions and blobs; then rename what is done."""
    folder = _home() / ".kgents" if ask.folder is None else Path(ask.folder)
    universe = await context.universe()
    return await import_legacy(universe, folder, dry_run=ask.dry_run, progress=context.report)


def _home() -> Path:
    home = home_folder(None)
    if home is None:
        raise NotFound("there is no home folder", hint="name the folder")
    return home
