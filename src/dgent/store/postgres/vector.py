"""The statements of vector indexes on Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from dgent.store.engine.kernel import VectorDoc, VectorRow
from dgent.store.postgres.bridge import wait
from dgent.store.postgres.sql import Texts

R = TypeVar("R")


class VectorReads:
    """Reads of vector indexes in one transaction."""

    texts: Texts
    _all: Callable[..., list[Any]]

    def vector_bodies(self, index: int, slots: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        sql = (
            f"SELECT v.slot, v.body FROM unnest($2::bigint[]) w(slot) JOIN {self.texts.u}.vector v"
            " ON v.ix = $1 AND v.slot = w.slot WHERE length(v.digest) > 0"
        )
        return [(slot, body) for slot, body in self._all(sql, index, list(slots))]

    def vectors_after(self, index: int, slot: int, limit: int) -> list[VectorRow]:
        sql = (
            f"SELECT slot, dk, rev, digest, body FROM {self.texts.u}.vector"
            " WHERE ix = $1 AND slot > $2 ORDER BY slot LIMIT $3"
        )
        return [VectorRow(*found) for found in self._all(sql, index, slot, limit)]

    def vector_docs(self, index: int, record_keys: Iterable[int] | None) -> dict[int, VectorDoc]:
        sql = f"SELECT dk, slot, rev, digest FROM {self.texts.u}.vector WHERE ix = $1"
        if record_keys is None:
            found = self._all(sql, index)
        else:
            found = self._all(f"{sql} AND dk = ANY ($2::bigint[])", index, list(record_keys))
        return {record_key: VectorDoc(*doc) for record_key, *doc in found}

    def calculate(self, work: Callable[[], R]) -> R:
        """Run work on another thread: reads on Postgres are on that of the event loop."""
        done: R = wait(asyncio.get_running_loop().run_in_executor(None, work))
        return done


class VectorWrites:
    """Writes of vector indexes in one transaction."""

    texts: Texts
    _run: Callable[..., int]

    def put_vectors(self, index: int, rows: Sequence[VectorRow]) -> None:
        if not rows:
            return
        self.drop_vectors(index, [row.record_key for row in rows])
        self._run(
            f"INSERT INTO {self.texts.u}.vector (ix, slot, dk, rev, digest, body) SELECT $1, * FROM"
            " unnest($2::bigint[], $3::bigint[], $4::int[], $5::bytea[], $6::bytea[])",
            index,
            *(list(column) for column in zip(*rows, strict=True)),
        )

    def drop_vectors(self, index: int, record_keys: Sequence[int]) -> None:
        sql = f"DELETE FROM {self.texts.u}.vector WHERE ix = $1 AND dk = ANY ($2::bigint[])"
        self._run(sql, index, list(record_keys))
