"""LangGraph's AsyncSqliteStore with the same records; its namespace stands for the schema."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from typing import Any

from bench.bare import LEVELS
from bench.measure import Draw, Row
from bench.record import Note, samples
from bench.stores import Stores
from dgent import Datum, ids

NAMESPACE = ("bench", "note")
SAME, DEFAULTS = "LangGraph, same pragmas", "LangGraph, its defaults"

_AT_ONCE = 5_000  # operations in a batch; of more it makes a statement with too many parameters
_INSTALLED = all(map(importlib.util.find_spec, ("langgraph", "aiosqlite")))

SKIPPED = [] if _INSTALLED else [Row("LangGraph", verdict="skipped: pip install 'dgent[bench]' brings it")]
"""The row that says so when LangGraph is not installed."""


Item = tuple[str, dict[str, Any]]
"""The id and the content of a record."""


class Peer:
    """One of its stores; the calls of it that are measured."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def put(self, id: str, content: dict[str, Any]) -> None:
        """One record."""
        await self._store.aput(NAMESPACE, id, content)

    async def put_together(self, items: Sequence[Item]) -> None:
        """One task for each record; it writes what comes within a tick in one transaction."""
        await asyncio.gather(*[self.put(*item) for item in items])

    async def put_many(self, items: Sequence[Item]) -> None:
        """In as large batches as it can take."""
        from langgraph.store.base import PutOp

        for first in range(0, len(items), _AT_ONCE):
            await self._store.abatch([PutOp(NAMESPACE, *item) for item in items[first : first + _AT_ONCE]])

    async def get(self, id: str) -> Any:
        """One record."""
        return await self._store.aget(NAMESPACE, id)


async def open_peers(
    stack: AsyncExitStack, stores: Stores, count: int, durability: str | None
) -> dict[str, Peer]:
    """Copies of a store of so many records: with dgent's pragmas, and as it is by default."""
    if not _INSTALLED:
        return {}
    built = await stores.other("langgraph", count, _build)
    chosen = {SAME: durability, DEFAULTS: None}
    return {
        name: await stack.enter_async_context(_open(stores.copy(built), level))
        for name, level in chosen.items()
    }


@asynccontextmanager
async def _open(path: str, durability: str | None) -> AsyncIterator[Peer]:
    from langgraph.store.sqlite.aio import AsyncSqliteStore

    async with AsyncSqliteStore.from_conn_string(path) as store:
        await store.setup()
        if durability is not None:
            for pragma in (
                "journal_mode = WAL",
                f"synchronous = {LEVELS[durability]}",
                "cache_size = -16384",
            ):
                await store.conn.execute(f"PRAGMA {pragma}")
        yield Peer(store)
        task = getattr(store, "_task", None)
        if task is not None:
            task.cancel()  # or closing the loop would complain


async def _build(path: str, count: int) -> None:
    source = samples(3)
    async with _open(path, None) as peer:
        await peer.put_many([item(*sample) for sample in islice(source, count)])


def item(value: Note, tags: frozenset[str]) -> Item:
    """Return the id and the content of a record."""
    return ids.new_id(), dataclasses.asdict(value) | {"tags": sorted(tags)}


def items_of(datums: Sequence[Datum]) -> list[Item]:
    """Return ids and contents of the same records."""
    return [(each.id, each.data | {"tags": sorted(each.tags)}) for each in datums]


def draw_items(count: int, seed: int = 1) -> Draw:
    """The next records, made before the clock starts."""
    source = samples(seed)
    return lambda: [item(*sample) for sample in islice(source, count)]
