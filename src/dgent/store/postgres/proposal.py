"""Commits worked out here, without the lock, for an assumed state of the store.

The ledger runs over a proposal as over any kernel. Its reads were fetched before, or are assumed: an id
made a moment ago is not in the store yet. Its writes are gathered. The store then takes it all in one
call, which checks under the lock that every assumption holds; if one does not, nothing happened and the
commits are worked out again from newer facts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg

from dgent import clock
from dgent.store.backend import NEW, Op, Put
from dgent.store.engine.catalog import Entry, SchemaState
from dgent.store.engine.commit import Prepared
from dgent.store.engine.kernel import Logged, LogTip, TextDoc
from dgent.store.engine.row import Row
from dgent.store.postgres.batch import Changes, with_ids
from dgent.store.postgres.format import FRESH
from dgent.store.postgres.kernel import PostgresKernel
from dgent.store.postgres.read import Catalogs, PostgresReading, logged_of, own_generation
from dgent.store.postgres.sql import Texts

NEW_S = 60.0  # an id is taken for new when it was made so recently


class _NeedsLock(Exception):
    """A commit changes the state of a schema, which only the holder of the clock may do."""


class Proposal(PostgresKernel):
    """A kernel whose writes wait for the store's consent; made once and begun for each group."""

    def __init__(self, texts: Texts, catalogs: Catalogs) -> None:
        PostgresReading.__init__(self, None, texts, catalogs)
        self.ids: dict[int, str] = {}
        self._was: dict[int, int] = {}
        self.tip = LogTip(0, 0, FRESH)
        self.base = 0  # the newest seq that is known of; what is proposed counts on from it
        self.changes = Changes()
        self._heads: dict[str, Row | None] = {}
        self._keyed: dict[bytes | None, Logged] = {}
        self._revs: dict[str, int] = {}
        self._checked: dict[str, int] = {}
        self._pending: list[Logged] = []
        self._made: dict[int, Row] = {}
        self.strict = False
        self.needs_lock = False
        self.sure = False  # assume of no id that it is new
        self.locked = False
        self._at: int | None = None

    # -- one group ------------------------------------------------------------------------

    def begin_group(self, connection: asyncpg.Connection, sure: bool, locked: bool, seen: int) -> None:
        """Start anew; rows fetched for the last group may be outdated."""
        self.connection = connection
        self.sure, self.locked = sure, locked
        self.needs_lock = False
        self.changes = Changes()
        self._heads, self._keyed, self._revs, self._checked = {}, {}, {}, {}
        self._pending, self._made = [], {}
        self._forget_read()
        self.ids, self._was = {}, {}
        self.strict = False
        self._changed_catalog = False
        if locked:
            self.base, at, _record_key, version, self._any_unindexed = self._all(self.texts.lock)[0]
            self.use(version)
            # What is learned here is known to others only when it is committed.
            self.catalog = own_generation(self.catalog.copy())
        else:
            at = 0
            self.base = max(self.base, seen)
            self.catalog = self.catalogs.newest
            if self.catalog.version < 0:
                self.refresh()
        self.tip = LogTip(self.base, at, FRESH)

    def look_up(self, jobs: Iterable[Prepared]) -> None:
        """Read the records that commits are about, except those that were made just now."""
        jobs = list(jobs)
        repeated = [job.commit.at_us for job in jobs if job.commit.at_us is not None]
        self._at = max(repeated) if jobs and len(repeated) == len(jobs) else None
        wanted = self._find_unread([op for job in jobs for op in job.commit.ops])
        if wanted:
            self._fetch_heads(wanted)
        elif not all(job.commit.ops for job in jobs):
            # The store is not sent a commit of nothing, so it is asked here where it stands.
            seq, at, _record_key, version, _lag = self._all(self.texts.clock)[0]
            self._stands_at(seq, at, version)
        keys = [job.key for job in jobs if job.key is not None]
        if keys:
            found = map(logged_of, self._all(self.texts.keyed, keys))
            self._keyed = {logged.key: logged for logged in found}

    def _find_unread(self, ops: list[Op]) -> list[str]:
        """Return the ids whose records the ops depend on, as far as these may exist."""
        sure = self.locked or bool(self.catalog.forgot) or self.sure
        is_new = _NewIds(time.time()).is_new
        wanted = dict.fromkeys([op.id for op in ops if sure or not is_new(op)])
        # Whose an id is depends on the record that it is below.
        wanted |= dict.fromkeys(root for op in ops if type(op) is Put and (root := _root(op.id)))
        return list(wanted)

    def _fetch_heads(self, ids: Sequence[str]) -> None:
        found = self._all(self.texts.heads, ids)
        self._heads = dict.fromkeys(ids)
        self._heads.update((row.id, row) for row in (Row._make(r[3:]) for r in found if r[3] is not None))
        self._stands_at(*found[0][:3])
        if self.catalog.forgot:
            gone = {self.catalog.hash(id): id for id in ids if self._heads[id] is None}
            found = self._all(self.texts.forgotten_among, list(gone))
            self._revs = {gone[h]: rev for h, rev in found}

    def _stands_at(self, seq: int, at: int, version: int) -> None:
        """Record the state of the store at the moment of a read."""
        self.base = max(self.base, seq)
        self.tip = LogTip(self.base, at, FRESH)
        if version != self.catalog.version and not self.locked:
            self.use(version)

    def work_out(self) -> None:
        """End the working out: changed schemas are marked in the clock."""
        if self._changed_catalog:
            self._run(f"UPDATE {self.texts.u}.clock SET catalog = catalog + 1")

    def publish(self) -> None:
        """Share the schemas and names that a locked group has learned; they are committed."""
        if self.locked:
            self.catalog.version += self._changed_catalog
            self.catalogs.add(self.catalog)

    def _commit_time(self) -> int:
        """Return the time of the group: now, or that of the commits of another store that it repeats."""
        return clock.now_us() if self._at is None else self._at

    def arguments(self, writer: bytes, n: int) -> tuple[Any, ...]:
        """Return the arguments for the store's function."""
        written = {row[1] for row in self.changes.heads}
        checked = [id for id in self._checked if id not in written]
        return (
            writer,
            n,
            self.catalog.version + self._changed_catalog,
            self.base,
            self.strict,
            self._commit_time(),
            self.tip.seq - self.base,
            self.tip.record_key - FRESH,
            checked,
            [self._checked[id] for id in checked],
            *self.changes.arguments(self.ids),
        )

    def list_columns(self, writer: bytes, n: int) -> tuple[Any, ...]:
        """Return the arguments for the store's function that takes nothing but new records."""
        return (writer, n, self.catalog.version, self._commit_time(), *self.changes.list_columns())

    # -- reading --------------------------------------------------------------------------

    def _all(self, sql: str, *values: Any) -> list[asyncpg.Record]:
        return PostgresReading._all(self, sql, *values)

    def flush(self) -> None:
        """Send nothing: the store must consent to all of it first."""

    def head(self, id: str) -> Row | None:
        row = self._heads.get(id)
        if row is not None:
            self._checked[id] = row.seq
            self._met(row)
        elif id in self._heads:
            self._checked[id] = 0
        return row

    def row(self, record_key: int) -> Row | None:
        made = self._made.get(record_key)
        return PostgresReading.row(self, record_key) if made is None else made

    def log(self, since: int, limit: int | None) -> list[Logged]:
        """Return the commits since then, those of this group among them; nobody may commit in between."""
        if since < self.base or self.locked:
            found = [logged for logged in super().log(since, limit) if logged.seq <= self.base]
        else:
            found = []
        self.strict = True
        return found + [logged for logged in self._pending if logged.seq > since]

    def ends_at(self, seq: int) -> bool:
        """Return whether the log ends there, as far as is known; the server refuses a write if not."""
        at_end = super().ends_at(seq)
        self.strict = self.strict or at_end
        return at_end

    def find_by_key(self, key: bytes) -> Logged | None:
        return self._keyed.get(key)

    def forgotten_rev(self, id: str) -> int:
        return self._revs.get(id, 0)

    # -- writing --------------------------------------------------------------------------

    def set_state(self, state: SchemaState) -> None:
        if not self.locked:
            self.needs_lock = True
            raise _NeedsLock
        super().set_state(state)

    def put_text_docs(self, docs: Sequence[tuple[int, int, TextDoc]]) -> None:
        if not self.locked:
            self.needs_lock = True
            raise _NeedsLock
        super().put_text_docs(docs)

    def _run(self, sql: str, *values: Any) -> int:
        if not self.locked:
            raise RuntimeError("a proposal changes nothing by itself")
        return super()._run(sql, *values)

    def insert(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.ids[row.record_key] = row.id
            self._made[row.record_key] = row
        self.changes.insert(rows)

    def replace(self, row: Row) -> None:
        self._made[row.record_key] = row
        self.changes.replace(row, self._was[row.record_key])

    def drop_past(self, record_key: int, below_rev: int) -> int:
        self.changes.thin(record_key, below_rev)
        return 0

    def remove_entries(self, entries: Iterable[Entry]) -> None:
        self.changes.removed += with_ids(entries, self.ids)

    def append(self, logged: Logged) -> None:
        self._pending.append(logged)
        self.changes.append(logged)


def _root(id: str) -> str:
    """Return the id that one with a slash is below; "" for one without."""
    root, slash, _ = id.partition("/")
    return root if slash else ""


class _NewIds:
    """Tells ops that create a record under an id that `new_id` made a moment ago.

    The first 48 bits of such an id are the time. If it is in the store all the same, the store says so.
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self._times: dict[str, bool] = {}  # by the part of an id that is its time: many are of one moment

    def is_new(self, op: Op) -> bool:
        """Return whether an op creates such a record."""
        if type(op) is not Put or op.expect not in (None, 0, NEW) or op.datum.rev:
            return False
        id = op.datum.id
        if len(id) != 36 or id[14] != "7":
            return False
        time_part = id[:13]
        known = self._times.get(time_part)
        if known is None:
            known = self._times[time_part] = self._is_recent(time_part)
        return known

    def _is_recent(self, time_part: str) -> bool:
        try:
            made = int(time_part[:8] + time_part[9:], 16) / 1000
        except ValueError:
            return False
        return abs(self._now - made) < NEW_S
