"""Verbs for trails, the explorations that are kept as a whole or given up as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from dgent.cupboard import errors
from dgent.cupboard.kind import TRAIL_STATES
from dgent.errors import Conflict, InputError, NotFound
from dgent.system.near import nearest
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.cupboard.answer import (
    Lessons,
    Neighbour,
    Removed,
    TrailCrumb,
    TrailEnd,
    TrailInfo,
    WholeTrail,
    crumb_fields,
    neighbour_of,
    stash_of,
    trail_fields,
    trail_of,
)
from dgent.verbs.registry import Ask, AsOf, Items, PastAsk, argument, option, verb

if TYPE_CHECKING:
    from dgent.cupboard import Cupboard, Ended, Trail


class Start(Ask):
    """Input of `trail.start`."""

    name: Annotated[str, argument("what is tried", words=True)]
    goal: Annotated[str, option("what it is for", short="g")] = ""
    branches_from: Annotated[str | None, option("the crumb where it begins", complete="crumb")] = None
    property: input.Property = ()


@verb("trail.start", effect="append", errors=(InputError, NotFound), makes=True)
async def start(context: Context, ask: Start) -> TrailInfo:
    """Begin a trail: crumbs on it are kept or given up together."""
    cupboard = await input.cupboard_of(context)
    values = input.values_of(await cupboard.definitions(), "trail", ask.property)
    branch = ask.branches_from
    made = await cupboard.start(
        ask.name,
        ask.goal,
        branches_from=None if branch is None else await input.id_of(cupboard, "crumbs", branch),
        properties=values,
    )
    return trail_of(made)


class ListTrails(PastAsk):
    """Input of `trail.list`."""

    state: Annotated[tuple[str, ...], option("in this state", short="s")] = ()
    name: Annotated[str | None, option("of this name")] = None
    limit: input.Limit = 100


@verb("trail.list", effect="read", errors=(InputError,))
async def list_(context: Context, ask: ListTrails) -> Items[TrailInfo]:
    """List trails, newest first."""
    cupboard = await input.cupboard_of(context, ask.as_of)
    if ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    for word in ask.state:
        if word not in TRAIL_STATES:
            hint = nearest(word, TRAIL_STATES) or f"use one of {', '.join(TRAIL_STATES)}"
            raise errors.InvalidState(f"{word!r} is not a state of a trail", hint=hint, field="state")
    filters: dict[str, Any] = {"states": ask.state, "limit": ask.limit}
    if ask.name is not None:
        filters["name"] = ask.name
    return Items([trail_of(each) for each in await cupboard.trails.fetch(filters)])


class OneTrail(Ask):
    """Input of a verb that takes one trail."""

    id: Annotated[str, argument(input.TrailId, complete="trail")]


class OnePastTrail(OneTrail):
    """Input of `trail.get`."""

    as_of: AsOf = None


@verb("trail.get", effect="read", errors=(NotFound,))
async def get(context: Context, ask: OnePastTrail) -> WholeTrail:
    """Show a trail with its crumbs as a tree."""
    cupboard = await input.cupboard_of(context, ask.as_of)
    trail: Trail = await input.find_entity(cupboard, "trails", ask.id)
    crumbs = await _members(cupboard, trail_id=trail.id)
    kept = await _members(cupboard, id=list(trail.crumbs)) if trail.crumbs else []
    stashes = [link.from_id for link in await cupboard.links.fetch(link_type="scoped_to", to_id=trail.id)]
    return WholeTrail(
        **trail_fields(trail),
        branches_from=await _branch(cupboard, trail),
        crumbs=crumbs,
        kept=kept,
        removed=len(trail.crumbs) - len(kept),
        stashes=[stash_of(each, trail.id) for each in await cupboard.stashes.fetch(id=stashes)]
        if stashes
        else [],
    )


async def _branch(cupboard: Cupboard, trail: Trail) -> Neighbour | None:
    for link in await cupboard.links.fetch(link_type="branches_from", from_id=trail.id):
        found = await cupboard.crumbs.fetch(id=link.to_id)
        return neighbour_of(found[0]) if found else None
    return None


async def _members(cupboard: Cupboard, **filters: Any) -> list[TrailCrumb]:
    """Return crumbs, oldest first, each with its parents."""
    crumbs = list(reversed(await cupboard.crumbs.fetch(filters)))
    parents = await input.parents_of(cupboard, [crumb.id for crumb in crumbs])
    return [TrailCrumb(**crumb_fields(crumb), parents=parents.get(crumb.id, [])) for crumb in crumbs]


class SetTrail(OneTrail):
    """Input of `trail.set`."""

    name: Annotated[str | None, option("another name")] = None
    goal: Annotated[str | None, option("what it is for", short="g")] = None
    state: Annotated[str | None, option("the next state, as the life of a trail allows", short="s")] = None
    lesson: Annotated[str | None, option("what was learned")] = None
    property: input.Property = ()


@verb("trail.set", effect="write", errors=(InputError, NotFound, Conflict))
async def set_(context: Context, ask: SetTrail) -> TrailInfo:
    """Change a trail: its name, goal, state, lesson, properties."""
    cupboard = await input.cupboard_of(context)
    trail: Trail = await input.find_entity(cupboard, "trails", ask.id)
    if ask == SetTrail(id=ask.id):
        raise InputError("there is nothing to change", hint="give --name, --goal, --property …")
    values = input.values_of(await cupboard.definitions(), "trail", ask.property)
    for name in ("name", "goal", "lesson"):
        if (given := getattr(ask, name)) is not None:
            setattr(trail, name, given)
    for name, value in values.items():
        trail.set_property(name, value)
    if ask.state is not None:
        trail.set_state(ask.state)
    await cupboard.trails.set(trail.id, trail)
    return trail_of(trail)


@verb("trail.complete", effect="write", errors=(InputError, NotFound, Conflict))
async def complete(context: Context, ask: OneTrail) -> TrailEnd:
    """Complete a trail: its crumbs become permanent."""
    cupboard = await input.cupboard_of(context)
    return _end_of(await cupboard.complete(await input.id_of(cupboard, "trails", ask.id)))


class Abandon(OneTrail):
    """Input of `trail.abandon`."""

    reason: Annotated[str | None, option("why it is given up", short="r")] = None
    lesson: Annotated[str | None, option("what was learned", short="l")] = None


@verb("trail.abandon", effect="write", errors=(InputError, NotFound, Conflict))
async def abandon(context: Context, ask: Abandon) -> TrailEnd:
    """Abandon a trail: its crumbs are removed, the lesson stays."""
    cupboard = await input.cupboard_of(context)
    id = await input.id_of(cupboard, "trails", ask.id)
    return _end_of(await cupboard.abandon(id, reason=ask.reason, lesson=ask.lesson))


def _end_of(done: Ended) -> TrailEnd:
    return TrailEnd(trail_of(done.trail), list(done.crumbs), list(done.freed), done.seq)


@verb("trail.delete", effect="write", errors=(NotFound, Conflict))
async def delete(context: Context, ask: OneTrail) -> Removed:
    """Remove a trail; its crumbs stay."""
    cupboard = await input.cupboard_of(context)
    trail: Trail = await input.find_entity(cupboard, "trails", ask.id)
    await cupboard.trails.delete(trail.id)
    return Removed("trails", trail.id, trail.name)


class FindLessons(PastAsk):
    """Input of `trail.lessons`."""

    words: Annotated[str, argument("words that the name, goal, reason or lesson has", words=True)] = ""
    limit: input.Limit = 20


@verb("trail.lessons", effect="read", errors=(InputError,))
async def lessons(context: Context, ask: FindLessons) -> Lessons:
    """List what was learned from trails that were given up, newest first."""
    cupboard = await input.cupboard_of(context, ask.as_of)
    if ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    return Lessons([trail_of(each) for each in await cupboard.lessons(ask.words, limit=ask.limit)])
