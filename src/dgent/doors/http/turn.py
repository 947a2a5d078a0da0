"""The turns of agents that a server runs: each goes on without its client, and its events are kept a while.

Events have numbers, so a client that lost its connection comes back with the last one that it got. Readers
have no queues of their own: each is a position in the log, so that a slow one costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dgent import ids
from dgent.doors.http.errors import TooMany
from dgent.doors.http.feed import ALIVE, ALIVE_S
from dgent.errors import DgentError
from dgent.runtime import event as events
from dgent.runtime.event import Event

if TYPE_CHECKING:
    from dgent.runtime.agent import AgentRuntime

KEPT = 4_000  # events of one agent that are kept for readers
MOST_BYTES = 8 * 2**20  # of them
KNOWN_TURNS = 500  # turns of one agent whose key is known here
LOG = logging.getLogger("dgent.http")
CLOSE_S = 5.0  # for turns that are under way when the server stops


class LoggedEvent(NamedTuple):
    """An event, the turn that it is of, and its JSON."""

    turn: str
    event: Event
    raw: bytes


class EventLog:
    """The newest events of one agent, by their numbers."""

    def __init__(self) -> None:
        # Numbers go on after a restart: those of before are lower, and no longer here.
        self._begin = self.first = self.next = time.time_ns() // 1_000
        self._events: dict[int, LoggedEvent] = {}
        self._bytes = 0
        self._news = asyncio.Event()
        self.ended = False

    def add(self, turn: str, event: Event) -> None:
        """Keep an event, drop the oldest ones beyond the limits, and wake all readers."""
        made = LoggedEvent(turn, event, events.encode(event))
        self._events[self.next] = made
        self._bytes += len(made.raw)
        self.next += 1
        while self.next - self.first > KEPT or (self._bytes > MOST_BYTES and self.next - self.first > 1):
            self._bytes -= len(self._events.pop(self.first).raw)
            self.first += 1
        self.wake()

    def end(self) -> None:
        """End all readers: the server stops."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        """Let readers look again."""
        self._news.set()
        self._news = asyncio.Event()

    async def follow(
        self, since: int | None, turn: Turn | None, *, whole: bool
    ) -> AsyncGenerator[bytes, None]:
        """Yield events after a number, or from now on: of one turn until it ends, or of all.

        Without `whole`, thoughts and what tools were given and answered are left out.
        """
        at = self.next if since is None else since + 1
        if not self.first <= at <= self.next:
            # Of a number from before a restart nobody knows how many came after it: that is said as 0.
            yield _write_missed(self.first - at if self._begin <= at < self.first else 0)
            at = self.first
        while not self.ended:
            news = self._news
            while at < self.next:
                if at < self.first:
                    skipped, at = self.first - at, self.first
                    yield _write_missed(skipped)
                found = self._events[at]
                if turn is None or found.turn == turn.id:
                    raw = found.raw if whole else encode_public(found.event)
                    if raw:
                        yield b"id: %d\nevent: %s\ndata: %s\n\n" % (at, _kind(found.event), raw)
                at += 1
            if turn is not None and turn.ended:
                return
            try:
                await asyncio.wait_for(news.wait(), ALIVE_S)
            except TimeoutError:
                yield ALIVE


def _write_missed(count: int) -> bytes:
    return b"event: missed\ndata: %s\n\n" % events.encode(events.Missed(count=count))


def _kind(event: Event) -> bytes:
    return str(type(event).__struct_config__.tag).encode()


def encode_public(event: Event) -> bytes:
    """Return the JSON of an event for callers below a partner; empty for one that is not for them."""
    if isinstance(event, events.Thinking | events.UsageReport):
        return b""
    if isinstance(event, events.ToolStarted):
        event = msgspec.structs.replace(event, arguments=None)
    elif isinstance(event, events.ToolFinished):
        event = msgspec.structs.replace(event, text="")
    elif isinstance(event, events.Done):
        event = msgspec.structs.replace(event, usage=None)
    return events.encode(event)


class Turn:
    """One answer of an agent that is under way, or was: its owner, and the number of its first event."""

    def __init__(self, owner: str, first: int) -> None:
        self.id, self.owner, self.first = ids.new_id(), owner, first
        self.batch = ""  # known from its first event on
        self.ended = False
        self.task: asyncio.Task[None] | None = None


class AgentTurns:
    """Runs the turns of one agent, at most so many at once, and keeps their events."""

    def __init__(self, runtime: AgentRuntime, most: int) -> None:
        self.runtime, self._most = runtime, most
        self.log = EventLog()
        self._turns: OrderedDict[str, Turn] = OrderedDict()  # by their ids
        self._keys: dict[tuple[str, str], Turn] = {}

    @property
    def running(self) -> list[Turn]:
        """The turns that are under way."""
        return [turn for turn in self._turns.values() if not turn.ended]

    def get(self, id: str) -> Turn | None:
        """Return a turn; None if it is not known here."""
        return self._turns.get(id)

    def find(self, owner: str, key: str) -> Turn | None:
        """Return the turn that a client began with a key; None if it is not known here."""
        return self._keys.get((owner, key))

    def start(self, owner: str, key: str | None, answer: AsyncGenerator[Event], *, partner: bool) -> Turn:
        """Run a turn to its end, whoever listens; raises TooMany where too many are under way.

        Half of the places are the partner's, so that others cannot take them all.
        """
        if len(self.running) >= (self._most if partner else max(1, self._most // 2)):
            raise TooMany(1.0)
        turn = Turn(owner, self.log.next)
        turn.task = asyncio.create_task(self._run(turn, answer))
        self._turns[turn.id] = turn
        if key is not None:
            self._keys[owner, key] = turn
        while len(self._turns) > KNOWN_TURNS:
            _, gone = self._turns.popitem(last=False)
            self._keys = {known: each for known, each in self._keys.items() if each is not gone}
        return turn

    async def interrupt(self, turn: Turn | None) -> list[Turn]:
        """Interrupt a turn, or all of them, durably; return those that were under way."""
        running = [each for each in self.running if turn in (None, each)]
        for each in running:
            if each.batch:
                await self.runtime.interrupt(each.batch)
            elif each.task is not None:
                each.task.cancel()
        return running

    async def close(self) -> None:
        """Interrupt all turns, and end all readers."""
        running = await self.interrupt(None)
        tasks = [turn.task for turn in running if turn.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        self.log.end()
        await self.runtime.close()

    async def _run(self, turn: Turn, answer: AsyncGenerator[Event]) -> None:
        try:
            async with aclosing(answer) as found:
                async for event in found:
                    turn.batch = event.batch or turn.batch
                    self.log.add(turn.id, event)
        except Exception as error:
            if not isinstance(error, DgentError):
                LOG.exception("a fault in dgent")
            self.log.add(turn.id, events.fail(error, agent=self.runtime.agent, batch=turn.batch))
        finally:
            turn.ended = True
            self.log.wake()
