"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.
# mypy: disable-error-code="overload-overlap"

import builtins
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

from dgent.model.polynomial import StorageState
from dgent.store.backend import Expect
from dgent.store.port.blob import BlobInfo, Collected, Data, PartWriter
from dgent.store.port.relational import Row, SQLRunner
from dgent.store.port.statement import Dialect, Params
from dgent.store.port.telemetry import COLUMNS, Column, TelemetryEvent, TelemetryPage, TelemetryStats, Usage
from dgent.store.port.vector import SearchResult
from dgent.sync import Universe
from dgent.sync.stream import Stream
from dgent.universe.blob import GRACE, BlobPlace
from dgent.universe.relational import Make, _Runner

__all__ = [
    "BlobReader",
    "BlobStore",
    "BlobWriter",
    "ITelemetryStore",
    "RelationalStore",
    "RelationalTransaction",
    "StorageProvider",
    "VectorStore",
]

class BlobReader:
    """A blob that is read part by part; the parts are checked, and the last one comes after the check."""

    @property
    def info(self) -> BlobInfo: ...
    def __init__(self, info: BlobInfo, parts: Stream[bytes]) -> None: ...
    def __iter__(self) -> Stream[bytes]: ...
    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer only at the end; all that are left without a size."""

class BlobWriter:
    """A blob that is written part by part; it is there when the context ends without an error."""

    @property
    def info(self) -> BlobInfo | None: ...
    def __init__(self, upload: PartWriter) -> None: ...
    def write(self, data: Data) -> None:
        """Add bytes, or all of a file."""

class ITelemetryStore(Protocol):
    """A place for events, apart from the memory."""

    def exists(self) -> bool:
        """Return whether there may be events here; makes nothing."""

    def append(self, events: Iterable[TelemetryEvent]) -> int:
        """Store events, all or none; return how many are new. An id that is stored is left as it is."""

    def query(
        self,
        span_id: str | None = None,
        trace: str | None = None,
        kind: str | None = None,
        since: datetime | str | None = None,
        limit: int = 100,
        *,
        until: datetime | str | None = None,
        datum_id: str | None = None,
        instance_id: str | None = None,
        project_hash: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        tool: str | None = None,
    ) -> list[TelemetryEvent]:
        """Return the newest events that meet all conditions; `until` is not included."""

    def usage(
        self,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        by: Sequence[Column] = COLUMNS,
        *,
        agent: str | None = None,
        project_hash: str | None = None,
    ) -> list[Usage]:
        """Return calls, tokens and cost of the events with a model or a tool, oldest day first."""

    def count(self, kind: str | None = None) -> int:
        """Return the number of events."""

    def prune(
        self, older_than_days: float | None = None, max_bytes: int | None = None, *, dry_run: bool = False
    ) -> int:
        """Drop what is older, and then the first to arrive beyond a size; without both, the store's rule."""

    def forget(self, datum_ids: Sequence[str]) -> int:
        """Erase the events of records, without a trace in the files of the store; return how many."""

    def scan(self, after: int = 0, limit: int = 1000) -> TelemetryPage:
        """Return the next events in the order of their arrival, for copies."""

    def stats(self) -> TelemetryStats:
        """Return the size and the age of the store."""

    def check(self, deep: bool = True) -> list[str]:
        """Return what is wrong with the store; `deep` reads every event."""

    def close(self) -> None:
        """Finish what was begun, and release the place."""

class BlobStore:
    """The blobs of a universe: their keys are its records, their bytes are where `contents` has them."""

    def put(
        self, key: str, data: Data, content_type: str | None = None, *, expect: Expect = None
    ) -> BlobInfo:
        """Store bytes under a key: all of an open file, or parts as a generator yields them.

        `expect` is the rev that the key must have, 0 for a key that must not exist.
        """

    def open(
        self,
        key: Any,
        mode: Literal["r", "w"] = "r",
        *,
        content_type: str | None = None,
        expect: Expect = None,
        start: int = 0,
        end: int | None = None,
    ) -> AbstractContextManager[Any]:
        """Open a blob to read it (`"r"`), of a part from `start` to before `end`, or to write it (`"w"`)."""

    def iterate(self, prefix: str = "") -> Stream[BlobInfo]:
        """Yield all blobs in the order of their keys, a page at a time."""

    def __init__(self, universe: Universe, place: BlobPlace) -> None: ...
    def delete(self, key: str, *, expect: Expect = None) -> bool:
        """Delete a key; False when there was none. Its content stays while anything refers to it."""

    def info(self, key: Any) -> BlobInfo | None:
        """Return hash, size and type of a blob by its key, or by a `Ref` to its content."""

    def exists(self, key: Any) -> bool:
        """Return whether there is a blob of a key."""

    def get(self, key: Any) -> bytes | None:
        """Return the bytes of a key or a ref, checked by their hash; None where there is no such key."""

    def list(
        self, prefix: str = "", *, after: str | None = None, limit: int = 1000
    ) -> builtins.list[BlobInfo]:
        """Return a page of blobs in the order of their keys: those after a key, if one is given."""

    def references(self, key: Any) -> int:
        """Return how many keys and records refer to the content of a blob."""

    def collect(self, *, grace: timedelta = GRACE, dry_run: bool = False) -> Collected:
        """Remove contents that nothing refers to, once they have been so for the time of grace.

        The first collection that finds one notes the time; a later one removes it. With a grace of 0 they go
        at once. A content that is being stored is never removed, whatever the grace.
        """

    def forget(self, *keys: str) -> int:
        """Erase keys with their history, and contents that nothing else refers to; return how many keys.

        A content that another process is storing at this very moment stays: it is that one's by now.
        """

    def drop(self, hashes: Iterable[str]) -> int:
        """Remove contents at once, of those that nothing refers to any more; return how many."""

    def close(self) -> None:
        """Close the connections of the contents, if they have some; they open again when they are used."""

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
        """The work in the stores now: reads and writes, a migration, or a recovery."""

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
