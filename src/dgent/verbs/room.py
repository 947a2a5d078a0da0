"""Ask the rooms of a store, for general verbs: their findings, and the work in progress."""

from __future__ import annotations

from dgent.errors import DgentError
from dgent.store.upkeep import Finding
from dgent.universe.room import load_room, names_in_store
from dgent.universe.universe import Universe
from dgent.verbs.cupboard.answer import Work, crumb_of, neighbour_of

CATALOG_ID = "cupboard/catalog"  # as in dgent.cupboard.record, which is not loaded for this
MOST = 5  # trails and crumbs that are reported


async def inspect(universe: Universe, *, deep: bool) -> list[Finding]:
    """Return the findings of every room that was used in this store."""
    findings: list[Finding] = []
    for name in await names_in_store(universe):
        try:
            findings += await load_room(name).inspect(universe, deep=deep)
        except DgentError as error:
            findings.append(Finding("problem", name, f"its records cannot be read: {error.message}"))
    if deep:
        from dgent.flow.delta import inspect_states  # few stores have such states

        findings += await inspect_states(universe)
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
