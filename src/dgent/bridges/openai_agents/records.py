"""The records of a session: itself with its branches, its items, and the usage of its turns.

An item's parent is the item before it, so a branch is the item that it ends with, and branches share what
they have in common. Every change writes the record of the session, which so decides who was first.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec

from dgent import clock
from dgent.bridges.key import record_id
from dgent.bridges.openai_agents.item import find_kind, find_texts, find_tool
from dgent.errors import VersionConflict
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import Delete, Op, Put
from dgent.universe.universe import Universe

R = TypeVar("R")

SESSION: Schema[Any] = Schema("openai_agents.session", indexes=("session",))
ITEM: Schema[Any] = Schema("openai_agents.item", indexes=("session",), text={"text": 1})
USAGE: Schema[Any] = Schema("openai_agents.usage", indexes=("session",))

MAIN = "main"
ALL = 1_000_000  # items of a branch
AT_ONCE = 64  # items that one read finds by their ids
ATTEMPTS = 64  # at a change while other processes change the session
NONE_KEPT: Mapping[str, Datum] = MappingProxyType({})


class Branch(msgspec.Struct):
    """A way through a conversation, by the item that it ends with."""

    branch: str
    head: str | None = None
    length: int = 0
    turn: int = 0
    created_at: str = ""


class Talk(msgspec.Struct):
    """The record of a session; `used` has all names that branches ever had."""

    session: str
    generation: int = 0
    next: int = 1
    used: list[str] = []
    branches: list[Branch] = []

    def find(self, name: str) -> Branch:
        """Return a branch; one without items is not stored."""
        return next((each for each in self.branches if each.branch == name), Branch(name))

    def keep(self, branch: Branch) -> None:
        """Store a branch in place of the one with its name; an empty one goes."""
        names = [each.branch for each in self.branches]
        if branch.branch in names:
            at = names.index(branch.branch)
            self.branches[at : at + 1] = [branch] if branch.length else []
        elif branch.length:
            branch.created_at = branch.created_at or clock.now().strftime("%Y-%m-%d %H:%M:%S")
            self.branches.append(branch)
            self.reserve(branch.branch)

    def reserve(self, name: str) -> None:
        """Keep a name from being given to another branch."""
        if name not in self.used:
            self.used.append(name)


class Entry(NamedTuple):
    """An item with its JSON, which is made before anything is stored."""

    item: Any
    raw: bytes


Work = Callable[[Universe, Talk], Awaitable[tuple[list[Op] | None, R]]]


def encode(items: Sequence[Any]) -> list[Entry]:
    """Return items with their JSON; TypeError for one that has none."""
    return [Entry(item, json.dumps(item).encode()) for item in items]


def decode(datums: Sequence[Datum]) -> list[Any]:
    """Return the items of records; as one list, which takes half the time of one after another."""
    return json.loads(b"[%b]" % b",".join([each.content for each in datums]))  # type: ignore[no-any-return]


def show(text: str) -> str:
    """Return a text that can be stored: halves of characters become question marks."""
    return text.encode("utf-8", "replace").decode()


def session_record_id(session: str) -> str:
    """Return the id of the record of a session."""
    return record_id(SESSION.name, session)


def usage_id(session: str, branch: str, turn: int) -> str:
    """Return the id of the usage of a turn."""
    return record_id(USAGE.name, session, branch, str(turn))


async def read_session(universe: Universe, session: str) -> tuple[dict[str, Any] | None, int]:
    """Return the data of a session and its revision, which is 0 if nothing was stored yet."""
    datum = await universe.get(session_record_id(session), raw=True)
    return (None, 0) if datum is None else (datum.data, datum.rev)


async def read_talk(universe: Universe, session: str) -> tuple[Talk, int]:
    """Return a session and its revision, which is 0 if nothing was stored yet."""
    data, rev = await read_session(universe, session)
    return Talk(session) if data is None else msgspec.convert(data, Talk), rev


async def change_talk(universe: Universe, session: str, note: str, work: Work[R]) -> R:
    """Do what a function says in one commit with the session it was told of, again if others were faster.

    The function returns ops, None for no change, and the result.
    """
    async with universe.names.alone(session_record_id(session)):
        for attempt in range(ATTEMPTS):
            talk, rev = await read_talk(universe, session)
            ops, result = await work(universe, talk)
            if ops is None:
                return result
            try:
                await universe.commit([Put(make_session(universe, talk), rev), *ops], note=note)
            except VersionConflict:
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(clock.jitter(0, min(0.002 * 2**attempt, 0.1)))
            else:
                return result
    raise AssertionError("unreachable")


def make_session(universe: Universe, talk: Talk) -> Datum:
    """Return the record of a session."""
    return _make(universe, SESSION, session_record_id(talk.session), msgspec.to_builtins(talk))


async def read_chain(
    universe: Universe, branch: Branch, limit: int | None = None, kept: Mapping[str, Datum] = NONE_KEPT
) -> list[Datum]:
    """Return the items of a branch, or the last of them, the first one first; those that are kept unread."""
    if branch.head is None or limit == 0:
        return []
    wanted = min(limit or branch.length, branch.length)
    return (
        _walk_kept(kept, branch.head, wanted)
        or await _read_run(universe, branch.head, wanted)
        or (await universe.backend.ancestors(branch.head, min(limit or ALL, ALL)))[::-1]
    )


def _walk_kept(kept: Mapping[str, Datum], head: str, count: int) -> list[Datum]:
    """Return items from parent to parent, up to one; none unless all are kept."""
    found: list[Datum] = []
    id: str | None = head
    while id is not None and len(found) < count and (item := kept.get(id)) is not None:
        found.append(item)
        id = item.parent_id
    return found[::-1] if len(found) == count else []


async def _read_run(universe: Universe, head: str, count: int) -> list[Datum]:
    """Return items that were added one after another, up to one; none where that is not so.

    Their ids follow from each other, so that few reads find them all, and their parents prove it.
    """
    start, _, number = head.rpartition("/")
    if not number.isdecimal():
        return []
    last = int(number)
    ids = [f"{start}/{each:06}" for each in range(last - count + 1, last + 1)]
    found: list[Datum] = []
    for at in range(0, count, AT_ONCE):
        for datum in await universe.get_many(ids[at : at + AT_ONCE], raw=True):
            if datum is None or (found and datum.parent_id != found[-1].id):
                return []
            found.append(datum)
    return found


def append(
    universe: Universe, session: str, talk: Talk, branch: Branch, entries: Sequence[Entry]
) -> list[Op]:
    """Add items behind the end of a branch; returns the ops that store them."""
    ops: list[Op] = []
    for item, raw in entries:
        kind = find_kind(item)
        branch.turn += kind == "user"
        tool = find_tool(item)
        data = {
            "session": talk.session,
            "turn": branch.turn,
            "kind": show(kind),
            "tool": None if tool is None else show(tool),
            "text": show("\n".join(find_texts(item))),
        }
        id = record_id(ITEM.name, session, f"{talk.next:06}")
        ops.append(Put(_make(universe, ITEM, id, data, raw, branch.head)))
        branch.head, branch.length, talk.next = id, branch.length + 1, talk.next + 1
    talk.keep(branch)
    return ops


async def drop(universe: Universe, talk: Talk, name: str, items: Sequence[Datum]) -> list[Op]:
    """Return the ops that delete items from the end of a branch, except those that another one has."""
    heads = {each.head for each in talk.branches if each.branch != name}
    gone: list[str] = []
    for item in reversed(items):
        if item.id in heads or (heads and await _has_others(universe, item.id, gone[-1:])):
            break
        gone.append(item.id)
    return [Delete(id) for id in gone]


async def _has_others(universe: Universe, id: str, gone: Collection[str]) -> bool:
    """Return True if an item is followed by one that stays."""
    query = Query(schema=ITEM.name, parent=id, limit=2, content=False)
    return any(each.id not in gone for each in await universe.query(query, raw=True))


async def list_records(universe: Universe, schema: Schema[Any], talk: Talk) -> list[Datum]:
    """Return all records of a session, without the items' JSON."""
    query = Query(schema=schema.name, where={"session": talk.session}, limit=None, content=False)
    found: list[Datum] = await universe.query(query, raw=True)
    return found


def put_usage(universe: Universe, session: str, talk: Talk, branch: Branch, usage: dict[str, Any]) -> Op:
    """Return the op that stores the usage of the newest turn of a branch."""
    data = {"session": talk.session, "branch": branch.branch, "turn": branch.turn, **usage}
    return Put(_make(universe, USAGE, usage_id(session, branch.branch, branch.turn), data))


def _make(
    universe: Universe,
    schema: Schema[Any],
    id: str,
    data: dict[str, Any],
    content: bytes = b"",
    parent: str | None = None,
) -> Datum:
    return Datum(
        id,
        data=data,
        content=content,
        schema=schema.name,
        schema_version=1,
        author=universe.author,
        parent_id=parent,
    )
