"""Every kind of read on one small store, to compare before and after what must not show."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dgent.model.query import Query
from dgent.store.backend import Backend, Declaration, Guard
from dgent.testing.contract import STORED, Steps, delete, put, record, typed_record
from tests.contract.model import exact

QUERIES = [
    Query(),
    Query(limit=1),
    Query(schema="note"),
    Query(schema="note", limit=1),
    Query(tags=frozenset({"t"})),
    Query(any_tags=frozenset({"t", "u"}), limit=1),
    Query(tags=frozenset({"on the trail"})),
    Query(author="ann"),
    Query(source="web"),
    Query(parent="p"),
    Query(prefix="r", limit=1),
    Query(schema="note", where={"n": 1}),
    Query(schema="note", where={"n": {"$gte": 0}}, order_by="n", limit=1),
    Query(where={"n": {"$gte": 0}}, limit=2),
]

READS: dict[str, Callable[[Backend], Awaitable[Any]]] = {
    **{f"query {n}": lambda s, q=q: s.query(q, Steps(2)) for n, q in enumerate(QUERIES)},  # type: ignore[misc]
    **{f"past query {n}": lambda s, q=q: s.query(q, STORED, 2) for n, q in enumerate(QUERIES)},  # type: ignore[misc]
    "counts": lambda s: asyncio.gather(*(s.count(query, STORED) for query in QUERIES)),
    "get": lambda s: s.get("r1"),
    "get as of": lambda s: s.get("r1", 2),
    "get only there": lambda s: s.get("elsewhere"),
    "get_many": lambda s: s.get_many(["r1", "r2", "elsewhere"]),
    "history": lambda s: s.history("r1", None),
    "history only there": lambda s: s.history("elsewhere", None),
    "referrers": lambda s: s.referrers("x", None),
    "changes": lambda s: s.changes(0, 100),
    "states_before": lambda s: s.states_before(2),
    "validate": lambda s: s.validate(Guard(3, frozenset({"r9"})), STORED),
    "versions": lambda s: s.versions("note"),
    "stats": lambda s: s.stats(),
}


async def fill_up(store: Backend) -> None:
    """Records that every read below has something to say of."""
    await store.declare(Declaration("note", 2, indexes=("n",), refs=("to",)))
    fields: dict[str, Any] = {"tags": frozenset({"t"}), "author": "ann", "source": "web", "parent_id": "p"}
    await put(
        store, *(typed_record(f"r{n}", data={"n": n, "to": "x"}, version=2, **fields) for n in range(4))
    )
    await put(
        store, *(typed_record(f"r{n}", data={"n": n + 1, "to": "x"}, version=2, **fields) for n in range(2))
    )
    await put(store, typed_record("lags", 1), record("plain", 1))
    await delete(store, "r3")


def comparable(answer: Any) -> Any:
    """What matters of an answer."""
    if hasattr(answer, "items") and hasattr(answer, "cursor"):
        return exact(answer.items), answer.cursor
    if hasattr(answer, "schemas"):
        return answer.records, answer.schemas
    # A bare number is the newest seq, which all trails share.
    return None if isinstance(answer, int) else exact(answer)
