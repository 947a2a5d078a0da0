"""Read pending commits over a fallback store while the store cannot be reached.

The fallback is only read, so it needs no repair after a crash, and commits that the store refuses later are
not in it. A record from here has no seq; its rev is the one that results if nobody else writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from dgent import clock
from dgent.errors import CursorInvalid
from dgent.model import path as paths
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import STORED, Backend, Declaration, Page, View
from dgent.store.engine.check import check_ids
from dgent.store.memory.backend import MemoryBackend
from dgent.store.offline.entry import OutboxEntry, PendingOp
from dgent.store.offline.outbox import Outbox
from dgent.store.search import SearchPage, SearchRequest
from dgent.store.tally import Counts, Tally, count_records

if TYPE_CHECKING:
    from dgent.store.offline.backend import DegradableBackend


R = TypeVar("R")


class AtHand:
    """A store whose reads are answered partially while it is unavailable; other calls go to the store.

    For callers who accept that such an answer may lack records, or have old versions of them. Records
    in it have no seq. Reads `as_of` an earlier seq always need the store.
    """

    def __init__(self, backend: DegradableBackend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """Return the live version of a record."""

        async def at_hand() -> Datum | None:
            return (await self._backend.overlay.get_many([id]))[0]

        return await self._either(as_of, lambda store: store.get(id, as_of, lazy), at_hand)

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """Return one record or None for each id."""
        return await self._either(
            as_of,
            lambda store: store.get_many(ids, as_of),
            lambda: self._backend.overlay.get_many(check_ids(ids)),
        )

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """Return a page of matching records; `partial` is set if it is not from the store."""
        return await self._either(
            as_of,
            lambda store: store.query(query, view, as_of),
            lambda: self._backend.overlay.query(query, view),
        )

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        """Return the number of matching records."""
        return await self._either(
            as_of,
            lambda store: store.count(query, view, as_of),
            lambda: self._backend.overlay.count(query, view),
        )

    async def tally(self, tally: Tally, view: View, as_of: int | None = None) -> Counts:
        """Return values or tags with their counts."""

        async def count_here() -> Counts:
            page = await self._backend.overlay.query(tally.everything(), view)
            return count_records(tally, view, page.items)

        return await self._either(as_of, lambda store: store.tally(tally, view, as_of), count_here)

    async def search(self, request: SearchRequest) -> SearchPage:
        """Return the matching records that have some of the words; `partial` as for a query."""
        backend = self._backend
        return await self._either(
            request.as_of,
            lambda store: store.search(request),
            lambda: backend.overlay.search(request, backend.declared),
        )

    async def referrers(self, id: str, limit: int | None, view: View = STORED) -> list[Datum]:
        """Return records whose declared refs hold this id."""
        backend = self._backend
        return await self._either(
            None,
            lambda store: store.referrers(id, limit, view),
            lambda: backend.overlay.referrers(id, limit, view, backend.declared),
        )

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """Return a record and its chain of parents."""
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


class PendingRecord(NamedTuple):
    """The effect of the pending commits on one record."""

    step: PendingOp  # the last put or delete
    steps: int  # the number of puts and deletes
    key: str  # of the commit that has the last one
    made: int  # when it was first put, or put again after a delete
    recreated: bool  # whether a delete came before that


class _Eager:
    """The caller's view, with rows decoded at once."""

    lazy = False

    def __init__(self, view: View) -> None:
        self.version, self.shape = view.version, view.shape
        self.upgrade, self.lookup = view.upgrade, view.lookup


class Overlay:
    """The records of the pending commits over those of a fallback store, if there is one."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.fallback: Backend | None = None
        self._records: dict[str, PendingRecord] = {}
        self._taken = 0
        self._generation = -1

    async def records(self) -> dict[str, PendingRecord]:
        """Return every record of a pending commit by id, also of other programs' commits."""
        outbox = self._outbox
        await outbox.refresh()
        if self._generation != outbox.generation or self._taken > len(outbox.pending):
            self._records, self._taken, self._generation = {}, 0, outbox.generation
        if self._taken < len(outbox.pending):
            # New entries come last, so earlier ones need not be read again.
            entries = outbox.entries() if self._taken == 0 else list(outbox.pending.values())
            for entry in entries[self._taken :]:
                self._add_entry(entry)
            self._taken = len(entries)
        return self._records

    def _add_entry(self, entry: OutboxEntry) -> None:
        for step in entry.steps:
            if step.op == "check":
                continue
            before = self._records.get(step.id)
            if before is None:
                self._records[step.id] = PendingRecord(step, 1, entry.key, step.created_at, False)
                continue
            recreated = before.step.op == "delete"
            made = step.created_at if recreated else before.made
            self._records[step.id] = PendingRecord(
                step, before.steps + 1, entry.key, made, recreated or before.recreated
            )

    # -- reading --------------------------------------------------------------------------

    async def get_many(self, ids: Sequence[str]) -> list[Datum | None]:
        """Return one record or None for each id."""
        records = await self.records()
        below = await self._get_from_fallback(ids)
        return [_overlay_record(records.get(id), datum) for id, datum in zip(ids, below, strict=True)]

    async def _get_from_fallback(self, ids: Sequence[str]) -> list[Datum | None]:
        if self.fallback is None:
            return [None] * len(ids)
        found: list[Datum | None] = []
        for start in range(0, len(ids), _BATCH):
            found += await self.fallback.get_many(ids[start : start + _BATCH])
        return found

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """Return a record and its chain of parents, nearest first."""
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
        """Return a page of matching records; its cursor is an offset, so changes shift the next page."""
        offset = query.offset if query.cursor is None else _offset(query.cursor)
        rows = await self._rank_records(query, view, offset)
        last = None if query.limit is None else offset + query.limit
        further = None
        if last is not None and len(rows) > last:
            further = f"{CURSOR}{last}".__str__
        shown = rows[offset:last]
        if not query.content:
            shown = [datum.replace(content=b"") for datum in shown]
        fallback = "nothing else" if self.fallback is None else self.fallback.name
        return Page(shown, f"partial: the outbox over {fallback}", further, partial=True)

    async def _rank_records(self, query: Query, view: View, offset: int) -> list[Datum]:
        records = await self.records()
        rows: list[Datum] = []
        if self.fallback is not None:
            # Enough to fill the page after pending records are removed.
            wanted = None if query.limit is None else offset + query.limit + len(records) + 1
            wider = query.replace(offset=0, cursor=None, limit=wanted, content=True)
            page = await self.fallback.query(wider, _Eager(view))
            rows = [datum.replace(seq=None) for datum in page.items if datum.id not in records]
            if query.descending:
                rows.reverse()
        rows += [datum for datum in await self._pending_records() if query.matches(datum, view.shape)]

        def place(numbered: tuple[int, Datum]) -> tuple[bytes, int, int]:
            number, datum = numbered
            return *query.sort_key(datum, view.shape(datum)), number

        ranked = list(enumerate(rows))
        ranked.sort(key=place, reverse=query.descending)
        return [datum for _, datum in ranked]

    async def _pending_records(self) -> list[Datum]:
        """Return the pending records that are not deleted."""
        ids = list(await self.records())
        return [datum for datum in await self.get_many(ids) if datum is not None]

    async def count(self, query: Query, view: View) -> int:
        """Return the number of matching records."""
        ids = list(await self.records())
        matching = [each for each in await self._pending_records() if query.matches(each, view.shape)]
        if self.fallback is None:
            return len(matching)
        hidden = [each for each in await self._get_from_fallback(ids) if each is not None]
        covered = sum(query.matches(each, view.shape) for each in hidden)
        return await self.fallback.count(query, _Eager(view)) - covered + len(matching)

    async def search(self, request: SearchRequest, declared: Mapping[str, Declaration]) -> SearchPage:
        """Return the matching records that have some of the words, best first."""
        ids = list(await self.records())
        pending = dict(zip(ids, await self.get_many(ids), strict=True)) | dict(request.own)
        merged = msgspec.structs.replace(request, view=_Eager(request.view), as_of=None, own=pending)
        page = SearchPage([])
        if self.fallback is not None:
            page = await self.fallback.search(merged)
        unknown = {name: each for name, each in declared.items() if name not in page.schemas}
        left = {
            id: each
            for id, each in pending.items()
            if each is not None and (each.schema or "") not in page.schemas
        }
        if left:
            # The fallback does not know their texts, or there is none; their scores are only of themselves.
            alone = await _search_alone(msgspec.structs.replace(merged, own=left), unknown)
            page = msgspec.structs.replace(
                page,
                items=sorted([*page.items, *alone.items], key=lambda each: -each.score)[: request.limit],
                schemas=[*page.schemas, *alone.schemas],
            )
        items = [msgspec.structs.replace(each, datum=each.datum.replace(seq=None)) for each in page.items]
        # Nobody is to index the fallback, which is only read.
        return msgspec.structs.replace(page, items=items, behind=[], partial=True)

    async def referrers(
        self, id: str, limit: int | None, view: View, declared: Mapping[str, Declaration]
    ) -> list[Datum]:
        """Return the records whose declared refs hold an id, newest first."""
        records = await self.records()
        rows: list[Datum] = []
        if self.fallback is not None:
            wanted = None if limit is None else limit + len(records)
            found = await self.fallback.referrers(id, wanted, _Eager(view))
            rows = [datum.replace(seq=None) for datum in found if datum.id not in records]
        for datum in await self._pending_records():
            known = declared.get(datum.schema or "")
            if known is not None and id in _ids_in_refs(known, view.shape(datum)):
                rows.append(datum)
        return sorted(rows, key=lambda datum: datum.created_at, reverse=True)[:limit]

    async def schemas(self) -> set[str]:
        """Return the schemas of the pending records."""
        return {datum.schema or "" for datum in await self._pending_records()}


async def _search_alone(request: SearchRequest, declared: Mapping[str, Declaration]) -> SearchPage:
    """Search pending records of schemas that no other store knows; an empty one knows how."""
    empty = MemoryBackend()
    await empty.open()
    try:
        for declaration in declared.values():
            await empty.declare(declaration)
        return await empty.search(request)
    finally:
        await empty.close()


def _overlay_record(pending: PendingRecord | None, below: Datum | None) -> Datum | None:
    """Return a record after the pending commits; None if it is missing or deleted."""
    if pending is None:
        return None if below is None else below.replace(seq=None)
    if pending.step.op == "delete":
        return None
    # A record keeps the time of its first version.
    older = below is not None and not pending.recreated
    made = below.created_at if older and below is not None else clock.from_us(pending.made)
    base = 0 if below is None or below.rev is None else below.rev
    return pending.step.datum().replace(rev=base + pending.steps, created_at=made)


def _offset(cursor: str) -> int:
    number = cursor.removeprefix(CURSOR)
    if number == cursor or not (number.isascii() and number.isdigit()):
        raise CursorInvalid("this cursor needs the store, which cannot be reached now")
    return int(number)


def _ids_in_refs(known: Declaration, data: Mapping[str, Any]) -> set[str]:
    found = (item for ref in known.refs for item in paths.every(data, paths.parse(ref)))
    return {item for item in found if isinstance(item, str)}
