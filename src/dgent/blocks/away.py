"""What is not there, and what cannot be known while the store is away."""

from __future__ import annotations

from dgent.errors import DgentError, Unavailable
from dgent.universe.universe import Universe


def missing(universe: Universe, error: DgentError) -> DgentError:
    """The error that something is not there; while the store is away, that nobody can tell."""
    away = universe.degraded
    if away is None:
        return error
    message = f"what is asked for is not at hand, and the store is away: {away.reason}"
    return Unavailable(message, hint="try again when it is back", degraded=True)
