"""Bring something back to mind: related, old, and not seen for a while.

A search gives the best answer, and so the same one each time. This gives one of many that fit. The draw of
each record follows from the seed and its id alone, so the same store, time and seed give the same answer,
and a new record does not change the draws of the others.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from dgent import clock
from dgent.errors import InputError
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.universe.check import query_of
from dgent.universe.search import MAX_K, check_k

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

POOL = 64  # records that are looked at first, for each one that is asked for
RELATED, OLD, UNSEEN = 0.5, 0.25, 0.25  # what each of the three counts for

Seen = Mapping[str, datetime]
FindSeen = Callable[[Sequence[str]], Awaitable[Seen]]


async def surface(
    universe: Universe,
    text: str | None = None,
    query: Query | None = None,
    *,
    seed: int | str = 0,
    entropy: float = 0.7,
    k: int = 1,
    seen: Seen | FindSeen | None = None,
    rest: timedelta = timedelta(days=1),
    now: datetime | None = None,
    **filters: Any,
) -> list[Crystal[Any] | Datum]:
    """Return up to `k` records that are related to a text, old, and were not seen within `rest`.

    `seen` has the time when each record was last seen, by id, or finds it for some ids; what is not in it was
    never seen. `entropy` is how much chance counts, from 0 (the best fit) to 1 (any that fits). Without a
    text the oldest records are looked at. `now` is the present unless given.
    """
    wanted = query_of(query, filters)
    if not 0 <= entropy <= 1:
        raise InputError(f"entropy is {entropy!r}", hint="a number from 0 to 1", field="entropy")
    moment = now or clock.now()
    left: dict[str, tuple[Crystal[Any] | Datum, float]] = {}
    last: Seen = {}
    for most in dict.fromkeys((min(check_k(k) * POOL, MAX_K), MAX_K)):
        found = await _find(universe, text, wanted, most)
        last = await seen(list(found)) if callable(seen) else seen or {}
        left = {id: each for id, each in found.items() if moment - last.get(id, _NEVER) >= rest}
        if len(left) >= k or len(found) < most:
            break  # else too many of the nearest were seen lately
    age = _rank({id: _find_created_at(each) for id, (each, _) in left.items()})
    unseen = _rank({id: last.get(id, _NEVER) for id in left})

    def key(id: str) -> tuple[float, str]:
        merit = RELATED * left[id][1] + OLD * age[id] + UNSEEN * unseen[id]
        draw = random.Random(f"{seed}:{id}").random()
        return -(1 - entropy) * merit - entropy * draw, id

    return [left[id][0] for id in sorted(left, key=key)[:k]]


async def _find(
    universe: Universe, text: str | None, query: Query, most: int
) -> dict[str, tuple[Crystal[Any] | Datum, float]]:
    """Return records that fit a text with how well they do, or the oldest ones, by id."""
    if text is not None:
        return {hit.id: (hit.record, hit.score) for hit in await universe.search(text, query, k=most)}
    oldest = query.replace(order_by="created_at", descending=False, limit=most)
    return {each.id: (each, 0.0) for each in await universe.query(oldest)}


_NEVER = datetime.min.replace(tzinfo=UTC)


def _find_created_at(record: Crystal[Any] | Datum) -> datetime:
    return (record if isinstance(record, Datum) else record.datum).created_at


def _rank(times: Mapping[str, datetime]) -> dict[str, float]:
    """Return 1 for the earliest of some times down to 0 for the latest; equal times have equal ranks."""
    order = sorted(set(times.values()), reverse=True)
    last = max(1, len(order) - 1)
    place = {time: at / last for at, time in enumerate(order)}
    return {id: place[time] if len(order) > 1 else 1.0 for id, time in times.items()}
