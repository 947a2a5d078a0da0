"""Verbs for stashes: shared values, counters and locks."""

from __future__ import annotations

from typing import Annotated, Any

from dgent.cupboard import Cupboard, Stash
from dgent.cupboard.kind import StashType
from dgent.errors import Conflict, InputError, NotFound
from dgent.universe.lease import LEASE_S
from dgent.verbs import parse
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.cupboard.answer import Held, Removed, StashInfo, StashVersion, stash_of
from dgent.verbs.registry import Ask, Items, argument, option, verb

Id = Annotated[str, argument(input.StashId, complete="stash")]
By = Annotated[str | None, option("the crumb or agent that changes it; kept in its history")]
Expect = Annotated[int | None, option("the version it must have now")]
Holder = Annotated[str | None, option("who holds it; the caller if left out")]


class CreateStash(Ask):
    """Input of `stash.create`."""

    name: Annotated[str, argument("its name, once in each trail")]
    type: Annotated[StashType, option("what it is", short="t")] = "context"
    value: Annotated[Any, option("JSON, or a text; a counter's number")] = None
    trail: Annotated[str | None, option("only for this trail", complete="trail")] = None
    by: By = None


@verb("stash.create", effect="append", errors=(InputError, NotFound, Conflict), makes=True)
async def create(context: Context, ask: CreateStash) -> StashInfo:
    """Make a stash: a resource, an artifact, a context, a counter or a lock."""
    cupboard = await input.cupboard_of(context)
    trail = None if ask.trail is None else await input.id_of(cupboard, "trails", ask.trail)
    made = await cupboard.stashes.create(
        ask.name, ask.type, _value(ask.type, ask.value), trail=trail, changed_by=ask.by
    )
    return stash_of(made, trail)


def _value(kind: str, given: Any) -> Any:
    """Parse user input as a value; a number becomes the value of a counter."""
    value = parse.value(given) if isinstance(given, str) else given
    if kind == "lock" and value is not None:
        raise InputError("a lock takes no value", hint="use `stash acquire`", field="value")
    return {"value": value} if kind == "counter" and type(value) is int else value


class OneStash(Ask):
    """Input of a verb that takes one stash."""

    id: Id


async def _answer_of(cupboard: Cupboard, stash: Stash) -> StashInfo:
    links = await cupboard.links.fetch(link_type="scoped_to", from_id=stash.id)
    return stash_of(stash, links[0].to_id if links else None)


@verb("stash.get", effect="read", errors=(NotFound,))
async def get(context: Context, ask: OneStash) -> StashInfo:
    """Show a stash."""
    cupboard = await input.cupboard_of(context)
    return await _answer_of(cupboard, await input.find_entity(cupboard, "stashes", ask.id))


class ListStashes(Ask):
    """Input of `stash.list`."""

    type: Annotated[StashType | None, option("only of this type", short="t")] = None
    name: Annotated[str | None, option("of this name")] = None
    trail: Annotated[str | None, option("of this trail", complete="trail")] = None
    limit: input.Limit = 100


@verb("stash.list", effect="read", errors=(InputError, NotFound))
async def list_(context: Context, ask: ListStashes) -> Items[StashInfo]:
    """List stashes, oldest first."""
    cupboard = await input.cupboard_of(context)
    if ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    filters: dict[str, Any] = {"limit": ask.limit}
    if ask.type is not None:
        filters["stash_type"] = ask.type
    if ask.name is not None:
        filters["name"] = ask.name
    scopes = {link.from_id: link.to_id for link in await cupboard.links.fetch(link_type="scoped_to")}
    if ask.trail is not None:
        trail = await input.id_of(cupboard, "trails", ask.trail)
        filters["id"] = [stash for stash, scope in scopes.items() if scope == trail]
        if not filters["id"]:
            return Items([])
    return Items([stash_of(each, scopes.get(each.id)) for each in await cupboard.stashes.fetch(filters)])


class SetStash(Ask):
    """Input of `stash.set`."""

    id: Id
    value: Annotated[Any, argument("JSON, or a text", words=True)]
    by: By = None
    expect: Expect = None


@verb("stash.set", effect="write", errors=(InputError, NotFound, Conflict))
async def set_(context: Context, ask: SetStash) -> StashInfo:
    """Give a stash another value."""
    cupboard = await input.cupboard_of(context)
    stash: Stash = await input.find_entity(cupboard, "stashes", ask.id)
    value = _value(stash.stash_type, ask.value)
    done = await cupboard.stashes.set_value(stash.id, value, changed_by=ask.by, expected_version=ask.expect)
    return await _answer_of(cupboard, done)


class IncrementStash(Ask):
    """Input of `stash.increment`."""

    id: Id
    delta: Annotated[int, argument("how much is added; -- before one below 0")] = 1
    by: By = None
    expect: Expect = None


@verb("stash.increment", effect="write", errors=(InputError, NotFound, Conflict))
async def increment(context: Context, ask: IncrementStash) -> StashInfo:
    """Add to a counter; no two calls are lost, from however many programs."""
    cupboard = await input.cupboard_of(context)
    id = await input.id_of(cupboard, "stashes", ask.id)
    await cupboard.stashes.increment(id, ask.delta, changed_by=ask.by, expected_version=ask.expect)
    return await _answer_of(cupboard, await cupboard.stashes.get(id))


class Acquire(Ask):
    """Input of `stash.acquire`."""

    id: Id
    holder: Holder = None
    lease: Annotated[float, option("hold it for so many seconds without a heartbeat; 0 for ever")] = LEASE_S
    by: By = None
    expect: Expect = None


@verb("stash.acquire", effect="write", errors=(InputError, NotFound, Conflict))
async def acquire(context: Context, ask: Acquire) -> Held:
    """Hold a lock; refused while another holder has it."""
    cupboard = await input.cupboard_of(context)
    id = await input.id_of(cupboard, "stashes", ask.id)
    who = input.actor(context, cupboard.universe.author, ask.holder)
    token = await cupboard.stashes.acquire(
        id, who, lease_s=ask.lease or None, changed_by=ask.by, expected_version=ask.expect
    )
    held = (await cupboard.stashes.get(id)).value or {}
    until = held.get("lease_until") if isinstance(held, dict) else None
    return Held(id, who, token, None if until is None else parse.moment(until, "lease_until"))


class Beat(Ask):
    """Input of `stash.heartbeat`."""

    id: Id
    holder: Holder = None
    lease: Annotated[float, option("hold it for so many seconds more")] = LEASE_S


@verb("stash.heartbeat", effect="write", errors=(InputError, NotFound, Conflict))
async def heartbeat(context: Context, ask: Beat) -> Held:
    """Hold a lock for another lease from now on."""
    cupboard = await input.cupboard_of(context)
    stash: Stash = await input.find_entity(cupboard, "stashes", ask.id)
    who = input.actor(context, cupboard.universe.author, ask.holder)
    until = await cupboard.stashes.heartbeat(stash.id, who, lease_s=ask.lease)
    return Held(stash.id, who, (stash.value or {}).get("token"), until)


class Release(Ask):
    """Input of `stash.release`."""

    id: Id
    holder: Holder = None
    by: By = None
    expect: Expect = None


@verb("stash.release", effect="write", errors=(InputError, NotFound, Conflict))
async def release(context: Context, ask: Release) -> StashInfo:
    """Release a lock."""
    cupboard = await input.cupboard_of(context)
    id = await input.id_of(cupboard, "stashes", ask.id)
    who = input.actor(context, cupboard.universe.author, ask.holder)
    await cupboard.stashes.release(id, who, changed_by=ask.by, expected_version=ask.expect)
    return await _answer_of(cupboard, await cupboard.stashes.get(id))


@verb("stash.history", effect="read", errors=(NotFound,))
async def history(context: Context, ask: OneStash) -> Items[StashVersion]:
    """List what was done to a stash, oldest first."""
    cupboard = await input.cupboard_of(context)
    entries = await cupboard.stashes.history(await input.id_of(cupboard, "stashes", ask.id))
    return Items(
        [
            StashVersion(each.version, each.operation, each.value, each.changed_by, each.created_at)
            for each in entries
        ]
    )


@verb("stash.delete", effect="write", errors=(NotFound, Conflict))
async def delete(context: Context, ask: OneStash) -> Removed:
    """Remove a stash; refused while it is a lock that somebody holds."""
    cupboard = await input.cupboard_of(context)
    stash: Stash = await input.find_entity(cupboard, "stashes", ask.id)
    await cupboard.stashes.delete(stash.id)
    return Removed("stashes", stash.id, stash.name)
