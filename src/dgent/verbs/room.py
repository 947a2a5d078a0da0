"""Ask the rooms of a store, for general verbs: their findings, and the work in progress."""

from __future__ import annotations

import importlib.util

from dgent.errors import DgentError
from dgent.exchange.tables import open_tables
from dgent.store.upkeep import Finding
from dgent.universe.room import load_room, names_in_store
from dgent.universe.universe import Universe
from dgent.verbs.cupboard.answer import Work, crumb_of, neighbour_of

CATALOG_ID = "cupboard/catalog"  # as in dgent.cupboard.record, which is not loaded for this
TABLES = frozenset(("brain_crystals", "conversation_turns", "garden_ideas"))  # of dgent.tables.models
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
        findings += await _inspect_tables(universe)
    return findings


async def _inspect_tables(universe: Universe) -> list[Finding]:
    """Return the findings about application tables in the store, where SQLAlchemy is installed."""
    if importlib.util.find_spec("sqlalchemy") is None:
        return []
    async with open_tables(universe) as own:
        names = [] if own is None else await own.names()
    if TABLES.isdisjoint(names):
        return []
    from dgent.tables.halves import inspect_halves  # SQLAlchemy takes long to load

    return await inspect_halves(universe, names)


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
