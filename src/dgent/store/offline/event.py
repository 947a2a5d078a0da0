"""What only this program knows of and its feed shows: pending commits, and the store going and coming."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Literal
from weakref import WeakSet

from dgent import clock
from dgent.store.backend import Change, Item
from dgent.store.offline.entry import Entry

KEPT = 10_000  # notices for one who does not come to read them


class Listener:
    """One reader of the feed; notices wait for it here."""

    def __init__(self) -> None:
        self._waiting: list[Change] = []
        self._came = asyncio.Event()

    def tell(self, change: Change) -> None:
        """Put a notice down."""
        if len(self._waiting) < KEPT:
            self._waiting.append(change)
        self._came.set()

    def take(self) -> list[Change]:
        """The notices since the last time."""
        found, self._waiting = self._waiting, []
        self._came.clear()
        return found

    async def wait(self, timeout_s: float) -> None:
        """Return when there is a notice, or time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._came.wait()


class Notices:
    """Everyone who follows the feed of one universe."""

    def __init__(self) -> None:
        self._listeners: WeakSet[Listener] = WeakSet()

    def listener(self) -> Listener:
        """A new reader; it is told everything from now on, for as long as it is held."""
        made = Listener()
        self._listeners.add(made)
        return made

    def tell(self, change: Change) -> None:
        """Tell every reader."""
        for listener in list(self._listeners):
            listener.tell(change)


def turned(kind: Literal["degraded", "restored"], why: str) -> Change:
    """The store went away, or is back."""
    return Change(None, clock.now(), "system", kind, (), why, provisional=True)


def kept(entry: Entry, revs: dict[str, int]) -> Change:
    """A commit that is in the outbox now."""
    items = tuple(
        Item(step.op, step.id, revs[step.id], step.schema, step.datum() if step.op == "put" else None)
        for step in entry.steps
        if step.op != "check"
    )
    at = clock.from_us(entry.at)
    return Change(None, at, entry.author, "data", items, entry.note, provisional=True)
