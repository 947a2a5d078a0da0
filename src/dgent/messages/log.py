"""The log of one agent: reads and writes of its records, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from dgent import clock, codec, ids
from dgent.errors import Conflict, Denied, InputError, KeyReused, NotFound
from dgent.messages.record import (
    BATCH,
    END,
    LEASE,
    MESSAGE,
    ROOM,
    SCHEMAS,
    SUMMARY,
    BatchRecord,
    MessageLease,
    MessageRecord,
    SummaryRecord,
    order_of,
    place_of_agent,
)
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import AsOf, Check, Committed, Delete, Expect, Op, Put
from dgent.system.process import is_gone
from dgent.universe import write
from dgent.universe.gate import TRUSTS, Gate
from dgent.universe.lease import is_expired, make_lease
from dgent.universe.origin import lowest_trust
from dgent.universe.position import known_seq
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

R = TypeVar("R")

ATTEMPTS = 100  # each of them means that somebody else committed
PAGE = 500

_LEAST = {"read": "conversant", "append": "conversant", "write": "friend", "destroy": "partner"}


class Holder(NamedTuple):
    """The process that works on a batch, and until when without a sign of life."""

    name: str
    until: datetime


class Log:
    """The records of one agent's messages in a universe; a handle of a principal has its own ones only."""

    def __init__(self, universe: Universe, agent: str) -> None:
        self.agent = ids.check_name(agent, "agent")
        self.trust = "partner"
        if isinstance(universe.backend, Gate):
            who = universe.backend.principal
            if who.name != agent:
                raise Denied(
                    f"{who.name} is {who.trust} and may not use messages of {agent!r}",
                    principal=who.name,
                )
            self.trust = who.trust
        self.universe = universe.for_room(ROOM)
        self.universe.register(*SCHEMAS)
        universe.rooms.add(ROOM)
        self.start = place_of_agent(agent)
        self._floor: int | None = None  # the number of the newest batch when this was first asked

    def require(self, effect: str) -> None:
        """Raise Denied when the trust of this handle does not cover an effect."""
        least = _LEAST[effect]
        if TRUSTS.index(self.trust) > TRUSTS.index(least):
            message = f"{self.agent} is {self.trust} and may not {effect} messages"
            raise Denied(message, hint=f"it takes {least}", principal=self.agent)

    def stamp(self, trust: str) -> str:
        """Return a trust, lowered to that of this handle: nobody vouches for more than for itself."""
        return lowest_trust(trust, self.trust)

    # -- writes -------------------------------------------------------------------------------

    def put(
        self, schema: Schema[Any], id: str, record: Any, expect: Expect, at: datetime | None = None
    ) -> Put:
        """Return the op that stores a record; `at` is when it was made, if not now."""
        # The room made the record of checked values, so it need not be read back to see whether it fits.
        data = {
            name: value if type(value) is str and value.isascii() else codec.plain(value)
            for name, value in vars(record).items()
        }
        datum = Datum(
            id,
            clock.now() if at is None else at,
            data,
            author=self.universe.author,
            schema=schema.name,
            schema_version=schema.version,
        )
        return Put(datum, expect, None, True)

    def hold(self, batch: str, holder: str, length: timedelta, expect: Expect = None) -> Put:
        """Return the op that makes somebody the holder of a batch, who alone works on it."""
        lease = make_lease(batch, holder, 0, length)
        return self.put(LEASE, lease_id(batch), MessageLease(**vars(lease), agent=self.agent), expect)

    async def find_holder(self, batch: str, reader: Universe | Transaction | None = None) -> Holder | None:
        """Return who works on a batch, if the lease has not ended and the process still runs."""
        found = await (self.universe if reader is None else reader).get(lease_id(batch))
        if not isinstance(found, Crystal):
            return None
        lease: MessageLease = found.value
        gone = lease.boot == clock.boot() and is_gone(lease.holder)
        if gone or is_expired(lease_id(batch), lease.until, lease, lease.token):
            return None
        return Holder(lease.holder, lease.until)

    def change(self, found: Crystal[Any], record: Any) -> Put:
        """Return the op that stores a new version of a record, if nobody else has changed it."""
        op, _ = write.store_op(self.universe.contracts, found.replace(value=record), found.rev)
        return op

    async def commit(
        self, ops: Sequence[Op], tx: Transaction | None = None, key: str | None = None
    ) -> Committed | None:
        """Do all ops or none; in a transaction of the caller they are done with it, and None is returned."""
        if tx is None:
            return await self.universe.commit(ops, key=key)
        if key is not None:
            raise InputError("a message added in a transaction cannot have a key", hint="leave key out")
        tx._enter_room(ROOM)
        if any(isinstance(op, Put) and op.datum.schema == BATCH.name and op.expect == 0 for op in ops):
            # An archive made before the commit would cover the new batch unseen: that is a conflict now.
            await tx.recall(self._head_query())
        for op in ops:
            if isinstance(op, Put):
                await tx.put(op.datum, expect=op.expect)
            elif isinstance(op, Delete):
                await tx.delete(op.id, expect=op.expect)
            elif isinstance(op, Check):
                await tx.check(op.id, op.expect)
        return None

    async def find_by_key(self, key: str | None) -> list[str] | None:
        """Return the ids that an earlier call with the same key wrote; None if there was none."""
        if key is None:
            return None
        done = await self.universe.outcome(self.full_key(key))
        if done is None:
            return None
        found = [each.id for each in done.written if each.id is not None]
        if not found:
            raise Conflict("this key was used, and the log that says for what was pruned", hint="use another")
        return found

    def full_key(self, key: str) -> str:
        """Return the idempotency key of a commit: keys of agents are apart."""
        return f"message/{self.start}{ids.check_name(key, 'key')}"

    async def commit_once(self, ops: Sequence[Op], key: str) -> list[str]:
        """Do ops under a key; return the ids they wrote, or those of the call that was faster."""
        try:
            await self.universe.commit(ops, key=self.full_key(key))
        except KeyReused:
            found = await self.find_by_key(key)
            if found is None:
                raise
            return found
        return [op.id for op in ops]

    async def transact(self, work: Callable[[Transaction], Awaitable[R]], note: str | None = None) -> R:
        """Run a change of several records in a transaction, again when somebody was faster."""
        return await self.universe.transact(work, attempts=ATTEMPTS, note=note)

    # -- reads --------------------------------------------------------------------------------

    async def next_order(self) -> tuple[int, int]:
        """Return the newest commit, and the number in the place of a batch that begins now.

        They are the same but where records came from a store with more commits.
        """
        seq = known_seq(self.universe.backend)
        seq = await self.universe.seq() if seq is None else seq
        if self._floor is None:
            newest = await self.find_batches(limit=1)
            self._floor = order_of(newest[0].value.place) if newest else -1
        if seq > self._floor:
            return seq, seq
        self._floor += 1
        return seq, self._floor

    def range_of(self, low: str = "", high: str = END) -> dict[str, str]:
        """Return the condition for places of this agent, from one on and before another."""
        return {"$gte": low or self.start, "$lt": self.start + END if high == END else high}

    async def find_batches(
        self, *, low: str = "", high: str = END, limit: int | None = None, as_of: AsOf = None
    ) -> list[Crystal[BatchRecord]]:
        """Return batches, newest first."""
        query = Query(
            schema=BATCH.name, where={"place": self.range_of(low, high)}, order_by="place", limit=limit
        )
        return await self.universe.recall(query, as_of=as_of)

    async def find_messages(self, low: str, high: str, as_of: AsOf = None) -> list[Crystal[MessageRecord]]:
        """Return the messages of a range of places, in order."""
        where = {"place": self.range_of(low, high)}
        query = Query(schema=MESSAGE.name, where=where, order_by="place", descending=False, limit=None)
        return await self.universe.recall(query, as_of=as_of)

    async def of_batch(self, batch: BatchRecord, as_of: AsOf = None) -> list[Crystal[MessageRecord]]:
        """Return the messages of a batch, in order."""
        return await self.find_messages(f"{batch.place}.", f"{batch.place}{END}", as_of)

    async def iterate(
        self, schema: Schema[Any], where: Mapping[str, Any], order_by: str, descending: bool = False
    ) -> AsyncIterator[Crystal[Any]]:
        """Yield records of one moment, however many, a page at a time."""
        query = Query(schema=schema.name, where=where, order_by=order_by, descending=descending, limit=None)
        async for found in self.universe.iterate(query):
            if isinstance(found, Crystal):
                yield found

    async def get(self, schema: Schema[Any], id: str, reader: Universe | Transaction | None = None) -> Any:
        """Return a record of this agent; raises NotFound, also for those of others."""
        found = await (self.universe if reader is None else reader).get(ids.check_id(id))
        mine = isinstance(found, Crystal) and found.schema_name == schema.name
        if not mine or found.value.agent != self.agent:
            noun = schema.name.partition(".")[2]
            raise NotFound(f"{self.agent} has no {noun} {id!r}", hint="`dgent message list`", id=id)
        return found

    async def find_head(self, as_of: AsOf = None) -> Crystal[SummaryRecord] | None:
        """Return the newest archive; None when nothing is archived."""
        found = await self.universe.recall(self._head_query(), as_of=as_of)
        return found[0] if found else None

    def _head_query(self) -> Query:
        where = {"chain": self.range_of()}
        return Query(schema=SUMMARY.name, where=where, order_by="chain", limit=1)


def lease_id(id: str) -> str:
    """Return the id of the lease of a message in the queue, or of a batch."""
    return f"{LEASE.name}/{id}"


def is_archived(head: Crystal[SummaryRecord] | None, place: str, batch: str) -> bool:
    """Check whether a message or batch at a place is archived."""
    if head is None:
        return False
    # The place of a batch is the beginning of those of its messages.
    return place[: len(head.value.last)] <= head.value.last and batch not in (head.value.kept or ())


def ended_error(id: str, state: str) -> Conflict:
    """Return the error of a change to a batch that is not open."""
    hint = "resume it first" if state == "interrupted" else "begin another one"
    return Conflict(f"the batch {id!r} is {state}", hint=hint, id=id, state=state)
