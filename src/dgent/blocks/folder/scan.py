"""Which file is of which block: those known, those renamed in the folder, those that match, and new ones."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from dgent.blocks.block import Block
from dgent.blocks.folder import format, header
from dgent.blocks.folder.apply import make
from dgent.blocks.folder.disk import File
from dgent.blocks.folder.format import folded, label_of, stem_of
from dgent.blocks.folder.round import Round
from dgent.blocks.folder.state import Entry, card_key, content_key
from dgent.errors import InputError


def settle(round: Round) -> None:
    """Find out how far the last sync came with what it had in hand."""
    for id, entry in round.ledger.entries.items():
        if entry.moving is not None:
            if round.file(entry.file) is None and round.file(entry.moving + entry.suffix) is not None:
                was, entry.place = entry.card_file, entry.moving
                if round.file(was) is not None and round.file(entry.card_file) is None:
                    round.move(was, entry.card_file)
            entry.moving = None
        if entry.writing is not None:
            if not round.disk.is_staged(content_key(id)):
                entry.base, entry.taking = entry.writing, None
            entry.writing = None
        if entry.card_writing is not None:
            if not round.disk.is_staged(card_key(id)):
                entry.card_digest, entry.card = entry.card_writing
            entry.card_writing = None


async def check_store(round: Round) -> None:
    """Refuse a folder that was written from another store: all of it would seem to be deleted."""
    away = [id for id in round.ledger.entries if id not in round.blocks]
    cards = await round.library._universe.get_many(away)
    if away and len(away) == len(round.ledger.entries) and not any(cards):
        raise InputError(
            f"{round.disk.folder} was written from another store",
            hint="use a folder of its own for each store",
        )


async def pair(round: Round) -> None:
    """Give every file its block: by its name, its card, its content or its label, or make a block for it."""
    _respell(round)
    known = {folded(entry.file) for entry in round.ledger.entries.values()}
    loose = [
        file
        for key, file in sorted(round.files.items())
        if key not in known and file.suffix in format.SUFFIXES
    ]
    entries = round.ledger.entries
    missing = {id: each for id, each in entries.items() if id in round.blocks and not round.file(each.file)}
    unpaired = {_traits(block): block for id, block in round.blocks.items() if id not in entries}
    places = {folded(each.place): each.file for each in entries.values()}
    for file in loose:
        described = _described(round, file)
        id = _renamed(file, described, missing)
        other = places.setdefault(folded(file.place), file.name)
        if id is not None:
            _move(round, missing.pop(id), file, described)
        elif other != file.name:
            round.refuse(file, f"{other} has this name already")
        else:
            label, owner = _label(round, file, described), round.owner_of(file.place)
            block = unpaired.pop((owner, label, file.suffix), None)
            if block is not None:
                entries[block.id] = Entry(file.place, file.suffix, block.owner, label)
            else:
                await make(round, file, label, owner)
    for key, file in round.files.items():
        if file.suffix not in format.SUFFIXES and key.removesuffix(file.suffix) not in places:
            round.refuse(file, "there is no file beside it that it describes")


def _traits(block: Block) -> tuple[str | None, str, str]:
    """What a block is known by whose file is not known: whose it is, its label, and its suffix."""
    return block.owner, block.label, format.suffix_of(block.document_kind)


def _respell(round: Round) -> None:
    """A file whose name is spelled otherwise, in a way that some systems do not see, is still the same."""
    for entry in round.ledger.entries.values():
        file = round.file(entry.file)
        if file is not None and file.place != entry.place:
            entry.place = file.place
        beside = round.file(entry.card_file)
        if beside is not None and beside.name != entry.card_file:
            round.move(beside.name, entry.card_file)


def _described(round: Round, file: File) -> dict[str, Any]:
    """What the card beside a file says; nothing when it cannot be read, which is told later."""
    beside = round.file(f"{file.place}.toml")
    with suppress(InputError):
        if beside is not None and not beside.problem:
            return header.decoded(beside.content)
    return {}


def _label(round: Round, file: File, described: dict[str, Any]) -> str:
    """The label that a file is for: that of its card, unless this is a copy of another block's."""
    label, told = described.get("label"), described.get("block")
    copied = round.ledger.entries.get(str(told.get("id"))) if isinstance(told, dict) else None
    if isinstance(label, str) and label and (copied is None or copied.label != label):
        return label
    return label_of(file.place.rpartition("/")[2])


def _renamed(file: File, described: dict[str, Any], missing: dict[str, Entry]) -> str | None:
    """The block whose file has this name now: its card came along, or its content is the same."""
    told = described.get("block")
    id = told.get("id") if isinstance(told, dict) else None
    if isinstance(id, str) and id in missing and missing[id].suffix == file.suffix:
        return id
    if not file.content:
        return None
    like = [
        id for id, each in missing.items() if (each.base.digest, each.suffix) == (file.digest, file.suffix)
    ]
    return like[0] if len(like) == 1 else None


def _move(round: Round, entry: Entry, file: File, described: dict[str, Any]) -> None:
    """The files of a block have another name in the folder: so its label is to be that one."""
    was, entry.place = entry.place, file.place
    stays = was.rpartition("/")[0] == file.place.rpartition("/")[0]
    if round.file(f"{was}.toml") is not None and round.file(entry.card_file) is None:
        round.move(f"{was}.toml", entry.card_file)  # only the content was renamed
    stem = file.place.rpartition("/")[2]
    said = described.get("label", entry.label)
    if stays and said == entry.label and folded(stem) != folded(stem_of(entry.label)):
        round.renamed[_id_of(round, entry)] = label_of(stem)


def _id_of(round: Round, entry: Entry) -> str:
    return next(id for id, each in round.ledger.entries.items() if each is entry)
