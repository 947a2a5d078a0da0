"""The vector port: vectors by id with metadata, found by nearness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec


class SearchResult(msgspec.Struct, frozen=True):
    """A vector that a search found; `score` is its cosine with the query."""

    id: str
    score: float
    metadata: Mapping[str, Any]

    @property
    def distance(self) -> float:
        """The distance from the query: 0 for the same direction, 2 for the opposite one."""
        return 1.0 - self.score


@runtime_checkable
class IVectorStore(Protocol):
    """Vectors of one dimension, compared by cosine."""

    async def add(self, id: str, vector: Sequence[float], metadata: dict[str, Any] | None = None) -> None:
        """Store a vector; one that is there under this id is replaced."""
        ...

    async def search(
        self, query: Sequence[float], k: int = 10, filter: Mapping[str, Any] | None = None
    ) -> list[SearchResult]:
        """Return the nearest vectors whose metadata has all the values of `filter`, nearest first."""
        ...

    async def delete(self, id: str) -> bool:
        """Delete a vector; False when there was none."""
        ...

    async def count(self) -> int:
        """Return how many vectors there are."""
        ...

    async def close(self) -> None:
        """Close the store."""
        ...
