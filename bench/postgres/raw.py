"""The other side on Postgres: what a good engineer writes by hand on dgent's own tables with asyncpg alone.

It writes the very rows, index entries and commits that dgent writes, and nothing else: no clock that
processes share, no checks, no events, no key that tells a repeated commit. `check_same` holds it to that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from bench.postgres.databases import UNIVERSE
from bench.record import AUTHOR, SCHEMA, Note, Sample
from dgent import ids
from dgent.model import order
from dgent.store.engine.catalog import number_key

U = UNIVERSE

# Without this the server plans a get anew each time, because it overrates what partitions cost a kept plan.
_SESSION = {"jit": "off", "plan_cache_mode": "force_generic_plan"}

# One statement: one round trip and one transaction. Arrays of whole rows cost the server less than arrays
# of columns, and three statements in a transaction cost more than both.
_PUT = f"""
WITH d AS (INSERT INTO {U}.datum SELECT * FROM unnest($1::{U}.datum[])),
e AS (INSERT INTO {U}.entry SELECT * FROM unnest($2::{U}.entry[]))
INSERT INTO {U}.commits SELECT * FROM unnest($3::{U}.commits[])
"""
_ROW = (
    "dk, id, rev, seq, live, t, at, schema, sv, author, source, parent, tags, enc, fk, x, data, content,"
    " trail, base_rev"
)
_GET = (
    "SELECT dk, id, rev, seq, t, schema, sv, author, source, parent, tags, x, data, content"
    f" FROM {U}.datum WHERE id = $1 AND trail = 0"
)
_NEWEST = f"""
SELECT d.id, d.t, d.tags, d.data FROM (
    SELECT t, dk, id FROM {U}.entry WHERE ix = $1 AND key = $2 ORDER BY t DESC, dk DESC LIMIT $3
) e JOIN {U}.datum d ON d.id = e.id AND d.trail = 0
ORDER BY e.t DESC, e.dk DESC
"""

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_decode = msgspec.json.Decoder(Note).decode


class RawPostgres:
    """One connection, prepared statements, and the numbers of names and streams at hand."""

    connection: asyncpg.Connection
    streams: dict[tuple[str, str], int]

    @classmethod
    async def open(cls, url: str, apart: int = 0) -> RawPostgres:
        """Connect; writers of several processes each count on from a place of their own."""
        self = cls()
        self.connection = connection = await asyncpg.connect(url, server_settings=_SESSION)
        names = dict(await connection.fetch(f"SELECT text, n FROM {U}.name"))
        self.schema, self.author = names[SCHEMA.name], names[AUTHOR]
        found = await connection.fetch(f"SELECT tag, path, ix FROM {U}.ix WHERE schema = $1", self.schema)
        self.streams = {(tag, path): ix for tag, path, ix in found}
        seq, dk = await connection.fetchrow(f"SELECT seq, dk FROM {U}.clock")
        self.seq, self.dk = seq + (apart << 32), dk + (apart << 32)
        self._put = await connection.prepare(_PUT)
        self._get = await connection.prepare(_GET)
        self._newest = await connection.prepare(_NEWEST)
        return self

    async def close(self) -> None:
        """Close the connection."""
        await self.connection.close()

    # -- writes ---------------------------------------------------------------------------

    async def put_together(self, samples: Sequence[Sample]) -> list[str]:
        """Records that each have their commit, in one transaction; their ids."""
        now, base = time.time_ns() // 1000, self.dk
        rows: list[Any] = []
        entries: list[Any] = []
        commits: list[Any] = []
        schema, author, streams, by_author = self.schema, self.author, self.streams, number_key(self.author)
        for value, tags in samples:
            self.seq += 1
            self.dk = dk = self.dk + 1
            id, ordered, key = ids.new_id(), sorted(tags), order.index_key(value.kind)[0]
            row = (dk, id, 1, self.seq, 1, now, now, schema, 1, author, None, None, _encode(ordered).decode())
            rows.append((*row, 0, None, None, _encode(value), None, 0, None))
            entries.append((streams["", ""], b"", now, dk, id))
            entries.append((streams["", "@author"], by_author, now, dk, id))
            entries.append((streams["", ".kind"], key, now, dk, id))
            for tag in ordered:
                entries.append((streams[tag, ""], b"", now, dk, id))
                entries.append((streams[tag, ".kind"], key, now, dk, id))
            ops = _pack([(1, base - dk, 1)])
            commits.append((self.seq, now, author, 0, None, None, ops, None, None, base, None, None, 0))
        await self._put.fetch(rows, entries, commits)
        return [row[1] for row in rows]

    # -- reads ----------------------------------------------------------------------------

    async def get(self, id: str) -> tuple[Any, Note]:
        """What dgent reads of a record, and its value."""
        row = await self._get.fetchrow(id)
        return row, _decode(row[12])

    async def newest(self, tag: str, kind: str, limit: int) -> list[tuple[str, int, str, Note]]:
        """The newest records with a tag and a kind."""
        key = order.index_key(kind)[0]
        found = await self._newest.fetch(self.streams[tag, ".kind"], key, limit)
        return [(id, t, tags, _decode(data)) for id, t, tags, data in found]

    async def some_ids(self, count: int) -> list[str]:
        """Random ids, the same ones each time."""
        found = await self.connection.fetch(
            f"SELECT id FROM {U}.datum ORDER BY md5(dk::text) LIMIT $1", count
        )
        return [id for (id,) in found]

    # -- for checks -----------------------------------------------------------------------

    async def written(self, id: str) -> tuple[Any, ...]:
        """What is stored for a record, without what differs between two runs (id, times, numbers)."""
        fetch = self.connection.fetch
        (row,) = await fetch(f"SELECT {_ROW} FROM {U}.datum WHERE id = $1", id)
        entries = await fetch(
            f"SELECT ix, key, t = $2 FROM {U}.entry WHERE dk = $1 AND id = $3 ORDER BY ix, key",
            row["dk"],
            row["t"],
            id,
        )
        commits = await fetch(
            "SELECT author, kind, note, of_seq, key, digest, length(ops), at = $2, dk < $3, trail"
            f" FROM {U}.commits WHERE seq = $1",
            row["seq"],
            row["at"],
            row["dk"],
        )
        return row["rev"], row["live"], tuple(row)[7:], [*map(tuple, entries)], [*map(tuple, commits)]


async def check_same(raw: RawPostgres, raw_id: str, ours: RawPostgres, id: str) -> None:
    """Refuse to compare unless both sides wrote the same for the same sample."""
    sides = [await raw.written(raw_id), await ours.written(id)]
    if sides[0] != sides[1]:
        raise AssertionError(f"the raw side does not write what dgent writes:\n{sides[0]}\n{sides[1]}")
