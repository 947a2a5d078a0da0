"""Activity: who did what to which block, entry, crumb or trail, derived from the feed of commits.

The rooms describe their commits. Sessions of agents are not records of the store, so they are not part of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from dgent.blocks.access.actor import Actor
from dgent.blocks.context.context import VIEW
from dgent.blocks.history.log import VersionLog
from dgent.blocks.history.retain import RETAIN
from dgent.blocks.history.version import Version
from dgent.blocks.record import BLOCK, CHECKPOINT, ENTRY, SHARE, VERSION, BlockRecord
from dgent.errors import HistoryGone, InputError
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Change, Item
from dgent.universe.room import Action, Describer, load_room, read_before
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from dgent.blocks.library import Library

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
    describers: dict[str, Describer] = {}
    found: list[Activity] = []
    async for change in _backwards(universe, start):
        owners = {reserved.OWNERS.get(item.schema or "") for item in change.items}
        done: list[Action] = []
        for name in reserved.MODULES:
            if name in owners:
                if name not in describers:
                    describers[name] = await load_room(name).describer(universe, library.agent)
                done += await describers[name].describe(change)
        # Within a commit, too, the last comes first.
        found += [_activity(change, each) for each in reversed(done)]
        if len(found) >= limit:
            break
    return found[:limit]


def _activity(change: Change, done: Action) -> Activity:
    assert change.seq is not None, "the log has numbers"
    return Activity(
        seq=change.seq,
        at=change.at,
        by=done.by,
        what=done.what,
        owner=done.owner,
        label=done.name,
        block=done.id,
        version=done.version,
        message=done.message,
        kind=done.kind,
    )


async def _start(universe: Universe, since: int | datetime | None) -> int:
    if since is None:
        return 0
    if isinstance(since, datetime) and since.tzinfo is not None:
        return await universe.backend.seq_at(since)
    if type(since) is int and since >= 0:
        return since
    raise InputError(f"since is a seq or an aware datetime, not {since!r}", field="since")


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


# -- what commits did to blocks ------------------------------------------------------------------------


class BlockDescriber:
    """Describes commits to an agent, by the headers of the blocks that it may see now."""

    def __init__(self, universe: Universe, agent: str, headers: Mapping[str, BlockRecord]) -> None:
        self._universe, self._agent, self._headers = universe, agent, headers
        self._versions: dict[str, dict[int, Version]] = {}  # of blocks with packed versions

    @classmethod
    async def load(cls, universe: Universe, agent: str) -> BlockDescriber:
        """Read the headers of the blocks the agent may see, and of its own deleted ones."""
        visible = await Actor(agent, "untrusted").find_visible(universe)
        own = await universe.recall(
            Query(schema=BLOCK.name, where={"owner": agent, "active": False}, limit=None)
        )
        found = [each.header for each in visible] + own
        return cls(universe, agent, {header.id: header.value for header in found})

    async def describe(self, change: Change) -> list[Action]:
        """Return what a commit did to blocks and entries that the agent may see."""
        before = await read_before(self._universe, change, (BLOCK.name,))
        found = [await self._describe_item(change, item, before) for item in change.items]
        return [each for each in found if each is not None]

    async def _describe_item(self, change: Change, item: Item, before: Mapping[str, Datum]) -> Action | None:
        if item.id is None:
            return None
        if item.schema == ENTRY.name:
            return self._describe_entry(change, item)
        id, note = item.id.split("/", 1)[0], change.note or ""
        header = self._headers.get(id)
        if header is None:
            return None
        action = Action("block", id, change.author, "", header.label, header.owner, message=note)
        is_put = item.op == "put"
        if item.schema == VERSION.name and is_put:
            return await self._describe_version(action, item, int(item.id.rsplit("/", 1)[1]))
        if item.schema == BLOCK.name and is_put and item.rev > 1:
            return action._replace(what=_name_header_change(before.get(id), item.datum))
        if item.schema == SHARE.name:
            return action._replace(what="share" if is_put else "unshare")
        if item.schema == CHECKPOINT.name and is_put:
            return action._replace(what="checkpoint")
        return None

    def _describe_entry(self, change: Change, item: Item) -> Action | None:
        entry = item.datum if item.op == "put" else item.last
        if entry is None or entry.data.get("agent") != self._agent:
            return None
        what = "archive" if item.op == "put" else "unarchive"
        return Action("entry", str(item.id), change.author, what, "", self._agent)

    async def _describe_version(self, action: Action, item: Item, number: int) -> Action:
        """Describe a version by its record, or by its pack if it was packed since."""
        if item.datum is not None:
            data = item.datum.data
            by = item.datum.author or action.by
            return action._replace(by=by, what=data["op"], version=number, message=data["message"])
        if action.id not in self._versions:
            versions = await VersionLog(self._universe, action.id).versions()
            self._versions[action.id] = {each.number: each for each in versions}
        packed = self._versions[action.id].get(number)
        if packed is None:
            return action._replace(what="edit", version=number, message="")
        return action._replace(by=packed.by, what=packed.op, version=number, message=packed.message)


def _name_header_change(before: Datum | None, after: Datum | None) -> str:
    """Name the operation that made one version of a header from another; change where one is not kept."""
    if before is None or after is None:
        return "change"
    was, now = before.data, after.data
    changed = {name for name in (*was, *now) if was.get(name) != now.get(name)}
    if "active" in changed:
        return "restore" if now.get("active") else "delete"
    if "label" in changed:
        return "rename"
    if "pinned" in changed:
        return "pin" if now.get("pinned") else "unpin"
    extras = [each.get("extra") or {} for each in (was, now)]
    for name in (VIEW, RETAIN):
        if extras[0].get(name) != extras[1].get(name):
            return name
    return "describe" if changed else "change"
