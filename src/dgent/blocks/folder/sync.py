"""A sync of a folder: edits of files go into the database first, then the database goes into the files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.document.document import Document
from dgent.blocks.errors import DocumentCorrupt, VersionNotFound
from dgent.blocks.folder import apply, scan, state, write
from dgent.blocks.folder.disk import LEDGER, OWN, Disk, alone, nobody
from dgent.blocks.folder.report import FolderReport
from dgent.blocks.folder.round import Round
from dgent.blocks.folder.state import Base, Entry
from dgent.blocks.history.log import Chain
from dgent.blocks.record import BLOCK, version_id
from dgent.errors import Busy, InputError, StorageError
from dgent.model.datum import Datum
from dgent.store.upkeep import forgotten_among

if TYPE_CHECKING:
    from dgent.blocks.library import Library


EMPTY = Document().frontiers
"""The state of every document before its first edit: the one name that anybody can guess."""


async def check(round: Round) -> None:
    """Find out which blocks are as their files were written, and forget what the ledger cannot prove."""
    universe, entries = round.library._universe, round.ledger.entries
    epoch: bytes = getattr(universe.backend, "epoch", b"")
    ours = bool(epoch) and round.ledger.store == epoch.hex()
    await _find_current(round, ours)
    rest = [id for id in entries if id not in round.current and entries[id].base.version]
    away = [id for id in rest if id not in round.blocks]
    gone = await forgotten_among(universe.backend, away) if away else frozenset()
    for id in rest:
        entry = entries[id]
        if id in gone or await _is_proven(round, id, entry.base, ours):
            continue
        if id in round.blocks and round.file(entry.file) is None:
            entries[id] = Entry(entry.place, entry.suffix, entry.owner, entry.label)  # it is written again
        else:
            del entries[id]  # its file finds its block by its label, or becomes one
    round.ledger.store = epoch.hex()


async def _find_current(round: Round, ours: bool) -> None:
    """Find out, in one read, which blocks nobody has changed since their files were written.

    The newest version is never folded: while it is there and none comes after it, it is the newest.
    """
    bases = {id: entry.base for id, entry in round.ledger.entries.items() if id in round.blocks}
    known = [id for id, base in bases.items() if ours or base.frontiers != EMPTY]
    ids = [version_id(id, bases[id].version + step) for id in known for step in (0, 1)]
    found: list[Datum | None] = await round.library._universe.get_many(ids, raw=True)
    for id, last, more in zip(known, found[::2], found[1::2], strict=True):
        if last is not None and more is None and last.data.get("frontiers") == bases[id].frontiers:
            round.current.add(id)


async def _is_proven(round: Round, id: str, base: Base, ours: bool) -> bool:
    """Whether a block was in the state a file was written from, or may have been before it was rewritten."""
    try:
        chain = await _chain(round, id)
    except StorageError:
        return id in round.blocks  # it cannot be read, which is told when it is to be written
    if chain is None or base.redactions > chain.redactions:
        return False
    if base.redactions < chain.redactions:
        return True  # what the file says may have been redacted since, so it is never kept aside unasked
    with suppress(DocumentCorrupt):
        if (ours or base.frontiers != EMPTY) and chain.document.knows(base.frontiers):
            return True
    try:
        version = await chain.find(base.version)
    except VersionNotFound:
        return base.version <= chain.number  # it was compacted, and a file of before is only older
    return not version.frontiers


async def _chain(round: Round, id: str) -> Chain | None:
    """The versions of a block that a file was written from, be it deleted by now; None when it is none."""
    if id in round.blocks:
        await round.blocks[id]._document()
        return round.blocks[id]._chain
    universe = round.library._universe
    card = await universe.get(id, raw=True)
    if card is None or card.schema != BLOCK.name:
        return None
    chain = Chain(universe, id)
    await chain.refresh()
    return chain


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
    known, wrong = state.load(await asyncio.to_thread(disk.load), library.agent)
    round = Round(library, disk, known, by, dry_run)
    for why in wrong:
        round.tell_of("refused", "", library.agent, f"{OWN}/{LEDGER}", why)
    await round.look()
    scan.settle(round)
    await scan.check_store(round)
    await check(round)
    await round.save()
    await round.tidy()
    await _take_in(round)
    await _write_out(round)
    await round.tidy()
    return round.report()


async def _take_in(round: Round) -> None:
    """Everything that was done in the folder; what is about to be done is noted first, in case of a kill."""
    await scan.pair(round)
    edits = []
    for id, entry in list(round.ledger.entries.items()):
        file = round.file(entry.file)
        if id not in round.blocks:
            await apply.leave(round, id, entry)
        elif file is None:
            await apply.remove(round, id, entry)
        elif file.problem or file.digest != entry.base.digest or entry.taking is not None:
            edit = await apply.plan(round, id, entry, file)
            edits += [] if edit is None else [edit]
    await round.save()
    for edit in edits:
        await apply.take(round, edit)
    for id, entry in list(round.ledger.entries.items()):
        if id in round.blocks and id not in round.made:
            await apply.describe(round, id, entry)


async def _write_out(round: Round) -> None:
    """Everything that was done in the database."""
    pages = []
    for id, block in list(round.blocks.items()):
        pages += await write.plan(round, id, block)
    await write.stage(round, pages)
    await round.save()
    await write.write(round, pages)
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
