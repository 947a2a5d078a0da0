"""The few primitive reads and writes that an embedded engine provides.

Commits, reads and pruning are written once over this protocol; the memory and SQLite engines each
implement it. All of it is synchronous: a caller holds no state across an await.

`record_key` is the number of a record, `field_keys` are its packed index keys where its own data cannot give
them. In the tables these and some other columns have shorter names (`columns_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from dgent.errors import Corrupt
from dgent.store.engine.catalog import Entry, IndexName, Position, SchemaState, TailRecord
from dgent.store.engine.row import Brief, Row

R = TypeVar("R")

PUT, DELETE, SAME, FORGET = 1, 0, 2, 3
QUIET = 8  # added to an op's code when its schema stays off the feed

LoggedOp = tuple[int, int, int]
"""Code, dk, rev: a commit's log names no id, so a forgotten id is not in it."""


class Logged(NamedTuple):
    """A commit as the log holds it."""

    seq: int
    at: int
    author: int
    kind: int
    note: str | None
    of_seq: int | None
    ops: Sequence[LoggedOp]
    key: bytes | None
    digest: bytes | None


_ops_decoder = msgspec.msgpack.Decoder(list[LoggedOp])


def ops_of(seq: int, raw: bytes) -> list[LoggedOp]:
    """Return the ops of a commit, from the bytes that an engine keeps of it."""
    try:
        return _ops_decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise Corrupt(f"the log entry {seq} is damaged: {error}") from None


class LogTip:
    """The newest seq, its time, and the newest record key; a writer advances it with each write."""

    __slots__ = ("at", "record_key", "seq")

    def __init__(self, seq: int, at: int, record_key: int) -> None:
        self.seq, self.at, self.record_key = seq, at, record_key


class TextPage(NamedTuple):
    """A page of a text index: the key of its first record, its bytes, and the first key of the next one."""

    first: int
    body: bytes
    until: int | None


class TextDoc(NamedTuple):
    """The version of a record in a text index (0 if it is gone), and its size in words.

    The pages may have an older version, `page_rev` (0 for none), whose `words` are kept if it is dropped.
    """

    rev: int
    size: int
    page_rev: int
    words: bytes | None


class VectorDoc(NamedTuple):
    """The entry of a record in a vector index: the slot of its row, the version, the digest of its source.

    The digest is empty if the record has no vector any more.
    """

    slot: int
    rev: int
    digest: bytes


class VectorRow(NamedTuple):
    """A row of a vector index: its slot, its record, the version, the digest, and the vector as stored."""

    slot: int
    record_key: int
    rev: int
    digest: bytes
    body: bytes


class IndexScan(NamedTuple):
    """A part of an index: from `low` (included) to `high` (not included).

    Only the records in it count that are in the `others` too, under the key given for each, and that
    have the author, if one is given.
    """

    index_number: int
    low: Position
    high: Position
    others: tuple[tuple[int, bytes], ...] = ()
    author: int | None = None

    def bare(self) -> IndexScan:
        """Return the scan of all records in this part of the index."""
        return IndexScan(*self[:3])

    def narrowing(self) -> tuple[int, bool]:
        """Return how many others there are, and whether an author is given."""
        return len(self.others), self.author is not None

    def values(self) -> tuple[Any, ...]:
        """Return number and key of each of the others, and the author if one is given."""
        values = tuple(value for other in self.others for value in other)
        return values if self.author is None else (*values, self.author)


def passes(scan: IndexScan, row: Row | Brief, has: Callable[[Entry], bool]) -> bool:
    """Return whether a record in a scan's part of the index counts; `has` tells whether an entry exists."""
    if scan.author is not None and row.author != scan.author:
        return False
    return all(has((index, key, row.created_at, row.record_key)) for index, key in scan.others)


def start_at(scan: IndexScan, descending: bool, place: Position) -> IndexScan:
    """Return the part of a scan from one of its positions on, including that one."""
    if descending:
        key, created_at, record_key = place
        return scan._replace(high=(key, created_at, record_key + 1))
    return scan._replace(low=place)


def end_at(scan: IndexScan, descending: bool, place: Position) -> IndexScan:
    """Return the part of a scan up to one of its positions, without that one."""
    if descending:
        key, created_at, record_key = place
        return scan._replace(low=(key, created_at, record_key + 1))
    return scan._replace(high=place)


class Reading(Protocol):
    """Reads of one consistent moment."""

    @property
    def generation(self) -> int:
        """A number that changes whenever cached indexes or states may be wrong."""
        ...

    def refresh(self) -> None:
        """Load declarations of other processes."""
        ...

    def newest(self) -> tuple[int, int]:
        """Return the newest seq and its time."""
        ...

    def floor(self) -> int:
        """Return the newest seq whose history is incomplete."""
        ...

    def name(self, number: int) -> str:
        """Return the text of a name's number."""
        ...

    def names_at_hand(self) -> dict[int, str]:
        """Return texts of names by their numbers, to which others may be added, and which loses none."""
        ...

    def number(self, text: str) -> int | None:
        """Return the number of a name, or None if it was never used."""
        ...

    def state(self, schema: str) -> SchemaState | None:
        """Return the stored state of a schema; None if the store does not know it."""
        ...

    def states(self) -> list[SchemaState]:
        """Return all schemas that ever had a record or a declaration."""
        ...

    def index_number(self, name: IndexName) -> int | None:
        """Return the number of an index, or None if nothing was ever in it."""
        ...

    def head(self, id: str) -> Row | None:
        """Return the newest version of a record, which may be a tombstone."""
        ...

    def heads(self, ids: Sequence[str]) -> list[Row | None]:
        """Return what `head` returns for each id, of one moment."""
        ...

    def row(self, record_key: int) -> Row | None:
        """Return the newest version of a record by its key."""
        ...

    def rows(self, record_keys: Sequence[int], content: bool) -> Sequence[Row]:
        """Return the newest versions of some records by their keys, in any order; none for unknown ones."""
        ...

    def walk(self, scan: IndexScan, descending: bool, content: bool) -> Iterator[tuple[bytes, Row]]:
        """Yield the live rows of a scan in order, each with its key."""
        ...

    def fetch(
        self, scan: IndexScan, descending: bool, content: bool, limit: int
    ) -> Sequence[tuple[Any, ...]]:
        """Return the first rows of a scan at once, as plain tuples in the layout of Brief."""
        ...

    def skip(self, scan: IndexScan, descending: bool, count: int) -> IndexScan | None:
        """Return the scan without its first entries, from the index alone; None when there are no more."""
        ...

    def times(self, scans: Sequence[IndexScan], descending: bool, count: int) -> Sequence[int | None]:
        """Return the creation time of the entry after the first `count` of each bare scan; None: no more."""
        ...

    def positions(self, scans: Sequence[IndexScan], descending: bool, limit: int) -> list[list[Position]]:
        """Return the first entries of each of some bare scans, from the index alone."""
        ...

    def fetch_id(self, id: str) -> Sequence[tuple[Any, ...]]:
        """Return the live version of a record as a plain tuple in the layout of Brief, or nothing."""
        ...

    def walk_ids(self, prefix: str, content: bool) -> Iterator[Row]:
        """Yield the live rows whose id starts with a prefix, by id."""
        ...

    def groups(self, scan: IndexScan, limit: int | None) -> list[tuple[bytes, int]]:
        """Return the first keys of a bare scan in order, each once, with the number of its entries."""
        ...

    def tag_indexes(self, schema: int) -> list[tuple[str, int]]:
        """Return the tags that records of a schema have or had, each with its index."""
        ...

    def size(self, scan: IndexScan, cap: int) -> int:
        """Return how many entries a scan has, counting no further than a cap."""
        ...

    def estimate(self, scan: IndexScan, cap: int) -> int:
        """Return about how many entries a scan has, to weigh it against others; no more than a cap."""
        ...

    def size_ids(self, prefix: str, cap: int) -> int:
        """Return how many live ids start with a prefix, counting no further than a cap."""
        ...

    def unindexed_rows(self, schema: int) -> list[Row]:
        """Return the live rows of a schema that are in no field index."""
        ...

    def past(self, record_key: int, rev: int | None = None) -> list[Row]:
        """Return the kept older versions of a record, newest first, bodies as stored.

        With a rev: that one, and the next newer ones up to one that is stored whole for certain.
        """
        ...

    def spans(self, record_key: int) -> list[tuple[int, int, int]]:
        """Return rev, seq and time of a record's kept versions, oldest first."""
        ...

    def log(self, since: int, limit: int | None) -> list[Logged]:
        """Return commits after a seq, in order."""
        ...

    def log_back(self, until: int, limit: int) -> list[Logged]:
        """Return commits up to a seq, newest first."""
        ...

    def read_commit(self, seq: int) -> Logged | None:
        """Return one commit."""
        ...

    def find_by_key(self, key: bytes) -> Logged | None:
        """Return the commit that carried an idempotency key."""
        ...

    def seq_at(self, at: int) -> int:
        """Return the newest seq committed at or before a time."""
        ...

    def forgotten_rev(self, id: str) -> int:
        """Return the last rev of an id that was forgotten, or 0."""
        ...

    def find_text_pages(self, index: int, wanted: Sequence[tuple[bytes, int]]) -> dict[bytes, TextPage]:
        """Return for each word and record key the page that the record is in or would be in, if any."""
        ...

    def text_pages(
        self, index: int, low: bytes, high: bytes, limit: int | None = None
    ) -> Iterable[tuple[bytes, int, bytes]]:
        """Return the pages of the words from `low` to before `high`, in order: word, first key, bytes."""
        ...

    def text_docs(self, index: int, record_keys: Iterable[int] | None) -> dict[int, TextDoc]:
        """Return how records are in a text index, as far as they are; None asks for all of them."""
        ...

    def find_keys(self, scan: IndexScan, limit: int) -> list[int]:
        """Return the keys of some records in a scan, in any order, from the indexes alone."""
        ...

    def vector_bodies(self, index: int, slots: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        """Return the vectors at some slots of a vector index, as far as they are there, in any order."""
        ...

    def vectors_after(self, index: int, slot: int, limit: int) -> list[VectorRow]:
        """Return the next rows of a vector index after a slot, in order."""
        ...

    def vector_docs(self, index: int, record_keys: Iterable[int] | None) -> dict[int, VectorDoc]:
        """Return how records are in a vector index, as far as they are; None asks for all of them."""
        ...

    def calculate(self, work: Callable[[], R]) -> R:
        """Run work that takes long and does not touch the store, where it blocks nobody."""
        ...


Wrap: TypeAlias = Callable[[Any], Any]
"""Wraps a kernel in another one of the same kind, as `dgent.testing` does between store and engine."""


def no_wrap(kernel: Any) -> Any:
    """Return the kernel itself."""
    return kernel


class Writing(Reading, Protocol):
    """Reads and writes inside one write transaction."""

    @property
    def tip(self) -> LogTip:
        """The end of the log; advanced by the writer."""
        ...

    def ends_at(self, seq: int) -> bool:
        """Return whether the log ends there, and still will when this is written."""
        ...

    def are_new(self, ids: Sequence[str]) -> bool:
        """Return whether no record has one of these ids, nor a tombstone."""
        ...

    def make_number(self, text: str) -> int:
        """Return the number of a name, giving it one if it has none."""
        ...

    def make_index(self, name: IndexName) -> int:
        """Return the number of an index, making it if it is new."""
        ...

    def set_state(self, state: SchemaState) -> None:
        """Store the state of a schema and let other processes notice."""
        ...

    def insert(self, rows: Sequence[Row]) -> None:
        """Write rows of records that were never there."""
        ...

    def replace(self, row: Row) -> None:
        """Write another newest version of a record."""
        ...

    def set_keys(self, record_key: int, field_keys: bytes | None) -> None:
        """Write other index keys for a row; its version stays."""
        ...

    def archive(self, row: Row) -> None:
        """Keep a replaced version."""
        ...

    def drop_past(self, record_key: int, below_rev: int) -> int:
        """Remove kept versions under a rev; return how many there were."""
        ...

    def add_entries(self, entries: Sequence[Entry]) -> None:
        """Add entries to indexes."""
        ...

    def add_records(self, records: Sequence[TailRecord]) -> None:
        """Add the entries of new records to indexes."""
        ...

    def remove_entries(self, entries: Iterable[Entry]) -> None:
        """Remove entries from indexes."""
        ...

    def put_text_pages(self, pages: Sequence[tuple[int, bytes, int, bytes]]) -> None:
        """Write pages of text indexes: index, word, first key, bytes."""
        ...

    def drop_text_pages(self, pages: Sequence[tuple[int, bytes, int]]) -> None:
        """Remove pages of text indexes."""
        ...

    def put_text_docs(self, docs: Sequence[tuple[int, int, TextDoc]]) -> None:
        """Note how records are in text indexes: by index and record key."""
        ...

    def drop_text_docs(self, docs: Sequence[tuple[int, int]]) -> None:
        """Note that a text index does not have some records."""
        ...

    def put_vectors(self, index: int, rows: Sequence[VectorRow]) -> None:
        """Write rows of a vector index, in place of those that their records have."""
        ...

    def drop_vectors(self, index: int, record_keys: Sequence[int]) -> None:
        """Remove the rows that some records have in a vector index."""
        ...

    def notice_tags(self, entries: Iterable[Entry]) -> None:
        """Take notice of entries that stay while the tags of their record change."""
        ...

    def move_entries(self) -> None:
        """Move all entries that wait behind commits into the indexes; the rest of this transaction's follow.

        Commits add and remove exactly the entries that change. Work that repairs indexes does this first.
        """
        ...

    def entries_at(self, record_key: int) -> list[Entry]:
        """Return every entry of a record, found by scanning all there are."""
        ...

    def mark_unindexed(self, schema: int, record_key: int, unindexed: bool) -> None:
        """Record whether a row is in no field index."""
        ...

    def append(self, logged: Logged) -> None:
        """Write a commit to the log."""
        ...

    def erase(self, rows: Sequence[Row], seqs: Sequence[int], seq: int) -> int:
        """Remove records, their history and their names, and their mentions in the commits `seqs`.

        Returns how many versions there were. A commit keeps its key, which is a hash, so that a
        retry cannot bring back what was forgotten.
        """
        ...

    def drop_indexes(self, schema: int, keep: Callable[[IndexName], bool], limit: int) -> bool:
        """Remove some entries of a schema's unwanted indexes; False when none are left."""
        ...

    def kept_after(self, record_key: int, limit: int) -> list[int]:
        """Return the next records, by record key, that have kept versions."""
        ...

    def expire_keys(self, before: int) -> None:
        """Delete the idempotency keys of commits before a time."""
        ...

    def raise_floor(self, seq: int) -> int:
        """Remove commits up to a seq, whose history is incomplete; return how many there were.

        The newest stays, because it is the end of the log, and so do those whose key is not
        expired: a retry must not happen twice.
        """
        ...
