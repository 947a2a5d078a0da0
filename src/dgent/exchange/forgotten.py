"""Forgetting in a copy what its source has forgotten.

The log of the source says that something was forgotten, and not what. So the ids that the copy knows are
looked up in the source, which keeps salted hashes of those that it has forgotten.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from dgent.errors import HistoryGone
from dgent.model.query import Query
from dgent.store.backend import EVERY_ROOM
from dgent.store.upkeep import forgotten_among
from dgent.universe.universe import Universe

BATCH = 500


async def forget_gone(source: Universe, target: Universe, at_us: int) -> None:
    """Forget in a copy, with every version, the records that its source has forgotten.

    `at_us` is the time of the commit. What a redaction erased in the source goes with them.
    """
    gone: list[str] = []
    async for some in _known(target):
        gone += await _gone(source, target, list(some))
    if gone:
        await target.backend.forget(gone, "system", EVERY_ROOM, at_us=at_us)
    await target.forget()  # what an earlier call may have left on the disk


async def _gone(source: Universe, target: Universe, ids: Sequence[str]) -> list[str]:
    forgotten = [*await forgotten_among(source.backend, ids)]
    if not forgotten:
        return []
    again = await forgotten_among(target.backend, forgotten)
    live = await source.get_many(forgotten, raw=True)
    found = []
    for id, now in zip(forgotten, live, strict=True):
        # One that was made anew has versions, and those stay; in the copy it was forgotten before.
        if not (id in again if now is not None else await source.history(id, limit=1)):
            found.append(id)
    return found


async def _known(target: Universe) -> AsyncIterator[dict[str, str | None]]:
    """The ids that a store knows, live or in its log, and their schemas; some at a time."""
    some: dict[str, str | None] = {}
    async for datum in target.iterate(Query(limit=None, content=False), raw=True):
        some[datum.id] = datum.schema
        if len(some) == BATCH:
            yield some
            some = {}
    yield some
    since, seen = 0, set[str]()
    while True:
        try:
            changes = await target.changes(since, limit=BATCH)
        except HistoryGone as cut:
            since = int(cut.details["first_seq"]) - 1
            continue
        items = [item for change in changes for item in change.items if item.id is not None]
        some = {str(item.id): item.schema for item in items if item.id not in seen}
        seen |= some.keys()
        if some:
            yield some
        if not changes:
            return
        since = changes[-1].seq or since
