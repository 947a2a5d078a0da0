"""Write blocks to their files: only those that changed, whole, and never over an edit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from dgent.blocks.block import Block
from dgent.blocks.folder import format, header
from dgent.blocks.folder.disk import translate_errors
from dgent.blocks.folder.format import normalize_name, stem_of
from dgent.blocks.folder.round import Round
from dgent.blocks.folder.state import Base, FileEntry, content_key, digest, header_key
from dgent.errors import Corrupt, Denied, InputError, NotFound


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
        place = round.folder_of(block.owner) + _stem(round, block, None)
        entry = FileEntry(place, format.suffix_of(block.document_kind), block.owner, block.label)
    writes = []
    try:
        if not format.is_known(block.shape):
            raise InputError(f"the kind {block.document_kind} needs a newer dgent")
        _move(round, block, entry)
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


def _move(round: Round, block: Block, entry: FileEntry) -> None:
    """Plan to move the files of a renamed block to its new name."""
    folder = round.folder_of(block.owner)
    here, _, stem = entry.place.rpartition("/")
    if entry.label != block.label or folder != (f"{here}/" if here else ""):
        moved = folder + _stem(round, block, stem)
        if moved != entry.place:
            entry.moving = moved
        else:
            entry.label = block.label


def _stem(round: Round, block: Block, now: str | None) -> str:
    """Return a file name for a block that nothing else in the folder has."""
    taken = round.stems(round.folder_of(block.owner))
    made = stem_of(block.label, taken - {normalize_name(now)} if now is not None else taken)
    taken.add(normalize_name(made))
    return made


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
