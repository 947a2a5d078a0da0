"""Whether every block can be loaded: what `doctor` asks this room."""

from __future__ import annotations

from dgent.blocks import shape as shapes
from dgent.blocks.chain import Chain
from dgent.blocks.form import contents
from dgent.blocks.record import BLOCK, ROOM, SCHEMAS
from dgent.errors import DgentError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.store.upkeep import Finding
from dgent.universe.universe import Universe

NAMED = 5  # so many blocks are named


async def inspect(universe: Universe, *, deep: bool = False) -> list[Finding]:
    """Load every block, also deleted ones, and with `deep` every version of each; tell which cannot be."""
    universe.register(*SCHEMAS)
    room = universe.for_room(ROOM)
    count, bad = 0, []
    async for card in room.iterate(Query(schema=BLOCK.name, limit=None)):
        count += 1
        try:
            await _load(room, card, deep)
        except DgentError as error:
            bad.append(f"{_name(card)}: {error.message}")
    if not bad:
        return [Finding("ok", "blocks", f"all {count} blocks can be loaded")]
    more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    message = f"{len(bad)} of {count} blocks cannot be loaded: {'; '.join(bad[:NAMED])}{more}"
    return [Finding("problem", "blocks", message, "restore a backup beside it, and copy them from there")]


async def _load(room: Universe, card: object, deep: bool) -> None:
    if not isinstance(card, Crystal):
        raise DgentError(str(getattr(card, "problem", "") or "its header cannot be read"))
    chain = Chain(room, card.id)
    await chain.refresh()
    contents(shapes.load(card.value.document, card.value.shape), chain.document)
    for version in await chain.versions() if deep else ():
        if not version.compacted:
            await chain.at(version.number)


def _name(card: object) -> str:
    if isinstance(card, Crystal):
        return f"{card.value.label!r:.60} of {card.value.owner!r:.60}"
    return repr(getattr(card, "id", "?"))
