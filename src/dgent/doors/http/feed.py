"""The change feed as server-sent events; visitors who ask for the same share one look at the store."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import msgspec

from dgent.doors.http.house import Visitor
from dgent.errors import DgentError
from dgent.verbs import registry
from dgent.verbs.data.history import LogEntry, Watch
from dgent.verbs.wire import as_json

ALIVE_S = 15.0  # how often a comment is sent while nothing happens
MOST_WAITING = 1_000  # events that a slow client may be behind
WAIT_S = 0.02  # between looks at a client that reads slowly
KEPT = 1_000  # events that are kept for clients that come back
MOST_BYTES = 8 * 2**20  # of events that wait for one client, or are kept
BEGIN, ALIVE = b": dgent\n\n", b": alive\n\n"

Event = tuple[int | None, bytes]


class EventQueue:
    """Events that wait for one client, and how many bytes they are."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._bytes = 0

    @property
    def full(self) -> bool:
        """True if the client is too far behind."""
        return self._events.qsize() >= MOST_WAITING or self._bytes >= MOST_BYTES

    def put(self, event: Event | None) -> None:
        """Add an event; None is the end."""
        self._bytes += 0 if event is None else len(event[1])
        self._events.put_nowait(event)

    async def get(self) -> Event | None:
        """Return the next event, as soon as there is one."""
        event = await self._events.get()
        self._bytes -= 0 if event is None else len(event[1])
        return event

    def clear(self) -> None:
        """Drop all events."""
        self._events, self._bytes = asyncio.Queue(), 0


class Feed:
    """Commits that one visitor watches, for all connections that ask for the same."""

    def __init__(self, visitor: Visitor, ask: Watch, key: object, shared: bool = True) -> None:
        self._visitor, self._ask, self._key, self._shared = visitor, ask, key, shared
        self._queues: set[EventQueue] = set()
        self._kept: deque[Event] = deque()
        self._kept_bytes = 0
        self._first: int | None = None  # all after this commit was kept, until the oldest had to go
        self._begun = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            universe = await self._visitor.context.universe()
            since = self._ask.from_seq if self._ask.from_seq is not None else await universe.seq()
            self._first = since
            self._begun.set()
            ask = msgspec.structs.replace(self._ask, from_seq=since)
            async for entry in registry.call(registry.find("data.watch"), self._visitor.context, ask):
                while not self._shared and any(queue.full for queue in self._queues):
                    await asyncio.sleep(WAIT_S)  # nobody else waits for the next one
                self._send((entry.seq, event_of(entry)))
        except DgentError as error:
            self._send((None, failure(error)))
        finally:
            self._begun.set()
            self._visitor.store.feeds.pop(self._key, None)
            for queue in self._queues:
                queue.put(None)

    def _send(self, event: Event) -> None:
        self._keep(event)
        for queue in list(self._queues):
            if queue.full:
                # It comes back with the number of the last event it got, and misses nothing.
                self._queues.discard(queue)
                queue.put(None)
            else:
                queue.put(event)

    def _keep(self, event: Event) -> None:
        self._kept.append(event)
        self._kept_bytes += len(event[1])
        while len(self._kept) > KEPT or self._kept_bytes > MOST_BYTES:
            number, raw = self._kept.popleft()
            self._kept_bytes -= len(raw)
            self._first = number if number is not None else self._first

    async def follow(self, since: int | None) -> AsyncGenerator[bytes, None]:
        """Yield events after a commit, or from now on; ends when the server stops or the client is slow."""
        queue = EventQueue()
        self._queues.add(queue)
        try:
            yield BEGIN
            await self._begun.wait()
            if since is not None:
                queue.clear()  # all that came meanwhile is kept, too
                for event in self._kept:
                    if event[0] is None or event[0] > since:
                        queue.put(event)
            if self._task.done():
                queue.put(None)
            while True:
                try:
                    next_event = await asyncio.wait_for(queue.get(), ALIVE_S)
                except TimeoutError:
                    yield ALIVE
                    continue
                if next_event is None:
                    return
                number, raw = next_event
                if since is None or number is None or number > since:  # a feed may be behind its client
                    yield raw
        finally:
            self._queues.discard(queue)
            if not self._queues:
                await self.close()

    def has_since(self, since: int) -> bool:
        """Return whether all events after a commit are kept."""
        return self._first is not None and since >= self._first

    async def close(self) -> None:
        """Stop watching."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


def event_of(entry: LogEntry) -> bytes:
    """Return a commit as an event; its number is the event's id, so a client can come back after it."""
    head = b"" if entry.seq is None else b"id: %d\n" % entry.seq
    return b"%sevent: commit\ndata: %s\n\n" % (head, as_json(entry))


def failure(error: DgentError) -> bytes:
    """Return an error as the last event."""
    body = as_json({"code": error.code, "error": error.message, "hint": error.hint})
    return b"event: failed\ndata: %s\n\n" % body


async def follow(visitor: Visitor, ask: Watch) -> AsyncGenerator[bytes, None]:
    """Yield the events that a visitor asks for."""
    since, from_now = ask.from_seq, msgspec.structs.replace(ask, from_seq=None)
    feeds = visitor.store.feeds
    key: object = (visitor.id, visitor.principal, as_json(from_now))
    shared = feeds.get(key)
    if since is None or (shared is not None and shared.has_since(since)):
        if shared is None:
            shared = feeds[key] = Feed(visitor, from_now, key)
        feed = shared
    else:
        # What it missed is no longer here: it looks at the store by itself.
        key = object()
        feed = feeds[key] = Feed(visitor, ask, key, shared=False)
    async with aclosing(feed.follow(since)) as events:
        async for event in events:
            yield event
