"""Writes inside one transaction that holds the clock: upkeep of a universe, step by step.

Commits do not come this way; see `proposal`. Here each step may read what the steps before it did,
so pending writes are sent before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import asyncpg
import msgspec

from dgent.store.engine.catalog import Entry, IndexName, SchemaState, TailRecord, is_derived, name_dropped
from dgent.store.engine.kernel import IndexScan, Logged, LogTip, TextDoc
from dgent.store.engine.row import Row
from dgent.store.postgres.batch import Changes, with_ids
from dgent.store.postgres.bridge import wait
from dgent.store.postgres.read import Catalogs, PostgresReading, own_generation
from dgent.store.postgres.sql import Texts
from dgent.store.postgres.vector import VectorWrites

_DROPPED_BY = {
    "entry": "ix, key, t, dk, id",
    "page": "ix, word, first",
    "doc": "ix, dk",
    "vector": "ix, slot",
}


class PostgresKernel(VectorWrites, PostgresReading):
    """Reads and writes of one transaction."""

    def __init__(self, connection: asyncpg.Connection, texts: Texts) -> None:
        # Names made here are gone if the transaction is, so nobody else may see this catalog.
        super().__init__(connection, texts, Catalogs())
        self.changes = Changes()
        self.tip = LogTip(0, 0, 0)
        self.keys: list[tuple[str, bytes | None]] = []
        self.ids: dict[int, str] = {}
        self._was: dict[int, int] = {}
        self._first = (0, 0, 0)
        self._changed_catalog = False

    def begin(self) -> None:
        """Lock the clock: from here on nobody else writes."""
        seq, at, record_key, version, self._any_unindexed = self._all(self.texts.lock)[0]
        self.tip = LogTip(seq, at, record_key)
        self._first = (seq, at, record_key)
        self.use(version)

    def end(self, writer: bytes) -> None:
        """Send pending writes, set the clock, and leave a mark that proves that it was done."""
        self.flush()
        seq, at, record_key = self.tip.seq, self.tip.at, self.tip.record_key
        if (seq, at, record_key) != self._first or self._changed_catalog:
            self._run(
                f"UPDATE {self.texts.u}.clock SET seq = $1, at = $2, dk = $3, catalog = catalog + $4,"
                f" lag = EXISTS (SELECT FROM {self.texts.u}.lag)",
                seq,
                at,
                record_key,
                int(self._changed_catalog),
            )
            mark = f"INSERT INTO {self.texts.u}.once (writer, n, seq, dk, at) VALUES ($1, 1, $2, $3, $4)"
            self._run(mark, writer, seq, record_key, at)
            self._run("SELECT pg_notify($1, $2)", "dgent_" + self.texts.universe, str(seq))

    def was_committed(self, writer: bytes) -> bool:
        """Return whether work under this mark was committed; only the clock's holder can be sure."""
        return bool(self._all(self.texts.once, writer, 1))

    # -- what waits -----------------------------------------------------------------------

    def flush(self) -> None:
        """Send pending writes; earlier reads may be outdated then."""
        if self.changes:
            self._forget_read()
            changes, self.changes = self.changes, Changes()
            again = changes.has_entries()
            wait(self.connection.fetch(self.texts.apply, 0, 0, None, *changes.arguments(self.ids), again))
        if self.keys:
            keys, self.keys = self.keys, []
            sql = (
                f"UPDATE {self.texts.u}.datum d SET fk = r.fk FROM unnest($1::text[], $2::bytea[]) r(id, fk)"
                " WHERE d.id = r.id AND d.trail = 0"
            )
            wait(self.connection.execute(sql, [id for id, _ in keys], [field_keys for _, field_keys in keys]))

    def _all(self, sql: str, *values: Any) -> list[asyncpg.Record]:
        self.flush()
        return super()._all(sql, *values)

    def _run(self, sql: str, *values: Any) -> int:
        """Run a statement; return how many rows it changed."""
        self.flush()
        self._forget_read()
        status: str = wait(self.connection.execute(sql, *values))
        last = status.rpartition(" ")[2]
        return int(last) if last.isdigit() else 0

    # -- what is met ----------------------------------------------------------------------

    def _met(self, row: Row | None) -> Row | None:
        if row is not None:
            self.ids[row.record_key] = row.id
            self._was[row.record_key] = row.seq
        return row

    def head(self, id: str) -> Row | None:
        return self._met(super().head(id))

    def ends_at(self, seq: int) -> bool:
        return self.tip.seq == seq

    def are_new(self, ids: Sequence[str]) -> bool:
        return all(self.head(id) is None for id in ids)

    def row(self, record_key: int) -> Row | None:
        return self._met(super().row(record_key))

    def walk(self, scan: IndexScan, descending: bool, content: bool) -> Iterator[tuple[bytes, Row]]:
        for key, row in super().walk(scan, descending, content):
            self._met(row)
            yield key, row

    def rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        found = super().rows(record_keys, content)
        for row in found:
            self._met(row)
        return found

    def unindexed_rows(self, schema: int) -> list[Row]:
        self._any_unindexed = True
        found = super().unindexed_rows(schema)
        for row in found:
            self._met(row)
        return found

    # -- names and schemas ----------------------------------------------------------------

    def make_number(self, text: str) -> int:
        number = self.number(text)
        if number is None:
            made = self._all(self.texts.make_number, text)
            number = made[0][0] if made else self._all(self.texts.number, text)[0][0]
            self.catalog.numbers[text] = number
            self.catalog.names[number] = text
        return number

    def make_index(self, name: IndexName) -> int:
        index = self.index_number(name)
        if index is None:
            values = (name.schema, name.tag, name.path, name.index_version)
            made = self._all(self.texts.make_index, *values)
            index = made[0][0] if made else self._all(self.texts.index, *values)[0][0]
            self.catalog.indexes[name] = index
        return index

    def set_state(self, state: SchemaState) -> None:
        self._run(
            f"INSERT INTO {self.texts.u}.schema (schema, decl) VALUES ($1, $2)"
            " ON CONFLICT (schema) DO UPDATE SET decl = excluded.decl",
            state.number,
            msgspec.json.encode(state),
        )
        self.catalog.states[state.name] = state
        own_generation(self.catalog)
        self._changed_catalog = True

    # -- rows -----------------------------------------------------------------------------

    def insert(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._met(row)
        self.changes.insert(rows)

    def replace(self, row: Row) -> None:
        self.changes.replace(row, self._was[row.record_key])
        self._was[row.record_key] = row.seq

    def set_keys(self, record_key: int, field_keys: bytes | None) -> None:
        self.keys.append((self.ids[record_key], field_keys))

    def archive(self, row: Row) -> None:
        self.changes.archive(row)

    def drop_past(self, record_key: int, below_rev: int) -> int:
        gone = [rev for rev, _, _ in self.spans(record_key) if rev < below_rev]
        self.changes.thin(record_key, below_rev)
        self._spans[record_key] = [span for span in self._spans[record_key] if span[0] >= below_rev]
        return len(gone)

    def add_entries(self, entries: Sequence[Entry]) -> None:
        self.changes.added += entries

    def add_records(self, records: Sequence[TailRecord]) -> None:
        self.changes.records += records

    def remove_entries(self, entries: Iterable[Entry]) -> None:
        entries = list(entries)
        unknown = {record_key for *_, record_key in entries if record_key not in self.ids}
        if unknown:
            self.rows(list(unknown), False)  # which meets them
        self.changes.removed += with_ids(entries, self.ids)
        if self.changes.removed:
            self.flush()  # before what is added later: one of these may come back

    def put_text_pages(self, pages: Sequence[tuple[int, bytes, int, bytes]]) -> None:
        self._run(
            f"INSERT INTO {self.texts.u}.page (ix, word, first, body)"
            " SELECT * FROM unnest($1::int[], $2::bytea[], $3::bigint[], $4::bytea[])"
            " ON CONFLICT (ix, word, first) DO UPDATE SET body = excluded.body",
            *columns(pages, 4),
        )

    def drop_text_pages(self, pages: Sequence[tuple[int, bytes, int]]) -> None:
        self._run(
            f"DELETE FROM {self.texts.u}.page p USING unnest($1::int[], $2::bytea[], $3::bigint[])"
            " g (ix, word, first) WHERE p.ix = g.ix AND p.word = g.word AND p.first = g.first",
            *columns(pages, 3),
        )

    def put_text_docs(self, docs: Sequence[tuple[int, int, TextDoc]]) -> None:
        self._run(
            f"INSERT INTO {self.texts.u}.doc (ix, dk, rev, size, page_rev, words)"
            " SELECT * FROM unnest($1::int[], $2::bigint[], $3::int[], $4::bigint[], $5::int[], $6::bytea[])"
            " ON CONFLICT (ix, dk) DO UPDATE SET rev = excluded.rev, size = excluded.size,"
            " page_rev = excluded.page_rev, words = excluded.words",
            *columns([(index, record_key, *doc) for index, record_key, doc in docs], 6),
        )

    def drop_text_docs(self, docs: Sequence[tuple[int, int]]) -> None:
        self._run(
            f"DELETE FROM {self.texts.u}.doc d USING unnest($1::int[], $2::bigint[]) g (ix, dk)"
            " WHERE d.ix = g.ix AND d.dk = g.dk",
            *columns(docs, 2),
        )

    def notice_tags(self, entries: Iterable[Entry]) -> None:
        """Do nothing: no entry holds anything of the tags."""

    def move_entries(self) -> None:
        """Do nothing: no entry waits."""

    def entries_at(self, record_key: int) -> list[Entry]:
        sql = f"SELECT ix, key, t, dk FROM {self.texts.u}.entry WHERE dk = $1"
        return [(ix, key, created_at, found) for ix, key, created_at, found in self._all(sql, record_key)]

    def mark_unindexed(self, schema: int, record_key: int, unindexed: bool) -> None:
        (self.changes.unindexed if unindexed else self.changes.caught_up).append((schema, record_key))

    def append(self, logged: Logged) -> None:
        self.changes.append(logged)

    # -- pruning --------------------------------------------------------------------------

    def erase(self, rows: Sequence[Row], seqs: Sequence[int], seq: int) -> int:
        u, record_keys = self.texts.u, [row.record_key for row in rows]
        self._run(f"UPDATE {u}.commits SET note = NULL, digest = NULL WHERE seq = ANY ($1::bigint[])", seqs)
        past = self._all(f"SELECT author, source FROM {u}.past WHERE dk = ANY ($1::bigint[])", record_keys)
        names = {name for row in rows for name in (row.author, row.source)}
        names.update(name for record in past for name in record)
        ids = [row.id for row in rows]
        self._run(f"DELETE FROM {u}.past WHERE id = ANY ($1::text[])", ids)
        self._run(f"DELETE FROM {u}.datum WHERE id = ANY ($1::text[])", ids)
        self._run(
            f"INSERT INTO {u}.forgotten (h, last_rev, seq) SELECT h, rev, $3"
            " FROM unnest($1::bytea[], $2::int[]) r(h, rev)"
            " ON CONFLICT (h) DO UPDATE SET last_rev = excluded.last_rev, seq = excluded.seq",
            [self.catalog.hash(row.id) for row in rows],
            [row.rev for row in rows],
            seq,
        )
        self._run(f"UPDATE {u}.meta SET number = 1 WHERE name = 'forgot'")
        self._drop_unused_names([name for name in names if name])
        self._reload()
        return len(past) + sum(row.live for row in rows)

    def _drop_unused_names(self, names: list[int]) -> None:
        """Drop texts that only forgotten records had."""
        u = self.texts.u
        self._run(
            f"DELETE FROM {u}.name n WHERE n.n = ANY ($1::int[])"
            f" AND NOT EXISTS (SELECT FROM {u}.datum d WHERE d.author = n.n OR d.source = n.n)"
            f" AND NOT EXISTS (SELECT FROM {u}.past p WHERE p.author = n.n OR p.source = n.n)"
            f" AND NOT EXISTS (SELECT FROM {u}.commits c WHERE c.author = n.n)"
            f" AND NOT EXISTS (SELECT FROM {u}.schema s WHERE s.schema = n.n)",
            names,
        )

    def _reload(self) -> None:
        """Load the catalog again, here and in every other process."""
        self._changed_catalog = True
        self.catalogs = Catalogs()
        self.catalog = self._load(self.catalog.version)

    def drop_indexes(self, schema: int, keep: Callable[[IndexName], bool], limit: int) -> bool:
        u, left = self.texts.u, limit
        for ix, *name in self._all(self.texts.indexes, schema):
            if keep(IndexName(*name)):
                continue
            dropped = name_dropped(IndexName(*name), ix)
            if is_derived(dropped) and dropped != IndexName(*name):
                self._run(f"UPDATE {u}.ix SET path = $1 WHERE ix = $2", dropped.path, ix)
                self._reload()
            for table, key in _DROPPED_BY.items():
                left -= self._run(
                    f"DELETE FROM {u}.{table} WHERE ({key}) IN"
                    f" (SELECT {key} FROM {u}.{table} WHERE ix = $1 LIMIT $2)",
                    ix,
                    left,
                )
                if left <= 0:
                    return True
            self._run(f"DELETE FROM {u}.ix WHERE ix = $1", ix)
            self._reload()
        return False

    def kept_after(self, record_key: int, limit: int) -> list[int]:
        found = [record[0] for record in self._all(self.texts.kept_after, record_key, limit)]
        self._ahead = found
        return found

    def expire_keys(self, before: int) -> None:
        u = self.texts.u
        self._run(
            f"UPDATE {u}.commits SET key = NULL, digest = NULL WHERE key IS NOT NULL AND at < $1", before
        )

    def raise_floor(self, seq: int) -> int:
        u = self.texts.u
        at = self._all(f"SELECT max(at) FROM {u}.commits WHERE seq <= $1 AND trail = 0", seq)[0][0]
        if at is not None:
            self._run(f"UPDATE {u}.meta SET number = $1 WHERE name = 'floor_at'", at)
        removed = self._run(
            f"DELETE FROM {u}.commits WHERE seq <= $1 AND trail = 0 AND key IS NULL"
            f" AND seq < (SELECT max(seq) FROM {u}.commits)",
            seq,
        )
        self._run(f"UPDATE {u}.meta SET number = $1 WHERE name = 'floor'", seq)
        self._reload()
        return removed


def columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Return the columns of some rows, which a statement takes as arrays."""
    return [[row[place] for row in rows] for place in range(width)]
