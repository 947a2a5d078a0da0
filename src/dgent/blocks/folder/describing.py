"""Edits of cards: what was changed in the small file beside a block's content, and renamed files."""

from __future__ import annotations

from typing import Any

from dgent.blocks.block import Block
from dgent.blocks.folder import card
from dgent.blocks.folder.ledger import Entry
from dgent.blocks.folder.round import Round
from dgent.errors import Conflict, Denied, InputError, NotFound


async def describe(round: Round, id: str, entry: Entry) -> None:
    """Take over what was changed of a card in the folder."""
    changed = _changed(round, id, entry)
    if changed is None:
        return
    if id in round.renamed and "label" not in changed:
        changed["label"] = round.renamed[id]
    block = round.blocks[id]
    now = card.values_of(block)
    changed = {name: each for name, each in changed.items() if now[name] != each}
    for name, each in changed.items():
        if entry.card and now[name] != entry.card.get(name):
            why = f"{name} became {now[name]!r:.60} in the database; the file's {each!r:.60} counts"
            round.tell("conflicts", entry, why, block.version)
    try:
        for name, each in changed.items():
            _check(name, each)
        if not round.dry_run:
            round.blocks[id] = await _apply(round, block, changed)
    except (InputError, Conflict) as error:
        round.tell("refused", entry, f"{error.message}; {entry.card_file} stays as it is", block.version)
        round.held_cards.add(id)
    except (Denied, NotFound) as error:
        said = ", ".join(f"{name} = {each!r:.60}" for name, each in changed.items())
        round.tell("refused", entry, f"{error.message}; {entry.card_file} said {said}", block.version)
    else:
        for name, each in changed.items():
            round.tell("taken", entry, f"{name} is {each!r:.60} now", round.blocks[id].version)


def _changed(round: Round, id: str, entry: Entry) -> dict[str, Any] | None:
    """What a card's file says otherwise; None when it cannot be read, which is told."""
    file = round.file(entry.card_file)
    if file is None or file.digest == entry.card_digest:
        return {}
    block = round.blocks[id]
    try:
        if file.problem:
            raise InputError(file.problem)
        found = card.decoded(file.content)
    except InputError as error:
        round.tell("refused", entry, f"{file.name}: {error.message}; it stays as it is", block.version)
        round.held_cards.add(id)
        return None
    wrong = card.overstepped(block, found)
    for name in wrong:
        round.tell("refused", entry, f"{name} cannot be changed in {file.name}", block.version)
    if not entry.card:
        return _unknown(round, entry, block, found)
    changed = card.edited(entry.card, found)
    if not changed and not wrong:
        entry.card_digest = file.digest  # it only looks otherwise
    return changed


def _unknown(round: Round, entry: Entry, block: Block, found: dict[str, Any]) -> dict[str, Any]:
    """Of a card of unknown origin nothing is taken over, and it is told where it differs."""
    for name, each in card.edited(card.values_of(block), found).items():
        why = (
            f"{name} is not {each!r:.60}, as {entry.card_file} says, and which of them is newer is not known"
        )
        round.tell("conflicts", entry, why, block.version)
    return {}


def _check(name: str, value: Any) -> None:
    if type(value) is not card.TYPES[name]:
        raise InputError(f"{name} cannot be {value!r:.60}", field=name)


async def _apply(round: Round, block: Block, changed: dict[str, Any]) -> Block:
    """Change the card through the gate, the label last: until then the block is found by its old one."""
    library, owner = round.library, block.owner
    rest = {name: each for name, each in changed.items() if name not in ("label", "pinned")}
    if rest:
        block = await library.describe(block.label, owner=owner, **rest)
    if "pinned" in changed:
        block = await library.pin(block.label, changed["pinned"], owner=owner)
    if "label" in changed:
        block = await library.rename(block.label, changed["label"], owner=owner)
    return block
