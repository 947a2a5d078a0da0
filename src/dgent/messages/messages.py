"""The messages of one agent: begin batches, add to them, page, search, edit and delete."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from dgent import clock, ids
from dgent.errors import Conflict, InputError
from dgent.messages import erase, transfer
from dgent.messages.batch import Batch, BatchLease, make_added, read_state
from dgent.messages.compress import Compressed, compress, restore
from dgent.messages.history import History, Summary, build_summary, list_summaries, read_history
from dgent.messages.log import Log, ended_error, is_archived
from dgent.messages.message import Added, BatchInfo, Entry, Message, build_batch, build_message, check_words
from dgent.messages.part import (
    Content,
    check_content,
    decode,
    encode,
    estimate_parts,
    find_calls,
    find_result,
)
from dgent.messages.record import (
    BATCH,
    BATCH_TYPES,
    END,
    MESSAGE,
    SUMMARY,
    BatchRecord,
    MessageRecord,
    SummaryRecord,
    place_of_batch,
)
from dgent.messages.strategy import Strategy
from dgent.messages.transfer import ImportedMessages
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.store.backend import NEW, AsOf, Op
from dgent.universe.gate import TRUSTS
from dgent.universe.origin import lowest_trust
from dgent.universe.search import check_k
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

MAX_PAGE = 1000
BATCH_LEASE = timedelta(seconds=60)
"""How long a batch is left to who works on it, without a sign of life."""


class MessagePage(msgspec.Struct, frozen=True):
    """Messages, the newest first, and the cursor of those before them; None at the beginning."""

    items: list[Message]
    cursor: str | None


class MessageHit(msgspec.Struct, frozen=True):
    """A message, or a summary of archived ones, that a search found; the best has the score 1."""

    message: Message | None
    summary: Summary | None
    score: float
    snippet: str


class Messages:
    """The messages of one agent in a universe: `Messages(u, "scout")`.

    A handle of a principal has its own messages only, and vouches for no more than its own trust.
    """

    def __init__(self, universe: Universe, agent: str) -> None:
        self._log = Log(universe, agent)
        self.universe, self.agent = universe, agent

    # -- batches ------------------------------------------------------------------------------

    async def begin(
        self,
        type: str = "user_request",
        entries: Sequence[Entry] = (),
        *,
        origin: str = "",
        session: str = "",
        cause: str = "",
        key: str | None = None,
        holder: str = "",
        tx: Transaction | None = None,
    ) -> Batch:
        """Begin a batch, with its first messages in the same commit.

        It sees the history up to now. With a `key`, a second call returns the batch of the first one. A
        `holder` works on it alone: nobody else resumes it before the lease ends, which `renew` extends.
        """
        self._log.require("append")
        earlier = await self._log.find_by_key(key)
        if earlier is not None:
            return await self.get_batch(earlier[0])
        batch, _ = await self._begin(type, entries, "open", origin, session, cause, key, tx, holder)
        return batch

    async def _begin(
        self,
        type: str,
        entries: Sequence[Entry],
        state: str,
        origin: str,
        session: str,
        cause: str,
        key: str | None,
        tx: Transaction | None,
        holder: str = "",
    ) -> tuple[Batch, list[Message]]:
        if type not in BATCH_TYPES:
            raise InputError(
                f"{type!r:.60} is not a type of batch",
                hint=f"use one of {', '.join(BATCH_TYPES)}",
                field="type",
            )
        for field, value in (("origin", origin), ("session", session), ("cause", cause)):
            check_words(value, field)
        checked = [(entry, entry.check()) for entry in entries]
        log, id = self._log, ids.new_id()
        saw, order = await log.next_order()
        place, known = place_of_batch(self.agent, order, id), read_state(())
        trust: str = TRUSTS[0]
        added: list[Added] = []
        for entry, parts in checked:
            stamped = log.stamp(trust if entry.trust is None else entry.trust)
            trust = lowest_trust(trust, stamped)
            added.append(make_added(log, id, place, entry, parts, stamped, known))
        done = state == "complete"
        if done and known.pending:
            raise Conflict("a call of a tool has no result", hint="begin a batch, and add the result to it")
        record = BatchRecord(
            log.agent,
            place,
            type,
            state,
            saw,
            trust,
            origin,
            session,
            cause,
            None if done else place,
            known.count if done else 0,
            known.tokens if done else 0,
            clock.now() if done else None,
        )
        first = log.put(BATCH, id, record, 0)
        ops: list[Op] = [first, *(each.op for each in added)]
        if holder:
            ops.append(log.hold(id, holder, BATCH_LEASE, NEW))
        committed = None
        if key is None:
            committed = await log.commit(ops, tx)
        elif (written := await log.commit_once(ops, key))[0] != id:
            other = await self.get_batch(written[0])
            return other, await other.messages()
        batch = Batch(log, id, record, 1, first.datum.created_at)
        batch._state = None if tx is not None else known
        batch._lease = BatchLease(holder, BATCH_LEASE, 1) if holder else None
        seq = None if committed is None else committed.seq
        return batch, [each.build(seq) for each in added]

    async def get_batch(self, id: str) -> Batch:
        """Return a batch by its id; raises NotFound."""
        self._log.require("read")
        found = await self._log.get(BATCH, id)
        return Batch(self._log, id, found.value, found.rev, found.created_at)

    async def resume(self, id: str, *, holder: str = "") -> Batch:
        """Go on with a batch that is open, or was interrupted; it sees what it saw before.

        After a crash, `pending` of an open one has the calls whose outcome is not known. A `holder` takes it
        for itself: a Conflict while another one that still runs has it.
        """
        self._log.require("append")

        async def work(tx: Transaction) -> None:
            found = await self._log.get(BATCH, id, tx)
            value: BatchRecord = found.value
            if value.state == "complete":
                raise ended_error(id, value.state)
            if value.state == "interrupted":
                saw = min(value.saw, await self._log.universe.seq())
                again = replace(value, state="open", open_place=value.place, saw=saw, ended_at=None)
                await tx.put(self._log.change(found, again).datum)
            if holder:
                other = await self._log.find_holder(id, tx)
                if other is not None and other.name != holder:
                    raise Conflict(
                        f"another process works on the batch {id!r}",
                        hint="wait for it; if it has stopped, its lease ends by itself",
                        id=id,
                        until=clock.text(other.until),
                    )
                await tx.put(self._log.hold(id, holder, BATCH_LEASE).datum)

        await self._log.transact(work, f"resume {id}")
        batch = await self.get_batch(id)
        if holder:
            await batch.hold(holder, BATCH_LEASE)
        return batch

    async def find_held(self, ids: Sequence[str]) -> set[str]:
        """Return those of some batches that a process works on which still runs."""
        self._log.require("read")
        return {id for id in ids if await self._log.find_holder(id) is not None}

    async def list_batches(
        self, *, limit: int | None = 20, open_only: bool = False, as_of: AsOf = None
    ) -> list[BatchInfo]:
        """Return batches, newest first."""
        self._log.require("read")
        field = "open_place" if open_only else "place"
        query = Query(schema=BATCH.name, where={field: self._log.range_of()}, order_by=field, limit=limit)
        found = await self._log.universe.recall(query, as_of=as_of)
        return [build_batch(each.id, each.value, each.created_at) for each in found]

    # -- adding without a batch -----------------------------------------------------------------

    async def add(
        self,
        role: str,
        content: Content,
        *,
        trust: str | None = None,
        origin: str = "",
        by: str = "",
        type: str = "user_request",
        session: str = "",
        usage: Mapping[str, Any] | None = None,
        key: str | None = None,
        tx: Transaction | None = None,
    ) -> Message:
        """Add a message as a complete batch of its own; with a `key` a second call adds nothing."""
        entry = Entry(role, content, trust, origin, by, usage)
        return (await self.add_all([entry], type=type, session=session, key=key, tx=tx))[0]

    async def add_all(
        self,
        entries: Sequence[Entry],
        *,
        type: str = "user_request",
        session: str = "",
        key: str | None = None,
        tx: Transaction | None = None,
    ) -> list[Message]:
        """Add messages as one complete batch, in one commit or in a transaction of the caller."""
        self._log.require("append")
        if not entries:
            raise InputError("no message is given", field="entries")
        earlier = await self._log.find_by_key(key)
        if earlier is not None:
            return await (await self.get_batch(earlier[0])).messages()
        _, added = await self._begin(type, entries, "complete", "", session, "", key, tx)
        return added

    # -- reads --------------------------------------------------------------------------------

    async def get(self, id: str) -> Message:
        """Return a message by its id; raises NotFound."""
        self._log.require("read")
        found = await self._log.get(MESSAGE, id)
        head = await self._log.find_head()
        return build_message(found, is_archived(head, found.value.place, found.value.batch))

    async def find_ids(self, start: str, kind: str, limit: int = 5) -> list[str]:
        """Return the ids of messages or batches that begin so; the one that is exactly so alone."""
        self._log.require("read")
        exact = await self._log.universe.get(ids.check_id(start), raw=True)
        if exact is not None and exact.schema == f"message.{kind}" and exact.data["agent"] == self.agent:
            return [start]
        query = Query(
            schema=f"message.{kind}", prefix=start, where={"agent": self.agent}, limit=limit, content=False
        )
        return [each.id for each in await self._log.universe.query(query, raw=True)]

    async def page(
        self,
        limit: int = 50,
        *,
        cursor: str | None = None,
        batch: str | None = None,
        role: str | None = None,
        as_of: AsOf = None,
    ) -> MessagePage:
        """Return messages, the newest first; `cursor` of one page gives those before it."""
        self._log.require("read")
        if not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
            raise InputError(
                f"limit is {limit!r}", hint=f"a whole number from 1 to {MAX_PAGE}", field="limit"
            )
        where: dict[str, Any] = {"place": self._log.range_of()}
        if batch is not None:
            place = (await self._log.get(BATCH, batch)).value.place
            where["place"] = self._log.range_of(f"{place}.", f"{place}{END}")
        if role is not None:
            where["role"] = role
        query = Query(schema=MESSAGE.name, where=where, order_by="place", limit=limit, cursor=cursor)
        page = await self._log.universe.page(query, as_of=as_of)
        head = await self._log.find_head(as_of)
        items = [
            build_message(each, is_archived(head, each.value.place, each.value.batch))
            for each in page.items
            if isinstance(each, Crystal)
        ]
        return MessagePage(items, page.cursor)

    async def history(
        self, *, messages: int | None = None, tokens: int | None = None, as_of: AsOf = None
    ) -> History:
        """Return what a batch would see that began now: ended batches, whole, the oldest first."""
        return await read_history(self._log, as_of, messages, tokens)

    async def count(self, *, as_of: AsOf = None) -> int:
        """Return how many messages the agent has."""
        self._log.require("read")
        query = Query(schema=MESSAGE.name, where={"place": self._log.range_of()})
        return await self._log.universe.count(query, as_of=as_of)

    async def search(self, text: str, k: int = 10, *, as_of: AsOf = None) -> list[MessageHit]:
        """Return the messages and summaries that fit some words best, archived ones too.

        Messages of a batch lend each other their words, so that a question is found by its answer.
        """
        self._log.require("read")
        wanted = Query(where={"agent": self.agent})
        names = (MESSAGE.name, SUMMARY.name)
        found = await self._log.universe.search_among(names, text, wanted, check_k(k), as_of)
        head = await self._log.find_head(as_of)
        hits: list[MessageHit] = []
        for hit in found:
            if not isinstance(hit.record, Crystal):
                continue
            value: MessageRecord | SummaryRecord = hit.record.value
            if isinstance(value, SummaryRecord):
                hits.append(MessageHit(None, build_summary(hit.record), hit.score, hit.snippet))
                continue
            message = build_message(hit.record, is_archived(head, value.place, value.batch))
            hits.append(MessageHit(message, None, hit.score, hit.snippet))
        return hits

    async def list_summaries(self, limit: int | None = 20) -> list[Summary]:
        """Return the chain of archives, the newest first."""
        self._log.require("read")
        return await list_summaries(self._log, limit)

    # -- changes ------------------------------------------------------------------------------

    async def edit(self, id: str, content: Content) -> Message:
        """Replace what a message says; its calls of tools, or its result, must stay.

        The version before stays in its history. Its trust is at most that of who edits it.
        """
        self._log.require("write")
        parts = check_content(content)
        text, stored = encode(parts)

        async def work(tx: Transaction) -> None:
            await erase.refuse_erasing(tx, id)
            found = await self._log.get(MESSAGE, id, tx)
            value: MessageRecord = found.value
            before = decode(value.text, value.parts)
            result, was = find_result(parts), find_result(before)
            if [each.call for each in find_calls(parts)] != [each.call for each in find_calls(before)] or (
                (result and result.call) != (was and was.call)
            ):
                raise Conflict(f"the calls of {id!r} cannot be edited", hint="give them as they are", id=id)
            tokens = estimate_parts(parts)
            trust = self._log.stamp(value.trust)
            made = replace(value, text=text, parts=stored, tokens=tokens, trust=trust)
            await tx.put(self._log.change(found, made).datum, expect=found.rev)
            await self._count(tx, value.batch, 0, tokens - value.tokens, trust)

        await self._log.transact(work, f"edit {id}")
        return await self.get(id)

    async def delete(self, id: str) -> int:
        """Delete a message with the results of its calls, or a whole batch; return how many messages.

        Their history stays until `forget`. The result of a call is deleted with the call.
        """
        self._log.require("write")

        async def work(tx: Transaction) -> int:
            if "/" not in id:
                batch = await self._log.get(BATCH, id, tx)
                found = await self._log.of_batch(batch.value)
                await tx.delete(id, expect=batch.rev)
            else:
                first = await self._log.get(MESSAGE, id, tx)
                if find_result(decode(first.value.text, first.value.parts)) is not None:
                    raise Conflict(f"{id!r} is the result of a call", hint="delete the call", id=id)
                place = first.value.place
                found = [first, *await self._log.find_messages(f"{place}.", f"{place}.{END}")]
                await self._count(tx, first.value.batch, len(found), sum(each.value.tokens for each in found))
            for each in found:
                await erase.refuse_erasing(tx, each.id)
                await tx.delete(each.id, expect=each.rev)
            return len(found)

        return await self._log.transact(work, f"delete {id}")

    async def _count(
        self, tx: Transaction, batch: str, less: int, tokens: int, trust: str = TRUSTS[0]
    ) -> None:
        """Bring the trust of a batch, and its totals if it has ended, in line with a change of messages."""
        found = await tx.get(batch)
        if not isinstance(found, Crystal):
            return
        value: BatchRecord = found.value
        made = replace(value, trust=lowest_trust(value.trust, trust))
        if value.state != "open":
            change = -tokens if less else tokens
            made = replace(made, count=value.count - less, tokens=value.tokens + change)
        if made != value:
            await tx.put(self._log.change(found, made).datum, expect=found.rev)

    async def forget(self, id: str) -> int:
        """Erase a message, or a batch, for good, with every summary that could repeat it; return how many.

        The summaries that go take their archive with them: what they covered is not archived any more.
        """
        return await erase.forget(self._log, id)

    async def redact(self, text: str, instead: str = "[redacted]") -> int:
        """Replace a text in all messages and summaries, and erase every version that had it.

        Returns how many records were changed. It cannot be undone.
        """
        return await erase.redact(self._log, text, instead)

    # -- compression --------------------------------------------------------------------------

    async def compress(
        self,
        strategy: Strategy | str | Mapping[str, Any] = "truncate",
        *,
        messages: int | None = None,
        tokens: int | None = None,
        summarise: Callable[[Sequence[str]], Awaitable[str]] | None = None,
        score: Callable[[Sequence[str]], Awaitable[float]] | None = None,
    ) -> Compressed:
        """Archive older batches as a strategy says, if there are more messages or tokens than given.

        Whole batches only; open ones and the newest one stay. `summarise` gets texts and returns one, `score`
        gets the texts of a batch and returns its importance. If it fails, what it was for is archived without
        it, and the answer and the record say so.
        """
        return await compress(self._log, strategy, messages, tokens, summarise, score)

    async def restore(self, id: str | None = None) -> list[Summary]:
        """Take the newest archive back, or all down to one: its batches are in the history again."""
        return await restore(self._log, id)

    # -- in and out ---------------------------------------------------------------------------

    def export(self, *, as_of: AsOf = None) -> AsyncIterator[str]:
        """Yield the agent's batches, messages and archives as lines of JSON, as of one moment."""
        return transfer.export(self._log, as_of)

    async def load(self, lines: Iterable[str]) -> ImportedMessages:
        """Import lines that `export` wrote, all or none where one is wrong; what is there is left out."""
        return await transfer.load(self._log, lines)
