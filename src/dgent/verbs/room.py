"""Rooms that a store has been used by: they see to their rules when a general verb changes their records."""

from __future__ import annotations

from importlib import import_module

from dgent.errors import DgentError
from dgent.store.upkeep import Finding, RoomUpkeep
from dgent.universe.universe import Universe
from dgent.verbs.cupboard.answer import Work, crumb_of, neighbour_of

CATALOG_ID = "cupboard/catalog"  # as in dgent.cupboard.record, which is not loaded for this
MOST = 5  # how many trails and crumbs are told of


async def enter(universe: Universe) -> None:
    """Have the rooms of this store at hand; those it has nothing of are not loaded."""
    if any(schema.name.startswith("cupboard.") for schema in await universe.schemas(partial=True)):
        from dgent.cupboard.cupboard import Cupboard  # only where there is one

        Cupboard(universe)


ROOMS = {"block.": "dgent.blocks.inspect", "cupboard.": "dgent.cupboard.inspect"}
"""The rooms by what the names of their schemas begin with, and where each looks after its records."""


async def inspect(universe: Universe, *, deep: bool) -> list[Finding]:
    """Ask every room that this store has something of what is wrong with its records."""
    names = [schema.name for schema in await universe.schemas(partial=True)]
    findings: list[Finding] = []
    for prefix, module in ROOMS.items():
        if any(name.startswith(prefix) for name in names):
            ask: RoomUpkeep = import_module(module).inspect
            try:
                findings += await ask(universe, deep=deep)
            except DgentError as error:
                room = prefix.removesuffix(".")
                findings.append(Finding("problem", room, f"its records cannot be read: {error.message}"))
    return findings


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
