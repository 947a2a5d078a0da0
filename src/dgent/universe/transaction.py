"""Transactions: read, decide, and write everything or nothing.

A transaction holds no lock and no connection while user code runs. It records what it read; if another
commit touched any of that before it is done, it fails and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload
from weakref import WeakValueDictionary

from dgent import clock, ids
from dgent.errors import (
    Closed,
    Conflict,
    Denied,
    InputError,
    QueryError,
    TransactionConflict,
    VersionConflict,
)
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import LIVE, Check, Committed, Delete, Expect, Guard, Kind, Op, Put, Rank, View
from dgent.store.search import SearchRequest
from dgent.universe import search, write
from dgent.universe.check import query_of
from dgent.universe.contract import Doubts, Recalled, raw_of
from dgent.universe.search import Hits

if TYPE_CHECKING:
    from dgent.store.port.attached import BoundStatement, Repeat
    from dgent.store.port.statement import Params
    from dgent.universe.universe import Universe


Shape = Callable[[Datum], Mapping[str, Any]]
Ranks = Callable[[Sequence[str]], Awaitable[Mapping[str, Rank | None]]]

_NEW = 2**62  # comes after every stored record


async def own_datums(puts: Sequence[Put], ranks: Ranks) -> list[Datum]:
    """Return the datums of own puts as they will be stored: a live record keeps its creation time."""
    # What the datum says of its time is not asked: the caller may have it from before, or from elsewhere.
    unsure = [op.id for op in puts if op.expect != 0]
    stored = await ranks(unsure) if unsure else {}
    out = []
    for op in puts:
        rank = stored.get(op.id)
        if rank is None or rank.created_us is None:
            out.append(op.datum)
        else:
            out.append(op.datum.replace(created_at=clock.from_us(rank.created_us)))
    return out


async def overlay(
    query: Query, found: Sequence[Datum], ops: Mapping[str, Op], shape: Shape, ranks: Ranks
) -> list[Datum]:
    """Return all matching records, in the query's order; ties stand in the order of first commit."""
    own = await own_datums([op for op in ops.values() if isinstance(op, Put)], ranks)
    own = [datum for datum in own if query.matches(datum, shape(datum))]
    written = {op.id for op in ops.values() if not isinstance(op, Check)}
    rows = [datum for datum in found if datum.id not in written]
    if query.descending:
        rows.reverse()
    return await _sort(query, rows, own, shape, ranks)


async def _sort(
    query: Query, stored_rows: list[Datum], own: list[Datum], shape: Shape, ranks: Ranks
) -> list[Datum]:
    rows = stored_rows + own
    keys = [query.sort_key(datum, shape(datum)) for datum in rows]
    shared = Counter(keys)
    ties = {key for key in keys[len(stored_rows) :] if shared[key] > 1}
    tied = [datum.id for datum, key in zip(rows, keys, strict=True) if key in ties]
    stored = await ranks(tied) if tied else {}

    def sort_key(number: int) -> tuple[bytes, int, int]:
        rank = stored.get(rows[number].id)
        new = number + (_NEW if keys[number] in ties else 0)
        return (*keys[number], new if rank is None else rank.record_key)

    numbers = sorted(range(len(rows)), key=sort_key, reverse=query.descending)
    return [rows[number] for number in numbers]


MAX_READS = 10_000
LONGEST_PAUSE_S = 0.25  # between two attempts of `transact`, however many there were

R = TypeVar("R")
T = TypeVar("T")


class Transaction:
    """Several changes that happen together, if nobody else changed meanwhile what they rely on."""

    def __init__(self, universe: Universe, note: str | None = None) -> None:
        self.committed: Committed | None = None
        self.reads: int = MAX_READS  # how many records it may read; more only where it is known that it must
        self._universe = universe
        self._contracts = universe.contracts
        self._note = note
        self.kind: Kind = "data"  # what its commit is called in the log, and which commit it takes back
        self.of_seq: int | None = None
        self._since = -1
        self._ids: set[str] = set()
        self._queries: list[Query] = []
        self._ops: dict[str, Op] = {}
        self._known_ranks: dict[str, Rank | None] = {}
        self._statements: list[BoundStatement] = []
        self._done = False

    async def __aenter__(self) -> Transaction:
        await self._universe._ready()
        self._since = await self._universe.seq()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._done:
            await self.commit()
        self._done = True

    # -- writes, kept until the end -------------------------------------------------------

    @overload
    async def remember(self, value: dict[str, Any], *, schema: None = None, **fields: Any) -> Datum: ...
    @overload
    async def remember(self, value: T, **fields: Any) -> Crystal[T]: ...
    async def remember(self, value: T, **fields: Any) -> Crystal[T] | Datum:
        """Store a new value when the transaction commits; a dict without a schema becomes a plain datum."""
        if "key" in fields:
            raise InputError(
                "an op inside a transaction cannot have an idempotency key", hint="use u.commit with a key"
            )
        datum, settled = write.new_datum(self._contracts, value, **fields)
        datum = self._buffer_put(Put(datum, 0, None, True))
        if datum.schema is None:
            return datum
        return Crystal(datum, settled, datum.schema, datum.schema_version or 1)

    async def store(self, thing: Any, *, expect: Expect = None) -> Any:
        """Store a changed crystal or datum when the transaction commits."""
        op, settled = write.store_op(self._contracts, thing, expect)
        datum = self._buffer_put(op)
        if isinstance(thing, Crystal):
            return Crystal(datum, settled, datum.schema or "", datum.schema_version or 1)
        return datum

    async def update(
        self, crystal: Crystal[T], /, *, expect: Expect | write.Read = "read", **fields: Any
    ) -> Crystal[T]:
        """Store a crystal with fields of its value changed when the transaction commits.

        Raises VersionConflict if this transaction has changed the record since the crystal was read from it;
        the commit fails if someone else has.
        """
        mine = self._ops.get(crystal.id) if isinstance(crystal, Crystal) else None
        if expect == "read" and not isinstance(mine, Check | None):
            self._check_newest(crystal, mine)
            expect = LIVE
        op, settled = write.update_op(self._contracts, crystal, fields, expect)
        datum = self._buffer_put(op)
        return Crystal(datum, settled, datum.schema or "", datum.schema_version or 1)

    def _check_newest(self, crystal: Crystal[Any], mine: Op) -> None:
        """Raise VersionConflict unless a crystal is as this transaction has stored it."""
        # Tags and other parts of the envelope may have been changed on the way.
        if isinstance(mine, Put) and mine.datum.data == crystal.datum.data:
            return
        done = "changed" if isinstance(mine, Put) else "deleted"
        raise VersionConflict(
            f"{crystal.id!r} was {done} earlier in this transaction",
            hint="update what the earlier call returned",
            id=crystal.id,
        )

    async def put(self, datum: Datum, *, expect: Expect = None) -> Datum:
        """Store a datum when the transaction commits."""
        return self._buffer_put(write.put_op(self._contracts, datum, expect))

    async def delete(self, id: str, *, expect: Expect = None) -> None:
        """Delete a record when the transaction commits."""
        self._buffer(Delete(ids.check_id(id), expect))

    async def check(self, id: str, expect: Expect = LIVE) -> None:
        """Have the commit fail unless a record is as expected."""
        self._buffer(Check(ids.check_id(id), expect))

    def _enter_room(self, name: str) -> None:
        """Let records of a room be part of this transaction; one of a principal cannot have any."""
        self._check_open()
        room = self._universe._room
        if room == name:
            return
        if room is not None:
            raise InputError(f"this transaction is one of {room}, so it cannot write records of {name}")
        if hasattr(self._universe.backend, "principal"):
            # The room would then answer for everything else that is written here.
            raise Denied(
                "a transaction of a principal cannot write records of rooms", hint="write them alone"
            )
        self._universe = self._universe.for_room(name)

    async def execute(self, query: str, params: Params | None = None, *, rows: int | None = None) -> None:
        """Run a statement on the caller's own tables when the transaction commits, with its records or not.

        It is checked now, and runs in the database's own transaction after the records are written. What it
        runs into then, such as a constraint, undoes the records, too; so does another number of changed rows
        than `rows`. Only SQLite and Postgres can do it.
        """
        self._check_open()
        bound = await self._universe.check_statement(query, params)
        self._statements.append(bound._replace(rows=rows))

    async def repeat(self, steps: Sequence[Repeat]) -> None:
        """Have the commit run again what a session of SQL ran here and took back, in the same order.

        If a statement then answers other rows, or changes another number of them, the commit fails.
        """
        from dgent.store.port.attached import BoundStatement  # loads when it is used

        self._check_open()
        for query, params, rows, answer, reads in steps:
            if not isinstance(query, str):
                self._statements.append(BoundStatement(query, None))
                continue
            bound = await self._universe.check_statement(query, params[0], reads=reads)
            self._statements.append(
                bound._replace(rows=rows, answer=answer, more=tuple(params[1:]), repeats=True)
            )

    def _buffer_put(self, op: Put) -> Datum:
        """Buffer a put in storable form, so that anything wrong with it is reported now."""
        op = write.add_author(op, self._universe.author)
        datum = op.datum.check(op.plain)
        if datum.updated_at is not None:
            datum = datum.replace(updated_at=None)  # of the version that it was read from
        self._buffer(Put(datum, op.expect, op.indexed, True))
        return datum

    def _buffer(self, op: Op) -> None:
        self._check_open()
        earlier = self._ops.get(op.id)
        if earlier is not None:
            # The expectation of the stored record stays, also when the buffered op is replaced.
            expect = _remaining(earlier, op.expect)
            op = _expecting(earlier if isinstance(op, Check) else op, expect)
        self._ops[op.id] = op

    # -- reads, which see this transaction's own writes -------------------------------------

    async def get(self, id: str, *, raw: bool = False) -> Any:
        """Return a record as this transaction sees it; None when there is none."""
        self._check_open()
        id = ids.check_id(id)
        mine = self._ops.get(id)
        if isinstance(mine, Put):
            (own,) = await own_datums([mine], self._ranks)
            return own if raw else self._contracts.crystal(own)
        if isinstance(mine, Delete):
            return None
        await self._advance()
        datum = await self._universe.backend.get(id)
        self._ids.add(id)
        await self._advance()
        if raw or datum is None:
            return datum
        return None if self._is_foreign(datum) else self._contracts.crystal(datum)

    def _is_foreign(self, datum: Datum) -> bool:
        return self._contracts.is_foreign(datum, self._universe._room)

    async def get_many(self, ids_: Sequence[str], *, raw: bool = False) -> list[Any]:
        """Return one answer for each id, as this transaction sees them; unreadable records come back raw."""
        self._check_open()
        wanted = [ids.check_id(id) for id in ids_]
        stored = [id for id in wanted if not isinstance(self._ops.get(id), Put | Delete)]
        await self._advance()
        found = dict(zip(stored, await self._universe.backend.get_many(stored), strict=True))
        self._ids.update(stored)
        await self._advance()
        puts = [op for id in wanted if isinstance(op := self._ops.get(id), Put)]
        mine = {datum.id: datum for datum in await own_datums(puts, self._ranks)}
        rows = [mine.get(id) or found.get(id) for id in wanted]
        if raw:
            return rows
        return [
            None if row is None or self._is_foreign(row) else self._contracts.lenient(row) for row in rows
        ]

    async def exists(self, id: str) -> bool:
        """Return whether a record is there, as this transaction sees it."""
        return await self.get(id, raw=True) is not None

    async def query(self, query: Query) -> list[Any]:
        """Return matching records, with this transaction's own writes among them."""
        return [self._contracts.lenient(datum) for datum in await self._select(query)]

    async def recall(self, query: Query) -> Recalled[Any]:
        """Return matching records that are typed values; unreadable ones are in `.problems`."""
        doubts = None if query.where is None else Doubts(self._contracts, query)
        found = [self._contracts.lenient(datum) for datum in await self._select(query, doubts)]
        if doubts is not None and doubts.ids:
            found += [each for each in await self.get_many(list(doubts.ids)) if isinstance(each, Datum)]
        return self._contracts.pick_crystals(found)

    async def search(
        self, text: str, query: Query | None = None, *, k: int = 10, **filters: Any
    ) -> Hits[Any]:
        """Return the records whose texts fit the words best, with this transaction's own writes among them.

        A commit of others that changes one of them, or a record that has some of the words and fits the
        filters, is a conflict; what only changes how rare a word is, is none.
        """
        self._check_open()
        asked = self._contracts.check(query_of(query, filters))
        wanted = search.parse(text)
        pending = await self._universe.refresh_texts(None if asked.schema is None else (asked.schema,))
        await self._advance()
        own = {**pending, **await self._own_versions()}
        request = SearchRequest(wanted, asked, self._contracts, search.check_k(k), own=own)
        found = await self._universe.backend.search(request)
        self._ids.update(each.datum.id for each in found.items if each.datum.id not in own)
        self._queries.append(search.guard_query(self._contracts, asked, wanted, found.schemas))
        await self._advance()
        return await search.make_hits(self._universe, self._contracts, wanted, found)

    async def _own_versions(self) -> dict[str, Datum | None]:
        """Return the versions that this transaction writes, None for what it deletes."""
        own: dict[str, Datum | None] = {op.id: None for op in self._ops.values() if isinstance(op, Delete)}
        puts = [op for op in self._ops.values() if isinstance(op, Put)]
        return own | {datum.id: datum for datum in await own_datums(puts, self._ranks)}

    async def count(self, query: Query) -> int:
        """Return how many records match, as this transaction sees it."""
        everything = query.replace(limit=None, offset=0, cursor=None)
        return len(await self._select(everything))

    async def _select(self, query: Query, view: View | None = None) -> list[Datum]:
        self._check_open()
        if query.cursor is not None:
            raise QueryError(
                "a query in a transaction cannot have a cursor", hint="use a larger limit", field="cursor"
            )
        self._contracts.check(query)
        await self._advance()
        # Enough rows that the page stays full when this transaction's own ids are taken out, and no
        # more than show that it reads too much.
        wanted = self.reads if query.limit is None else query.limit + query.offset + len(self._ops)
        wider = query.replace(offset=0, limit=min(wanted, self.reads) + 1)
        view = view or self._contracts
        page = await self._universe.backend.query(wider, view)
        found = page.items  # made of rows each time it is asked for
        self._ids.update(datum.id for datum in found)
        self._queries.append(query.replace(limit=None, offset=0))
        await self._advance()
        if self._ops:
            plain = [raw_of(datum) for datum in found]
            found = await overlay(query, plain, self._ops, view.shape, self._ranks)
        last = None if query.limit is None else query.offset + query.limit
        return list(found[query.offset : last])

    async def _ranks(self, ids_: Sequence[str]) -> dict[str, Rank | None]:
        """Return the ranks of stored records in the order of time, as of this transaction."""
        asked = [id for id in ids_ if id not in self._known_ranks]
        if asked:
            self._known_ranks.update(zip(asked, await self._universe.backend.ranks(asked), strict=True))
            # A record's time stays while it lives, so only a record that is stored can change it.
            self._ids.update(id for id in asked if self._known_ranks[id] is not None)
            await self._advance()
        return {id: self._known_ranks[id] for id in ids_}

    async def _advance(self) -> None:
        """Move to the newest state if nothing read so far has changed; else fail now."""
        if len(self._ids) > self.reads:
            raise Conflict(
                f"a transaction reads at most {self.reads} records", hint="use iterate for large reads"
            )
        self._since = await self._universe.backend.validate(self._guard(), self._contracts)

    def _guard(self) -> Guard:
        return Guard(self._since, frozenset(self._ids), tuple(self._queries))

    # -- the end --------------------------------------------------------------------------

    async def commit(self) -> Committed:
        """Write everything now; the transaction is over after this."""
        self._check_open()
        self._done = True
        if not self._ops:
            if any(not each.reads for each in self._statements):
                raise InputError(
                    "this transaction has statements and no records",
                    hint="use `u.storage.relational.transaction()` for tables alone",
                )
            self.committed = Committed(self._since)
            return self.committed
        guard = self._guard() if self._ids or self._queries else None
        try:
            done = await self._universe.commit(
                list(self._ops.values()),
                guard=guard,
                note=self._note,
                kind=self.kind,
                of_seq=self.of_seq,
                statements=tuple(self._statements),
            )
        except VersionConflict:
            if guard is not None:
                # Someone changed what was read here: that is the reason, and it can be tried again.
                await self._universe.backend.validate(guard, self._contracts)
            raise
        self.committed = done
        return done

    def _check_open(self) -> None:
        if self._done:
            raise Closed("this transaction is over", hint="start another one")
        if self._since < 0:
            raise Closed("this transaction has not begun", hint="use `async with u.transaction() as tx`")


async def transact(
    universe: Universe,
    work: Callable[[Transaction], Awaitable[R]],
    attempts: int,
    lock: str | None,
    note: str | None,
) -> R:
    """Run a function in a transaction, again when another commit was faster."""
    if lock is not None:
        async with universe.names.alone(lock):
            return await transact(universe, work, attempts, None, note)
    for attempt in range(attempts):
        try:
            async with universe.transaction(note=note) as tx:
                return await work(tx)
        except TransactionConflict:
            if attempt == attempts - 1:
                raise
            await asyncio.sleep(clock.jitter(0, min(0.002 * 2**attempt, LONGEST_PAUSE_S)))
    raise InputError("attempts must be at least 1", field="attempts")


def _remaining(earlier: Op, expect: Expect) -> Expect:
    """Return the expectation that still applies to the stored record, after an earlier op on it."""
    if not isinstance(earlier, Check) and expect in (0, LIVE):
        if isinstance(earlier, Put) == (expect == LIVE):
            return earlier.expect
    elif expect is None or expect == earlier.expect or (expect == LIVE and earlier.expect):
        return earlier.expect
    elif earlier.expect is None or (earlier.expect == LIVE and expect):
        return expect
    raise VersionConflict(f"{earlier.id!r} cannot be at {expect!r} in this transaction", id=earlier.id)


def _expecting(op: Op, expect: Expect) -> Op:
    """Return the op with another expectation of the stored record."""
    if isinstance(op, Put):
        return Put(op.datum, expect, op.indexed, op.plain)
    return type(op)(op.id, expect)


_held: ContextVar[frozenset[tuple[int, str]]] = ContextVar("dgent_held", default=frozenset())


class Names:
    """The named locks of a universe within one program; a lock lives only while it is held or waited for."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def alone(self, name: str) -> _Alone:
        """Hold a name; asking for it again in the same task would deadlock."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return _Alone(lock, (id(self), name))


class _Alone:
    """Holds a named lock; a class, since every step of an agent enters one."""

    def __init__(self, lock: asyncio.Lock, own: tuple[int, str]) -> None:
        self._lock = lock
        self._own = own

    async def __aenter__(self) -> None:
        held = _held.get()
        if self._own in held:
            raise InputError(f"{self._own[1]!r} is held already by the caller, so it would wait for itself")
        await self._lock.acquire()
        self._token = _held.set(held | {self._own})

    async def __aexit__(self, *error: object) -> None:
        _held.reset(self._token)
        self._lock.release()
