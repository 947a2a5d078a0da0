"""The change feed: every commit in order, none missed, also those of other processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from dgent.errors import Corrupt, CursorInvalid, HistoryGone, Unavailable
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Change, Item
from dgent.universe.check import check_limit, check_since
from dgent.universe.contract import Contracts
from dgent.universe.gate import Gate

if TYPE_CHECKING:
    from dgent.store.offline.backend import DegradableBackend

BATCH = 256
WAIT_S = 5.0


async def changes(
    backend: Backend, since: int, limit: int | None, until: int | None, items: int | None = None
) -> list[Change]:
    """Return commits after a seq and up to another, in order; CursorInvalid if the store has no such seq."""
    found = await _changes(backend, check_since(since), check_limit(limit), until, items)
    if not found and getattr(backend, "degradation", None) is None:
        _check_position(since, await backend.last_seq())
    return found


def _check_position(since: int, newest: int) -> None:
    """Refuse to follow a store from a commit that it does not have: until then nothing would arrive."""
    if since > newest:
        raise CursorInvalid(
            f"the store has no commit {since}, its newest is {newest}: it was restored, or is another one",
            hint="compare what you have with what is there, and go on from seq()",
        )


async def _changes(
    backend: Backend, since: int, limit: int | None, until: int | None, items: int | None
) -> list[Change]:
    most = 2**62 if limit is None else limit
    # Who may not see everything looks at all records: some of them may be hidden.
    in_part: Any = None if items is None else getattr(backend, "changes_in_part", None)
    if in_part is not None:
        most = most if until is None else min(most, max(1, until - since))
        found: list[Change] = await in_part(since, most, items)
        return [each for each in found if until is None or (each.seq or 0) <= until]
    if until is None:
        return await backend.changes(since, most)
    most = min(most, max(1, until - since))
    if isinstance(backend, Gate):
        return await backend.changes(since, most, until)
    return [each for each in await backend.changes(since, most) if (each.seq or 0) <= until]


Admit: TypeAlias = Callable[[Change], Awaitable[Change | None]]
"""Reduces a commit to what the principal may see; None when nothing is left."""


async def watch(
    backend: Backend, contracts: Contracts, since: int | None, query: Query | None
) -> AsyncGenerator[Change, None]:
    """Yield changes after a seq, as they happen; with a query, only the records that match it.

    A deletion matches when the record did before it was deleted. A put that no longer matches is shown
    with `left=True` when the version before it matched. Where that version is not kept (a schema with
    `history="none"`) both are shown: one report too many does no harm, a missed one does.
    """
    if since is not None:
        check_since(since)
    admit: Admit | None = None
    if isinstance(backend, Gate):
        admit = backend.admit
        backend = backend.inner
    if hasattr(backend, "notices"):
        degradable = cast("DegradableBackend", backend)
        async with aclosing(_watch_degradable(degradable, contracts, since, query, admit)) as following:
            async for change in following:
                yield change
        return
    assert since is not None, "a store that is there has a newest commit"
    begun = False
    while True:
        newest = await backend.last_seq()
        if not begun:
            _check_position(since, newest)
            begun = True
        changes = await backend.changes(since, BATCH)
        for change in changes:
            assert change.seq is not None, "a commit in the log has a number"
            since = change.seq
            shown = await _filter_change(backend, contracts, change, query, admit)
            if shown is not None and shown.items:
                yield shown
        if not changes:
            # Commits of schemas that stay off the feed move the seq on without showing.
            since = max(since, newest)
            await backend.wait(since, WAIT_S)


async def _watch_degradable(
    backend: DegradableBackend,
    contracts: Contracts,
    since: int | None,
    query: Query | None,
    admit: Admit | None,
) -> AsyncGenerator[Change, None]:
    """Yield the same for a store that may be unavailable: then local changes only, marked as such."""
    listener = backend.notices.listener()
    while True:
        for change in listener.take():
            shown = await _filter_change(backend, contracts, change, query, admit)
            if shown is not None and (shown.items or not change.items):
                yield shown
        if backend.degradation is not None:
            await listener.wait(WAIT_S)
            continue
        try:
            # Where its log stood when it came back: what was done since then is shown.
            since = backend.back_seq if since is None else since
            newest = await backend.last_seq()
            changes = await backend.changes(since, BATCH)
        except Unavailable:
            if backend.degradation is None:
                raise
            continue
        for change in changes:
            since = change.seq or since
            shown = await _filter_change(backend, contracts, change, query, admit)
            if shown is not None and shown.items:
                yield shown
        if not changes:
            since = max(since, newest)
            await _either(backend.wait(since, WAIT_S), listener.wait(WAIT_S))


async def _either(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of the awaitables is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _filter_change(
    backend: Backend, contracts: Contracts, change: Change, query: Query | None, admit: Admit | None
) -> Change | None:
    admitted = change if admit is None else await admit(change)
    if admitted is None:
        return None
    change, items = admitted, list[Item]()
    for item in change.items:
        if query is None or _matches(contracts, item, query):
            items.append(item)
        elif await _has_matched_before(backend, contracts, change, item, query):
            items.append(msgspec.structs.replace(item, left=True))
    typed = tuple(
        msgspec.structs.replace(item, datum=_value(contracts, item.datum), last=_value(contracts, item.last))
        for item in items
    )
    return msgspec.structs.replace(change, items=typed)


async def _has_matched_before(
    backend: Backend, contracts: Contracts, change: Change, item: Item, query: Query
) -> bool:
    """Check the version that a put replaced; True when it was pruned and may have matched."""
    if item.op != "put" or item.datum is None or item.rev == 1 or item.id is None or change.seq is None:
        return False
    if not item.id.startswith(query.prefix or ""):
        return False
    try:
        before = await backend.get(item.id, change.seq - 1)
    except HistoryGone:
        return query.schema in (None, item.schema)
    except Corrupt:
        return False  # a damaged record matches nothing
    return before is not None and query.matches(before, contracts.shape(before))


def _value(contracts: Contracts, datum: Datum | None) -> Any:
    return None if datum is None else contracts.lenient(datum)


def _matches(contracts: Contracts, item: Item, query: Query) -> bool:
    datum = item.datum if item.op == "put" else item.last
    if datum is None:
        known = item.op == "delete" and query.schema in (None, item.schema)
        return known and (item.id or "").startswith(query.prefix or "")
    return query.matches(datum, contracts.shape(datum))
