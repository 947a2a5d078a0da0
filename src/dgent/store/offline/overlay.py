"""What reads see while the store cannot be reached: the pending commits, laid over a stand-in.

The stand-in is only read. So there is nothing to repair in it after a crash, a copy stays a copy, and
what the store refuses in the end is nowhere else. A record from here has no seq; its rev is what it
would be if nobody else had written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dgent import clock
from dgent.errors import CursorInvalid
from dgent.model import path as paths
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import STORED, Backend, Declaration, Page, View
from dgent.store.engine.check import check_ids
from dgent.store.offline.entry import Entry, Step
from dgent.store.offline.outbox import Outbox

if TYPE_CHECKING:
    from dgent.store.offline.backend import DegradableBackend


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


CURSOR = "partial-"
_BATCH = 1000


class Pending(NamedTuple):
    """What the pending commits make of one record."""

    step: Step  # the last put or delete
    steps: int  # how many there are
    key: str  # of the commit that has the last one
    made: int  # when it was first put, or put again after a delete
    anew: bool  # whether a delete came before that


class _Eager:
    """The caller's view, without rows that are decoded later."""

    lazy = False

    def __init__(self, view: View) -> None:
        self.version, self.shape = view.version, view.shape
        self.upgrade, self.lookup = view.upgrade, view.lookup


class Overlay:
    """The records of the pending commits over those of a stand-in, if there is one."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.below: Backend | None = None
        self._records: dict[str, Pending] = {}
        self._taken = 0
        self._turn = -1

    async def records(self) -> dict[str, Pending]:
        """Every record that is pending, as it is now, also by other programs."""
        outbox = self._outbox
        await outbox.refresh()
        if self._turn != outbox.turn or self._taken > len(outbox.pending):
            self._records, self._taken, self._turn = {}, 0, outbox.turn
        if self._taken < len(outbox.pending):
            # New entries come last, so that what was taken before need not be looked at again.
            entries = outbox.entries() if self._taken == 0 else list(outbox.pending.values())
            for entry in entries[self._taken :]:
                self._lay(entry)
            self._taken = len(entries)
        return self._records

    def _lay(self, entry: Entry) -> None:
        for step in entry.steps:
            if step.op == "check":
                continue
            before = self._records.get(step.id)
            if before is None:
                self._records[step.id] = Pending(step, 1, entry.key, step.t, False)
                continue
            anew = before.step.op == "delete"
            made = step.t if anew else before.made
            self._records[step.id] = Pending(step, before.steps + 1, entry.key, made, anew or before.anew)

    # -- reading --------------------------------------------------------------------------

    async def get_many(self, ids: Sequence[str]) -> list[Datum | None]:
        """One answer for each id."""
        records = await self.records()
        below = await self._below(ids)
        return [_laid(records.get(id), datum) for id, datum in zip(ids, below, strict=True)]

    async def _below(self, ids: Sequence[str]) -> list[Datum | None]:
        if self.below is None:
            return [None] * len(ids)
        found: list[Datum | None] = []
        for start in range(0, len(ids), _BATCH):
            found += await self.below.get_many(ids[start : start + _BATCH])
        return found

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """A record and what caused it, nearest first."""
        chain: dict[str, Datum] = {}
        next_id: str | None = id
        while next_id is not None and next_id not in chain and len(chain) < limit:
            (datum,) = await self.get_many([next_id])
            if datum is None:
                break
            chain[next_id] = datum
            next_id = datum.parent_id
        return list(chain.values())

    async def query(self, query: Query, view: View) -> Page:
        """A page of what matches; its cursor counts, so that it skips or repeats what changes meanwhile."""
        offset = query.offset if query.cursor is None else _offset(query.cursor)
        rows = await self._ranked(query, view, offset)
        last = None if query.limit is None else offset + query.limit
        further = None
        if last is not None and len(rows) > last:
            further = f"{CURSOR}{last}".__str__
        shown = rows[offset:last]
        if not query.content:
            shown = [datum.replace(content=b"") for datum in shown]
        stand_in = "nothing else" if self.below is None else self.below.name
        return Page(shown, f"partial: the outbox over {stand_in}", further, partial=True)

    async def _ranked(self, query: Query, view: View, offset: int) -> list[Datum]:
        records = await self.records()
        rows: list[Datum] = []
        if self.below is not None:
            # So many that the page is full when those that are pending are taken out.
            wanted = None if query.limit is None else offset + query.limit + len(records) + 1
            wider = query.replace(offset=0, cursor=None, limit=wanted, content=True)
            page = await self.below.query(wider, _Eager(view))
            rows = [datum.replace(seq=None) for datum in page.items if datum.id not in records]
            if query.descending:
                rows.reverse()
        rows += [datum for datum in await self._changed() if query.matches(datum, view.shape(datum))]

        def place(numbered: tuple[int, Datum]) -> tuple[bytes, int, int]:
            number, datum = numbered
            return query.order_key(view.shape(datum)), clock.to_us(datum.created_at), number

        ranked = list(enumerate(rows))
        ranked.sort(key=place, reverse=query.descending)
        return [datum for _, datum in ranked]

    async def _changed(self) -> list[Datum]:
        """The pending records that there are."""
        ids = list(await self.records())
        return [datum for datum in await self.get_many(ids) if datum is not None]

    async def count(self, query: Query, view: View) -> int:
        """How many match."""
        ids = list(await self.records())
        matching = [each for each in await self._changed() if query.matches(each, view.shape(each))]
        if self.below is None:
            return len(matching)
        hidden = [each for each in await self._below(ids) if each is not None]
        covered = sum(query.matches(each, view.shape(each)) for each in hidden)
        return await self.below.count(query, _Eager(view)) - covered + len(matching)

    async def referrers(
        self, id: str, limit: int | None, view: View, declared: Mapping[str, Declaration]
    ) -> list[Datum]:
        """The records whose declared refs hold an id, newest first."""
        records = await self.records()
        rows: list[Datum] = []
        if self.below is not None:
            wanted = None if limit is None else limit + len(records)
            found = await self.below.referrers(id, wanted, _Eager(view))
            rows = [datum.replace(seq=None) for datum in found if datum.id not in records]
        for datum in await self._changed():
            known = declared.get(datum.schema or "")
            if known is not None and id in _referred(known, view.shape(datum)):
                rows.append(datum)
        return sorted(rows, key=lambda datum: datum.created_at, reverse=True)[:limit]

    async def schemas(self) -> set[str]:
        """The schemas of the pending records."""
        return {datum.schema or "" for datum in await self._changed()}


def _laid(pending: Pending | None, below: Datum | None) -> Datum | None:
    """A record as the pending commits leave it."""
    if pending is None:
        return None if below is None else below.replace(seq=None)
    if pending.step.op == "delete":
        return None
    # A record keeps the time of its first version.
    older = below is not None and not pending.anew
    made = below.created_at if older and below is not None else clock.from_us(pending.made)
    base = 0 if below is None or below.rev is None else below.rev
    return pending.step.datum().replace(rev=base + pending.steps, created_at=made)


def _offset(cursor: str) -> int:
    number = cursor.removeprefix(CURSOR)
    if number == cursor or not (number.isascii() and number.isdigit()):
        raise CursorInvalid("the cursor was made while the store was there, and it cannot be reached now")
    return int(number)


def _referred(known: Declaration, data: Mapping[str, Any]) -> set[str]:
    found = (item for ref in known.refs for item in paths.every(data, paths.parse(ref)))
    return {item for item in found if isinstance(item, str)}
