"""Activity: who did what to which block, entry, crumb or trail, derived from the feed of commits.

Sessions of agents are not records of the store, so they are not part of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent.blocks.history.log import VersionLog
from dgent.blocks.record import BLOCK, CHECKPOINT, ENTRY, SHARE, VERSION, BlockRecord
from dgent.errors import HistoryGone, InputError
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Change, Item
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from dgent.blocks.library import Library


KINDS = {"cupboard.crumb": "crumb", "cupboard.trail": "trail"}
SHOWN = (
    "name",
    "goal",
    "reason",
    "lesson",
    "properties",
    "defer_until",
)  # the others follow from these
MAX_NAME = 200


class CrumbWork(NamedTuple):
    """A change of a crumb or a trail: its author, the operation, and the name of the crumb."""

    kind: str
    id: str
    by: str
    what: str
    name: str


async def find_works(universe: Universe, change: Change) -> dict[str, CrumbWork]:
    """Return what a commit did to crumbs and trails, by id, without changes that only follow from others."""
    items = [item for item in change.items if item.schema in KINDS and item.id is not None]
    later = [item for item in items if item.op == "put" and item.rev > 1]
    before = await _read_before(universe, change, [str(item.id) for item in later])
    found = {}
    for item in items:
        done = _find_work(change, item, before.get(str(item.id)))
        if done is not None:
            found[done.id] = done
    return found


async def _read_before(universe: Universe, change: Change, ids: Sequence[str]) -> Mapping[str, Datum]:
    """Return the records as they were before a commit, as far as history is kept."""
    if not ids or not change.seq:
        return {}
    try:
        found = await universe.get_many(ids, as_of=change.seq - 1, raw=True)
    except HistoryGone:
        return {}
    return {each.id: each for each in found if each is not None}


def _find_work(change: Change, item: Item, before: Datum | None) -> CrumbWork | None:
    datum = item.datum if item.op == "put" else item.last
    data: dict[str, Any] = datum.data if isinstance(datum, Datum) else {}
    by, what = change.author, _what(item, data, before)
    if what == "taken" and isinstance(data.get("holder"), str):
        by = data["holder"]  # the program took it on behalf of an agent
    if not what:
        return None
    return CrumbWork(KINDS[item.schema or ""], str(item.id), by, what, _name(data.get("name")))


def _what(item: Item, data: Mapping[str, Any], before: Datum | None) -> str:
    """Name the change: create, delete, a new state, or change; empty when nothing of interest changed."""
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
    """Return a name on one line."""
    return " ".join(value.split())[:MAX_NAME] if isinstance(value, str) else ""


WINDOW = 256  # commits that are read at once
MAX_COMMITS = 20_000  # how far back a call looks
MAX_ACTIVITY = 1000


@dataclass(frozen=True)
class Activity:
    """Something that was done: its author, the operation, the owner and label of the block, its version.

    `kind` is block, entry, crumb or trail, and `block` is the id. An archival entry has no label; the label
    of a crumb or a trail is its name, and it has no owner.
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


async def list_activity(library: Library, since: int | datetime | None, limit: int) -> list[Activity]:
    """Return what was done since a commit or a time, as far as the agent may see it; newest first."""
    if type(limit) is not int or not 1 <= limit <= MAX_ACTIVITY:
        raise InputError(f"limit is a number from 1 to {MAX_ACTIVITY}, not {limit!r}", field="limit")
    universe = library._universe
    start = await _start(universe, since)
    headers = await _read_headers(library)
    found: list[Activity] = []
    async for change in _backwards(universe, start):
        done = [_describe_item(change, item, headers, library.agent) for item in change.items]
        if any(item.schema in KINDS for item in change.items):
            done += [_describe_work(change, each) for each in (await find_works(universe, change)).values()]
        # Within a commit, too, the last comes first.
        found += [each for each in reversed(done) if each is not None]
        if len(found) >= limit:
            break
    return await _name_packed(universe, found[:limit])


async def _start(universe: Universe, since: int | datetime | None) -> int:
    if since is None:
        return 0
    if isinstance(since, datetime) and since.tzinfo is not None:
        return await universe.backend.seq_at(since)
    if type(since) is int and since >= 0:
        return since
    raise InputError(f"since is a seq or an aware datetime, not {since!r}", field="since")


async def _read_headers(library: Library) -> dict[str, BlockRecord]:
    """Return the headers of the blocks the agent may see, and of its own deleted ones, by id."""
    seen = {
        each.header.id: each.header.value for each in await library._actor.find_visible(library._universe)
    }
    own = await library._universe.recall(
        Query(schema=BLOCK.name, where={"owner": library.agent, "active": False}, limit=None)
    )
    return seen | {header.id: header.value for header in own}


async def _backwards(universe: Universe, start: int) -> AsyncIterator[Change]:
    """Yield the commits after a seq, newest first, as far back as they are kept."""
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


def _describe_item(
    change: Change, item: Item, headers: dict[str, BlockRecord], agent: str
) -> Activity | None:
    """Return the activity of one item of a commit; None when the agent may not see it."""
    id, seq = item.id, change.seq
    if id is None or seq is None:
        return None
    if item.schema == ENTRY.name:
        entry = item.datum if item.op == "put" else item.last
        if entry is None or entry.data.get("agent") != agent:
            return None
        what = "archive" if item.op == "put" else "unarchive"
        return Activity(seq, change.at, change.author, what, agent, "", id, kind="entry")
    return _describe_block_item(change, item, headers, id, seq)


def _describe_block_item(
    change: Change, item: Item, headers: dict[str, BlockRecord], id: str, seq: int
) -> Activity | None:
    """Return the activity of an item that belongs to a block; None when the agent may not see the block."""
    block = id.split("/", 1)[0]
    header = headers.get(block)
    if header is None:
        return None
    made = Activity(seq, change.at, change.author, "", header.owner, header.label, block)
    if item.schema == VERSION.name and item.op == "put":
        return _describe_version(made, item, int(id.rsplit("/", 1)[1]))
    if item.schema == BLOCK.name and item.op == "put" and item.rev > 1:
        return replace(made, what=(change.note or "change").split(" ", 1)[0], message=change.note or "")
    if item.schema == SHARE.name:
        return replace(made, what="share" if item.op == "put" else "unshare", message=change.note or "")
    if item.schema == CHECKPOINT.name and item.op == "put":
        return replace(made, what="checkpoint", message=change.note or "")
    return None


def _describe_version(made: Activity, item: Item, number: int) -> Activity:
    if item.datum is None:
        return replace(made, version=number)  # packed since: `_name_packed` finds it in its pack
    said = item.datum.data
    return replace(
        made, by=item.datum.author or made.by, what=said["op"], version=number, message=said["message"]
    )


def _describe_work(change: Change, done: CrumbWork) -> Activity:
    """Return the activity of a change of a crumb or a trail."""
    assert change.seq is not None, "the log has numbers"
    fields = (change.seq, change.at, done.by, done.what, "", done.name, done.id, None, change.note or "")
    return Activity(*fields, kind=done.kind)


async def _name_packed(universe: Universe, found: list[Activity]) -> list[Activity]:
    """Fill in the operations of versions that were packed since, from their packs."""
    packed = {each.block for each in found if not each.what}
    versions = {
        id: {each.number: each for each in await VersionLog(universe, id).versions()} for id in packed
    }
    named = []
    for each in found:
        said = None if each.what else versions[each.block].get(each.version or 0)
        if said is not None:
            each = replace(each, by=said.by, what=said.op, message=said.message)
        named.append(each if each.what else replace(each, what="edit"))
    return named
