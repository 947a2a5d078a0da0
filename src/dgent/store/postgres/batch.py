"""The writes of a commit, or of many: gathered here, sent at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dgent.store.engine.catalog import Entry
from dgent.store.engine.kernel import Logged
from dgent.store.engine.row import Row
from dgent.store.postgres.format import FRESH

_encode_ops = msgspec.msgpack.Encoder().encode


class Changes:
    """Rows, entries and log rows to write, in the shape of the tables."""

    def __init__(self) -> None:
        self.fresh: list[tuple[Any, ...]] = []
        self.heads: list[tuple[Any, ...]] = []
        self.was: list[int] = []
        self.archived: list[tuple[Any, ...]] = []
        self.added: list[Entry] = []
        self.removed: list[tuple[Any, ...]] = []
        self.logged: list[tuple[Any, ...]] = []
        self.unindexed: list[tuple[int, int]] = []
        self.caught_up: list[tuple[int, int]] = []
        self.thinned: list[int] = []
        self.below: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.logged or self.fresh or self.heads or self.added or self._seldom())

    def _seldom(self) -> bool:
        return bool(self.removed or self.archived or self.unindexed or self.caught_up or self.thinned)

    def insert(self, rows: Iterable[Row]) -> None:
        """Add rows of records that were never there."""
        self.fresh += [(*row, 0, None) for row in rows]

    def replace(self, row: Row, was: int) -> None:
        """Add another newest version of a record whose newest was of the commit `was`."""
        self.heads.append((*row, 0, None))
        self.was.append(was)

    def archive(self, row: Row) -> None:
        """Add a replaced version to keep."""
        self.archived.append((*row, 0))

    def thin(self, record_key: int, below: int) -> None:
        """Add an order to drop kept versions under a rev."""
        self.thinned.append(record_key)
        self.below.append(below)

    def append(self, logged: Logged) -> None:
        """Add a commit for the log; new records are identified by their place among the new ones."""
        seq, at, author, kind, note, of_seq, ops, key, digest = logged
        noted = [op if op[1] >= 0 else (op[0], FRESH - op[1], op[2]) for op in ops]
        raw = _encode_ops(noted)
        self.logged.append((seq, at, author, kind, note, of_seq, raw, key, digest, 0, None, None, 0))

    def arguments(self, id_of: dict[int, str]) -> tuple[Any, ...]:
        """Return everything, in the order that the functions take it."""
        return (
            self.fresh,
            self.heads,
            self.was,
            self.archived,
            standing(self.added, id_of),
            self.removed,
            self.logged,
            [(schema, record_key, id_of[record_key]) for schema, record_key in self.unindexed],
            [(schema, record_key, "") for schema, record_key in self.caught_up],
            self.thinned,
            self.below,
        )


def standing(entries: Iterable[Entry], id_of: dict[int, str]) -> list[tuple[Any, ...]]:
    """Return entries by record: a third of the bytes, and one value to encode instead of one per entry.

    Lists travel as text: the server reads that quicker than the driver encodes their items one by one.
    """
    records: dict[tuple[int, int], tuple[list[str], list[str]]] = {}
    last = at = None
    for ix, key, created_at, record_key in entries:
        if record_key != last or created_at != at:
            last, at = record_key, created_at
            indexes, keys = records.setdefault((record_key, created_at), ([], []))
        indexes.append(str(ix))
        keys.append(key.hex())
    return [
        (
            record_key,
            created_at,
            id_of[record_key],
            f"{{{','.join(indexes)}}}",
            '{"\\\\x' + '","\\\\x'.join(keys) + '"}',
        )
        for (record_key, created_at), (indexes, keys) in records.items()
    ]


def with_ids(entries: Iterable[Entry], id_of: dict[int, str]) -> Sequence[tuple[Any, ...]]:
    """Return entries as the table has them: with the id, which decides the partition."""
    return [
        (ix, key, created_at, record_key, id_of[record_key]) for ix, key, created_at, record_key in entries
    ]
