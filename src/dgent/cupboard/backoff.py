"""Turns: whoever was beaten to it again and again asks the others to stand back for a moment.

A change is worked out without a lock, and again when somebody else was faster. Where a large change meets
many small ones, such as the end of a trail that several programs add to, it would be beaten forever. So after
some attempts it writes a mark that every change reads, and the others wait until the mark is gone. The mark
has no history, and an end in time: who dies with it holds nobody up for long.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from dgent import clock, ids
from dgent.cupboard.record import LeaseRecord
from dgent.errors import Conflict, DgentError, TransactionConflict
from dgent.model.crystal import Crystal
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

R = TypeVar("R")

TURN_ID = "cupboard/turn"
PATIENCE = 6  # so many attempts before asking for a turn
ATTEMPTS = 32  # and so many during it
TURN_S = 10.0
WAIT_S = 60.0
PAUSE_S = 0.02


def remark(text: str) -> str:
    """A commit's note with names that callers gave, of which not all can stand in one."""
    return text.replace("\0", "").encode(errors="replace").decode()[:200]


class _StandBack(Exception):
    """It is somebody else's turn."""


class Turn:
    """One change on its way to being committed."""

    def __init__(self, universe: Universe, note: str | None) -> None:
        self._universe, self._note = universe, None if note is None else remark(note)
        self._ticket = ids.new_id()
        self._mine = False

    def check(self, mark: Any) -> None:
        """Begin anew later if it is somebody else's turn; `mark` is what the transaction has read of it."""
        if _alive(mark) and mark.value.holder != self._ticket:
            raise _StandBack

    async def take(self, work: Callable[[Transaction], Awaitable[R]]) -> R:
        """Run a transaction until it is committed."""
        loop = asyncio.get_running_loop()
        last = loop.time() + WAIT_S
        attempts = PATIENCE
        try:
            while True:
                try:
                    return await self._universe.transact(work, attempts=attempts, note=self._note)
                except _StandBack:
                    if loop.time() > last:
                        raise TransactionConflict("others were faster for a minute") from None
                    await asyncio.sleep(random.uniform(0, PAUSE_S))
                except TransactionConflict:
                    if self._mine:
                        raise
                    self._mine = await self._claim()
                    attempts = ATTEMPTS if self._mine else PATIENCE
        finally:
            if self._mine:
                await self._give_back()

    async def _claim(self) -> bool:
        """Write the mark; False when somebody else has."""
        found = await self._universe.get(TURN_ID)
        if _alive(found):
            return False
        mark = LeaseRecord(TURN_ID, self._ticket, 0, clock.now() + timedelta(seconds=TURN_S))
        try:
            if isinstance(found, Crystal):
                await self._universe.store(found.replace(value=mark), expect=found.rev)
            else:
                await self._universe.remember(mark, id=TURN_ID)
        except Conflict:
            return False
        return True

    async def _give_back(self) -> None:
        with suppress(DgentError):  # if it cannot be taken away, its time ends
            found = await self._universe.get(TURN_ID)
            if isinstance(found, Crystal) and found.value.holder == self._ticket:
                await self._universe.delete(TURN_ID, expect=found.rev)


def _alive(mark: Any) -> bool:
    # A clock that was set back must not make a mark count for longer than a turn.
    left = mark.value.until - clock.now() if isinstance(mark, Crystal) else timedelta(0)
    return timedelta(0) < left <= timedelta(seconds=TURN_S)
