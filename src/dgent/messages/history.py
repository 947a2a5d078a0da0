"""The history that a model is shown: a summary of what is archived, and whole batches in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from dgent.messages.log import Log
from dgent.messages.message import BatchInfo, Message, build_batch, build_message, copy_fields
from dgent.messages.record import BATCH, END, SUMMARY, BatchRecord, SummaryRecord
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import AsOf
from dgent.universe.contract import Contracts
from dgent.universe.origin import lowest_trust

SOME = 64  # batches that are read at once


class Turn(NamedTuple):
    """A batch and its messages."""

    batch: BatchInfo
    messages: tuple[Message, ...]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """An archive of older batches and what sums them up.

    `depth` is how many summaries it stands on, `previous` the archive before it. `note` says what was done
    otherwise than asked, as when a summariser failed.
    """

    id: str
    agent: str
    text: str
    trust: str
    depth: int
    previous: str | None
    batches: int
    count: int
    tokens: int
    kept: tuple[str, ...]
    strategy: str
    note: str
    active: bool


class History(NamedTuple):
    """Batches in order, the oldest first; `more` says that older ones did not fit."""

    summary: Summary | None
    turns: tuple[Turn, ...]
    more: bool

    @property
    def messages(self) -> list[Message]:
        """The messages of all batches, in order."""
        return [message for turn in self.turns for message in turn.messages]

    @property
    def trust(self) -> str:
        """The lowest trust of all that is in it: for `Batch.lower_trust`, where a model reads it."""
        summary = () if self.summary is None else (self.summary.trust,)
        return lowest_trust("partner", *summary, *(turn.batch.trust for turn in self.turns))


async def read_history(
    log: Log, as_of: AsOf, messages: int | None, tokens: int | None, before: str = END
) -> History:
    """Return the newest ended batches that are not archived and fit, whole, and the summary of the rest.

    The newest one before a place is always among them.
    """
    log.require("read")
    head = await log.find_head(as_of)
    chosen: list[Crystal[BatchRecord]] = []
    count, size, more = 0, 0, False
    async with aclosing(walk_active(log, head, as_of, before)) as batches:
        async for each in batches:
            if each.value.state == "open" or not each.value.count:
                continue
            count, size = count + each.value.count, size + each.value.tokens
            over = (messages is not None and count > messages) or (tokens is not None and size > tokens)
            if chosen and over:
                more = True
                break
            chosen.append(each)
    turns = await _read_turns(log, chosen[::-1], head, as_of)
    return History(await find_summary(log, head, as_of), turns, more)


async def walk_active(
    log: Log, head: Crystal[SummaryRecord] | None, as_of: AsOf = None, high: str = END
) -> AsyncGenerator[Crystal[BatchRecord], None]:
    """Yield the batches that are not archived, newest first."""
    low = "" if head is None else f"{head.value.last}{END}"
    while True:
        page = await log.find_batches(low=low, high=high, limit=SOME, as_of=as_of)
        for each in page:
            yield each
        if len(page) < SOME:
            break
        high = page[-1].value.place
    for each in await find_kept(log, head, as_of):
        yield each


async def find_kept(
    log: Log, head: Crystal[SummaryRecord] | None, as_of: AsOf = None
) -> list[Crystal[BatchRecord]]:
    """Return the batches that were kept among archived ones, newest first."""
    if head is None or not head.value.kept:
        return []
    found = await log.universe.get_many(list(head.value.kept), as_of=as_of)
    kept = [each for each in found if isinstance(each, Crystal) and each.schema_name == BATCH.name]
    return sorted(kept, key=lambda each: str(each.value.place), reverse=True)


async def _read_turns(
    log: Log, batches: Sequence[Crystal[BatchRecord]], head: Crystal[SummaryRecord] | None, as_of: AsOf
) -> tuple[Turn, ...]:
    """Return batches with their messages; those that no archived ones stand between are read at once."""
    by_batch: dict[str, list[Message]] = {each.id: [] for each in batches}
    last = "" if head is None else head.value.last
    near = [each for each in batches if each.value.place > last]
    found = [m for each in batches if each.value.place <= last for m in await log.of_batch(each.value, as_of)]
    for start in range(0, len(near), SOME):
        part = near[start : start + SOME]
        found += await log.find_messages(part[0].value.place, f"{part[-1].value.place}{END}", as_of)
    for each in found:
        if each.value.batch in by_batch:
            by_batch[each.value.batch].append(build_message(each))
    return tuple(
        Turn(build_batch(each.id, each.value, each.created_at), tuple(by_batch[each.id])) for each in batches
    )


def build_turn(contracts: Contracts, batch: Datum, messages: Iterable[Datum]) -> Turn | None:
    """Build an ended batch from records that the feed showed; None where some are missing or unreadable."""
    info = contracts.lenient(batch)
    found = build_messages(contracts, messages)
    if not isinstance(info, Crystal) or found is None or len(found) != info.value.count:
        return None
    return Turn(build_batch(info.id, info.value, info.created_at), tuple(found))


def build_messages(contracts: Contracts, datums: Iterable[Datum]) -> list[Message] | None:
    """Build messages in order from records that the feed showed; None if one cannot be read."""
    found = [contracts.lenient(each) for each in datums]
    crystals = [each for each in found if isinstance(each, Crystal)]
    if len(crystals) < len(found):
        return None
    return [build_message(each) for each in sorted(crystals, key=lambda each: str(each.value.place))]


async def find_summary(log: Log, head: Crystal[SummaryRecord] | None, as_of: AsOf = None) -> Summary | None:
    """Return the archive with the text that stands for all that is archived."""
    if head is None:
        return None
    text = None
    if head.value.text_from is not None:
        text = await log.universe.get(head.value.text_from, as_of=as_of)
    return build_summary(head, text.value.text if isinstance(text, Crystal) else None)


def build_summary(found: Crystal[SummaryRecord], text: str | None = None) -> Summary:
    """Build a Summary from its record, with the text of an older one where it has none."""
    value = found.value
    return copy_fields(
        Summary,
        value,
        id=found.id,
        text=value.text or text or "",
        kept=tuple(value.kept or ()),
        strategy=str((value.strategy or {}).get("strategy", "")),
        active=value.chain is not None,
    )


async def list_summaries(log: Log, limit: int | None) -> list[Summary]:
    """Return the chain of archives, the newest first."""
    where = {"chain": log.range_of()}
    query = Query(schema=SUMMARY.name, where=where, order_by="chain", limit=limit)
    return [build_summary(each) for each in await log.universe.recall(query)]
