"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from dgent.model.polynomial import StorageState
from dgent.store.port.relational import Row, SQLRunner
from dgent.store.port.statement import Dialect, Params
from dgent.store.port.telemetry import ITelemetryStore
from dgent.store.port.vector import SearchResult
from dgent.sync import Universe
from dgent.universe.blob import BlobStore
from dgent.universe.relational import Make, _Runner

__all__ = ["RelationalStore", "RelationalTransaction", "StorageProvider", "VectorStore"]

class RelationalTransaction:
    """An open transaction: `with u.storage.relational.transaction() as tx`."""

    def __init__(self, tables: _Runner, runner: SQLRunner) -> None: ...
    def execute(self, query: str, params: Params | None = None) -> int:
        """Run one statement, or several, and return how many rows the last one changed."""

    def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters; returns how many rows were given."""

    def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""

    def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""

class RelationalStore:
    """The caller's own tables: `u.storage.relational`. Parameters are written `:name` and given by name.

    They are in the database that holds the store, unless the settings name another place. Tables of dgent
    itself cannot be read or written through it; records of the membrane are tables that can be read, and
    that INSERT adds to.
    """

    def __init__(self, universe: Universe, make: Make, *, reads_only: bool = False) -> None: ...
    @property
    def dialect(self) -> Dialect:
        """The dialect of SQL: `sqlite` or `postgres`."""

    def execute(self, query: str, params: Params | None = None) -> int:
        """Run one statement, or several in one transaction, and return how many rows the last one changed."""

    def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters, all or none; returns how many rows were given."""

    def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""

    def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""

    def transaction(self) -> AbstractContextManager[RelationalTransaction]:
        """Run what is done inside in one transaction; an error inside undoes all of it.

        Statements of the store itself, run in the same task, are part of it. On SQLite nobody else writes to
        the file meanwhile, the universe included: keep it short.
        """

    def limit_to_reads(self) -> RelationalStore:
        """Return a handle on the same tables that only reads."""

    def reopen(self) -> None:
        """Let go of the connections; the next statement opens new ones."""

    def close(self) -> None:
        """Close the tables; statements under way end first."""

class VectorStore:
    """Vectors by id, compared by cosine: a thin face of `u.vectors`. The first one sets the dimension."""

    def __init__(self, universe: Universe) -> None: ...
    def add(self, id: str, vector: Sequence[float], metadata: dict[str, Any] | None = None) -> None:
        """Store a vector; one that is there under this id is replaced."""

    def search(
        self, query: Sequence[float], k: int = 10, filter: Mapping[str, Any] | None = None
    ) -> list[SearchResult]:
        """Return the nearest vectors whose metadata has all the values of `filter`, nearest first."""

    def delete(self, id: str) -> bool:
        """Delete a vector; False when there was none."""

    def count(self) -> int:
        """Return how many vectors there are."""

    def close(self) -> None:
        """Leave the vectors to the universe, which holds them."""

class StorageProvider:
    """All stores of one place: `StorageProvider.from_config()`, or `u.storage`.

    Each store opens when it is first used. Below partner trust there are no tables: SQL has no gate.
    """

    @property
    def universe(self) -> Universe: ...
    def __init__(self, universe: Universe) -> None: ...
    def __repr__(self) -> str: ...
    @classmethod
    def from_config(cls, config: str | Path | None = None) -> StorageProvider:
        """Open the stores that the settings name; `config` is another file than the user's own.

        A store that cannot be opened raises, or keeps writes in the outbox where the settings allow that;
        another or an empty one is never opened in its place.
        """

    @classmethod
    def create_minimal(cls) -> StorageProvider:
        """Open stores in memory, and warn that nothing lasts: everything is gone when the program ends."""

    def adopt(self) -> StorageProvider:
        """Have `close` close the universe, too."""

    @property
    def owns_universe(self) -> bool:
        """True if `close` closes the universe, too."""

    def run_migrations(self) -> list[str]:
        """Bring everything to the newest format and return what was done; an empty list if nothing was.

        The format of the store is upgraded when it is opened, whole or not at all, and records when they
        are read. A second run does nothing.
        """

    @property
    def state(self) -> StorageState:
        """What runs in the stores now: reads and writes, a migration, or a recovery."""

    def recover(self) -> None:
        """Leave a recovery once the store is healthy again; raises what is still wrong."""

    @property
    def relational(self) -> RelationalStore:
        """The caller's own tables; raises Denied below partner trust."""

    @property
    def vector(self) -> VectorStore:
        """Vectors with metadata, found by nearness; records like any others of the universe."""

    @property
    def blob(self) -> BlobStore:
        """Bytes under keys, each content kept once."""

    @property
    def telemetry(self) -> ITelemetryStore:
        """Events of agents, kept apart from the records."""

    def close(self) -> None:
        """Close the stores; a provider that opened the universe closes that, too."""

    def close_ports(self) -> None:
        """Close the tables; the universe itself closes the other stores."""

    def __enter__(self) -> StorageProvider: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
