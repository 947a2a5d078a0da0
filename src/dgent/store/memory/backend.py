"""The memory engine: the reference the others are compared with; gone when the process ends."""

from __future__ import annotations

import asyncio
import os
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TypeVar

from dgent.errors import Closed
from dgent.model.datum import Datum
from dgent.store.backend import Committed, View
from dgent.store.engine import read
from dgent.store.engine.catalog import Entry, IndexName, Position, SchemaState
from dgent.store.engine.check import check_seq
from dgent.store.engine.commit import Ledger, Prepared
from dgent.store.engine.embedded import EmbeddedBackend
from dgent.store.engine.kernel import (
    IndexScan,
    Logged,
    LogTip,
    Reading,
    Wrap,
    Writing,
    no_wrap,
    passes,
    start_at,
)
from dgent.store.engine.row import Brief, Row, brief_of
from dgent.store.engine.versions import ANCHOR


class MemoryKernel:
    """Everything a store holds, in this process's memory."""

    def __init__(self) -> None:
        self.generation = 0
        self.tip = LogTip(0, 0, 0)
        self._numbers: dict[str, int] = {"": 0}
        self._names: dict[int, str] = {0: ""}
        self._states: dict[str, SchemaState] = {}
        self._indexes: dict[IndexName, int] = {}
        self._entries: dict[int, list[Position]] = {}
        self._rows: dict[int, Row] = {}
        self._by_id: dict[str, int] = {}
        self._ids: list[str] = []
        self._lag: dict[int, set[int]] = {}
        self._past: dict[int, list[Row]] = {}
        self._log: list[Logged] = []
        self._keys: dict[bytes, int] = {}
        self._forgotten: dict[str, int] = {}
        self._floor = 0
        self._floor_at = 0
        self._counters = [0, 0]  # the newest name and index numbers

    # -- reading --------------------------------------------------------------------------

    def refresh(self) -> None:
        """Do nothing: no other process can see this store."""

    def newest(self) -> tuple[int, int]:
        return self.tip.seq, self.tip.at

    def floor(self) -> int:
        return self._floor

    def name(self, number: int) -> str:
        return self._names[number]

    def number(self, text: str) -> int | None:
        return self._numbers.get(text)

    def state(self, schema: str) -> SchemaState | None:
        return self._states.get(schema)

    def states(self) -> list[SchemaState]:
        return list(self._states.values())

    def index_number(self, name: IndexName) -> int | None:
        return self._indexes.get(name)

    def head(self, id: str) -> Row | None:
        record_key = self._by_id.get(id)
        return None if record_key is None else self._rows[record_key]

    def row(self, record_key: int) -> Row | None:
        return self._rows.get(record_key)

    def rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        found = [self._rows[record_key] for record_key in record_keys if record_key in self._rows]
        return found if content else [row._replace(content=None) for row in found]

    def walk(self, scan: IndexScan, descending: bool, content: bool) -> Iterator[tuple[bytes, Row]]:
        run, every = self._slice(scan), not scan.others and scan.author is None
        for key, _t, record_key in reversed(run) if descending else run:
            row = self._rows[record_key]
            if every or passes(scan, row, self._has):
                yield key, row if content else row._replace(content=None)

    def fetch(self, scan: IndexScan, descending: bool, content: bool, limit: int) -> list[Brief]:
        return [brief_of(row) for _, row in islice(self.walk(scan, descending, content), limit)]

    def skip(self, scan: IndexScan, descending: bool, count: int) -> IndexScan | None:
        run = self._narrow(scan)
        if count >= len(run):
            return None
        return start_at(scan, descending, run[-1 - count if descending else count])

    def times(self, scans: Sequence[IndexScan], descending: bool, count: int) -> list[int | None]:
        found: list[int | None] = []
        for run in map(self._slice, scans):
            place = -1 - count if descending else count
            found.append(run[place][1] if count < len(run) else None)
        return found

    def fetch_id(self, id: str) -> list[Brief]:
        row = self.head(id)
        return [] if row is None or not row.live else [brief_of(row)]

    def _slice(self, scan: IndexScan) -> list[Position]:
        entries = self._entries.get(scan.index_number, [])
        return entries[bisect_left(entries, scan.low) : bisect_left(entries, scan.high)]

    def _narrow(self, scan: IndexScan) -> list[Position]:
        run = self._slice(scan)
        if not scan.others and scan.author is None:
            return run
        return [place for place in run if passes(scan, self._rows[place[2]], self._has)]

    def _has(self, entry: Entry) -> bool:
        run, place = self._entries.get(entry[0], []), entry[1:]
        at = bisect_left(run, place)
        return at < len(run) and run[at] == place

    def walk_ids(self, prefix: str, content: bool) -> Iterator[Row]:
        place = bisect_left(self._ids, prefix)
        while place < len(self._ids) and self._ids[place].startswith(prefix):
            row = self._rows[self._by_id[self._ids[place]]]
            if row.live:
                yield row if content else row._replace(content=None)
            place += 1

    def size(self, scan: IndexScan, cap: int) -> int:
        if scan.others or scan.author is not None:
            return min(cap, len(self._narrow(scan)))
        entries = self._entries.get(scan.index_number, [])
        return min(cap, max(0, bisect_left(entries, scan.high) - bisect_left(entries, scan.low)))

    def size_ids(self, prefix: str, cap: int) -> int:
        count = 0
        for _ in self.walk_ids(prefix, True):
            count += 1
            if count == cap:
                break
        return count

    def unindexed_rows(self, schema: int) -> list[Row]:
        return [self._rows[record_key] for record_key in sorted(self._lag.get(schema, ()))]

    def past(self, record_key: int, rev: int | None = None) -> list[Row]:
        kept = self._past.get(record_key, [])
        if rev is None:
            return kept[::-1]
        start = bisect_left(kept, rev, key=lambda row: row.rev)
        return kept[start : start + ANCHOR][::-1]

    def log(self, since: int, limit: int | None) -> list[Logged]:
        start = bisect_right(self._log, since, key=lambda logged: logged.seq)
        return self._log[start : None if limit is None else start + limit]

    def log_back(self, until: int, limit: int) -> list[Logged]:
        end = bisect_right(self._log, until, key=lambda logged: logged.seq)
        return self._log[max(0, end - limit) : end][::-1]

    def read_commit(self, seq: int) -> Logged | None:
        found = self.log(seq - 1, 1)
        return found[0] if found and found[0].seq == seq else None

    def find_by_key(self, key: bytes) -> Logged | None:
        seq = self._keys.get(key)
        return None if seq is None else self.read_commit(seq)

    def seq_at(self, at: int) -> int:
        place = bisect_right(self._log, at, key=lambda logged: logged.at)
        if at < self._floor_at:
            return self._floor - 1
        return max(self._log[place - 1].seq, self._floor) if place else self._floor

    def forgotten_rev(self, id: str) -> int:
        return self._forgotten.get(id, 0)

    # -- writing --------------------------------------------------------------------------

    def are_new(self, ids: Sequence[str]) -> bool:
        return self._by_id.keys().isdisjoint(ids)

    def make_number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            self._counters[0] = number = self._counters[0] + 1
            self._numbers[text] = number
            self._names[number] = text
        return number

    def make_index(self, name: IndexName) -> int:
        index = self._indexes.get(name)
        if index is None:
            self._counters[1] = index = self._counters[1] + 1
            self._indexes[name] = index
        return index

    def set_state(self, state: SchemaState) -> None:
        self._states[state.name] = state
        self.generation += 1

    def insert(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._rows[row.record_key] = row
            self._by_id[row.id] = row.record_key
        if len(rows) < 64:
            for row in rows:
                insort(self._ids, row.id)
        else:
            self._ids = sorted([*self._ids, *(row.id for row in rows)])

    def replace(self, row: Row) -> None:
        self._rows[row.record_key] = row

    def set_keys(self, record_key: int, field_keys: bytes | None) -> None:
        self._rows[record_key] = self._rows[record_key]._replace(field_keys=field_keys)

    def archive(self, row: Row) -> None:
        self._past.setdefault(row.record_key, []).append(row)

    def drop_past(self, record_key: int, below_rev: int) -> int:
        before = self._past.get(record_key, [])
        kept = [row for row in before if row.rev >= below_rev]
        if kept:
            self._past[record_key] = kept
        else:
            self._past.pop(record_key, None)
        return len(before) - len(kept)

    def add_entries(self, entries: Sequence[Entry]) -> None:
        if len(entries) > 2000:
            self._add_many(entries)
            return
        for index, key, created_at, record_key in entries:
            run = self._entries.setdefault(index, [])
            entry = (key, created_at, record_key)
            place = bisect_left(run, entry)
            if place == len(run) or run[place] != entry:
                run.insert(place, entry)

    def _add_many(self, entries: Sequence[Entry]) -> None:
        grouped: dict[int, set[Position]] = {}
        for index, key, created_at, record_key in entries:
            grouped.setdefault(index, set()).add((key, created_at, record_key))
        for index, added in grouped.items():
            self._entries[index] = sorted(added.union(self._entries.get(index, ())))

    def remove_entries(self, entries: Iterable[Entry]) -> None:
        for index, key, created_at, record_key in entries:
            run = self._entries.get(index, [])
            place = bisect_left(run, (key, created_at, record_key))
            if place < len(run) and run[place] == (key, created_at, record_key):
                del run[place]

    def notice_tags(self, entries: Iterable[Entry]) -> None:
        """Do nothing: no entry holds anything of the tags."""

    def move_entries(self) -> None:
        """Do nothing: no entry waits."""

    def entries_at(self, record_key: int) -> list[Entry]:
        return [
            (index, key, created_at, mine)
            for index, run in self._entries.items()
            for key, created_at, mine in run
            if mine == record_key
        ]

    def mark_unindexed(self, schema: int, record_key: int, unindexed: bool) -> None:
        if unindexed:
            self._lag.setdefault(schema, set()).add(record_key)
        else:
            self._lag.get(schema, set()).discard(record_key)

    def append(self, logged: Logged) -> None:
        self._log.append(logged)
        if logged.key is not None:
            self._keys[logged.key] = logged.seq

    def erase(self, rows: Sequence[Row], seqs: Sequence[int], seq: int) -> int:
        versions = 0
        for row in rows:
            past = self._past.pop(row.record_key, [])
            versions += len(past) + row.live
            del self._rows[row.record_key], self._by_id[row.id]
            del self._ids[bisect_left(self._ids, row.id)]
            self._forgotten[row.id] = row.rev
        for touched in seqs:
            place = bisect_left(self._log, touched, key=lambda logged: logged.seq)
            self._log[place] = self._log[place]._replace(note=None, digest=None)
        return versions

    def drop_indexes(self, schema: int, keep: Callable[[IndexName], bool], limit: int) -> bool:
        for name, index in list(self._indexes.items()):
            if name.schema == schema and not keep(name):
                self._entries.pop(index, None)
                del self._indexes[name]
        self.generation += 1
        return False

    def kept_after(self, record_key: int, limit: int) -> list[int]:
        return sorted(key for key in self._past if key > record_key)[:limit]

    def spans(self, record_key: int) -> list[tuple[int, int, int]]:
        return [(row.rev, row.seq, row.at) for row in self._past.get(record_key, [])]

    def expire_keys(self, before: int) -> None:
        for place, logged in enumerate(self._log):
            if logged.at < before and logged.key is not None:
                del self._keys[logged.key]
                self._log[place] = logged._replace(key=None, digest=None)

    def raise_floor(self, seq: int) -> int:
        self._floor_at = max((logged.at for logged in self._log if logged.seq <= seq), default=self._floor_at)
        self._floor = seq
        kept = [logged for logged in self._log[:-1] if logged.seq > seq or logged.key is not None]
        before, self._log = len(self._log), [*kept, *self._log[-1:]]
        return before - len(self._log)


R = TypeVar("R")


class MemoryBackend(EmbeddedBackend):
    """Keeps everything in dictionaries of this process."""

    name = "memory"
    priority = 100

    def __init__(self, wrap: Wrap = no_wrap) -> None:
        self.epoch = os.urandom(8)
        self._kernel: Writing = wrap(MemoryKernel())
        self._ledger = Ledger(self._kernel)
        # The blocking twin reads from other threads while the loop's thread writes.
        self._lock = threading.RLock()
        self._opened = False
        self._changed = asyncio.Event()

    async def is_available(self) -> bool:
        """Return True: memory is always there."""
        return True

    async def open(self) -> None:
        """Start; there is nothing to open."""
        if self._opened:
            raise Closed("this memory store is open already", hint="make another backend")
        self._opened = True

    async def close(self) -> None:
        """Refuse further use; the data goes with the object."""
        self._opened = False
        self._wake()

    def _read_now(self, work: Callable[[Reading], R]) -> R:
        self._check_open()
        with self._lock:
            return work(self._kernel)

    async def _read(self, work: Callable[[Reading], R]) -> R:
        return self._read_now(work)

    async def _write(self, work: Callable[[Ledger], R]) -> R:
        self._check_open()
        with self._lock:
            result = work(self._ledger)
        self._wake()
        return result

    def _wake(self) -> None:
        """Wake everyone who waits for a commit."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _commit(self, prepared: Prepared, view: View) -> Committed:
        return await self._write(lambda ledger: ledger.commit(prepared, view))

    def get_now(self, id: str, lazy: bool = False) -> Datum | None:
        """Return the live version, read on this thread without an event loop."""
        if lazy:
            return self._read_now(lambda reading: read.get_lazily(reading, id))
        return self._read_now(lambda reading: read.get(reading, id, None))

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or when time is up."""
        check_seq(since, "since")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            self._check_open()
            left = deadline - loop.time()
            if self._kernel.tip.seq > since or left <= 0:
                return self._kernel.tip.seq
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    def _check_open(self) -> None:
        if not self._opened:
            raise Closed("this memory store is not open")
