"""Blocks made of new files."""

from __future__ import annotations

from typing import Any

from dgent.blocks import errors
from dgent.blocks.folder import card, content
from dgent.blocks.folder.disk import File
from dgent.blocks.folder.ledger import Base, Entry
from dgent.blocks.folder.names import label_of
from dgent.blocks.folder.round import Round
from dgent.blocks.kind import CONSTELLATION
from dgent.blocks.template import find
from dgent.errors import Conflict, Denied, InputError

BEGIN_EMPTY = ("log", "tree")
MAKING = ("template", "document")
_GUESSED = {list: "list", dict: "map", int: "counter"}


async def make(round: Round, file: File, label: str, owner: str | None) -> None:
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
        options = _options(_described(round, file), file.suffix, wanted)
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


def _described(round: Round, file: File) -> dict[str, Any]:
    """What the card beside a new file says: all of it must mean something, as it is written anew."""
    beside = round.file(f"{file.place}.toml")
    if beside is None:
        return {}
    if beside.problem:
        raise InputError(f"{beside.name}: {beside.problem}")
    found = card.decoded(beside.content)
    for name in found:
        if name not in (*card.EDITABLE, *MAKING, "block"):
            raise InputError(f"{beside.name}: there is no {name!r:.80}")
    return found


def _options(described: dict[str, Any], suffix: str, wanted: Any) -> dict[str, Any]:
    """What to make a block with: what its card says, and what its file holds."""
    told = described.get("block")
    said = {**(told if isinstance(told, dict) else {}), **described}
    options = {name: said[name] for name in (*card.EDITABLE[1:], *MAKING) if said.get(name) is not None}
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
