"""The events of a flow that were read and not yet handled."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec

from dgent.errors import Conflict


class FluxStats(msgspec.Struct):
    """The numbers of events that a flow took, gave, dropped and skipped since it was started."""

    taken: int = 0
    given: int = 0
    dropped: int = 0
    skipped: int = 0


class Event(msgspec.Struct, eq=False):
    """An event on its way; `answer` is for somebody who called `invoke`."""

    value: Any
    position: Any = None
    answer: asyncio.Future[Any] | None = None


class Buffer:
    """Events that were read and not yet handled."""

    def __init__(self, size: int) -> None:
        self.stats = FluxStats()
        self._size = size
        self._events: deque[Event] = deque()
        self._closed = False
        self._more = asyncio.Event()
        self._room = asyncio.Event()

    async def put(self, event: Event, policy: str) -> bool:
        """Add an event; when there is no room, wait or drop one, as the policy says. False when closed."""
        while len(self._events) >= self._size and not self._closed:
            if policy == "drop_newest":
                self.stats.dropped += 1
                return True
            if policy == "drop_oldest" and self._drop_oldest():
                break
            self._room.clear()
            await self._room.wait()
        if self._closed:
            if event.answer is not None:
                raise late("the flow takes no more inputs")
            return False
        self._events.append(event)
        self.stats.taken += 1
        self._more.set()
        return True

    def _drop_oldest(self) -> bool:
        for number, event in enumerate(self._events):
            if event.answer is None:
                del self._events[number]
                self.stats.dropped += 1
                return True
        return False  # all of them are waited for

    async def take(self, most: int) -> list[Event]:
        """Return events in order; wait for the first. Empty when the buffer is closed and given out."""
        while not self._events:
            if self._closed:
                return []
            self._more.clear()
            await self._more.wait()
        out = [self._events.popleft() for _ in range(min(most, len(self._events)))]
        self._room.set()
        return out

    def close(self) -> list[Event]:
        """Take no more events; return those that are left."""
        self._closed = True
        self._more.set()
        self._room.set()
        return list(self._events)


def late(message: str) -> Conflict:
    """Return the error for an input that came when a flow ended."""
    return Conflict(message, hint="call invoke again: an agent that is not flowing answers by itself")
