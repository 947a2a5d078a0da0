"""The universe: typed data in, typed data out, on any engine."""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import msgspec

from dgent import ids
from dgent.errors import Closed, Denied, InputError, Unsupported, VersionConflict
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum, stamp, stamp_fresh
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.model.vector import Metric
from dgent.store.backend import (
    NONE_OWN,
    AsOf,
    Backend,
    BackendStats,
    Change,
    Commit,
    Committed,
    Compacted,
    Delete,
    Expect,
    Forgotten,
    Guard,
    Keep,
    Kind,
    Op,
    OwnVersions,
    Page,
    Put,
    SchemaStats,
    SearchRequest,
    VectorPage,
    Version,
    View,
)
from dgent.store.registry import OpenState, backend_at, backends_at, blob_folder, open_first, open_store
from dgent.system.collector import pause
from dgent.universe import feed, history, relation, search, upgrade, write
from dgent.universe.check import check_limit, check_query, query_of, schemas_of, seq_of, since_after
from dgent.universe.collection import Collection
from dgent.universe.contract import Contracts, Doubts, Recalled, raw_of, warn_of_dispute, warn_of_texts
from dgent.universe.embedding import Embedding, EmbeddingReport, report_embedding
from dgent.universe.gate import Gate, Principal
from dgent.universe.meaning import Mode, Search, Searched, check_mode, search_both
from dgent.universe.parts import find_part_ids, prune_parts
from dgent.universe.past import Past, find_past
from dgent.universe.room_texts import RoomTexts
from dgent.universe.search import MAX_K, Hits
from dgent.universe.transaction import Names, Transaction, transact
from dgent.universe.vectors import Vectors

if TYPE_CHECKING:
    from dgent.embedder.embedder import Embedder
    from dgent.model.lens import Lens
    from dgent.store.offline.report import Degradation
    from dgent.store.port.statement import BoundStatement, Params
    from dgent.system.progress import Progress
    from dgent.universe.adapters import Adapters
    from dgent.universe.focus import Focus
    from dgent.universe.storage import StorageProvider

T = TypeVar("T")
R = TypeVar("R")

PAGE = 500


class Universe:
    """One store and the schemas this program knows, with everything that can be done with both.

    Use it as `async with dgent.open(...) as u`. It belongs to the event loop that opened it.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        author: str = "system",
        room: str | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self.backend = backend
        self.author = ids.check_name(author, "author")
        self.contracts = Contracts()
        self._room = room
        self._partial = False  # whether every read takes what is at hand
        self._life = OpenState()
        self._undeclared: list[Schema[Any]] = []
        self._declaring = asyncio.Lock()
        self.names = Names()
        self.rooms: set[str] = set()  # rooms in use here, by name: they undo their commits themselves
        self._builds = upgrade.IndexBuilds()
        self._texts: dict[str, int] = {}  # records written here since the texts of a schema were indexed
        self._room_texts = RoomTexts()
        self._fresh = write.FreshKinds()
        self._embedding = None if embedder is None else Embedding(embedder)

    # -- lifecycle ------------------------------------------------------------------------

    async def open(self) -> Universe:
        """Open the store; raises when it cannot be opened, and never opens another instead."""
        async with self._declaring:  # one at a time: two opens of one backend would need two closes
            if self._life.closed:
                raise Closed("this universe was closed", hint="call dgent.open again")
            if self._life.loop is None:
                if self._life.choices:
                    self.backend = await open_first(self._life.choices)
                else:
                    await open_store(self.backend, self._life.others)
                try:
                    self._take_author()
                except Denied:
                    await self.backend.close()
                    raise
                self._life.loop = asyncio.get_running_loop()
        return self

    def _take_author(self) -> None:
        """Take the author of commits from a server, which knows whose token it was shown."""
        agent: str | None = getattr(self.backend, "agent", None)
        if agent is not None and self.author not in ("system", agent):
            raise Denied(f"the token is one of {agent!r}, not of {self.author!r}", hint="leave author= out")
        self.author = agent or self.author

    async def close(self) -> None:
        """Finish pending work and close the store; a second call does nothing."""
        async with self._declaring:
            if self._life.closed:
                return
            self._life.closed = True
            try:
                if self._life.loop is asyncio.get_running_loop():
                    if self._embedding is not None:
                        await self._embedding.cancel()
                    await self._builds.cancel()
                    if self._life.blobs is not None:
                        await self._life.blobs.contents.close()
                    if self._life.telemetry is not None:
                        await self._life.telemetry.close()
                    if self._life.provider is not None:
                        await self._life.provider.close_ports()
            finally:
                if self._life.loop is not None:
                    await self.backend.close()

    async def __aenter__(self) -> Universe:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Universe]:
        return self.open().__await__()

    def __repr__(self) -> str:
        state = "closed" if self._life.closed else "new" if self._life.loop is None else "open"
        return f"<Universe {self.backend.name} {state}>"

    def for_room(self, name: str, *, partial: bool = False, contracts: Contracts | None = None) -> Universe:
        """Return this universe for a room, which may write what it owns; with `partial` for all its reads.

        With `contracts` it knows these schemas, and no others.
        """
        if not getattr(self.backend, "holds_rooms", True):
            raise Unsupported(
                f"{name} cannot be used over HTTP: the server's own rooms prove their rules",
                hint="call verbs: `await invoke(u, 'self.block.append', …)`",
            )
        backend = self.backend.in_room(name) if isinstance(self.backend, Gate) else self.backend
        twin = self._twin(_room=name, backend=backend, _partial=partial)
        return twin if contracts is None else twin._twin(contracts=contracts, _undeclared=[])

    def acting(self, principal: Principal) -> Universe:
        """Return this universe as a principal may use it, who is the author of its commits.

        It reads only what the rooms let the principal see, and writes only what its trust covers.
        """
        if isinstance(self.backend, Gate):
            raise InputError(f"this handle acts for {self.backend.principal.name!r} already")
        if principal.trust == "partner":
            return self._twin(author=principal.name)
        gate: Backend = Gate(self, principal)
        return self._twin(author=principal.name, backend=gate, rooms=set())

    async def at(self, moment: int | datetime) -> Universe:
        """Return this universe as it was at a commit or a time: for reading, also by libraries and cupboards.

        Who acts for a principal sees there what it may see now.
        """
        await self._ready()
        seq = await seq_of(self.backend, moment)
        inner = self.backend.inner if isinstance(self.backend, Gate) else self.backend
        past: Any = await find_past(inner, seq or 0)
        backend = self.backend.over(past, self.backend.room) if isinstance(self.backend, Gate) else past
        return self._twin(backend=backend, rooms=set())

    @property
    def past(self) -> Past | None:
        """The moment that this handle reads at, by `at`; None for the present."""
        backend = self.backend.inner if isinstance(self.backend, Gate) else self.backend
        return backend if isinstance(backend, Past) else None

    def present(self) -> Universe:
        """Return the same handle for the present."""
        past = self.past
        if past is None:
            return self
        if isinstance(self.backend, Gate):
            return self._twin(backend=self.backend.over(past.inner, self.backend.room))
        return self._twin(backend=past.inner)

    def _twin(self, **changed: Any) -> Universe:
        twin = object.__new__(Universe)
        twin.__dict__.update(self.__dict__, **changed)
        return twin

    def _check(self) -> None:
        if self._life.closed:
            raise Closed("this universe is closed", hint="open it again: `async with dgent.open(...) as u`")
        if self._life.loop is None:
            hint = "use `async with dgent.open(...) as u`, or `u = await dgent.open(...)`"
            raise Closed("this universe was never opened: dgent.open was not awaited", hint=hint)
        if asyncio.get_running_loop() is not self._life.loop:
            raise Closed(
                "this universe belongs to another event loop", hint="open one in this loop, or use dgent.sync"
            )

    @property
    def storage(self) -> StorageProvider:
        """The stores beside the records: tables, vectors, blobs and telemetry."""
        from dgent.universe.storage import StorageProvider  # loads when it is used

        if isinstance(self.backend, Gate):
            return StorageProvider(self)
        if self._life.provider is None:
            self._life.provider = StorageProvider(self)
        found: StorageProvider = self._life.provider
        return found

    @property
    def adapters(self) -> Adapters:
        """The application tables that are registered here: `u.adapters.register(adapter)`."""
        self._check()
        from dgent.universe.adapters import Adapters  # loads when it is used

        if self._life.adapters is None:
            self._life.adapters = Adapters()
        found: Adapters = self._life.adapters
        return found

    # -- schemas --------------------------------------------------------------------------

    def register(self, *schemas: Schema[Any]) -> None:
        """Register schemas; a contract or step that is wrong raises here, before any data."""
        for schema in schemas:
            if self.contracts.add(schema):
                self._undeclared.append(schema)

    def schema_for(self, kind: type[T] | str) -> Schema[Any]:
        """Return the registered schema of a contract type or a name."""
        return self.contracts.find(kind)

    async def schemas(self, *, partial: bool = False) -> builtins.list[SchemaStats]:
        """Return what the store holds of each schema."""
        return schemas_of(await self.stats(), partial or self._partial)

    async def versions(self, schema: str | type) -> dict[int, int]:
        """Return how many live records there are of each stored version of a schema."""
        await self._ready()
        name = schema if isinstance(schema, str) else self.schema_for(schema).name
        return await self.backend.versions(name)

    async def _ready(self) -> None:
        """Check the handle and declare new schemas; every use comes through here."""
        self._check()
        if not self._undeclared:
            return
        async with self._declaring:
            while self._undeclared:
                schema = self._undeclared[0]
                declared = await self._builds.declare(self.backend, schema, self.contracts)
                self._undeclared.remove(schema)
                self._watch_folds(schema)
                if declared.disputed:
                    warn_of_dispute(schema)
                if declared.texts:
                    warn_of_texts(schema)

    def _watch_folds(self, schema: Schema[Any]) -> None:
        """Count the records of a schema from now on, to index texts or vectors when there are enough."""
        if schema.text or schema.vector or schema.embed:
            self._texts[schema.name] = 0
        if schema.embed and self._embedding is not None:
            backend = self.backend.inner if isinstance(self.backend, Gate) else self.backend
            self._embedding.add(schema, backend, self.contracts, self._builds)

    async def indexed(self) -> None:
        """Wait until every old record is in the declared indexes; where that has failed, try again."""
        await self._ready()
        await self._builds.wait(self.backend, self.contracts)

    def start_indexing(self, schema: str, view: View) -> None:
        """Start to index the old records of a schema in the background, as somebody sees them."""
        self._builds.start(self.backend, schema, view)

    async def drop_index(self, schema: str, path: str) -> None:
        """Drop a declared index."""
        await self._ready()
        await self.backend.drop_index(schema, path)
        self._builds.start(self.backend, schema, self.contracts)
        await self.indexed()

    # -- writing --------------------------------------------------------------------------

    async def commit(
        self,
        ops: Sequence[Op],
        *,
        key: str | None = None,
        guard: Guard | None = None,
        note: str | None = None,
        kind: Kind = "data",
        of_seq: int | None = None,
        statements: tuple[BoundStatement, ...] = (),
    ) -> Committed:
        """Do all ops or none: the one way to change anything.

        `statements` are those that `check_statement` returned, and are done or not with the ops.
        """
        self._check()
        if self._undeclared:
            await self._ready()
        commit = Commit(ops, key, guard, self.author, note, kind, of_seq, self._room, statements=statements)
        done = await self.backend.commit(commit, self.contracts)
        if self._texts:
            self._count_texts(ops)
        return done

    async def check_statement(self, query: str, params: Params | None = None) -> BoundStatement:
        """Return a statement on the caller's own tables for a commit; Denied below partner trust.

        Unsupported where records and tables are not in one database.
        """
        await self._ready()
        if isinstance(self.backend, Gate):
            _ = self.storage.relational  # raises Denied
        check: Any = getattr(self.backend, "check_statement", None)
        if check is None or "url" in self._life.storage.get("relational", {}):
            raise Unsupported(
                f"no statement can be part of a transaction of {self.backend.name}, which has no tables",
                hint="sqlite and postgres can do it, where storage.relational.url is not set",
            )
        found: BoundStatement = await check(query, params)
        return found

    def _count_texts(self, ops: Sequence[Op]) -> None:
        """Start to index texts when enough records were written."""
        for op in ops:
            schema = op.datum.schema or "" if isinstance(op, Put) else None
            if schema in self._texts:
                if self._embedding is not None:
                    self._embedding.wake()
                self._texts[schema] += 1
                if self._texts[schema] >= search.FOLD_AT:
                    self._texts[schema] = 0
                    self._builds.start(self.backend, schema, self.contracts)

    @overload
    async def remember(  # type: ignore[overload-overlap]  # a dict is no T of a contract
        self, value: dict[str, Any], *, schema: None = None, **fields: Any
    ) -> Datum: ...
    @overload
    async def remember(
        self,
        value: T,
        *,
        schema: str | type | Schema[Any] | None = None,
        id: str | None = None,
        tags: Iterable[str] | None = None,
        author: str | None = None,
        source: str | None = None,
        parent: Any = None,
        parent_id: str | None = None,
        content: bytes = b"",
        created_at: datetime | None = None,
        expect: Expect = None,
        key: str | None = None,
        note: str | None = None,
    ) -> Crystal[T]: ...
    async def remember(  # type: ignore[misc]  # the `fields` are those below
        self,
        value: T,
        *,
        schema: str | type | Schema[Any] | None = None,
        id: str | None = None,
        tags: Iterable[str] | None = None,
        author: str | None = None,
        source: str | None = None,
        parent: Any = None,
        parent_id: str | None = None,
        content: bytes = b"",
        created_at: datetime | None = None,
        expect: Expect = None,
        key: str | None = None,
        note: str | None = None,
    ) -> Crystal[T] | Datum:
        """Store a value and return it as a crystal; its type says of which schema it is, or `schema` does.

        A dict without a schema becomes a plain datum, which comes back as `get` gives it. What caused it is
        its `parent`: a crystal, a datum or an id; or `parent_id`.
        """
        self._check()
        if parent_id is not None:
            if parent is not None:
                raise InputError("parent and parent_id cannot be combined", hint="give one of them")
            parent = parent_id
        usual = schema is None and id is None and author is None and source is None and parent is None
        if usual and created_at is None and key is None and not content:
            if expect is None and note is None and not self._undeclared:
                together = self._fresh.put(
                    self.backend, self.contracts, value, tags, self.author, self._room, self._texts
                )
                fresh = None if together is None else await together
                if fresh is not None:
                    return Crystal(fresh, value, fresh.schema or "", fresh.schema_version or 1)
            op = write.fresh_op(self.contracts, value, tags, self.author, expect)
            if op is not None:
                stored = await self._put(op, None, note)
                return Crystal(stored, value, stored.schema or "", stored.schema_version or 1)
        datum, settled = write.new_datum(
            self.contracts,
            value,
            schema=schema,
            id=id,
            tags=tags,
            author=self.author if author is None else author,
            source=source,
            parent=parent,
            content=content,
            created_at=created_at,
            key=key,
        )
        stored = await self._put(Put(datum, expect, None, True), key, note)
        if datum.schema is None:
            return stored
        return Crystal(stored, settled, datum.schema, datum.schema_version or 1)

    async def store(
        self, thing: Any, *, expect: Expect = None, key: str | None = None, note: str | None = None
    ) -> Any:
        """Store a changed crystal, or a datum; with `expect=crystal.rev` only if nobody was faster."""
        self._check()
        op, value = write.store_op(self.contracts, thing, expect)
        stored = await self._put(op, key, note)
        if isinstance(thing, Crystal):
            return Crystal(stored, value, stored.schema or "", stored.schema_version or 1)
        return stored

    async def update(
        self, crystal: Crystal[T], /, *, expect: Expect | write.Read = "read", **fields: Any
    ) -> Crystal[T]:
        """Store a crystal with fields of its value changed: `await u.update(note, weight=8)`.

        Raises VersionConflict if the record was changed since the crystal was read; `expect=None` overwrites.
        """
        self._check()
        op, value = write.update_op(self.contracts, crystal, fields, expect)
        try:
            stored = await self._put(op, None, None)
        except VersionConflict as error:
            write.add_update_hint(error)
            raise
        return Crystal(stored, value, stored.schema or "", stored.schema_version or 1)

    async def put(
        self, datum: Datum, *, expect: Expect = None, key: str | None = None, note: str | None = None
    ) -> Datum:
        """Store a datum as it is; returns it with its rev and seq."""
        self._check()
        return await self._put(write.put_op(self.contracts, datum, expect), key, note)

    async def _put(self, op: Put, key: str | None, note: str | None) -> Datum:
        # As `commit` does, without another coroutine: single records are written all day.
        if self._undeclared:
            await self._ready()
        commit = Commit((op,), key, None, self.author, note, room=self._room)
        done = await self.backend.commit(commit, self.contracts)
        if self._texts:
            self._count_texts((op,))
        written = done.written[0]
        if written.rev == 1 and written.changed and not done.repeated:
            if op.raw is not None:
                return stamp_fresh(op.datum, 1, written.seq, written.at_us)
            return stamp(op.datum, 1, written.seq, written.at_us, self.author)
        return (await write.apply_written(self.backend, (op.datum,), done, self.author))[0]

    async def put_many(
        self, datums: Iterable[Datum], *, key: str | None = None, note: str | None = None
    ) -> builtins.list[Datum]:
        """Store many datums in one commit: all or none."""
        self._check()
        if not isinstance(datums, Iterable):
            raise InputError(f"put_many takes datums, not {type(datums).__name__}", field="datums")
        many = builtins.list(datums)
        with pause(len(many)):
            ops = [write.put_op(self.contracts, datum, None) for datum in many]
        if not ops:
            return []
        done = await self.commit(ops, key=key, note=note)
        return await write.apply_written(self.backend, [op.datum for op in ops], done, self.author)

    async def delete(
        self, id: str, *, expect: Expect = None, key: str | None = None, note: str | None = None
    ) -> bool:
        """Delete a record; False when there was none. Its history stays until `forget`."""
        self._check()
        done = await self.commit((Delete(ids.check_id(id), expect),), key=key, note=note)
        return bool(done.written) and done.written[0].changed

    async def outcome(self, key: str) -> Committed | None:
        """Return the answer to a write with an idempotency key; None if it never happened."""
        await self._ready()
        return await self.backend.outcome(ids.check_id(key, "key"))

    def transaction(self, *, note: str | None = None) -> Transaction:
        """Return a transaction for reads and changes, all or none: `async with u.transaction() as tx`."""
        self._check()
        return Transaction(self, note)

    async def transact(
        self,
        work: Callable[[Transaction], Awaitable[R]],
        *,
        attempts: int = 8,
        lock: str | None = None,
        note: str | None = None,
    ) -> R:
        """Run a function in a transaction, again when another commit was faster.

        Calls of this process that name the same `lock` queue up instead of conflicting.
        """
        return await transact(self, work, attempts, lock, note)

    # -- reading --------------------------------------------------------------------------

    def _source(self, partial: bool) -> Backend:
        """Return the backend of a read: the store, or for a partial answer the local copy."""
        take = partial or self._partial
        found: Backend = getattr(self.backend, "at_hand", self.backend) if take else self.backend
        return found

    async def get(self, id: str, *, as_of: AsOf = None, raw: bool = False, partial: bool = False) -> Any:
        """Return a record as a crystal; raw when its schema is unknown here; None when there is none.

        Raises UpgradeFailed or DecodeFailed when the record cannot become a value; `raw=True` always works.
        This and every other read raises Unavailable while the store is unavailable; with `partial=True` the
        local copy answers, which may lack records.
        """
        self._check()
        ids.check_id(id)
        seq = None if as_of is None else await seq_of(self.backend, as_of)
        datum = await self._source(partial).get(id, seq, lazy=not raw)
        if raw or datum is None:
            return datum
        return None if self.contracts.is_foreign(datum, self._room) else self.contracts.crystal(datum)

    async def get_many(
        self, ids_: Sequence[str], *, as_of: AsOf = None, raw: bool = False, partial: bool = False
    ) -> builtins.list[Any]:
        """Return one answer for each id, all of one moment; unreadable records come back raw."""
        self._check()
        if isinstance(ids_, str) or not isinstance(ids_, Iterable):
            raise InputError(f"get_many takes ids, not {type(ids_).__name__}", field="ids")
        found = await self._source(partial).get_many(builtins.list(ids_), await seq_of(self.backend, as_of))
        if raw:
            return [*found]
        is_foreign, lenient = self.contracts.is_foreign, self.contracts.lenient
        return [None if d is None or is_foreign(d, self._room) else lenient(d) for d in found]

    async def exists(self, id: str, *, partial: bool = False) -> bool:
        """Return whether a live record has this id."""
        self._check()
        return await self._source(partial).get(ids.check_id(id)) is not None

    async def query(
        self,
        query: Query | None = None,
        *,
        as_of: AsOf = None,
        raw: bool = False,
        partial: bool = False,
        **filters: Any,
    ) -> builtins.list[Any]:
        """Return matching records: `u.query(Query(schema="note"))`, or `u.query(schema="note")` for short.

        A record that cannot become a value comes back raw with the reason.
        """
        self._check()
        return (await self.page(query_of(query, filters), as_of=as_of, raw=raw, partial=partial)).items

    async def page(
        self, query: Query, *, as_of: AsOf = None, raw: bool = False, partial: bool = False
    ) -> Page:
        """Return matching records with a cursor for the next page; a `partial` one says so."""
        self._check()
        page = await self._page(check_query(query), as_of, partial)
        made = [raw_of(datum) for datum in page.items] if raw else self.contracts.lenient_all(page)
        return Page(made, page.explain, page.further, partial=page.partial)

    async def recall(
        self, query: Query | str | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> Recalled[Any]:
        """Return matching records that are typed values here; unreadable ones are in `.problems`.

        A text is the name of a schema, or words to search for: then the records that fit best come first.
        """
        self._check()
        if isinstance(query, str):
            schema = self.contracts.match_name(query)
            if schema is None and as_of is None:
                wanted = query_of(None, filters)
                hits = await self.search_among(None, query, wanted, min(wanted.limit or MAX_K, MAX_K))
                return self.contracts.pick_crystals(hit.record for hit in hits)
            query, filters = None, {**filters, "schema": schema or query}
        wanted = query_of(query, filters)
        doubts = None if wanted.where is None else Doubts(self.contracts, wanted)
        found = self.contracts.lenient_all(await self._page(wanted, as_of, partial, doubts))
        if doubts is not None:
            found += await doubts.load(self, as_of, partial)
        return self.contracts.pick_crystals(found)

    async def _page(self, query: Query, as_of: AsOf, partial: bool, view: View | None = None) -> Page:
        if self._undeclared:
            await self._ready()
        seq = None if as_of is None else await seq_of(self.backend, as_of)
        return await self._source(partial).query(self.contracts.check(query), view or self.contracts, seq)

    async def search(
        self,
        text: str,
        query: Query | None = None,
        *,
        k: int = 10,
        mode: Mode = "auto",
        as_of: AsOf = None,
        partial: bool = False,
        **filters: Any,
    ) -> Hits[Any]:
        """Return the records whose texts fit the words best; a query or filters narrow them.

        Any text is a search: `"…"` is a phrase, `word*` the beginning of a word. With an embedder and
        embedded texts they may also fit in meaning; `mode="text"` or `"meaning"` asks for one alone.
        """
        self._check()
        wanted = self.contracts.check(query_of(query, filters))
        return await self.search_among(None, text, wanted, search.check_k(k), as_of, partial, mode)

    async def search_among(
        self,
        among: Sequence[str] | None,
        text: str,
        query: Query,
        k: int,
        as_of: AsOf = None,
        partial: bool = False,
        mode: Mode = "auto",
    ) -> Hits[Any]:
        """Search records of some schemas as if they were one; of all for None, unless the query names one."""
        await self._ready()
        words, mode = search.parse(text), check_mode(mode)
        then = self.past
        seq = await seq_of(self.backend, then.seq if as_of is None and then is not None else as_of)
        request = SearchRequest(words, query, self.contracts, k, seq, among=among)
        found, legs, note = await self._search_fresh(Search(text, request), mode, partial)
        for schema in found.behind:
            self._texts.setdefault(schema, 0)  # one that nobody declared is kept up from now on
            view = self._room_texts.view_of(schema, self.contracts)
            self._builds.start(self.backend, schema, view)
        hits = search.make_hits(self.contracts, words, found)
        hits.legs, hits.note = legs, note
        return hits

    async def _search_fresh(self, asked: Search, mode: Mode, partial: bool) -> Searched:
        """Search with the texts of rooms up to date; at once if nothing was committed since they were."""
        schemas, as_of = asked.request.schemas, asked.request.as_of
        source, texts, unlimited = self._source(partial), self._room_texts, self._unlimited()
        if as_of is not None:
            own = await self.refresh_texts(schemas)
            if self.degraded is None:
                own = {**own, **await texts.find_at(unlimited, schemas, as_of)}
            return await search_both(self._embedding, source, asked.with_own(own), mode)
        steady = texts.steady_seq(unlimited, schemas) if self._embedding is None else None
        if steady is not None:
            found = await search_both(None, source, asked, mode)
            if found.page.seq == steady:
                return found
        before = texts.common_seq(unlimited, schemas)
        own = await self.refresh_texts(schemas)
        found = await search_both(self._embedding, source, asked.with_own(own), mode)
        texts.note_search(before, found.page.seq)
        return found

    def _unlimited(self) -> Universe:
        """Return the universe that shows everything."""
        return self.backend.universe if isinstance(self.backend, Gate) else self.present()

    async def surface(
        self,
        text: str | None = None,
        query: Query | None = None,
        *,
        seed: int | str = 0,
        entropy: float = 0.7,
        k: int = 1,
        seen: Mapping[str, datetime] | None = None,
        rest: timedelta = timedelta(days=1),
        now: datetime | None = None,
        **filters: Any,
    ) -> builtins.list[Any]:
        """Return up to `k` records that are related to a text, old, and were not seen within `rest`.

        `seen` has the time when each record was last seen, by id. `entropy` is how much chance counts, from 0
        (the best fit) to 1; the same `seed` draws the same. Without a text the oldest records are looked at.
        """
        from dgent.universe.surface import surface  # few programs use it

        return await surface(
            self, text, query, seed=seed, entropy=entropy, k=k, seen=seen, rest=rest, now=now, **filters
        )

    async def embedded(self, *, progress: Progress | None = None) -> int:
        """Embed now all texts that wait, and return how many versions that were; raises EmbedderFailed."""
        await self._ready()
        if self._embedding is None:
            raise Unsupported("there is no embedder here", hint="give dgent.open(..., embedder=...)")
        return await self._embedding.run(self.backend, self.contracts, self._builds, progress)

    async def embedding(self, *, check: bool = False) -> EmbeddingReport:
        """Return how far embedding is, and what is wrong with it; `check` asks the embedder for a vector."""
        await self._ready()
        if check and self._embedding is not None:
            await self._embedding.check()
        return await report_embedding(self._embedding, self.backend)

    async def declare_vectors(self, schema: Schema[Any]) -> None:
        """Declare the schema of the caller's own vectors; SchemaError when the store has others there."""
        await self._ready()
        async with self._declaring:
            await self._builds.declare(self.backend, schema, self.contracts)
        if self.contracts.by_name(schema.name) is None:
            self.contracts.add(schema)
        self._watch_folds(schema)

    async def search_vectors(self, vector: bytes, query: Query, k: int, *, as_of: AsOf = None) -> VectorPage:
        """Return the matching records of a schema whose vectors are nearest to one, as 32-bit numbers."""
        await self._ready()
        seq = None if as_of is None else await seq_of(self.backend, as_of)
        wanted = self.contracts.check(query)
        found = await self.backend.search_vectors(vector, wanted, self.contracts, k, seq)
        if found.behind and query.schema is not None:
            self._builds.start(self.backend, query.schema, self.contracts)
        return found

    def vectors(
        self, name: str, *, dim: int, metric: Metric = "cosine", indexes: Iterable[str] = ()
    ) -> Vectors:
        """Return the caller's own vectors under a name: numbers of one dimension, each with metadata.

        `metric` is `"cosine"`, `"dot"` or `"l2"`; `indexes` are fields of the metadata that `where` finds
        quickly. Needs numpy: `pip install 'dgent[vectors]'`.
        """
        return Vectors(self, name, dim, metric, tuple(indexes))

    async def refresh_texts(self, schemas: Sequence[str] | None) -> OwnVersions:
        """Bring the texts of rooms up to date for a search of some schemas, or of all.

        Returns texts that could not be stored, and count instead of the stored ones.
        """
        if not getattr(self.backend, "holds_rooms", True):
            return NONE_OWN  # the server does
        return await self._room_texts.prepare(self._unlimited(), self._builds, schemas)

    async def count(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> int:
        """Return how many records match; all of them without a query."""
        await self._ready()
        wanted = self.contracts.check(query_of(query, filters))
        return await self._source(partial).count(wanted, self.contracts, await seq_of(self.backend, as_of))

    # Named as in the protocol; inside this class the type is therefore `builtins.list`.
    async def list(
        self,
        prefix: str | None = None,
        *,
        after: datetime | None = None,
        limit: int | None = 100,
        partial: bool = False,
    ) -> builtins.list[Datum]:
        """Return raw records, newest first, whose id has a prefix and that were created after a time."""
        self._check()
        since = None if after is None else since_after(after)
        if since is None and after is not None:
            return []
        wanted = Query(prefix=prefix or None, since=since, limit=limit)
        return await self.query(wanted, raw=True, partial=partial)

    async def iterate(
        self,
        query: Query | None = None,
        *,
        as_of: AsOf = None,
        raw: bool = False,
        partial: bool = False,
        **filters: Any,
    ) -> AsyncIterator[Any]:
        """Yield every matching record as of one moment, however many, a page at a time.

        All of them unless the query, or `limit`, says how many.
        """
        await self._ready()
        query = query_of(query, {"limit": None, **filters} if query is None else filters)
        # What is at hand of an unavailable store is of no one moment.
        partial = partial or self._partial
        now = None if partial and self.degraded is not None else await self.seq()
        seq = now if as_of is None else await seq_of(self.backend, as_of)
        left = check_query(query).limit
        page_query = query.replace(limit=PAGE if left is None else min(PAGE, left))
        while True:
            page = await self.page(page_query, as_of=seq, raw=raw, partial=partial)
            for found in page.items:
                yield found
            left = None if left is None else left - len(page.items)
            if page.cursor is None or left == 0:
                return
            page_query = page_query.replace(
                cursor=page.cursor, offset=0, limit=PAGE if left is None else min(PAGE, left)
            )

    async def seq(self) -> int:
        """Return the newest commit's number."""
        self._check()
        return await self.backend.last_seq()

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
        if self.blob_folder is not None and not os.path.isdir(self.blob_folder):
            return nullcontext()  # no blob was ever stored
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
) -> Universe:
    """Return a universe at a place: `async with dgent.open("sqlite:///memory.db") as u`, or `await` it.

    Places are `memory:`, `sqlite:///relative.db`, `sqlite:////absolute.db`, `jsonl:folder`,
    `postgresql://user@host/database`, and `https://host/constellation` of a server, with a `token`; without
    one it is the user's default place. `durability` is `"full"` (the default) or `"relaxed"`. `read_url` is
    a replica of a Postgres that answers reads.

    Of a list, the first place is opened and no other. Only `degrade=True` lets it be unavailable: then writes
    are kept in the SQLite file `outbox` until it is back, and the places after it answer reads.
    `"optimistic"` also keeps writes that expect a version, and checks them when it is back. With
    `choose="priority"` the first place of the list that answers is opened, and `u.backend` says which: each
    is a store of its own, and what was written to one is not in the others.

    A store of an older storage format is upgraded when it is opened, a SQLite file after a backup beside it.
    `upgrade="no-backup"` makes none, `"never"` raises FormatTooOld instead.

    An `embedder` makes vectors of the texts that schemas name in `embed`: one of `dgent.embedder`, anything
    like it, or `"minilm"`. Without a place and an embedder it is that of the user's settings.

    `storage` places ports beside the store elsewhere, like the tables `[storage.…]` of the settings:
    `{"telemetry": {"url": "sqlite:///events.db", "keep_days": 30}}`.
    """
    by_settings = url is None and backend is None
    if isinstance(embedder, str) or (embedder is None and by_settings):
        from dgent.embedder.named import find_embedder, make_embedder  # loads when it is used

        embedder = find_embedder() if embedder is None else make_embedder(embedder)
    others: tuple[str, ...] = ()
    choices: tuple[Backend, ...] = ()
    if choose is not None:
        choices = backends_at(
            url,
            choose,
            backend,
            degrade,
            durability=durability,
            read_url=read_url,
            upgrade=upgrade,
            token=token,
        )
        backend = choices[0]
    if backend is None:
        backend, others = backend_at(
            url,
            degrade,
            outbox,
            durability=durability,
            read_url=read_url,
            upgrade=upgrade,
            token=token,
        )
    made = Universe(backend, author=author, embedder=embedder)
    made._life.others, made._life.choices = others, choices
    if storage is None and by_settings:
        from dgent.config.settings import default_storage  # loads when it is used

        storage = default_storage()
    made._life.storage = storage or {}
    return made
