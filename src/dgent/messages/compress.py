"""Compression that persists: whole batches are archived behind a boundary, and a summary stands for them.

A boundary is one record, however much it archives, and restoring it changes one. Each summary is committed
as soon as it is made, so it is paid once.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec

from dgent import clock, ids
from dgent.errors import Conflict, InputError, NotFound
from dgent.messages.history import Summary, build_summary, find_kept, walk_active
from dgent.messages.log import Log
from dgent.messages.part import decode, show
from dgent.messages.record import BATCH, END, SUMMARY, BatchRecord, SummaryRecord, order_of
from dgent.messages.strategy import Importance, RecursiveSummary, Strategy, TimeDecay, read_strategy, score
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.store.backend import NEW
from dgent.universe.origin import lowest_trust
from dgent.universe.transaction import Transaction

Summarise = Callable[[Sequence[str]], Awaitable[str]]
Score = Callable[[Sequence[str]], Awaitable[float]]
Batches = AsyncGenerator[Crystal[BatchRecord], None]


class Compressed(msgspec.Struct, frozen=True):
    """The result of a compression: counts of what it archived, and the archives it made, the newest last.

    `fell_back` says that a summary was wanted and could not be made; `note` says why.
    """

    strategy: str
    batches: int
    messages: int
    tokens: int
    summaries: list[str]
    fell_back: bool
    note: str


@dataclass
class _Archive:
    """Batches that one archive will add."""

    kept: dict[str, str] = field(default_factory=dict)  # the places of batches that stay
    first: str = ""
    last: str = ""
    trust: str = "partner"
    batches: int = 0
    count: int = 0
    tokens: int = 0

    def add(self, found: Crystal[BatchRecord]) -> None:
        value = found.value
        self.first, self.last = self.first or value.place, max(self.last, value.place)
        self.trust = lowest_trust(self.trust, value.trust)
        self.batches, self.count = self.batches + 1, self.count + value.count
        self.tokens += value.tokens


class _Moved(Exception):
    """Somebody else archived meanwhile."""


class Compressor:
    """One compression of an agent's messages."""

    def __init__(
        self, log: Log, strategy: Strategy, summarise: Summarise | None, score: Score | None
    ) -> None:
        self._log, self._strategy = log, strategy
        self._summarise, self._score = summarise, score
        self._head: Crystal[SummaryRecord] | None = None
        self._made: list[str] = []
        self._total = _Archive()
        self._notes: list[str] = []
        self._fell_back = False

    async def run(self, messages: int | None, tokens: int | None) -> Compressed:
        """Archive what the strategy says, if there is more than the given numbers."""
        self._head = await self._log.find_head()
        last = await self._find_boundary(messages, tokens)
        if last is not None:
            try:
                if isinstance(self._strategy, RecursiveSummary):
                    await self._sum_up(last)
                elif isinstance(self._strategy, Importance):
                    await self._archive(last, await self._find_important(last, self._strategy.important))
                else:
                    await self._archive(last, frozenset())
            except _Moved:
                self._notes.append("somebody else compressed at the same time")
        total = self._total
        return Compressed(
            str(msgspec.to_builtins(self._strategy)["strategy"]),
            total.batches,
            total.count,
            total.tokens,
            self._made,
            self._fell_back,
            "; ".join(self._notes),
        )

    async def _find_boundary(self, messages: int | None, tokens: int | None) -> str | None:
        """Return the place up to which all is archived; None when everything stays."""
        strategy, limit = self._strategy, None
        if isinstance(strategy, TimeDecay):
            limit = clock.now() - timedelta(hours=min(strategy.hours, 10**6))
        count = size = ended = 0
        last: str | None = None
        over = messages is None and tokens is None
        async with aclosing(walk_active(self._log, self._head)) as batches:
            async for each in batches:
                value = each.value
                if self._head is not None and value.place <= self._head.value.last:
                    break  # those that were kept before
                if last is None and value.state != "open" and ended:
                    full = count >= strategy.keep or (tokens is not None and size + value.tokens > tokens)
                    old = limit is None or (value.ended_at is not None and value.ended_at < limit)
                    last = value.place if full and old else None
                count, size, ended = count + value.count, size + value.tokens, ended + (value.state != "open")
                over = over or count > (messages or count) or size > (tokens or size)
                if last is not None and over:
                    return last
        return None

    async def _older(self, last: str) -> Batches:
        """Yield the batches to archive, the oldest first: those kept before, and those up to a place."""
        for each in reversed(await find_kept(self._log, self._head)):
            yield each
        low = "" if self._head is None else f"{self._head.value.last}{END}"
        where = {"place": self._log.range_of(low, f"{last}{END}")}
        async for each in self._log.iterate(BATCH, where, "place"):
            yield each

    # -- without a summary ----------------------------------------------------------------------

    async def _archive(self, last: str, important: frozenset[str], note: str = "") -> None:
        """Archive all up to a place, but open and important batches."""
        made = _Archive(last=last)
        async for each in self._older(last):
            if each.value.state == "open" or each.id in important:
                made.kept[each.id] = each.value.place
            else:
                made.add(each)
        if made.batches:
            await self._commit(made, "", note)

    async def _find_important(self, last: str, number: int) -> frozenset[str]:
        """Return the ids of the batches that score highest."""
        best: list[tuple[float, str]] = []
        first: int | None = None
        async for each in self._older(last):
            if each.value.state == "open" or not number:
                continue
            order = order_of(each.value.place)
            first = order if first is None else first
            recency = (order - first) / max(1, order_of(last) - first)
            heapq.heappush(best, (await self._score_batch(each.value, recency), each.id))
            if len(best) > number:
                heapq.heappop(best)
        return frozenset(id for _, id in best)

    async def _score_batch(self, batch: BatchRecord, recency: float) -> float:
        found = await self._log.of_batch(batch)
        parts = [(each.value.role, decode(each.value.text, each.value.parts)) for each in found]
        if self._score is not None and not self._fell_back:
            try:
                return float(await self._score([show(each) for _, each in parts]))
            except Exception as error:
                self._fall_back(f"scoring failed: {_describe(error)}")
        return sum(score(role, each, recency) for role, each in parts) / max(1, len(parts))

    # -- with a summary -------------------------------------------------------------------------

    async def _sum_up(self, last: str) -> None:
        """Sum up batches, the oldest first, some at a time; what cannot be summed up is archived without."""
        assert isinstance(self._strategy, RecursiveSummary)
        for _ in range(self._strategy.calls):
            made, texts = _Archive(), list[str]()
            async with aclosing(self._older(last)) as older:
                async for each in older:
                    if each.value.state == "open":
                        made.kept[each.id] = each.value.place
                        continue
                    if made.batches and made.tokens + each.value.tokens > self._strategy.chunk_tokens:
                        break
                    made.add(each)
                    texts += [_show_message(m.value) for m in await self._log.of_batch(each.value)]
            if not made.batches:
                return
            made.last = max(made.last, self._head.value.last if self._head is not None else "")
            try:
                text = await self._call(texts)
            except Exception as error:
                self._fall_back(f"the summariser failed: {_describe(error)}")
                await self._archive(last, frozenset(), self._notes[-1])
                return
            await self._commit(made, text, "")

    async def _call(self, texts: list[str]) -> str:
        if self._summarise is None:
            raise InputError("there is no summariser")
        before = await self._text_before()
        text = await self._summarise([f"Summary of what came before:\n{before}", *texts] if before else texts)
        if not isinstance(text, str) or not text.strip():
            raise InputError("it gave no text")
        return text

    async def _text_before(self) -> str:
        if self._head is None:
            return ""
        found = self._head
        if not found.value.text and found.value.text_from is not None:
            found = await self._log.get(SUMMARY, found.value.text_from)
        return found.value.text

    def _fall_back(self, note: str) -> None:
        self._fell_back = True
        self._notes.append(note)

    # -- the commit -----------------------------------------------------------------------------

    async def _commit(self, made: _Archive, text: str, note: str) -> None:
        log, head = self._log, self._head
        before = None if head is None else head.value
        number = 0 if before is None or before.chain is None else int(before.chain[len(log.start) :]) + 1
        source = None
        if head is not None and before is not None:
            source = head.id if before.text else before.text_from
        trust = log.stamp(made.trust) if text else made.trust
        record = SummaryRecord(
            log.agent,
            text,
            trust if before is None else lowest_trust(trust, before.trust),
            made.first,
            made.last,
            f"{log.start}{number:08d}",
            None if head is None else head.id,
            None if text else source,
            (0 if before is None else before.depth) + (1 if text and source else 0),
            made.batches,
            made.count,
            made.tokens,
            [id for id, place in made.kept.items() if place <= made.last] or None,
            msgspec.to_builtins(self._strategy),
            note,
        )
        id = ids.new_id()

        async def work(tx: Transaction) -> None:
            found = await find_head_in(tx, log)
            if (found and found.id) != (head and head.id):
                raise _Moved
            await tx.put(log.put(SUMMARY, id, record, NEW).datum, expect=NEW)

        await log.transact(work)
        self._head = await log.get(SUMMARY, id)
        self._made.append(id)
        total = self._total
        total.batches, total.count = total.batches + made.batches, total.count + made.count
        total.tokens += made.tokens


def _show_message(value: Any) -> str:
    return f"{value.role}: {show(decode(value.text, value.parts))}"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


async def find_head_in(tx: Transaction, log: Log) -> Crystal[SummaryRecord] | None:
    """Return the newest archive as a transaction sees it."""
    query = Query(schema=SUMMARY.name, where={"chain": log.range_of()}, order_by="chain", limit=1)
    found = await tx.recall(query)
    return found[0] if found else None


async def compress(
    log: Log,
    strategy: Any,
    messages: int | None,
    tokens: int | None,
    summarise: Summarise | None,
    score: Score | None,
) -> Compressed:
    """Archive older batches; only one compression of an agent runs in a program at a time."""
    log.require("write")
    chosen = read_strategy(strategy)
    async with log.universe.names.alone(f"compress messages of {log.agent}"):
        return await Compressor(log, chosen, summarise, score).run(messages, tokens)


async def restore(log: Log, id: str | None) -> list[Summary]:
    """Take archives back, the newest first, down to one; without an id only the newest."""
    log.require("write")

    async def work(tx: Transaction) -> list[Crystal[SummaryRecord]]:
        head = await find_head_in(tx, log)
        back: list[Crystal[SummaryRecord]] = []
        while head is not None:
            back.append(head)
            if id is None or head.id == id:
                break
            before = head.value.previous
            head = None if before is None else await log.get(SUMMARY, before, tx)
        if not back:
            raise NotFound(f"nothing of {log.agent} is archived")
        if id is not None and back[-1].id != id:
            raise Conflict(f"{id!r} is not an archive that stands", hint="`dgent message summaries`", id=id)
        for each in back:
            await tx.put(log.change(each, replace(each.value, chain=None)).datum, expect=each.rev)
        return back

    return [build_summary(each) for each in await log.transact(work)]
