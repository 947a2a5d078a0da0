"""Record the writes of a transaction for the journal, and pass them on to the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dgent import ids
from dgent.store.engine.catalog import Entry, IndexName, SchemaState, TailRecord
from dgent.store.engine.kernel import Logged, Writing
from dgent.store.engine.row import Row


class RecordedCommit(NamedTuple):
    """A commit with the rows that it wrote, by record key; its name `c` is the same in every copy."""

    logged: Logged
    rows: dict[int, Row]
    c: str


class RecordedChanges:
    """The writes of one transaction that lines must hold; derived rows are left out."""

    def __init__(self) -> None:
        self.commits: list[RecordedCommit] = []
        self.rows: dict[int, Row] = {}  # of the current commit, by record key
        self.new: set[int] = set()  # the keys of new records
        self.keep: dict[tuple[int, int], int] = {}  # how many older versions to keep, by record key and rev
        self.states: dict[str, SchemaState] = {}
        self.states_before: dict[str, SchemaState | None] = {}
        self.drops: dict[int, int] = {}
        self.erased: list[Row] = []
        self.floor: int | None = None
        self.expired: int | None = None

    @property
    def has_retention(self) -> bool:
        """True if a retention rule was applied."""
        return bool(self.drops) or self.floor is not None or self.expired is not None


class RecordingKernel:
    """A kernel that records the writes it passes on; wrappers that change bytes are below it.

    New records wait until anything else is asked of the cache: `unbegun` is True until its transaction
    has to begin, which a commit that only adds records does not need.
    """

    def __init__(self, kernel: Writing, commit_names: dict[int, str], begin: Callable[[], None]) -> None:
        self._kernel, self._commit_names, self._begin = kernel, commit_names, begin
        self.recorded = RecordedChanges()
        self.unbegun = False
        self.drop()
        # Rows that wait do not change these answers.
        for name in ("name", "number", "state", "index_number", "forgotten_rev"):
            setattr(self, name, getattr(kernel, name))

    def __getattr__(self, name: str) -> Any:
        if name not in ("tip", "generation"):
            self.enter()
        return getattr(self._kernel, name)

    # -- rows that wait -------------------------------------------------------------------

    def enter(self) -> None:
        """Begin the cache's transaction, unless it has begun, and pass on to it what waits."""
        if self.unbegun:
            self.unbegun = False
            self._begin()
        if self._rows or self._log or self._entries or self._records:
            rows, entries, records = list(self._rows.values()), self._entries, self._records
            log = self._log
            self.drop()
            self._kernel.insert(rows)
            self._kernel.add_entries(entries)
            self._kernel.add_records(records)
            for logged, c in log:
                self._commit_names[logged.seq] = c
                self._kernel.append(logged)

    @property
    def _inside(self) -> Writing:
        """The kernel below, inside the cache's transaction."""
        self.enter()
        return self._kernel

    def drop(self) -> None:
        """Drop what waits."""
        self._rows: dict[str, Row] = {}
        self._entries: list[Entry] = []
        self._records: list[TailRecord] = []
        self._log: list[tuple[Logged, str]] = []

    def take_changes(self) -> RecordedChanges:
        """Return the writes since the last call."""
        recorded, self.recorded = self.recorded, RecordedChanges()
        return recorded

    # -- the kernel -----------------------------------------------------------------------

    def head(self, id: str) -> Row | None:
        """Return the newest version of a record."""
        return self._rows.get(id) or self._kernel.head(id)

    def heads(self, ids: Sequence[str]) -> list[Row | None]:
        """Return the newest version of each of some records."""
        if self._rows:
            return [self.head(id) for id in ids]
        return self._kernel.heads(ids)

    def ends_at(self, seq: int) -> bool:
        """Check that the log ends there."""
        return bool(self.tip.seq == seq)

    def are_new(self, ids: Sequence[str]) -> bool:
        """Check that no record has one of these ids."""
        return self._rows.keys().isdisjoint(ids) and self._kernel.are_new(ids)

    def make_number(self, text: str) -> int:
        """Return the number of a name, giving it one if it has none."""
        number = self._kernel.number(text)
        return self._inside.make_number(text) if number is None else number

    def make_index(self, name: IndexName) -> int:
        """Return the number of an index, making it if it is new."""
        number = self._kernel.index_number(name)
        return self._inside.make_index(name) if number is None else number

    def insert(self, rows: Sequence[Row]) -> None:
        """Insert rows of new records."""
        for row in rows:
            self._rows[row.id] = self.recorded.rows[row.record_key] = row
            self.recorded.new.add(row.record_key)

    def add_entries(self, entries: Sequence[Entry]) -> None:
        """Add entries to indexes."""
        self._entries.extend(entries)

    def add_records(self, records: Sequence[TailRecord]) -> None:
        """Add the entries of new records to indexes."""
        self._records.extend(records)

    def append(self, logged: Logged) -> None:
        """Append a commit to the log, and give it a name."""
        recorded, c = self.recorded, ids.new_id()
        self._log.append((logged, c))
        recorded.commits.append(RecordedCommit(logged, recorded.rows, c))
        recorded.rows = {}

    def replace(self, row: Row) -> None:
        """Replace the newest version of a record."""
        self._inside.replace(row)
        recorded = self.recorded
        recorded.rows[row.record_key] = row
        below = recorded.drops.pop(row.record_key, None)
        if below is not None:
            recorded.keep[row.record_key, row.rev] = row.rev - below

    def drop_past(self, record_key: int, below_rev: int) -> int:
        """Remove old versions below a rev; if `replace` follows, this is the schema's history limit."""
        self.recorded.drops[record_key] = below_rev
        return self._inside.drop_past(record_key, below_rev)

    def set_state(self, state: SchemaState) -> None:
        """Store the state of a schema."""
        self.recorded.states_before.setdefault(state.name, self._inside.state(state.name))
        self._inside.set_state(state)
        self.recorded.states[state.name] = state

    def erase(self, rows: Sequence[Row], seqs: Sequence[int], seq: int) -> int:
        """Remove records and their traces in the log."""
        self.recorded.erased.extend(rows)
        return self._inside.erase(rows, seqs, seq)

    def expire_keys(self, before: int) -> None:
        """Delete the keys of commits before a time, in microseconds."""
        self._inside.expire_keys(before)
        if self._kernel.connection.changes():  # type: ignore[attr-defined]
            self.recorded.expired = before

    def raise_floor(self, seq: int) -> int:
        """Remove commits up to a seq, and return how many."""
        self.recorded.floor = seq
        return self._inside.raise_floor(seq)
