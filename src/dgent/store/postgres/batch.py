"""The writes of a commit, or of many: gathered here, sent at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec

from dgent.store.engine.catalog import Entry, TailRecord
from dgent.store.engine.kernel import Logged, LoggedOp
from dgent.store.engine.row import Row
from dgent.store.engine.tail import group, list_added
from dgent.store.postgres.format import FRESH

_encode_ops = msgspec.msgpack.Encoder().encode
_COLUMNS = [Row._fields.index(name) for name in ("id", "created_at", "tags", "data")]


class Changes:
    """Rows, entries and log rows to write, in the shape of the tables."""

    def __init__(self) -> None:
        self.fresh: list[Row] = []
        self.heads: list[tuple[Any, ...]] = []
        self.was: list[int] = []
        self.archived: list[tuple[Any, ...]] = []
        self.added: list[Entry] = []
        self.records: list[TailRecord] = []  # new records with all of their entries
        self.removed: list[tuple[Any, ...]] = []
        self.logged: list[Logged] = []
        self.unindexed: list[tuple[int, int]] = []
        self.caught_up: list[tuple[int, int]] = []
        self.thinned: list[int] = []
        self.below: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.logged or self.fresh or self.heads or self.has_entries() or self._seldom())

    def has_entries(self) -> bool:
        """Return whether there are entries to add."""
        return bool(self.added or self.records)

    def _seldom(self) -> bool:
        return bool(self.removed or self.archived or self.unindexed or self.caught_up or self.thinned)

    def list_entries(self) -> list[Entry]:
        """Return all entries to add, one by one."""
        return [*self.added, *list_added(self.records)]

    def insert(self, rows: Sequence[Row]) -> None:
        """Add rows of records that were never there."""
        self.fresh += rows

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
        """Add a commit for the log."""
        self.logged.append(logged)

    def arguments(self, id_of: dict[int, str]) -> tuple[Any, ...]:
        """Return everything, in the order that the functions take it."""
        return (
            [(*row, 0, None) for row in self.fresh],
            self.heads,
            self.was,
            self.archived,
            [*standing(self.added, id_of), *standing_records(self.records, id_of)],
            self.removed,
            [_log_row(*logged) for logged in self.logged],
            [(schema, record_key, id_of[record_key]) for schema, record_key in self.unindexed],
            [(schema, record_key, "") for schema, record_key in self.caught_up],
            self.thinned,
            self.below,
        )

    def list_columns(self) -> tuple[Any, ...]:
        """Return new records as `dgent_put` takes them; they differ only in id, time, tags and data."""
        columns, first, logged = [*zip(*self.fresh, strict=True)], self.fresh[0], self.logged[0]
        code, count = logged.ops[0][0], len(self.fresh)
        keyed: list[int] = []
        keys: list[bytes] = []
        unkeyed: list[int] = []
        for place, (_, _, numbers, keys_of, _, _) in enumerate(self.records, 1):
            for number, key in zip(numbers, keys_of, strict=True):
                if key:
                    keyed.append(number << 32 | place)
                    keys.append(key)
                else:
                    unkeyed.append(number << 32 | place)
        return (
            count,
            *(first.schema, first.schema_version, first.author, logged.author, logged.kind),
            *(columns[place] for place in _COLUMNS),
            [_encode_place(code, place) for place in range(1, count + 1)],
            keyed + unkeyed,
            keys,
        )


@cache
def _encode_place(code: int, place: int) -> bytes:
    return _encode_ops([(code, -place, 1)])


def _log_row(
    seq: int,
    at: int,
    author: int,
    kind: int,
    note: str | None,
    of_seq: int | None,
    ops: Sequence[LoggedOp],
    key: bytes | None,
    digest: bytes | None,
) -> tuple[Any, ...]:
    """Return a commit as the log has it; new records are identified by their place among the new ones."""
    noted = [op if op[1] >= 0 else (op[0], FRESH - op[1], op[2]) for op in ops]
    return seq, at, author, kind, note, of_seq, _encode_ops(noted), key, digest, 0, None, None, 0


def standing(entries: Iterable[Entry], id_of: dict[int, str]) -> list[tuple[Any, ...]]:
    """Return entries by record: a third of the bytes, and one value to encode instead of one per entry.

    Lists travel as text: the server reads that quicker than the driver encodes their items one by one.
    """
    return standing_records(group(entries, ()), id_of)


def standing_records(records: Iterable[TailRecord], id_of: dict[int, str]) -> list[tuple[Any, ...]]:
    """Return the new entries of records in the same form."""
    # Records with the same tags share the list of their indexes, and most keys are few: texts are made once.
    indexes: dict[int, str] = {}
    texts: dict[bytes, str] = {}
    found = []
    for created_at, record_key, numbers, keys, _, _ in records:
        named = indexes.get(id(numbers))
        if named is None:
            named = indexes[id(numbers)] = f"{{{','.join(map(str, numbers))}}}"
        parts = []
        for key in keys:
            text = texts.get(key)
            if text is None:
                text = texts[key] = f'"\\\\x{key.hex()}"'
            parts.append(text)
        found.append((record_key, created_at, id_of[record_key], named, f"{{{','.join(parts)}}}"))
    return found


def with_ids(entries: Iterable[Entry], id_of: dict[int, str]) -> Sequence[tuple[Any, ...]]:
    """Return entries as the table has them: with the id, which decides the partition."""
    return [
        (ix, key, created_at, record_key, id_of[record_key]) for ix, key, created_at, record_key in entries
    ]
