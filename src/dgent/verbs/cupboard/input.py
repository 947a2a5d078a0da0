"""Shared by the verbs of the cupboard: the cupboard of a call, and values from user input."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from dgent import cupboard as room
from dgent.cupboard import errors
from dgent.cupboard.change import CHUNK
from dgent.cupboard.kind import CRUMB_STATES
from dgent.cupboard.record import LINK
from dgent.errors import Ambiguous, Denied, InputError
from dgent.model.query import Query
from dgent.system.near import nearest
from dgent.verbs import parse
from dgent.verbs.context import Context
from dgent.verbs.index import NOUNS
from dgent.verbs.registry import option

if TYPE_CHECKING:
    from dgent.cupboard import Crumb, Cupboard, Table
    from dgent.cupboard.definition import Definition, Definitions

TABLES = {"crumb": "crumbs", "trail": "trails", "stash": "stashes"}
SHORTEST = 4  # letters of an id that are enough to look for it
SEVERAL = 5  # entities that an ambiguous name lists

CrumbId = "the crumb's short id or id, the beginning of it, or its name"
TrailId = "the trail's short id or id, the beginning of it, or its name"
StashId = "the stash's id, the beginning of it, or its name"

Property = Annotated[tuple[str, ...], option("name=value; may be given more than once", short="P")]
Type = Annotated[str | None, option("task, bug, feature, epic, chore …", short="t")]
Priority = Annotated[str | None, option("0 (highest) to 4, or high, low …", short="p")]
Owner = Annotated[str | None, option("who does it")]
Label = Annotated[tuple[str, ...], option("labels: a,b", short="l")]
Force = Annotated[bool, option("also when another agent holds it")]
Limit = Annotated[int, option("at most so many", short="n")]

# The words of other trackers, and the states that they mean here.
SETTING = {"open": "ready", "in_progress": "taken", "closed": "pebble"}
FINDING = {"open": ("draft", "pending", "ready"), "in_progress": ("taken",), "closed": ("pebble", "dust")}


async def cupboard_of(context: Context, as_of: str | None = None) -> Cupboard:
    """Return the cupboard on the store of a call, which a door may keep for the next one.

    With `as_of` as it was then, for reading.
    """
    if as_of is not None:
        return room.Cupboard(await context.universe(as_of))
    universe = await context.universe()
    if context.cupboard is None or context.cupboard.universe is not universe:
        context.cupboard = room.Cupboard(universe)
    return context.cupboard


def actor(context: Context, author: str, given: str | None = None) -> str:
    """Return the agent that holds a crumb or a lock; only a partner may name another than the caller."""
    caller = context.caller
    if caller.trust == "partner":
        return given or caller.agent or author
    stamp = caller.agent or caller.id
    if given not in (None, stamp):
        raise Denied(f"{stamp} is {caller.trust} and may not act as {given!r}", hint="leave it out")
    return stamp


def forcing(context: Context, cupboard: Cupboard, force: bool) -> str:
    """Return the agent that finishes a crumb; raises Denied when others than a partner use force."""
    if force and context.caller.trust != "partner":
        who = context.caller.agent or context.caller.id
        raise Denied(f"{who} is {context.caller.trust} and may not force", hint="it takes partner")
    return actor(context, cupboard.universe.author)


@contextmanager
def holder_hint(context: Context, *command: str, force: bool = True) -> Iterator[None]:
    """Make the hint of a NotLockHolder name commands; `force`: the command has that option."""
    try:
        yield
    except errors.NotLockHolder as error:
        holder = error.details.get("holder")
        if holder is None:
            error.hint = f"`{shlex.join(['dgent', 'crumb', 'get', command[2]])}` shows who holds it"
        elif context.caller.trust != "partner":
            error.hint = f"ask {holder} to release it, or the partner"
        else:
            words = shlex.join(["dgent", "--agent", holder, *command])
            error.hint = f"`{words}` acts as the holder" + "; --force overrides" * force
        raise


def check_holder(context: Context, cupboard: Cupboard, crumb: Crumb, state: str, force: bool) -> None:
    """Raise NotLockHolder where a new state would take a crumb from another agent, unless forced."""
    who = forcing(context, cupboard, force)
    if not force and crumb.state == "taken" and state != "taken" and crumb.holder not in (None, who):
        raise errors.NotLockHolder(
            f"{crumb.id!r} is taken by {crumb.holder!r}, not by {who!r}",
            id=crumb.id,
            holder=crumb.holder,
        )


# -- things by their ids or names -------------------------------------------------------------


async def find_entity(cupboard: Cupboard, table: str, given: str) -> Any:
    """Return the entity of an id, of a unique id prefix, or of a unique name."""
    rows = cupboard.table(table)
    try:
        return await rows.get(given)
    except errors.EntityNotFound as missing:
        error = missing
    like = await _find_like(cupboard, rows, given)
    if len(like) > 1:
        raise _make_ambiguous(rows.noun, given, like)
    if not like:
        if rows.noun in NOUNS:
            error.hint = f"`dgent {rows.noun} list` shows what there is"
            error.hint += f", `dgent stash create {given}` makes one" if rows.noun == "stash" else ""
        raise error
    return like[0]


async def _find_like(cupboard: Cupboard, rows: Table[Any], given: str) -> Sequence[Any]:
    """Return some entities whose short id or id begins so, or whose name this is."""
    u, schema = cupboard.universe, rows.schema.name
    found: Sequence[Any] = []
    if rows.short_ids and len(given) >= SHORTEST - 1:  # without the prefix
        found = await rows.fetch(short_id=f"{cupboard.prefix}-{given}", limit=1)
    if not found and len(given) >= SHORTEST:
        found = await u.query(schema=schema, prefix=given, limit=SEVERAL, raw=True)
    if not found and "name" in rows.columns:
        found = await rows.fetch(name=given, limit=SEVERAL)
    if not found and rows.short_ids and len(given) >= SHORTEST:
        where = {"short_id": {"$prefix": given}}
        found = await u.query(schema=schema, where=where, limit=SEVERAL, raw=True)
    return [each if isinstance(each, rows.entity) else await rows.get(each.id) for each in found]


def _make_ambiguous(noun: str, given: str, found: Sequence[Any]) -> Ambiguous:
    names = [f"{getattr(each, 'handle', each.id)} {getattr(each, 'name', '')!r}" for each in found]
    return Ambiguous(
        f"more than one {noun} is called {given!r}, or has an id that begins so: {', '.join(names)}",
        hint="use one of these ids",
        candidates=[each.id for each in found],
    )


async def id_of(cupboard: Cupboard, table: str, given: str) -> str:
    """Return the id of an entity, given as `find_entity` takes it."""
    return str((await find_entity(cupboard, table, given)).id)


async def parents_of(cupboard: Cupboard, crumbs: Sequence[str]) -> dict[str, list[str]]:
    """Return the ids of the parents of each crumb."""
    parents: dict[str, list[str]] = {}
    for start in range(0, len(crumbs), CHUNK):
        where = {"from_id": {"$in": list(crumbs[start : start + CHUNK])}}
        query = Query(schema=LINK.name, tags={"child_of"}, where=where, descending=False, limit=None)
        for link in await cupboard.universe.recall(query):
            parents.setdefault(link.value.from_id, []).append(link.value.to_id)
    return parents


# -- states and values ------------------------------------------------------------------------


def state_of(word: str) -> str:
    """Return a state of a crumb; open, in_progress and closed mean ready, taken and pebble."""
    return SETTING.get(word, word)


def states_of(words: Sequence[str]) -> list[str]:
    """Return the states to look for; open is all unfinished and not taken ones, closed all finished ones."""
    states: dict[str, None] = {}
    for word in words:
        if word not in CRUMB_STATES and word not in FINDING:
            hint = nearest(str(word), CRUMB_STATES) or f"use one of {', '.join(CRUMB_STATES)}"
            raise errors.InvalidState(f"{word!r} is not a state of a crumb", hint=hint, field="state")
        states |= dict.fromkeys(FINDING.get(word, (word,)))
    return list(states)


def split_list(given: Sequence[str]) -> list[str]:
    """Return the items of an option that may be given more than once, or as a list with commas."""
    return list(dict.fromkeys(part for each in given for raw in each.split(",") if (part := raw.strip())))


def parse_value(defined: Definition, raw: str) -> Any:
    """Parse user input as a value of the property's type."""
    kind = defined.value_type
    if kind == "text":
        return raw
    if kind == "list" and not raw.lstrip().startswith("["):
        return split_list([raw])
    if kind in ("categorical", "timestamp") and raw in ("", "null"):
        return None
    if kind == "timestamp":
        return parse.moment(raw, defined.name)
    return raw if kind == "categorical" else parse.value(raw)


def values_of(definitions: Definitions, scope: str, given: Sequence[str], **named: Any) -> dict[str, Any]:
    """Parse name=value inputs and named options into values by the properties' names."""
    values: dict[str, Any] = {}
    for each in given:
        name, sign, raw = each.partition("=")
        if not sign:
            raise InputError(
                f"property: {each!r} is not name=value", hint="write owner=ann", field="property"
            )
        defined = definitions.find(scope, name.strip())
        values[defined.name] = parse_value(defined, raw)
    for name, value in named.items():
        if value not in (None, ()):
            values[name] = split_list(value) if isinstance(value, tuple) else value
    return values


def filters_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return property values as a filter; a list matches every list that has all its items."""
    return {
        name: frozenset(value) if isinstance(value, list) and value else value
        for name, value in values.items()
    }
