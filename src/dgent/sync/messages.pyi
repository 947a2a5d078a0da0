"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from dgent.messages import BatchInfo as BatchInfo
from dgent.messages import Compressed as Compressed
from dgent.messages import Entry as Entry
from dgent.messages import History as History
from dgent.messages import Importance as Importance
from dgent.messages import ImportedMessages as ImportedMessages
from dgent.messages import Incoming as Incoming
from dgent.messages import LeaseLost as LeaseLost
from dgent.messages import Message as Message
from dgent.messages import MessageHit as MessageHit
from dgent.messages import MessagePage as MessagePage
from dgent.messages import Part as Part
from dgent.messages import RecursiveSummary as RecursiveSummary
from dgent.messages import Summary as Summary
from dgent.messages import TimeDecay as TimeDecay
from dgent.messages import TooSoon as TooSoon
from dgent.messages import Truncate as Truncate
from dgent.messages import Turn as Turn
from dgent.messages.log import Log
from dgent.messages.part import Content
from dgent.messages.queue import ATTEMPTS, COOLDOWN_S
from dgent.messages.record import BatchRecord, IncomingRecord
from dgent.messages.strategy import Strategy
from dgent.model.crystal import Crystal
from dgent.store.backend import AsOf
from dgent.sync import Transaction, Universe
from dgent.sync.stream import Stream
from dgent.universe.lease import LEASE_S

__all__ = [
    "Batch",
    "BatchInfo",
    "Compressed",
    "Delivery",
    "Entry",
    "History",
    "Importance",
    "ImportedMessages",
    "Inbox",
    "Incoming",
    "LeaseLost",
    "Message",
    "MessageHit",
    "MessagePage",
    "Messages",
    "Part",
    "RecursiveSummary",
    "Summary",
    "TimeDecay",
    "TooSoon",
    "Truncate",
    "Turn",
]

class Batch:
    """A batch of an agent: `messages.begin()`, or `resume` for one that was begun before.

    Each call is one commit, so what it returned is durable. Two handles may add to one batch at once.
    """

    def __init__(self, log: Log, id: str, record: BatchRecord, rev: int, started_at: datetime) -> None: ...
    def __repr__(self) -> str: ...
    @property
    def info(self) -> BatchInfo:
        """The batch as it was last read or written."""

    @property
    def trust(self) -> str:
        """The lowest trust of all that the batch received or read."""

    @property
    def is_held(self) -> bool:
        """Whether the batch is held here, so that nobody else works on it."""

    def renew(self) -> None:
        """Extend the lease of who works on the batch; LeaseLost when somebody else has taken it over."""

    def hold(self, holder: str, length: timedelta) -> None:
        """Use a lease that was taken for a holder: from now on nothing is added without it."""

    def call_key(self, call: str) -> str:
        """Return the idempotency key of a tool call: the same whoever runs it, and of no other call."""

    def pending(self) -> dict[str, str]:
        """Return the calls that have no result yet, with the names of their tools."""

    def messages(self) -> list[Message]:
        """Return the messages of the batch in order, results directly after their calls."""

    def history(self, *, messages: int | None = None, tokens: int | None = None) -> History:
        """Return what the batch sees of others: those that had ended when it began, the oldest first.

        With `messages` or `tokens` the newest of them that fit, whole batches only.
        """

    def add(
        self,
        role: str,
        content: Content,
        *,
        trust: str | None = None,
        origin: str = "",
        by: str = "",
        usage: Mapping[str, Any] | None = None,
        key: str | None = None,
        tx: Transaction | None = None,
    ) -> Message:
        """Add a message; with a `key`, a second call returns the message of the first one."""

    def add_all(
        self, entries: Sequence[Entry], *, key: str | None = None, tx: Transaction | None = None
    ) -> list[Message]:
        """Add messages in one commit, or in a transaction of the caller."""

    def add_result(
        self,
        call: str,
        content: str,
        *,
        error: bool = False,
        trust: str | None = None,
        origin: str = "",
        usage: Mapping[str, Any] | None = None,
        tx: Transaction | None = None,
    ) -> Message:
        """Add the result of a tool call, once: it stands directly after the call.

        The same result again returns the stored one; another one is a Conflict.
        """

    def lower_trust(self, trust: str) -> str:
        """Lower the trust of the batch to that of something that it read; return what it is now."""

    def reload(self) -> None:
        """Read the batch again."""

    def catch_up(self) -> None:
        """Read the batch again, after all commits of this process that were under way.

        A commit whose caller was cancelled may still happen, but not after a later one of the same process.
        """

    def start_call(self, call: str) -> None:
        """Record that a tool call is about to run: if it gets no result, its outcome is unknown."""

    def complete(
        self,
        *,
        last: Entry | None = None,
        usage: Mapping[str, Any] | None = None,
        tx: Transaction | None = None,
    ) -> BatchInfo:
        """End the batch, with a `last` message in the same commit; a Conflict while calls have no results."""

    def interrupt(self, reason: str = "", *, tx: Transaction | None = None) -> BatchInfo:
        """End the batch before its answer: calls without results are dropped, and `dropped` names them.

        What was dropped stays in the history of its message. `Messages.resume` goes on with the batch.
        """

class Delivery:
    """A message that was taken from the queue: handle it, then call `done`."""

    @property
    def message(self) -> Incoming: ...
    def __init__(self, log: Log, found: Crystal[IncomingRecord], rev: int, lease_s: float) -> None: ...
    @property
    def id(self) -> str:
        """The id of the message in the queue."""

    def begin(self, *, session: str = "") -> Batch:
        """Begin the batch of this message, or go on with the one that an earlier delivery began."""

    def renew(self, lease_s: float | None = None) -> datetime:
        """Extend the lease from now on; raises LeaseLost when somebody else has the message."""

    def keep(self) -> AbstractContextManager[None]:
        """Renew the lease while a block of code runs, which is cancelled when the lease is lost."""

    def done(self, *, tx: Transaction | None = None) -> None:
        """Take the message out of the queue for good; in a transaction together with what it led to."""

    def give_back(self, error: str = "", *, delay_s: float = 0.0) -> None:
        """Put the message back into the queue, to be delivered again; after too many attempts it is dead."""

class Inbox:
    """The queue of one agent: `Inbox(u, "scout")` takes what was sent to scout, and sends as scout."""

    def __init__(self, universe: Universe, agent: str) -> None: ...
    def send(
        self,
        to: str,
        content: Content,
        *,
        type: str = "agent_to_agent",
        trust: str | None = None,
        origin: str = "",
        priority: int = 5,
        key: str | None = None,
        attempts: int = ATTEMPTS,
        cooldown_s: float = COOLDOWN_S,
    ) -> str:
        """Send a message to an agent; return its id in the queue. With a `key` it is sent once.

        Of two agents that write to each other, the second has to wait for `cooldown_s` seconds, whoever wrote
        first: raises TooSoon. Only the type `agent_to_agent` has that.
        """

    def take(
        self, *, holder: str | None = None, lease_s: float = LEASE_S, wait_s: float = 0.0
    ) -> Delivery | None:
        """Take the next message: by priority, then in the order of sending; None when none comes in time."""

    def list(self, state: str | None = None, limit: int = 50) -> list[Incoming]:
        """Return messages of the queue: taken and waiting ones in the order of delivery, then dead ones."""

    def get_sent(self, id: str) -> Incoming:
        """Return a message that this agent sent and nobody has handled; raises NotFound."""

    def release(self, id: str, error: str = "", *, delay_s: float = 0.0) -> Incoming:
        """Put a taken or dead message back into the queue; a dead one has all its attempts again."""

    def drop(self, id: str) -> Incoming:
        """Take a message out of the queue, whatever its state."""

class Messages:
    """The messages of one agent in a universe: `Messages(u, "scout")`.

    A handle of a principal has its own messages only, and vouches for no more than its own trust.
    """

    def __init__(self, universe: Universe, agent: str) -> None: ...
    def begin(
        self,
        type: str = "user_request",
        entries: Sequence[Entry] = (),
        *,
        origin: str = "",
        session: str = "",
        cause: str = "",
        key: str | None = None,
        holder: str = "",
        tx: Transaction | None = None,
    ) -> Batch:
        """Begin a batch, with its first messages in the same commit.

        It sees the history up to now. With a `key`, a second call returns the batch of the first one. A
        `holder` works on it alone: nobody else resumes it before the lease ends, which `renew` extends.
        """

    def get_batch(self, id: str) -> Batch:
        """Return a batch by its id; raises NotFound."""

    def resume(self, id: str, *, holder: str = "") -> Batch:
        """Go on with a batch that is open, or was interrupted; it sees what it saw before.

        After a crash, `pending` of an open one has the calls whose outcome is not known. A `holder` takes it
        for itself: a Conflict while another one that still runs has it.
        """

    def find_held(self, ids: Sequence[str]) -> set[str]:
        """Return those of some batches that a process works on which still runs."""

    def list_batches(
        self, *, limit: int | None = 20, open_only: bool = False, as_of: AsOf = None
    ) -> list[BatchInfo]:
        """Return batches, newest first."""

    def add(
        self,
        role: str,
        content: Content,
        *,
        trust: str | None = None,
        origin: str = "",
        by: str = "",
        type: str = "user_request",
        session: str = "",
        usage: Mapping[str, Any] | None = None,
        key: str | None = None,
        tx: Transaction | None = None,
    ) -> Message:
        """Add a message as a complete batch of its own; with a `key` a second call adds nothing."""

    def add_all(
        self,
        entries: Sequence[Entry],
        *,
        type: str = "user_request",
        session: str = "",
        key: str | None = None,
        tx: Transaction | None = None,
    ) -> list[Message]:
        """Add messages as one complete batch, in one commit or in a transaction of the caller."""

    def get(self, id: str) -> Message:
        """Return a message by its id; raises NotFound."""

    def find_ids(self, start: str, kind: str, limit: int = 5) -> list[str]:
        """Return the ids of messages or batches that begin so; the one that is exactly so alone."""

    def page(
        self,
        limit: int = 50,
        *,
        cursor: str | None = None,
        batch: str | None = None,
        role: str | None = None,
        as_of: AsOf = None,
    ) -> MessagePage:
        """Return messages, the newest first; `cursor` of one page gives those before it."""

    def history(
        self, *, messages: int | None = None, tokens: int | None = None, as_of: AsOf = None
    ) -> History:
        """Return what a batch would see that began now: ended batches, whole, the oldest first."""

    def count(self, *, as_of: AsOf = None) -> int:
        """Return how many messages the agent has."""

    def search(self, text: str, k: int = 10, *, as_of: AsOf = None) -> list[MessageHit]:
        """Return the messages and summaries that fit some words best, archived ones too.

        Messages of a batch lend each other their words, so that a question is found by its answer.
        """

    def list_summaries(self, limit: int | None = 20) -> list[Summary]:
        """Return the chain of archives, the newest first."""

    def edit(self, id: str, content: Content) -> Message:
        """Replace what a message says; its calls of tools, or its result, must stay.

        The version before stays in its history. Its trust is at most that of who edits it.
        """

    def delete(self, id: str) -> int:
        """Delete a message with the results of its calls, or a whole batch; return how many messages.

        Their history stays until `forget`. The result of a call is deleted with the call.
        """

    def forget(self, id: str) -> int:
        """Erase a message, or a batch, for good, with every summary that could repeat it; return how many.

        The summaries that go take their archive with them: what they covered is not archived any more.
        """

    def redact(self, text: str, instead: str = "[redacted]") -> int:
        """Replace a text in all messages and summaries, and erase every version that had it.

        Returns how many records were changed. It cannot be undone.
        """

    def compress(
        self,
        strategy: Strategy | str | Mapping[str, Any] = "truncate",
        *,
        messages: int | None = None,
        tokens: int | None = None,
        summarise: Callable[[Sequence[str]], str] | None = None,
        score: Callable[[Sequence[str]], float] | None = None,
    ) -> Compressed:
        """Archive older batches as a strategy says, if there are more messages or tokens than given.

        Whole batches only; open ones and the newest one stay. `summarise` gets texts and returns one, `score`
        gets the texts of a batch and returns its importance. If it fails, what it was for is archived without
        it, and the answer and the record say so.
        """

    def restore(self, id: str | None = None) -> list[Summary]:
        """Take the newest archive back, or all down to one: its batches are in the history again."""

    def export(self, *, as_of: AsOf = None) -> Stream[str]:
        """Yield the agent's batches, messages and archives as lines of JSON, as of one moment."""

    def load(self, lines: Iterable[str]) -> ImportedMessages:
        """Import lines that `export` wrote, all or none where one is wrong; what is there is left out."""
