"""Forget a user: all that rooms, programs and the bridges of other frameworks keep of one, in one erasure.

A record is of a user by the name that its framework has for one: the rules below. What belongs to such a
record goes with it: the writes of a thread, the items of a session, the versions of a file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from dgent import ids
from dgent.cupboard import Cupboard
from dgent.cupboard.record import LABELS
from dgent.errors import InputError
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import EVERY_ROOM
from dgent.universe.universe import Universe

TAG = "user:"
BATCH = 500  # commits read at once
VECTORS = "langgraph.vector."  # how the schemas of vectors of items begin
_PARTS = re.compile("[/:]")


class UserErasure(msgspec.Struct, frozen=True):
    """The result of forgetting a user: how many records of each schema, and whether their bytes are gone.

    `erased` and `remains` are those of `Universe.forget`; `erased` is False for a dry run.
    """

    user: str
    records: int
    versions: int
    schemas: dict[str, int]
    erased: bool
    dry_run: bool = False
    remains: str = ""


class Rule(msgspec.Struct, frozen=True):
    """Tells of the records of a schema which are of a user, and what goes together.

    A record that follows a key of an erased one is erased with it. Without `names` no record is of a user by
    itself.
    """

    names: Callable[[Datum, str], bool] = lambda _datum, _user: False
    keys: Callable[[Datum], Iterable[str]] = lambda _datum: ()
    follows: Callable[[Datum], Iterable[str]] = lambda _datum: ()


class Trace(msgspec.Struct):
    """A record of a schema with a rule: whether it is the user's, and what it goes with."""

    schema: str
    is_own: bool
    keys: frozenset[str]
    follows: frozenset[str]


def tag_of(user: str) -> str:
    """Return the tag of records, and the label of crumbs, that are about a user."""
    return TAG + user


async def forget_user(universe: Universe, user: str, *, dry_run: bool = False) -> UserErasure:
    """Erase for good what is stored of a user, deleted records included; nothing brings it back.

    Stop the agents of the user before: what they store meanwhile stays. Results in LangGraph's cache name no
    user and are made again, so all of them go.
    """
    if not user or _PARTS.search(user):
        raise InputError(f"{user!r} is not a valid user: use a name without / and :", field="user")
    whole = universe.for_room(EVERY_ROOM)
    traces = await _find_traces(whole, user)
    wanted = _choose(traces)
    counts = dict(sorted(Counter(traces[id].schema for id in wanted).items()))
    if dry_run or not wanted:
        versions = sum([len(await whole.history(id)) for id in wanted])
        return UserErasure(user, len(wanted), versions, counts, not dry_run, dry_run)
    await _delete_crumbs(universe, [id for id in wanted if traces[id].schema == "cupboard.crumb"])
    done = await whole.forget(*wanted)
    return UserErasure(user, done.records, done.versions, counts, done.erased, remains=done.remains)


async def _delete_crumbs(universe: Universe, crumbs: list[str]) -> None:
    """Delete crumbs by their room, which tells those that wait for them."""
    live = [each.id for each in await universe.get_many(crumbs, raw=True) if each is not None]
    for id in live:
        await Cupboard(universe).crumbs.delete(id)


def _choose(traces: Mapping[str, Trace]) -> list[str]:
    """Return the ids of the user's records, and of those that go with them."""
    followers: dict[str, list[str]] = {}
    for id, trace in traces.items():
        for key in trace.follows:
            followers.setdefault(key, []).append(id)
    wanted: dict[str, None] = {}
    waiting = [id for id, trace in traces.items() if trace.is_own]
    while waiting:
        id = waiting.pop()
        if id not in wanted:
            wanted[id] = None
            waiting += [each for key in traces[id].keys for each in followers.get(key, ())]
    return sorted(wanted)


async def _find_traces(universe: Universe, user: str) -> dict[str, Trace]:
    """Return what there is to choose from: live records, and deleted ones that have a history."""
    found: dict[str, Trace] = {}
    async for datum in _read_past(universe):
        _trace(found, datum, user)
    for schema in (await universe.stats()).schemas:
        if _rule_of(schema.name) is not None:
            async for datum in _read_live(universe, Query(schema=schema.name, limit=None, content=False)):
                _trace(found, datum, user)
    async for datum in _read_live(universe, Query(tags={tag_of(user)}, limit=None, content=False)):
        _trace(found, datum, user)
    return found


async def _read_live(universe: Universe, query: Query) -> AsyncIterator[Datum]:
    """Yield records, with those that have expired and that no sweep has deleted yet."""
    async for datum in universe.iterate(query, raw=True):
        yield datum
    for datum in await universe.query(query.replace(expired=True), raw=True):
        yield datum


async def _read_past(universe: Universe) -> AsyncIterator[Datum]:
    """Yield every version that the feed still has, the oldest first: so the newest decides."""
    since = (await universe.stats()).first_seq - 1
    while changes := await universe.changes(max(since, 0), limit=BATCH):
        for change in changes:
            for item in change.items:
                if item.datum is not None:
                    yield item.datum if isinstance(item.datum, Datum) else item.datum.datum
        if changes[-1].seq is None:
            return
        since = changes[-1].seq


def _trace(found: dict[str, Trace], datum: Datum, user: str) -> None:
    schema = datum.schema or ""
    rule = _rule_of(schema) or Rule()
    is_own = tag_of(user) in datum.tags or rule.names(datum, user)
    if is_own or schema in RULES or schema.startswith(VECTORS):
        keys, follows = frozenset(rule.keys(datum)), frozenset(rule.follows(datum))
        found[datum.id] = Trace(schema, is_own, keys, follows)
    else:
        found.pop(datum.id, None)  # an older version was the user's, and this one is not


# -- rules --------------------------------------------------------------------------------


def has_part(name: Any, user: str) -> bool:
    """Return whether a name has a user as one of its parts, which / or : divide."""
    return isinstance(name, str) and user in _PARTS.split(name)


def _field(datum: Datum, *names: str) -> Iterator[str]:
    for name in names:
        if isinstance(value := datum.data.get(name), str):
            yield f"{name}={value}"


def _thread(datum: Datum) -> list[str]:
    return [f"thread={datum.id.split('/')[1]}"]


def _names_thread(datum: Datum, user: str) -> bool:
    metadata = datum.data.get("metadata") or {}
    return metadata.get("user_id") == user or has_part(datum.data.get("thread"), user)


def _names_adk(datum: Datum, user: str) -> bool:
    # The id is the schema, the app, the user, and more; below "user:" files and state have no other field.
    return datum.data.get("user") == user or datum.id.split("/")[2:3] == [ids.escape(user)]


def _names_block(datum: Datum, user: str) -> bool:
    return datum.data.get("owner") == user or has_part(datum.data.get("label"), user)


def _has_label(datum: Datum, user: str) -> bool:
    labels = (datum.data.get("properties") or {}).get(LABELS) or ()
    return tag_of(user) in labels


def _part_of_block(datum: Datum) -> Iterator[str]:
    yield f"block={datum.id.partition('/')[0]}"
    yield from _field(datum, "block")


def _ends(*names: str) -> Callable[[Datum], list[str]]:
    """Return a function for the ids of crumbs that a record is about."""
    return lambda datum: [f"crumb={datum.data.get(name)}" for name in names]


ADK = ("session", "state", "event", "memory", "artifact")
BLOCK_PARTS = (
    *("version", "page", "snapshot", "erasure", "redaction", "checkpoint", "share", "seen", "audit", "text"),
)
_SESSION = Rule(follows=lambda datum: _field(datum, "session"))
_BLOCK = Rule(follows=_part_of_block)
_ITEM = Rule(follows=lambda datum: _field(datum, "item"))

RULES: dict[str, Rule] = {
    "langgraph.checkpoint": Rule(_names_thread, _thread, _thread),
    "langgraph.writes": Rule(follows=_thread),
    "langgraph.content": Rule(follows=_thread),
    "langgraph.item": Rule(
        lambda datum, user: user in datum.data.get("namespace", ()), lambda datum: [f"item={datum.id}"]
    ),
    "langgraph.cache": Rule(lambda _datum, _user: True),
    "openai_agents.session": Rule(
        lambda datum, user: has_part(datum.data.get("session"), user), lambda datum: _field(datum, "session")
    ),
    "openai_agents.item": _SESSION,
    "openai_agents.usage": _SESSION,
    "pydantic_ai.conversation": Rule(
        lambda datum, user: any(has_part(datum.data.get(name), user) for name in ("scope", "conversation")),
        lambda datum: _field(datum, "conversation"),
        # A fork has the messages of the conversation that it began with.
        lambda datum: [f"conversation={datum.data.get('forked_from')}"],
    ),
    "pydantic_ai.entry": Rule(follows=lambda datum: _field(datum, "conversation")),
    **dict.fromkeys((f"adk.{name}" for name in ADK), Rule(_names_adk)),
    "block.block": Rule(_names_block, lambda datum: [f"block={datum.id}"]),
    **dict.fromkeys((f"block.{name}" for name in BLOCK_PARTS), _BLOCK),
    "block.entry": Rule(lambda datum, user: datum.data.get("agent") == user),
    "cupboard.crumb": Rule(_has_label, lambda datum: [f"crumb={datum.id}"]),
    "cupboard.metadata": Rule(follows=_ends("crumb_id")),
    "cupboard.link": Rule(follows=_ends("from_id", "to_id")),
    "cupboard.lease": Rule(follows=_ends("target_id")),
}


def _rule_of(schema: str) -> Rule | None:
    return _ITEM if schema.startswith(VECTORS) else RULES.get(schema)
