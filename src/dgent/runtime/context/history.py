"""The batches before this one: read once, then kept and proven by the commits since.

A turn adds one batch to thousands. So the batches that were read stay here, and the tail of the feed proves
that nobody has edited, archived or forgotten one of them; otherwise all are read again.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from dgent import codec
from dgent.messages.batch import Batch
from dgent.messages.history import History, Turn, build_turn
from dgent.messages.messages import Messages
from dgent.messages.record import BATCH, MESSAGE, SUMMARY
from dgent.model.datum import Datum
from dgent.store.backend import Change
from dgent.universe.tail import TailPoint, follow

ROOM_FOR_ANCHOR = 4  # the first batch is chosen in the oldest quarter
SHOWN = (MESSAGE.name, BATCH.name, SUMMARY.name)


class _Kept(NamedTuple):
    """A history: the commit that it is as of, the one up to which it is proven, and the budget it had."""

    saw: int
    proven: TailPoint
    tokens: int
    history: History


class RecentBatches:
    """The history of one agent's messages, as its batches see it."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._kept: _Kept | None = None

    async def read(self, batch: Batch | None, tokens: int) -> History:
        """Return what a batch sees, or one that would begin now: the newest batches up to so many tokens."""
        kept, self._kept = self._kept, None
        tail = await follow(self._messages.universe)
        if tail is None:
            return await self._read(batch, tokens, await self._messages.universe.seq())
        point = tail.point
        saw = point.seq if batch is None else min(batch.info.saw, point.seq)
        history = None
        if kept is not None and kept.tokens == tokens and saw >= kept.saw:
            since = kept.proven._replace(seq=min(kept.saw, kept.proven.seq))
            changes = tail.find_by_agent(since, SHOWN, self._messages.agent)
            history = None if changes is None else await self._extend(kept, saw, changes)
        if history is None:
            history = await self._read(batch, tokens, saw)
        self._kept = _Kept(saw, point, tokens, history)
        return history

    async def _read(self, batch: Batch | None, tokens: int, saw: int) -> History:
        if batch is None:
            return await self._messages.history(tokens=tokens, as_of=saw)
        return await batch.history(tokens=tokens)

    async def _extend(self, kept: _Kept, saw: int, changes: Sequence[Change]) -> History | None:
        """Return a kept history with the batches that ended since; None when it has to be read again."""
        if not changes:
            return kept.history
        known = {turn.batch.id for turn in kept.history.turns}
        ended: dict[str, Datum] = {}
        added: dict[str, list[Datum]] = {}
        if not all(self._follow(change, known, saw, ended, added) for change in changes):
            return None
        turns = list(kept.history.turns)
        last = turns[-1].batch.saw if turns else -1
        for id, datum in ended.items():
            began = int(datum.data["saw"])
            if began <= last:
                return None  # it ran beside another one: only its place says which comes first
            last = began
            turn = build_turn(self._messages.universe.contracts, datum, added.get(id, ()))
            if turn is None:
                batch = await self._messages.get_batch(id)
                turn = Turn(batch.info, tuple(await batch.messages()))
            if turn.batch.count:
                turns.append(turn)
        return _trim(History(kept.history.summary, tuple(turns), kept.history.more), kept.tokens)

    def _follow(
        self,
        change: Change,
        known: Container[str],
        saw: int,
        ended: dict[str, Datum],
        added: dict[str, list[Datum]],
    ) -> bool:
        """Add the batches that a commit ended; False if it may have changed anything else that is shown."""
        for item in change.items:
            if item.id is None or item.schema == SUMMARY.name:
                return False
            if item.schema not in (MESSAGE.name, BATCH.name):
                continue
            later = change.seq is None or change.seq > saw
            id = item.id.partition("/")[0]
            if id in known or item.op != "put" or item.datum is None or (later and id in ended):
                return False
            if item.schema == MESSAGE.name:
                if item.rev != 1:
                    return False
                added.setdefault(id, []).append(item.datum)
            elif later or item.datum.data["agent"] != self._messages.agent:
                continue
            elif item.datum.data["state"] == "open":
                ended.pop(id, None)
            else:
                ended[id] = item.datum
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
