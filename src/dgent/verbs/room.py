"""Enter and inspect the rooms of a store, so that general verbs keep their rules."""

from __future__ import annotations

from importlib import import_module

from dgent.errors import DgentError
from dgent.store.upkeep import Finding, RoomUpkeep
from dgent.universe.universe import Universe
from dgent.verbs.cupboard.answer import Work, crumb_of, neighbour_of

CATALOG_ID = "cupboard/catalog"  # as in dgent.cupboard.record, which is not loaded for this
MOST = 5  # trails and crumbs that are reported


async def enter(universe: Universe) -> None:
    """Load the rooms that have records in this store."""
    if any(schema.name.startswith("cupboard.") for schema in await universe.schemas(partial=True)):
        from dgent.cupboard.cupboard import Cupboard  # only where there is a cupboard

        Cupboard(universe)


ROOMS = {"block.": "dgent.blocks.inspect", "cupboard.": "dgent.cupboard.inspect"}
"""The inspecting module of each room, by the prefix of its schema names."""


async def inspect(universe: Universe, *, deep: bool) -> list[Finding]:
    """Return the findings of every room that has records in this store."""
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
    """Return the work in progress in the cupboard; None, after one read, where there is no cupboard."""
    if universe.degraded is not None or not await universe.exists(CATALOG_ID):
        return None
    from dgent.cupboard.cupboard import Cupboard

    cupboard = Cupboard(universe)
    trails = await cupboard.trails.fetch(state="active", limit=MOST)
    ready = await cupboard.ready(MOST + 1)
    return Work(
        [neighbour_of(each) for each in trails], [crumb_of(each) for each in ready[:MOST]], len(ready) > MOST
    )
