"""What the verbs of the cupboard share: the cupboard of a call, and what people type read into values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from dgent.cupboard import Crumb, Cupboard, Stash, errors
from dgent.cupboard.change import CHUNK
from dgent.cupboard.definition import Definition, Definitions
from dgent.cupboard.kind import CRUMB_STATES
from dgent.cupboard.record import LINK
from dgent.cupboard.tables.entity import Entity
from dgent.errors import Denied, InputError
from dgent.model.query import Query
from dgent.verbs import parse
from dgent.verbs.context import Desk
from dgent.verbs.index import NOUNS
from dgent.verbs.registry import nearest, option

SHORTEST = 4  # letters of an id that are enough to look for it

CrumbId = "the crumb's id, the beginning of it, or its name"
TrailId = "the trail's id, the beginning of it, or its name"
StashId = "the stash's id, the beginning of it, or its name"

Property = Annotated[tuple[str, ...], option("name=value; may be given more than once", short="p")]
Type = Annotated[str | None, option("task, epic, bug or chore, or another category of type")]
Priority = Annotated[str | None, option("highest, high, medium, low or lowest")]
Owner = Annotated[str | None, option("who does it")]
Label = Annotated[tuple[str, ...], option("a label; may be given more than once", short="l")]
Force = Annotated[bool, option("also when another agent holds it")]
Limit = Annotated[int, option("at most so many", short="n")]

# The words of other trackers, and the states that they mean here.
SETTING = {"open": "ready", "in_progress": "taken", "closed": "pebble"}
FINDING = {"open": ("draft", "pending", "ready"), "in_progress": ("taken",), "closed": ("pebble", "dust")}


async def cupboard_of(desk: Desk) -> Cupboard:
    """The cupboard on the store that a call is about."""
    return Cupboard(await desk.universe())


def actor(desk: Desk, author: str, given: str | None = None) -> str:
    """Whose name a crumb or a lock is held in: only a partner may name another than the caller."""
    caller = desk.caller
    if caller.trust == "partner":
        return given or caller.agent or author
    stamp = caller.agent or caller.id
    if given not in (None, stamp):
        raise Denied(f"{stamp} is {caller.trust} and may not act as {given!r}", hint="leave it out")
    return stamp


def forcing(desk: Desk, cupboard: Cupboard, force: bool) -> str:
    """Whose name a call finishes a crumb in; only a partner may force what another holds."""
    if force and desk.caller.trust != "partner":
        who = desk.caller.agent or desk.caller.id
        raise Denied(f"{who} is {desk.caller.trust} and may not force", hint="it takes partner")
    return actor(desk, cupboard.universe.author)


def check_holder(desk: Desk, cupboard: Cupboard, crumb: Crumb, state: str, force: bool) -> None:
    """Raise NotLockHolder where a new state would take a crumb from another agent, unless forced."""
    who = forcing(desk, cupboard, force)
    if not force and crumb.state == "taken" and state != "taken" and crumb.holder not in (None, who):
        raise errors.NotLockHolder(
            f"{crumb.id!r} is taken by {crumb.holder!r}, not by {who!r}",
            hint="force overrides",
            id=crumb.id,
            holder=crumb.holder,
        )


def check_held(desk: Desk, cupboard: Cupboard, entity: Any, state: str = "") -> None:
    """The same where there is no `force`, as for a table: a partner is not refused."""
    if desk.caller.trust != "partner" and isinstance(entity, Crumb):
        check_holder(desk, cupboard, entity, state, False)


def check_lock(desk: Desk, before: Any, after: Any) -> None:
    """Refuse to a friend what would take a lock from its holder by way of the table."""
    if desk.caller.trust == "partner" or not isinstance(after, Stash):
        return
    holder = before.value.get("holder") if before.stash_type == "lock" and before.value else None
    if holder not in (None, actor(desk, "")) and after.value != before.value:
        raise errors.NotLockHolder(f"{before.name!r} is held by {holder!r}", id=before.id, holder=holder)


# -- things by their ids or names -------------------------------------------------------------


async def found(cupboard: Cupboard, table: str, given: str) -> Any:
    """The entity of an id, of the only id that begins so, or else of the only one with that name."""
    rows = cupboard.table(table)
    try:
        return await rows.get(given)
    except errors.EntityNotFound as missing:
        error = missing
    u = cupboard.universe
    like: Sequence[Any] = ()
    if len(given) >= SHORTEST:
        like = await u.query(schema=rows.schema.name, prefix=given, limit=2, raw=True)
    if not like and "name" in rows.columns:
        like = await rows.fetch(name=given, limit=2)
    if len(like) > 1:
        raise errors.EntityNotFound(
            f"more than one {rows.noun} is called {given!r}, or has an id that begins so",
            hint="give more of the id",
            id=given,
        )
    if not like:
        if rows.noun in NOUNS:
            error.hint = f"`dgent {rows.noun} list` shows what there is"
        raise error
    return like[0] if isinstance(like[0], Entity) else await rows.get(like[0].id)


async def id_of(cupboard: Cupboard, table: str, given: str) -> str:
    """The id of an entity, given as `found` takes it."""
    return str((await found(cupboard, table, given)).id)


async def parents_of(cupboard: Cupboard, crumbs: Sequence[str]) -> dict[str, list[str]]:
    """The ids of the crumbs that each of some crumbs comes after."""
    parents: dict[str, list[str]] = {}
    for start in range(0, len(crumbs), CHUNK):
        where = {"from_id": {"$in": list(crumbs[start : start + CHUNK])}}
        query = Query(schema=LINK.name, tags={"child_of"}, where=where, descending=False, limit=None)
        for link in await cupboard.universe.recall(query):
            parents.setdefault(link.value.from_id, []).append(link.value.to_id)
    return parents


# -- states and values ------------------------------------------------------------------------


def state_of(word: str) -> str:
    """A state of a crumb, also by the words open, in_progress and closed."""
    return SETTING.get(word, word)


def states_of(words: Sequence[str]) -> list[str]:
    """States of crumbs to look for; open is all that is unfinished and not taken, closed all that ended."""
    states: dict[str, None] = {}
    for word in words:
        if word not in CRUMB_STATES and word not in FINDING:
            hint = nearest(str(word), CRUMB_STATES) or f"use one of {', '.join(CRUMB_STATES)}"
            raise errors.InvalidState(f"{word!r} is no state of a crumb", hint=hint, field="state")
        states |= dict.fromkeys(FINDING.get(word, (word,)))
    return list(states)


def valued(defined: Definition, raw: str) -> Any:
    """A value as a person types it, in the type of its property."""
    kind = defined.value_type
    if kind == "text":
        return raw
    if kind == "list" and not raw.lstrip().startswith("["):
        return [part for each in raw.split(",") if (part := each.strip())]
    if kind in ("categorical", "timestamp") and raw in ("", "null"):
        return None
    if kind == "timestamp":
        return parse.moment(raw, defined.name)
    return raw if kind == "categorical" else parse.value(raw)


def values_of(definitions: Definitions, scope: str, given: Sequence[str], **named: Any) -> dict[str, Any]:
    """Values given as name=value, and those that have an option of their own, by the properties' names."""
    values: dict[str, Any] = {}
    for each in given:
        name, sign, raw = each.partition("=")
        if not sign:
            raise InputError(f"property: {each!r} is no name=value", hint="write owner=ann", field="property")
        defined = definitions.find(scope, name.strip())
        values[defined.name] = valued(defined, raw)
    for name, value in named.items():
        if value not in (None, ()):
            values[name] = list(value) if isinstance(value, tuple) else value
    return values


def filters_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of properties as a filter; of a list with one item, whoever has that item matches."""
    return {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in values.items()
    }
