"""The work queue: find ready crumbs, explain why a crumb is ready or not, claim the next one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent import clock
from dgent.cupboard import errors
from dgent.cupboard.backoff import clean_note
from dgent.cupboard.change import CHUNK, Changeset, check_entity_id
from dgent.cupboard.definition import UNRANKED
from dgent.cupboard.kind import WAITING
from dgent.cupboard.lease import check_lease, extend_lease, find_now, has_expired, lease_id, read_leases
from dgent.cupboard.record import CRUMB, LINK, CrumbRecord, LinkRecord
from dgent.cupboard.short_id import handle_of
from dgent.cupboard.tables.crumb import Crumb, load_crumbs
from dgent.cupboard.tables.filter import Filter, read_filter, take_page
from dgent.cupboard.waiting import is_blocking
from dgent.errors import TransactionConflict, VersionConflict
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.universe.lease import LeaseRecord, effective_end, is_expired, make_lease

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard
    from dgent.universe.universe import Universe

WIDER, WIDEST = 16, 64  # a claim reads one ready crumb; after each conflict so many times more, at most 64
SOME = 50  # ready crumbs that are read at first to find one that passes a filter
PAGE = 500
LEASED = 100  # leased crumbs that are read at once
_LOWEST = -(2**62)


@dataclass(frozen=True)
class Readiness:
    """The readiness of a crumb: whether it can be taken now, and why, in words and as data."""

    crumb: Crumb
    ready: bool
    reasons: tuple[str, ...]
    rank: int | None = None
    waits_for: tuple[str, ...] = ()
    defer_until: datetime | None = None
    lease_until: datetime | None = None


async def find_ready(cupboard: Cupboard, limit: int | None, **filters: Any) -> list[Crystal[CrumbRecord]]:
    """Return the crumbs that can be taken now, by priority and then by age."""
    return await _find_ready(
        cupboard, await cupboard._ready(), read_filter({"limit": limit}, filters, {}), filters
    )


async def _find_ready(
    cupboard: Cupboard, universe: Universe, part: Filter, filters: dict[str, Any]
) -> list[Crystal[CrumbRecord]]:
    test = await cupboard.crumbs._condition(universe, filters) if filters else None
    found = [each for each in await find_expired(universe) if test is None or test(each)]
    enough = None if part.limit is None else part.offset + part.limit + len(found)
    first = PAGE if enough is None else min(max(enough, 1 if test is None else SOME), PAGE)
    query: Query | None = _make_queue_query(first)
    while query is not None and (enough is None or len(found) < enough):
        page = await universe.page(query)
        found += _pick_ready(page.items, test, find_now(universe))
        full = page.further is None or (enough is not None and len(found) >= enough)
        query = None if full else query.replace(cursor=page.cursor, limit=PAGE)  # the filter left too few
    if len(found) > 1:  # equal ones stay in the order of their first commits
        found.sort(key=lambda each: (_rank(cupboard, each.value), each.created_at))
    return take_page(found, part)


def _pick_ready(
    some: Iterable[Any], test: Callable[[Crystal[CrumbRecord]], bool] | None, now: datetime
) -> list[Crystal[CrumbRecord]]:
    """Return those that can be read, are not put off, and pass the filter."""
    fresh = [each for each in some if isinstance(each, Crystal) and not _is_deferred(each.value, now)]
    return fresh if test is None else [each for each in fresh if test(each)]


@lru_cache(maxsize=16)
def _make_queue_query(limit: int) -> Query:
    where = {"queue": {"$gte": _LOWEST}}
    return Query(schema=CRUMB.name, where=where, order_by="queue", descending=False, limit=limit)


# All leased crumbs, whatever their ends, since the clock that set those may have been changed.
_LEASED = Query(
    schema=CRUMB.name,
    where={"lease_until": {"$gte": clock.text(clock.EPOCH)}},
    order_by="lease_until",
    descending=False,
    limit=LEASED,
)


def _rank(cupboard: Cupboard, crumb: CrumbRecord) -> int:
    return cupboard._definitions.rank(crumb.properties) if crumb.queue is None else crumb.queue


def _is_deferred(crumb: CrumbRecord, now: datetime) -> bool:
    return crumb.defer_until is not None and crumb.defer_until > now


async def find_expired(universe: Universe) -> list[Crystal[CrumbRecord]]:
    """Return the taken crumbs whose leases have expired, so that they can be taken again."""
    leased: list[Crystal[CrumbRecord]] = []
    query = _LEASED
    while True:
        page = await universe.page(query)
        leased += [each for each in page.items if isinstance(each, Crystal) and each.value.state == "taken"]
        if page.further is None:
            break
        query = query.replace(cursor=page.cursor)
    if not leased:
        return []
    leases = await read_leases(universe, [each.id for each in leased])
    now = find_now(universe)
    return [
        each
        for each, lease in zip(leased, leases, strict=True)
        if _is_expired(each, lease, now) and not each.value.open_parents and not _is_deferred(each.value, now)
    ]


def _is_expired(found: Crystal[CrumbRecord], lease: LeaseRecord | None, now: datetime | None = None) -> bool:
    crumb = found.value
    return is_expired(found.id, crumb.lease_until, lease, crumb.token, now)


async def take(
    cupboard: Cupboard, agent: str, lease_s: float | None, filters: dict[str, Any]
) -> Crumb | None:
    """Claim the next ready crumb; return None when there is none."""
    if not isinstance(agent, str) or not agent:
        raise errors.InvalidHolder(f"expected the name of an agent, got {agent!r}", field="agent")
    length = None if lease_s is None else check_lease(lease_s)
    among = 1
    while True:
        # The first one; after a conflict a random one of equal rank, so that agents spread out.
        part = read_filter({"limit": among}, filters, {}) if filters else Filter({}, among, 0)
        some = await _find_ready(cupboard, await cupboard._ready(), part, filters)
        among = min(among * WIDER, WIDEST)
        if not some:
            if cupboard._universe.degraded is not None:
                await cupboard._universe.seq()  # raises: an unavailable store may have more
            return None
        for each in _choose(cupboard, some):
            try:
                return await _claim(cupboard, each, agent, length)
            except VersionConflict:
                continue


def _choose(cupboard: Cupboard, some: list[Crystal[CrumbRecord]]) -> list[Crystal[CrumbRecord]]:
    """Return the first one, then those of equal rank in random order."""
    if len(some) == 1:
        return some
    first = _rank(cupboard, some[0].value)
    alike = [each for each in some if _rank(cupboard, each.value) == first]
    return [some[0], *random.sample(alike, len(alike))]


async def _claim(
    cupboard: Cupboard, found: Crystal[CrumbRecord], agent: str, length: timedelta | None
) -> Crumb:
    """Take a crumb if it is unchanged since it was found; otherwise raises VersionConflict."""
    crumb, now = found.value, clock.now()
    claimed = replace(
        crumb,
        state="taken",
        holder=agent,
        lease_until=None if length is None else now + length,
        token=crumb.token + 1,
        queue=None,
        updated_at=max(now, crumb.updated_at),
    )
    changed, note = found.replace(value=claimed), clean_note(f"{agent} takes {crumb.name}")
    if crumb.state != "taken" and length is None:
        stored = await cupboard._universe.store(changed, expect=found.rev, note=note)
        return _build_taken(cupboard, stored, agent, stored.seq)
    # The last holder may renew its lease at this moment, which does not touch the crumb.
    try:
        async with cupboard._universe.transaction(note=note) as tx:
            lease = await tx.get(lease_id(found.id))
            if crumb.state == "taken" and not _is_expired(found, getattr(lease, "value", None)):
                raise VersionConflict(f"the lease of {crumb.holder!r} has not expired", id=found.id)
            stored = await tx.store(changed, expect=found.rev)
            if length is not None:
                sign = make_lease(found.id, agent, claimed.token, length)
                if lease is None:
                    await tx.remember(sign, id=lease_id(found.id))
                else:
                    await tx.store(lease.replace(value=sign))
    except TransactionConflict as error:
        raise VersionConflict(error.message, id=found.id) from None
    return _build_taken(cupboard, stored, agent, None if tx.committed is None else tx.committed.seq)


def _build_taken(cupboard: Cupboard, stored: Crystal[CrumbRecord], agent: str, seq: int | None) -> Crumb:
    made = cupboard.crumbs._build(stored)
    assert made._memory is not None
    made.seq, made._memory = seq, made._memory._replace(seq=seq, taken_by=agent)
    return made


async def heartbeat(cupboard: Cupboard, id: str, agent: str, lease_s: float) -> datetime | None:
    """Renew the lease on a crumb from now on; return its new end, None for a claim without a lease."""
    wanted, length = check_entity_id(id), check_lease(lease_s)

    async def work(changeset: Changeset) -> datetime | None:
        crumb = await changeset.get(CrumbRecord, wanted, "crumb")
        if crumb.state != "taken" or crumb.holder != agent:
            who = f"{crumb.state}" + (f" by {crumb.holder!r}" if crumb.holder else "")
            raise errors.NotLockHolder(
                f"{agent!r} does not hold {wanted!r}, which is {who}", id=wanted, holder=crumb.holder
            )
        if crumb.lease_until is None:
            return None
        if await has_expired(changeset, wanted, crumb.token, crumb.lease_until):
            raise errors.NotLockHolder(f"the lease of {agent!r} on {wanted!r} has expired")
        return await extend_lease(changeset, wanted, agent, crumb.token, length)

    until, _ = await cupboard._change(work, None)
    return until


async def explain(cupboard: Cupboard, found: Iterable[Crystal[CrumbRecord]]) -> list[Readiness]:
    """Explain why each crumb can or cannot be taken now."""
    universe = await cupboard._ready()
    crystals = list(found)
    obstacles = await find_obstacles(cupboard, crystals)
    leases = await read_leases(universe, [each.id for each in crystals])
    now = find_now(universe)
    return [
        _explain_one(cupboard, each, obstacles, lease, now)
        for each, lease in zip(crystals, leases, strict=True)
    ]


def _explain_one(
    cupboard: Cupboard,
    found: Crystal[CrumbRecord],
    obstacles: Obstacles,
    lease: Any,
    now: datetime,
) -> Readiness:
    crumb = found.value
    against, reasons = [], []
    until = effective_end(crumb.lease_until, lease, crumb.token) if crumb.state == "taken" else None
    given_up = crumb.state == "taken" and is_expired(found.id, crumb.lease_until, lease, crumb.token, now)
    if given_up:
        reasons.append(f"the lease of {crumb.holder} ended at {clock.text(until)}")  # type: ignore[arg-type]
    elif crumb.state != "ready":
        who = f" by {crumb.holder}" if crumb.holder and crumb.state == "taken" else ""
        against.append(f"its state is {crumb.state}{who}")
    parents = obstacles.get(found.id, [])
    against += [_explain_obstacle(each, obstacles) for each in parents]
    if _is_deferred(crumb, now):
        against.append(f"it is put off until {clock.text(crumb.defer_until)}")  # type: ignore[arg-type]
    rank = _rank(cupboard, crumb)
    if not against:
        reasons.append("it waits for nothing")
        reasons.append("it has no priority" if rank == UNRANKED else f"its priority has the rank {rank}")
    return Readiness(
        cupboard.crumbs._build(found),
        not against,
        tuple(against or reasons),
        None if against else rank,
        tuple(parent.end.id for parent in parents),
        crumb.defer_until,
        until,
    )


class Obstacle(NamedTuple):
    """A crumb that another one waits for, and the type of the link between them."""

    link_type: str
    end: Crystal[CrumbRecord]


Obstacles = dict[str, list[Obstacle]]


async def find_obstacles(cupboard: Cupboard, crumbs: Iterable[Crystal[CrumbRecord]]) -> Obstacles:
    """Return, by id, what each of some crumbs waits for: unfinished crumbs, and epics that wait themselves.

    The answer has the obstacles of these epics, too.
    """
    universe = await cupboard._ready()
    found: Obstacles = {}
    level = {each.id for each in crumbs if each.value.open_parents}
    while level:
        edges: list[tuple[str, LinkRecord]] = []
        wanted = sorted(level)
        for start in range(0, len(wanted), CHUNK):
            where = {"from_id": {"$in": wanted[start : start + CHUNK]}}
            query = Query(
                schema=LINK.name, any_tags=frozenset(WAITING), where=where, descending=False, limit=None
            )
            edges += [(each.value.from_id, each.value) for each in await universe.recall(query)]
        ends = {each.id: each for each in await load_crumbs(universe, {link.to_id for _, link in edges})}
        found |= {id: [] for id in level}
        level = set()
        for start_id, link in edges:
            end = ends.get(link.to_id)
            if end is not None and is_blocking(link.link_type, end.value):
                found[start_id].append(Obstacle(link.link_type, end))
                if link.link_type == "part_of" and end.id not in found:
                    level.add(end.id)
    return found


def _explain_obstacle(obstacle: Obstacle, obstacles: Obstacles) -> str:
    end = obstacle.end
    if obstacle.link_type == "child_of":
        return f"it waits for {end.value.name!r} ({handle_of(end)}), which is {end.value.state}"
    others = [f"{each.end.value.name!r} ({handle_of(each.end)})" for each in obstacles.get(end.id, [])]
    return f"it is part of {end.value.name!r} ({handle_of(end)}), which waits for {', '.join(others)}"


async def find_blocked(cupboard: Cupboard, limit: int | None) -> list[Readiness]:
    """Return the unfinished crumbs that wait for others, oldest first, with what they wait for."""
    universe = await cupboard._ready()
    where = {"open_parents": {"$gte": 1}, "state": {"$nin": ["pebble", "dust"]}}
    query = Query(schema=CRUMB.name, where=where, descending=False, limit=limit)
    return await explain(cupboard, await universe.recall(query))
