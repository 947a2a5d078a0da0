"""The other side: what a good engineer writes by hand on dgent's own tables with apsw alone.

It writes the very rows, index entries and commits that dgent writes, and nothing else: no checks, no
events, no history of replaced versions. `check_same` holds it to that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

from bench.record import AUTHOR, SCHEMA, Note, Sample
from dgent import Datum, clock, ids
from dgent.model import order
from dgent.store.engine.catalog import number_key

_DATUM = (
    "INSERT INTO datum (dk, id, rev, seq, live, t, at, schema, sv, author, tags, enc, data)"
    " VALUES (?, ?, 1, ?, 1, ?, ?, ?, 1, ?, ?, 0, ?)"
)
_ENTRY = "INSERT INTO entry (ix, key, t, dk) VALUES (?, ?, ?, ?)"
_COMMIT = "INSERT INTO commits (seq, at, author, kind, ops) VALUES (?, ?, ?, 0, ?)"
_GET = "SELECT data FROM datum WHERE id = ? AND trail = 0"
_GET_ALL = (
    "SELECT dk, id, rev, seq, live, t, at, schema, sv, author, source, parent, tags, enc, fk, x, data,"
    " content FROM datum WHERE id = ? AND trail = 0"
)
_SIDE = """
CREATE TABLE bench_side (
    schema INT, tag TEXT, kind TEXT, t INT, dk INT, PRIMARY KEY (schema, tag, kind, t, dk)
) WITHOUT ROWID;
INSERT INTO bench_side
    SELECT ix.schema, ix.tag, CAST(substr(e.key, 2) AS TEXT), e.t, e.dk FROM ix JOIN entry e ON e.ix = ix.ix
    WHERE ix.path = '.kind' AND ix.tag <> '' ORDER BY 1, 2, 3, 4, 5;
"""
_NEWEST = (
    "SELECT d.id, d.t, d.tags, d.data FROM bench_side s CROSS JOIN datum d ON d.dk = s.dk"
    " WHERE s.schema = ? AND s.tag = ? AND s.kind = ? ORDER BY s.t DESC, s.dk DESC LIMIT ?"
)
CHECKPOINT_PAGES = 1000  # SQLite's default, and what dgent's writer uses too

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_decode = msgspec.json.Decoder(Note).decode


class Raw:
    """One connection, prepared statements (apsw's cache), and the numbers of names and streams at hand."""

    def __init__(self, path: str, durability: str) -> None:
        self.connection = apsw.Connection(path, statementcachesize=128)
        level = "FULL" if durability == "full" else "NORMAL"
        for pragma in (
            "journal_mode = WAL",
            f"synchronous = {level}",
            "mmap_size = 0",
            "cache_size = -16384",
            f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
        ):
            self.connection.execute(f"PRAGMA {pragma}").fetchall()
        # apsw's SQLite has STAT4: without this it prepares many statements anew whenever values are bound.
        self.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self.execute = self.connection.cursor().execute
        self.many = self.connection.cursor().executemany
        names = dict(self.execute("SELECT text, n FROM name").fetchall())
        self.schema, self.author = names.get(SCHEMA.name), names.get(AUTHOR)
        self.seq = self.execute("SELECT max(seq) FROM commits").fetchall()[0][0] or 0
        self.dk = self.execute("SELECT max(dk) FROM datum").fetchall()[0][0] or 0
        streams = self.execute("SELECT tag, path, ix FROM ix WHERE schema = ?", (self.schema,)).fetchall()
        self.streams: dict[tuple[str, str], int] = {(tag, path): ix for tag, path, ix in streams}

    def close(self) -> None:
        """Close the connection, which also folds the log into the file."""
        self.connection.close()

    # -- writes ---------------------------------------------------------------------------

    def _rows(
        self, id: str, t: int, at: int, data: bytes, kind: str, tags: Iterable[str], into: list[Any]
    ) -> Any:
        """The row of a record; its entries are added to `into`."""
        self.dk = dk = self.dk + 1
        streams, ordered = self.streams, sorted(tags)
        key = order.index_key(kind)[0]
        into.append((streams["", ""], b"", t, dk))
        into.append((streams["", "@author"], number_key(self.author), t, dk))
        into.append((streams["", ".kind"], key, t, dk))
        for tag in ordered:
            into.append((streams[tag, ""], b"", t, dk))
            into.append((streams[tag, ".kind"], key, t, dk))
        return dk, id, self.seq, t, at, self.schema, self.author, _encode(ordered).decode(), data

    def put(self, value: Note, tags: frozenset[str]) -> str:
        """One record in one commit."""
        execute, id, now = self.execute, ids.new_id(), time.time_ns() // 1000
        self.seq += 1
        entries: list[Any] = []
        row = self._rows(id, now, now, _encode(value), value.kind, tags, entries)
        execute("BEGIN IMMEDIATE")
        execute(_DATUM, row)
        self.many(_ENTRY, entries)
        execute(_COMMIT, (self.seq, now, self.author, _pack([(1, row[0], 1)])))
        execute("COMMIT")
        return id

    def put_together(self, samples: Sequence[Sample]) -> None:
        """Records that each have their commit, in one transaction."""
        now = time.time_ns() // 1000
        rows: list[Any] = []
        entries: list[Any] = []
        commits: list[Any] = []
        for value, tags in samples:
            self.seq += 1
            rows.append(self._rows(ids.new_id(), now, now, _encode(value), value.kind, tags, entries))
            commits.append((self.seq, now, self.author, _pack([(1, self.dk, 1)])))
        self._transaction(rows, entries, commits)

    def put_many(self, datums: Sequence[Datum]) -> None:
        """Records that all belong to one commit; sorted entries land on neighbouring pages."""
        now = time.time_ns() // 1000
        self.seq += 1
        rows: list[Any] = []
        entries: list[Any] = []
        for datum in datums:
            data, t = datum.data, clock.to_us(datum.created_at)
            rows.append(self._rows(datum.id, t, now, _encode(data), data["kind"], datum.tags, entries))
        entries.sort()
        ops = _pack([(1, row[0], 1) for row in rows])
        self._transaction(rows, entries, [(self.seq, now, self.author, ops)])

    def _transaction(self, rows: list[Any], entries: list[Any], commits: list[Any]) -> None:
        self.execute("BEGIN IMMEDIATE")
        self.many(_DATUM, rows)
        self.many(_ENTRY, entries)
        self.many(_COMMIT, commits)
        self.execute("COMMIT")

    # -- reads ----------------------------------------------------------------------------

    def get(self, id: str) -> Note:
        """The value of a record, and nothing else of it."""
        return _decode(self.execute(_GET, (id,)).fetchall()[0][0])

    def get_all(self, id: str) -> tuple[Any, Note]:
        """All columns of a record and its value."""
        row = self.execute(_GET_ALL, (id,)).fetchall()[0]
        return row, _decode(row[16])

    def add_side(self) -> None:
        """Make the best index for `newest`; the records of now are in it, later ones are not."""
        self.execute("BEGIN IMMEDIATE")
        self.execute(_SIDE)
        self.execute("COMMIT")

    def newest(self, tag: str, kind: str, limit: int) -> list[tuple[str, int, str, Note]]:
        """The newest records with a tag and a kind."""
        found = self.execute(_NEWEST, (self.schema, tag, kind, limit)).fetchall()
        return [(id, t, tags, _decode(data)) for id, t, tags, data in found]

    # -- for checks -----------------------------------------------------------------------

    def written(self, id: str) -> tuple[Any, ...]:
        """What is stored for a record, without what differs between two runs (id, times, numbers)."""
        row = self.get_all(id)[0]
        entries = self.execute(
            "SELECT ix, key FROM entry WHERE dk = ? ORDER BY ix, key", (row[0],)
        ).fetchall()
        ops = self.execute(
            "SELECT author, kind, note, key, length(ops) FROM commits WHERE seq = ?", (row[3],)
        )
        return row[2], row[4], row[7:], entries, ops.fetchall()
