"""A transaction's own writes among the records that a query found, in the order they will have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from dgent import clock
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Check, Op, Position, Put

Shape = Callable[[Datum], Mapping[str, Any]]
Positions = Callable[[Sequence[str]], Awaitable[Mapping[str, Position | None]]]

_NEW = 2**62  # comes after every stored record


async def own_datums(puts: Sequence[Put], positions: Positions) -> list[Datum]:
    """The datums of own puts as they will be stored: a live record keeps the time of its first version."""
    unsure = [op.id for op in puts if op.expect != 0 and op.datum.rev is None]
    stored = await positions(unsure) if unsure else {}
    out = []
    for op in puts:
        position = stored.get(op.id)
        if position is None or position.created_us is None:
            out.append(op.datum)
        else:
            out.append(op.datum.replace(created_at=clock.from_us(position.created_us)))
    return out


async def overlay(
    query: Query, found: Sequence[Datum], ops: Mapping[str, Op], shape: Shape, positions: Positions
) -> list[Datum]:
    """All that match, in the query's order; records of equal rank stand in the order of first commit."""
    own = await own_datums([op for op in ops.values() if isinstance(op, Put)], positions)
    own = [datum for datum in own if query.matches(datum, shape(datum))]
    written = {op.id for op in ops.values() if not isinstance(op, Check)}
    rows = [datum for datum in found if datum.id not in written]
    if query.descending:
        rows.reverse()
    rows += own
    ranks = [(query.order_key(shape(datum)), clock.to_us(datum.created_at)) for datum in rows]
    shared = Counter(ranks)
    own_ranks = {rank for rank in ranks[len(rows) - len(own) :] if shared[rank] > 1}
    tied = [datum.id for datum, rank in zip(rows, ranks, strict=True) if rank in own_ranks]
    stored = await positions(tied) if tied else {}

    def rank_of(number: int) -> tuple[bytes, int, int]:
        position = stored.get(rows[number].id)
        new = number + (_NEW if ranks[number] in own_ranks else 0)
        return (*ranks[number], new if position is None else position.record_key)

    numbers = sorted(range(len(rows)), key=rank_of, reverse=query.descending)
    return [rows[number] for number in numbers]
