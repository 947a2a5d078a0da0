"""The statements of vector indexes: rows by slot, and what the others need of them.

The place of a row is the number of its index and its slot in one, so that the rows of an index lie together,
in the order of their slots.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import apsw

from dgent.store.engine.kernel import VectorDoc, VectorRow

R = TypeVar("R")

_SLOT_BITS = 40
_SLOTS = (1 << _SLOT_BITS) - 1
_BODIES = "SELECT j.value, v.body FROM json_each(?2) j CROSS JOIN vector v ON v.place = ?1 + j.value"
_AFTER = (
    "SELECT place, dk, rev, digest, body FROM vector WHERE place > ? AND place <= ? ORDER BY place LIMIT ?"
)
_DOC = "SELECT dk, place, rev, digest FROM vector WHERE ix = ? AND dk = ?"
_DOCS = "SELECT dk, place, rev, digest FROM vector WHERE ix = ?"
_PUT = "INSERT OR REPLACE INTO vector (place, ix, dk, rev, digest, body) VALUES (?, ?, ?, ?, ?, ?)"
_DROP = "DELETE FROM vector WHERE ix = ? AND dk = ?"


def _place(index: int, slot: int) -> int:
    return index << _SLOT_BITS | slot


class VectorReads:
    """Reads of vector indexes on one connection."""

    connection: apsw.Connection
    _all: Callable[..., list[Any]]

    def vector_bodies(self, index: int, slots: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        first = index << _SLOT_BITS
        return self._all(_BODIES, first, json.dumps(list(slots)))

    def vectors_after(self, index: int, slot: int, limit: int) -> list[VectorRow]:
        found = self._all(_AFTER, _place(index, slot), _place(index, _SLOTS), limit)
        return [VectorRow(place & _SLOTS, *rest) for place, *rest in found]

    def vector_docs(self, index: int, record_keys: Iterable[int] | None) -> dict[int, VectorDoc]:
        if record_keys is None:
            found = self._all(_DOCS, index)
        else:
            asked = [(index, record_key) for record_key in record_keys]
            found = self.connection.cursor().executemany(_DOC, asked).fetchall()
        return {record_key: VectorDoc(place & _SLOTS, *rest) for record_key, place, *rest in found}

    def calculate(self, work: Callable[[], R]) -> R:
        """Run work here: reads and writes that take long are on a thread of their own."""
        return work()


class VectorWrites:
    """Writes of vector indexes on the writing connection."""

    _many: Callable[..., None]

    def put_vectors(self, index: int, rows: Sequence[VectorRow]) -> None:
        self._many(_PUT, [(_place(index, slot), index, *rest) for slot, *rest in rows])

    def drop_vectors(self, index: int, record_keys: Sequence[int]) -> None:
        self._many(_DROP, [(index, record_key) for record_key in record_keys])
