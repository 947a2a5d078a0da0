"""The place of a state: a protocol for any of them, and what is written together with a state."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from dgent.model.datum import Datum

S = TypeVar("S")


class Kept(NamedTuple, Generic[S]):
    """A state as it was loaded; `held` is what its keeper needs to save the next one."""

    state: S
    held: Any = None


class Mark(NamedTuple):
    """A record to write together with a state: the output of a step, or how far a stream was read."""

    id: str
    data: dict[str, Any]
    rev: int = 0


class Keeper(Protocol[S]):
    """A place for one state, which is written only if nobody else wrote it meanwhile."""

    name: str

    async def load(self) -> Kept[S] | None:
        """Return the state; None before the first step."""
        ...

    async def save(self, state: S, kept: Kept[S] | None, mark: Mark | None = None) -> None:
        """Write a state; raises Conflict if it is no longer the one that was loaded."""
        ...

    async def find_mark(self, id: str) -> Datum | None:
        """Return a record that was written together with a state."""
        ...
