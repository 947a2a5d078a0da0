"""Messages of agents: batches, history for a model, search, compression and a queue of incoming ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgent.system.lazy import load_on_use

if TYPE_CHECKING:
    from dgent.messages.batch import Batch
    from dgent.messages.history import History, Summary, Turn
    from dgent.messages.message import BatchInfo, Entry, Message
    from dgent.messages.messages import MessageHit, MessagePage, Messages
    from dgent.messages.part import Part
    from dgent.messages.transfer import Imported

_HOME = {
    "Batch": "dgent.messages.batch",
    "BatchInfo": "dgent.messages.message",
    "Entry": "dgent.messages.message",
    "History": "dgent.messages.history",
    "Imported": "dgent.messages.transfer",
    "Message": "dgent.messages.message",
    "MessageHit": "dgent.messages.messages",
    "MessagePage": "dgent.messages.messages",
    "Messages": "dgent.messages.messages",
    "Part": "dgent.messages.part",
    "Summary": "dgent.messages.history",
    "Turn": "dgent.messages.history",
}

__all__ = [
    "Batch",
    "BatchInfo",
    "Entry",
    "History",
    "Imported",
    "Message",
    "MessageHit",
    "MessagePage",
    "Messages",
    "Part",
    "Summary",
    "Turn",
]

__getattr__ = load_on_use(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
