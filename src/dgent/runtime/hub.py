"""One stream of events, many consumers, none of which can hold the agent up.

A **tap** is read with `async for`; a **sink** is a function, or an async one, that the hub calls. Each has
a queue of its own. Where it is full, the oldest events in it are dropped and the consumer gets a `Missed`
with their number in their place; the last event of a batch (Done, Failed) is never dropped for another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TypeAlias

from dgent.errors import Closed, InputError
from dgent.runtime.event import Event, Missed, is_last

DEFAULT_ROOM = 1000

Sink: TypeAlias = Callable[[Event], Awaitable[None] | None]
Wanted: TypeAlias = Callable[[Event], bool]


class Tap:
    """A consumer of a hub, for one reader: `async with hub.tap() as tap: async for event in tap`."""

    def __init__(self, hub: EventHub, room: int, wanted: Wanted | None) -> None:
        self.missed = 0
        self._hub = hub
        self._room = room
        self._wanted = wanted
        self._events: deque[Event] = deque()
        self._gap = 0
        self._waiter: asyncio.Future[None] | None = None
        self._open = True

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """Return the next event; ends when the hub or the tap is closed and all was read."""
        while True:
            if self._gap:
                count, self._gap = self._gap, 0
                return Missed(count=count)
            if self._events:
                return self._events.popleft()
            if not self._open:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise InputError("a tap has one reader", hint="make a tap for each with hub.tap()")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def __aenter__(self) -> Tap:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more events; those that wait can still be read."""
        self._open = False
        self._hub.remove(self)
        self._wake()

    def put(self, event: Event) -> None:
        """Add an event, and drop older ones where there is no room. Never waits."""
        if not self._open or (self._wanted is not None and not self._wanted(event)):
            return
        if len(self._events) >= self._room:
            self._drop()
        self._events.append(event)
        self._wake()

    def _drop(self) -> None:
        """Drop the oldest half, so that a slow reader finds one gap and not many."""
        kept: deque[Event] = deque()
        dropped, wanted = 0, max(1, self._room // 2)
        while self._events and dropped < wanted:
            event = self._events.popleft()
            if is_last(event) and len(kept) < wanted - 1:
                kept.append(event)
            else:
                dropped += 1
        self._events.extendleft(reversed(kept))
        self._gap += dropped
        self.missed += dropped

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class EventHub:
    """Passes events on to taps and sinks, in the order in which they came. Belongs to one event loop."""

    def __init__(self, room: int = DEFAULT_ROOM) -> None:
        self._room = _check_room(room)
        self._taps: list[Tap] = []
        self._tasks: dict[asyncio.Task[None], Tap] = {}
        self._open = True
        self.failures: list[BaseException] = []

    def publish(self, event: Event) -> None:
        """Pass an event on. Never waits and never raises on behalf of a consumer."""
        if not self._open:
            raise Closed("this event hub is closed", hint="make a new one")
        for tap in tuple(self._taps):
            tap.put(event)

    def tap(self, *, room: int | None = None, wanted: Wanted | None = None) -> Tap:
        """Return a consumer that sees all events from now on, or those that `wanted` picks."""
        if not self._open:
            raise Closed("this event hub is closed", hint="make a new one")
        tap = Tap(self, self._room if room is None else _check_room(room), wanted)
        self._taps.append(tap)
        return tap

    def add_sink(self, sink: Sink, *, room: int | None = None, wanted: Wanted | None = None) -> Tap:
        """Call a function with each event, one at a time; close the tap that is returned to stop.

        A sink that raises is removed, and its error kept in `failures`; the others go on.
        """
        tap = self.tap(room=room, wanted=wanted)
        task = asyncio.get_running_loop().create_task(self._drain(tap, sink))
        self._tasks[task] = tap
        task.add_done_callback(self._finish)
        return tap

    def remove(self, tap: Tap) -> None:
        """Forget a consumer."""
        if tap in self._taps:
            self._taps.remove(tap)

    async def close(self, timeout_s: float = 5.0) -> None:
        """Take no more events, let the sinks finish what waits for them, and stop those that do not."""
        self._open = False
        for tap in tuple(self._taps):
            tap.close()
        tasks = set(self._tasks) - {asyncio.current_task()}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def __aenter__(self) -> EventHub:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _drain(self, tap: Tap, sink: Sink) -> None:
        async for event in tap:
            waiting = sink(event)
            if waiting is not None:
                await waiting

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task).close()
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)


def _check_room(room: int) -> int:
    if type(room) is not int or room < 2:
        raise InputError(f"room must be a whole number of 2 or more, not {room!r}", field="room")
    return room
