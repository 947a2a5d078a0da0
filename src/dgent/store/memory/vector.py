"""Vector indexes in the memory of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from dgent.store.engine.kernel import VectorDoc, VectorRow

R = TypeVar("R")


class VectorTable:
    """The rows of vector indexes, by index and slot; each record has at most one in an index."""

    def __init__(self) -> None:
        self._vectors: dict[int, dict[int, VectorRow]] = {}
        self._slots: dict[int, dict[int, int]] = {}  # by index and record key

    def vector_bodies(self, index: int, slots: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        rows = self._vectors.get(index, {})
        return [(slot, rows[slot].body) for slot in slots if slot in rows and rows[slot].digest]

    def vectors_after(self, index: int, slot: int, limit: int) -> list[VectorRow]:
        rows = self._vectors.get(index, {})
        later = sorted(each for each in rows if each > slot)
        return [rows[each] for each in later[:limit]]

    def vector_docs(self, index: int, record_keys: Iterable[int] | None) -> dict[int, VectorDoc]:
        slots, rows = self._slots.get(index, {}), self._vectors.get(index, {})
        wanted = slots if record_keys is None else record_keys
        found = ((key, rows[slots[key]]) for key in wanted if key in slots)
        return {key: VectorDoc(row.slot, row.rev, row.digest) for key, row in found}

    def put_vectors(self, index: int, rows: Sequence[VectorRow]) -> None:
        self.drop_vectors(index, [row.record_key for row in rows])
        self._vectors.setdefault(index, {}).update((row.slot, row) for row in rows)
        self._slots.setdefault(index, {}).update((row.record_key, row.slot) for row in rows)

    def drop_vectors(self, index: int, record_keys: Sequence[int]) -> None:
        slots, rows = self._slots.get(index, {}), self._vectors.get(index, {})
        for record_key in record_keys:
            if record_key in slots:
                del rows[slots.pop(record_key)]

    def drop_vector_index(self, index: int) -> None:
        """Remove all rows of an index."""
        self._vectors.pop(index, None)
        self._slots.pop(index, None)

    def calculate(self, work: Callable[[], R]) -> R:
        """Run work here: searches for vectors are on a thread of their own."""
        return work()
