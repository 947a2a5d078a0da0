"""The archive: texts that an agent puts away, to be found by search. They are never changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.record import ENTRY, EntryRecord
from dgent.errors import InputError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.universe.universe import Universe

MAX_TEXT = 1_000_000


@dataclass(frozen=True)
class Entry:
    """An archival entry."""

    id: str
    agent: str
    text: str
    tags: frozenset[str]
    at: datetime

    def __str__(self) -> str:
        return self.text


async def put(universe: Universe, agent: str, text: object, tags: Iterable[str]) -> Entry:
    """Store an entry."""
    if not isinstance(text, str) or not text.strip():
        raise InputError("an entry is a text that says something", field="text")
    if len(text) > MAX_TEXT:
        raise InputError(f"an entry has at most {MAX_TEXT} characters, not {len(text)}", field="text")
    return entry(await universe.remember(EntryRecord(agent, text), tags=ids.check_tags(tags), author=agent))


async def get(universe: Universe, agent: str, id: str) -> Entry:
    """An agent's entry."""
    found = await universe.get(ids.check_id(id))
    if not isinstance(found, Crystal) or found.schema_name != ENTRY.name or found.value.agent != agent:
        raise errors.EntryNotFound(f"{agent} has no entry {id!r}", id=id)
    return entry(found)


async def entries(universe: Universe, agent: str, tags: Iterable[str] = ()) -> AsyncIterator[Entry]:
    """An agent's entries that have all of some tags, newest first."""
    query = Query(schema=ENTRY.name, where={"agent": agent}, tags=ids.check_tags(tags), limit=None)
    async for found in universe.iterate(query):
        if isinstance(found, Crystal):
            yield entry(found)


def entry(found: Crystal[EntryRecord]) -> Entry:
    """A stored entry as callers have it."""
    return Entry(found.id, found.value.agent, found.value.text, found.datum.tags, found.created_at)
