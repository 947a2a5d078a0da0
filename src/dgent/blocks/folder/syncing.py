"""A sync of a folder: edits of files go into the database first, then the database goes into the files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.folder import describing, ledger, pairing, removing, taking, writing
from dgent.blocks.folder.disk import Disk, alone, nobody
from dgent.blocks.folder.report import FolderReport
from dgent.blocks.folder.round import Round
from dgent.blocks.record import version_id
from dgent.errors import InputError

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
    if not dry_run:
        await asyncio.to_thread(disk.prepare)
    async with nobody() if dry_run else alone(disk, wait_s):
        known = ledger.load(await asyncio.to_thread(disk.load), library.agent)
        round = Round(library, disk, known, by, dry_run)
        await round.look()
        pairing.settle(round)
        await pairing.check_store(round)
        await round.save()
        await round.tidy()
        await _take_in(round)
        await _write_out(round)
        await round.tidy()
        return round.report()


async def _take_in(round: Round) -> None:
    """Everything that was done in the folder; what is about to be done is noted first, in case of a kill."""
    await pairing.pair(round)
    await _find_current(round)
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


async def _find_current(round: Round) -> None:
    """Find out, in one read, which blocks nobody has changed since their files were written.

    The newest version is never folded: while it is there and none comes after it, it is the newest.
    """
    known = [id for id in round.ledger.entries if id in round.blocks]
    numbers = {id: round.ledger.entries[id].base.version for id in known}
    ids = [version_id(id, numbers[id] + step) for id in known for step in (0, 1)]
    there = [each is not None for each in await round.library._universe.get_many(ids, raw=True)]
    pairs = zip(known, there[::2], there[1::2], strict=True)
    round.current = {id for id, last, more in pairs if last and not more}


async def follow(
    library: Library, folder: str | os.PathLike[str], every: float, by: str | None
) -> AsyncIterator[FolderReport]:
    """Sync again and again; what came of it is told when it is something new."""
    if not every > 0:
        raise InputError(f"every is a number of seconds above 0, not {every!r}", field="every")
    last = None
    while True:
        report = await sync(library, folder, by, False, WAIT_S)
        if report and report != last:
            yield report
        last = report
        await asyncio.sleep(every)
