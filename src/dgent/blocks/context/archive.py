"""The archive: texts that an agent stores, to be found by search. They are never changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.access.actor import find_scope
from dgent.blocks.record import ENTRY, EntryRecord
from dgent.errors import InputError
from dgent.model.crystal import Crystal
from dgent.universe.gate import Principal
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


async def put(
    universe: Universe,
    agent: str,
    text: object,
    tags: Iterable[str],
    id: str | None = None,
    created_at: datetime | None = None,
) -> Entry:
    """Store an entry."""
    named = ids.check_tags(tags)
    record = EntryRecord(agent, check_text(text), tuple(sorted(named)))
    stored = await universe.remember(record, id=id, tags=named, author=agent, created_at=created_at)
    return build_entry(stored)


def check_text(text: object) -> str:
    """Return the text of an entry; raises InputError for one that is blank or too long."""
    if not isinstance(text, str) or not text.strip():
        raise InputError("an entry must be a text that is not blank", field="text")
    if len(text) > MAX_TEXT:
        raise InputError(f"an entry has at most {MAX_TEXT} characters, not {len(text)}", field="text")
    return text


async def get(universe: Universe, agent: str, id: str) -> Entry:
    """Return an entry of an agent, or of an archive that is shared with it; raises EntryNotFound."""
    found = await universe.get(ids.check_id(id))
    if isinstance(found, Crystal) and found.schema_name == ENTRY.name:
        own = found.value.agent == agent
        if own or found.value.agent in (await find_scope(universe, Principal(agent, "friend"))).archives:
            return build_entry(found)
    raise errors.EntryNotFound(f"{agent} has no entry {id!r}", id=id)


async def require_own(universe: Universe, agent: str, id: str) -> None:
    """Raise EntryNotFound for what is not an entry, PermissionDenied for one of another agent."""
    found = await get(universe, agent, id)
    if found.agent != agent:
        raise errors.PermissionDenied(
            f"the entry {id!r} is in the archive of {found.agent}, which is shared to be read", id=id
        )


def build_entry(found: Crystal[EntryRecord]) -> Entry:
    """Build an Entry from its record."""
    return Entry(found.id, found.value.agent, found.value.text, found.datum.tags, found.created_at)
