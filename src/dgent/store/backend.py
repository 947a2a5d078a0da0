"""The contract between a universe and an engine: ops in, one atomic commit, versions out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from dgent.model import html
from dgent.model.contract import scalar
from dgent.model.contract.lookup import Lookup
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.vector import VectorSpec
from dgent.store.engine.row import SchemaRows
from dgent.store.port.attached import BoundStatement
from dgent.store.search import (
    EmbeddedSchema,
    GivenVector,
    SearchPage,
    SearchRequest,
    VectorPage,
    WaitingVector,
)
from dgent.store.tally import Counts, Tally

LIVE: Literal["live"] = "live"
"""An expectation: a live version must be there, of any rev."""

NEW: Literal["new"] = "new"
"""An expectation: this id was never used, not even by a deleted or forgotten record."""

Expect: TypeAlias = int | Literal["live", "new"] | None
"""None: no check; 0: no live version; n: exactly that rev; LIVE: any live version; NEW: never a version."""

EVERY_ROOM = "*"
"""The room of a commit that copies records of all rooms as they are."""

AsOf: TypeAlias = int | datetime | None
"""A moment to read at: the number of a commit or an aware time; None is now."""

Kind: TypeAlias = Literal[
    "data", "undo", "forget", "compact", "upgrade", "declare", "complete", "abandon", "merge"
]
FeedKind: TypeAlias = Kind | Literal["degraded", "restored"]
KINDS: tuple[Kind, ...] = (
    "data",
    "undo",
    "forget",
    "compact",
    "upgrade",
    "declare",
    "complete",
    "abandon",
    "merge",
)


# Many of these live at once while many tasks write. They are in no cycle, so `gc=False` spares the
# collector from looking at them; without it, it took a quarter of the time.
class Shaped(msgspec.Struct, frozen=True, gc=False):
    """A record's data in one version of its schema."""

    version: int
    data: dict[str, Any]


class Put(msgspec.Struct, frozen=True, gc=False):
    """Store a datum.

    `indexed` is its data in the newest version that the caller knows, when the datum is of another one.
    The index uses it only if it describes records in that very version.
    """

    datum: Datum
    expect: Expect = None
    indexed: Shaped | None = None
    plain: bool = False  # the data came from an encoder of ours, so it needs no second check
    raw: bytes | None = None  # the JSON of the data, where the datum is one of `make_fresh`

    @property
    def id(self) -> str:
        """The id this op is about."""
        return self.datum.id


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Remove the live version of a record; its history stays."""

    id: str
    expect: Expect = None


class Check(msgspec.Struct, frozen=True, gc=False):
    """Assert something about a record and write nothing."""

    id: str
    expect: Expect = LIVE


Op: TypeAlias = Put | Delete | Check


class Guard(msgspec.Struct, frozen=True):
    """The reads of a transaction; a commit since then that touches them is a conflict.

    `sees` says of an id, its schema, and a version if there is one, whether that may be seen: what never
    could be does not conflict.
    """

    since: int
    ids: frozenset[str] = frozenset()
    queries: tuple[Query, ...] = ()
    sees: Callable[[str, str | None, Datum | None], bool] | None = None


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Ops that all happen or none do, with their author and the reason.

    A commit with a key is kept in the log also when it changes nothing, so that its key is known; unless
    `keep_idle` is False, because the key is only for a lost answer. `at_us` is the original time of a commit
    of another store that is repeated here: it keeps that time, and was checked there. `statements` change
    tables of the caller's own in the same transaction of the database, on engines that have some.
    """

    ops: Sequence[Op]
    key: str | None = None
    guard: Guard | None = None
    author: str = "system"
    note: str | None = None
    kind: Kind = "data"
    of_seq: int | None = None
    room: str | None = None
    keep_idle: bool = True
    at_us: int | None = None
    statements: tuple[BoundStatement, ...] = ()


class Written(msgspec.Struct, frozen=True, gc=False):
    """The result of one op of a commit; `id` is None where only a log without ids is left.

    `at_us` is the time of the commit `seq`, in microseconds; None where there is none.
    """

    id: str | None
    rev: int
    seq: int | None
    changed: bool
    at_us: int | None = None


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The answer to a commit; `repeated` when its key had been used for the same work before.

    `pending`: the store is unavailable, and the commit is kept in the outbox until it is back. Then
    there is no seq yet, and the revs are those that it will get if nobody else writes to the same records.
    """

    seq: int | None
    written: tuple[Written, ...] = ()
    repeated: bool = False
    pending: bool = False


class Version(msgspec.Struct, frozen=True):
    """One version of a record; `datum` is None for a deletion.

    `author` and `note` are the commit's, and None where the commit was pruned. The author that the record
    names, `datum.author`, is only a claim of the committer.
    """

    id: str
    rev: int
    seq: int
    at: datetime
    op: Literal["put", "delete"]
    datum: Datum | None
    author: str | None = None
    note: str | None = None


class Rank(msgspec.Struct, frozen=True):
    """A record's rank in the order of time; `record_key` grows with the first commits of records."""

    record_key: int
    created_us: int | None  # None when the record is deleted


class Item(msgspec.Struct, frozen=True):
    """One record in a change; `datum` is None for a deletion or a pruned version."""

    op: Literal["put", "delete", "forget"]
    id: str | None
    rev: int
    schema: str | None = None
    datum: Any = None
    last: Any = None  # what a deletion removed, if it is still kept
    left: bool = False  # a watched query matched the record before, or may have, and no longer does


class Reverted(msgspec.Struct, frozen=True):
    """One record of a commit to undo: the rev it made, the record's present state, the one before."""

    id: str
    rev: int
    now_rev: int
    now_seq: int
    live: bool
    before: Datum | None


class Change(msgspec.Struct, frozen=True):
    """One commit, as the feed gives it.

    `provisional`: only this program knows of it yet. It is a commit in the outbox, or it reports that the
    store became unavailable (`degraded`) or is back (`restored`); it has no seq. `more` are records that
    were left out, where only some of each commit were asked for.
    """

    seq: int | None
    at: datetime
    author: str
    kind: FeedKind
    items: tuple[Item, ...]
    note: str | None = None
    of_seq: int | None = None
    provisional: bool = False
    more: int = 0


class Page(msgspec.Struct, frozen=True):
    """Some results of a query in order, and how they were found.

    `partial`: the store is unavailable, and these come from the local copy.
    """

    made: list[Any]
    explain: str = ""
    further: Callable[[], str] | None = None  # makes the cursor; most callers never ask for it
    rows: SchemaRows | None = None  # what the items are made of, instead of `made`, for a lazy view
    partial: bool = False

    @property
    def items(self) -> list[Any]:
        """The results: datums from a store, crystals and raw datums from a universe."""
        return self.made if self.rows is None else self.rows.datums()

    @property
    def cursor(self) -> str | None:
        """The position to continue at, for `Query(cursor=...)`; None when this was the end."""
        return None if self.further is None else self.further()

    def _repr_html_(self) -> str:
        """Return the page as a notebook shows it: a row for each record."""
        rows = [(each.id, getattr(each, "rev", None), _shown(each)) for each in self.items]
        return html.draw_rows(
            ("id", "rev", "value"), rows, "there is more: see cursor" if self.further else ""
        )


def _shown(record: Any) -> Any:
    return record.data if isinstance(record, Datum) else record.value


class Declaration(msgspec.Struct, frozen=True):
    """The facts that a store needs to index and keep records of a schema."""

    name: str
    version: int
    indexes: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    history: str | int = "all"
    feed: bool = True
    owner: str | None = None
    digest: str = ""
    kinds: dict[str, scalar.Kind] = {}  # what the texts at an index's path stand for
    text: tuple[tuple[str, int], ...] = ()  # paths of texts that are searched for words, with their weights
    tokenizer: str = ""  # the way of splitting these into words
    dates: str = ""  # the time that is searched by its words too: `record.CREATED` or a path after a dot
    thread: str = ""  # the path of what names a conversation, among the indexes too
    vector: VectorSpec | None = None  # the vectors of its records
    embed: tuple[str, ...] = ()  # paths of texts that a model embeds, as soon as there is one


class Declared(msgspec.Struct, frozen=True):
    """The answer to a declaration: whether old records wait to be indexed, and whether another
    contract was declared under the same version before.

    `texts`: another program has replaced its texts in the same version, and those of the other one count.
    """

    filling: bool
    disputed: bool = False
    texts: bool = False


class SchemaStats(msgspec.Struct, frozen=True):
    """The records of one schema in a store, in numbers."""

    name: str
    records: int
    index_version: int
    indexes: tuple[str, ...]
    building: tuple[str, ...]
    lagging: int
    versions: tuple[int, ...]
    owner: str | None = None
    text: tuple[str, ...] = ()  # the paths of texts that are searched for words
    refs: tuple[str, ...] = ()  # the paths of ids of other records


class BackendStats(msgspec.Struct, frozen=True):
    """The contents and the condition of a store."""

    engine: str
    place: str
    records: int
    seq: int
    first_seq: int
    size_bytes: int
    schemas: tuple[SchemaStats, ...]
    details: dict[str, Any]


class Keep(msgspec.Struct, frozen=True):
    """A retention rule: how many old versions of each record, or how old, `compact` leaves."""

    versions: int | None = None
    after: datetime | None = None
    schema: str | None = None


class Compacted(msgspec.Struct, frozen=True):
    """The result of a compaction, with the first seq whose history is whole."""

    versions: int
    commits: int
    first_seq: int


class Forgotten(msgspec.Struct, frozen=True):
    """The result of forgetting; `erased` is False while another reader still pins old pages.

    In a folder of lines it is also False while unreadable or incomplete lines may hold the same text.
    `remains` names places with bytes that the engine cannot reach.
    """

    seq: int
    records: int
    versions: int
    erased: bool
    remains: str = ""


class View(Protocol):
    """The caller's view of records: the version it knows, and old data converted to that shape."""

    lazy: bool
    """True if the caller decodes data itself, so that a page may come as `rows`."""

    def version(self, schema: str) -> int | None:
        """Return the version of a schema that the caller has registered."""
        ...

    def shape(self, datum: Datum) -> Mapping[str, Any]:
        """Return the data to match: upgraded if possible, else as stored; with defaults filled in."""
        ...

    def upgrade(self, datum: Datum) -> Mapping[str, Any] | None:
        """Return data of another version in the caller's, without defaults; None when no steps lead there."""
        ...

    def lookup(self, schema: str) -> Lookup | None:
        """Return the caller's contract of a schema as queries use it; None without one."""
        ...


class StoredView:
    """Records as they are stored: the view of a caller without contracts."""

    lazy = False

    def version(self, schema: str) -> int | None:
        """Return None: no schema is registered."""
        return None

    def shape(self, datum: Datum) -> Mapping[str, Any]:
        """Return the stored data."""
        return datum.data

    def upgrade(self, datum: Datum) -> Mapping[str, Any] | None:
        """Return None: nothing can be upgraded."""
        return None

    def lookup(self, schema: str) -> Lookup | None:
        """Return None: no contract is known."""
        return None


STORED = StoredView()


class PartView:
    """A caller's view of an earlier moment that does not fail where versions of then were pruned.

    It leaves such records out; with `gone` it sees only those, each in the next version that is kept.
    """

    lazy = False

    def __init__(self, view: View, gone: bool = False) -> None:
        self.version, self.shape, self.gone = view.version, view.shape, gone
        self.upgrade, self.lookup = view.upgrade, view.lookup


@runtime_checkable
class Backend(Protocol):
    """A storage engine. All engines give the same answers; `dgent.testing` checks that they do."""

    name: str
    priority: int

    async def open(self) -> None:
        """Open or create the store; never another one in its place."""
        ...

    async def close(self) -> None:
        """Finish pending work and release everything; a second call does nothing."""
        ...

    async def is_available(self) -> bool:
        """Return whether the place can be opened now."""
        ...

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do all ops or none."""
        ...

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """Return the live version, or the one at a seq; `lazy` as for a View."""
        ...

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """Return one answer for each id, read at one moment."""
        ...

    async def ranks(self, ids: Sequence[str]) -> list[Rank | None]:
        """Return the rank of each record in the order of time; None for an id that was never stored."""
        ...

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """Return a page of matching records in order."""
        ...

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        """Return how many records match, ignoring limit, offset and cursor."""
        ...

    async def tally(self, tally: Tally, view: View, as_of: int | None = None) -> Counts:
        """Return distinct values of a field, or tags, in order, with the number of records that have each."""
        ...

    async def search(self, request: SearchRequest) -> SearchPage:
        """Return the matching records that have some of the words, best first."""
        ...

    async def search_vectors(
        self,
        vector: bytes,
        query: Query,
        view: View,
        limit: int,
        as_of: int | None = None,
        spec: VectorSpec | None = None,
    ) -> VectorPage:
        """Return the matching records with the nearest vectors; `vector` is given as 32-bit numbers.

        With a `spec`, none if the vectors of the schema are others by now.
        """
        ...

    async def embedded_schemas(self, most: int = 1_000_000) -> list[EmbeddedSchema]:
        """Return the schemas whose texts a model embeds, by name; counts at most so many that wait."""
        ...

    async def waiting_vectors(self, schema: str, limit: int, after: bytes = b"") -> list[WaitingVector]:
        """Return versions that wait for a model to make their vectors, in order, after a key."""
        ...

    async def store_vectors(self, schema: str, spec: VectorSpec, given: Sequence[GivenVector]) -> int:
        """Store vectors of versions that wait, unless these were replaced meanwhile; return how many.

        None if those of the schema are declared otherwise by now, as of another model.
        """
        ...

    async def referrers(self, id: str, limit: int | None, view: View = STORED) -> list[Datum]:
        """Return the records whose declared refs hold this id, newest first."""
        ...

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """Return a record, its parent, the parent's parent and so on, all of one moment; at most `limit`.

        A parent that is missing, or occurred already, ends the list.
        """
        ...

    async def history(self, id: str, limit: int | None) -> list[Version]:
        """Return the kept versions of a record, newest first."""
        ...

    async def changes(self, since: int, limit: int) -> list[Change]:
        """Return commits after a seq, in order; HistoryGone if some were pruned."""
        ...

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or when time is up."""
        ...

    async def states_before(self, seq: int) -> list[Reverted]:
        """Return the state before a commit of each of its records."""
        ...

    async def validate(self, guard: Guard, view: View) -> int:
        """Return the newest seq; raises TransactionConflict when something in the guard was touched."""
        ...

    async def last_seq(self) -> int:
        """Return the newest seq."""
        ...

    async def seq_at(self, moment: datetime) -> int:
        """Return the newest seq committed at or before a time."""
        ...

    async def outcome(self, key: str) -> Committed | None:
        """Return the answer to a keyed commit, or None if it never happened."""
        ...

    async def declare(self, declaration: Declaration) -> Declared:
        """Make a schema known to the store."""
        ...

    async def fill(self, schema: str, view: View) -> bool:
        """Index one batch of old records; False when nothing is left to do."""
        ...

    async def drop_index(self, schema: str, path: str) -> None:
        """Drop a declared index."""
        ...

    async def versions(self, schema: str) -> dict[int, int]:
        """Return how many live records there are of each stored version."""
        ...

    async def forget(
        self,
        ids: Sequence[str],
        author: str,
        room: str | None,
        only_deleted: bool = False,
        at_us: int | None = None,
    ) -> Forgotten:
        """Erase records and their history for good; with `only_deleted` those that are live stay.

        `at_us` is the time of the commit, as for `Commit`.
        """
        ...

    async def compact(self, keep: Keep) -> Compacted:
        """Apply a retention rule to the history."""
        ...

    async def stats(self) -> BackendStats:
        """Return the contents and the condition of the store."""
        ...
