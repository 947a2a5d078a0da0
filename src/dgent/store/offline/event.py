"""Changes that only this program's feed shows: pending commits, and outages of the store."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Literal
from weakref import WeakSet

from dgent import clock
from dgent.store.backend import Change, Item
from dgent.store.offline.entry import OutboxEntry

MAX_WAITING = 10_000  # at most so many changes wait for one listener


class FeedListener:
    """A reader of the feed, with the changes that wait for it."""

    def __init__(self) -> None:
        self._waiting: list[Change] = []
        self._came = asyncio.Event()

    def notify(self, change: Change) -> None:
        """Add a change; dropped if too many wait already."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(change)
        self._came.set()

    def take(self) -> list[Change]:
        """Return the changes since the last call."""
        found, self._waiting = self._waiting, []
        self._came.clear()
        return found

    async def wait(self, timeout_s: float) -> None:
        """Wait for a change, at most `timeout_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._came.wait()


class LocalFeed:
    """The listeners of one universe's feed."""

    def __init__(self) -> None:
        self._listeners: WeakSet[FeedListener] = WeakSet()

    def listener(self) -> FeedListener:
        """Add a listener, which gets every change as long as it is referenced."""
        made = FeedListener()
        self._listeners.add(made)
        return made

    def notify(self, change: Change) -> None:
        """Pass a change to every listener."""
        for listener in list(self._listeners):
            listener.notify(change)


def make_state_change(kind: Literal["degraded", "restored"], why: str) -> Change:
    """Return the change that says that the store is unavailable or back."""
    return Change(None, clock.now(), "system", kind, (), why, provisional=True)


def make_pending_change(entry: OutboxEntry, revs: dict[str, int]) -> Change:
    """Return the change of a commit that was added to the outbox."""
    items = tuple(
        Item(step.op, step.id, revs[step.id], step.schema, step.datum() if step.op == "put" else None)
        for step in entry.steps
        if step.op != "check"
    )
    at = clock.from_us(entry.at)
    return Change(None, at, entry.author, "data", items, entry.note, provisional=True)
