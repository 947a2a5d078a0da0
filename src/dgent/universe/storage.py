"""The stores of one place together: tables, vectors, blobs and telemetry beside the records."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dgent.errors import Denied, InputError, Unsupported
from dgent.model.polynomial import StorageState
from dgent.model.query import Query
from dgent.store import registry
from dgent.store.port.relational import IRelationalStore
from dgent.store.port.telemetry import ITelemetryStore
from dgent.store.port.vector import SearchResult
from dgent.store.read_only import check_writable
from dgent.universe.blob import BlobStore, open_blobs
from dgent.universe.gate import Gate
from dgent.universe.machine import machine_of, obey
from dgent.universe.relational import RelationalStore
from dgent.universe.telemetry import telemetry_of
from dgent.universe.vectors import PREFIX, Vectors

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

P = TypeVar("P")

VECTORS = "storage"
"""The name under which the vectors of the vector port are stored: `u.vectors("storage", …)`."""


class StorageProvider:
    """All stores of one place: `await StorageProvider.from_config()`, or `u.storage`.

    Each store opens when it is first used. Below partner trust there are no tables: SQL has no gate.
    """

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self._owns = False
        self._relational: RelationalStore | None = None
        self._vector: VectorStore | None = None
        self._blob: BlobStore | None = None

    def __repr__(self) -> str:
        return f"<StorageProvider of {self.universe!r}>"

    # -- making one -----------------------------------------------------------------------

    @classmethod
    async def from_config(cls, config: str | Path | None = None) -> StorageProvider:
        """Open the stores that the settings name; `config` is another file than the user's own.

        A store that cannot be opened raises, or keeps writes in the outbox where the settings allow that;
        another or an empty one is never opened in its place.
        """
        return await cls._open(find_universe(config))

    @classmethod
    async def create_minimal(cls) -> StorageProvider:
        """Open stores in memory, and warn that nothing lasts: everything is gone when the program ends."""
        return await cls._open(make_minimal(stacklevel=3))

    @classmethod
    async def _open(cls, universe: Universe) -> StorageProvider:
        await universe.open()
        return universe.storage.adopt()

    def adopt(self) -> StorageProvider:
        """Have `close` close the universe, too."""
        self._owns = True
        return self

    @property
    def owns_universe(self) -> bool:
        """True if `close` closes the universe, too."""
        return self._owns

    async def run_migrations(self) -> list[str]:
        """Bring everything to the newest format and return what was done; an empty list if nothing was.

        The format of the store is upgraded when it is opened, whole or not at all, and records when they
        are read. A second run does nothing.
        """
        self._check_alone("migrate the stores")
        async with machine_of(self.universe).migrating():
            upgraded = getattr(self.universe.backend, "upgraded", None)
            done = [str(step) for step in upgraded.steps] if upgraded is not None else []
            await self.universe.stats()
            return done

    @property
    def state(self) -> StorageState:
        """The work in the stores now: reads and writes, a migration, or a recovery."""
        return machine_of(self.universe).state

    async def recover(self) -> None:
        """Leave a recovery once the store is healthy again; raises what is still wrong."""
        self._check_alone("end a recovery")
        await machine_of(self.universe).recover(by_doctor=True)

    def _check_alone(self, what: str) -> None:
        """Refuse what would stop everybody else, or takes their decisions, below partner trust."""
        if isinstance(self.universe.backend, Gate):
            who = self.universe.backend.principal
            raise Denied(f"{who.name} is {who.trust} and may not {what}", hint="it takes partner")

    # -- the stores -----------------------------------------------------------------------

    @property
    def relational(self) -> RelationalStore:
        """The caller's own tables; raises Denied below partner trust."""
        if isinstance(self.universe.backend, Gate):
            who = self.universe.backend.principal
            raise Denied(
                f"{who.name} is {who.trust} and may not run SQL, which no gate looks at",
                hint="it takes partner; read and write records instead",
            )
        if self._relational is None:
            self._relational = self._obey(RelationalStore(self.universe, self._make_relational))
        return self._relational

    def _obey(self, port: P) -> P:
        return obey(port, machine_of(self.universe))

    def _make_relational(self) -> IRelationalStore:
        check_writable(self.universe.backend)
        if url := self._place_of("relational"):
            return registry.relational_for(url)
        backend: Any = self.universe.backend
        backend = getattr(backend, "reachable_store", backend)
        if backend.name in (
            "sqlite",
            "postgres",
        ):  # that of a folder of lines could be built anew at any time
            made: IRelationalStore = backend.relational()
            return made
        if backend.name == "memory":
            return registry.relational_for("memory:")
        raise Unsupported(
            f"the {backend.name} engine has no tables",
            hint="sqlite, postgres and memory have; or set storage.relational.url",
        )

    @property
    def vector(self) -> VectorStore:
        """Vectors with metadata, found by nearness; records like any others of the universe."""
        if self._vector is None:
            self._vector = self._obey(VectorStore(self.universe))
        return self._vector

    @property
    def blob(self) -> BlobStore:
        """Bytes under keys, each content kept once."""
        if self._blob is None:
            url = self._place_of("blob")
            remote = getattr(self._reached, "blob_store", None) if url is None else None
            if remote is not None:
                self._blob = cast("BlobStore", remote())  # the same calls, and the server's machine
            else:
                self._blob = self._obey(open_blobs(self.universe, url))
        return self._blob

    @property
    def telemetry(self) -> ITelemetryStore:
        """Events of agents, kept apart from the records."""
        remote = getattr(self._reached, "telemetry_store", None)
        if remote is not None and self._place_of("telemetry") is None:
            return cast("ITelemetryStore", remote())
        return self._obey(telemetry_of(self.universe))

    @property
    def _reached(self) -> Any:
        """The store itself, of one that may be unavailable; a handle that is limited here has none."""
        backend = self.universe.backend
        return None if isinstance(backend, Gate) else getattr(backend, "reachable_store", backend)

    def _place_of(self, port: str) -> str | None:
        """Return the URL that the settings have for a store; None where it belongs to the records' store."""
        found: str | None = self.universe._life.storage.get(port, {}).get("url")
        return found

    # -- the end --------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the stores; a provider that opened the universe closes that, too."""
        if self._owns:
            self._owns = False
            await self.universe.close()  # which closes the stores first
        else:
            await self.close_ports()

    async def close_ports(self) -> None:
        """Close the tables; the universe itself closes the other stores."""
        tables, self._relational = self._relational, None
        if tables is not None:
            await tables.close()

    async def __aenter__(self) -> StorageProvider:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def find_universe(config: str | Path | None) -> Universe:
    """Return the universe that the settings name, not opened yet."""
    from dgent.config import settings  # the only reader of home and environment
    from dgent.universe.universe import open

    found = settings.load_default(config)
    return open(
        found.urls,
        author=found.author,
        durability=found.durability,
        degrade=found.degrade,
        outbox=found.outbox if found.degrade else None,
        token=found.token if registry.is_server(found.url) else None,
        storage=found.storage,
    )


def make_minimal(stacklevel: int) -> Universe:
    """Return a universe in memory, with a warning that nothing in it lasts."""
    from dgent.universe.universe import open

    warnings.warn(
        "StorageProvider.create_minimal() keeps everything in memory: nothing is stored on disk, and all"
        " of it is lost when this program ends; use StorageProvider.from_config() to keep it",
        UserWarning,
        stacklevel=stacklevel,
    )
    return open("memory:")


class VectorStore:
    """Vectors by id, compared by cosine: a thin face of `u.vectors`. The first one sets the dimension."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._vectors: Vectors | None = None

    async def _open(self, dim: int | None) -> Vectors | None:
        """Return the vectors; None if there are none yet and no dimension is given."""
        if self._vectors is None:
            found = await self._universe.query(Query(schema=PREFIX + VECTORS, limit=1), raw=True)
            if found:
                dim = len(found[0].content) // 4
            if dim is None:
                return None
            self._vectors = self._universe.vectors(VECTORS, dim=dim)
        return self._vectors

    async def add(self, id: str, vector: Sequence[float], metadata: dict[str, Any] | None = None) -> None:
        """Store a vector; one that is there under this id is replaced."""
        vectors = await self._open(len(vector))
        assert vectors is not None
        await vectors.add(vector, id=id, metadata=metadata)

    async def search(
        self, query: Sequence[float], k: int = 10, filter: Mapping[str, Any] | None = None
    ) -> list[SearchResult]:
        """Return the nearest vectors whose metadata has all the values of `filter`, nearest first."""
        vectors = await self._open(None)
        if vectors is None:
            return []
        if filter is not None and not isinstance(filter, Mapping):
            raise InputError(f"filter must be a dict, not {type(filter).__name__}", field="filter")
        wanted = Query(where=dict(filter), limit=None) if filter else None
        found = await vectors.search(query, k, wanted)
        return [SearchResult(hit.id, hit.score, dict(hit.metadata)) for hit in found]

    async def delete(self, id: str) -> bool:
        """Delete a vector; False when there was none."""
        vectors = await self._open(None)
        return vectors is not None and await vectors.delete(id)

    async def count(self) -> int:
        """Return how many vectors there are."""
        vectors = await self._open(None)
        return 0 if vectors is None else await vectors.count()

    async def close(self) -> None:
        """Leave the vectors to the universe, which holds them."""
