"""LangGraph's cache of node results as records of a place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from langgraph.cache.base import BaseCache, FullKey, Namespace, ValueT
from langgraph.checkpoint.serde.base import SerializerProtocol

from dgent import clock
from dgent.bridges.key import record_id
from dgent.bridges.langgraph.item import place_of
from dgent.bridges.langgraph.record import printable
from dgent.bridges.placed import Place, Placed
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import Delete, Put
from dgent.sync.handle import begin_anywhere
from dgent.universe.universe import Universe

CACHE: Schema[Any] = Schema("langgraph.cache", indexes=("place",), history="none", feed=False)
BATCH = 500


class DgentCache(Placed, BaseCache[ValueT]):
    """Keeps cached results in a dgent store: `builder.compile(cache=DgentCache(url))`."""

    def __init__(self, place: Place, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._settle(place, CACHE)

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Return the values of keys that have one and have not expired."""
        return self._load(keys, self.place.run(_get, [_id_of(*key) for key in keys])) if keys else {}

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Return the values of keys that have one and have not expired."""
        return self._load(keys, await self.place.arun(_get, [_id_of(*key) for key in keys])) if keys else {}

    def set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Store values, each for so many seconds, or for good."""
        self.place.run(_put, self._make(pairs))

    async def aset(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Store values, each for so many seconds, or for good."""
        await self.place.arun(_put, self._make(pairs))

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Delete the values of namespaces, or all."""
        self.place.run(_clear, namespaces)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Delete the values of namespaces, or all."""
        await self.place.arun(_clear, namespaces)

    def sweep(self) -> int:
        """Delete the values that have expired; returns how many they were."""
        return self.place.run(_sweep)

    async def asweep(self) -> int:
        """Delete the values that have expired; returns how many they were."""
        return await self.place.arun(_sweep)

    def _make(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> list[Datum]:
        now, made = clock.from_us(clock.now_us()), []
        for (namespace, key), (value, ttl) in pairs.items():
            kind, content = self.serde.dumps_typed(value)
            data: dict[str, Any] = {
                "place": place_of(namespace),
                "namespace": list(namespace),
                "key": key,
                "type": kind,
            }
            made.append(
                Datum(
                    _id_of(namespace, key),
                    data=printable(data),
                    content=bytes(content),
                    schema=CACHE.name,
                    schema_version=CACHE.version,
                    expires_at=None if ttl is None else now + timedelta(seconds=ttl),
                )
            )
        return made

    def _load(self, keys: Sequence[FullKey], datums: Sequence[Datum | None]) -> dict[FullKey, ValueT]:
        found = {}
        for (namespace, key), datum in zip(keys, datums, strict=True):
            if datum is not None:
                value = self.serde.loads_typed((datum.data["type"], datum.content))
                found[(tuple(namespace), key)] = value
        return found


def _id_of(namespace: Namespace, key: str) -> str:
    return record_id("langgraph-cache", place_of(namespace), key)


@begin_anywhere
async def _get(u: Universe, ids: list[str]) -> list[Datum | None]:
    return await u.get_many(ids, raw=True)


@begin_anywhere
async def _put(u: Universe, datums: list[Datum]) -> None:
    if datums:
        await u.commit([Put(datum) for datum in datums])


async def _clear(u: Universe, namespaces: Sequence[Namespace] | None) -> None:
    if namespaces is None:
        await _delete(u, Query(schema=CACHE.name, limit=BATCH))
    for namespace in namespaces or ():
        await _delete(u, Query(schema=CACHE.name, where={"place": place_of(namespace)}, limit=BATCH))


async def _sweep(u: Universe) -> int:
    return await _delete(u, Query(schema=CACHE.name, expired=True, limit=BATCH))


async def _delete(u: Universe, query: Query) -> int:
    count = 0
    while found := await u.query(query.replace(content=False), raw=True):
        await u.commit([Delete(datum.id) for datum in found])
        count += len(found)
    return count
