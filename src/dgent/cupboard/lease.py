"""Leases: how long the holder of something may keep it without a sign of life.

A lease is written with what was taken, and as a record of its own that has no history: heartbeats write that
one again, so that they neither fill the history nor the feed. It counts for one token, and so never for a
later holder.

Programs of one boot of one machine measure a lease by the time since the boot, which nobody can set. Others
have only the wall clocks, of the holder's machine and their own, and cannot know how far those are apart: for
them a lease is over when their own clock has passed its end, and at the latest when they have seen it for its
whole length without another sign of life.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from dgent import clock
from dgent.cupboard import errors
from dgent.cupboard.change import Draft
from dgent.cupboard.record import LeaseRecord

LEASE_S = 300.0
"""How long a lease lasts unless the caller says otherwise."""

SHORTEST = timedelta(microseconds=1)
MAX_SEEN = 10_000  # leases of other boots that a process remembers to have seen

_seen: dict[tuple[str, int, datetime], int] = {}  # when each was first seen, in time since the boot


def lease_id(target: str) -> str:
    """The id of the signs of life of the holder of something."""
    return f"cupboard/lease/{target}"


def check_lease(lease_s: object) -> timedelta:
    """The length of a lease; InvalidData when it is not a number of seconds."""
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not 0 < lease_s <= 10**8:
        raise errors.InvalidData(f"a lease is a number of seconds above 0, not {lease_s!r}", field="lease_s")
    return timedelta(seconds=lease_s)


def moved(first: datetime | None, lease: LeaseRecord | None, token: int) -> datetime | None:
    """When a lease ends by the wall clock: its first end, or a later one by a sign of life of its holder."""
    if lease is None or lease.token != token or first is None:
        return first
    return max(first, lease.until)


def is_over(target: str, first: datetime | None, lease: LeaseRecord | None, token: int) -> bool:
    """Whether a lease has ended; `first` is its end as it was taken, None for a claim without one."""
    if first is None:
        return False
    if lease is None or lease.token != token or not lease.boot:
        until = moved(first, lease, token)
        return until is not None and until <= clock.now()
    if lease.boot == clock.boot():
        return lease.ends_us <= clock.since_boot_us()
    if max(first, lease.until) <= clock.now():
        return True
    return _seen_for(target, lease) >= timedelta(seconds=lease.lease_s)


def _seen_for(target: str, lease: LeaseRecord) -> timedelta:
    """For how long this process has seen a lease without another sign of life."""
    if len(_seen) >= MAX_SEEN:
        _seen.clear()
    now = clock.since_boot_us()
    return timedelta(microseconds=now - _seen.setdefault((target, lease.token, lease.until), now))


async def has_ended(draft: Draft, target: str, token: int, first: datetime | None) -> bool:
    """Whether the lease on something has ended, as a change sees it."""
    if first is None:
        return False
    return is_over(target, first, await draft.find(LeaseRecord, lease_id(target)), token)


def sign_of_life(target: str, holder: str, token: int, length: timedelta) -> LeaseRecord:
    """A lease that begins now."""
    ends = clock.since_boot_us() + length // timedelta(microseconds=1)
    return LeaseRecord(
        target, holder, token, clock.now() + length, clock.boot(), ends, length.total_seconds()
    )


async def extend(draft: Draft, target: str, holder: str, token: int, length: timedelta) -> datetime:
    """Write a sign of life, and return until when it counts."""
    made = sign_of_life(target, holder, token, length)
    old = await draft.find(LeaseRecord, lease_id(target))
    if old is not None and old.token == token and old.boot == made.boot and old.ends_us > made.ends_us:
        return old.until  # a longer lease is not cut short
    draft.put(lease_id(target), made)
    return made.until


async def forget(draft: Draft, targets: Iterable[str]) -> None:
    """Signs of life end with what they are about: who comes later under the same id starts anew."""
    wanted = [lease_id(target) for target in targets]
    await draft.load(wanted)
    for id in wanted:
        draft.drop(id)


@asynccontextmanager
async def beating(beat: Callable[[], Awaitable[Any]], lease_s: float) -> AsyncIterator[None]:
    """Send signs of life while a block of code runs, three in each lease.

    When one says that the lease was lost, the block is cancelled and the reason raised: it must not go on
    as if it still had what it took.
    """
    task = asyncio.current_task()
    lost: list[BaseException] = []

    async def beats() -> None:
        while True:
            await asyncio.sleep(lease_s / 3)
            try:
                await beat()
            except Exception as error:
                lost.append(error)
                if task is not None:
                    task.cancel()
                return

    beater = asyncio.get_running_loop().create_task(beats(), name="dgent-heartbeat")
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
