"""Rooms that a store has been used by: they see to their rules when a general verb changes their records."""

from __future__ import annotations

from dgent.universe.universe import Universe
from dgent.verbs.entity import Work, crumb_of, neighbour_of

CATALOG_ID = "cupboard/catalog"  # as in dgent.cupboard.record, which is not loaded for this
MOST = 5  # how many trails and crumbs are told of


async def enter(universe: Universe) -> None:
    """Have the rooms of this store at hand; those it has nothing of are not loaded."""
    if any(schema.name.startswith("cupboard.") for schema in await universe.schemas()):
        from dgent.cupboard.cupboard import Cupboard  # only where there is one

        Cupboard(universe)


async def work(universe: Universe) -> Work | None:
    """What is going on in the cupboard; None where there is none, and one look for a record is the cost."""
    if universe.degraded is not None or not await universe.exists(CATALOG_ID):
        return None
    from dgent.cupboard.cupboard import Cupboard

    cupboard = Cupboard(universe)
    trails = await cupboard.trails.fetch(state="active", limit=MOST)
    ready = await cupboard.ready(MOST + 1)
    return Work(
        [neighbour_of(each) for each in trails], [crumb_of(each) for each in ready[:MOST]], len(ready) > MOST
    )
