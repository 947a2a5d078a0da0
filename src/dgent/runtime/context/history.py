"""The batches before this one: read once, then kept and proven by the commits since.

A turn adds one batch to thousands. So the batches that were read stay here, and the log of commits proves
that nobody has edited, archived or forgotten one of them; otherwise all are read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dgent import codec
from dgent.errors import HistoryGone
from dgent.messages.batch import Batch
from dgent.messages.history import History, Turn
from dgent.messages.messages import Messages
from dgent.messages.record import BATCH, MESSAGE, SUMMARY
from dgent.store.backend import Change
from dgent.universe.gate import Gate

LOOK_BACK = 200  # commits; if there were more, all is read again
ROOM_FOR_ANCHOR = 4  # the first batch is chosen in the oldest quarter


class _Kept(NamedTuple):
    """A history: the commit that it is as of, the one up to which it is proven, and the budget it had."""

    saw: int
    proven: int
    tokens: int
    epoch: bytes
    history: History


class RecentBatches:
    """The history of one agent's messages, as its batches see it."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._kept: _Kept | None = None

    async def read(self, batch: Batch | None, tokens: int) -> History:
        """Return what a batch sees, or one that would begin now: the newest batches up to so many tokens."""
        universe = self._messages.universe
        seq = await universe.seq()
        saw = seq if batch is None else min(batch.info.saw, seq)
        epoch = getattr(universe.backend, "epoch", b"")
        kept, self._kept = self._kept, None
        history = None
        usable = universe.degraded is None and not isinstance(universe.backend, Gate)
        if kept is not None and usable and (kept.tokens, kept.epoch) == (tokens, epoch):
            history = await self._extend(kept, saw)
        if history is None:
            history = await (
                self._messages.history(tokens=tokens, as_of=saw)
                if batch is None
                else batch.history(tokens=tokens)
            )
        self._kept = _Kept(saw, seq, tokens, epoch, history)
        return history

    async def _extend(self, kept: _Kept, saw: int) -> History | None:
        """Return a kept history with the batches that ended since; None when it has to be read again."""
        if saw < kept.saw:
            return None
        try:
            changes = await self._messages.universe.changes(min(kept.saw, kept.proven), limit=LOOK_BACK + 1)
        except HistoryGone:
            return None
        if len(changes) > LOOK_BACK:
            return None
        known = {turn.batch.id for turn in kept.history.turns}
        ended: dict[str, int] = {}
        if not all(self._follow(change, known, saw, ended) for change in changes):
            return None
        turns = list(kept.history.turns)
        last = turns[-1].batch.saw if turns else -1
        for id, began in ended.items():
            if began <= last:
                return None  # it ran beside another one: only its place says which comes first
            last, batch = began, await self._messages.get_batch(id)
            if batch.info.count:
                turns.append(Turn(batch.info, tuple(await batch.messages())))
        return _trim(History(kept.history.summary, tuple(turns), kept.history.more), kept.tokens)

    def _follow(self, change: Change, known: set[str], saw: int, ended: dict[str, int]) -> bool:
        """Add the batches that a commit ended; False if it may have changed anything else that is shown."""
        if change.more:
            return False
        for item in change.items:
            if item.id is None or item.schema == SUMMARY.name:
                return False
            if item.schema not in (MESSAGE.name, BATCH.name):
                continue
            later = change.seq is None or change.seq > saw
            id = item.id.partition("/")[0]
            if id in known or item.op != "put" or (later and id in ended):
                return False
            if item.schema == MESSAGE.name:
                if item.rev != 1:
                    return False
                continue
            if item.datum is None:
                return False
            data = item.datum.data
            if later or data["agent"] != self._messages.agent:
                continue
            if data["state"] == "open":
                ended.pop(id, None)
            else:
                ended[id] = int(data["saw"])
        return True


def _trim(history: History, tokens: int) -> History:
    """Drop the oldest batches beyond a number of tokens; the newest one stays."""
    turns = list(history.turns)
    size, more = sum(turn.batch.tokens for turn in turns), history.more
    while len(turns) > 1 and size > tokens:
        size, more = size - turns.pop(0).batch.tokens, True
    return History(history.summary, tuple(turns), more)


def choose_first(turns: Sequence[Turn], sizes: Sequence[int]) -> int:
    """Return the place of the first batch to show where older ones do not fit.

    If it were always the oldest that fits, it would be another one after each turn, and no two calls would
    begin alike. So it is the batch of the oldest quarter whose id has the lowest hash: the same one for many
    turns, whichever process looks.
    """
    most, passed, places = sum(sizes) // ROOM_FOR_ANCHOR, 0, list[int]()
    for place, size in enumerate(sizes[:-1]):
        if passed > most:
            break
        places.append(place)
        passed += size
    return min(places, key=lambda place: _hash(turns[place].batch.id), default=0)


def _hash(id: str) -> bytes:
    return codec.blake2b(id.encode(), size=8).digest()
