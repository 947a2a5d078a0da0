"""Rooms that a store has been used by: they see to their rules when a general verb changes their records."""

from __future__ import annotations

from dgent.universe.universe import Universe


async def enter(universe: Universe) -> None:
    """Have the rooms of this store at hand; those it has nothing of are not loaded."""
    if any(schema.name.startswith("cupboard.") for schema in await universe.schemas()):
        from dgent.cupboard.cupboard import Cupboard  # only where there is one

        Cupboard(universe)
