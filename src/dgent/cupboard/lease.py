"""Leases: how long a holder keeps a crumb or a lock without a heartbeat.

A lease is stored with the crumb or lock, and in a separate record without history. Heartbeats replace that
record, so they fill neither history nor feed. A lease is valid for one token, and never for a later holder.

Programs of one boot of one machine measure a lease by the time since the boot, which nobody can set. Others
have only the wall clocks, of the holder's machine and their own, which may differ: for them a lease has
expired when their own clock has passed its end, and at the latest when they have seen it for its whole length
without a heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from dgent import clock
from dgent.cupboard import errors
from dgent.cupboard.change import Changeset
from dgent.cupboard.record import CrumbRecord, LeaseRecord, StashRecord
from dgent.universe.universe import Universe

LEASE_S = 300.0
"""The default length of a lease in seconds."""

SHORTEST = timedelta(microseconds=1)
MAX_SEEN = 10_000  # leases of other boots that a process remembers

_seen: dict[tuple[str, int, datetime], int] = {}  # when each was first seen, in time since the boot


def lease_id(target: str) -> str:
    """Return the id of the lease record of a crumb or lock."""
    return f"cupboard/lease/{target}"


def check_lease(lease_s: object) -> timedelta:
    """Return the length of a lease given in seconds; raises InvalidData."""
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not 0 < lease_s <= 10**8:
        raise errors.InvalidData(
            f"expected a number of seconds above 0 as lease, got {lease_s!r}", field="lease_s"
        )
    return timedelta(seconds=lease_s)


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


def effective_end(first: datetime | None, lease: LeaseRecord | None, token: int) -> datetime | None:
    """Return the end of a lease by the wall clock: its first end, or a later one by a heartbeat."""
    if lease is None or lease.token != token or first is None:
        return first
    return max(first, lease.until)


def is_expired(
    target: str, first: datetime | None, lease: LeaseRecord | None, token: int, now: datetime | None = None
) -> bool:
    """Check whether a lease has expired; `first` is its end when taken, None for a claim without a lease.

    `now` is the time of a handle that reads the past.
    """
    if first is None:
        return False
    if lease is None or lease.token != token or not lease.boot:
        until = effective_end(first, lease, token)
        return until is not None and until <= (now or clock.now())
    if lease.boot == clock.boot():
        return lease.ends_us <= clock.since_boot_us()
    if max(first, lease.until) <= clock.now():
        return True
    return _seen_for(target, lease) >= timedelta(seconds=lease.lease_s)


def _seen_for(target: str, lease: LeaseRecord) -> timedelta:
    """Return for how long this process has seen a lease without a new heartbeat."""
    if len(_seen) >= MAX_SEEN:
        _seen.clear()
    now = clock.since_boot_us()
    return timedelta(microseconds=now - _seen.setdefault((target, lease.token, lease.until), now))


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


def make_lease(target: str, holder: str, token: int, length: timedelta) -> LeaseRecord:
    """Return a lease that begins now."""
    ends = clock.since_boot_us() + length // timedelta(microseconds=1)
    return LeaseRecord(
        target, holder, token, clock.now() + length, clock.boot(), ends, length.total_seconds()
    )


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


@asynccontextmanager
async def send_heartbeats(
    beat: Callable[[], Awaitable[Any]], lease_s: float, since: float
) -> AsyncIterator[None]:
    """Send heartbeats while a block of code runs, three per lease.

    `since` is the loop's time when the lease was asked for. When a heartbeat fails because the lease was
    lost, the block is cancelled and the reason raised.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    lost: list[BaseException] = []

    async def beats() -> None:
        begun = since
        while True:
            # The lease counts from when a heartbeat begins: one that takes long must not delay the next.
            await asyncio.sleep(begun + lease_s / 3 - loop.time())
            begun = loop.time()
            try:
                await beat()
            except Exception as error:
                lost.append(error)
                if task is not None:
                    task.cancel()
                return

    beater = loop.create_task(beats(), name="dgent-heartbeat")
    try:
        yield
    except asyncio.CancelledError:
        if lost and task is not None:
            task.uncancel()
            raise lost[0] from None
        raise
    finally:
        beater.cancel()
        await asyncio.gather(beater, return_exceptions=True)
