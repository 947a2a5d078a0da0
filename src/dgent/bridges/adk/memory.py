"""Memory of ADK as records of a place: each event or entry is one, found by its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.adk.events.event import Event
from google.adk.memory import _utils
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types

from dgent import ids
from dgent.bridges.adk import record
from dgent.bridges.adk.record import MEMORY, make_datum, make_id, make_part
from dgent.bridges.placed import Place, Placed
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Delete, Op, Put
from dgent.universe.universe import Universe

MOST = 10  # memories of a search, as ADK's own service returns


class DgentMemoryService(Placed, BaseMemoryService):
    """Keeps memories at a place: a URL, an open universe, or a handle of `dgent.sync.anywhere`.

    A search ranks by words, and by meaning too where the place has an embedder; it returns up to `limit`.
    """

    def __init__(self, place: Place, *, limit: int = MOST) -> None:
        self.limit = limit
        self._settle(place, *record.SCHEMAS)

    async def add_session_to_memory(self, session: Session) -> None:
        """Remember the events of a session, in place of those remembered before, in one commit."""
        user = session.app_name, session.user_id
        await self.place.arun(_add_events, user, session.id, session.events, {}, replace=True)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember some events of a session beside the others; one that is remembered stays as it is."""
        metadata = dict(custom_metadata or {})
        await self.place.arun(_add_events, (app_name, user_id), session_id or "", events, metadata)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember entries; one with an id replaces the entry that has it."""
        metadata = dict(custom_metadata or {})
        given = [
            each.model_copy(
                update={
                    "id": each.id or ids.new_id(),
                    "custom_metadata": {**metadata, **each.custom_metadata},
                }
            )
            for each in memories
        ]

        async def write(universe: Universe) -> None:
            user = app_name, user_id
            made = [_make_memory(universe, user, entry, _entry_id(user, entry.id or "")) for entry in given]
            if made:
                await universe.commit([*map(Put, made)], note="add ADK memories")

        await self.place.arun(write)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete a memory of a user by its id; its event is not remembered again with its session."""
        user = app_name, user_id

        async def write(universe: Universe) -> None:
            where = {"memory": memory_id, "owner": make_id(MEMORY, *user)}
            found = await universe.query(Query(schema=MEMORY.name, where=where, limit=None), raw=True)
            if found:
                data = {"app": app_name, "user": user_id, "deleted": memory_id}
                mark = make_datum(universe, MEMORY, _mark_id(user, memory_id or ""), data)
                ops: list[Op] = [Delete(each.id) for each in found]
                await universe.commit([*ops, Put(mark)], note="delete an ADK memory")

        if memory_id:
            await self.place.arun(write)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the memories of a user that fit the words of a query best, the best one first."""

        async def search(universe: Universe) -> list[Datum]:
            where = {"owner": make_id(MEMORY, app_name, user_id)}
            hits = await universe.search(query, Query(schema=MEMORY.name, where=where), k=self.limit)
            return [hit.datum for hit in hits]

        found = await self.place.arun(search) if query.strip() else []
        return SearchMemoryResponse(
            memories=[MemoryEntry.model_validate_json(each.content) for each in found]
        )


async def _add_events(
    universe: Universe,
    user: tuple[str, str],
    session: str,
    events: Sequence[Event],
    metadata: dict[str, Any],
    replace: bool = False,
) -> None:
    """Store the events that have a content, except those that were deleted; all that is new in one commit."""
    given = [each for each in events if each.content and each.content.parts]
    prefix = make_id(MEMORY, *user, session) + "/"
    marks = await universe.get_many([_mark_id(user, each.id) for each in given], raw=True)
    wanted: dict[str, Datum] = {}
    for event, mark in zip(given, marks, strict=True):
        id = prefix + make_part(event.id)
        if mark is None and id not in wanted:
            wanted[id] = _make_memory(universe, user, _make_entry(event, metadata), id, session)
    stored = {each.id: each for each in await record.list_below(universe, MEMORY, prefix)}
    ops: list[Op] = [
        Put(each)
        for id, each in wanted.items()
        if id not in stored or (replace and stored[id].content != each.content)
    ]
    if replace:
        ops += [Delete(id) for id in stored if id not in wanted]
    if ops:
        await universe.commit(ops, note="add ADK events to memory")


def _make_entry(event: Event, metadata: dict[str, Any]) -> MemoryEntry:
    return MemoryEntry(
        id=event.id,
        content=event.content or types.Content(),
        author=event.author,
        timestamp=_utils.format_timestamp(event.timestamp),
        custom_metadata=metadata,
    )


def _make_memory(
    universe: Universe, user: tuple[str, str], entry: MemoryEntry, id: str, session: str | None = None
) -> Datum:
    data = {
        "app": user[0],
        "user": user[1],
        "session": session,
        "owner": make_id(MEMORY, *user),
        "memory": entry.id,
        "author": entry.author,
        "text": " ".join(part.text for part in entry.content.parts or () if part.text),
    }
    return make_datum(universe, MEMORY, id, data, entry.model_dump_json(exclude_none=True).encode())


def _entry_id(user: tuple[str, str], memory_id: str) -> str:
    return f"{make_id(MEMORY, *user)}/~e/{make_part(memory_id)}"


def _mark_id(user: tuple[str, str], memory_id: str) -> str:
    return f"{make_id(MEMORY, *user)}/~d/{make_part(memory_id)}"
