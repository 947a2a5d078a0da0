"""Reads of what is at hand while the store is unavailable: the outbox, over a local copy if there is one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import STORED, Backend, Page, View
from dgent.store.check import check_ids

if TYPE_CHECKING:
    from dgent.store.degraded.backend import DegradableBackend

R = TypeVar("R")


class AtHand:
    """A store's reads, answered from what is at hand while it is unavailable; all else is the store's own.

    For callers who accept that such an answer may lack records, or have old versions of them. Records
    in it have no seq. The past is never at hand.
    """

    def __init__(self, backend: DegradableBackend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """The live version of a record."""

        async def at_hand() -> Datum | None:
            return (await self._backend.overlay.get_many([id]))[0]

        return await self._either(as_of, lambda store: store.get(id, as_of, lazy), at_hand)

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """One answer for each id."""
        return await self._either(
            as_of,
            lambda store: store.get_many(ids, as_of),
            lambda: self._backend.overlay.get_many(check_ids(ids)),
        )

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """A page of matching records; it says whether it is partial."""
        return await self._either(
            as_of,
            lambda store: store.query(query, view, as_of),
            lambda: self._backend.overlay.query(query, view),
        )

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        """How many records match."""
        return await self._either(
            as_of,
            lambda store: store.count(query, view, as_of),
            lambda: self._backend.overlay.count(query, view),
        )

    async def referrers(self, id: str, limit: int | None, view: View = STORED) -> list[Datum]:
        """Records whose declared refs hold this id."""
        backend = self._backend
        return await self._either(
            None,
            lambda store: store.referrers(id, limit, view),
            lambda: backend.overlay.referrers(id, limit, view, backend.declared),
        )

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """A record and what caused it."""
        overlay = self._backend.overlay
        return await self._either(
            None, lambda store: store.ancestors(id, limit), lambda: overlay.ancestors(id, limit)
        )

    async def _either(
        self, as_of: int | None, ask: Callable[[Backend], Awaitable[R]], at_hand: Callable[[], Awaitable[R]]
    ) -> R:
        if as_of is not None:
            return await self._backend.ask_store("the past", ask)
        return await self._backend.ask_at_hand(ask, at_hand)
