"""The universe: typed data in, typed data out, on any engine."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from dgent import ids
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.store.backend import Backend, BackendStats, Change, Committed, Compacted, Forgotten, Keep, Version
from dgent.store.registry import backend_at, backends_at, blob_folder
from dgent.store.registry import read_only as read_only_backend
from dgent.universe import feed, history, relation, upgrade
from dgent.universe.check import check_limit, check_query
from dgent.universe.collection import Collection
from dgent.universe.embedding import report_embedding
from dgent.universe.expiry import sweep
from dgent.universe.parts import find_part_ids, prune_parts
from dgent.universe.reader import UniverseReader
from dgent.universe.writer import UniverseWriter

if TYPE_CHECKING:
    from dgent.embedder.embedder import Embedder
    from dgent.model.lens import Lens
    from dgent.store.offline.report import Degradation
    from dgent.universe.focus import Focus

T = TypeVar("T")


class Universe(UniverseReader, UniverseWriter):
    """One store and the schemas this program knows, with everything that can be done with both.

    Use it as `async with dgent.open(...) as u`. It belongs to the event loop that opened it.
    """

    def _as_universe(self) -> Universe:
        return self

    # -- history and the feed -------------------------------------------------------------

    async def history(self, id: str, *, limit: int | None = None) -> builtins.list[Version]:
        """Return the kept versions of a record, newest first, deletions among them."""
        self._check()
        return await self.backend.history(ids.check_id(id), check_limit(limit))

    async def undo(self, seq: int, *, only: Iterable[str] | None = None, force: bool = False) -> Committed:
        """Put the records of a commit back to what they were before it, as a new commit.

        Refused when any of them changed since, naming them; `only` picks some, `force` overrides.
        """
        await self._ready()
        return await history.undo(self, seq, only, force)

    async def changes(
        self, since: int = 0, *, limit: int | None = 1000, until: int | None = None, items: int | None = None
    ) -> builtins.list[Change]:
        """Return commits after a seq, in order; HistoryGone names the first one that is still there.

        With `items`, not all records of large commits are read: each has at least so many, and `more`
        counts those that were left out.
        """
        await self._ready()
        return await feed.changes(self.backend, since, limit, until, items)

    async def watch(self, since: int | None = None, *, query: Query | None = None) -> AsyncIterator[Change]:
        """Yield every commit after a seq (default: from now on), in order, also of other processes."""
        await self._ready()
        if query is not None:
            self.contracts.check(check_query(query))
        if since is None and self.degraded is None:
            since = await self.seq()
        async with aclosing(feed.watch(self.backend, self.contracts, since, query)) as changes:
            async for change in changes:
                yield change
                self._check()

    async def causal_chain(
        self, id: str, *, limit: int | None = 10_000, partial: bool = False
    ) -> builtins.list[Any]:
        """Return a record and its causes, of one moment, oldest first; empty if the record does not exist.

        With more causes than `limit`, the nearest ones; `None` means 100,000.
        """
        self._check()
        return await relation.causal_chain(self, self._source(partial), id, limit)

    # -- relations ------------------------------------------------------------------------

    def collection(self, contract: type[T] | str) -> Collection[T]:
        """Return a typed handle on the records of one contract, or of the schema with a name."""
        return Collection(self, contract)

    def focus(self, id: str, lens: Lens[Any, T]) -> Focus[T]:
        """Return a part of a record, to get, set and modify through a lens."""
        from dgent.universe.focus import Focus  # optics load when they are used

        return Focus(self, id, lens)

    async def resolve(self, crystal: Crystal[Any]) -> relation.Resolved:
        """Load all records that a crystal refers to, in one batch; refs that lead nowhere are reported."""
        self._check()
        return await relation.resolve(self, crystal)

    async def referrers(
        self, id: str, *, limit: int | None = 100, partial: bool = False
    ) -> builtins.list[Any]:
        """Return the records that refer to an id, newest first."""
        await self._ready()
        found = await self._source(partial).referrers(ids.check_id(id), check_limit(limit), self.contracts)
        return [self.contracts.lenient(datum) for datum in found]

    async def associate(
        self, a: Any, b: Any, kind: str = "related", weight: float = 1.0
    ) -> Crystal[relation.Association]:
        """Link two records of any schema, or change the weight of their link."""
        return await relation.associate(self, a, b, kind, weight)

    async def associated(
        self, id: Any, kind: str | None = None
    ) -> builtins.list[Crystal[relation.Association]]:
        """Return the links of a record at either end, heaviest first."""
        return await relation.list_associations(self, id, kind)

    async def dissociate(self, a: Any, b: Any, kind: str = "related") -> bool:
        """Remove the link from one record to another; False when there was none."""
        return await self.delete(relation.association_id(a, b, kind))

    # -- upkeep ---------------------------------------------------------------------------

    async def forget(self, *ids_: str, only_deleted: bool = False) -> Forgotten:
        """Erase records for good: rows, history, indexes, free pages, telemetry, and blobs only they use.

        It cannot be undone. With `only_deleted` records that are live at that moment stay.
        """
        await self._ready()
        wanted = [ids.check_id(id) for id in ids_]
        if not only_deleted:
            wanted += await find_part_ids(self, wanted)
        async with self._drop_blobs(wanted):
            done = await self.backend.forget(wanted, self.author, self._room, only_deleted)
        from dgent.universe.telemetry import forget_events  # loads when it is used

        live = await self.backend.get_many(wanted) if only_deleted else [None] * len(wanted)
        await forget_events(self, [id for id, now in zip(wanted, live, strict=True) if now is None])
        return done

    def _drop_blobs(self, ids_: Sequence[str]) -> AbstractAsyncContextManager[None]:
        """Return a context for forgetting records, after which contents that only they used are gone."""
        from dgent.universe.blob import drop_unused  # loads when it is used

        return drop_unused(self, ids_)

    @property
    def blob_folder(self) -> str | None:
        """The folder of the contents of blobs, which need not exist; None where they are in no folder."""
        if self._life.blobs is None and self._life.storage.get("blob"):
            from dgent.universe.blob import open_blobs  # loads when it is used

            open_blobs(self)
        if self._life.blobs is None:
            return blob_folder(self._unlimited().backend)
        place: str = self._life.blobs.contents.place
        return place if os.path.isabs(place) else None

    async def sweep(self, limit: int | None = None) -> int:
        """Delete records that have expired, and return how many; a universe does so by itself now and then.

        It takes small commits. The schema's `history` says whether their versions are kept.
        """
        await self._ready()
        return await sweep(self, check_limit(limit))

    async def compact(self, keep: int | timedelta | datetime | Keep) -> Compacted:
        """Prune old history: keep so many old versions of each record, or those younger than an age."""
        await self._ready()
        done = await self.backend.compact(history.rule(keep))
        await prune_parts(self)
        return done

    async def upgrade_all(
        self,
        schema: str | type,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], Awaitable[None] | None] | None = None,
    ) -> upgrade.Upgraded:
        """Rewrite every record of an older version in the newest; safe to stop and run again."""
        return await upgrade.upgrade_all(self, self.schema_for(schema), dry_run, progress)

    @property
    def degraded(self) -> Degradation | None:
        """Return since when and why the store is unavailable, and the pending writes; None if available."""
        found: Degradation | None = getattr(self.backend, "degradation", None)
        return found

    async def stats(self) -> BackendStats:
        """Return the contents and the condition of the store."""
        await self._ready()
        found = await self.backend.stats()
        details: dict[str, Any] = dict(found.details)
        if self._life.machine is not None:
            details["storage"] = self._life.machine.report()
        if self._embedding is not None:
            details["embedding"] = await report_embedding(self._embedding, self.backend)
        return msgspec.structs.replace(found, details=details)


def open(
    url: str | Sequence[str] | None = None,
    *,
    author: str = "system",
    durability: str | None = None,
    degrade: bool | Literal["optimistic"] | None = None,
    outbox: str | None = None,
    read_url: str | None = None,
    upgrade: Literal["backup", "no-backup", "never"] | None = None,
    backend: Backend | None = None,
    embedder: Embedder | str | None = None,
    choose: Literal["priority"] | None = None,
    token: str | None = None,
    storage: Mapping[str, Mapping[str, Any]] | None = None,
    read_only: bool = False,
) -> Universe:
    """Return a universe at a place: `async with dgent.open("sqlite:///memory.db") as u`, or `await` it.

    Places are `memory:`, `memory:name` (shared by all handles of this process), `sqlite:///relative.db`,
    `sqlite:////absolute.db`, `jsonl:folder`, `postgresql://user@host/database`, and
    `https://host/constellation` of a server, with a `token`; without one it is the user's default place.
    `durability` is `"full"` (the default) or `"relaxed"`. `read_url` is a replica of a Postgres that answers
    reads.

    Of a list, the first place is opened and no other. Only `degrade=True` lets it be unavailable: then writes
    are kept in the SQLite file `outbox` until it is back, and the places after it answer reads.
    `"optimistic"` also keeps writes that expect a version, and checks them when it is back. With
    `choose="priority"` the first place of the list that answers is opened, and `u.backend` says which: each
    is a store of its own, and what was written to one is not in the others.

    A store of an older storage format is upgraded when it is opened, a SQLite file after a backup beside it.
    `upgrade="no-backup"` makes none, `"never"` raises FormatTooOld instead.

    An `embedder` makes vectors of the texts that schemas name in `embed`: one of `dgent.embedder`, anything
    like it, or `"minilm"`. Without a place and an embedder it is that of the user's settings.

    With `read_only=True` every write raises Denied before anything is touched; nothing is made, and no
    format is upgraded. A SQLite file is opened for reading, and a session of Postgres only reads.

    `storage` places ports beside the store elsewhere, like the tables `[storage.…]` of the settings:
    `{"telemetry": {"url": "sqlite:///events.db", "keep_days": 30}}`.
    """
    by_settings = url is None and backend is None
    if isinstance(embedder, str) or (embedder is None and by_settings):
        from dgent.embedder.named import find_embedder, make_embedder  # loads when it is used

        embedder = find_embedder() if embedder is None else make_embedder(embedder)
    others: tuple[str, ...] = ()
    choices: tuple[Backend, ...] = ()
    options: dict[str, Any] = {
        "durability": durability,
        "read_url": read_url,
        "upgrade": upgrade,
        "token": token,
        "read_only": read_only or None,
    }
    if choose is not None:
        choices = backends_at(url, choose, backend, degrade, **options)
        backend = choices[0]
    if backend is not None and read_only and choose is None:
        backend = read_only_backend(backend)
    if backend is None:
        backend, others = backend_at(url, degrade, outbox, **options)
    made = Universe(backend, author=author, embedder=embedder)
    made._life.others, made._life.choices = others, choices
    if storage is None and by_settings:
        from dgent.config.settings import default_storage  # loads when it is used

        storage = default_storage()
    made._life.storage = storage or {}
    return made
