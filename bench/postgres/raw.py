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
from dgent.store.catalog import number_key

U = UNIVERSE

# One statement, so one round trip and one transaction. Columns as arrays need fewer bytes and less of
# asyncpg's time than arrays of whole rows.
_PUT = f"""
WITH d AS (
    INSERT INTO {U}.datum (dk, id, rev, seq, live, t, at, schema, sv, author, tags, enc, data)
    SELECT dk, id, 1, seq, 1, $1::bigint, $1, $2::int, 1, $3::int, tags, 0, data
    FROM unnest($4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::bytea[]) r(dk, id, seq, tags, data)
), e AS (
    INSERT INTO {U}.entry (ix, key, t, dk, id)
    SELECT ix, key, $1, dk, id
    FROM unnest($9::int[], $10::bytea[], $11::bigint[], $12::text[]) r(ix, key, dk, id)
)
INSERT INTO {U}.commits (seq, at, author, kind, ops, dk)
SELECT seq, $1, $3, 0, ops, $13::bigint FROM unnest($6, $14::bytea[]) r(seq, ops)
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
) e JOIN LATERAL (SELECT * FROM {U}.datum d WHERE d.id = e.id AND d.trail = 0 OFFSET 0) d ON true
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
        self.connection = connection = await asyncpg.connect(url)
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
        dks, made, seqs, tag_texts, bodies, ops = [], [], [], [], [], []
        ixs: list[int] = []
        keys: list[bytes] = []
        entry_dks: list[int] = []
        entry_ids: list[str] = []
        streams, by_author = self.streams, number_key(self.author)
        for value, tags in samples:
            self.seq += 1
            self.dk = dk = self.dk + 1
            id, ordered, key = ids.new_id(), sorted(tags), order.index_key(value.kind)[0]
            dks.append(dk)
            made.append(id)
            seqs.append(self.seq)
            tag_texts.append(_encode(ordered).decode())
            bodies.append(_encode(value))
            ops.append(_pack([(1, base - dk, 1)]))
            ixs += streams["", ""], streams["", "@author"], streams["", ".kind"]
            keys += b"", by_author, key
            for tag in ordered:
                ixs += streams[tag, ""], streams[tag, ".kind"]
                keys += b"", key
            entries = 3 + 2 * len(ordered)
            entry_dks += [dk] * entries
            entry_ids += [id] * entries
        await self._put.fetch(
            *(now, self.schema, self.author, dks, made, seqs, tag_texts, bodies),
            *(ixs, keys, entry_dks, entry_ids, base, ops),
        )
        return made

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
