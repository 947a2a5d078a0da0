"""Transactions: read, decide, and write everything or nothing.

A transaction holds no lock and no connection while user code runs. It notes what it read; if a
commit of someone else touched any of that before it is done, it fails and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dgent import clock, ids
from dgent.errors import Closed, TransactionConflict
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import LIVE, Check, Committed, Delete, Expect, Guard, Op, Put
from dgent.universe import writing

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

MAX_READS = 10_000


class Transaction:
    """Several changes that happen together, on a state nobody else changed meanwhile."""

    def __init__(self, universe: Universe, note: str | None = None) -> None:
        self.committed: Committed | None = None
        self._universe = universe
        self._contracts = universe.contracts
        self._note = note
        self._since = -1
        self._ids: set[str] = set()
        self._queries: list[Query] = []
        self._ops: dict[str, Op] = {}
        self._done = False

    async def __aenter__(self) -> Transaction:
        self._since = await self._universe.seq()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._done:
            await self.commit()
        self._done = True

    # -- writes, kept until the end -------------------------------------------------------

    async def remember(self, value: Any, **fields: Any) -> Crystal[Any]:
        """Store a new typed value when the transaction commits."""
        datum, settled = writing.new_datum(self._contracts, value, **fields)
        datum = self._authored(datum)
        self._buffer(Put(datum, 0, None, True))
        return Crystal(datum, settled, datum.schema or "", datum.schema_version or 1)

    async def store(self, thing: Any, *, expect: Expect = None) -> Any:
        """Store a changed crystal or datum when the transaction commits."""
        op, _ = writing.store_op(self._contracts, thing, expect)
        self._buffer(Put(self._authored(op.datum), op.expect, op.indexed, op.plain))
        return thing

    async def put(self, datum: Datum, *, expect: Expect = None) -> Datum:
        """Store a datum when the transaction commits."""
        op = writing.put_op(self._contracts, datum, expect)
        datum = self._authored(op.datum).checked()
        self._buffer(Put(datum, op.expect, op.indexed, True))
        return datum

    async def delete(self, id: str, *, expect: Expect = None) -> None:
        """Delete a record when the transaction commits."""
        self._buffer(Delete(ids.check_id(id), expect))

    async def check(self, id: str, expect: Expect = LIVE) -> None:
        """Have the commit fail unless a record is as expected."""
        ids.check_id(id)
        if id not in self._ops:
            self._buffer(Check(id, expect))

    def _authored(self, datum: Datum) -> Datum:
        return datum if datum.author is not None else datum.replace(author=self._universe.author)

    def _buffer(self, op: Op) -> None:
        self._check_open()
        earlier = self._ops.get(op.id)
        if earlier is not None and not isinstance(op, Check) and op.expect in (None, 0):
            # What was expected of the stored record still is, whatever replaced it in the buffer.
            op = Delete(op.id, earlier.expect) if isinstance(op, Delete) else _expecting(op, earlier.expect)
        self._ops[op.id] = op

    # -- reads, which see this transaction's own writes -------------------------------------

    async def get(self, id: str, *, raw: bool = False) -> Any:
        """A record as this transaction sees it; None when there is none."""
        self._check_open()
        ids.check_id(id)
        mine = self._ops.get(id)
        if isinstance(mine, Put):
            return mine.datum if raw else self._contracts.crystal(mine.datum)
        if isinstance(mine, Delete):
            return None
        await self._advance()
        datum = await self._universe.backend.get(id)
        self._ids.add(id)
        await self._advance()
        return datum if raw or datum is None else self._contracts.crystal(datum)

    async def exists(self, id: str) -> bool:
        """Whether a record is there, as this transaction sees it."""
        return await self.get(id, raw=True) is not None

    async def query(self, query: Query) -> list[Any]:
        """Matching records, with this transaction's own writes among them."""
        return [self._contracts.lenient(datum) for datum in await self._select(query)]

    async def recall(self, query: Query) -> list[Crystal[Any]]:
        """Matching records that are typed values."""
        return [found for found in await self.query(query) if isinstance(found, Crystal)]

    async def count(self, query: Query) -> int:
        """How many records match, as this transaction sees it."""
        everything = query.replace(limit=None, offset=0, cursor=None)
        return len(await self._select(everything))

    async def _select(self, query: Query) -> list[Datum]:
        self._check_open()
        if query.cursor is not None:
            raise TransactionConflict("a transaction reads no cursors", hint="use a larger limit")
        await self._advance()
        # Enough rows that the page stays full when this transaction's own ids are taken out.
        wider = query.replace(
            offset=0,
            limit=None if query.limit is None else query.limit + query.offset + len(self._ops),
        )
        page = await self._universe.backend.query(wider, self._contracts)
        self._ids.update(datum.id for datum in page.items)
        self._queries.append(query.replace(limit=None, offset=0))
        await self._advance()
        return self._overlaid(query, page.items)

    def _overlaid(self, query: Query, found: Sequence[Datum]) -> list[Datum]:
        rows = [datum for datum in found if not isinstance(self._ops.get(datum.id), Put | Delete)]
        shape = self._contracts.shape
        mine = [op.datum for op in self._ops.values() if isinstance(op, Put)]
        rows += [datum for datum in mine if query.matches(datum, shape(datum))]

        def place(numbered: tuple[int, Datum]) -> tuple[bytes, int, int]:
            number, datum = numbered
            return query.order_key(shape(datum)), clock.to_us(datum.created_at), number

        # `found` comes in the query's order; its rank stands in for the order of first commit.
        ranked = list(enumerate(reversed(rows) if query.descending else rows))
        ranked.sort(key=place, reverse=query.descending)
        last = None if query.limit is None else query.offset + query.limit
        return [datum for _, datum in ranked[query.offset : last]]

    async def _advance(self) -> None:
        """Move to the newest state if nothing read so far has changed; else fail now."""
        if len(self._ids) > MAX_READS:
            raise TransactionConflict(
                f"a transaction reads at most {MAX_READS} records", hint="use iterate for large reads"
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
            self.committed = Committed(self._since)
            return self.committed
        guard = self._guard() if self._ids or self._queries else None
        self.committed = await self._universe.commit(list(self._ops.values()), guard=guard, note=self._note)
        return self.committed

    def _check_open(self) -> None:
        if self._done:
            raise Closed("this transaction is over", hint="start another one")


def _expecting(op: Op, expect: Expect) -> Op:
    assert isinstance(op, Put)
    return Put(op.datum, expect, op.indexed, op.plain)
