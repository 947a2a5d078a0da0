"""A session as it was read last, which holds as long as nobody else commits to the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from dgent.bridges.openai_agents.records import ITEM, Talk, Work, make_session, read_session
from dgent.errors import VersionConflict
from dgent.model.datum import Datum
from dgent.store.backend import Committed, Op, Put
from dgent.universe.position import known_seq
from dgent.universe.universe import Universe

R = TypeVar("R")

MOST_BYTES = 4_000_000  # of the items that are kept


class KeptSession:
    """The record of a session and some of its items, as they are at a seq; None where that is not known."""

    def __init__(self, seq: int | None, data: dict[str, Any] | None, rev: int) -> None:
        self.seq, self._data, self.rev = seq, data, rev
        self.items: dict[str, Datum] = {}
        self._size = 0

    def make_talk(self, session: str) -> Talk:
        """Return the session, which the caller may change."""
        return Talk(session) if self._data is None else msgspec.convert(self._data, Talk)

    def is_current(self, universe: Universe) -> bool:
        """Check that nothing was committed since."""
        return self.seq is not None and self.seq == known_seq(universe.backend)

    def add(self, items: Iterable[Datum]) -> None:
        """Keep items that are as they were at the seq; none of them if they are too large."""
        new = [each for each in items if each.id not in self.items]
        self._size += sum(len(each.content) for each in new)
        if self._size > MOST_BYTES:
            self.items, self._size = {}, 0
            return
        self.items |= {each.id: each for each in new}

    def follow(self, done: Committed, talk: Talk, ops: Sequence[Op]) -> KeptSession:
        """Return the session after a commit of its own, with its items if no other commit came between."""
        if self.seq is None or done.seq != self.seq + 1:
            return UNKNOWN
        after = KeptSession(done.seq, msgspec.to_builtins(talk), done.written[0].rev)
        after.items, after._size = self.items, self._size
        for op in ops:
            if not isinstance(op, Put):
                gone = after.items.pop(op.id, None)
                after._size -= 0 if gone is None else len(gone.content)
        after.add([op.datum for op in ops if isinstance(op, Put) and op.datum.schema == ITEM.name])
        return after


UNKNOWN = KeptSession(None, None, 0)


async def look(universe: Universe, session: str, kept: KeptSession) -> KeptSession:
    """Return the present state of a session: what is kept of it, if it is current, or its record."""
    if kept.is_current(universe):
        return kept
    seq = known_seq(universe.backend)
    data, rev = await read_session(universe, session)
    found = KeptSession(seq, data, rev)
    if not found.is_current(universe):
        found.seq = None
    return found


async def try_change(
    universe: Universe, kept: KeptSession, session: str, note: str, work: Work[R]
) -> tuple[R, KeptSession] | None:
    """Do what a function says like `change_talk`, once; returns its result and the session after it.

    None if others were faster.
    """
    talk = kept.make_talk(session)
    ops, result = await work(universe, talk)
    if ops is None:
        return result, kept
    try:
        done = await universe.commit([Put(make_session(universe, talk), kept.rev), *ops], note=note)
    except VersionConflict:
        return None
    return result, kept.follow(done, talk, ops)
