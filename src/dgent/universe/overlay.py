"""A transaction's own writes among the records that a query found, in the order they will have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from dgent import clock
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Check, Op, Put, Rank

Shape = Callable[[Datum], Mapping[str, Any]]
Ranks = Callable[[Sequence[str]], Awaitable[Mapping[str, Rank | None]]]

_NEW = 2**62  # comes after every stored record


async def own_datums(puts: Sequence[Put], ranks: Ranks) -> list[Datum]:
    """The datums of own puts as they will be stored: a live record keeps the time of its first version."""
    # What the datum says of its time is not asked: the caller may have it from before, or from elsewhere.
    unsure = [op.id for op in puts if op.expect != 0]
    stored = await ranks(unsure) if unsure else {}
    out = []
    for op in puts:
        rank = stored.get(op.id)
        if rank is None or rank.created_us is None:
            out.append(op.datum)
        else:
            out.append(op.datum.replace(created_at=clock.from_us(rank.created_us)))
    return out


async def overlay(
    query: Query, found: Sequence[Datum], ops: Mapping[str, Op], shape: Shape, ranks: Ranks
) -> list[Datum]:
    """All that match, in the query's order; ties stand in the order of first commit."""
    own = await own_datums([op for op in ops.values() if isinstance(op, Put)], ranks)
    own = [datum for datum in own if query.matches(datum, shape(datum))]
    written = {op.id for op in ops.values() if not isinstance(op, Check)}
    rows = [datum for datum in found if datum.id not in written]
    if query.descending:
        rows.reverse()
    rows += own
    keys = [(query.order_key(shape(datum)), clock.to_us(datum.created_at)) for datum in rows]
    shared = Counter(keys)
    ties = {key for key in keys[len(rows) - len(own) :] if shared[key] > 1}
    tied = [datum.id for datum, key in zip(rows, keys, strict=True) if key in ties]
    stored = await ranks(tied) if tied else {}

    def sort_key(number: int) -> tuple[bytes, int, int]:
        rank = stored.get(rows[number].id)
        new = number + (_NEW if keys[number] in ties else 0)
        return (*keys[number], new if rank is None else rank.record_key)

    numbers = sorted(range(len(rows)), key=sort_key, reverse=query.descending)
    return [rows[number] for number in numbers]
