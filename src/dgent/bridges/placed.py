"""The place of a service of a framework, and its end."""

from __future__ import annotations

from typing import Any, Self, TypeAlias

from dgent.model.schema import Schema
from dgent.sync.handle import Anywhere, anywhere
from dgent.sync.universe import Universe as BlockingUniverse
from dgent.universe.universe import Universe

Place: TypeAlias = str | Universe | BlockingUniverse | Anywhere
"""A URL, an open universe, or the handle `dgent.sync.anywhere` gives, which several may share."""


class Placed:
    """Something that keeps its records at a place."""

    place: Anywhere

    def _settle(self, place: Place, *schemas: Schema[Any]) -> None:
        self.place = anywhere(place)
        self.place.register(*schemas)

    def close(self) -> None:
        """Close the handle; the store is closed with the last one that was opened by a URL."""
        self.place.close()

    async def aclose(self) -> None:
        """Close the handle like `close`."""
        await self.place.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()
