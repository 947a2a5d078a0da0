"""The memory engine: the reference the others are compared with; gone when the process ends."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from dgent.errors import Closed
from dgent.model.datum import Datum
from dgent.store.backend import Committed, View
from dgent.store.engine import read
from dgent.store.engine.catalog import Entry, IndexName, Position, SchemaState, TailRecord
from dgent.store.engine.check import check_seq
from dgent.store.engine.commit import Ledger, Prepared
from dgent.store.engine.embedded import EmbeddedBackend
from dgent.store.engine.kernel import (
    IndexScan,
    Logged,
    LogTip,
    Reading,
    TextDoc,
    TextPage,
    Wrap,
    no_wrap,
    passes,
    start_at,
)
from dgent.store.engine.row import Brief, Row, brief_of
from dgent.store.engine.tail import list_added
from dgent.store.engine.versions import DELTA
from dgent.store.memory.shared import SharedMemory, acquire, release
from dgent.store.memory.vector import VectorTable

if TYPE_CHECKING:
    from dgent.store.memory.blob import MemoryContents


class MemoryKernel(VectorTable):
    """Everything a store holds, in this process's memory."""

    def __init__(self) -> None:
        super().__init__()
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
        self._text_pages: dict[int, dict[bytes, dict[int, bytes]]] = {}  # by index, word and first key
        self._text_docs: dict[int, dict[int, TextDoc]] = {}
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

    def names_at_hand(self) -> dict[int, str]:
        return {}

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

    def heads(self, ids: Sequence[str]) -> list[Row | None]:
        return [self.head(id) for id in ids]

    def row(self, record_key: int) -> Row | None:
        return self._rows.get(record_key)

    def rows(self, record_keys: Sequence[int], content: bool) -> list[Row]:
        found = [self._rows[record_key] for record_key in record_keys if record_key in self._rows]
        return found if content else [row._replace(content=None) for row in found]

    def walk(self, scan: IndexScan, descending: bool, content: bool) -> Iterator[tuple[bytes, Row]]:
        every = not scan.others and scan.author is None
        for run in self._runs(scan, descending):
            for key, _t, record_key in run:
                row = self._rows[record_key]
                if every or passes(scan, row, self._has):
                    yield key, row if content else row._replace(content=None)

    def _runs(self, scan: IndexScan, descending: bool) -> Iterator[list[Position]]:
        """Yield the entries of a scan in short runs; each is looked up anew, as others may change between."""
        size = 16
        while run := self._run(scan, descending, size):
            yield run
            if len(run) < size:
                return
            key, created_at, record_key = run[-1]
            if descending:
                scan = scan._replace(high=run[-1])
            else:
                scan = scan._replace(low=(key, created_at, record_key + 1))
            size = min(size * 4, 1024)

    def _run(self, scan: IndexScan, descending: bool, size: int) -> list[Position]:
        entries, start, stop = self._bounds(scan)
        if descending:
            return entries[max(start, stop - size) : stop][::-1]
        return entries[start : min(start + size, stop)]

    def fetch(self, scan: IndexScan, descending: bool, content: bool, limit: int) -> list[Brief]:
        return [brief_of(row) for _, row in islice(self.walk(scan, descending, content), limit)]

    def skip(self, scan: IndexScan, descending: bool, count: int) -> IndexScan | None:
        if scan.others or scan.author is not None:
            run = self._narrow(scan)
            found = None if count >= len(run) else run[-1 - count if descending else count]
        else:
            found = self._entry(scan, descending, count)
        return None if found is None else start_at(scan, descending, found)

    def times(self, scans: Sequence[IndexScan], descending: bool, count: int) -> list[int | None]:
        found = [self._entry(scan, descending, count) for scan in scans]
        return [None if entry is None else entry[1] for entry in found]

    def positions(self, scans: Sequence[IndexScan], descending: bool, limit: int) -> list[list[Position]]:
        return [self._run(scan, descending, limit) for scan in scans]

    def fetch_id(self, id: str) -> list[Brief]:
        row = self.head(id)
        return [] if row is None or not row.live else [brief_of(row)]

    def find_keys(self, scan: IndexScan, limit: int) -> list[int]:
        if scan.others or scan.author is not None:
            return [record_key for _, _, record_key in self._narrow(scan)[:limit]]
        entries, start, stop = self._bounds(scan)
        return [record_key for _, _, record_key in entries[start : min(stop, start + limit)]]

    def _bounds(self, scan: IndexScan) -> tuple[list[Position], int, int]:
        """Return all entries of an index, and where those of a scan begin and end."""
        entries = self._entries.get(scan.index_number, [])
        return entries, bisect_left(entries, scan.low), bisect_left(entries, scan.high)

    def _entry(self, scan: IndexScan, descending: bool, count: int) -> Position | None:
        """Return the entry after the first `count` of a bare scan; None when there are no more."""
        entries, start, stop = self._bounds(scan)
        if count >= stop - start:
            return None
        return entries[stop - 1 - count if descending else start + count]

    def _narrow(self, scan: IndexScan) -> list[Position]:
        """Return the entries of a scan that others narrow."""
        entries, start, stop = self._bounds(scan)
        return [place for place in entries[start:stop] if passes(scan, self._rows[place[2]], self._has)]

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

    def groups(self, scan: IndexScan, limit: int | None) -> list[tuple[bytes, int]]:
        entries, start, stop = self._bounds(scan)
        runs = groupby(islice(entries, start, stop), key=itemgetter(0))
        return [(key, sum(1 for _ in run)) for key, run in islice(runs, limit)]

    def tag_indexes(self, schema: int) -> list[tuple[str, int]]:
        return [
            (name.tag, index) for name, index in self._indexes.items() if name.schema == schema and name.tag
        ]

    def size(self, scan: IndexScan, cap: int) -> int:
        if scan.others or scan.author is not None:
            return min(cap, len(self._narrow(scan)))
        _, start, stop = self._bounds(scan)
        return min(cap, max(0, stop - start))

    estimate = size

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
        whole = (at for at in range(start, len(kept)) if kept[at].enc != DELTA)
        return kept[start : next(whole, len(kept)) + 1][::-1]

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

    def find_text_pages(self, index: int, wanted: Sequence[tuple[bytes, int]]) -> dict[bytes, TextPage]:
        found: dict[bytes, TextPage] = {}
        words = self._text_pages.get(index, {})
        for word, record_key in wanted:
            if pages := words.get(word):
                firsts = sorted(pages)
                place = max(bisect_right(firsts, record_key) - 1, 0)
                after = firsts[place + 1] if place + 1 < len(firsts) else None
                found[word] = TextPage(firsts[place], pages[firsts[place]], after)
        return found

    def text_pages(
        self, index: int, low: bytes, high: bytes, limit: int | None = None
    ) -> Iterable[tuple[bytes, int, bytes]]:
        words = self._text_pages.get(index, {})
        found = (low,) if high == low + b"\0" else sorted(word for word in words if low <= word < high)
        pages = ((word, first, body) for word in found for first, body in sorted(words.get(word, {}).items()))
        return islice(pages, limit)

    def text_docs(self, index: int, record_keys: Iterable[int] | None) -> dict[int, TextDoc]:
        docs = self._text_docs.get(index, {})
        wanted = docs if record_keys is None else record_keys
        return {key: docs[key] for key in wanted if key in docs}

    # -- writing --------------------------------------------------------------------------

    def ends_at(self, seq: int) -> bool:
        return self.tip.seq == seq

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

    def add_records(self, records: Sequence[TailRecord]) -> None:
        self.add_entries(list_added(records))

    def remove_entries(self, entries: Iterable[Entry]) -> None:
        for index, key, created_at, record_key in entries:
            run = self._entries.get(index, [])
            place = bisect_left(run, (key, created_at, record_key))
            if place < len(run) and run[place] == (key, created_at, record_key):
                del run[place]

    def put_text_pages(self, pages: Sequence[tuple[int, bytes, int, bytes]]) -> None:
        for index, word, first, body in pages:
            self._text_pages.setdefault(index, {}).setdefault(word, {})[first] = body

    def drop_text_pages(self, pages: Sequence[tuple[int, bytes, int]]) -> None:
        for index, word, first in pages:
            left = self._text_pages[index][word]
            del left[first]
            if not left:
                del self._text_pages[index][word]

    def put_text_docs(self, docs: Sequence[tuple[int, int, TextDoc]]) -> None:
        for index, record_key, doc in docs:
            self._text_docs.setdefault(index, {})[record_key] = doc

    def drop_text_docs(self, docs: Sequence[tuple[int, int]]) -> None:
        for index, record_key in docs:
            self._text_docs.get(index, {}).pop(record_key, None)

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
                for kept in (self._entries, self._text_pages, self._text_docs):
                    kept.pop(index, None)
                self.drop_vector_index(index)
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
    records_ahead = 128  # a read keeps the event loop

    def __init__(self, wrap: Wrap = no_wrap, shared: str | None = None) -> None:
        self._wrap = wrap
        self.shared = shared  # the name under which this process shares it
        self._take(SharedMemory(wrap(MemoryKernel())))
        self._opened = False

    def _take(self, memory: SharedMemory) -> None:
        self._memory = memory
        self.epoch, self._lock = memory.epoch, memory.lock

    @property
    def blobs(self) -> MemoryContents:
        """The contents of blobs of this store."""
        return self._memory.blobs

    async def is_available(self) -> bool:
        """Return True: memory is always there."""
        return True

    async def open(self) -> None:
        """Start; there is nothing to open."""
        if self._opened:
            raise Closed("this memory store is open already", hint="make another backend")
        if self.shared is not None:
            self._take(acquire(self.shared, SharedMemory(self._wrap(MemoryKernel()))))
        self._opened = True

    async def close(self) -> None:
        """Refuse further use; the data goes with the object, or with the last handle on a shared one."""
        if self._opened and self.shared is not None:
            release(self.shared, self._memory)
        self._opened = False
        self._memory.wake()

    def _read_now(self, work: Callable[[Reading], R]) -> R:
        self._check_open()
        with self._lock:
            return work(self._memory.kernel)

    async def _read(self, work: Callable[[Reading], R]) -> R:
        return self._read_now(work)

    async def _read_apart(self, work: Callable[[Reading], R]) -> R:
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(None, self._read_now, work)

    async def _write(self, work: Callable[[Ledger], R]) -> R:
        self._check_open()
        with self._lock:
            result = work(self._memory.ledger)
        self._memory.wake()
        return result

    async def _commit(self, prepared: Prepared, view: View) -> Committed:
        return await self._write(lambda ledger: ledger.commit(prepared, view))

    def get_now(self, id: str, lazy: bool = False) -> Datum | None:
        """Return the live version, read on this thread without an event loop."""
        if lazy:
            return self._read_now(lambda reading: read.get_lazily(reading, id))
        return self._read_now(lambda reading: read.get(reading, id, None))

    def get_many_now(self, ids: Sequence[str]) -> list[Datum | None]:
        """Return one answer for each of a few ids, read at one moment on this thread."""
        return self._read_now(lambda reading: read.look_up_all(reading, ids, None))

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or when time is up."""
        check_seq(since, "since")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            self._check_open()
            left = deadline - loop.time()
            changed = self._memory.watch(since)
            if changed is None or left <= 0:
                return self._memory.kernel.tip.seq
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await changed.wait()

    def _check_open(self) -> None:
        if not self._opened:
            raise Closed("this memory store is not open")
