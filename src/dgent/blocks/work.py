"""What was done to crumbs and trails, for the activity of agents.

They are another room's, which this one does not know: their records are recognised by the names of their
schemas, and whatever is not as expected is left out. They belong to all agents, so everyone may see them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dgent.errors import HistoryGone
from dgent.model.datum import Datum
from dgent.store.backend import Change, Item
from dgent.universe.universe import Universe

KINDS = {"cupboard.crumb": "crumb", "cupboard.trail": "trail"}
SHOWN = ("name", "goal", "reason", "lesson", "properties", "defer_until")  # the rest follows from others
MAX_NAME = 200


class Work(NamedTuple):
    """Something that was done to a crumb or a trail: by whom, and what it is called."""

    kind: str
    id: str
    by: str
    what: str
    name: str


async def works(universe: Universe, change: Change) -> dict[str, Work]:
    """What a commit did to crumbs and trails, by their ids; not what only followed from something else."""
    items = [item for item in change.items if item.schema in KINDS and item.id is not None]
    later = [item for item in items if item.op == "put" and item.rev > 1]
    before = await _before(universe, change, [str(item.id) for item in later])
    found = {}
    for item in items:
        done = _work(change, item, before.get(str(item.id)))
        if done is not None:
            found[done.id] = done
    return found


async def _before(universe: Universe, change: Change, ids: Sequence[str]) -> Mapping[str, Datum]:
    """The records as they were before a commit, as far as that is kept."""
    if not ids or not change.seq:
        return {}
    try:
        found = await universe.get_many(ids, as_of=change.seq - 1, raw=True)
    except HistoryGone:
        return {}
    return {each.id: each for each in found if each is not None}


def _work(change: Change, item: Item, before: Datum | None) -> Work | None:
    datum = item.datum if item.op == "put" else item.last
    data: dict[str, Any] = datum.data if isinstance(datum, Datum) else {}
    by, what = change.author, _what(item, data, before)
    if what == "taken" and isinstance(data.get("holder"), str):
        by = data["holder"]  # the program took it in the name of an agent
    if not what:
        return None
    return Work(KINDS[item.schema or ""], str(item.id), by, what, _name(data.get("name")))


def _what(item: Item, data: Mapping[str, Any], before: Datum | None) -> str:
    """What was done: it was made, got another state, changed otherwise, or is gone; empty when nothing."""
    if item.op != "put":
        return "delete"
    if item.rev == 1:
        return "create"
    was = {} if before is None else before.data
    state = data.get("state")
    if isinstance(state, str) and state and state != was.get("state"):
        return state
    return "change" if any(data.get(name) != was.get(name) for name in SHOWN) else ""


def _name(value: object) -> str:
    """A name in one line."""
    return " ".join(value.split())[:MAX_NAME] if isinstance(value, str) else ""
