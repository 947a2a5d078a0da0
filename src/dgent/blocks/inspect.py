"""Whether every block can be loaded: what `doctor` asks this room."""

from __future__ import annotations

from dgent.blocks.document import shape as shapes
from dgent.blocks.document.render import contents
from dgent.blocks.history.log import Chain
from dgent.blocks.record import BLOCK, ROOM, SCHEMAS, VERSION, version_id
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
    newest = await _newest_versions(room)  # first: meanwhile others may store more
    async for card in room.iterate(Query(schema=BLOCK.name, limit=None)):
        count += 1
        try:
            await _load(room, card, newest.pop(card.id, 0), deep)
        except DgentError as error:
            bad.append(f"{_name(card)}: {error.message}")
    for block, number in newest.items():
        if await room.exists(version_id(block, number)) and not await room.exists(block):
            count += 1
            bad.append(f"{block!r}: its versions are there, and its header is not")
    if not bad:
        return [Finding("ok", "blocks", f"all {count} blocks can be loaded")]
    more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    message = f"{len(bad)} of {count} blocks cannot be loaded: {'; '.join(bad[:NAMED])}{more}"
    return [Finding("problem", "blocks", message, "restore a backup beside it, and copy them from there")]


async def _newest_versions(room: Universe) -> dict[str, int]:
    """The last version of each block that has a record of its own, whether it can be reached or not."""
    newest: dict[str, int] = {}
    query = Query(schema=VERSION.name, limit=None, content=False)
    async for found in room.iterate(query, raw=True):
        block, _, number = found.id.rpartition("/u/")
        if number.isascii() and number.isdigit():
            newest[block] = max(int(number), newest.get(block, 0))
    return newest


async def _load(room: Universe, card: object, newest: int, deep: bool) -> None:
    if not isinstance(card, Crystal):
        raise DgentError(str(getattr(card, "problem", "") or "its header cannot be read"))
    chain = Chain(room, card.id)
    await chain.refresh()
    contents(shapes.load(card.value.document, card.value.shape), chain.document)
    if chain.number < newest:
        raise DgentError(f"version {chain.number + 1} is missing, and so all from there to {newest}")
    if deep:
        await _load_versions(chain)


async def _load_versions(chain: Chain) -> None:
    last = 0
    for version in await chain.versions():
        if version.number != last + 1:
            raise DgentError(f"versions {last + 1} to {version.number - 1} are missing in its history")
        if not version.compacted:
            await chain.at(version.number)
        last = version.number


def _name(card: object) -> str:
    if isinstance(card, Crystal):
        return f"{card.value.label!r:.60} of {card.value.owner!r:.60}"
    return repr(getattr(card, "id", "?"))
