"""Erase messages for good: forget them, or redact a text in all of them.

A redacted record is erased with its versions and stored anew. What comes in its place is written down
before, so that a crash in between loses nothing: the next redaction finishes it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from dgent import codec, ids
from dgent.errors import Conflict, HistoryGone, InputError, VersionConflict
from dgent.messages.log import PAGE, Log
from dgent.messages.part import decode, encode, find_result
from dgent.messages.record import (
    BATCH,
    END,
    ERASURE,
    INCOMING,
    MESSAGE,
    SCHEMAS,
    SUMMARY,
    ErasureRecord,
)
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import Check, Delete, Version
from dgent.universe.transaction import Transaction

_SAID = ("text", "note", "origin", "by", "usage", "reason", "session", "error")
_SAID_IN_PARTS = ("text", "name", "arguments", "signature")
_BY_NAME = {each.name: each for each in SCHEMAS}


async def forget(log: Log, id: str) -> int:
    """Erase a message with the results of its calls, or a batch, and the summaries that cover it.

    What was deleted before is erased, too: its history still has it.
    """
    log.require("destroy")
    is_batch = "/" not in id
    batch_id = id.partition("/")[0]
    first, value = await _find_last(log, BATCH if is_batch else MESSAGE, id)
    batch = value if is_batch else (await _find_last(log, BATCH, batch_id))[1]
    place = value.place
    low, high = (f"{place}.", f"{place}{END}") if is_batch else (place, f"{place}.{END}")
    if not is_batch and find_result(decode(value.text, value.parts)) is not None:
        high = f"{place}."  # the other results of a call stay
    wanted = {each.id for each in await log.find_messages(low, high)}
    deleted = [each async for each in _find_deleted(log, first) if each.schema == MESSAGE.name]
    wanted |= {each.id for each in deleted if low <= str(each.data.get("place")) < high}
    count = len(wanted)
    wanted |= {id} | ({batch.cause} if batch.cause else set())
    async for summary in _find_summaries(log):
        if summary.value.last >= batch.place:
            wanted.add(summary.id)
    await log.universe.forget(*sorted(wanted))
    return count


async def _find_last(log: Log, schema: Schema[Any], id: str) -> tuple[int, Any]:
    """Return the commit of the first version of a record and its value, the last one if it was deleted."""
    versions = await log.universe.history(ids.check_id(id))
    kept = [each for each in versions if each.datum is not None and each.datum.schema == schema.name]
    if not kept or kept[0].datum is None or kept[0].datum.data.get("agent") != log.agent:
        found = await log.get(schema, id)  # raises NotFound
        return 0, found.value
    return min(each.seq for each in kept), schema.parse(kept[0].datum.data)


async def _find_deleted(log: Log, since: int = 0) -> AsyncIterator[Datum]:
    """Yield records of the agent that were deleted after a commit and are not erased, as they were last."""
    since = max(0, since - 1)
    while True:
        try:
            changes = await log.universe.changes(since, limit=PAGE)
        except HistoryGone as error:
            since = int(error.details["first_seq"]) - 1
            continue
        for change in changes:
            for item in change.items:
                known = item.op == "delete" and item.last is not None and item.schema in _BY_NAME
                if known and item.last.data.get("agent") == log.agent:
                    yield item.last
        if not changes:
            return
        since = changes[-1].seq or since


async def _find_summaries(log: Log) -> Any:
    """Yield all archives of the agent, restored ones too."""
    query = Query(schema=SUMMARY.name, where={"agent": log.agent}, limit=None)
    for found in await log.universe.recall(query):
        yield found


async def redact(log: Log, text: str, instead: str) -> int:
    """Replace a text in every message and summary, and erase all versions that had it, deleted ones too."""
    log.require("destroy")
    if not isinstance(text, str) or not text.strip():
        raise InputError("the text to redact is blank", field="text")
    if text in instead:
        raise InputError("what comes instead has the redacted text in it", field="instead")
    await finish_redactions(log)
    count = 0
    for schema in (MESSAGE, SUMMARY, BATCH, INCOMING):
        placed = schema in (MESSAGE, BATCH)
        where: Any = {"place": log.range_of()} if placed else {"agent": log.agent}
        query = Query(schema=schema.name, where=where, descending=False, limit=PAGE)
        while True:
            page = await log.universe.page(query)
            for found in page.items:
                if isinstance(found, Crystal):
                    count += await _redact(log, found, text, instead)
            if page.cursor is None:
                break
            query = query.replace(cursor=page.cursor)
    return count + await _erase_deleted(log, text)


async def _erase_deleted(log: Log, text: str) -> int:
    """Erase deleted records with a text in one of their versions; there is nothing to put in their place."""
    seen = {each.id async for each in _find_deleted(log)}
    wanted = []
    for id in sorted(seen):
        versions = await log.universe.history(id)
        live = bool(versions) and versions[0].datum is not None
        if not live and _have_text(versions, text):
            wanted.append(id)
    if wanted:
        await log.universe.forget(*wanted, only_deleted=True)
    return len(wanted)


def _clean(value: Any, text: str, instead: str) -> Any:
    """Return a record with a text replaced in everything that somebody said."""
    fields = vars(value)
    made = {name: _swap(fields[name], text, instead) for name in _SAID if name in fields}
    if "parts" in fields:
        parts = tuple(
            msgspec.structs.replace(
                part, **{name: _swap(getattr(part, name), text, instead) for name in _SAID_IN_PARTS}
            )
            for part in decode(value.text, value.parts)
        )
        made["text"], made["parts"] = encode(parts)
    return replace(value, **made)


def _swap(value: Any, text: str, instead: str) -> Any:
    """Return JSON with a text replaced wherever it is, in keys too."""
    if isinstance(value, str):
        return value.replace(text, instead)
    if isinstance(value, dict):
        return {_swap(key, text, instead): _swap(each, text, instead) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_swap(each, text, instead) for each in value]
    return value


async def _has_text(log: Log, found: Crystal[Any], text: str) -> bool:
    """Check whether a version of a record has a text anywhere."""
    if any(text in each for each in _find_said(vars(found.value))):
        return True
    if (found.rev or 1) == 1:
        return False
    return _have_text(await log.universe.history(found.id), text)


def _have_text(versions: Sequence[Version], text: str) -> bool:
    return any(text in each for v in versions if v.datum is not None for each in _find_said(v.datum.data))


def _find_said(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a record that somebody said; names of parts and agents are none."""
    for name in _SAID:
        yield from _texts(data.get(name))
    for part in data.get("parts") or ():
        for name in _SAID_IN_PARTS:
            yield from _texts(part.get(name))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


async def _redact(log: Log, found: Crystal[Any], text: str, instead: str) -> bool:
    """Redact one record; False if it has nothing of the text."""
    while isinstance(found, Crystal) and await _has_text(log, found, text):
        schema = _BY_NAME[found.schema_name]
        data: dict[str, Any] = schema.encode(_clean(found.value, text, instead))
        record = ErasureRecord(log.agent, found.id, schema.name, found.created_at, data)
        id = erasure_id(found.id)
        try:
            await log.commit([log.put(ERASURE, id, record, None), Check(found.id, found.rev or 0)])
        except VersionConflict:  # edited meanwhile: look again
            found = await log.universe.get(found.id)
            continue
        await _finish(log, id, record)
        return True
    return False


def erasure_id(id: str) -> str:
    """Return the id of what says that a record is about to be erased and replaced."""
    return f"{ERASURE.name}/{codec.blake2b(id.encode(), size=16).hexdigest()}"


async def refuse_erasing(tx: Transaction, id: str) -> None:
    """Raise Conflict where a record is being redacted: a change would be lost with what is erased."""
    if await tx.exists(erasure_id(id)):
        raise Conflict(f"{id!r} is being redacted", hint="try again", id=id)


async def finish_redactions(log: Log) -> int:
    """Finish what was begun and not done, as after a crash; return how many records that were."""
    query = Query(schema=ERASURE.name, where={"agent": log.agent}, limit=None)
    found = await log.universe.recall(query)
    for each in found:
        await _finish(log, each.id, each.value)
    return len(found)


async def _finish(log: Log, id: str, record: ErasureRecord) -> None:
    schema = _BY_NAME[record.schema]
    await log.universe.forget(record.target)
    made = log.put(schema, record.target, schema.parse(record.data), 0, record.made_at)
    await log.commit([made, Delete(id, None)])
