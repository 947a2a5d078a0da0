"""Report on a degraded store: its state, warnings, and the error for refused calls."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from dgent import clock
from dgent.errors import Degraded, DgentError, Unavailable
from dgent.model.query import Query
from dgent.store.backend import BackendStats, SchemaStats, View
from dgent.store.offline.outbox import Clash

if TYPE_CHECKING:
    from dgent.store.offline.backend import DegradableBackend, Outage


class Degradation(msgspec.Struct, frozen=True):
    """The state of an unavailable store: since when and why, pending commits, and the fallback for reads."""

    since: datetime
    reason: str
    pending: int
    conflicts: int
    stand_in: str | None
    outbox: str


def warn_of_degrading(place: str, outbox: str, error: DgentError) -> None:
    """Warn that a store cannot be reached."""
    _warn(
        f"degraded: {place} cannot be reached ({error.message}); writes are kept in {outbox} until it is"
        " back, and reads are partial"
    )


def warn_of_clashes(clashes: Sequence[Clash]) -> None:
    """Warn that pending commits were refused."""
    first = clashes[0]
    _warn(
        f"{len(clashes)} of the pending commits conflict with the store and are set aside; the first is about"
        f" {', '.join(map(repr, first.entry.ids[:3]))}: {first.reason}. `dgent outbox list` shows them"
    )


def _warn(text: str) -> None:
    # Without a registry, Python does not suppress the second warning as a repetition.
    warnings.warn_explicit(text, Degraded, "dgent", 0, module="dgent")


A_READ = "a whole answer"


def refusal(what: str, place: str, down: Outage | None) -> Unavailable:
    """Return the error for a call that needs the store."""
    since = "" if down is None else f" since {clock.text(down.since)}"
    hint = "try again when it is back; `stats` shows its state"
    return Unavailable(
        f"{what} needs {place}, which cannot be reached{since}",
        hint=f"pass partial=True for a partial answer, or {hint}" if what == A_READ else hint,
        degraded=True,
    )


async def partial_stats(backend: DegradableBackend, place: str, view: View) -> BackendStats:
    """Return statistics of pending commits and the fallback while the store is unavailable."""
    overlay, state = backend.overlay, backend.degradation
    known: dict[str, SchemaStats] = {}
    size, below = 0, overlay.fallback
    if below is not None:
        stats = await below.stats()
        size, known = stats.size_bytes, {each.name: each for each in stats.schemas}
    for name in await overlay.schemas():
        known.setdefault(name, SchemaStats(name, 0, 1, (), (), 0, ()))
    schemas = []
    for name, each in sorted(known.items()):
        # A query cannot ask for records without a schema.
        wanted = Query(schema=name, limit=None) if name else Query(limit=None)
        records = await overlay.count(wanted, view)
        schemas.append(msgspec.structs.replace(each, records=records))
    if any(not each.name for each in schemas):
        named = sum(each.records for each in schemas if each.name)
        schemas = [
            each if each.name else msgspec.structs.replace(each, records=each.records - named)
            for each in schemas
        ]
    details: dict[str, Any] = {"degraded": True}
    if state is not None:
        details |= msgspec.to_builtins(state)
    return BackendStats(
        backend.name,
        place,
        sum(each.records for each in schemas),
        backend.back_seq,
        1,
        size,
        tuple(schemas),
        details,
    )
