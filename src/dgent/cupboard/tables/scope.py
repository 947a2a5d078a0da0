"""Names of stashes: one of a name in each trail, and one among those of no trail."""

from __future__ import annotations

from dgent.cupboard import errors
from dgent.cupboard.change import Draft
from dgent.cupboard.record import STASH, StashRecord


async def scope_of(draft: Draft, stash_id: str) -> str | None:
    """The trail that a stash is scoped to."""
    links = await draft.links("from_id", stash_id, "scoped_to")
    return next((link.to_id for link in links.values()), None)


async def check_stash_name(draft: Draft, stash_id: str, trail_id: str | None) -> None:
    """Refuse a stash in a scope where another one has its name."""
    name = (await draft.get(StashRecord, stash_id, "stash")).name
    for other in await draft.named(STASH.name, StashRecord, name):
        if other != stash_id and await scope_of(draft, other) == trail_id:
            where = "among those of no trail" if trail_id is None else f"in the trail {trail_id!r}"
            raise errors.DuplicateName(f"there is a stash {name!r} {where} already: {other!r}", id=other)
