"""Sentences of the log about messages: turns that ended, edits, deletions and archives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dgent.model.query import Query
from dgent.universe.room import Action, read_before

if TYPE_CHECKING:
    from dgent.model.datum import Datum
    from dgent.store.backend import Change, Item
    from dgent.universe.universe import Universe

MAX_NAME = 80
FIRST = 10  # messages of a turn among which its request is
TURNS = 5  # of one commit that have a sentence each
MESSAGE, BATCH, SUMMARY = "message.message", "message.batch", "message.summary"


class MessageDescriber:
    """Describes ended turns, edits, deletions and archives; what is said before a turn ends is upkeep."""

    def __init__(self, universe: Universe, agent: str | None) -> None:
        self._universe, self._agent = universe, agent

    async def describe(self, change: Change) -> list[Action]:
        """Return what a commit did to messages that were there and to archives, and which turns it ended."""
        found = [_describe(change, item) for item in change.items if item.id is not None]
        done = [each for each in found if each is not None and self._agent in (None, each.owner)]
        ended = await self._find_ended(change)
        if len(ended) > TURNS:
            owners = sorted({str(each.data.get("agent")) for each in ended})
            text = f"added {len(ended)} turns of {_shorten(', '.join(owners))}"
            return [*done, Action("batch", ended[0].id, change.author, "add", "", text=text, said=True)]
        return [*done, *[await self._describe_turn(change, each) for each in ended]]

    async def _find_ended(self, change: Change) -> list[Datum]:
        """Return the batches of the agent that were open before a commit, and are not after it."""
        puts = [
            each.datum
            for each in change.items
            if each.schema == BATCH and each.op == "put" and each.datum is not None
        ]
        ended = [
            each
            for each in puts
            if each.data.get("state") != "open" and self._agent in (None, each.data.get("agent"))
        ]
        before = await read_before(self._universe, change, (BATCH,)) if ended else {}
        return [each for each in ended if each.id not in before or before[each.id].data["state"] == "open"]

    async def _describe_turn(self, change: Change, batch: Datum) -> Action:
        agent, place = str(batch.data.get("agent")), str(batch.data.get("place"))
        where = {"place": {"$gte": f"{place}.", "$lt": f"{place}~"}}
        query = Query(schema=MESSAGE, where=where, order_by="place", descending=False, limit=FIRST)
        asked = next(
            (each for each in await self._universe.query(query, raw=True) if each.data.get("role") == "user"),
            None,
        )
        said = [
            each.datum.data
            for each in change.items
            if each.datum is not None
            and each.datum.data.get("batch") == batch.id
            and each.datum.data.get("role") == "assistant"
        ]
        whom = "" if asked is None else _shorten(str(asked.data.get("by") or ""))
        if batch.data.get("state") == "interrupted":
            what, text = "interrupt", f"was interrupted answering {whom or 'a message'}"
        elif asked is not None and not said and batch.data.get("count") == 1:
            what, text = "hear", f"was told: {name_of(asked.data)}"
        else:
            what, text = "answer", f"answered {whom}".rstrip() + (f": {name_of(said[-1])}" if said else "")
        return Action("batch", batch.id, agent, what, "", agent, text=text, said=True)


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


def name_of(data: Mapping[str, Any]) -> str:
    """Return the beginning of a message or summary in one line."""
    text = data.get("text") or data.get("type")
    return _shorten(text) if isinstance(text, str) else ""


def _shorten(text: str) -> str:
    line = " ".join(text[: 4 * MAX_NAME].split())
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"
