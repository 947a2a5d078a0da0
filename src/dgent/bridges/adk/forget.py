"""Erase all that ADK's services keep of a user."""

from __future__ import annotations

from dgent.bridges.adk.record import SCHEMAS, list_below, make_id
from dgent.bridges.placed import Place
from dgent.errors import HistoryGone
from dgent.sync.handle import anywhere
from dgent.universe.universe import Universe

PAGE = 500  # commits that are looked at together


async def forget_user(place: Place, *, app_name: str, user_id: str) -> int:
    """Erase a user's sessions, events, state, memories and artifacts for good; return how many records.

    What was deleted before is erased with its history. The state of the app stays. It cannot be undone, and
    reads through the log of the store, since only that knows what was deleted.
    """
    handle = anywhere(place)
    try:
        return await handle.arun(_forget, app_name, user_id)
    finally:
        await handle.aclose()


async def _forget(universe: Universe, app: str, user: str) -> int:
    universe.register(*SCHEMAS)
    heads = tuple(make_id(schema, app, user) + "/" for schema in SCHEMAS)
    found = {
        each.id
        for schema, head in zip(SCHEMAS, heads, strict=True)
        for each in await list_below(universe, schema, head, content=False)
    }
    found |= {id for id in await _list_changed(universe) if id.startswith(heads)}
    if found:
        await universe.forget(*sorted(found))
    return len(found)


async def _list_changed(universe: Universe) -> set[str]:
    """Return the ids of all records that commits in the log are about."""
    seq, changed = 0, set[str]()
    while True:
        try:
            page = await universe.changes(seq, limit=PAGE)
        except HistoryGone as error:
            seq = error.details["first_seq"] - 1
            continue
        if not page:
            return changed
        changed |= {item.id for change in page for item in change.items if item.id is not None}
        seq = page[-1].seq or seq
