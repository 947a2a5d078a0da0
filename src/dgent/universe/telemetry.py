"""The telemetry of a universe: opened when it is first used, closed with the universe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dgent.errors import Closed, Denied, StorageError, Unsupported
from dgent.store.backend import Backend
from dgent.store.port.telemetry import ITelemetryStore, Retention
from dgent.store.read_only import check_writable
from dgent.store.registry import OpenState, telemetry_beside, telemetry_for
from dgent.universe.gate import Gate

if TYPE_CHECKING:
    from dgent.universe.universe import Universe


def telemetry_of(universe: Universe) -> ITelemetryStore:
    """Return the telemetry of a universe: beside the store, or where its settings say.

    Denied below partner trust: events may hold what an agent was told in confidence.
    """
    if isinstance(universe.backend, Gate):
        raise Denied(
            f"{universe.author!r} may not use the telemetry of this store", hint="only a partner may"
        )
    return _open(universe._life, universe.backend)


def telemetry_for_caller(universe: Universe) -> tuple[ITelemetryStore, str | None]:
    """Return the telemetry of a universe, and the agent whose events alone its handle may read.

    None is every agent: a handle of a partner.
    """
    gate = universe.backend
    if isinstance(gate, Gate):
        return _open(universe._life, gate.inner), gate.principal.name
    return telemetry_of(universe), None


def _open(life: OpenState, backend: Backend) -> ITelemetryStore:
    if life.telemetry is None:
        if life.closed:
            raise Closed("this universe is closed", hint="open it again: `async with dgent.open(...) as u`")
        check_writable(backend)  # opening it makes its file, or its tables
        chosen = life.storage.get("telemetry", {})
        url, retention = chosen.get("url"), retention_of(chosen)
        life.telemetry = (
            telemetry_beside(backend, retention) if url is None else telemetry_for(url, retention)
        )
    return life.telemetry


def retention_of(chosen: Mapping[str, Any]) -> Retention:
    """Return the rule that settings have; 0 means no limit."""
    given = {
        name: chosen[name] or None for name in ("keep_days", "max_bytes") if chosen.get(name) is not None
    }
    return Retention(**given)


async def forget_events(universe: Universe, ids: Sequence[str]) -> int:
    """Erase the events of forgotten records, if the store has telemetry; return how many."""
    try:
        found = telemetry_of(universe)
    except (Denied, Unsupported):
        return 0  # a server erases its own, and a limited caller was refused before
    try:
        return await found.forget(ids) if ids and await found.exists() else 0
    except StorageError as error:
        raise type(error)(
            f"the records are erased, but not their events: {error.message}",
            hint="forget the same ids again to erase the events; `dgent doctor` says what is wrong with them",
            **error.details,
        ) from error
