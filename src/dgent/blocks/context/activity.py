"""Activity: who did what to which block, entry, crumb or trail, derived from the feed of commits.

Sessions of agents are no records of the store, so there is nothing to tell of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent.blocks.history.log import Chain
from dgent.blocks.record import BLOCK, CHECKPOINT, ENTRY, SHARE, VERSION, BlockRecord
from dgent.errors import HistoryGone, InputError
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Change, Item
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from dgent.blocks.library import Library


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


WINDOW = 256  # commits that are read at once
MAX_COMMITS = 20_000  # how far back a call looks
MAX_ACTIVITY = 1000


@dataclass(frozen=True)
class Activity:
    """Something that was done: by whom, what, to whose block, and which version of it that made.

    `kind` is block, entry, crumb or trail, and `block` the id of whichever it is. An archival entry has no
    label; the label of a crumb or a trail is its name, and nobody owns it.
    """

    seq: int
    at: datetime
    by: str
    what: str
    owner: str
    label: str
    block: str
    version: int | None = None
    message: str = ""
    kind: str = "block"


async def activity(library: Library, since: int | datetime | None, limit: int) -> list[Activity]:
    """The newest of what was done since a commit or a time, as far as the agent may see it; newest first."""
    if type(limit) is not int or not 1 <= limit <= MAX_ACTIVITY:
        raise InputError(f"limit is a number from 1 to {MAX_ACTIVITY}, not {limit!r}", field="limit")
    universe = library._universe
    start = await _start(universe, since)
    cards = await _cards(library)
    found: list[Activity] = []
    async for change in _backwards(universe, start):
        done = [_done(change, item, cards, library.agent) for item in change.items]
        if any(item.schema in KINDS for item in change.items):
            done += [_worked(change, each) for each in (await works(universe, change)).values()]
        # Of one commit the last comes first, too.
        found += [each for each in reversed(done) if each is not None]
        if len(found) >= limit:
            break
    return await _named(universe, found[:limit])


async def _start(universe: Universe, since: int | datetime | None) -> int:
    if since is None:
        return 0
    if isinstance(since, datetime) and since.tzinfo is not None:
        return await universe.backend.seq_at(since)
    if type(since) is int and since >= 0:
        return since
    raise InputError(f"since is a seq or an aware datetime, not {since!r}", field="since")


async def _cards(library: Library) -> dict[str, BlockRecord]:
    """The blocks that the agent may see, and its own that are deleted, by id."""
    seen = {each.card.id: each.card.value for each in await library._caller.visible(library._universe)}
    own = await library._universe.recall(
        Query(schema=BLOCK.name, where={"owner": library.agent, "active": False}, limit=None)
    )
    return seen | {card.id: card.value for card in own}


async def _backwards(universe: Universe, start: int) -> AsyncIterator[Change]:
    """Commits after a seq, the newest first, as far back as they are kept."""
    newest = await universe.seq()
    start = max(start, newest - MAX_COMMITS)
    end = newest
    while end > start:
        low = max(start, end - WINDOW)
        try:
            changes = await universe.changes(low, limit=end - low)
        except HistoryGone as gone:
            first = gone.details.get("first_seq")
            if type(first) is not int or first - 1 <= low or first > end:
                return
            start = low = first - 1
            changes = await universe.changes(low, limit=end - low)
        for change in reversed(changes):
            if change.seq is not None and change.seq <= end:
                yield change
        end = low


def _done(change: Change, item: Item, cards: dict[str, BlockRecord], agent: str) -> Activity | None:
    """What an item of a commit was, if the agent may see it."""
    id, seq = item.id, change.seq
    if id is None or seq is None:
        return None
    if item.schema == ENTRY.name:
        entry = item.datum if item.op == "put" else item.last
        if entry is None or entry.data.get("agent") != agent:
            return None
        what = "archive" if item.op == "put" else "unarchive"
        return Activity(seq, change.at, change.author, what, agent, "", id, kind="entry")
    block = id.split("/", 1)[0]
    card = cards.get(block)
    if card is None:
        return None
    made = Activity(seq, change.at, change.author, "", card.owner, card.label, block)
    if item.schema == VERSION.name and item.op == "put":
        number = int(id.rsplit("/", 1)[1])
        if item.datum is None:
            return replace(made, version=number)  # folded since: `_named` finds it in its page
        said = item.datum.data
        return replace(
            made, by=item.datum.author or made.by, what=said["op"], version=number, message=said["message"]
        )
    if item.schema == BLOCK.name and item.op == "put" and item.rev > 1:
        return replace(made, what=(change.note or "change").split(" ", 1)[0], message=change.note or "")
    if item.schema == SHARE.name:
        return replace(made, what="share" if item.op == "put" else "unshare", message=change.note or "")
    if item.schema == CHECKPOINT.name and item.op == "put":
        return replace(made, what="checkpoint", message=change.note or "")
    return None


def _worked(change: Change, done: Work) -> Activity:
    """What was done to a crumb or a trail."""
    assert change.seq is not None, "the log has numbers"
    told = (change.seq, change.at, done.by, done.what, "", done.name, done.id, None, change.note or "")
    return Activity(*told, kind=done.kind)


async def _named(universe: Universe, found: list[Activity]) -> list[Activity]:
    """Fill in what was done where versions were folded since, from the pages they are in now."""
    folded = {each.block for each in found if not each.what}
    versions = {id: {each.number: each for each in await Chain(universe, id).versions()} for id in folded}
    named = []
    for each in found:
        said = None if each.what else versions[each.block].get(each.version or 0)
        if said is not None:
            each = replace(each, by=said.by, what=said.op, message=said.message)
        named.append(each if each.what else replace(each, what="edit"))
    return named
