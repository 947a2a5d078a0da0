"""Classify and translate the errors of the driver and the server."""

from __future__ import annotations

import asyncpg

from dgent.errors import (
    Busy,
    Conflict,
    Denied,
    DgentError,
    NoBackendAvailable,
    StorageError,
    StorageFull,
    Unavailable,
)
from dgent.store.postgres.format import DONE, STALE

# The connection is gone or was silent too long, or the server is going, coming back, or not promoted yet.
_GONE_STATES = frozenset(
    ("57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "53300", "25006", "40001", "40P01", "08P01")
)
# Everything that the driver raises when the server or the way to it fails.
FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError)
NO_ROOM = (asyncpg.TooManyConnectionsError,)

_NEVER_STATES = frozenset(("28000", "28P01", "3D000"))


def _state(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def is_gone(error: BaseException) -> bool:
    """Return whether the same work may succeed on another connection, now or soon."""
    if isinstance(error, asyncpg.PostgresError):
        return _state(error) in _GONE_STATES or isinstance(error, asyncpg.PostgresConnectionError)
    if isinstance(error, asyncpg.InterfaceError):
        return not isinstance(error, asyncpg.DataError | ValueError | TypeError)
    # An internal error of the driver: a connection in an odd state, or no host that takes writes yet.
    return isinstance(error, OSError | EOFError | asyncpg.InternalClientError)


def is_hopeless(error: BaseException) -> bool:
    """Return whether no later attempt with the same URL can succeed: a wrong password, no such database."""
    return _state(error) in _NEVER_STATES


def is_stale(error: BaseException) -> bool:
    """Return whether the store has left the state that a proposal was made for."""
    return _state(error) == STALE


def is_done(error: BaseException) -> bool:
    """Return whether the same group had been committed before."""
    return _state(error) == DONE


def is_waiting(error: BaseException) -> bool:
    """Return whether somebody else held the clock too long for one attempt."""
    return _state(error) == "55P03"


def collision(error: BaseException) -> str | None:
    """Return the name of the unique index that refused a row."""
    return error.constraint_name if isinstance(error, asyncpg.UniqueViolationError) else None


def translate(error: BaseException, place: str) -> DgentError:
    """Return the error to raise for one of the driver's."""
    if isinstance(error, DgentError):
        return error
    state, text = _state(error), " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, TimeoutError):
        return Unavailable(f"{place} did not answer in time", hint="is the server under load, or gone?")
    if is_hopeless(error):
        return NoBackendAvailable(f"{place} refuses: {text}", hint="check the URL, the user and the password")
    if state in ("55P03", "57014"):
        return Busy(f"another process held {place} too long")
    if state.startswith("53"):
        return StorageFull(f"{place}: {text}") if state == "53100" else Unavailable(f"{place}: {text}")
    if state == "23503":  # only tables of callers refer to each other
        return Conflict(text, hint="the row that it refers to is not there, or is still referred to")
    if state == "42501":
        return Denied(f"{place}: {text}", hint="grant the role what it needs; see the guide on Postgres")
    if is_gone(error):
        return Unavailable(f"{place} cannot be reached: {text}", hint="is the server running?")
    return StorageError(f"{place}: {text}")
