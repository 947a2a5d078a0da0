"""The queue of incoming messages: each is delivered until it is done, and handled once.

Who takes a message holds it by a lease. If the lease ends before the message is done, it is delivered again.
`Delivery.begin` has the message's own id as its key, so a second delivery goes on with the same batch, and
`done` can be part of the transaction that ends the batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import msgspec

from dgent import clock, codec, ids
from dgent.errors import Conflict, InputError, NotFound, VersionConflict
from dgent.messages.batch import Batch
from dgent.messages.errors import LeaseLost, TooSoon
from dgent.messages.log import Log, lease_id
from dgent.messages.message import Entry, check_words, copy_fields
from dgent.messages.messages import Messages
from dgent.messages.part import Content, Part, decode, encode
from dgent.messages.record import (
    BATCH_TYPES,
    INCOMING,
    LEASE,
    IncomingRecord,
    MessageLease,
    place_of_agent,
)
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.store.backend import NEW, Check, Delete, Op
from dgent.system.hold import hold_or_release
from dgent.universe.lease import LEASE_S, check_length, is_expired, make_lease, send_heartbeats
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

ATTEMPTS = 5
COOLDOWN_S = 30.0
SOME = 16
LONGEST_DELAY_S = 10**9
LONGEST_S = 10.0  # a wait looks again after so long: a lease that ends is no commit


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A message in the queue; `state` is waiting, taken or dead, `error` what its last attempt ran into."""

    id: str
    agent: str
    sender: str
    type: str
    parts: tuple[Part, ...]
    text: str
    trust: str
    origin: str
    priority: int
    state: str
    attempts: int
    holder: str | None
    not_before: datetime | None
    error: str
    sent_at: datetime


class Delivery:
    """A message that was taken from the queue: handle it, then call `done`."""

    def __init__(self, log: Log, found: Crystal[IncomingRecord], rev: int, lease_s: float) -> None:
        self._log, self._found, self._rev, self._lease_s = log, found, rev, lease_s
        self.message = build_incoming(found)

    @property
    def id(self) -> str:
        """The id of the message in the queue."""
        return self._found.id

    async def begin(self, *, session: str = "") -> Batch:
        """Begin the batch of this message, or go on with the one that an earlier delivery began."""
        value = self._found.value
        entry = Entry("user", self.message.parts, value.trust, value.origin, value.sender)
        messages, key = Messages(self._log.universe, self._log.agent), f"incoming/{self.id}"
        return await messages.begin(
            value.type, [entry], origin=value.origin, session=session, cause=self.id, key=key
        )

    async def renew(self, lease_s: float | None = None) -> datetime:
        """Extend the lease from now on; raises LeaseLost when somebody else has the message."""
        length = check_length(self._lease_s if lease_s is None else lease_s)
        lease = _make_lease(self._log, self._found, length)
        await self._commit([Check(self.id, self._rev), self._log.put(LEASE, lease_id(self.id), lease, None)])
        return lease.until

    @asynccontextmanager
    async def keep(self) -> AsyncIterator[None]:
        """Renew the lease while a block of code runs, which is cancelled when the lease is lost."""
        since = asyncio.get_running_loop().time()
        await self.renew()
        async with send_heartbeats(self.renew, self._lease_s, since):
            yield

    async def done(self, *, tx: Transaction | None = None) -> None:
        """Take the message out of the queue for good; in a transaction together with what it led to."""
        await self._commit([Delete(self.id, self._rev), Delete(lease_id(self.id), None)], tx)

    async def give_back(self, error: str = "", *, delay_s: float = 0.0) -> None:
        """Put the message back into the queue, to be delivered again; after too many attempts it is dead."""
        _check_delay(delay_s, "delay_s")
        found = self._found.value
        made = _return(found, error, delay_s)
        put = self._log.put(INCOMING, self.id, made, self._rev, self._found.created_at)
        await self._commit([put, Delete(lease_id(self.id), None)])

    async def _commit(self, ops: list[Op], tx: Transaction | None = None) -> None:
        try:
            await self._log.commit(ops, tx)
        except VersionConflict:
            raise LeaseLost(
                f"the lease of {self.id!r} ended, and the message was delivered again", id=self.id
            ) from None


class Inbox:
    """The queue of one agent: `Inbox(u, "scout")` takes what was sent to scout, and sends as scout."""

    def __init__(self, universe: Universe, agent: str) -> None:
        self._log = Log(universe, agent)

    async def send(
        self,
        to: str,
        content: Content,
        *,
        type: str = "agent_to_agent",
        trust: str | None = None,
        origin: str = "",
        priority: int = 5,
        key: str | None = None,
        attempts: int = ATTEMPTS,
        cooldown_s: float = COOLDOWN_S,
    ) -> str:
        """Send a message to an agent; return its id in the queue. With a `key` it is sent once.

        Of two agents that write to each other, the second has to wait for `cooldown_s` seconds, whoever wrote
        first: raises TooSoon. Only the type `agent_to_agent` has that.
        """
        log = self._log
        log.require("append")
        parts = Entry("user", content, trust).check()
        check_words(origin, "origin")
        if type not in BATCH_TYPES or not _is_number(priority, 0, 9) or not _is_number(attempts, 1, 10**6):
            raise InputError(
                "a message needs a type of batch, a priority from 0 to 9 and an attempt",
                hint=f"types are {', '.join(BATCH_TYPES)}",
            )
        _check_delay(cooldown_s, "cooldown_s")
        earlier = await log.find_by_key(key)
        if earlier is not None:
            return earlier[0]
        id, order = ids.new_id(), await log.universe.seq()
        text, stored = encode(parts)
        start = place_of_agent(ids.check_name(to, "to"))
        place = f"{start}{9 - priority}{order:012x}{id[-12:]}"
        stamped = log.stamp("partner" if trust is None else trust)
        record = IncomingRecord(
            to, log.agent, place, type, text, stamped, origin, priority, attempts, queue=place, parts=stored
        )
        ops: list[Op] = [log.put(INCOMING, id, record, NEW)]
        if type == "agent_to_agent" and cooldown_s > 0:
            ops.append(await self._cool_down(to, cooldown_s))
        try:
            if key is not None:
                return (await log.commit_once(ops, key))[0]
            await log.commit(ops)
        except VersionConflict:
            raise TooSoon(f"{to} and {log.agent} wrote to each other just now", retry_s=cooldown_s) from None
        return id

    async def _cool_down(self, to: str, cooldown_s: float) -> Op:
        """Return the op that starts the cooldown of a pair; raises TooSoon while one runs."""
        pair = "\0".join(sorted((self._log.agent, to)))
        target = f"{LEASE.name}/pair/{codec.blake2b(pair.encode(), size=16).hexdigest()}"
        found = await self._log.universe.get(target)
        if isinstance(found, Crystal) and not is_expired(target, found.value.until, found.value, 0):
            left = max(0.0, (found.value.until - clock.now()).total_seconds())
            raise TooSoon(
                f"{to} and {self._log.agent} wrote to each other less than {cooldown_s:g} s ago",
                hint=f"wait {left:.0f} s",
                retry_s=left,
            )
        lease = make_lease(target, self._log.agent, 0, check_length(cooldown_s))
        record = MessageLease(**vars(lease), agent=to)
        return self._log.put(LEASE, target, record, found.rev if isinstance(found, Crystal) else 0)

    # -- taking -------------------------------------------------------------------------------

    async def take(
        self, *, holder: str | None = None, lease_s: float = LEASE_S, wait_s: float = 0.0
    ) -> Delivery | None:
        """Take the next message: by priority, then in the order of sending; None when none comes in time."""
        self._log.require("append")
        length = check_length(lease_s)
        universe, loop = self._log.universe, asyncio.get_running_loop()
        last = loop.time() + wait_s
        while True:
            seq = await universe.seq()
            found = await self._take(holder or universe.author, length)
            left = last - loop.time()
            if found is not None or left <= 0:
                return found
            await universe.backend.wait(seq, min(left, LONGEST_S))

    async def _take(self, holder: str, length: timedelta) -> Delivery | None:
        while True:
            candidates = [*await self._find_expired(), *await self._find_waiting()]
            for found in candidates:
                value: IncomingRecord = found.value
                if value.attempts >= value.max_attempts:
                    dead = _return(value, "nobody finished it in time", 0)
                    await self._try([self._log.put(INCOMING, found.id, dead, found.rev, found.created_at)])
                    continue
                taken = replace(
                    value,
                    state="taken",
                    queue=None,
                    taken=f"{self._log.start}{found.id}",
                    attempts=value.attempts + 1,
                    token=value.token + 1,
                    holder=holder,
                    lease_until=clock.now() + length,
                )
                put = self._log.put(INCOMING, found.id, taken, found.rev, found.created_at)
                crystal = Crystal.from_datum(put.datum, INCOMING)
                lease = _make_lease(self._log, crystal, length)
                delivery = Delivery(self._log, crystal, (found.rev or 0) + 1, length.total_seconds())
                ops: list[Op] = [put, self._log.put(LEASE, lease_id(found.id), lease, None)]
                if await hold_or_release(self._try(ops), partial(_give_back, delivery)):
                    return delivery
            if len(candidates) < SOME:
                return None

    async def _try(self, ops: list[Op]) -> bool:
        try:
            await self._log.commit(ops)
        except VersionConflict:
            return False  # somebody else has it
        return True

    async def _find_waiting(self) -> list[Crystal[IncomingRecord]]:
        now, found = clock.now(), list[Crystal[IncomingRecord]]()
        query: Query | None = Query(
            schema=INCOMING.name,
            where={"queue": self._log.range_of()},
            order_by="queue",
            descending=False,
            limit=SOME,
        )
        while query is not None and len(found) < SOME:
            page = await self._log.universe.page(query)
            found += [
                each
                for each in page.items
                if isinstance(each, Crystal)
                and (each.value.not_before is None or each.value.not_before <= now)
            ]
            query = None if page.further is None else query.replace(cursor=page.cursor)
        return found

    async def _find_expired(self) -> list[Crystal[IncomingRecord]]:
        query = Query(
            schema=INCOMING.name, where={"taken": self._log.range_of()}, order_by="taken", limit=None
        )
        taken = await self._log.universe.recall(query)
        leases = await self._log.universe.get_many([lease_id(each.id) for each in taken]) if taken else []
        return [
            each
            for each, lease in zip(taken, leases, strict=True)
            if is_expired(each.id, each.value.lease_until, getattr(lease, "value", None), each.value.token)
        ]

    # -- looking ------------------------------------------------------------------------------

    async def list(self, state: str | None = None, limit: int = 50) -> list[Incoming]:
        """Return messages of the queue: taken and waiting ones in the order of delivery, then dead ones."""
        self._log.require("read")
        where = {"agent": self._log.agent} | ({} if state is None else {"state": state})
        query = Query(schema=INCOMING.name, where=where, order_by="created_at", descending=False, limit=None)
        found = [build_incoming(each) for each in await self._log.universe.recall(query)]
        order = ("taken", "waiting", "dead")
        found.sort(key=lambda each: (order.index(each.state), -each.priority))
        return found[:limit]

    async def get_sent(self, id: str) -> Incoming:
        """Return a message that this agent sent and nobody has handled; raises NotFound."""
        found = await self._log.universe.get(ids.check_id(id))
        mine = isinstance(found, Crystal) and found.schema_name == INCOMING.name
        if not mine or found.value.sender != self._log.agent:
            raise NotFound(f"no message {id!r} of {self._log.agent} waits", hint="it was handled", id=id)
        return build_incoming(found)

    async def release(self, id: str, error: str = "", *, delay_s: float = 0.0) -> Incoming:
        """Put a taken or dead message back into the queue; a dead one has all its attempts again."""
        self._log.require("write")
        _check_delay(delay_s, "delay_s")
        found = await self._log.get(INCOMING, id)
        value: IncomingRecord = found.value
        if value.state == "waiting":
            raise Conflict(f"the message {id!r} waits already", id=id)
        made = _return(replace(value, attempts=0) if value.state == "dead" else value, error, delay_s)
        put = self._log.put(INCOMING, id, made, found.rev, found.created_at)
        await self._log.commit([put, Delete(lease_id(id), None)])
        return build_incoming(Crystal.from_datum(put.datum, INCOMING))

    async def drop(self, id: str) -> Incoming:
        """Take a message out of the queue, whatever its state."""
        self._log.require("write")
        found = await self._log.get(INCOMING, id)
        await self._log.commit([Delete(id, found.rev), Delete(lease_id(id), None)])
        return build_incoming(found)


async def _give_back(delivery: Delivery, taken: bool) -> None:
    """Put a message back that was taken for a caller who is gone."""
    if taken:
        await delivery.give_back()


def _make_lease(log: Log, found: Crystal[IncomingRecord], length: timedelta) -> MessageLease:
    lease = make_lease(found.id, found.value.holder or "", found.value.token, length)
    return MessageLease(**vars(lease), agent=log.agent)


def _is_number(value: object, low: int, high: int) -> bool:
    # A record with another type could not be read, so the message would never arrive.
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _check_delay(value: float, field: str) -> None:
    if not isinstance(value, int | float) or not 0 <= value <= LONGEST_DELAY_S:
        raise InputError(
            f"expected seconds from 0 to {LONGEST_DELAY_S:,} as {field}, got {value!r}", field=field
        )


def _return(value: IncomingRecord, error: str, delay_s: float) -> IncomingRecord:
    """Return a message as it waits for the next attempt, or as dead after the last one."""
    dead = value.attempts >= value.max_attempts
    return replace(
        value,
        state="dead" if dead else "waiting",
        queue=None if dead else value.place,
        taken=None,
        holder=None,
        lease_until=None,
        error=error[:1000] or value.error,
        not_before=clock.now() + timedelta(seconds=delay_s) if delay_s > 0 else None,
    )


def build_incoming(found: Crystal[IncomingRecord]) -> Incoming:
    """Build an Incoming from its record."""
    value = found.value
    return copy_fields(
        Incoming, value, id=found.id, parts=decode(value.text, value.parts), sent_at=found.created_at
    )
