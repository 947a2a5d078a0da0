"""Activity: who did what to which block, entry, crumb or trail, derived from the feed of commits.

The rooms describe their commits. Sessions of agents are not records of the store, so they are not part of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from dgent.errors import InputError
from dgent.model import reserved
from dgent.store.backend import Change
from dgent.universe.history import read_back
from dgent.universe.room import Action, Describers
from dgent.universe.tail import follow
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from dgent.blocks.library import Library

KINDS = ("block", "entry", "crumb", "trail")
ROOMS = ("blocks", "cupboard")  # whose things these are
SCHEMAS = frozenset(schema for schema, room in reserved.OWNERS.items() if room in ROOMS)
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
    describers = Describers(universe, library.agent, ROOMS)
    found: list[Activity] = []
    async for change in _read_back(universe, start):
        if not any(item.schema in SCHEMAS for item in change.items):
            continue  # most are messages of agents at work, of which there is nothing to tell
        done = [each for each in await describers.describe(change) if each.kind in KINDS]
        # Within a commit, too, the last comes first.
        found += [_activity(change, each) for each in reversed(done)]
        if len(found) >= limit:
            break
    return found[:limit]


async def _read_back(universe: Universe, start: int) -> AsyncIterator[Change]:
    """Yield the commits after one that may have something to tell, newest first."""
    tail = await follow(universe)
    known = None if tail is None else tail.find_by_schema(tail.at(start), SCHEMAS)
    if known is None:
        async for change in read_back(universe, max(start, await universe.seq() - MAX_COMMITS)):
            yield change
        return
    for change in reversed(known):
        if not change.more:
            yield change
        elif change.seq is not None:  # too large to be kept
            async for whole in read_back(universe, change.seq - 1, change.seq):
                yield whole


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
