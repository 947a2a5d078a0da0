"""Positions in a store's log that stay valid or are recognised as gone after a restore.

A number alone is not enough: after a store was restored from an older backup, commit 70 is another one. So a
position also names the epoch of the store, which a restore changes, and the time of the commit.
"""

from __future__ import annotations

from collections.abc import Callable

from dgent import clock
from dgent.errors import HistoryGone
from dgent.store.backend import Backend


def known_seq(backend: Backend) -> int | None:
    """Return the newest seq if an engine knows it without a read; None if it does not."""
    ask: Callable[[], int | None] | None = getattr(backend, "known_seq", None)
    return None if ask is None else ask()


async def position_of(backend: Backend) -> str:
    """Return the present position of a store, as text; "" when its engine has no epoch."""
    epoch: bytes = getattr(backend, "epoch", b"")
    if not epoch:
        return ""
    seq = await backend.last_seq()
    return f"{epoch.hex()}:{seq}:{await time_of(backend, seq)}"


async def is_in_past(backend: Backend, position: str) -> bool:
    """Return whether a position is in the past of a store; False after a restore, or if it is unknown."""
    epoch, _, rest = position.partition(":")
    number, _, time = rest.partition(":")
    if not epoch or getattr(backend, "epoch", b"").hex() != epoch or not number.isdigit():
        return False
    seq = int(number)
    if seq > await backend.last_seq():
        return False
    now = await time_of(backend, seq)
    return not (time and now) or time == now


async def time_of(backend: Backend, seq: int) -> str:
    """Return the time of a commit; "" when the log does not show it."""
    try:
        found = await backend.changes(seq - 1, 1) if seq > 0 else []
    except HistoryGone:
        return ""
    return clock.text(found[0].at) if found and found[0].seq == seq else ""
