"""The few primitive reads and writes that an embedded engine provides.

`ledger`, `select` and `retention` are written once over this protocol; the memory and SQLite
engines each implement it. All of it is synchronous: a caller holds no state across an await.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from dgent.errors import Corrupt
from dgent.store.engine.catalog import Entry, Position, SchemaState, StreamName
from dgent.store.engine.row import Row

PUT, DELETE, SAME, FORGET = 1, 0, 2, 3
QUIET = 8  # added to an op's code when its schema stays off the feed

LoggedOp = tuple[int, int, int]
"""Code, dk, rev: a commit's log names no id, so a forgotten id is not in it."""


class Logged(NamedTuple):
    """A commit as the log keeps it."""

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
    """What a commit did, from the bytes that an engine keeps of it."""
    try:
        return _ops_decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise Corrupt(f"the log entry {seq} is damaged: {error}") from None


class Tip:
    """The newest seq, its time, and the newest dk; a writer moves it on as it writes."""

    __slots__ = ("at", "dk", "seq")

    def __init__(self, seq: int, at: int, dk: int) -> None:
        self.seq, self.at, self.dk = seq, at, dk


class Scan(NamedTuple):
    """A part of a stream: from `low` (included) to `high` (not included)."""

    stream: int
    low: Position
    high: Position


def start_at(scan: Scan, descending: bool, place: Position) -> Scan:
    """The part of a scan from one of its positions on, that one included."""
    if descending:
        key, t, dk = place
        return scan._replace(high=(key, t, dk + 1))
    return scan._replace(low=place)


class Reading(Protocol):
    """Reads of one consistent moment."""

    @property
    def generation(self) -> int:
        """Changes whenever streams or states known before may be wrong."""
        ...

    def refresh(self) -> None:
        """Notice what other processes declared."""
        ...

    def newest(self) -> tuple[int, int]:
        """The newest seq and its time."""
        ...

    def floor(self) -> int:
        """The newest seq whose history is no longer whole."""
        ...

    def name(self, number: int) -> str:
        """The text of a name's number."""
        ...

    def number(self, text: str) -> int | None:
        """The number of a name, or None if it was never used."""
        ...

    def state(self, schema: str) -> SchemaState | None:
        """What is known of a schema."""
        ...

    def states(self) -> list[SchemaState]:
        """All schemas that ever had a record or a declaration."""
        ...

    def stream(self, name: StreamName) -> int | None:
        """The number of a stream, or None if nothing was ever in it."""
        ...

    def head(self, id: str) -> Row | None:
        """The newest version of a record, which may be a tombstone."""
        ...

    def row(self, dk: int) -> Row | None:
        """The newest version of a record by its key."""
        ...

    def walk(self, scan: Scan, descending: bool, content: bool) -> Iterator[tuple[bytes, Row]]:
        """The live rows of a scan in order, each with its key."""
        ...

    def fetch(self, scan: Scan, descending: bool, content: bool, limit: int) -> Sequence[tuple[Any, ...]]:
        """The first rows of a scan at once, as plain tuples in the layout of Brief."""
        ...

    def skip(self, scan: Scan, descending: bool, count: int) -> Scan | None:
        """The scan without its first entries, from the index alone; None when there are no more."""
        ...

    def fetch_id(self, id: str) -> Sequence[tuple[Any, ...]]:
        """The live version of a record as a plain tuple in the layout of Brief, or nothing."""
        ...

    def walk_ids(self, prefix: str, content: bool) -> Iterator[Row]:
        """The live rows whose id starts with a prefix, by id."""
        ...

    def size(self, scan: Scan, cap: int) -> int:
        """How many entries a scan has, counting no further than a cap."""
        ...

    def size_ids(self, prefix: str, cap: int) -> int:
        """How many live ids start with a prefix, counting no further than a cap."""
        ...

    def lagging(self, schema: int) -> list[Row]:
        """Live rows of a schema that stand in no field stream."""
        ...

    def past(self, dk: int, rev: int | None = None) -> list[Row]:
        """The kept older versions of a record, newest first, bodies as stored.

        With a rev: that one, and the next newer ones up to one that stands alone for sure.
        """
        ...

    def spans(self, dk: int) -> list[tuple[int, int, int]]:
        """Rev, seq and time of a record's kept versions, oldest first."""
        ...

    def log(self, since: int, limit: int | None) -> list[Logged]:
        """Commits after a seq, in order."""
        ...

    def logged(self, seq: int) -> Logged | None:
        """One commit."""
        ...

    def keyed(self, key: bytes) -> Logged | None:
        """The commit that carried an idempotency key."""
        ...

    def seq_at(self, at: int) -> int:
        """The newest seq committed at or before a time."""
        ...

    def forgotten_rev(self, id: str) -> int:
        """The last rev of an id that was forgotten, or 0."""
        ...


Wrap: TypeAlias = Callable[[Any], Any]
"""Makes of a kernel another one of the same kind: what `dgent.testing` puts between store and engine."""


def unwrapped(kernel: Any) -> Any:
    """The kernel itself."""
    return kernel


class Writing(Reading, Protocol):
    """Reads and writes inside one write transaction."""

    @property
    def tip(self) -> Tip:
        """Where the log stands; moved on by whoever writes."""
        ...

    def make_number(self, text: str) -> int:
        """The number of a name, giving it one if it has none."""
        ...

    def make_stream(self, name: StreamName) -> int:
        """The number of a stream, making it if it is new."""
        ...

    def set_state(self, state: SchemaState) -> None:
        """Store what is known of a schema and let other processes notice."""
        ...

    def insert(self, rows: Sequence[Row]) -> None:
        """Rows of records that were never there."""
        ...

    def replace(self, row: Row) -> None:
        """Another newest version of a record."""
        ...

    def set_keys(self, dk: int, fk: bytes | None) -> None:
        """Other index keys for a row; its version stays."""
        ...

    def bury(self, row: Row) -> None:
        """Keep a replaced version."""
        ...

    def drop_past(self, dk: int, below_rev: int) -> int:
        """Remove kept versions under a rev; how many there were."""
        ...

    def add_entries(self, entries: Sequence[Entry]) -> None:
        """Put records into streams."""
        ...

    def remove_entries(self, entries: Iterable[Entry]) -> None:
        """Take records out of streams."""
        ...

    def entries_at(self, dk: int) -> list[Entry]:
        """Every entry of a record, found by looking at all there are."""
        ...

    def set_lag(self, schema: int, dk: int, lagging: bool) -> None:
        """Note whether a row stands in no field stream."""
        ...

    def append(self, logged: Logged) -> None:
        """Write a commit to the log."""
        ...

    def erase(self, rows: Sequence[Row], seqs: Sequence[int], seq: int) -> int:
        """Remove records, their history and their names, and what the commits `seqs` say of them.

        Returns how many versions there were. A commit keeps its key, which is a hash, so that a
        retry cannot bring back what was forgotten.
        """
        ...

    def drop_streams(self, schema: int, keep: Callable[[StreamName], bool], limit: int) -> bool:
        """Remove some entries of a schema's unwanted streams; False when none are left."""
        ...

    def kept_after(self, dk: int, limit: int) -> list[int]:
        """The next records, by dk, that have kept versions."""
        ...

    def expire_keys(self, before: int) -> None:
        """Forget the idempotency keys of commits before a time."""
        ...

    def raise_floor(self, seq: int) -> int:
        """Remove commits up to a seq, whose history is no longer whole; how many there were.

        The newest stays, because it says where the log stands, and so do those whose key is not
        expired: a retry must not happen twice.
        """
        ...
