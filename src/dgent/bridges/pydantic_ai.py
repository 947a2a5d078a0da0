"""The conversations of pydantic-ai: `pip install 'dgent[pydantic-ai]'`.

Each message is a record whose parent is the message before it, so a history is one read of a causal chain,
and `u.search` finds what was said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from dgent import clock
from dgent.bridges.key import record_id
from dgent.errors import Conflict
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import LIVE, Check, Op, Put
from dgent.sync.handle import Anywhere, anywhere, begin_anywhere
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

CONVERSATION: Schema[Any] = Schema(
    "pydantic_ai.conversation", indexes=("scope", "saved_at", "forked_at", "conversation")
)
ENTRY: Schema[Any] = Schema("pydantic_ai.entry", indexes=("conversation",), text={"text": 1})

_records = TypeAdapter(ConversationRecord)
_entries = TypeAdapter(ConversationEntry)


class DgentConversationStore(ConversationStore):
    """Keeps conversations at a place: a URL, an open universe, or a handle of `dgent.sync.anywhere`.

    A save is one commit, which is refused if somebody else saved the conversation since it was loaded.
    Deleting a conversation deletes the messages that no other one has; their history can be undone or
    forgotten as that of all records.
    """

    def __init__(self, place: str | Universe | Anywhere) -> None:
        self._place = anywhere(place)
        self._place.register(CONVERSATION, ENTRY)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation; None if there is none."""

        @begin_anywhere
        async def read(universe: Universe) -> Datum | None:
            return await _get(universe, conversation_id)

        datum = await self._place.arun(read)
        return None if datum is None else _records.validate_json(datum.content)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records, of one scope or all, those saved last first."""
        if limit == 0:
            return []

        @begin_anywhere
        async def read(universe: Universe) -> list[Datum]:
            where = None if scope is None else {"scope": scope}
            query = Query(schema=CONVERSATION.name, where=where, order_by="saved_at", limit=limit)
            found: list[Datum] = await universe.query(query, raw=True)
            return found

        return [_records.validate_json(datum.content) for datum in await self._place.arun(read)]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new messages in one commit."""

        @begin_anywhere
        async def write(universe: Universe) -> None:
            stored = await _get(universe, record.conversation_id)
            if (None if stored is None else stored.data["revision"]) != expected_revision:
                raise ConversationConflict(record.conversation_id)
            made = _record_datum(record, universe.author)
            ops: list[Op] = [Put(_entry_datum(each, record, universe.author), 0) for each in new_entries]
            ops.append(Put(made, 0 if stored is None else stored.rev))
            if record.head_id is not None and all(entry.id != record.head_id for entry in new_entries):
                ops.append(Check(_entry_id(record.head_id), LIVE))
            try:
                await universe.commit(ops, note="save a conversation")
            except Conflict as error:
                raise ConversationConflict(record.conversation_id) from error

        await self._place.arun(write)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation, with the messages that no other one has."""

        async def work(tx: Transaction) -> None:
            stored = await tx.get(_conversation_id(conversation_id))
            if stored is None or stored.value["revision"] != expected_revision:
                raise ConversationConflict(conversation_id)
            own = Query(schema=ENTRY.name, where={"conversation": conversation_id}, limit=None)
            forks = Query(schema=CONVERSATION.name, where={"forked_at": {"$ne": None}}, limit=None)
            parents = {each.id: each.parent_id for each in await tx.query(own)}
            for fork in await tx.query(forks):
                if fork.id != stored.id:
                    _release(parents, fork.value)
            for id in (stored.id, *parents):
                await tx.delete(id)

        async def delete(universe: Universe) -> None:
            await universe.transact(work, note="delete a conversation")

        await self._place.arun(delete)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return a message; KeyError if there is none."""
        history = await self.read_history(entry_id, limit=1)
        return history[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the messages up to one, or the last of them, by one read."""
        if head_id is None or limit == 0:
            return []

        @begin_anywhere
        async def read(universe: Universe) -> list[Datum]:
            return await universe.backend.ancestors(_entry_id(head_id), limit or _ALL)

        chain = [each for each in await self._place.arun(read) if each.schema == ENTRY.name]
        if not chain or (limit is None and chain[-1].parent_id is not None):
            raise KeyError(head_id if not chain else chain[-1].parent_id)
        return [_entries.validate_json(datum.content) for datum in reversed(chain)]

    async def aclose(self) -> None:
        """Release the place."""
        await self._place.aclose()


_ALL = 1_000_000  # messages of a history


async def _get(universe: Universe, conversation_id: str) -> Datum | None:
    found: Datum | None = await universe.get(_conversation_id(conversation_id), raw=True)
    return found


def _conversation_id(conversation_id: str) -> str:
    return record_id(CONVERSATION.name, conversation_id)


def _entry_id(entry_id: str) -> str:
    return record_id(ENTRY.name, entry_id)


def _release(parents: dict[str, str | None], record: Mapping[str, Any]) -> None:
    """Take out the messages that a conversation has, which end at its newest one and its branches."""
    for start in (record["head"], *record["branches"]):
        id = None if start is None else _entry_id(start)
        while id is not None and id in parents:
            id = parents.pop(id)


def _record_datum(record: ConversationRecord, author: str) -> Datum:
    data = {
        "conversation": record.conversation_id,
        "scope": record.scope,
        "revision": record.revision,
        "head": record.head_id,
        "branches": list(record.branches),
        "saved_at": clock.text(record.updated_at),
        "forked_from": record.forked_from,
        "forked_at": record.forked_at,
    }
    return Datum(
        _conversation_id(record.conversation_id),
        data=data,
        content=_dump(_records, record),
        schema=CONVERSATION.name,
        schema_version=1,
        author=author,
    )


def _entry_datum(entry: ConversationEntry, record: ConversationRecord, author: str) -> Datum:
    message = entry.message
    data = {
        "conversation": record.conversation_id,
        "kind": message.kind,
        "text": "\n".join(_find_texts(message.parts)),
    }
    return Datum(
        _entry_id(entry.id),
        data=data,
        content=_dump(_entries, entry),
        schema=ENTRY.name,
        schema_version=1,
        author=author,
        parent_id=None if entry.parent_id is None else _entry_id(entry.parent_id),
    )


def _dump(adapter: TypeAdapter[Any], value: Any) -> bytes:
    """Return a value as JSON in which numbers such as infinity stay what they are."""
    plain = _restore(adapter.dump_python(value, mode="json"), adapter.dump_python(value))
    return json.dumps(plain, separators=(",", ":")).encode()


def _restore(plain: Any, value: Any) -> Any:
    """Return plain data with the numbers that JSON lacks, for which it has null."""
    if plain is None:
        return value if isinstance(value, float) else None
    if isinstance(plain, dict) and isinstance(value, dict):
        return {key: _restore(each, value.get(key)) for key, each in plain.items()}
    if isinstance(plain, list) and isinstance(value, list | tuple) and len(plain) == len(value):
        return [*map(_restore, plain, value)]
    return plain


def _find_texts(parts: Iterable[Any]) -> Iterator[str]:
    """Yield the texts of a message: what was said, and what tools were asked for and answered in words."""
    for part in parts:
        content = getattr(part, "content", None)
        pieces = content if isinstance(content, list | tuple) else [content]
        yield from (piece for piece in pieces if isinstance(piece, str) and piece)
