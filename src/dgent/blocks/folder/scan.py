"""Match files and blocks: known files, renamed files, files that fit a block, and new files."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from dgent.blocks.block import Block
from dgent.blocks.folder import format, header
from dgent.blocks.folder.apply import create_block
from dgent.blocks.folder.disk import FolderFile
from dgent.blocks.folder.format import label_of, normalize_name, stem_of
from dgent.blocks.folder.round import Round
from dgent.blocks.folder.state import FileEntry, content_key, header_key
from dgent.errors import InputError


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
            _move(round, missing.pop(id), file, described)
        elif other != file.name:
            round.refuse(file, f"{other} has this name already")
        else:
            label, owner = _label(round, file, described), round.owner_of(file.place)
            block = unpaired.pop((owner, label, file.suffix), None)
            if block is not None:
                entries[block.id] = FileEntry(file.place, file.suffix, block.owner, label)
            else:
                await create_block(round, file, label, owner)
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
    return label_of(file.place.rpartition("/")[2])


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


def _move(round: Round, entry: FileEntry, file: FolderFile, described: dict[str, Any]) -> None:
    """Follow files of a block that were renamed in the folder: its label is to change as well."""
    was, entry.place = entry.place, file.place
    stays = was.rpartition("/")[0] == file.place.rpartition("/")[0]
    if round.file(f"{was}.toml") is not None and round.file(entry.header_file) is None:
        round.move(f"{was}.toml", entry.header_file)  # only the content was renamed
    stem = file.place.rpartition("/")[2]
    said = described.get("label", entry.label)
    if stays and said == entry.label and normalize_name(stem) != normalize_name(stem_of(entry.label)):
        round.renamed[_id_of(round, entry)] = label_of(stem)


def _id_of(round: Round, entry: FileEntry) -> str:
    return next(id for id, each in round.ledger.entries.items() if each is entry)
