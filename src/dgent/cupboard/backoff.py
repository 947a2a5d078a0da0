"""Backoff for changes that conflict: one that keeps losing reserves the store, and the others wait.

A change runs without a lock and is repeated after a conflict. A large change that meets many small ones, such
as the end of a trail that several programs add to, could lose forever. So after some attempts it writes a
reservation that every change reads, and the others wait until it is gone. The reservation keeps no history
and expires, so a process that dies with it blocks nobody for long.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from dgent import clock, ids
from dgent.errors import Conflict, DgentError, TransactionConflict
from dgent.model.crystal import Crystal
from dgent.universe.lease import LeaseRecord
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

R = TypeVar("R")

RESERVATION_ID = "cupboard/turn"
PATIENCE = 6  # attempts before reserving
ATTEMPTS = 32  # attempts while reserved
RESERVATION_S = 10.0
WAIT_S = 60.0
PAUSE_S = 0.02


def clean_note(text: str) -> str:
    """Return a note of at most 200 characters without NUL and lone surrogates, which a commit cannot hold."""
    return text.replace("\0", "").encode(errors="replace").decode()[:200]


class _MustWait(Exception):
    """Another change has reserved the store."""


class Backoff:
    """Run one change until it is committed, and reserve the store if it keeps losing to others."""

    def __init__(self, universe: Universe, note: str | None) -> None:
        self._universe, self._note = universe, None if note is None else clean_note(note)
        self._ticket = ids.new_id()
        self._mine = False

    def check_reservation(self, reservation: Any) -> None:
        """Make this attempt end and be repeated later when another change holds the reservation."""
        if _is_active(reservation) and reservation.value.holder != self._ticket:
            raise _MustWait

    async def run(self, work: Callable[[Transaction], Awaitable[R]]) -> R:
        """Run a transaction until it is committed; TransactionConflict after a minute of waiting."""
        loop = asyncio.get_running_loop()
        last = loop.time() + WAIT_S
        attempts = PATIENCE
        try:
            while True:
                try:
                    return await self._universe.transact(work, attempts=attempts, note=self._note)
                except _MustWait:
                    if loop.time() > last:
                        raise TransactionConflict("others were faster for a minute") from None
                    await asyncio.sleep(random.uniform(0, PAUSE_S))
                except TransactionConflict:
                    if self._mine:
                        raise
                    self._mine = await self._reserve()
                    attempts = ATTEMPTS if self._mine else PATIENCE
        finally:
            if self._mine:
                await self._release()

    async def _reserve(self) -> bool:
        """Write the reservation; False when another change holds it."""
        found = await self._universe.get(RESERVATION_ID)
        if _is_active(found):
            return False
        reservation = LeaseRecord(
            RESERVATION_ID, self._ticket, 0, clock.now() + timedelta(seconds=RESERVATION_S)
        )
        try:
            if isinstance(found, Crystal):
                await self._universe.store(found.replace(value=reservation), expect=found.rev)
            else:
                await self._universe.remember(reservation, id=RESERVATION_ID)
        except Conflict:
            return False
        return True

    async def _release(self) -> None:
        with suppress(DgentError):  # if it cannot be deleted, it expires
            found = await self._universe.get(RESERVATION_ID)
            if isinstance(found, Crystal) and found.value.holder == self._ticket:
                await self._universe.delete(RESERVATION_ID, expect=found.rev)


def _is_active(reservation: Any) -> bool:
    # A clock that was set back must not extend a reservation.
    left = reservation.value.until - clock.now() if isinstance(reservation, Crystal) else timedelta(0)
    return timedelta(0) < left <= timedelta(seconds=RESERVATION_S)
