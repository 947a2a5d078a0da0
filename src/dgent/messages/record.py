"""The records of messages, and their schemas.

A `place` orders what an agent has: a digest of the agent, the commit that its batch began after, and the
number in the batch. It comes from commits and never from a clock, and one index has both whose it is and
where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from dgent import codec
from dgent.model.schema import Schema
from dgent.universe.lease import LeaseRecord

ROOM = "messages"
ROLES = ("user", "assistant", "system", "tool")
BATCH_TYPES = ("user_request", "agent_to_agent", "system_trigger", "continuation")
BATCH_STATES = ("open", "complete", "interrupted")
END = "~"  # after every character of a place


@dataclass(frozen=True)
class MessageRecord:
    """One message. `text` is what a search finds; `parts` is None where that is all of it."""

    agent: str
    batch: str
    place: str
    role: str
    text: str
    trust: str
    origin: str = ""
    by: str = ""
    tokens: int = 0
    parts: Any = None
    usage: Any = None


@dataclass(frozen=True)
class BatchRecord:
    """One request/response cycle. `saw` is the newest commit when it began: its history ends there.

    `open_place` is its place while it is open, so that an index lists those. `count` and `tokens` are those
    of its messages, known when it ends. `dropped` are calls without results that were dropped then, `started`
    those that began to run while it is open.
    """

    agent: str
    place: str
    type: str
    state: str
    saw: int
    trust: str
    origin: str = ""
    session: str = ""
    cause: str = ""
    open_place: str | None = None
    count: int = 0
    tokens: int = 0
    ended_at: datetime | None = None
    reason: str = ""
    dropped: Any = None
    usage: Any = None
    started: Any = None


@dataclass(frozen=True)
class SummaryRecord:
    """An archive of batches: all up to the place `last`, but those in `kept`.

    `previous` is the archive before it, `depth` how many summaries it stands on. `text` is empty where
    nothing was summed up; then `text_from` is the newest archive before it that has a text. `chain` is its
    place in the chain, None once it was restored.
    """

    agent: str
    text: str
    trust: str
    first: str
    last: str
    chain: str | None
    previous: str | None = None
    text_from: str | None = None
    depth: int = 0
    batches: int = 0
    count: int = 0
    tokens: int = 0
    kept: Any = None
    strategy: Any = None
    note: str = ""


@dataclass(frozen=True)
class IncomingRecord:
    """A message in the queue of an agent; `queue` is its place while it waits, `taken` one while it is held.

    It keeps no history: the batch that handles it does.
    """

    agent: str
    sender: str
    place: str
    type: str
    text: str
    trust: str
    origin: str
    priority: int
    max_attempts: int
    state: str = "waiting"
    queue: str | None = None
    taken: str | None = None
    attempts: int = 0
    token: int = 0
    holder: str | None = None
    lease_until: datetime | None = None
    not_before: datetime | None = None
    error: str = ""
    parts: Any = None


@dataclass(frozen=True)
class MessageLease(LeaseRecord):
    """The lease of a message that was taken, or the cooldown of two agents."""

    agent: str = ""


@dataclass(frozen=True)
class ErasureRecord:
    """A redaction that was begun: the record that comes in the place of the erased one."""

    agent: str
    target: str
    schema: str
    made_at: datetime
    data: Any


MESSAGE = Schema(
    "message.message",
    contract=MessageRecord,
    indexes=("place",),
    owner=ROOM,
    text={"text": 1},
    thread="batch",
)
BATCH = Schema("message.batch", contract=BatchRecord, indexes=("place", "open_place"), owner=ROOM)
SUMMARY = Schema(
    "message.summary", contract=SummaryRecord, indexes=("chain",), owner=ROOM, text={"text": 2, "note": 1}
)
ERASURE = Schema("message.erasure", contract=ErasureRecord, owner=ROOM, history="none", feed=False)
INCOMING = Schema(
    "message.incoming", contract=IncomingRecord, indexes=("queue", "taken"), owner=ROOM, history="none"
)
LEASE = Schema("message.lease", contract=MessageLease, owner=ROOM, history="none", feed=False)

SCHEMAS: tuple[Schema[Any], ...] = (MESSAGE, BATCH, SUMMARY, INCOMING, LEASE, ERASURE)


@lru_cache(256)
def place_of_agent(agent: str) -> str:
    """Return what the places of an agent begin with: of one length, and of no other agent."""
    return codec.blake2b(agent.encode(), size=16).hexdigest() + "."


def place_of_batch(agent: str, order: int, id: str) -> str:
    """Return the place of a batch; the end of its id decides between those that began after one commit."""
    return f"{place_of_agent(agent)}{order:012x}{id[-12:]}"


def order_of(place: str) -> int:
    """Return the number in a place that came from a commit."""
    return int(place[33:45], 16)


def number_of(position: int, result: int | None = None) -> str:
    """Return the number of a message in its batch; a result stands behind its call."""
    return f"{position:08d}" if result is None else f"{position:08d}.{result:04d}"
