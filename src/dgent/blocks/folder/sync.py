"""Sync a folder: first edits of files are applied to the blocks, then the blocks are written to files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.block import Block
from dgent.blocks.document.document import Document
from dgent.blocks.errors import DocumentCorrupt, VersionNotFound
from dgent.blocks.folder import apply, format, header, state
from dgent.blocks.folder.disk import LEDGER, OWN, Disk, FolderFile, lock_folder, skip_lock, translate_errors
from dgent.blocks.folder.format import normalize_name, stem_of
from dgent.blocks.folder.round import FolderReport, Round
from dgent.blocks.folder.state import Base, FileEntry, content_key, digest, header_key
from dgent.blocks.history.log import VersionLog
from dgent.blocks.record import BLOCK, version_id
from dgent.errors import Busy, Corrupt, Denied, InputError, NotFound, StorageError
from dgent.model.datum import Datum
from dgent.store.upkeep import forgotten_among

if TYPE_CHECKING:
    from dgent.blocks.library import Library


@dataclass
class PlannedWrite:
    """A file to be written: its content, and the digest of the present one; None when there is no file."""

    id: str
    entry: FileEntry
    key: str
    content: bytes
    before: str | None
    why: str = ""


async def plan(round: Round, id: str, block: Block) -> list[PlannedWrite]:
    """Return the files of a block to be written, each recorded in the ledger first."""
    entry = round.ledger.entries.get(id)
    if entry is None:
        place = _find_place(round, block, None)
        entry = FileEntry(place, format.suffix_of(block.document_kind), block.owner, block.label)
    writes = []
    try:
        if not format.is_known(block.shape):
            raise InputError(f"the kind {block.document_kind} needs a newer dgent")
        _plan_move(round, block, entry)
        if id not in round.held and not _is_current(round, id, entry):
            writes += await _plan_content(round, block, entry)
        if id not in round.held_headers:
            writes += _plan_header(round, block, entry, bool(writes))
    except (InputError, Corrupt, Denied, NotFound) as error:
        round.add_report("refused", entry, error.message)
        return []
    round.ledger.entries[id] = entry
    return writes


def _is_current(round: Round, id: str, entry: FileEntry) -> bool:
    return id in round.current and id not in round.reasons and round.file(entry.file) is not None


def _plan_move(round: Round, block: Block, entry: FileEntry) -> None:
    """Plan to move the files of a renamed block to its new name."""
    if entry.label != block.label or not round.is_at_label(block.owner, block.label, entry.place):
        moved = _find_place(round, block, entry.place)
        if moved != entry.place:
            entry.moving = moved
        else:
            entry.label = block.label


def _find_place(round: Round, block: Block, now: str | None) -> str:
    """Return a place for the files of a block, now at another one, that nothing else has."""
    folder, last = round.locate(block.owner, block.label)
    taken = round.stems(folder)
    here, sign, stem = (now or "").rpartition("/")
    mine = {normalize_name(stem)} if normalize_name(here + sign) == normalize_name(folder) else set()
    made = stem_of(last, taken - mine)
    taken.add(normalize_name(made))
    return folder + made


async def _plan_content(round: Round, block: Block, entry: FileEntry) -> list[PlannedWrite]:
    document = await block._document()
    made = format.encode(entry.suffix, format.value_of(block.shape, document))
    base = Base(block.version, document.frontiers, digest(made), block._version_log.redactions)
    file = round.file(entry.file)
    if file is not None and file.content == made and not file.problem:
        entry.base, entry.taking = base, None
        return []
    why = round.reasons.get(block.id) or (
        "new here" if file is None else f"version {block.version} of the database"
    )
    entry.writing = base
    return [
        PlannedWrite(block.id, entry, content_key(block.id), made, None if file is None else file.digest, why)
    ]


def _plan_header(round: Round, block: Block, entry: FileEntry, beside: bool) -> list[PlannedWrite]:
    made = header.encode(block)
    values = header.values_of(block)
    file = round.file(entry.header_file)
    if file is not None and (
        file.content == made or (file.digest == entry.header_digest and values == entry.header)
    ):
        entry.header, entry.header_digest = values, file.digest
        return []
    entry.header_writing = (digest(made), values)
    why = "" if beside or file is None else "the header of the block has changed"
    return [
        PlannedWrite(block.id, entry, header_key(block.id), made, None if file is None else file.digest, why)
    ]


# -- writing -----------------------------------------------------------------------------------


async def stage(round: Round, writes: list[PlannedWrite]) -> None:
    """Stage all files to be written, before the ledger records them."""
    if not round.dry_run:
        with translate_errors(round.disk.folder):
            for planned in writes:
                await asyncio.to_thread(round.disk.stage, planned.key, planned.content)
            await asyncio.to_thread(round.disk.flush)


async def write(round: Round, writes: list[PlannedWrite]) -> None:
    """Write the staged files, and move those of renamed blocks."""
    for id, entry in round.ledger.entries.items():
        if entry.moving is not None and id not in round.held:
            if round.dry_run:
                round.add_report("written", entry, f"moves to {entry.moving}{entry.suffix}")
            else:
                await asyncio.to_thread(_rename, round, entry, round.blocks[id].label)
    for planned in writes:
        if not round.dry_run:
            await asyncio.to_thread(_write, round, planned)
        else:
            _report_write(round, planned, round.blocks[planned.id].version)


def _rename(round: Round, entry: FileEntry, label: str) -> None:
    was, to = entry.file, entry.moving or entry.place
    try:
        round.disk.move(was, to + entry.suffix)
        round.disk.move(entry.header_file, f"{to}.toml")
    except OSError as error:
        round.add_report("refused", entry, f"it cannot be moved to {to}: {error.strerror}")
        entry.moving = None
        return
    entry.place, entry.label, entry.moving = to, label, None
    round.add_report("written", entry, f"renamed from {was}", entry.base.version or None)


def _write(round: Round, planned: PlannedWrite) -> None:
    """Write one file, and record the state it was written from."""
    entry, is_header = planned.entry, planned.key == header_key(planned.id)
    placed = _place(round, planned, entry.header_file if is_header else entry.file)
    if is_header:
        if placed and entry.header_writing is not None:
            entry.header_digest, entry.header = entry.header_writing
            _report_write(round, planned, entry.base.version or None)
        entry.header_writing = None
        return
    if placed and entry.writing is not None:
        entry.base, entry.taking = entry.writing, None
        _report_write(round, planned, entry.base.version)
    entry.writing = None


def _report_write(round: Round, planned: PlannedWrite, version: int | None) -> None:
    """Report a written file; a header written with its content gets no line."""
    entry = planned.entry
    name = entry.header_file if planned.key == header_key(planned.id) else entry.file
    if planned.why:
        round.add_file_report("written", entry.label, entry.owner, name, planned.why, version)


def _place(round: Round, planned: PlannedWrite, name: str) -> bool:
    """Move a staged file into place, unless it was edited just now: the next sync applies that first."""
    try:
        now = round.disk.read(name)
        if now is not None and now.problem:
            round.add_report("refused", planned.entry, f"{name}: {now.problem}")
            return False
        if (None if now is None else now.digest) != planned.before:
            return False
        round.disk.place(planned.key, name)
    except OSError as error:
        round.add_report("refused", planned.entry, f"{name} cannot be written: {error.strerror or error}")
        return False
    return True


WAIT_S = 10.0  # seconds to wait for another sync of the folder
EMPTY = Document().frontiers
"""The state of every document before its first edit, which anybody can guess."""


async def sync_folder(
    library: Library, folder: str | os.PathLike[str], by: str | None, dry_run: bool, wait_s: float
) -> FolderReport:
    """Synchronize a folder with an agent's blocks; one sync at a time works on a folder."""
    if by is not None and ids.check_name(by, "by") != library.agent and library.trust != "partner":
        raise errors.PermissionDenied(f"a caller of trust {library.trust} writes as {library.agent}")
    disk = Disk(Path(folder).absolute())
    if disk.folder.exists() and not disk.folder.is_dir():
        raise InputError(f"{disk.folder} is not a folder", field="folder")
    await asyncio.to_thread(disk.open, not dry_run)
    try:
        async with skip_lock() if dry_run else lock_folder(disk, wait_s):
            return await _run(library, disk, by, dry_run)
    finally:
        disk.close()


async def _run(library: Library, disk: Disk, by: str | None, dry_run: bool) -> FolderReport:
    known, wrong = state.load(await asyncio.to_thread(disk.load), library.agent)
    round = Round(library, disk, known, by, dry_run)
    for why in wrong:
        round.add_file_report("refused", "", library.agent, f"{OWN}/{LEDGER}", why)
    await round.scan()
    resume(round)
    await check_store(round)
    await check_entries(round)
    await round.save()
    await round.tidy()
    await _apply_files(round)
    await _write_files(round)
    await round.tidy()
    return round.report()


async def _apply_files(round: Round) -> None:
    """Apply what was done in the folder; each step is recorded before it is done, in case of a crash."""
    await pair_files(round)
    edits = []
    for id, entry in list(round.ledger.entries.items()):
        file = round.file(entry.file)
        if id not in round.blocks:
            await apply.remove_files(round, id, entry)
        elif file is None:
            await apply.delete_block(round, id, entry)
        elif file.problem or file.digest != entry.base.digest or entry.taking is not None:
            edit = await apply.plan(round, id, entry, file)
            edits += [] if edit is None else [edit]
    await round.save()
    for edit in edits:
        await apply.apply_edit(round, edit)
    for id, entry in list(round.ledger.entries.items()):
        if id in round.blocks and id not in round.made:
            await apply.apply_header(round, id, entry)


async def _write_files(round: Round) -> None:
    """Write what was done in the database to the files."""
    writes = []
    for id, block in list(round.blocks.items()):
        writes += await plan(round, id, block)
    await stage(round, writes)
    await round.save()
    await write(round, writes)
    await round.save()


async def follow_folder(
    library: Library, folder: str | os.PathLike[str], every: float, by: str | None
) -> AsyncIterator[FolderReport]:
    """Sync again and again, and yield each report that is not empty and not the same as the last."""
    if not every > 0:
        raise InputError(f"expected seconds above 0 for every, got {every!r}", field="every")
    last: FolderReport | None = None
    report: FolderReport | None
    while True:
        try:
            report = await sync_folder(library, folder, by, False, WAIT_S)
        except Busy:  # another sync runs; try again next time
            report = last
        if report and report != last:
            yield report
        last = report
        await asyncio.sleep(every)


# -- checking the ledger ----------------------------------------------------------------------


def resume(round: Round) -> None:
    """Find out how far the last sync came, and finish its ledger entries."""
    for id, entry in round.ledger.entries.items():
        if entry.moving is not None:
            if round.file(entry.file) is None and round.file(entry.moving + entry.suffix) is not None:
                was, entry.place = entry.header_file, entry.moving
                if round.file(was) is not None and round.file(entry.header_file) is None:
                    round.move(was, entry.header_file)
            entry.moving = None
        if entry.writing is not None:
            if not round.disk.is_staged(content_key(id)):
                entry.base, entry.taking = entry.writing, None
            entry.writing = None
        if entry.header_writing is not None:
            if not round.disk.is_staged(header_key(id)):
                entry.header_digest, entry.header = entry.header_writing
            entry.header_writing = None


async def check_store(round: Round) -> None:
    """Refuse a folder that was written from another store: all of it would seem to be deleted."""
    missing = [id for id in round.ledger.entries if id not in round.blocks]
    headers = await round.library._universe.get_many(missing)
    if missing and len(missing) == len(round.ledger.entries) and not any(headers):
        raise InputError(
            f"{round.disk.folder} was written from another store",
            hint="use another folder for each store",
        )


async def check_entries(round: Round) -> None:
    """Find the blocks that are as their files were written, and drop ledger entries without proof."""
    universe, entries = round.library._universe, round.ledger.entries
    epoch: bytes = getattr(universe.backend, "epoch", b"")
    ours = bool(epoch) and round.ledger.store == epoch.hex()
    await _find_current(round, ours)
    rest = [id for id in entries if id not in round.current and entries[id].base.version]
    missing = [id for id in rest if id not in round.blocks]
    gone = await forgotten_among(universe.backend, missing) if missing else frozenset()
    for id in rest:
        entry = entries[id]
        if id in gone or await _is_proven(round, id, entry.base, ours):
            continue
        if id in round.blocks and round.file(entry.file) is None:
            # It is written again.
            entries[id] = FileEntry(entry.place, entry.suffix, entry.owner, entry.label)
        else:
            del entries[id]  # its file is matched by label, or becomes a new block
    round.ledger.store = epoch.hex()


async def _find_current(round: Round, ours: bool) -> None:
    """Find, in one read, the blocks that nobody has changed since their files were written.

    The newest version is never packed: while it has a record and none comes after it, it is the newest.
    """
    bases = {id: entry.base for id, entry in round.ledger.entries.items() if id in round.blocks}
    known = [id for id, base in bases.items() if ours or base.frontiers != EMPTY]
    ids = [version_id(id, bases[id].version + step) for id in known for step in (0, 1)]
    found: list[Datum | None] = await round.library._universe.get_many(ids, raw=True)
    for id, last, more in zip(known, found[::2], found[1::2], strict=True):
        if last is not None and more is None and last.data.get("frontiers") == bases[id].frontiers:
            round.current.add(id)


async def _is_proven(round: Round, id: str, base: Base, ours: bool) -> bool:
    """Check whether a block was in the state of a file, or may have been before it was rewritten."""
    try:
        log = await _find_log(round, id)
    except StorageError:
        return id in round.blocks  # it cannot be read, which is reported when it is written
    if log is None or base.redactions > log.redactions:
        return False
    if base.redactions < log.redactions:
        return True  # its text may have been redacted since, so it is never set aside
    with suppress(DocumentCorrupt):
        if (ours or base.frontiers != EMPTY) and log.document.knows(base.frontiers):
            return True
    try:
        version = await log.find(base.version)
    except VersionNotFound:
        return base.version <= log.number  # it was compacted, and the file is only older
    return not version.frontiers


async def _find_log(round: Round, id: str) -> VersionLog | None:
    """Return the version log of a ledger entry's block, even a deleted one; None when there is none."""
    if id in round.blocks:
        await round.blocks[id]._document()
        return round.blocks[id]._version_log
    universe = round.library._universe
    header = await universe.get(id, raw=True)
    if header is None or header.schema != BLOCK.name:
        return None
    log = VersionLog(universe, id)
    await log.refresh()
    return log


# -- matching files and blocks ----------------------------------------------------------------


async def pair_files(round: Round) -> None:
    """Match every file to a block by name, header, content or label, or create a block for it."""
    _respell(round)
    loose = _find_loose(round)
    entries = round.ledger.entries
    missing = {id: each for id, each in entries.items() if id in round.blocks and not round.file(each.file)}
    unpaired = {_traits(block): block for id, block in round.blocks.items() if id not in entries}
    places = {normalize_name(each.place): each.file for each in entries.values()}
    for file in loose:
        described = _read_header(round, file)
        id = _find_renamed(file, described, missing)
        other = places.setdefault(normalize_name(file.place), file.name)
        if id is not None:
            _follow_move(round, missing.pop(id), file, described)
        elif other != file.name:
            round.refuse(file, f"{other} has this name already")
        else:
            label, owner = _label(round, file, described), round.owner_of(file.place)
            block = unpaired.pop((owner, label, file.suffix), None)
            if block is not None:
                entries[block.id] = FileEntry(file.place, file.suffix, block.owner, label)
            else:
                await apply.create_block(round, file, label, owner)
    for key, file in round.files.items():
        if file.suffix not in format.SUFFIXES and key.removesuffix(file.suffix) not in places:
            round.refuse(file, "the file that it describes is missing")


def _find_loose(round: Round) -> list[FolderFile]:
    """Return the content files that are not in the ledger, by name."""
    known = {normalize_name(entry.file) for entry in round.ledger.entries.values()}
    return [
        file
        for key, file in sorted(round.files.items())
        if key not in known and file.suffix in format.SUFFIXES
    ]


def _traits(block: Block) -> tuple[str | None, str, str]:
    """Return the owner, label and suffix, which identify a block whose file is not known."""
    return block.owner, block.label, format.suffix_of(block.document_kind)


def _respell(round: Round) -> None:
    """Follow files whose names are now spelled in another way that some systems treat as the same."""
    for entry in round.ledger.entries.values():
        file = round.file(entry.file)
        if file is not None and file.place != entry.place:
            entry.place = file.place
        beside = round.file(entry.header_file)
        if beside is not None and beside.name != entry.header_file:
            round.move(beside.name, entry.header_file)


def _read_header(round: Round, file: FolderFile) -> dict[str, Any]:
    """Read the header beside a file; empty when it cannot be read, which is reported later."""
    beside = round.file(f"{file.place}.toml")
    with suppress(InputError):
        if beside is not None and not beside.problem:
            return header.decode(beside.content)
    return {}


def _label(round: Round, file: FolderFile, described: dict[str, Any]) -> str:
    """Return the label for a file: that of its header, unless it is a copy of another block's."""
    label, fixed = described.get("label"), described.get("block")
    copied = round.ledger.entries.get(str(fixed.get("id"))) if isinstance(fixed, dict) else None
    if isinstance(label, str) and label and (copied is None or copied.label != label):
        return label
    return round.label_at(file.place)


def _find_renamed(file: FolderFile, described: dict[str, Any], missing: dict[str, FileEntry]) -> str | None:
    """Return the block whose file was renamed to this one: by its header, or by the same content."""
    fixed = described.get("block")
    id = fixed.get("id") if isinstance(fixed, dict) else None
    if isinstance(id, str) and id in missing and missing[id].suffix == file.suffix:
        return id
    if not file.content:
        return None
    like = [
        id for id, each in missing.items() if (each.base.digest, each.suffix) == (file.digest, file.suffix)
    ]
    return like[0] if len(like) == 1 else None


def _follow_move(round: Round, entry: FileEntry, file: FolderFile, described: dict[str, Any]) -> None:
    """Follow files of a block that were renamed in the folder: its label is to change as well."""
    was, entry.place = entry.place, file.place
    stays = round.owner_of(was) == round.owner_of(file.place)
    if round.file(f"{was}.toml") is not None and round.file(entry.header_file) is None:
        round.move(f"{was}.toml", entry.header_file)  # only the content was renamed
    folder, last = round.locate(entry.owner, entry.label)
    said = described.get("label", entry.label)
    if stays and said == entry.label and normalize_name(file.place) != normalize_name(folder + stem_of(last)):
        round.renamed[_id_of(round, entry)] = round.label_at(file.place)


def _id_of(round: Round, entry: FileEntry) -> str:
    return next(id for id, each in round.ledger.entries.items() if each is entry)
