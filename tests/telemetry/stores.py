"""The places that telemetry can be kept in, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dgent.store.port.telemetry import ITelemetryStore, Retention
from dgent.store.registry import telemetry_for


def _postgres(folder: Path) -> str:
    from tests.postgres.lease import url_for  # starts a server, and not every test needs one

    return url_for(folder)


PLACES: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory:",
    "sqlite": lambda folder: f"sqlite:///{folder / 'telemetry.db'}",
    "postgres": _postgres,
}


def make(place: str, folder: Path, retention: Retention | None = None) -> ITelemetryStore:
    """A store at a place, which opens when it is used."""
    return telemetry_for(PLACES[place](folder), retention)
