"""Leases: how long whoever took something may keep it without a sign of life.

The first lease is written with what was taken. Signs of life go to a record of their own that has no
history, so that they neither fill the history nor the feed; it counts for one token, and so never for
whoever comes later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from dgent.cupboard import errors
from dgent.cupboard.draft import Draft
from dgent.cupboard.record import LeaseRecord

LEASE_S = 300.0
"""How long a lease lasts unless the caller says otherwise."""


def lease_id(target: str) -> str:
    """The id of the signs of life of whoever has something."""
    return f"cupboard/lease/{target}"


def check_lease(lease_s: object) -> timedelta:
    """The length of a lease, or what is wrong with it."""
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not 0 < lease_s <= 10**8:
        raise errors.InvalidData(f"a lease is a number of seconds above 0, not {lease_s!r}", field="lease_s")
    return timedelta(seconds=lease_s)


def moved(first: datetime | None, lease: LeaseRecord | None, token: int) -> datetime | None:
    """When a lease ends: its first end, or a later one by a sign of life of the same holder."""
    if lease is None or lease.token != token or first is None:
        return first
    return max(first, lease.until)


async def end(draft: Draft, target: str, token: int, first: datetime | None) -> datetime | None:
    """When the lease on something ends; None when it has no end."""
    if first is None:
        return None
    return moved(first, await draft.find(LeaseRecord, lease_id(target)), token)


def extend(draft: Draft, target: str, holder: str, token: int, lease_s: float) -> datetime:
    """Write a sign of life, and return until when it counts."""
    until = draft.now + check_lease(lease_s)
    draft.put(lease_id(target), LeaseRecord(target, holder, token, until))
    return until


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
