"""A wrapper between the store and its engine that changes every stored byte, and changes it back.

Code that looks at stored bodies anywhere but in the one place that decodes them breaks behind it:

    MemoryBackend(wrap=scramble)
    SQLiteBackend("store.db", wrap=scramble)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from dgent.store.engine.kernel import IndexScan, Writing
from dgent.store.engine.row import Brief, Row

R = TypeVar("R", Row, Brief)

_MARK = b"~"  # one byte more, so that a length taken from stored bytes is wrong too
_TABLE = bytes(byte ^ 0x5A for byte in range(256))


def scramble(kernel: Writing) -> ScrambledKernel:
    """Return the kernel behind a wrapper that changes what it stores."""
    return ScrambledKernel(kernel)


def scramble_bytes(plain: bytes | None) -> bytes | None:
    """Return bytes as the engine gets them."""
    return None if plain is None else _MARK + plain.translate(_TABLE)


def unscramble_bytes(stored: bytes | None) -> bytes | None:
    """Return bytes as they were before `scrambled`."""
    if stored is None:
        return None
    assert stored[:1] == _MARK, "these bytes did not come through the wrapper"
    return stored[1:].translate(_TABLE)


class ScrambledKernel:
    """A kernel whose stored bytes are changed; calls without a row go through as they are.

    Engines wrap their reading connections too; the methods that write are simply not called there.
    """

    def __init__(self, kernel: Writing) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    # -- rows out -------------------------------------------------------------------------

    def head(self, id: str) -> Row | None:
        """Return the newest version of a record, plain again."""
        row = self._kernel.head(id)
        return None if row is None else _out(row)

    def heads(self, ids: Sequence[str]) -> list[Row | None]:
        """Return the newest version of each of some records, plain again."""
        return [None if row is None else _out(row) for row in self._kernel.heads(ids)]

    def row(self, record_key: int) -> Row | None:
        """Return the newest version of a record by its key, plain again."""
        row = self._kernel.row(record_key)
        return None if row is None else _out(row)

    def rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        """Return the newest versions of some records, plain again."""
        return [_out(row) for row in self._kernel.rows(record_keys, content)]

    def walk(self, scan: IndexScan, descending: bool, content: bool) -> Iterator[tuple[bytes, Row]]:
        """Yield the live rows of a scan, plain again."""
        return ((key, _out(row)) for key, row in self._kernel.walk(scan, descending, content))

    def fetch(self, scan: IndexScan, descending: bool, content: bool, limit: int) -> list[Brief]:
        """Return the first rows of a scan, plain again."""
        return [_out(Brief._make(row)) for row in self._kernel.fetch(scan, descending, content, limit)]

    def fetch_id(self, id: str) -> list[Brief]:
        """Return the live version of a record, plain again."""
        return [_out(Brief._make(row)) for row in self._kernel.fetch_id(id)]

    def walk_ids(self, prefix: str, content: bool) -> Iterator[Row]:
        """Yield the live rows whose id starts with a prefix, plain again."""
        return (_out(row) for row in self._kernel.walk_ids(prefix, content))

    def unindexed_rows(self, schema: int) -> list[Row]:
        """Return live rows that are in no field index, plain again."""
        return [_out(row) for row in self._kernel.unindexed_rows(schema)]

    def past(self, record_key: int, rev: int | None = None) -> list[Row]:
        """Return the kept older versions, as they were archived."""
        return [_out(row) for row in self._kernel.past(record_key, rev)]

    # -- rows in --------------------------------------------------------------------------

    def insert(self, rows: Sequence[Row]) -> None:
        """Write rows of new records, changed."""
        self._kernel.insert([_into(row) for row in rows])

    def replace(self, row: Row) -> None:
        """Write another newest version, changed."""
        self._kernel.replace(_into(row))

    def archive(self, row: Row) -> None:
        """Write a replaced version, changed."""
        self._kernel.archive(_into(row))


def _map_row(row: R, change: Callable[[bytes | None], bytes | None]) -> R:
    return row._replace(extra=change(row.extra), data=change(row.data), content=change(row.content))


def _into(row: R) -> R:
    return _map_row(row, scramble_bytes)


def _out(row: R) -> R:
    return _map_row(row, unscramble_bytes)
