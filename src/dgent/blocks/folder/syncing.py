"""A sync of a folder: edits of files go into the database first, then the database goes into the files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.folder import describing, ledger, origin, pairing, removing, taking, writing
from dgent.blocks.folder.disk import LEDGER, OWN, Disk, alone, nobody
from dgent.blocks.folder.report import FolderReport
from dgent.blocks.folder.round import Round
from dgent.errors import Busy, InputError

if TYPE_CHECKING:
    from dgent.blocks.library import Library


WAIT_S = 10.0  # how long another sync of the folder is waited for


async def sync(
    library: Library, folder: str | os.PathLike[str], by: str | None, dry_run: bool, wait_s: float
) -> FolderReport:
    """Make a folder and an agent's blocks agree; no two of these work on one folder at once."""
    if by is not None and ids.check_name(by, "by") != library.agent and library.trust != "partner":
        raise errors.PermissionDenied(f"a caller of trust {library.trust} writes as {library.agent}")
    disk = Disk(Path(folder).absolute())
    if disk.folder.exists() and not disk.folder.is_dir():
        raise InputError(f"{disk.folder} is no folder", field="folder")
    await asyncio.to_thread(disk.open, not dry_run)
    try:
        async with nobody() if dry_run else alone(disk, wait_s):
            return await _run(library, disk, by, dry_run)
    finally:
        disk.close()


async def _run(library: Library, disk: Disk, by: str | None, dry_run: bool) -> FolderReport:
    known, wrong = ledger.load(await asyncio.to_thread(disk.load), library.agent)
    round = Round(library, disk, known, by, dry_run)
    for why in wrong:
        round.tell_of("refused", "", library.agent, f"{OWN}/{LEDGER}", why)
    await round.look()
    pairing.settle(round)
    await pairing.check_store(round)
    await origin.check(round)
    await round.save()
    await round.tidy()
    await _take_in(round)
    await _write_out(round)
    await round.tidy()
    return round.report()


async def _take_in(round: Round) -> None:
    """Everything that was done in the folder; what is about to be done is noted first, in case of a kill."""
    await pairing.pair(round)
    edits = []
    for id, entry in list(round.ledger.entries.items()):
        file = round.file(entry.file)
        if id not in round.blocks:
            await removing.leave(round, id, entry)
        elif file is None:
            await removing.remove(round, id, entry)
        elif file.problem or file.digest != entry.base.digest or entry.taking is not None:
            edit = await taking.plan(round, id, entry, file)
            edits += [] if edit is None else [edit]
    await round.save()
    for edit in edits:
        await taking.take(round, edit)
    for id, entry in list(round.ledger.entries.items()):
        if id in round.blocks and id not in round.made:
            await describing.describe(round, id, entry)


async def _write_out(round: Round) -> None:
    """Everything that was done in the database."""
    pages = []
    for id, block in list(round.blocks.items()):
        pages += await writing.plan(round, id, block)
    await writing.stage(round, pages)
    await round.save()
    await writing.write(round, pages)
    await round.save()


async def follow(
    library: Library, folder: str | os.PathLike[str], every: float, by: str | None
) -> AsyncIterator[FolderReport]:
    """Sync again and again; what came of it is told when it is something new."""
    if not every > 0:
        raise InputError(f"every is a number of seconds above 0, not {every!r}", field="every")
    last: FolderReport | None = None
    report: FolderReport | None
    while True:
        try:
            report = await sync(library, folder, by, False, WAIT_S)
        except Busy:  # somebody else syncs it; the next time is soon
            report = last
        if report and report != last:
            yield report
        last = report
        await asyncio.sleep(every)
