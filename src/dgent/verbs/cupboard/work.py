"""Verbs for work: list ready crumbs, take and finish them, show the board."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

from dgent import clock
from dgent.cupboard.finish import How
from dgent.cupboard.kind import CRUMB_STATES
from dgent.cupboard.record import CRUMB
from dgent.errors import Conflict, InputError, NotFound
from dgent.model.query import Query
from dgent.universe.lease import LEASE_S
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.cupboard.answer import (
    Board,
    Column,
    Crumb,
    Dropped,
    Duplicates,
    Finished,
    Held,
    Queue,
    Queued,
    crumb_fields,
    crumb_of,
    describe_queued,
    neighbour_of,
)
from dgent.verbs.cupboard.crumb import FindCrumbs, OneCrumb, filters_of
from dgent.verbs.registry import Ask, AsOf, Items, NoInput, PastAsk, argument, option, verb

if TYPE_CHECKING:
    from dgent.cupboard import Crumb as CrumbEntity
    from dgent.cupboard import Cupboard

Lease = Annotated[
    float | None,
    option("hold it for so many seconds without a heartbeat; without this, until it is released"),
]


class Ready(FindCrumbs):
    """Input of `crumb.ready`."""

    as_of: AsOf = None
    limit: Annotated[int | None, option("at most so many", short="n")] = None
    explain: Annotated[bool, option("say why each can be taken")] = False


@verb("crumb.ready", effect="read", errors=(InputError, NotFound))
async def ready(context: Context, ask: Ready) -> Queue:
    """List the crumbs that can be taken now, by priority, then age."""
    cupboard = await input.cupboard_of(context, ask.as_of)
    if ask.limit is not None and ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    filters = await filters_of(cupboard, ask)
    if ask.explain:
        items = [describe_queued(each) for each in await cupboard.explain_ready(ask.limit, **filters)]
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


class Stale(Ask):
    """Input of `crumb.stale`."""

    days: Annotated[float, option("not changed for so many days", short="d")] = 30.0
    limit: input.Limit = 50


@verb("crumb.stale", effect="read", errors=(InputError,))
async def stale(context: Context, ask: Stale) -> Items[Crumb]:
    """List unfinished crumbs that nobody changed for long."""
    if not 0 <= ask.days < 100_000:
        raise InputError("days must be a number from 0", field="days")
    cupboard = await input.cupboard_of(context)
    before = clock.now() - timedelta(days=ask.days)
    return Items([crumb_of(each) for each in await cupboard.stale(before, limit=ask.limit)])


@verb("crumb.duplicates", effect="read")
async def duplicates(context: Context, ask: NoInput) -> Duplicates:
    """List unfinished crumbs with nearly the same names, in groups."""
    cupboard = await input.cupboard_of(context)
    return Duplicates([[crumb_of(each) for each in group] for group in await cupboard.duplicates()])


class Blocked(PastAsk):
    """Input of `crumb.blocked`."""

    limit: Annotated[int | None, option("at most so many", short="n")] = None


@verb("crumb.blocked", effect="read")
async def blocked(context: Context, ask: Blocked) -> Queue:
    """List the unfinished crumbs that wait for others, with what they wait for."""
    cupboard = await input.cupboard_of(context, ask.as_of)
    items = [describe_queued(each) for each in await cupboard.blocked(ask.limit)]
    return Queue(items, "" if items else "nothing waits for anything")


@verb("crumb.explain", effect="read", errors=(NotFound,))
async def explain(context: Context, ask: OneCrumb) -> Queue:
    """Say why a crumb can be taken now, or cannot."""
    cupboard = await input.cupboard_of(context)
    return Queue([describe_queued(await cupboard.explain(await input.id_of(cupboard, "crumbs", ask.id)))])


class Take(FindCrumbs):
    """Input of `crumb.take`."""

    id: Annotated[str | None, argument("this one; else the next", complete="crumb")] = None
    next: Annotated[bool, option("the next one by priority, then age; as without an id")] = False
    lease: Lease = None
    force: Annotated[bool, option("also one that waits for others, or that another agent holds")] = False


@verb("crumb.take", effect="write", errors=(InputError, NotFound, Conflict))
async def take(context: Context, ask: Take) -> Crumb:
    """Claim a crumb for an agent, or the next ready one; no two get the same."""
    cupboard = await input.cupboard_of(context)
    who = input.forcing(context, cupboard, ask.force)
    filters = await filters_of(cupboard, ask)
    if ask.id is not None:
        if ask.next or filters:
            raise InputError("an id cannot be combined with --next or filters", field="id")
        id = await input.id_of(cupboard, "crumbs", ask.id)
        with input.holder_hint(context, "crumb", "take", ask.id):
            return crumb_of(await cupboard.take_one(id, who, lease_s=ask.lease, force=ask.force))
    if ask.force:
        raise InputError("--force needs the id of a crumb", field="force")
    taken = await cupboard.take(who, lease_s=ask.lease, **filters)
    if taken is None:
        hint = await _why_none(cupboard) if not filters else "`dgent ready` lists what can be taken"
        raise NotFound("nothing is ready to be taken", hint=hint)
    return crumb_of(taken)


class Finish(Ask):
    """Input of `crumb.done`, `crumb.drop`, `crumb.release` and `crumb.reopen`."""

    id: Annotated[str, argument(input.CrumbId, complete="crumb")]
    more: Annotated[tuple[str, ...], argument("more crumbs, all in one commit", complete="crumb")] = ()
    message: Annotated[str | None, option("why it is so", short="m")] = None
    token: Annotated[int | None, option("the token of `take`: only if nobody else took it since")] = None
    force: input.Force = False


@verb("crumb.done", effect="write", errors=(NotFound, Conflict))
async def done(context: Context, ask: Finish) -> Finished:
    """Mark crumbs as done: they become pebbles."""
    return Finished(**await _finish(context, ask, "done"))


@verb("crumb.drop", effect="write", errors=(NotFound, Conflict))
async def drop(context: Context, ask: Finish) -> Dropped:
    """Give crumbs up: they become dust. Says what still waits for them."""
    fields = await _finish(context, ask, "drop")
    cupboard = await input.cupboard_of(context)
    ids = [fields["id"], *(each.id for each in fields["others"])]
    waiting = {other.id: other for id in ids for other in await cupboard.waiting_for(id)}
    return Dropped(**fields, waiting=[neighbour_of(each) for each in waiting.values()])


@verb("crumb.release", effect="write", errors=(NotFound, Conflict))
async def release(context: Context, ask: Finish) -> Finished:
    """Give crumbs that were taken back to the queue."""
    return Finished(**await _finish(context, ask, "release"))


@verb("crumb.reopen", effect="write", errors=(NotFound, Conflict))
async def reopen(context: Context, ask: Finish) -> Finished:
    """Make crumbs ready again that were done or dropped."""
    return Finished(**await _finish(context, ask, "reopen"))


async def _finish(context: Context, ask: Finish, how: How) -> dict[str, Any]:
    """Finish crumbs; return the fields of the first, with the others."""
    cupboard = await input.cupboard_of(context)
    who = input.forcing(context, cupboard, ask.force)
    ids = [await input.id_of(cupboard, "crumbs", each) for each in (ask.id, *ask.more)]
    if ask.token is not None and ask.more:
        raise InputError("a token belongs to one crumb", hint="leave out --token", field="token")
    with input.holder_hint(context, "crumb", how, ask.id):
        made = await cupboard.finish(
            ids, how, token=ask.token, agent=who, force=ask.force, reason=ask.message
        )
    return crumb_fields(made[0]) | {"others": [crumb_of(each) for each in made[1:]]}


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

    as_of: AsOf = None
    limit: Annotated[int, option("at most so many in a column", short="n")] = 20


@verb("crumb.board", effect="read", errors=(InputError, NotFound))
async def board(context: Context, ask: ShowBoard) -> Board:
    """Show the crumbs in columns by state."""
    cupboard = await input.cupboard_of(context, ask.as_of)
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
