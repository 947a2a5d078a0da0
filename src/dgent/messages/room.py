"""The room of messages, as the layers around it see it (`universe/room.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dgent.model.query import Query
from dgent.universe.room import Action, Describer, Keeper, Name, Room, Title

if TYPE_CHECKING:
    from dgent.model.datum import Datum
    from dgent.model.schema import Schema
    from dgent.store.backend import Change, Item
    from dgent.store.engine.merge import Rules
    from dgent.store.upkeep import Finding
    from dgent.universe.gate import Principal, Scope
    from dgent.universe.universe import Universe

MAX_NAME = 80
MESSAGE, BATCH, SUMMARY = "message.message", "message.batch", "message.summary"


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
        return _Describer(agent)

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


class _Describer:
    """Describes edits, deletions and archives; what agents and users say as they go is upkeep."""

    def __init__(self, agent: str | None) -> None:
        self._agent = agent

    async def describe(self, change: Change) -> list[Action]:
        """Return what a commit did to messages that were there, and to archives."""
        done = [_describe(change, item) for item in change.items if item.id is not None]
        return [each for each in done if each is not None and self._agent in (None, each.owner)]


def _describe(change: Change, item: Item) -> Action | None:
    datum = item.datum if item.op == "put" else item.last
    data: Mapping[str, Any] = {} if datum is None else datum.data
    owner, name = str(data.get("agent", "")), name_of(data)
    if item.schema == SUMMARY:
        made = item.op == "put" and data.get("chain") is not None
        what, text = ("archive", "archived") if made else ("restore", "restored")
        count = data.get("count")
        text = f"{text} {'1 message' if count == 1 else f'{count} messages'} of {owner}"
        return Action("summary", str(item.id), change.author, what, name, owner, text=text)
    if item.schema != MESSAGE or (item.op == "put" and item.rev == 1):
        return None
    what, verb = ("edit", "edited") if item.op == "put" else ("delete", "deleted")
    text = f"{verb} the message ‘{name}’" if name else f"{verb} a message"
    return Action("message", str(item.id), change.author, what, name, owner, text=text)


def _title(found: Datum) -> Title:
    kind = (found.schema or "").partition(".")[2]
    detail = " ".join(str(found.data.get(field) or "") for field in ("agent", "role"))
    return Title(kind, found.id, name_of(found.data), detail.strip())


def name_of(data: Mapping[str, Any]) -> str:
    """Return the beginning of a message or summary in one line."""
    text = data.get("text") or data.get("type")
    line = " ".join(text[: 4 * MAX_NAME].split()) if isinstance(text, str) else ""
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"


ROOM = MessageRoom()
