"""A store that nothing is written to: `dgent.open(url, read_only=True)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from dgent.errors import Denied, NoBackendAvailable
from dgent.store.backend import Backend, Declaration, Declared, View
from dgent.store.search import WaitingVector

WRITES = (
    *("commit", "forget", "compact", "drop_index", "store_vectors", "upgrade", "rewrite", "settle_damaged"),
    *("relational", "own_tables", "check_statement", "upkeep"),
)
LEFT_OUT = ("put_fresh", "known_seq", "settle_commits")
"""Parts of an engine that belong to its writer, which the callers can do without."""


class ReadOnlyBackend:
    """A backend that answers reads and refuses writes, before anything is touched."""

    read_only = True

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.name, self.priority = inner.name, inner.priority

    def __getattr__(self, name: str) -> Any:
        if name in LEFT_OUT:
            raise AttributeError(name)
        if name in WRITES and hasattr(self.inner, name):
            return refuse_write
        return getattr(self.inner, name)

    async def declare(self, declaration: Declaration) -> Declared:
        """Declare nothing: what the store does not index is looked through."""
        return Declared(filling=False)

    async def fill(self, schema: str, view: View) -> bool:
        """Index nothing; False, as nothing is left to do here."""
        return False

    async def waiting_vectors(self, schema: str, limit: int, after: bytes = b"") -> Sequence[WaitingVector]:
        """Return nothing: no vector can be stored."""
        return []


def refuse_write(*_given: Any, **_named: Any) -> NoReturn:
    """Raise the error for a write to a store that was opened for reading."""
    raise Denied("this store was opened read-only", hint="open it without read_only=True")


def check_writable(backend: Any) -> None:
    """Raise Denied if a store was opened for reading."""
    if getattr(backend, "read_only", False):
        refuse_write()


def make_missing_error(place: str) -> NoBackendAvailable:
    """Return the error for a store that is not there, and may not be made."""
    return NoBackendAvailable(
        f"there is no store at {place}", hint="correct the place, or open it without read_only=True"
    )
