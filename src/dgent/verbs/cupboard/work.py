"""Verbs for work: list ready crumbs, take and finish them, show the board."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from dgent.cupboard.kind import CRUMB_STATES
from dgent.cupboard.lease import LEASE_S
from dgent.cupboard.record import CRUMB
from dgent.errors import Conflict, InputError, NotFound
from dgent.model.query import Query
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.cupboard.answer import (
    Board,
    Column,
    Crumb,
    Dropped,
    Held,
    Queue,
    Queued,
    crumb_fields,
    crumb_of,
    neighbour_of,
    queued_of,
)
from dgent.verbs.cupboard.crumb import FindCrumbs, OneCrumb, filters_of
from dgent.verbs.registry import Ask, argument, option, verb

if TYPE_CHECKING:
    from dgent.cupboard import Crumb as CrumbEntity
    from dgent.cupboard import Cupboard

Lease = Annotated[
    float | None,
    option("hold it for so many seconds without a heartbeat; without this, until it is released"),
]


class Ready(FindCrumbs):
    """Input of `crumb.ready`."""

    limit: Annotated[int | None, option("at most so many", short="n")] = None
    explain: Annotated[bool, option("say why each can be taken")] = False


@verb("crumb.ready", effect="read", errors=(InputError, NotFound))
async def ready(context: Context, ask: Ready) -> Queue:
    """List the crumbs that can be taken now, by priority, then age."""
    cupboard = await input.cupboard_of(context)
    if ask.limit is not None and ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    filters = await filters_of(cupboard, ask)
    if ask.explain:
        items = [queued_of(each) for each in await cupboard.explain_ready(ask.limit, **filters)]
    else:
        items = [Queued(**crumb_fields(each)) for each in await cupboard.ready(ask.limit, **filters)]
    return Queue(items, "" if items or filters else await _why_none(cupboard))


async def _why_none(cupboard: Cupboard) -> str:
    """Explain why nothing is ready."""
    counts = {state: await _count(cupboard, state) for state in CRUMB_STATES[:4]}
    parts = [f"{count} {state}" for state, count in counts.items() if count]
    if counts["ready"]:
        parts.append("those that are ready wait for others, or are put off: see `dgent crumb blocked`")
    elif parts:
        parts.append("`dgent crumb state ID ready` offers one")
    return "; ".join(parts) or "there is no unfinished work"


async def _count(cupboard: Cupboard, state: str) -> int:
    return await cupboard.universe.count(Query(schema=CRUMB.name, where={"state": state}))


class Blocked(Ask):
    """Input of `crumb.blocked`."""

    limit: Annotated[int | None, option("at most so many", short="n")] = None


@verb("crumb.blocked", effect="read")
async def blocked(context: Context, ask: Blocked) -> Queue:
    """List the unfinished crumbs that wait for others, with what they wait for."""
    cupboard = await input.cupboard_of(context)
    items = [queued_of(each) for each in await cupboard.blocked(ask.limit)]
    return Queue(items, "" if items else "nothing waits for anything")


@verb("crumb.explain", effect="read", errors=(NotFound,))
async def explain(context: Context, ask: OneCrumb) -> Queue:
    """Say why a crumb can be taken now, or cannot."""
    cupboard = await input.cupboard_of(context)
    return Queue([queued_of(await cupboard.explain(await input.id_of(cupboard, "crumbs", ask.id)))])


class Take(FindCrumbs):
    """Input of `crumb.take`."""

    lease: Lease = None


@verb("crumb.take", effect="write", errors=(InputError, NotFound))
async def take(context: Context, ask: Take) -> Crumb:
    """Claim the next ready crumb for an agent; no two get the same."""
    cupboard = await input.cupboard_of(context)
    who = input.actor(context, cupboard.universe.author)
    filters = await filters_of(cupboard, ask)
    taken = await cupboard.take(who, lease_s=ask.lease, **filters)
    if taken is None:
        hint = await _why_none(cupboard) if not filters else "`dgent ready` lists what can be taken"
        raise NotFound("nothing is ready to be taken", hint=hint)
    return crumb_of(taken)


class Finish(Ask):
    """Input of `crumb.done`, `crumb.drop` and `crumb.release`."""

    id: Annotated[str, argument(input.CrumbId, complete="crumb")]
    token: Annotated[int | None, option("the token of `take`: only if nobody else took it since")] = None
    force: input.Force = False


@verb("crumb.done", effect="write", errors=(NotFound, Conflict))
async def done(context: Context, ask: Finish) -> Crumb:
    """Mark a crumb as done: it becomes a pebble."""
    cupboard = await input.cupboard_of(context)
    with input.holder_hint(context, "crumb", "done", ask.id):
        return crumb_of(await cupboard.done(**await _claim(context, cupboard, ask)))


@verb("crumb.drop", effect="write", errors=(NotFound, Conflict))
async def drop(context: Context, ask: Finish) -> Dropped:
    """Give a crumb up: it becomes dust. Says what still waits for it."""
    cupboard = await input.cupboard_of(context)
    with input.holder_hint(context, "crumb", "drop", ask.id):
        dropped = await cupboard.drop(**await _claim(context, cupboard, ask))
    waiting = [neighbour_of(each) for each in await cupboard.waiting_for(dropped)]
    return Dropped(**crumb_fields(dropped), waiting=waiting)


@verb("crumb.release", effect="write", errors=(NotFound, Conflict))
async def release(context: Context, ask: Finish) -> Crumb:
    """Give a crumb that was taken back to the queue."""
    cupboard = await input.cupboard_of(context)
    with input.holder_hint(context, "crumb", "release", ask.id):
        return crumb_of(await cupboard.release(**await _claim(context, cupboard, ask)))


async def _claim(context: Context, cupboard: Cupboard, ask: Finish) -> dict[str, Any]:
    """Return the arguments that finish a crumb: its id, token, agent and force."""
    who = input.forcing(context, cupboard, ask.force)
    id = await input.id_of(cupboard, "crumbs", ask.id)
    return {"crumb": id, "token": ask.token, "agent": who, "force": ask.force}


class Heartbeat(OneCrumb):
    """Input of `crumb.heartbeat`."""

    lease: Annotated[float, option("keep it for so many seconds more, if it was taken with a lease")] = (
        LEASE_S
    )


@verb("crumb.heartbeat", effect="write", errors=(NotFound, Conflict))
async def heartbeat(context: Context, ask: Heartbeat) -> Held:
    """Keep a crumb for another lease from now on."""
    cupboard = await input.cupboard_of(context)
    crumb: CrumbEntity = await input.find_entity(cupboard, "crumbs", ask.id)
    who = input.actor(context, cupboard.universe.author)
    with input.holder_hint(context, "crumb", "heartbeat", ask.id, force=False):
        until = await cupboard.heartbeat(crumb, who, lease_s=ask.lease)
    return Held(crumb.id, who, crumb.token, until)


class ShowBoard(FindCrumbs):
    """Input of `crumb.board`."""

    limit: Annotated[int, option("at most so many in a column", short="n")] = 20


@verb("crumb.board", effect="read", errors=(InputError, NotFound))
async def board(context: Context, ask: ShowBoard) -> Board:
    """Show the crumbs in columns by state."""
    cupboard = await input.cupboard_of(context)
    if ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    filters = await filters_of(cupboard, ask)
    columns = []
    for state in CRUMB_STATES:
        if filters:
            crumbs = await cupboard.crumbs.fetch(filters, states=[state])
            count = len(crumbs)
        else:
            crumbs = await cupboard.crumbs.fetch(states=[state], limit=ask.limit)
            count = len(crumbs) if len(crumbs) < ask.limit else await _count(cupboard, state)
        columns.append(Column(state, count, [crumb_of(each) for each in crumbs[: ask.limit]]))
    return Board(columns)
