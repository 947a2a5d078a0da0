"""Which file is of which block: those known, those renamed in the folder, those that match, and new ones."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from dgent.blocks import errors
from dgent.blocks.block import Block
from dgent.blocks.folder import card, content
from dgent.blocks.folder.disk import File
from dgent.blocks.folder.ledger import Base, Entry, card_key, content_key
from dgent.blocks.folder.names import folded, label_of, stem_of
from dgent.blocks.folder.round import Round
from dgent.blocks.kind import CONSTELLATION
from dgent.blocks.template import find
from dgent.errors import Conflict, Denied, InputError

_GUESSED = {list: "list", dict: "map", int: "counter"}
BEGIN_EMPTY = ("log", "tree")


def settle(round: Round) -> None:
    """Find out how far the last sync came with what it had in hand."""
    for id, entry in round.ledger.entries.items():
        if entry.moving is not None:
            if round.file(entry.file) is None and round.file(entry.moving + entry.suffix) is not None:
                entry.place = entry.moving
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
    known = {folded(entry.file) for entry in round.ledger.entries.values()}
    loose = [
        file
        for key, file in sorted(round.files.items())
        if key not in known and file.suffix in content.SUFFIXES
    ]
    missing = {id: entry for id, entry in round.ledger.entries.items() if round.file(entry.file) is None}
    for file in loose:
        described = _described(round, file)
        id = _renamed(file, described, missing)
        if id is not None:
            _move(round, missing.pop(id), file, described)
            continue
        label, owner = _label(file, described), round.owner_of(file.place)
        block = _unpaired(round, owner, label, file.suffix)
        if block is not None:
            round.ledger.entries[block.id] = Entry(file.place, file.suffix, block.owner, label)
        else:
            await _make(round, file, described, label, owner)


def _described(round: Round, file: File) -> dict[str, Any]:
    """What the card beside a file says; nothing when it cannot be read, which is told later."""
    beside = round.file(f"{file.place}.toml")
    with suppress(InputError):
        if beside is not None and not beside.problem:
            return card.decoded(beside.content)
    return {}


def _label(file: File, described: dict[str, Any]) -> str:
    label = described.get("label")
    return label if isinstance(label, str) and label else label_of(file.place.rpartition("/")[2])


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


def _unpaired(round: Round, owner: str | None, label: str, suffix: str) -> Block | None:
    """The block of a label that no file is known for."""
    for block in round.blocks.values():
        same = (block.owner, block.label, content.suffix_of(block.document_kind)) == (owner, label, suffix)
        if same and block.id not in round.ledger.entries:
            return block
    return None


# -- new files ----------------------------------------------------------------------------------


async def _make(round: Round, file: File, described: dict[str, Any], label: str, owner: str | None) -> None:
    """Make the block of a new file; what is wrong with it is told, and the file stays."""
    whose = owner or label_of(file.place.split("/")[1])

    def refuse(why: str) -> None:
        round.tell_of("refused", label, whose, file.name, why)

    if file.problem:
        return refuse(file.problem)
    if owner not in (round.library.agent, CONSTELLATION):
        return refuse(f"only {whose} makes blocks of {whose}")
    taken = next((each for each in round.blocks.values() if (each.owner, each.label) == (whose, label)), None)
    if taken is not None:
        return refuse(f"{whose} has a block {label!r} already, in another file")
    try:
        wanted = content.decoded(file.suffix, file.content)
        options = _options(described, file.suffix, wanted)
        if round.dry_run:
            return round.tell_of("taken", label, whose, file.name, "a new file becomes a block")
        block = await round.library.create(label, owner=whose, **options)
    except (InputError, Denied, Conflict) as error:
        return refuse(error.message)
    await block._chain.refresh()
    # A log or a tree begins empty: what its file holds is then an edit. Others may have got defaults.
    entry = Entry(file.place, file.suffix, whose, label, Base(block.version, block._chain.document.frontiers))
    round.reasons[block.id] = "as it was taken in"
    round.blocks[block.id], round.ledger.entries[block.id] = block, entry
    round.made.add(block.id)
    round.tell("taken", entry, "a new file became a block", block.version)
    return None


def _options(described: dict[str, Any], suffix: str, wanted: Any) -> dict[str, Any]:
    """What to make a block with: what its card says, and what its file holds."""
    told = described.get("block")
    said = {**(told if isinstance(told, dict) else {}), **described}
    options = {
        name: said[name]
        for name in (*card.EDITABLE[1:], "template", "document")
        if said.get(name) is not None
    }
    if type(options.get("pinned", False)) is not bool:
        raise InputError("pinned is true or false", field="pinned")
    if "document" not in options and "template" not in options:
        guessed = {content.TEXT: "text", content.LINES: "log"}.get(suffix) or _GUESSED.get(type(wanted))
        if guessed is None:
            raise InputError(f"a block is no {type(wanted).__name__}", hint="make it a list or an object")
        options["document"] = guessed
    document = find(options.get("template"), options.get("document")).shape.document
    if content.suffix_of(document) != suffix:
        raise errors.TemplateError(
            f"a {document} is kept in a file that ends with {content.suffix_of(document)}"
        )
    if document not in BEGIN_EMPTY:
        options["value"] = content.adopted("", wanted) if suffix == content.TEXT else wanted
    return options
