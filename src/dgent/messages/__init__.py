"""Messages of agents: batches, history for a model, search, compression and a queue of incoming ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgent.system.lazy import load_on_use

if TYPE_CHECKING:
    from dgent.messages.batch import Batch
    from dgent.messages.compress import Compressed
    from dgent.messages.errors import LeaseLost, TooSoon
    from dgent.messages.history import History, Summary, Turn
    from dgent.messages.message import BatchInfo, Entry, Message
    from dgent.messages.messages import MessageHit, MessagePage, Messages
    from dgent.messages.part import Part
    from dgent.messages.queue import Delivery, Inbox, Incoming
    from dgent.messages.strategy import Importance, RecursiveSummary, TimeDecay, Truncate
    from dgent.messages.transfer import ImportedMessages

_HOME = {
    "Batch": "dgent.messages.batch",
    "BatchInfo": "dgent.messages.message",
    "Compressed": "dgent.messages.compress",
    "Delivery": "dgent.messages.queue",
    "Entry": "dgent.messages.message",
    "History": "dgent.messages.history",
    "Importance": "dgent.messages.strategy",
    "ImportedMessages": "dgent.messages.transfer",
    "Inbox": "dgent.messages.queue",
    "Incoming": "dgent.messages.queue",
    "LeaseLost": "dgent.messages.errors",
    "Message": "dgent.messages.message",
    "MessageHit": "dgent.messages.messages",
    "MessagePage": "dgent.messages.messages",
    "Messages": "dgent.messages.messages",
    "Part": "dgent.messages.part",
    "RecursiveSummary": "dgent.messages.strategy",
    "Summary": "dgent.messages.history",
    "TimeDecay": "dgent.messages.strategy",
    "TooSoon": "dgent.messages.errors",
    "Truncate": "dgent.messages.strategy",
    "Turn": "dgent.messages.history",
}

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

__getattr__ = load_on_use(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
