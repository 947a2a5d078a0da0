"""The backend contract over a kernel, shared by every engine that has one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import msgspec

from dgent import clock
from dgent import ids as ids_
from dgent.errors import Corrupt, HistoryGone, NotFound, Unsupported
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.vector import VectorSpec
from dgent.store.backend import (
    KINDS,
    STORED,
    BackendStats,
    Change,
    Commit,
    Committed,
    Compacted,
    Declaration,
    Declared,
    Forgotten,
    Guard,
    Keep,
    Page,
    Rank,
    Reverted,
    SchemaStats,
    Version,
    View,
)
from dgent.store.engine import expiry, fold, history, prune, read, search, text, vector_fold, vector_search
from dgent.store.engine.catalog import REF, T_MIN, IndexName, field_index, high, low, require_state
from dgent.store.engine.check import check_as_of, check_ids, check_keep, check_limit, check_moment, check_seq
from dgent.store.engine.commit import Ledger, Prepared, key_bytes, prepare
from dgent.store.engine.errors import TooLong
from dgent.store.engine.guard import check_guard
from dgent.store.engine.kernel import FORGET, QUIET, SAME, IndexScan, LoggedOp, Reading
from dgent.store.engine.narrow import narrow
from dgent.store.engine.override import find_overrides
from dgent.store.engine.reference import find_referrers
from dgent.store.engine.row import Row, datum_of
from dgent.store.engine.tally import count_values
from dgent.store.engine.thread import rank_in_threads
from dgent.store.engine.vector import describe_embedded, open_vectors
from dgent.store.engine.vector_cache import VectorCache
from dgent.store.search import (
    EmbeddedSchema,
    Found,
    GivenVector,
    SearchPage,
    SearchRequest,
    VectorPage,
    WaitingVector,
)
from dgent.store.tally import Counts, Tally


def find_states_before(reading: Reading, seq: int) -> list[Reverted]:
    """Return each record that a commit changed: its state before, and its present one.

    Records that are neither on the feed nor in the history, such as heartbeats, are left out.
    """
    history.check_floor(reading, max(seq - 1, 0))
    logged = reading.read_commit(seq)
    if logged is None:
        raise NotFound(f"no commit {seq}", seq=seq)
    if any(code & ~QUIET == FORGET for code, _, _ in logged.ops):
        raise Unsupported(f"commit {seq} forgot records for good", hint=f"it is of kind {KINDS[logged.kind]}")
    states = (_state_before(reading, seq, op) for op in logged.ops if op[0] != SAME)
    return [state for state in states if state is not None]


def _state_before(reading: Reading, seq: int, op: LoggedOp) -> Reverted | None:
    code, record_key, rev = op
    head = reading.row(record_key)
    if head is None:
        raise HistoryGone(f"a record of commit {seq} was forgotten", seq=seq)
    if {type(head.rev), type(head.seq)} != {int}:
        raise Corrupt(f"{head.id!r} is damaged: its rev and its commit are not numbers", id=head.id, seq=seq)
    before = None if rev == 1 else history.version(reading, head, rev - 1)
    if before is None and rev > 1 and reading.forgotten_rev(head.id) != rev - 1:
        if code & QUIET and _keeps_none(reading, head):
            return None  # a heartbeat: nobody needs its state before
        raise HistoryGone(f"{head.id!r} before commit {seq} was pruned", id=head.id, seq=seq)
    datum = datum_of(before, reading.name) if before is not None and before.live else None
    if datum is not None and datum.problem is not None:
        raise Corrupt(datum.problem, id=head.id, seq=seq)
    return Reverted(head.id, rev, head.rev, head.seq, bool(head.live), datum)


def _keeps_none(reading: Reading, row: Row) -> bool:
    state = reading.state(reading.name(row.schema))
    return state is not None and state.history == "none"


R = TypeVar("R")

INLINE_IDS = 64  # up to so many point reads are a short read
BATCH = 20_000  # entries removed by one statement


class KernelBackend(ABC):
    """A backend over a kernel; an engine decides where reads and writes run."""

    name: str
    priority: int
    epoch: bytes
    records_ahead = fold.RECORDS_AHEAD  # of so many the runs of a text index are made in one read
    extends = True  # times of expiry are changed in place, by `extend`
    remains = ""  # where bytes of forgotten records may be that the engine cannot reach

    @cached_property
    def _words(self) -> search.Kept:
        """The findings of searches, from one to the next."""
        return search.Kept()

    @cached_property
    def _folding(self) -> fold.Prepared:
        """The part of the next steps of folding that is worked out, from one step to the next."""
        return fold.Prepared(self.records_ahead)

    @cached_property
    def _filling(self) -> asyncio.Lock:
        return asyncio.Lock()

    @cached_property
    def _vectors(self) -> VectorCache:
        """The bits of vectors, from one search to the next."""
        return VectorCache()

    async def _read_apart(self, work: Callable[[Reading], R]) -> R:
        """Run a read that calculates for long, where it blocks nobody."""
        return await self._read(work)

    @abstractmethod
    async def _read(self, work: Callable[[Reading], R]) -> R:
        """Run a read of one moment that may take long."""

    async def _inline(self, work: Callable[[Reading], R]) -> R:
        """Run a read of one moment that is short."""
        return await self._read(work)

    @abstractmethod
    async def _write(self, work: Callable[[Ledger], R]) -> R:
        """Run work in its own write transaction."""

    @abstractmethod
    def _commit(self, prepared: Prepared, view: View) -> Awaitable[Committed]:
        """Run a commit in a write transaction, maybe together with others."""

    # -- commits --------------------------------------------------------------------------

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do all ops or none."""
        return await self._commit(prepare(commit), view)

    async def outcome(self, key: str) -> Committed | None:
        """Return the answer to a keyed commit, or None if it never happened."""
        ids_.check_id(key, "key")

        def work(reading: Reading) -> Committed | None:
            logged = reading.find_by_key(key_bytes(key))
            return None if logged is None else Ledger(reading).answer(logged)  # type: ignore[arg-type]

        return await self._inline(work)

    async def extend(self, given: Sequence[tuple[str, int, datetime]]) -> int:
        """Let records live longer: id, rev and time of each. Return how many; no version or commit is made.

        Those that were replaced meanwhile are left alone.
        """

        def work(ledger: Ledger) -> int:
            return sum([ledger.extend(id, rev, clock.to_us(moment)) for id, rev, moment in given])

        return await self._write(work)

    # -- reads ----------------------------------------------------------------------------

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """Return the live version, or the one at a seq."""
        check_as_of(as_of)
        return await self._inline(lambda reading: read.get(reading, id, as_of))

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """Return one answer for each id, read at one moment."""
        check_as_of(as_of)
        wanted = check_ids(ids)

        def work(reading: Reading) -> list[Datum | None]:
            return read.look_up_all(reading, wanted, as_of)

        return await self._inline(work) if len(wanted) <= INLINE_IDS else await self._read(work)

    async def ranks(self, ids: Sequence[str]) -> list[Rank | None]:
        """Return the rank of each record in the order of time."""
        wanted = check_ids(ids)

        def work(reading: Reading) -> list[Rank | None]:
            heads = reading.heads(wanted)
            return [
                None if row is None else Rank(row.record_key, row.created_at if row.live else None)
                for row in heads
            ]

        return await self._inline(work) if len(wanted) <= INLINE_IDS else await self._read(work)

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """Return a page of matching records in order."""
        check_as_of(as_of)
        return await self._read(lambda reading: self._query(reading, query, view, as_of))

    def _query(
        self,
        reading: Reading,
        query: Query,
        view: View,
        as_of: int | None,
        planned: read.Planned | None = None,
    ) -> Page:
        reading.refresh()
        return read.query(reading, query, view, as_of, self.epoch, planned)

    async def search(self, request: SearchRequest) -> SearchPage:
        """Return the matching records that have some of the words, best first."""
        check_as_of(request.as_of)
        return await self._read(lambda reading: self._search(reading, request))

    def _search(self, reading: Reading, request: SearchRequest, short: bool = False) -> SearchPage:
        reading.refresh()
        wanted, query, view, own = request.wanted, request.query, request.view, request.own
        states = text.find_searched(reading, request.schemas, own, view)
        overrides = find_overrides(reading, [state.name for state in states], view, request.as_of, own)
        opened = (text.open_index(reading, state, bool(own) or state.fill is not None) for state in states)
        indexes = [index for index in opened if index is not None]
        schemas = [state.name for state in states]
        if not indexes or not wanted:
            return SearchPage([], schemas=schemas)
        threaded = any(state.thread for state in states)
        if short and threaded:
            raise TooLong
        found = search.TextSearch(indexes, view, self._words, overrides, short)

        lapsing = any(state.expires for state in states)
        moment = expiry.find_moment(reading, request.as_of) if lapsing else 0

        def fits(datum: Datum) -> bool:
            if lapsing and expiry.has_expired(datum, moment):
                return False
            return query.matches(datum, view.shape)

        def find_among() -> Sequence[int] | None:
            if short:
                raise TooLong
            left = narrow(reading, query, view, found.most_narrowed) if query.narrows else None
            return None if left is None else left.keys

        if threaded:
            hits = rank_in_threads(found, wanted, fits, query.allow, request.limit, find_among)
        elif query.allow is None and not query.narrows and not lapsing:
            hits = islice(found.rank(wanted, request.limit), request.limit)
        else:
            ranked = search.rank_fitting(found, wanted, fits, request.limit, find_among)
            hits = islice((hit for hit, is_fit in ranked if is_fit), request.limit)
        items = [Found(hit.datum, hit.score, hit.parts, found.texts(hit.datum)) for hit in hits]
        return SearchPage(items, found.building, found.behind, schemas)

    async def search_vectors(
        self,
        vector: bytes,
        query: Query,
        view: View,
        limit: int,
        as_of: int | None = None,
        spec: VectorSpec | None = None,
    ) -> VectorPage:
        """Return the matching records with the nearest vectors; `vector` is given as 32-bit numbers."""
        check_as_of(as_of)

        def search_with(cache: VectorCache) -> Callable[[Reading], VectorPage | None]:
            def work(reading: Reading) -> VectorPage | None:
                reading.refresh()
                return vector_search.search_vectors(reading, vector, query, view, limit, cache, as_of, spec)

            return work

        found: VectorPage | None = None
        # Another search may be quicker, and leave bits of a later moment; a replica may stay behind for long.
        for cache in (self._vectors, self._vectors, VectorCache()):
            found = found or await self._read_apart(search_with(cache))
        assert found is not None, "nobody else has the last one"
        return found

    async def embedded_schemas(self, most: int = 1_000_000) -> list[EmbeddedSchema]:
        """Return the schemas whose texts a model embeds, by name."""

        def work(reading: Reading) -> list[EmbeddedSchema]:
            reading.refresh()
            found = (describe_embedded(reading, state, most) for state in reading.states())
            return sorted((each for each in found if each is not None), key=lambda each: each.name)

        return await self._read(work)

    async def waiting_vectors(self, schema: str, limit: int, after: bytes = b"") -> list[WaitingVector]:
        """Return versions that wait for a model to make their vectors, in order, after a key."""
        check_limit(limit)

        def work(reading: Reading) -> list[WaitingVector]:
            reading.refresh()
            index = open_vectors(reading, reading.state(schema))
            return [] if index is None else vector_search.list_waiting(index, limit, after)

        return await self._read(work)

    async def store_vectors(self, schema: str, spec: VectorSpec, given: Sequence[GivenVector]) -> int:
        """Store vectors of versions that wait, unless these were replaced meanwhile; return how many."""

        def work(ledger: Ledger) -> int:
            state = ledger.kernel.state(schema)
            if state is None or state.vector != spec:
                return 0
            return vector_fold.store_vectors(ledger.kernel, state, given)

        return await self._write(work)

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        """Return how many records match, ignoring limit, offset and cursor."""
        check_as_of(as_of)

        def work(reading: Reading) -> int:
            reading.refresh()
            return read.count(reading, query, view, as_of)

        return await self._read(work)

    async def tally(self, tally: Tally, view: View, as_of: int | None = None) -> Counts:
        """Return distinct values of a field or tags, in order, with the number of records that have each."""
        check_as_of(as_of)

        def work(reading: Reading) -> Counts:
            reading.refresh()
            return count_values(reading, tally, view, as_of)

        return await self._read(work)

    async def referrers(self, id: str, limit: int | None, view: View = STORED) -> list[Datum]:
        """Return the records whose declared refs hold this id, newest first."""
        ids_.check_id(id)
        check_limit(limit)

        def work(reading: Reading) -> list[Datum]:
            reading.refresh()
            return find_referrers(reading, id, limit, view)

        return await self._read(work)

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """Return a record and its causes, nearest first."""
        ids_.check_id(id)
        check_limit(limit)
        short = min(limit, INLINE_IDS)
        found = await self._inline(lambda reading: read.ancestors(reading, id, short))
        if len(found) < short or short == limit:
            return found
        return await self._read(lambda reading: read.ancestors(reading, id, limit))

    async def history(self, id: str, limit: int | None) -> list[Version]:
        """Return the kept versions of a record, newest first."""
        ids_.check_id(id)
        check_limit(limit)

        def work(reading: Reading) -> list[Version]:
            reading.refresh()
            return history.history(reading, id, limit)

        return await (self._inline if limit == 1 else self._read)(work)

    async def changes(self, since: int, limit: int) -> list[Change]:
        """Return commits after a seq, in order; HistoryGone if some were pruned."""
        return await self.changes_in_part(since, limit, None)

    async def changes_in_part(self, since: int, limit: int, items: int | None) -> list[Change]:
        """Return commits after a seq with only some records of each, for a look at a log of large ones."""
        check_seq(since, "since")
        check_limit(limit)

        def work(reading: Reading) -> list[Change]:
            reading.refresh()
            return history.changes(reading, since, limit, items)

        return await self._read(work)

    async def states_before(self, seq: int) -> list[Reverted]:
        """Return the state before a commit of each of its records."""
        check_seq(seq, "seq")

        def work(reading: Reading) -> list[Reverted]:
            reading.refresh()
            return find_states_before(reading, seq)

        return await self._read(work)

    async def validate(self, guard: Guard, view: View) -> int:
        """Return the newest seq; raises TransactionConflict when something in the guard was touched."""
        check_seq(guard.since, "since")

        def work(reading: Reading) -> int:
            seq, _ = reading.newest()
            if seq != guard.since:
                reading.refresh()
                check_guard(reading, guard, view)
            return seq

        return await self._inline(work)

    async def last_seq(self) -> int:
        """Return the newest seq."""
        return await self._inline(lambda reading: reading.newest()[0])

    async def seq_at(self, moment: datetime) -> int:
        """Return the newest seq committed at or before a time."""
        at = check_moment(moment, "moment")

        def work(reading: Reading) -> int:
            reading.refresh()
            return reading.seq_at(at)

        return await self._inline(work)

    async def versions(self, schema: str) -> dict[int, int]:
        """Return how many live records there are of each stored version."""
        ids_.check_name(schema, "schema")

        def work(reading: Reading) -> dict[int, int]:
            reading.refresh()
            counts: dict[int, int] = {}
            for row in _rows_of(reading, schema):
                counts[row.schema_version] = counts.get(row.schema_version, 0) + 1
            return dict(sorted(counts.items()))

        return await self._read(work)

    # -- declarations and upkeep ----------------------------------------------------------

    async def declare(self, declaration: Declaration) -> Declared:
        """Make a schema known to the store."""
        return await self._write(lambda ledger: ledger.declare(declaration))

    async def fill(self, schema: str, view: View) -> bool:
        """Index one batch of old records; False when nothing is left to do."""
        if schema != "":  # records without one have an index of texts, too
            ids_.check_name(schema, "schema")
        prepared = self._folding
        async with self._filling:  # or several would prepare the same step
            if not prepared.is_ready(schema):
                await self._read(lambda reading: prune.prepare_fill(reading, schema, view, prepared))
            return await self._write(lambda ledger: prune.fill_step(ledger, schema, view, prepared))

    async def drop_index(self, schema: str, path: str) -> None:
        """Drop a declared index."""
        ids_.check_name(schema, "schema")

        def work(ledger: Ledger) -> None:
            state = ledger.kernel.state(schema)
            if state is None or path not in state.paths:
                raise NotFound(f"{schema!r} has no index on {path!r}")
            left = tuple(p for p in state.paths if p != path)
            new = msgspec.structs.replace(state, paths=left, ready=state.ready - {path})
            ledger.kernel.set_state(msgspec.structs.replace(new, fill=(T_MIN, 0) if new.building else None))
            # In the same transaction: declared again in between, the field would lose its new entries.
            gone = field_index(state, path).path
            while ledger.kernel.drop_indexes(state.number, lambda name: name.path != gone, BATCH):
                pass

        await self._write(work)

    async def forget(
        self,
        ids: Sequence[str],
        author: str,
        room: str | None,
        only_deleted: bool = False,
        at_us: int | None = None,
    ) -> Forgotten:
        """Erase records and their history for good; with `only_deleted` those that are live stay."""
        wanted = check_ids(ids)
        ids_.check_name(author, "author")
        seq, records, versions = await self._write(
            lambda ledger: prune.forget(ledger, wanted, author, room, only_deleted, at_us)
        )
        # Also when nothing was found: an earlier call may have left the erasing undone.
        return Forgotten(seq, records, versions, await self._erase_traces(), self.remains)

    async def _erase_traces(self) -> bool:
        """Make sure that no file holds forgotten bytes any more; True when that is certain."""
        return True

    async def compact(self, keep: Keep) -> Compacted:
        """Apply a retention rule to the history, some records at a time."""
        check_keep(keep)
        versions = commits = 0
        place: int | None = 0
        while place is not None:
            at = place
            removed, trimmed, place = await self._write(
                lambda ledger, at=at: prune.compact_step(ledger.kernel, keep, at)  # type: ignore[misc]
            )
            versions, commits = versions + removed, commits + trimmed

        def floor(reading: Reading) -> int:
            reading.refresh()
            return reading.floor()

        return Compacted(versions, commits, await self._inline(floor) + 1)

    async def stats(self) -> BackendStats:
        """Return the contents and the condition of the store."""

        def work(reading: Reading) -> BackendStats:
            reading.refresh()
            names = sorted(state.name for state in reading.states())
            schemas = tuple(_schema_stats(reading, name) for name in names)
            return BackendStats(
                self.name,
                self._place(),
                sum(schema.records for schema in schemas),
                reading.newest()[0],
                reading.floor() + 1,
                self._size_bytes(),
                schemas,
                self._details(),
            )

        return await self._read(work)

    def _place(self) -> str:
        return self.name

    def _size_bytes(self) -> int:
        return 0

    def _details(self) -> dict[str, Any]:
        return {}


def _rows_of(reading: Reading, schema: str) -> Any:
    state = reading.state(schema)
    base = None if state is None else reading.index_number(IndexName(state.number, 0, "", ""))
    if base is None:
        return []
    return (row for _, row in reading.walk(IndexScan(base, low(b""), high(b"")), False, False))


def _schema_stats(reading: Reading, schema: str) -> SchemaStats:
    state = require_state(reading.state(schema))
    base = reading.index_number(IndexName(state.number, 0, "", ""))
    records = 0 if base is None else reading.size(IndexScan(base, low(b""), high(b"")), 2**62)
    return SchemaStats(
        state.name,
        records,
        state.index_version,
        state.paths,
        tuple(p for p in state.building if p != REF),
        len(reading.unindexed_rows(state.number)),
        tuple(sorted(state.seen)),
        state.owner,
        tuple(path for path, _ in state.text),
        state.refs,
    )
