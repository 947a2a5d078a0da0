"""Leases: how long a holder keeps a crumb or a lock without a heartbeat.

A lease is stored with the crumb or lock, and in a separate record without history. Heartbeats replace that
record, so they fill neither history nor feed. A lease is valid for one token, and never for a later holder.

How its end is measured is in `universe/lease.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from dgent import clock
from dgent.cupboard import errors
from dgent.cupboard.change import Changeset
from dgent.cupboard.record import CrumbRecord, StashRecord
from dgent.errors import InputError
from dgent.universe.lease import (
    LeaseRecord,
    check_length,
    is_expired,
    make_lease,
)
from dgent.universe.universe import Universe

SHORTEST = timedelta(microseconds=1)


def lease_id(target: str) -> str:
    """Return the id of the lease record of a crumb or lock."""
    return f"cupboard/lease/{target}"


def check_lease(lease_s: object) -> timedelta:
    """Return the length of a lease given in seconds; raises InvalidData."""
    try:
        return check_length(lease_s)
    except InputError as error:
        raise errors.InvalidData(error.message, field="lease_s") from None


async def read_leases(universe: Universe, targets: Iterable[str]) -> list[LeaseRecord | None]:
    """Return the leases of some crumbs; none in the past, where heartbeats are not kept."""
    wanted = [lease_id(target) for target in targets]
    if universe.past is not None:
        return [None] * len(wanted)
    return [getattr(each, "value", None) for each in await universe.get_many(wanted)]


def find_now(universe: Universe) -> datetime:
    """Return the time that a handle reads at: now, or that of the past it shows."""
    past = universe.past
    return clock.now() if past is None else past.at


async def has_expired(changeset: Changeset, target: str, token: int, first: datetime | None) -> bool:
    """Check whether the lease on a crumb or lock has expired, as a change sees it."""
    if first is None:
        return False
    return is_expired(target, first, await changeset.find(LeaseRecord, lease_id(target)), token)


class _Claim(NamedTuple):
    """The holder of a crumb or a lock, its token, and the first end of its lease."""

    holder: str
    token: int
    until: datetime | None


def _claim_of(record: Any) -> _Claim | None:
    if isinstance(record, CrumbRecord) and record.state == "taken" and record.holder:
        return _Claim(record.holder, record.token, record.lease_until)
    if isinstance(record, StashRecord) and record.stash_type == "lock":
        held = read_lock(record)
        if held.get("holder"):
            return _Claim(held["holder"], read_token(record), read_lease_end(held))
    return None


async def check_claims(changeset: Changeset, who: str) -> None:
    """Raise NotLockHolder where a change would end the claim of another than `who`, however it does so."""
    for id, record, old in list(changeset.changes()):
        claim = _claim_of(old)
        if claim is None or claim.holder == who or _claim_of(record) == claim:
            continue
        await changeset.load([lease_id(id)])
        stored = changeset.get_stored(lease_id(id))  # the change may delete it
        if not is_expired(id, claim.until, None if stored is None else stored.value, claim.token):
            raise errors.NotLockHolder(
                f"{old.name!r} is held by {claim.holder!r}, not by {who!r}",
                hint=f"ask {claim.holder} to release it, or the partner",
                id=id,
                holder=claim.holder,
            )


def read_lock(stash: Any) -> dict[str, Any]:
    """Return the value of a lock; empty when nobody holds it."""
    return stash.value if isinstance(stash.value, dict) else {}


def read_token(stash: Any) -> int:
    """Return the token of a lock's holder, or 0."""
    token = read_lock(stash).get("token")
    return token if type(token) is int else 0


def read_lease_end(held: dict[str, Any]) -> datetime | None:
    """Return the end of a lock's first lease; None when it has none, or no valid one."""
    try:
        until = datetime.fromisoformat(held["lease_until"])
    except (KeyError, TypeError, ValueError):
        return None
    return until if until.tzinfo is not None else None


async def extend_lease(
    changeset: Changeset, target: str, holder: str, token: int, length: timedelta
) -> datetime:
    """Write a heartbeat and return the new end of the lease; a longer lease is not shortened."""
    made = make_lease(target, holder, token, length)
    old = await changeset.find(LeaseRecord, lease_id(target))
    if old is not None and old.token == token and old.boot == made.boot and old.ends_us > made.ends_us:
        return old.until
    changeset.put(lease_id(target), made)
    return made.until


async def drop_leases(changeset: Changeset, targets: Iterable[str]) -> None:
    """Delete the leases on deleted crumbs or locks, so that a later one with the same id starts without."""
    wanted = [lease_id(target) for target in targets]
    await changeset.load(wanted)
    for id in wanted:
        changeset.drop(id)
