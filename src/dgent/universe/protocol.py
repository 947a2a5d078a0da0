"""The smallest store of datums that agents share: seven calls, for type hints and other stores."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from dgent.model.datum import Datum


@runtime_checkable
class DgentProtocol(Protocol):
    """A store of datums; a `Universe` is one."""

    async def put(self, datum: Datum) -> Datum:
        """Store a datum; putting the same one again changes nothing."""
        ...

    async def get(self, id: str) -> object:
        """Return a record; None when there is none."""
        ...

    async def delete(self, id: str) -> bool:
        """Delete a record; False when there was none."""
        ...

    async def list(
        self, prefix: str | None = None, *, after: datetime | None = None, limit: int | None = 100
    ) -> Sequence[Datum]:
        """Return records, newest first, whose id has a prefix and that were created after a time."""
        ...

    async def causal_chain(self, id: str) -> Sequence[object]:
        """Return a record and what caused it, the oldest cause first."""
        ...

    async def exists(self, id: str) -> bool:
        """Return whether a live record has this id."""
        ...

    async def count(self) -> int:
        """Return how many records there are."""
        ...
