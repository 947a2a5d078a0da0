"""LangGraph's long-term memory as records of a place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    IndexConfig,
    NotProvided,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)
from langgraph.store.base import _ensure_refresh as ensure_refresh
from langgraph.store.base import _ensure_ttl as ensure_ttl
from langgraph.store.base import _validate_namespace as check_namespace
from langgraph.store.base import _validate_namespace_labels as check_labels
from langgraph.store.base import validate_op_namespace as check_op

from dgent.bridges.langgraph import find
from dgent.bridges.langgraph.find import Mode, Plan
from dgent.bridges.langgraph.item import (
    ITEM,
    METRICS,
    ItemChange,
    Namespace,
    VersionedItem,
    item_id,
    read_item,
    vector_bytes,
    vector_schema,
)
from dgent.bridges.placed import Place, Placed
from dgent.errors import InputError
from dgent.model.schema import Schema
from dgent.store.backend import AsOf, Expect
from dgent.universe.universe import Universe

MAX_TTL = 1e10  # minutes; a longer time is no time that a clock shows


class DgentStore(Placed, BaseStore):
    """Keeps the items of LangGraph's store in a dgent store: `builder.compile(store=DgentStore(url))`.

    `index` is that of LangGraph's stores: `dims`, `embed`, `fields`, and `distance_type` ("cosine", "l2" or
    "inner_product"). `ttl` too; expired items are never returned, also before `sweep_ttl` deletes them.
    """

    supports_ttl = True

    def __init__(
        self, place: Place, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> None:
        self.ttl_config = ttl
        self.index_config = index
        self._schema: Schema[Any] | None = None
        self._fields: list[tuple[str, Any]] = []
        if index is not None:
            distance = str(index.get("distance_type", "cosine"))
            if distance not in METRICS:
                raise InputError(
                    f"{distance!r} is not a valid distance (use {', '.join(METRICS)})", field="distance_type"
                )
            self._schema = vector_schema(index["dims"], distance)
            self._fields = [_field(path) for path in index.get("fields") or ["$"]]
            self.embeddings = ensure_embeddings(index.get("embed"))
        self._settle(place, ITEM, *([] if self._schema is None else [self._schema]))

    # -- ops ------------------------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do operations: reads see the state before the puts, which are one commit."""
        return self._run(list(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do operations: reads see the state before the puts, which are one commit."""
        return await self._arun(list(ops))

    def _run(self, ops: Sequence[Any], **options: Any) -> list[Any]:
        plan, queries, texts = self._plan(ops, options)
        made: dict[str, Any] = {}
        if texts:
            made = dict(zip(texts, self.embeddings.embed_documents(texts), strict=True))
        made |= {query: self.embeddings.embed_query(query) for query in queries if query not in made}
        plan.vectors = {text: vector_bytes(numbers) for text, numbers in made.items()}
        return self.place.run(find.run_plan, plan)

    async def _arun(self, ops: Sequence[Any], **options: Any) -> list[Any]:
        plan, queries, texts = self._plan(ops, options)
        made: dict[str, Any] = {}
        if texts:
            made = dict(zip(texts, await self.embeddings.aembed_documents(texts), strict=True))
        made |= {query: await self.embeddings.aembed_query(query) for query in queries if query not in made}
        plan.vectors = {text: vector_bytes(numbers) for text, numbers in made.items()}
        return await self.place.arun(find.run_plan, plan)

    def _plan(self, ops: Sequence[Any], options: dict[str, Any]) -> tuple[Plan, list[str], list[str]]:
        """Return the plan of ops, and the queries and texts to embed."""
        for op in ops:
            check_op(op)
        plan = Plan(ops, {}, {}, self._schema, **options)
        if self._schema is None:
            return plan, [], []
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        plan.texts = {name: self._texts(op) for name, op in puts.items()}
        texts = dict.fromkeys(text for found in plan.texts.values() for _, text in found)
        queries = dict.fromkeys(op.query for op in ops if isinstance(op, SearchOp) and op.query)
        return plan, list(queries) if plan.mode != "text" else [], list(texts)

    def _texts(self, op: PutOp) -> list[tuple[str, str]]:
        """Return the texts of an item to embed, with their paths."""
        if op.value is None or op.index is False:
            return []
        fields = self._fields if op.index is None else [_field(path) for path in op.index or ()]
        found = []
        for path, tokens in fields:
            texts = get_text_at_path(op.value, tokens)
            named = [path] if len(texts) == 1 else [f"{path}.{at}" for at in range(len(texts))]
            found += list(zip(named, texts, strict=True))
        return found

    # -- more than the framework asks -----------------------------------------------------

    def get(
        self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None, as_of: AsOf = None
    ) -> VersionedItem | None:
        """Return an item, or its version as of a commit or a time."""
        op = self._get(namespace, key, refresh_ttl)
        if as_of is None:  # a read by id needs no other thread
            datum = self.place.run(Universe.get, item_id(op.namespace, op.key), raw=True)
            if datum is None or "ttl" not in datum.data:
                return None if datum is None else read_item(datum)
        found: VersionedItem | None = self._run([op], as_of=as_of)[0]
        return found

    async def aget(
        self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None, as_of: AsOf = None
    ) -> VersionedItem | None:
        """Return an item, or its version as of a commit or a time."""
        op = self._get(namespace, key, refresh_ttl)
        if as_of is None:  # a read by id needs no other thread
            datum = await self.place.arun(Universe.get, item_id(op.namespace, op.key), raw=True)
            if datum is None or "ttl" not in datum.data:
                return None if datum is None else read_item(datum)
        found: VersionedItem | None = (await self._arun([op], as_of=as_of))[0]
        return found

    def _get(self, namespace: Namespace, key: str, refresh_ttl: bool | None) -> GetOp:
        check_labels(namespace)
        return GetOp(tuple(namespace), str(key), ensure_refresh(self.ttl_config, refresh_ttl))

    def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        index: Any = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        expect: Expect = None,
    ) -> None:
        """Store an item; with `expect=item.rev` only over that version, and with 0 only a new one.

        Raises VersionConflict if another program was faster.
        """
        self._run([self._put(namespace, key, value, index, ttl)], expect=expect)

    async def aput(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        index: Any = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        expect: Expect = None,
    ) -> None:
        """Store an item; with `expect=item.rev` only over that version, and with 0 only a new one.

        Raises VersionConflict if another program was faster.
        """
        await self._arun([self._put(namespace, key, value, index, ttl)], expect=expect)

    def _put(self, namespace: Namespace, key: str, value: Mapping[str, Any], index: Any, ttl: Any) -> PutOp:
        check_namespace(namespace)
        minutes = ensure_ttl(self.ttl_config, ttl)
        if minutes is not None and not 0 < minutes < MAX_TTL:
            raise InputError(f"ttl is {minutes!r}, and must be a number of minutes above 0", field="ttl")
        return PutOp(tuple(namespace), str(key), value, index, minutes)

    def search(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
        mode: Mode = "auto",
    ) -> list[SearchItem]:
        """Return items: nearest by the index; with `mode="text"` by words, with "hybrid" by both."""
        op = self._search(namespace_prefix, filter, limit, offset, query, refresh_ttl)
        found: list[SearchItem] = self._run([op], mode=mode)[0]
        return found

    async def asearch(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
        mode: Mode = "auto",
    ) -> list[SearchItem]:
        """Return items: nearest by the index; with `mode="text"` by words, with "hybrid" by both."""
        op = self._search(namespace_prefix, filter, limit, offset, query, refresh_ttl)
        found: list[SearchItem] = (await self._arun([op], mode=mode))[0]
        return found

    def _search(
        self, prefix: Namespace, filter: Any, limit: int, offset: int, query: str | None, refresh: bool | None
    ) -> SearchOp:
        check_labels(prefix)
        refreshed = ensure_refresh(self.ttl_config, refresh)
        return SearchOp(tuple(prefix), filter, limit, offset, query, refreshed)

    def history(
        self, namespace: Namespace, key: str, *, limit: int | None = None
    ) -> list[VersionedItem | None]:
        """Return the kept versions of an item, newest first; None stands for a deletion."""
        return self.place.run(find.history, namespace, key, limit)

    async def ahistory(
        self, namespace: Namespace, key: str, *, limit: int | None = None
    ) -> list[VersionedItem | None]:
        """Return the kept versions of an item, newest first; None stands for a deletion."""
        return await self.place.arun(find.history, namespace, key, limit)

    def undo(self, namespace: Namespace, key: str) -> None:
        """Put an item back to its version before the newest, as a new version."""
        op, expect = self._undo(namespace, key, self.history(namespace, key, limit=2))
        self._run([op], expect=expect)

    async def aundo(self, namespace: Namespace, key: str) -> None:
        """Put an item back to its version before the newest, as a new version."""
        op, expect = self._undo(namespace, key, await self.ahistory(namespace, key, limit=2))
        await self._arun([op], expect=expect)

    def _undo(
        self, namespace: Namespace, key: str, versions: Sequence[VersionedItem | None]
    ) -> tuple[PutOp, int]:
        if not versions:
            raise InputError(f"the item {key!r} of {namespace!r} has no versions", field="key")
        newest, before = versions[0], versions[1] if len(versions) > 1 else None
        ttl = ensure_ttl(self.ttl_config)
        value = None if before is None else before.value
        return PutOp(namespace, key, value, None, ttl), newest.rev if newest else 0

    def changes(self, since: int = 0, *, limit: int | None = 1000) -> list[ItemChange]:
        """Return the changes of items in up to so many commits after one."""
        return self.place.run(find.changes, since, limit)

    async def achanges(self, since: int = 0, *, limit: int | None = 1000) -> list[ItemChange]:
        """Return the changes of items in up to so many commits after one."""
        return await self.place.arun(find.changes, since, limit)

    def sweep_ttl(self) -> int:
        """Delete the items that have expired; returns how many they were."""
        return self.place.run(find.sweep)

    async def asweep_ttl(self) -> int:
        """Delete the items that have expired; returns how many they were."""
        return await self.place.arun(find.sweep)


def _field(path: str) -> tuple[str, Any]:
    return path, path if path == "$" else tokenize_path(path)
