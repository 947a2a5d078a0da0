"""The room of messages, as the layers around it see it (`universe/room.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dgent.messages.describe import MessageDescriber, name_of
from dgent.model.query import Query
from dgent.universe.room import Describer, Keeper, Name, Room, Title

if TYPE_CHECKING:
    from dgent.model.datum import Datum
    from dgent.model.schema import Schema
    from dgent.store.engine.merge import Rules
    from dgent.store.upkeep import Finding
    from dgent.universe.gate import Principal, Scope
    from dgent.universe.universe import Universe

MESSAGE = "message.message"


class MessageRoom(Room):
    """Answers for messages, batches and archives."""

    kinds = ("message", "batch")

    @property
    def schemas(self) -> tuple[Schema[Any], ...]:
        """The schemas of the room's records."""
        from dgent.messages.record import SCHEMAS

        return SCHEMAS

    async def find_names(
        self, universe: Universe, kind: str, start: str, agent: str, limit: int
    ) -> list[Name]:
        """Return ids of the agent's messages or batches that begin so, newest first."""
        found = await universe.query(
            schema=f"message.{kind}", prefix=start or None, where={"agent": agent}, limit=limit, raw=True
        )
        return [Name(each.id, name_of(each.data)) for each in found]

    async def describer(self, universe: Universe, agent: str | None) -> Describer:
        """Return what describes commits of an agent's messages."""
        return MessageDescriber(universe, agent)

    async def count_things(self, universe: Universe) -> Sequence[tuple[str, int]]:
        """Count messages."""
        return [("message", await universe.count(Query(schema=MESSAGE)))]

    async def inspect(self, universe: Universe, *, deep: bool = False) -> list[Finding]:
        """Look for interrupted redactions, and with `deep` for messages that their batch does not fit."""
        from dgent.messages.inspect import inspect

        return await inspect(universe, deep=deep)

    def merge_rules(self) -> Rules:
        """Return the rules: messages have ids of their own, so copies that wrote apart are put together."""
        from dgent.store.engine.merge import Rules

        return Rules({}, internal=frozenset(("message.erasure", "message.lease")))

    async def titles(self, universe: Universe, found: Sequence[Datum]) -> list[Title]:
        """Return messages by their beginning, with their agent and role."""
        return [_title(each) for each in found]

    def keeper(self, universe: Universe) -> Keeper:
        """Return the undo of messages."""
        from dgent.messages.undo import MessageUndo

        return MessageUndo(universe)

    async def scope(self, universe: Universe, principal: Principal) -> Scope:
        """Return what an agent sees: its own messages."""
        return _Scope(principal.name)


class _Scope:
    """The records that an agent sees: those that name it as theirs, and what it sent to others."""

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def sees(self, id: str, schema: str, datum: Datum | None) -> bool:
        """Check whether a record is of the agent; one of which nothing is left is of nobody."""
        return datum is not None and self._agent in (datum.data.get("agent"), datum.data.get("sender"))


def _title(found: Datum) -> Title:
    kind = (found.schema or "").partition(".")[2]
    detail = " ".join(str(found.data.get(field) or "") for field in ("agent", "role"))
    return Title(kind, found.id, name_of(found.data), detail.strip())


ROOM = MessageRoom()
