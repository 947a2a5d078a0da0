"""Named versions of blocks: a version has another number here than in the fork, and its name goes with it."""

from __future__ import annotations

from collections.abc import Sequence

from dgent.blocks.chain import Chain
from dgent.blocks.errors import VersionNotFound
from dgent.blocks.record import CHECKPOINT, ROOM
from dgent.blocks.version import Version
from dgent.exchange.fork.baseline import Base
from dgent.exchange.fork.records import Side
from dgent.exchange.fork.report import Tally
from dgent.universe.universe import Universe

NO_VERSION = "its version did not come one by one, so there is none of it here"


async def numbered(
    fork: Universe, target: Universe, sides: Sequence[Side], base: Base, tally: Tally
) -> list[Side]:
    """Checkpoints with the numbers that their versions have here; those without one are told of."""
    here: dict[str, dict[tuple[object, ...], int]] = {}
    found: list[Side] = []
    for side in sides:
        if side.fork is None:
            found.append(side)
            continue
        block, number = str(side.fork.data.get("block")), side.fork.data.get("version")
        known = base.get(block)
        if type(number) is int and known is not None and number <= known.point:
            found.append(side)
            continue
        if block not in here:
            versions = await Chain(target.for_room(ROOM), block).versions()
            here[block] = {_mark(each): each.number for each in versions}
        try:
            theirs = await Chain(fork.for_room(ROOM), block).find(number if type(number) is int else 0)
        except VersionNotFound:
            theirs = None
        at = None if theirs is None else here[block].get(_mark(theirs))
        if at is None:
            tally.leave(side.id, CHECKPOINT.name, NO_VERSION)
        else:
            data = {**side.fork.data, "version": at}
            found.append(side._replace(fork=side.fork.replace(data=data)))
    return found


def _mark(version: Version) -> tuple[object, ...]:
    """What a version keeps when it goes elsewhere."""
    return version.at, version.by, version.op, version.message
