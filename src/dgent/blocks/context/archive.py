"""The archive: texts that an agent stores, to be found by search. They are never changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.context import search
from dgent.blocks.record import ENTRY, EntryRecord
from dgent.errors import InputError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.universe.universe import Universe

MAX_TEXT = 200_000


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
        raise InputError("an entry must be a text that is not blank", field="text")
    if len(text) > MAX_TEXT:
        raise InputError(f"an entry has at most {MAX_TEXT} characters, not {len(text)}", field="text")
    named = ids.check_tags(tags)
    words = sorted({*search.words(text), *search.words(" ".join(named))})
    return build_entry(
        await universe.remember(EntryRecord(agent, text, tuple(words)), tags=named, author=agent)
    )


async def get(universe: Universe, agent: str, id: str) -> Entry:
    """Return an entry of an agent, or raise EntryNotFound."""
    found = await universe.get(ids.check_id(id))
    if not isinstance(found, Crystal) or found.schema_name != ENTRY.name or found.value.agent != agent:
        raise errors.EntryNotFound(f"{agent} has no entry {id!r}", id=id)
    return build_entry(found)


async def with_words(
    universe: Universe, agent: str, words: Iterable[str], tags: frozenset[str]
) -> AsyncIterator[Entry]:
    """Yield an agent's entries that have any of some words and all of some tags, each once."""
    seen: set[str] = set()
    for word in words:
        where = {"agent": agent, "words": {"$contains": word}}
        async for found in universe.iterate(Query(schema=ENTRY.name, where=where, tags=tags, limit=None)):
            if isinstance(found, Crystal) and found.id not in seen:
                seen.add(found.id)
                yield build_entry(found)


def build_entry(found: Crystal[EntryRecord]) -> Entry:
    """Build an Entry from its record."""
    return Entry(found.id, found.value.agent, found.value.text, found.datum.tags, found.created_at)
