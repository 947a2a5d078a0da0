"""The handle of a universe: how it is opened and closed, its twins, and its schemas."""

from __future__ import annotations

import asyncio
import builtins
from abc import ABC, abstractmethod
from collections.abc import Generator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from dgent import ids
from dgent.errors import Closed, Denied, InputError, Unsupported
from dgent.model.schema import Schema
from dgent.store.backend import Backend, SchemaStats, View
from dgent.store.registry import OpenState, open_first, open_store
from dgent.universe import upgrade, write
from dgent.universe.check import schemas_of, seq_of
from dgent.universe.contract import Contracts, warn_of_dispute, warn_of_texts
from dgent.universe.embedding import Embedding
from dgent.universe.expiry import ExpiryKeeper
from dgent.universe.gate import Gate, Principal
from dgent.universe.past import Past, find_past
from dgent.universe.room_texts import RoomTexts
from dgent.universe.stamp import lower_handle
from dgent.universe.transaction import Names

if TYPE_CHECKING:
    from dgent.embedder.embedder import Embedder
    from dgent.universe.adapters import Adapters
    from dgent.universe.storage import StorageProvider
    from dgent.universe.universe import Universe

T = TypeVar("T")


class UniverseHandle(ABC):
    """The life of a universe, and its schemas: what its reads and writes share."""

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
        self._expiry = ExpiryKeeper()
        self._embedding = None if embedder is None else Embedding(embedder)

    @abstractmethod
    def _as_universe(self) -> Universe:
        """Return this handle itself; typed, for what takes a universe."""

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
        return self._as_universe()

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
            self._life.closed, self._life.tail = True, None
            try:
                if self._life.loop is asyncio.get_running_loop():
                    if self._embedding is not None:
                        await self._embedding.cancel()
                    await self._expiry.cancel(self._as_universe())
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
        gate = Gate(self._as_universe(), principal)
        gate = gate.over(lower_handle(self._as_universe(), principal.trust).backend, None)
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

    @property
    def is_read_only(self) -> bool:
        """True if the store was opened with `read_only=True`."""
        backend = self.backend.inner if isinstance(self.backend, Gate) else self.backend
        return bool(getattr(backend, "read_only", False))

    def present(self) -> Universe:
        """Return the same handle for the present."""
        past = self.past
        if past is None:
            return self._as_universe()
        if isinstance(self.backend, Gate):
            return self._twin(backend=self.backend.over(past.inner, self.backend.room))
        return self._twin(backend=past.inner)

    def _twin(self, **changed: Any) -> Universe:
        twin = object.__new__(type(self._as_universe()))
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
            return StorageProvider(self._as_universe())
        if self._life.provider is None:
            self._life.provider = StorageProvider(self._as_universe())
        found: StorageProvider = self._life.provider
        return found

    @property
    def adapters(self) -> Adapters:
        """The application tables that are registered here: `u.adapters.register(adapter)`.

        Raises Denied below partner trust: no gate looks at their rows.
        """
        self._check()
        if isinstance(self.backend, Gate):
            _ = self.storage.relational  # raises Denied
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
        return schemas_of(await self._as_universe().stats(), partial or self._partial)

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
                if schema.lifetime is not None:
                    self._expiry.start(self._as_universe(), schema.lifetime)
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
