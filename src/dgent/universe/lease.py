"""Leases: how long a holder keeps something without a heartbeat.

Programs of one boot of one machine measure a lease by the time since the boot, which nobody can set. Others
have only the wall clocks, of the holder's machine and their own, which may differ: for them a lease has
expired when their own clock has passed its end, and at the latest when they have seen it for its whole length
without a heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dgent import clock
from dgent.errors import InputError

LEASE_S = 300.0
"""The default length of a lease in seconds."""

MAX_SEEN = 10_000  # leases of other boots that a process remembers

_seen: dict[tuple[str, int, datetime], int] = {}  # when each was first seen, in time since the boot


@dataclass(frozen=True)
class LeaseRecord:
    """The current lease of a holder, renewed by heartbeats. It keeps no history.

    `until` is by the wall clock of the holder's machine. For programs of the same `boot` the lease ends when
    the time since the boot is `ends_us`. `lease_s` is its length in seconds.
    """

    target_id: str
    holder: str
    token: int
    until: datetime
    boot: str = ""
    ends_us: int = 0
    lease_s: float = 0.0


def check_length(lease_s: object) -> timedelta:
    """Return the length of a lease given in seconds; raises InputError."""
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not 0 < lease_s <= 10**8:
        raise InputError(f"expected a number of seconds above 0 as lease, got {lease_s!r}", field="lease_s")
    return timedelta(seconds=lease_s)


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


def make_lease(target: str, holder: str, token: int, length: timedelta) -> LeaseRecord:
    """Return a lease that begins now."""
    ends = clock.since_boot_us() + length // timedelta(microseconds=1)
    return LeaseRecord(
        target, holder, token, clock.now() + length, clock.boot(), ends, length.total_seconds()
    )


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
