"""Scopes of stashes: a name is unique in each trail, and among the stashes of no trail."""

from __future__ import annotations

from dgent.cupboard import errors
from dgent.cupboard.change import Changeset
from dgent.cupboard.record import STASH, StashRecord


async def find_scope(changeset: Changeset, stash_id: str) -> str | None:
    """Return the trail that a stash is scoped to, if any."""
    links = await changeset.links("from_id", stash_id, "scoped_to")
    return next((link.to_id for link in links.values()), None)


async def check_stash_name(changeset: Changeset, stash_id: str, trail_id: str | None) -> None:
    """Refuse a stash in a scope where another one has its name; raises DuplicateName."""
    name = (await changeset.get(StashRecord, stash_id, "stash")).name
    for other in await changeset.find_named(STASH.name, StashRecord, name):
        if other != stash_id and await find_scope(changeset, other) == trail_id:
            where = "among those of no trail" if trail_id is None else f"in the trail {trail_id!r}"
            raise errors.DuplicateName(f"a stash {name!r} already exists {where}: {other!r}", id=other)
