"""Errors of the driver, as PEP 249 names them; each has the error of dgent as its cause."""

from __future__ import annotations

from dgent.errors import (
    Conflict,
    Corrupt,
    Denied,
    DgentError,
    InputError,
    QueryError,
    StorageError,
    Unsupported,
)
from dgent.store.port.relational import is_broken_rule


class Error(Exception):
    """The root of the driver's errors; `__cause__` is dgent's own error."""


class InterfaceError(Error):
    """The driver was used in a wrong way."""


class DatabaseError(Error):
    """The database failed, or refused a statement."""


class DataError(DatabaseError):
    """A value cannot be stored."""


class OperationalError(DatabaseError):
    """A statement cannot be run now, or names what is not there."""


class IntegrityError(DatabaseError):
    """A row would break a rule of its table."""


class InternalError(DatabaseError):
    """A stored row or datum is damaged."""


class ProgrammingError(DatabaseError):
    """A statement is not allowed, or not used as it should be."""


class NotSupportedError(DatabaseError):
    """The database cannot do it."""


def translate(error: DgentError) -> Error:
    """Return the driver's error for one of dgent's."""
    kinds: tuple[tuple[type[DgentError] | tuple[type[DgentError], ...], type[Error]], ...] = (
        (QueryError, OperationalError),
        (InputError, DataError),
        (Denied, ProgrammingError),
        (Unsupported, NotSupportedError),
        (Corrupt, InternalError),
        (StorageError, OperationalError),
    )
    if isinstance(error, Conflict):
        return (IntegrityError if is_broken_rule(error) else OperationalError)(str(error))
    found = next((made for kind, made in kinds if isinstance(error, kind)), DatabaseError)
    return found(str(error))
