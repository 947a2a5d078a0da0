"""Messages for code without an event loop: `from dgent.sync.messages import Messages`.

The same names as in `dgent.messages`; `Messages`, its batches, `Inbox` and its deliveries block until they
are answered.
"""

from __future__ import annotations

from typing import Any

from dgent.errors import InputError
from dgent.messages import (
    BatchInfo,
    Compressed,
    Entry,
    History,
    Importance,
    ImportedMessages,
    Incoming,
    LeaseLost,
    Message,
    MessageHit,
    MessagePage,
    Part,
    RecursiveSummary,
    Summary,
    TimeDecay,
    TooSoon,
    Truncate,
    Turn,
    batch,
    messages,
    queue,
)
from dgent.sync.twin import Twin, make_twin
from dgent.sync.universe import Universe

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


def _constructor(source: Any) -> Any:
    def init(self: Twin, universe: Any, agent: str) -> None:
        if not isinstance(universe, Universe):
            raise InputError(
                f"this {source.__name__} takes a universe of dgent.sync, not a {type(universe).__name__}",
                hint="with dgent.open use dgent.messages",
            )
        self._source, self._home = source(universe._source, agent), universe._home

    return init


def _twin(source: type, **instead: Any) -> Any:
    return make_twin(source, instead=instead, module=__name__)


Batch = _twin(batch.Batch)
Delivery = _twin(queue.Delivery)
Inbox = _twin(queue.Inbox, __init__=_constructor(queue.Inbox))
Messages = _twin(messages.Messages, __init__=_constructor(messages.Messages))
