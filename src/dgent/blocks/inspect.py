"""The check of this room for `doctor`: whether every block can be loaded."""

from __future__ import annotations

from dgent.blocks.document.render import contents
from dgent.blocks.document.shape import load_shape
from dgent.blocks.history.log import VersionLog
from dgent.blocks.record import BLOCK, ROOM, SCHEMAS, VERSION, version_id
from dgent.errors import DgentError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.store.upkeep import Finding
from dgent.universe.universe import Universe

NAMED = 5  # blocks named in a message


async def inspect(universe: Universe, *, deep: bool = False) -> list[Finding]:
    """Load every block, deleted ones too, and with `deep` every version; report those that fail."""
    universe.register(*SCHEMAS)
    room = universe.for_room(ROOM)
    count, bad = 0, []
    newest = await _newest_versions(room)  # read first, because others may store more meanwhile
    async for header in room.iterate(Query(schema=BLOCK.name, limit=None)):
        count += 1
        try:
            await _load(room, header, newest.pop(header.id, 0), deep)
        except DgentError as error:
            bad.append(f"{_name(header)}: {error.message}")
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
    """Return the number of each block's newest version record, even of one that cannot be reached."""
    newest: dict[str, int] = {}
    query = Query(schema=VERSION.name, limit=None, content=False)
    async for found in room.iterate(query, raw=True):
        block, _, number = found.id.rpartition("/u/")
        if number.isascii() and number.isdigit():
            newest[block] = max(int(number), newest.get(block, 0))
    return newest


async def _load(room: Universe, header: object, newest: int, deep: bool) -> None:
    if not isinstance(header, Crystal):
        raise DgentError(str(getattr(header, "problem", "") or "its header cannot be read"))
    log = VersionLog(room, header.id)
    await log.refresh()
    log.check_history()
    contents(load_shape(header.value.document, header.value.shape), log.document)
    if log.number < newest:
        raise DgentError(f"version {log.number + 1} is missing, and so all from there to {newest}")
    if deep:
        await _load_versions(log)


async def _load_versions(log: VersionLog) -> None:
    last = 0
    for version in await log.versions():
        if version.number != last + 1:
            raise DgentError(f"versions {last + 1} to {version.number - 1} are missing in its history")
        if not version.compacted:
            await log.at(version.number)
        last = version.number


def _name(header: object) -> str:
    if isinstance(header, Crystal):
        return f"{header.value.label!r:.60} of {header.value.owner!r:.60}"
    return repr(getattr(header, "id", "?"))
