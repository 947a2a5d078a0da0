"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.
# mypy: disable-error-code="overload-overlap"

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, overload

from dgent.embedder.embedder import Embedder
from dgent.errors import Conflict as Conflict
from dgent.errors import Denied as Denied
from dgent.errors import DgentError as DgentError
from dgent.errors import InputError as InputError
from dgent.errors import NotFound as NotFound
from dgent.errors import StorageError as StorageError
from dgent.errors import Unreadable as Unreadable
from dgent.errors import Unsupported as Unsupported
from dgent.errors import VersionConflict as VersionConflict
from dgent.exchange.copy import Copied
from dgent.model.crystal import Crystal as Crystal
from dgent.model.crystal import CrystalMeta as CrystalMeta
from dgent.model.datum import Datum as Datum
from dgent.model.lens import Lens as Lens
from dgent.model.query import Query as Query
from dgent.model.ref import Ref as Ref
from dgent.model.schema import Schema as Schema
from dgent.model.vector import Metric, VectorSpec
from dgent.store.backend import (
    LIVE,
    AsOf,
    Backend,
    BackendStats,
    Change,
    Committed,
    Compacted,
    Expect,
    Forgotten,
    Guard,
    Keep,
    Kind,
    Op,
    Page,
    SchemaStats,
    Version,
    View,
)
from dgent.store.offline.report import Degradation
from dgent.store.port.attached import BoundStatement, Repeat
from dgent.store.port.statement import Params
from dgent.store.search import OwnVersions, VectorPage
from dgent.store.tally import Counts
from dgent.sync.handle import Anywhere as Anywhere
from dgent.sync.handle import anywhere as anywhere
from dgent.sync.runner import BlockingWarning as BlockingWarning
from dgent.sync.storage import StorageProvider
from dgent.sync.stream import Stream as Stream
from dgent.system.progress import Progress
from dgent.universe import relation, upgrade, write
from dgent.universe.adapters import Adapters
from dgent.universe.contract import Contracts, Recalled
from dgent.universe.embedding import EmbeddingReport
from dgent.universe.gate import Principal
from dgent.universe.meaning import Mode
from dgent.universe.past import Past
from dgent.universe.relation import Association, Resolved
from dgent.universe.search import Hits
from dgent.universe.transaction import Names
from dgent.universe.upgrade import Upgraded
from dgent.universe.vectors import VectorHits, VectorRecord
from dgent.universe.write import Read

__all__ = [
    "Anywhere",
    "BlockingWarning",
    "Collection",
    "Conflict",
    "Crystal",
    "CrystalMeta",
    "DataMixin",
    "Datum",
    "Denied",
    "DgentError",
    "Focus",
    "InputError",
    "Lens",
    "NotFound",
    "Query",
    "Ref",
    "Schema",
    "StorageError",
    "Stream",
    "Transaction",
    "Universe",
    "Unreadable",
    "Unsupported",
    "Vectors",
    "VersionConflict",
    "anywhere",
    "copy",
    "get_universe",
    "mirror",
    "open",
    "set_universe",
]
F = TypeVar("F")
T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")

class Collection(Generic[T]):
    """The records of one schema, with the type of its contract."""

    @property
    def schema(self) -> Schema[T]: ...
    def __init__(self, universe: Universe, contract: type[T] | str) -> None: ...
    def remember(self, value: T, **fields: Any) -> Crystal[T]:
        """Store a new value."""

    def update(self, crystal: Crystal[T], /, *, expect: Expect | Read = "read", **fields: Any) -> Crystal[T]:
        """Store a crystal with fields of its value changed, unless its record changed since it was read."""

    def store(self, crystal: Crystal[T], **options: Any) -> Crystal[T]:
        """Store a changed crystal of this schema."""

    def delete(self, id: str, **options: Any) -> bool:
        """Delete a record of this schema; False when there is none."""

    def get(self, id: str, *, as_of: Any = None, partial: bool = False) -> Crystal[T] | None:
        """Return one record; None when there is none, or it is of another schema."""

    def get_many(
        self, ids: Sequence[str], *, as_of: AsOf = None, partial: bool = False
    ) -> builtins.list[Crystal[T] | None]:
        """Return one answer for each id, as `get` does, all of one moment."""

    def exists(self, id: str, *, partial: bool = False) -> bool:
        """Return whether a record of this schema has this id."""

    def history(self, id: str, *, limit: int | None = None) -> builtins.list[Version]:
        """Return the kept versions of a record, newest first."""

    def focus(self, id: str, lens: Lens[T, F]) -> Focus[F]:
        """Return a view of a part of a record's value, which can be changed by itself."""

    def recall(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> Recalled[T]:
        """Return matching records, newest first, now or as of an earlier moment."""

    def page(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> Page:
        """Return matching records with a cursor for the next page."""

    def query(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> Recalled[T]:
        """Return matching records, newest first: `marks.query(tags={"eureka"}, limit=10)`."""

    def search(
        self,
        text: str,
        query: Query | None = None,
        *,
        k: int = 10,
        mode: Mode = "auto",
        as_of: AsOf = None,
        partial: bool = False,
        **filters: Any,
    ) -> Hits[T]:
        """Return the records of this schema that fit the words, their meaning, or both, best."""

    def surface(
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
    ) -> builtins.list[Crystal[T]]:
        """Return records of this schema that are related to a text, old, and were not seen within `rest`."""

    def count(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> int:
        """Return how many records match."""

    def list(
        self, prefix: str | None = None, *, after: datetime | None = None, limit: int | None = 100
    ) -> Recalled[T]:
        """Return records, newest first, whose id has a prefix and that were created after a time."""

    def iterate(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> Stream[Any]:
        """Yield all records that match, however many, as of one moment."""

    def watch(self, since: int | None = None, query: Query | None = None, **filters: Any) -> Stream[Change]:
        """Yield changes of records of this schema."""

    def causal_chain(self, id: str, *, limit: int | None = 10000) -> builtins.list[Any]:
        """Return a record of this schema and its causes, of any schema, oldest first."""

    def resolve(self, crystal: Crystal[T]) -> Resolved:
        """Load all records that a crystal of this schema refers to, in one batch."""

    def referrers(self, id: str, *, limit: int | None = 100) -> builtins.list[Any]:
        """Return the records, of any schema, that refer to an id, newest first."""

    def associate(self, a: Any, b: Any, kind: str = "related", weight: float = 1.0) -> Crystal[Association]:
        """Link a record to one of any schema, or change the weight of their link."""

    def associated(self, id: Any, kind: str | None = None) -> builtins.list[Crystal[Association]]:
        """Return the links of a record at either end, heaviest first."""

    def dissociate(self, a: Any, b: Any, kind: str = "related") -> bool:
        """Remove the link from one record to another; False when there was none."""

    def versions(self) -> dict[int, int]:
        """Return how many live records there are of each stored version of the schema."""

    def upgrade_all(
        self, *, dry_run: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> Upgraded:
        """Rewrite every record of an older version in the newest; safe to stop and run again."""

class Focus(Generic[A]):
    """The part of a record that a lens shows: of a crystal's value, or of a raw datum's data."""

    @property
    def id(self) -> str: ...
    @property
    def lens(self) -> Lens[Any, A]: ...
    def __init__(self, universe: Universe, id: str, lens: Lens[Any, A]) -> None: ...
    def get(self) -> A:
        """Return the part as it is now."""

    def set(self, part: A) -> Any:
        """Change the part; tried again when someone else changes the record at the same time."""

    def modify(self, change: Callable[[A], A]) -> Any:
        """Change the part by a function of its value; tried again like `set`."""

class Vectors:
    """The vectors under one name: `faces = u.vectors("faces", dim=512)`."""

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> VectorSpec: ...
    @property
    def schema(self) -> Schema[Any]: ...
    def __init__(
        self, universe: Universe, name: str, dim: int, metric: Metric, indexes: tuple[str, ...]
    ) -> None: ...
    def __repr__(self) -> str: ...
    def add(
        self,
        vector: Any,
        id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        tags: Iterable[str] = (),
        expect: Expect = None,
        note: str | None = None,
    ) -> str:
        """Store a vector and return its id; under an id that is there already, it takes that one's place.

        The numbers may be a list, a tuple or an array. NaN, infinity, another number of them, and zeros
        alone under the metric cosine raise InputError.
        """

    def add_many(
        self,
        vectors: Any,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        tags: Iterable[str] = (),
        note: str | None = None,
    ) -> list[str]:
        """Store many vectors and return their ids; all are checked before the first is stored.

        `vectors` is a list of vectors or a matrix. They are stored in commits of up to 10,000.
        """

    def delete(self, id: str, *, expect: Expect = None, note: str | None = None) -> bool:
        """Delete a vector; False when there was none. `u.undo` brings it back, `u.forget` erases it."""

    def get(self, id: str, *, as_of: AsOf = None) -> VectorRecord | None:
        """Return one vector; None when there is none under this id and name."""

    def count(self, query: Query | None = None, **filters: Any) -> int:
        """Return how many vectors there are, or how many match: `faces.count(where={"who": "ann"})`."""

    def search(
        self, vector: Any, k: int = 10, query: Query | None = None, *, as_of: AsOf = None, **filters: Any
    ) -> VectorHits:
        """Return the nearest vectors; a query or filters (`where`, `tags`, `author`, …) narrow them.

        The filter comes first: the answer is the nearest of those that match, however few they are. `as_of`
        looks back: the vectors and metadata of then are compared.
        """

class Transaction:
    """Several changes that happen together, if nobody else changed meanwhile what they rely on."""

    @property
    def committed(self) -> Committed | None: ...
    @property
    def reads(self) -> int: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def of_seq(self) -> int | None: ...
    def __init__(self, universe: Universe, note: str | None = None) -> None: ...
    def __enter__(self) -> Transaction: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @overload
    def remember(self, value: dict[str, Any], *, schema: None = None, **fields: Any) -> Datum: ...
    @overload
    def remember(self, value: T, **fields: Any) -> Crystal[T]:
        """Store a new value when the transaction commits; a dict without a schema becomes a plain datum."""

    def store(self, thing: Any, *, expect: Expect = None) -> Any:
        """Store a changed crystal or datum when the transaction commits."""

    def update(
        self, crystal: Crystal[T], /, *, expect: Expect | write.Read = "read", **fields: Any
    ) -> Crystal[T]:
        """Store a crystal with fields of its value changed when the transaction commits.

        Raises VersionConflict if this transaction has changed the record since the crystal was read from it;
        the commit fails if someone else has.
        """

    def put(self, datum: Datum, *, expect: Expect = None) -> Datum:
        """Store a datum when the transaction commits."""

    def delete(self, id: str, *, expect: Expect = None) -> None:
        """Delete a record when the transaction commits."""

    def check(self, id: str, expect: Expect = LIVE) -> None:
        """Have the commit fail unless a record is as expected."""

    def execute(self, query: str, params: Params | None = None, *, rows: int | None = None) -> None:
        """Run a statement on the caller's own tables when the transaction commits, with its records or not.

        It is checked now, and runs in the database's own transaction after the records are written. What it
        runs into then, such as a constraint, undoes the records, too; so does another number of changed rows
        than `rows`. Only SQLite and Postgres can do it.
        """

    def repeat(self, steps: Sequence[Repeat]) -> None:
        """Have the commit run again what a session of SQL ran here and took back, in the same order.

        If a statement then answers other rows, or changes another number of them, the commit fails.
        """

    def get(self, id: str, *, raw: bool = False) -> Any:
        """Return a record as this transaction sees it; None when there is none."""

    def get_many(self, ids_: Sequence[str], *, raw: bool = False) -> list[Any]:
        """Return one answer for each id, as this transaction sees them; unreadable records come back raw."""

    def exists(self, id: str) -> bool:
        """Return whether a record is there, as this transaction sees it."""

    def query(self, query: Query) -> list[Any]:
        """Return matching records, with this transaction's own writes among them."""

    def recall(self, query: Query) -> Recalled[Any]:
        """Return matching records that are typed values; unreadable ones are in `.problems`."""

    def search(self, text: str, query: Query | None = None, *, k: int = 10, **filters: Any) -> Hits[Any]:
        """Return the records whose texts fit the words best, with this transaction's own writes among them.

        A commit of others that changes one of them, or a record that has some of the words and fits the
        filters, is a conflict; what only changes how rare a word is, is none.
        """

    def count(self, query: Query) -> int:
        """Return how many records match, as this transaction sees it."""

    def commit(self) -> Committed:
        """Write everything now; the transaction is over after this."""

class Universe:
    """One store and the schemas this program knows, with everything that can be done with both.

    Use it as `with sync.open(...) as u`. Any thread of this process may use it.
    """

    @property
    def backend(self) -> Backend: ...
    @property
    def author(self) -> str: ...
    @property
    def contracts(self) -> Contracts: ...
    @property
    def names(self) -> Names: ...
    @property
    def rooms(self) -> set[str]: ...
    def __init__(
        self,
        backend: Backend,
        *,
        author: str = "system",
        room: str | None = None,
        embedder: Embedder | None = None,
    ) -> None: ...
    def open(self) -> Universe:
        """Open the store; raises when it cannot be opened, and never opens another instead."""

    def close(self) -> None:
        """Finish pending work and close the store; a second call does nothing."""

    def __enter__(self) -> Universe: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __repr__(self) -> str: ...
    def for_room(self, name: str, *, partial: bool = False, contracts: Contracts | None = None) -> Universe:
        """Return this universe for a room, which may write what it owns; with `partial` for all its reads.

        With `contracts` it knows these schemas, and no others.
        """

    def acting(self, principal: Principal) -> Universe:
        """Return this universe as a principal may use it, who is the author of its commits.

        It reads only what the rooms let the principal see, and writes only what its trust covers.
        """

    def at(self, moment: int | datetime) -> Universe:
        """Return this universe as it was at a commit or a time: for reading, also by libraries and cupboards.

        Who acts for a principal sees there what it may see now.
        """

    @property
    def past(self) -> Past | None:
        """The moment that this handle reads at, by `at`; None for the present."""

    @property
    def is_read_only(self) -> bool:
        """True if the store was opened with `read_only=True`."""

    def present(self) -> Universe:
        """Return the same handle for the present."""

    @property
    def storage(self) -> StorageProvider:
        """The stores beside the records: tables, vectors, blobs and telemetry."""

    @property
    def adapters(self) -> Adapters:
        """The application tables that are registered here: `u.adapters.register(adapter)`.

        Raises Denied below partner trust: no gate looks at their rows.
        """

    def register(self, *schemas: Schema[Any]) -> None:
        """Register schemas; a contract or step that is wrong raises here, before any data."""

    def schema_for(self, kind: type[T] | str) -> Schema[Any]:
        """Return the registered schema of a contract type or a name."""

    def schemas(self, *, partial: bool = False) -> builtins.list[SchemaStats]:
        """Return what the store holds of each schema."""

    def versions(self, schema: str | type) -> dict[int, int]:
        """Return how many live records there are of each stored version of a schema."""

    def indexed(self) -> None:
        """Wait until every old record is in the declared indexes; where that has failed, try again."""

    def start_indexing(self, schema: str, view: View) -> None:
        """Start to index the old records of a schema in the background, as somebody sees them."""

    def drop_index(self, schema: str, path: str) -> None:
        """Drop a declared index."""

    def commit(
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

    def check_statement(
        self, query: str, params: Params | None = None, *, reads: bool = False
    ) -> BoundStatement:
        """Return a statement on the caller's own tables for a commit; Denied below partner trust.

        One that `reads` is compared with the answer that it gave before.
        Unsupported where records and tables are not in one database.
        """

    @overload
    def remember(self, value: dict[str, Any], *, schema: None = None, **fields: Any) -> Datum: ...
    @overload
    def remember(
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
        expires_at: datetime | None = None,
        expect: Expect = None,
        key: str | None = None,
        note: str | None = None,
    ) -> Crystal[T]:
        """Store a value and return it as a crystal; its type says of which schema it is, or `schema` does.

        A dict without a schema becomes a plain datum, which comes back as `get` gives it. What caused it is
        its `parent`: a crystal, a datum or an id; or `parent_id`. No read shows it after `expires_at`.
        """

    def store(
        self, thing: Any, *, expect: Expect = None, key: str | None = None, note: str | None = None
    ) -> Any:
        """Store a changed crystal, or a datum; with `expect=crystal.rev` only if nobody was faster."""

    def update(
        self, crystal: Crystal[T], /, *, expect: Expect | write.Read = "read", **fields: Any
    ) -> Crystal[T]:
        """Store a crystal with fields of its value changed: `u.update(note, weight=8)`.

        Raises VersionConflict if the record was changed since the crystal was read; `expect=None` overwrites.
        """

    def put(
        self, datum: Datum, *, expect: Expect = None, key: str | None = None, note: str | None = None
    ) -> Datum:
        """Store a datum as it is; returns it with its rev and seq.

        Where its schema has a ttl it gets its time; a new datum may name another one as `expires_at`.
        """

    def put_many(
        self, datums: Iterable[Datum], *, key: str | None = None, note: str | None = None
    ) -> builtins.list[Datum]:
        """Store many datums in one commit: all or none."""

    def delete(
        self, id: str, *, expect: Expect = None, key: str | None = None, note: str | None = None
    ) -> bool:
        """Delete a record; False when there was none. Its history stays until `forget`."""

    def outcome(self, key: str) -> Committed | None:
        """Return the answer to a write with an idempotency key; None if it never happened."""

    def transaction(self, *, note: str | None = None) -> Transaction:
        """Return a transaction for reads and changes, all or none: `with u.transaction() as tx`."""

    def transact(
        self,
        work: Callable[[Transaction], R],
        *,
        attempts: int = 8,
        lock: str | None = None,
        note: str | None = None,
    ) -> R:
        """Run a function in a transaction, again when another commit was faster.

        Calls of this process that name the same `lock` queue up instead of conflicting.
        """

    def get(self, id: str, *, as_of: AsOf = None, raw: bool = False, partial: bool = False) -> Any:
        """Return a record as a crystal; raw when its schema is unknown here; None when there is none.

        Raises UpgradeFailed or DecodeFailed when the record cannot become a value; `raw=True` always works.
        This and every other read raises Unavailable while the store is unavailable; with `partial=True` the
        local copy answers, which may lack records.
        """

    def get_many(
        self, ids_: Sequence[str], *, as_of: AsOf = None, raw: bool = False, partial: bool = False
    ) -> builtins.list[Any]:
        """Return one answer for each id, all of one moment; unreadable records come back raw."""

    def exists(self, id: str, *, partial: bool = False) -> bool:
        """Return whether a live record has this id."""

    def query(
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

    def page(self, query: Query, *, as_of: AsOf = None, raw: bool = False, partial: bool = False) -> Page:
        """Return matching records with a cursor for the next page; a `partial` one says so."""

    def recall(
        self, query: Query | str | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> Recalled[Any]:
        """Return matching records that are typed values here; unreadable ones are in `.problems`.

        A text is the name of a schema, or words to search for: then the records that fit best come first.
        """

    def search(
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

    def search_among(
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

    def surface(
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

    def embedded(self, *, progress: Progress | None = None) -> int:
        """Embed now all texts that wait, and return how many versions that were; raises EmbedderFailed."""

    def embedding(self, *, check: bool = False) -> EmbeddingReport:
        """Return how far embedding is, and what is wrong with it; `check` asks the embedder for a vector."""

    def declare_vectors(self, schema: Schema[Any]) -> None:
        """Declare the schema of the caller's own vectors; SchemaError when the store has others there."""

    def search_vectors(self, vector: bytes, query: Query, k: int, *, as_of: AsOf = None) -> VectorPage:
        """Return the matching records of a schema whose vectors are nearest to one, as 32-bit numbers."""

    def vectors(
        self, name: str, *, dim: int, metric: Metric = "cosine", indexes: Iterable[str] = ()
    ) -> Vectors:
        """Return the caller's own vectors under a name: numbers of one dimension, each with metadata.

        `metric` is `"cosine"`, `"dot"` or `"l2"`; `indexes` are fields of the metadata that `where` finds
        quickly. Needs numpy: `pip install 'dgent[vectors]'`.
        """

    def refresh_texts(self, schemas: Sequence[str] | None) -> OwnVersions:
        """Bring the texts of rooms up to date for a search of some schemas, or of all.

        Returns texts that could not be stored, and count instead of the stored ones.
        """

    def count(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> int:
        """Return how many records match; all of them without a query."""

    def values(
        self,
        schema: str | type,
        path: str,
        *,
        prefix: str | None = None,
        limit: int | None = None,
        as_of: AsOf = None,
        partial: bool = False,
        **filters: Any,
    ) -> Counts:
        """Return the distinct values at a path of records of a schema, in order, each with their number.

        `path` may end with `*`, for the items of lists. `prefix` is the beginning of the texts to return;
        filters are those of queries, as `where`. Without filters an index of the path answers.
        """

    def tags(
        self,
        schema: str | type | None = None,
        *,
        prefix: str | None = None,
        limit: int | None = None,
        as_of: AsOf = None,
        partial: bool = False,
        **filters: Any,
    ) -> Counts:
        """Return the tags of records, of one schema or of all, in order, each with the number of records."""

    def list(
        self,
        prefix: str | None = None,
        *,
        after: datetime | None = None,
        limit: int | None = 100,
        partial: bool = False,
    ) -> builtins.list[Datum]:
        """Return raw records, newest first, whose id has a prefix and that were created after a time."""

    def iterate(
        self,
        query: Query | None = None,
        *,
        as_of: AsOf = None,
        raw: bool = False,
        partial: bool = False,
        **filters: Any,
    ) -> Stream[Any]:
        """Yield every matching record as of one moment, however many, a page at a time.

        All of them unless the query, or `limit`, says how many.
        """

    def seq(self) -> int:
        """Return the newest commit's number."""

    def history(self, id: str, *, limit: int | None = None) -> builtins.list[Version]:
        """Return the kept versions of a record, newest first, deletions among them."""

    def undo(self, seq: int, *, only: Iterable[str] | None = None, force: bool = False) -> Committed:
        """Put the records of a commit back to what they were before it, as a new commit.

        Refused when any of them changed since, naming them; `only` picks some, `force` overrides.
        """

    def changes(
        self, since: int = 0, *, limit: int | None = 1000, until: int | None = None, items: int | None = None
    ) -> builtins.list[Change]:
        """Return commits after a seq, in order; HistoryGone names the first one that is still there.

        With `items`, not all records of large commits are read: each has at least so many, and `more`
        counts those that were left out.
        """

    def watch(self, since: int | None = None, *, query: Query | None = None) -> Stream[Change]:
        """Yield every commit after a seq (default: from now on), in order, also of other processes."""

    def causal_chain(
        self, id: str, *, limit: int | None = 10000, partial: bool = False
    ) -> builtins.list[Any]:
        """Return a record and its causes, of one moment, oldest first; empty if the record does not exist.

        With more causes than `limit`, the nearest ones; `None` means 100,000.
        """

    def collection(self, contract: type[T] | str) -> Collection[T]:
        """Return a typed handle on the records of one contract, or of the schema with a name."""

    def focus(self, id: str, lens: Lens[Any, T]) -> Focus[T]:
        """Return a part of a record, to get, set and modify through a lens."""

    def resolve(self, crystal: Crystal[Any]) -> relation.Resolved:
        """Load all records that a crystal refers to, in one batch; refs that lead nowhere are reported."""

    def referrers(self, id: str, *, limit: int | None = 100, partial: bool = False) -> builtins.list[Any]:
        """Return the records that refer to an id, newest first."""

    def associate(
        self, a: Any, b: Any, kind: str = "related", weight: float = 1.0
    ) -> Crystal[relation.Association]:
        """Link two records of any schema, or change the weight of their link."""

    def associated(self, id: Any, kind: str | None = None) -> builtins.list[Crystal[relation.Association]]:
        """Return the links of a record at either end, heaviest first."""

    def dissociate(self, a: Any, b: Any, kind: str = "related") -> bool:
        """Remove the link from one record to another; False when there was none."""

    def forget(self, *ids_: str, only_deleted: bool = False) -> Forgotten:
        """Erase records for good: rows, history, indexes, free pages, telemetry, and blobs only they use.

        It cannot be undone. With `only_deleted` records that are live at that moment stay.
        """

    @property
    def blob_folder(self) -> str | None:
        """The folder of the contents of blobs, which need not exist; None where they are in no folder."""

    def sweep(self, limit: int | None = None) -> int:
        """Delete records that have expired, and return how many; a universe does so by itself now and then.

        It takes small commits. The schema's `history` says whether their versions are kept.
        """

    def compact(self, keep: int | timedelta | datetime | Keep) -> Compacted:
        """Prune old history: keep so many old versions of each record, or those younger than an age."""

    def upgrade_all(
        self, schema: str | type, *, dry_run: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> upgrade.Upgraded:
        """Rewrite every record of an older version in the newest; safe to stop and run again."""

    @property
    def degraded(self) -> Degradation | None:
        """Return since when and why the store is unavailable, and the pending writes; None if available."""

    def stats(self) -> BackendStats:
        """Return the contents and the condition of the store."""

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
    """Return a universe at a place: `with sync.open("sqlite:///memory.db") as u`, or `close` it later.

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

def copy(source: Universe, target: Universe, *, progress: Progress | None = None) -> Copied:
    """Copy everything, or what is new since the last copy; verified by count and digest.

    The target is only a copy: records that the source no longer has are deleted there. So a target with other
    records is refused, and one that anyone else wrote to since the last copy. Own tables are copied between
    stores of the same engine, sqlite or postgres.
    """

def mirror(source: Universe, target: Universe) -> Stream[int]:
    """Copy, then follow the source; yield the seq of each commit once the target has it.

    Telemetry and own tables follow by themselves, without a seq. Schemas that are kept off the feed are
    updated by `copy` only.
    """

class DataMixin:
    """Gives an agent class a memory: `self.data`, `self.remember`, `self.recall`."""

    @property
    def data(self) -> Universe:
        """The universe of this process."""

    @overload
    def remember(self, value: dict[str, Any], *, schema: None = None, **fields: Any) -> Datum: ...
    @overload
    def remember(self, value: T, **fields: Any) -> Crystal[T]:
        """Store a value; a dict without a schema becomes a plain datum."""

    def recall(self, query: Query) -> list[Crystal[Any]]:
        """Find typed values."""

def get_universe() -> Universe:
    """Return the universe of this process; raises NoUniverse if none is set."""

def set_universe(universe: Universe | None) -> Universe | None:
    """Set the universe of this process; returns the one before."""
