"""Noting what a ledger writes, so that the same can be written as lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgent.store.catalog import SchemaState
from dgent.store.kernel import Logged, Writing
from dgent.store.row import Row


class Recorded:
    """What one transaction wrote, besides what can be derived from it."""

    def __init__(self) -> None:
        self.commits: list[tuple[Logged, dict[int, Row]]] = []
        self.rows: dict[int, Row] = {}  # of the commit that is being written
        self.new: set[int] = set()  # the records that were not there before
        self.keep: dict[tuple[int, int], int] = {}  # how many older versions stay with a version
        self.states: dict[str, SchemaState] = {}
        self.states_before: dict[str, SchemaState | None] = {}
        self.drops: dict[int, int] = {}
        self.erased: list[Row] = []
        self.floor: int | None = None
        self.expired: int | None = None

    @property
    def thinned(self) -> bool:
        """Whether a retention rule was applied."""
        return bool(self.drops) or self.floor is not None or self.expired is not None


class Recording:
    """A kernel that notes what goes through it. Whatever changes bytes is behind it."""

    def __init__(self, kernel: Writing) -> None:
        self._kernel = kernel
        self.recorded = Recorded()
        # Asked many times in a commit, so they are found at once.
        for name in ("head", "make_number", "make_stream", "add_entries", "state", "name", "stream"):
            setattr(self, name, getattr(kernel, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def taken(self) -> Recorded:
        """What was noted since the last time."""
        recorded, self.recorded = self.recorded, Recorded()
        return recorded

    def insert(self, rows: Sequence[Row]) -> None:
        """Rows of records that were never there."""
        self._kernel.insert(rows)
        for row in rows:
            self.recorded.rows[row.dk] = row
            self.recorded.new.add(row.dk)

    def replace(self, row: Row) -> None:
        """Another newest version of a record."""
        self._kernel.replace(row)
        recorded = self.recorded
        recorded.rows[row.dk] = row
        below = recorded.drops.pop(row.dk, None)
        if below is not None:
            recorded.keep[row.dk, row.rev] = row.rev - below

    def drop_past(self, dk: int, below_rev: int) -> int:
        """Remove kept versions under a rev; with a newer version right after it, as its schema wants."""
        self.recorded.drops[dk] = below_rev
        return self._kernel.drop_past(dk, below_rev)

    def append(self, logged: Logged) -> None:
        """Write a commit to the log."""
        self._kernel.append(logged)
        recorded = self.recorded
        recorded.commits.append((logged, recorded.rows))
        recorded.rows = {}

    def set_state(self, state: SchemaState) -> None:
        """Store what is known of a schema."""
        self.recorded.states_before.setdefault(state.name, self._kernel.state(state.name))
        self._kernel.set_state(state)
        self.recorded.states[state.name] = state

    def erase(self, rows: Sequence[Row], seqs: Sequence[int], seq: int) -> int:
        """Remove records and what is said of them."""
        self.recorded.erased.extend(rows)
        return self._kernel.erase(rows, seqs, seq)

    def expire_keys(self, before: int) -> None:
        """Forget the keys of commits before a time."""
        self._kernel.expire_keys(before)
        if self._kernel.connection.changes():  # type: ignore[attr-defined]
            self.recorded.expired = before

    def raise_floor(self, seq: int) -> int:
        """Remove commits up to a seq."""
        self.recorded.floor = seq
        return self._kernel.raise_floor(seq)
