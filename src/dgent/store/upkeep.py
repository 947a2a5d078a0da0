"""The maintenance contract of a store: findings of an inspection, and copies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from dgent import clock
from dgent.errors import HistoryGone, Unsupported
from dgent.store.backend import KINDS, Backend
from dgent.store.engine.backend import KernelBackend
from dgent.store.engine.kernel import Reading
from dgent.system.progress import Progress

Level: TypeAlias = Literal["ok", "note", "warning", "problem"]

AHEAD = timedelta(hours=1)
"""The time by which a commit may be dated ahead of the clock before an inspection reports it."""


class Finding(msgspec.Struct, frozen=True):
    """One result of an inspection; `fixable` if `fix=True` would repair it, `fixed` if it did."""

    level: Level
    subject: str
    message: str
    hint: str = ""
    fixable: bool = False
    fixed: bool = False


class Duplicate(msgspec.Struct, frozen=True):
    """A copy of a store as of one moment."""

    path: str
    seq: int
    records: int
    size_bytes: int


class Contents(msgspec.Struct, frozen=True):
    """The description that a store's file holds of itself."""

    universe_id: str
    format: int
    seq: int
    records: int


@runtime_checkable
class Upkeep(Protocol):
    """Maintenance of a store that others may go on using."""

    async def inspect(
        self, *, deep: bool = False, fix: bool = False, progress: Progress | None = None
    ) -> list[Finding]:
        """Look for problems; `deep` checks every record, `fix` repairs what is safe to repair."""
        ...

    async def copy_to(self, path: str, progress: Progress | None = None) -> Duplicate:
        """Write a copy of one moment to a new file, checked before this returns."""
        ...

    async def universe_id(self) -> str:
        """Return the id that the store got when it was made; copies have the same."""
        ...


def upkeep_of(backend: Backend) -> Upkeep:
    """Return the upkeep of a backend's store; Unsupported where the engine has none."""
    make = getattr(backend, "upkeep", None)
    if make is None:
        raise Unsupported(
            f"the {backend.name} engine can neither be inspected nor copied", hint="the sqlite engine can"
        )
    made: Upkeep = make()
    return made


async def forgotten_among(backend: Backend, ids: Sequence[str]) -> frozenset[str]:
    """Return the ids among some that were ever forgotten, as far as the engine knows."""
    backend = getattr(backend, "reached", backend)  # of a store that may be unavailable, the store itself
    if not isinstance(backend, KernelBackend):
        return frozenset()

    def work(reading: Reading) -> frozenset[str]:
        reading.refresh()
        return frozenset(id for id in ids if reading.forgotten_rev(id))

    return await backend._read(work)


async def check_commit_times(backend: Backend) -> list[Finding]:
    """Warn of a newest commit that is dated ahead of this machine's clock: later ones wait for it."""
    seq = await backend.last_seq()
    try:
        last = await backend.changes(seq - 1, 1) if seq else []
    except HistoryGone:
        return []
    now = clock.now()
    return [
        Finding(
            "warning",
            "times",
            f"commit {change.seq} is dated {clock.text(change.at)}, and the clock says {clock.text(now)}",
            "until the clock is there, later commits get the same time: name a moment by its commit number",
        )
        for change in last
        if change.at > now + AHEAD
    ]


async def deleted_among(backend: Backend, ids: Sequence[str], note: str) -> dict[str, datetime]:
    """Return the ids among some that were deleted, and when.

    Not those that were deleted by an undo, or by a commit whose note begins with `note`.
    """
    backend = getattr(backend, "reached", backend)
    if not isinstance(backend, KernelBackend):
        return {}
    undo = KINDS.index("undo")

    def work(reading: Reading) -> dict[str, datetime]:
        reading.refresh()
        found: dict[str, datetime] = {}
        for id in ids:
            row = reading.head(id)
            if row is not None and not row.live:
                logged = reading.read_commit(row.seq)
                if logged is None or (logged.kind != undo and not (logged.note or "").startswith(note)):
                    found[id] = clock.from_us(row.at)
        return found

    return await backend._read(work)
