"""Blocks written into their files: only those that changed, whole, and never over an edit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from dgent.blocks.block import Block
from dgent.blocks.folder import format as content
from dgent.blocks.folder import header
from dgent.blocks.folder.disk import translated
from dgent.blocks.folder.format import folded, stem_of
from dgent.blocks.folder.round import Round
from dgent.blocks.folder.state import Base, Entry, card_key, content_key, digest
from dgent.errors import Corrupt, Denied, InputError, NotFound


@dataclass
class Page:
    """A file that is to be written: what it holds, and the bytes it has before; None when it is not there."""

    id: str
    entry: Entry
    key: str
    content: bytes
    before: str | None
    why: str = ""


async def plan(round: Round, id: str, block: Block) -> list[Page]:
    """The files of a block that are to be written, each noted before it is."""
    entry = round.ledger.entries.get(id)
    if entry is None:
        place = round.folder_of(block.owner) + _stem(round, block, None)
        entry = Entry(place, content.suffix_of(block.document_kind), block.owner, block.label)
    pages = []
    try:
        if not content.is_known(block.shape):
            raise InputError(f"a {block.document_kind} is of a newer dgent")
        _move(round, block, entry)
        if id not in round.held and not _is_current(round, id, entry):
            pages += await _content(round, block, entry)
        if id not in round.held_cards:
            pages += _card(round, block, entry, bool(pages))
    except (InputError, Corrupt, Denied, NotFound) as error:
        round.tell("refused", entry, error.message)
        return []
    round.ledger.entries[id] = entry
    return pages


def _is_current(round: Round, id: str, entry: Entry) -> bool:
    return id in round.current and id not in round.reasons and round.file(entry.file) is not None


def _move(round: Round, block: Block, entry: Entry) -> None:
    """A block that was renamed gets files of its new name."""
    folder = round.folder_of(block.owner)
    here, _, stem = entry.place.rpartition("/")
    if entry.label != block.label or folder != (f"{here}/" if here else ""):
        moved = folder + _stem(round, block, stem)
        if moved != entry.place:
            entry.moving = moved
        else:
            entry.label = block.label


def _stem(round: Round, block: Block, now: str | None) -> str:
    """A name for the files of a block that nothing else in the folder has."""
    taken = round.stems(round.folder_of(block.owner))
    made = stem_of(block.label, taken - {folded(now)} if now is not None else taken)
    taken.add(folded(made))
    return made


async def _content(round: Round, block: Block, entry: Entry) -> list[Page]:
    document = await block._document()
    made = content.encoded(entry.suffix, content.value_of(block.shape, document))
    base = Base(block.version, document.frontiers, digest(made), block._chain.redactions)
    file = round.file(entry.file)
    if file is not None and file.content == made and not file.problem:
        entry.base, entry.taking = base, None
        return []
    why = round.reasons.get(block.id) or (
        "new here" if file is None else f"version {block.version} of the database"
    )
    entry.writing = base
    return [Page(block.id, entry, content_key(block.id), made, None if file is None else file.digest, why)]


def _card(round: Round, block: Block, entry: Entry, beside: bool) -> list[Page]:
    made = header.encoded(block)
    values = header.values_of(block)
    file = round.file(entry.card_file)
    if file is not None and (
        file.content == made or (file.digest == entry.card_digest and values == entry.card)
    ):
        entry.card, entry.card_digest = values, file.digest
        return []
    entry.card_writing = (digest(made), values)
    why = "" if beside or file is None else "what describes the block has changed"
    return [Page(block.id, entry, card_key(block.id), made, None if file is None else file.digest, why)]


# -- doing it -----------------------------------------------------------------------------------


async def stage(round: Round, pages: list[Page]) -> None:
    """Have everything ready that is to be written, before it is noted that it will be."""
    if not round.dry_run:
        with translated(round.disk.folder):
            for page in pages:
                await asyncio.to_thread(round.disk.stage, page.key, page.content)
            await asyncio.to_thread(round.disk.flush)


async def write(round: Round, pages: list[Page]) -> None:
    """Write files, and move those of renamed blocks."""
    for id, entry in round.ledger.entries.items():
        if entry.moving is not None and id not in round.held:
            if round.dry_run:
                round.tell("written", entry, f"moves to {entry.moving}{entry.suffix}")
            else:
                await asyncio.to_thread(_rename, round, entry, round.blocks[id].label)
    for page in pages:
        if not round.dry_run:
            await asyncio.to_thread(_write, round, page)
        else:
            _tell(round, page, round.blocks[page.id].version)


def _rename(round: Round, entry: Entry, label: str) -> None:
    was, to = entry.file, entry.moving or entry.place
    try:
        round.disk.move(was, to + entry.suffix)
        round.disk.move(entry.card_file, f"{to}.toml")
    except OSError as error:
        round.tell("refused", entry, f"it cannot be moved to {to}: {error.strerror}")
        entry.moving = None
        return
    entry.place, entry.label, entry.moving = to, label, None
    round.tell("written", entry, f"renamed from {was}", entry.base.version or None)


def _write(round: Round, page: Page) -> None:
    """Write one file, and note what it was written from."""
    entry, is_card = page.entry, page.key == card_key(page.id)
    placed = _placed(round, page, entry.card_file if is_card else entry.file)
    if is_card:
        if placed and entry.card_writing is not None:
            entry.card_digest, entry.card = entry.card_writing
            _tell(round, page, entry.base.version or None)
        entry.card_writing = None
        return
    if placed and entry.writing is not None:
        entry.base, entry.taking = entry.writing, None
        _tell(round, page, entry.base.version)
    entry.writing = None


def _tell(round: Round, page: Page, version: int | None) -> None:
    """Have a written file in the report; a card that goes with its content is not worth a line."""
    entry = page.entry
    name = entry.card_file if page.key == card_key(page.id) else entry.file
    if page.why:
        round.tell_of("written", entry.label, entry.owner, name, page.why, version)


def _placed(round: Round, page: Page, name: str) -> bool:
    """Put a file in its place, unless it was edited in this moment: the next sync takes that in first."""
    try:
        now = round.disk.read(name)
        if now is not None and now.problem:
            round.tell("refused", page.entry, f"{name}: {now.problem}")
            return False
        if (None if now is None else now.digest) != page.before:
            return False
        round.disk.place(page.key, name)
    except OSError as error:
        round.tell("refused", page.entry, f"{name} cannot be written: {error.strerror or error}")
        return False
    return True
