"""A batch: one request/response cycle, to which messages are added until it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from dgent import clock
from dgent.errors import Conflict, HistoryGone, InputError, NotFound, VersionConflict
from dgent.messages.errors import LeaseLost
from dgent.messages.history import History, build_messages, read_history
from dgent.messages.log import ATTEMPTS, Log, ended_error, lease_id
from dgent.messages.message import (
    Added,
    BatchInfo,
    Entry,
    Message,
    build_batch,
    build_message,
)
from dgent.messages.part import Content, Part, decode, encode, estimate_parts, find_calls, find_result
from dgent.messages.record import BATCH, MESSAGE, BatchRecord, MessageRecord, number_of
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.store.backend import NEW, Check, Delete, Op
from dgent.universe.origin import check_trust, lowest_trust
from dgent.universe.tail import follow
from dgent.universe.transaction import Transaction


@dataclass
class _State:
    """The messages of a batch as far as adding needs them: the next number, its calls, and totals."""

    next: int = 1
    calls: dict[str, tuple[int, int, str]] = field(default_factory=dict)  # message, place in it, tool
    answered: set[str] = field(default_factory=set)
    count: int = 0
    tokens: int = 0

    def copy(self) -> _State:
        return _State(self.next, dict(self.calls), set(self.answered), self.count, self.tokens)

    def add(self, parts: Sequence[Part], tokens: int) -> str:
        """Take up a message; return its number in the batch, behind its call for a result."""
        result = find_result(parts)
        self.count, self.tokens = self.count + 1, self.tokens + tokens
        if result is not None:
            if result.call not in self.calls:
                raise InputError(f"there is no call {result.call!r} in this batch", field="call")
            if result.call in self.answered:
                raise Conflict(f"the call {result.call!r} has a result already", call=result.call)
            self.answered.add(result.call)
            position, place, _ = self.calls[result.call]
            return number_of(position, place)
        position, self.next = self.next, self.next + 1
        for place, call in enumerate(find_calls(parts), 1):
            if call.call in self.calls:
                raise InputError(f"the call {call.call!r} is in this batch twice", field="call")
            self.calls[call.call] = position, place, call.name
        return number_of(position)

    @property
    def pending(self) -> dict[str, str]:
        return {id: tool for id, (_, _, tool) in self.calls.items() if id not in self.answered}


class BatchLease(NamedTuple):
    """The lease of a batch: who has it, for how long, and its version."""

    holder: str
    length: timedelta
    rev: int


class Batch:
    """A batch of an agent: `await messages.begin()`, or `resume` for one that was begun before.

    Each call is one commit, so what it returned is durable. Two handles may add to one batch at once.
    """

    def __init__(self, log: Log, id: str, record: BatchRecord, rev: int, started_at: datetime) -> None:
        self._log, self.id = log, id
        self._record, self._rev, self._started_at = record, rev, started_at
        self._state: _State | None = None  # None: to be read
        self._lease: BatchLease | None = None  # of who works on it
        self._built: tuple[BatchRecord, BatchInfo] | None = None  # `info`, and what it was made of

    def __repr__(self) -> str:
        return f"<Batch {self.id} {self._record.type} {self._record.state}>"

    @property
    def info(self) -> BatchInfo:
        """The batch as it was last read or written."""
        if self._built is None or self._built[0] is not self._record:
            self._built = self._record, build_batch(self.id, self._record, self._started_at)
        return self._built[1]

    @property
    def trust(self) -> str:
        """The lowest trust of all that the batch received or read."""
        return self._record.trust

    @property
    def is_held(self) -> bool:
        """Whether the batch is held here, so that nobody else works on it."""
        return self._lease is not None

    async def renew(self) -> None:
        """Extend the lease of who works on the batch; LeaseLost when somebody else has taken it over."""
        held = self._lease
        if held is None or self._record.state != "open":
            return
        try:
            done = await self._log.commit([self._log.hold(self.id, held.holder, held.length, held.rev)])
        except VersionConflict:
            await self._find_lease(held)
            return
        assert done is not None
        self._lease = held._replace(rev=done.written[0].rev)

    async def hold(self, holder: str, length: timedelta) -> None:
        """Use a lease that was taken for a holder: from now on nothing is added without it."""
        await self._find_lease(BatchLease(holder, length, 0))

    async def _find_lease(self, held: BatchLease) -> None:
        found = await self._log.universe.get(lease_id(self.id))
        if not isinstance(found, Crystal) or found.value.holder != held.holder:
            raise LeaseLost(f"another process works on the batch {self.id!r}", id=self.id)
        self._lease = held._replace(rev=found.rev or 0)

    def _fence(self) -> list[Op]:
        """Return the op by which a commit fails once somebody else works on the batch."""
        return [] if self._lease is None else [Check(lease_id(self.id), self._lease.rev)]

    def call_key(self, call: str) -> str:
        """Return the idempotency key of a tool call: the same whoever runs it, and of no other call."""
        return f"{self.id}/{call}"

    async def pending(self) -> dict[str, str]:
        """Return the calls that have no result yet, with the names of their tools."""
        return (await self._load()).pending

    async def messages(self) -> list[Message]:
        """Return the messages of the batch in order, results directly after their calls."""
        self._log.require("read")
        found = await self._find_in_tail()
        if found is not None:
            return found
        return [build_message(each) for each in await self._log.of_batch(self._record)]

    async def _find_in_tail(self) -> list[Message] | None:
        """Return the messages from the commits since the batch began, if all of them are at hand."""
        tail = await follow(self._log.universe)
        changes = None if tail is None else tail.find_by_id(tail.at(self._record.saw), (self.id,))
        begun, found = False, dict[str, Datum]()
        for change in changes or ():
            for item in change.items:
                begun = begun or (item.id == self.id and item.rev == 1)
                if item.schema != MESSAGE.name or item.id is None or item.id.partition("/")[0] != self.id:
                    continue
                if item.op == "delete":
                    found.pop(item.id, None)
                elif item.datum is None:
                    return None  # a large commit, or a version that is not kept
                else:
                    found[item.id] = item.datum
        return build_messages(self._log.universe.contracts, found.values()) if begun else None

    async def history(self, *, messages: int | None = None, tokens: int | None = None) -> History:
        """Return what the batch sees of others: those that had ended when it began, the oldest first.

        With `messages` or `tokens` the newest of them that fit, whole batches only.
        """
        seq = await self._log.universe.seq()
        try:
            return await read_history(self._log, min(self._record.saw, seq), messages, tokens)
        except HistoryGone:  # pruned since: what is left of the batches before it
            return await read_history(self._log, None, messages, tokens, self._record.place)

    # -- adding -------------------------------------------------------------------------------

    async def add(
        self,
        role: str,
        content: Content,
        *,
        trust: str | None = None,
        origin: str = "",
        by: str = "",
        usage: Mapping[str, Any] | None = None,
        key: str | None = None,
        tx: Transaction | None = None,
    ) -> Message:
        """Add a message; with a `key`, a second call returns the message of the first one."""
        return (await self.add_all([Entry(role, content, trust, origin, by, usage)], key=key, tx=tx))[0]

    async def add_all(
        self, entries: Sequence[Entry], *, key: str | None = None, tx: Transaction | None = None
    ) -> list[Message]:
        """Add messages in one commit, or in a transaction of the caller."""
        self._log.require("append")
        checked = [(entry, entry.check()) for entry in entries]
        if not checked:
            raise InputError("no message is given", field="entries")
        if (earlier := await self._log.find_by_key(key)) is not None:
            return await self._read_added(earlier)
        for _ in range(ATTEMPTS):
            state = (await self._load()).copy()
            if self._record.state != "open":
                raise ended_error(self.id, self._record.state)
            tried = state.next
            added, trust = self._plan(checked, state)
            ops = [*(each.op for each in added), self._keep(trust), *self._fence()]
            try:
                if key is not None:
                    written = await self._log.commit_once(ops, key)
                    if written[0] != ops[0].id:
                        return await self._read_added(written)
                    self._take(state, trust)
                    return await self._read_added(written)
                done = await self._log.commit(ops, tx)
            except VersionConflict as error:
                await self._catch_up(error, tried)
                continue
            self._take(state, trust)
            if tx is not None:
                self._state = None  # it may still come to nothing
            return [each.build(None if done is None else done.seq) for each in added]
        raise Conflict(f"others kept adding to the batch {self.id!r}", hint="try again", id=self.id)

    async def add_result(
        self,
        call: str,
        content: str,
        *,
        error: bool = False,
        trust: str | None = None,
        origin: str = "",
        usage: Mapping[str, Any] | None = None,
        tx: Transaction | None = None,
    ) -> Message:
        """Add the result of a tool call, once: it stands directly after the call.

        The same result again returns the stored one; another one is a Conflict.
        """
        part = Part("tool_result", content, call=call, error=error)
        try:
            return await self.add("tool", [part], trust=trust, origin=origin, usage=usage, tx=tx)
        except Conflict as conflict:
            if conflict.details.get("call") != call:
                raise
            stored = [each for each in await self.messages() if each.parts == (part,)]
            if not stored:
                raise
            return stored[0]

    async def lower_trust(self, trust: str) -> str:
        """Lower the trust of the batch to that of something that it read; return what it is now."""
        self._log.require("append")
        check_trust(trust)
        for _ in range(ATTEMPTS):
            lowest = lowest_trust(self._record.trust, trust)
            if lowest == self._record.trust:
                return lowest
            try:
                await self._log.commit([self._keep(lowest), *self._fence()])
            except VersionConflict as error:
                await self._catch_up(error, 0)
                continue
            self._adopt(replace(self._record, trust=lowest))
            return lowest
        raise Conflict(f"others kept changing the batch {self.id!r}", hint="try again", id=self.id)

    def _plan(
        self, checked: Sequence[tuple[Entry, tuple[Part, ...]]], state: _State
    ) -> tuple[list[Added], str]:
        """Return the ops of some messages, and the trust of the batch after them."""
        added, lowest = [], self._record.trust
        for entry, parts in checked:
            trust = self._log.stamp(lowest if entry.trust is None else entry.trust)
            lowest = lowest_trust(lowest, trust)
            added.append(make_added(self._log, self.id, self._record.place, entry, parts, trust, state))
        return added, lowest

    def _keep(self, trust: str) -> Op:
        """Return the op that makes a commit fail unless the batch is as it was read."""
        if trust == self._record.trust:
            return Check(self.id, self._rev)
        return self._log.put(BATCH, self.id, replace(self._record, trust=trust), self._rev)

    def _take(self, state: _State, trust: str) -> None:
        self._state = state
        if trust != self._record.trust:
            self._adopt(replace(self._record, trust=trust))

    def _adopt(self, record: BatchRecord) -> None:
        self._record, self._rev = record, self._rev + 1

    async def _read_added(self, ids: Sequence[str]) -> list[Message]:
        """Return the messages that a call with the same key added."""
        found = await self._log.universe.get_many([id for id in ids if "/" in id])
        if not found or any(not isinstance(each, Crystal) for each in found):
            raise NotFound("the message of this key was deleted since", hint="use another key")
        return [build_message(each) for each in found]

    async def _catch_up(self, error: VersionConflict, tried: int) -> None:
        """Read again what somebody else changed; a number that was taken and deleted is passed over."""
        await self.reload()
        if self._lease is not None and error.details.get("id") == lease_id(self.id):
            await self._find_lease(self._lease)  # renewed meanwhile, or lost
            return
        if error.details.get("id") != self.id and tried:
            state = await self._load()
            state.next = max(state.next, tried + 1 if state.next <= tried else state.next)

    async def reload(self) -> None:
        """Read the batch again."""
        found = await self._log.get(BATCH, self.id)
        self._record, self._rev, self._state = found.value, found.rev, None

    async def catch_up(self) -> None:
        """Read the batch again, after all commits of this process that were under way.

        A commit whose caller was cancelled may still happen, but not after a later one of the same process.
        """
        with suppress(LeaseLost):  # the batch has ended, or the next change says so
            await self.renew()
        await self.reload()

    async def _load(self) -> _State:
        if self._state is None:
            self._state = read_state(await self._log.of_batch(self._record))
        return self._state

    async def start_call(self, call: str) -> None:
        """Record that a tool call is about to run: if it gets no result, its outcome is unknown."""
        self._log.require("append")
        for _ in range(ATTEMPTS):
            if self._record.state != "open":
                raise ended_error(self.id, self._record.state)
            if call in (self._record.started or ()):
                return
            answered = (await self._load()).answered
            running = [each for each in self._record.started or () if each not in answered]
            made = replace(self._record, started=[*running, call])
            try:
                await self._log.commit([self._log.put(BATCH, self.id, made, self._rev), *self._fence()])
            except VersionConflict as error:
                await self._catch_up(error, 0)
                continue
            self._adopt(made)
            return
        raise Conflict(f"others kept changing the batch {self.id!r}", hint="try again", id=self.id)

    # -- the end ------------------------------------------------------------------------------

    async def complete(
        self,
        *,
        last: Entry | None = None,
        usage: Mapping[str, Any] | None = None,
        tx: Transaction | None = None,
    ) -> BatchInfo:
        """End the batch, with a `last` message in the same commit; a Conflict while calls have no results."""
        return await self._end("complete", "", usage, tx, last)

    async def interrupt(self, reason: str = "", *, tx: Transaction | None = None) -> BatchInfo:
        """End the batch before its answer: calls without results are dropped, and `dropped` names them.

        What was dropped stays in the history of its message. `Messages.resume` goes on with the batch.
        """
        return await self._end("interrupted", reason, None, tx)

    async def _end(
        self,
        state: str,
        reason: str,
        usage: Mapping[str, Any] | None,
        tx: Transaction | None,
        last: Entry | None = None,
    ) -> BatchInfo:
        self._log.require("append")
        checked = [] if last is None else [(last, last.check())]
        for _ in range(ATTEMPTS):
            if self._record.state == state:
                return self.info
            if self._record.state != "open":
                raise ended_error(self.id, self._record.state)
            known, trust = (await self._load()).copy(), self._record.trust
            tried, ops = known.next, list[Op]()
            if checked:
                added, trust = self._plan(checked, known)
                ops += [each.op for each in added]
            if known.pending:
                if state == "complete":
                    named = ", ".join(f"{tool} ({id})" for id, tool in known.pending.items())
                    raise Conflict(
                        f"the batch has calls without results: {named}", hint="add them, or interrupt it"
                    )
                ops = drop_calls(self._log, await self._log.of_batch(self._record), known)
            made = replace(
                self._record,
                state=state,
                trust=trust,
                started=None,
                open_place=None,
                count=known.count,
                tokens=known.tokens,
                ended_at=clock.now(),
                reason=reason,
                dropped=[*(self._record.dropped or ()), *known.pending] or None,
                usage=None if usage is None else dict(usage),
            )
            ops.append(self._log.put(BATCH, self.id, made, self._rev))
            if self._lease is not None:
                ops.append(Delete(lease_id(self.id), self._lease.rev))
            try:
                await self._log.commit(ops, tx)
            except VersionConflict as error:
                await self._catch_up(error, tried if checked else 0)
                continue
            self._adopt(made)
            self._state = None
            return self.info
        raise Conflict(f"others kept changing the batch {self.id!r}", hint="try again", id=self.id)


def make_added(
    log: Log, batch: str, place: str, entry: Entry, parts: tuple[Part, ...], trust: str, state: _State
) -> Added:
    """Return what adds a message to a batch."""
    tokens = estimate_parts(parts)
    number = state.add(parts, tokens)
    text, stored = encode(parts)
    record = MessageRecord(
        log.agent,
        batch,
        f"{place}.{number}",
        entry.role,
        text,
        trust,
        entry.origin,
        entry.by,
        tokens,
        stored,
        None if entry.usage is None else dict(entry.usage),
    )
    return Added(log.put(MESSAGE, f"{batch}/{number}", record, NEW), record, parts)


def read_state(found: Sequence[Crystal[MessageRecord]]) -> _State:
    """Return the state of a batch with these messages."""
    state = _State()
    for each in found:
        parts = decode(each.value.text, each.value.parts)
        position = int(each.id.partition("/")[2].partition(".")[0])
        for place, call in enumerate(find_calls(parts), 1):
            state.calls[call.call] = position, place, call.name
        result = find_result(parts)
        if result is not None:
            state.answered.add(result.call)
        state.next = max(state.next, position + 1)
        state.count += 1
        state.tokens += each.value.tokens
    return state


def drop_calls(log: Log, found: Sequence[Crystal[MessageRecord]], state: _State) -> list[Op]:
    """Return the ops that take calls without results out of their messages, and empty messages away."""
    ops: list[Op] = []
    for each in found:
        parts = decode(each.value.text, each.value.parts)
        kept = tuple(part for part in parts if part.type != "tool_call" or part.call in state.answered)
        if len(kept) == len(parts):
            continue
        state.tokens -= each.value.tokens
        if all(part.type == "thinking" for part in kept):
            state.count -= 1
            ops.append(Delete(each.id, each.rev))
            continue
        text, stored = encode(kept)
        tokens = estimate_parts(kept)
        state.tokens += tokens
        ops.append(log.change(each, replace(each.value, text=text, parts=stored, tokens=tokens)))
    return ops
