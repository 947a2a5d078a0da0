"""The base: one table of an id and a blob, as anybody writes it by hand with apsw.

It has no tags, no versions, no log and no index but the one of the id. `add_index` adds the best one for
queries by tag and kind, over the records of that moment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

from bench.record import Note, Sample
from dgent import Datum, ids

CHECKPOINT_PAGES = 1000  # SQLite's default
LEVELS = {"full": "FULL", "relaxed": "NORMAL"}

_INSERT = "INSERT INTO bare (id, data) VALUES (?, ?)"
_INDEX = """
CREATE TABLE tagged (tag TEXT, kind TEXT, n INT, PRIMARY KEY (tag, kind, n)) WITHOUT ROWID;
INSERT INTO tagged
    SELECT tag.value, bare.data ->> 'kind', bare.rowid
    FROM (SELECT rowid, CAST(data AS TEXT) AS data FROM bare) bare, json_each(bare.data, '$.tags') tag
    ORDER BY 1, 2, 3;
"""
_NEWEST = (
    "SELECT bare.id, bare.data FROM tagged CROSS JOIN bare ON bare.rowid = tagged.n"
    " WHERE tagged.tag = ? AND tagged.kind = ? ORDER BY tagged.n DESC LIMIT ?"
)


@dataclasses.dataclass(frozen=True)
class Tagged(Note):
    """What is in a blob."""

    tags: tuple[str, ...]


_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Tagged).decode


def encode(value: Note | dict[str, Any], tags: Iterable[str]) -> bytes:
    """Return the blob of a record: its fields and its tags."""
    return _encode(value)[:-1] + b',"tags":' + _encode(sorted(tags)) + b"}"


class Bare:
    """One connection and its prepared statements (apsw's cache)."""

    def __init__(self, path: str, durability: str) -> None:
        self.connection = apsw.Connection(path, statementcachesize=128)
        self.connection.set_busy_timeout(60_000)
        for pragma in (
            "journal_mode = WAL",
            f"synchronous = {LEVELS[durability]}",
            "mmap_size = 0",
            "cache_size = -16384",
            f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
        ):
            self.connection.execute(f"PRAGMA {pragma}").fetchall()
        # apsw's SQLite has STAT4: without this it prepares many statements anew whenever values are bound.
        self.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self.execute = self.connection.cursor().execute
        self.many = self.connection.cursor().executemany
        self.execute("CREATE TABLE IF NOT EXISTS bare (id TEXT PRIMARY KEY, data BLOB)")

    def close(self) -> None:
        """Close the connection, which also checkpoints the log."""
        self.connection.close()

    def put(self, value: Note, tags: frozenset[str]) -> None:
        """One record in one transaction."""
        self.execute(_INSERT, (ids.new_id(), encode(value, tags)))

    def put_together(self, samples: Sequence[Sample]) -> None:
        """Many records in one transaction."""
        self._insert([(ids.new_id(), encode(*sample)) for sample in samples])

    def put_many(self, datums: Sequence[Datum]) -> None:
        """The same for records that have an id already."""
        self._insert([(each.id, encode(each.data, each.tags)) for each in datums])

    def _insert(self, rows: list[tuple[str, bytes]]) -> None:
        self.execute("BEGIN IMMEDIATE")
        self.many(_INSERT, rows)
        self.execute("COMMIT")

    def get(self, id: str) -> Tagged:
        """A record."""
        found: Any = self.execute("SELECT data FROM bare WHERE id = ?", (id,)).fetchall()
        return decode(found[0][0])

    def add_index(self) -> None:
        """Make the best index for `newest`."""
        self.execute("BEGIN IMMEDIATE")
        self.execute(_INDEX)
        self.execute("COMMIT")

    def newest(self, tag: str, kind: str, limit: int) -> list[tuple[str, Tagged]]:
        """The newest records with a tag and a kind."""
        found: Any = self.execute(_NEWEST, (tag, kind, limit)).fetchall()
        return [(id, decode(data)) for id, data in found]

    def some_ids(self, count: int) -> list[str]:
        """Evenly spread ids."""
        sql = "SELECT id FROM bare WHERE rowid % (SELECT max(1, count(*) / ?) FROM bare) = 0"
        rows: Any = self.execute(sql, (count,)).fetchall()
        return [id for (id,) in rows]
