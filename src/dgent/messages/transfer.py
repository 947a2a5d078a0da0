"""Export the messages of an agent as lines of JSON, and import them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from dgent import clock, codec
from dgent.errors import Conflict, DgentError, InputError
from dgent.messages.log import Log
from dgent.messages.record import BATCH, BATCH_STATES, BATCH_TYPES, MESSAGE, ROLES, SUMMARY
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.store.backend import AsOf, Op
from dgent.universe.origin import check_trust

FORMAT = "dgent messages"
AT_ONCE = 500
IN_MEMORY = 8_000_000  # bytes of checked lines; more are kept in a file

_KINDS = {each.name.partition(".")[2]: each for each in (BATCH, MESSAGE, SUMMARY)}


class ImportedMessages(msgspec.Struct, frozen=True):
    """The numbers of records that an import added, and that were there already."""

    added: int
    known: int


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of an export: a record, or with `format` the first and with `records` the last line."""

    kind: str
    id: str = ""
    at: datetime | None = None
    data: dict[str, Any] = {}
    agent: str = ""
    records: int = 0


_NUMBER = re.compile(r"[0-9]{8}(\.[0-9]{4})?")
_decoder = msgspec.json.Decoder(_Line)


async def export(log: Log, as_of: AsOf) -> AsyncIterator[str]:
    """Yield lines: a head, batches each before its messages, archives, and an end that counts them."""
    log.require("read")
    u = log.universe
    seq = await u.seq() if as_of is None else as_of
    yield _write(_Line(FORMAT, agent=log.agent))
    count = 0
    for schema, field in ((BATCH, "place"), (MESSAGE, "place"), (SUMMARY, "agent")):
        where: Any = {field: log.agent if field == "agent" else log.range_of()}
        order = "created_at" if field == "agent" else field
        query = Query(schema=schema.name, where=where, order_by=order, descending=False, limit=None)
        async for found in u.iterate(query, as_of=seq, raw=True):
            count += 1
            kind = schema.name.partition(".")[2]
            yield _write(_Line(kind, found.id, found.created_at, dict(found.data)))
    yield _write(_Line("end", records=count))


def _write(line: _Line) -> str:
    given = {name: value for name, value in msgspec.structs.asdict(line).items() if value or name == "kind"}
    if line.at is not None:
        given["at"] = clock.text(line.at)
    return codec.encode(given).decode()


async def load(log: Log, lines: Iterable[str]) -> ImportedMessages:
    """Import lines; nothing is stored before all of them are checked."""
    log.require("write")
    added = known = 0
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as checked:
        seen, ended = 0, False
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            line = _read(text, number)
            if ended:
                raise _wrong(number, "comes after the end")
            if number == 1 or line.kind == FORMAT:
                _check_head(log, line, number)
            elif line.kind == "end":
                ended = True
                if line.records != seen:
                    raise _wrong(number, f"counts {line.records} records, and there are {seen}")
            else:
                seen += 1
                _make_op(log, line, number)
                checked.write(_write(line).encode() + b"\n")
        if not ended:
            raise InputError("the lines have no end: the file is cut", hint="export it again")
        for store in (False, True):
            checked.seek(0)
            batch: list[_Line] = []
            for raw in checked:
                batch.append(_decoder.decode(raw))
                if len(batch) == AT_ONCE:
                    added, known = await _store(log, batch, store, added, known)
                    batch = []
            added, known = await _store(log, batch, store, added, known)
    return ImportedMessages(added, known)


async def _store(log: Log, batch: list[_Line], store: bool, added: int, known: int) -> tuple[int, int]:
    """Compare lines with what is there, and then store those that are not; a Conflict names another one."""
    there = await log.universe.get_many([line.id for line in batch], raw=True) if batch else []
    ops: list[Op] = []
    for line, found in zip(batch, there, strict=True):
        op = _make_op(log, line, 0)
        if found is None:
            ops.append(op)
        elif not store and (found.schema != op.datum.schema or found.data.get("agent") != log.agent):
            raise Conflict(f"the id {line.id!r} is taken by another record", id=line.id)
    if not store:
        return added, known
    if ops:
        await log.commit(ops)
    return added + len(ops), known + len(batch) - len(ops)


def _read(text: str, number: int) -> _Line:
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _wrong(number, f"cannot be read: {error}") from None


def _check_head(log: Log, line: _Line, number: int) -> None:
    if number != 1 or line.kind != FORMAT:
        raise _wrong(number, "is not the head of an export of messages")
    if line.agent != log.agent:
        raise InputError(
            f"these are messages of {line.agent!r}, not of {log.agent!r}", hint="import them for that agent"
        )


def _make_op(log: Log, line: _Line, number: int) -> Any:
    """Return the op that stores the record of a line; raises InputError naming what is wrong with it."""
    schema = _KINDS.get(line.kind)
    if schema is None or line.at is None:
        raise _wrong(number, f"has an unknown kind {line.kind!r:.40}, or no time")
    try:
        record = schema.parse(line.data)
        check_trust(record.trust)
        op = log.put(schema, line.id, _check_record(log, line, record), 0, line.at)
        op.datum.check()
        Crystal[Any].from_datum(op.datum, schema)
    except DgentError as error:
        raise _wrong(number, f"is wrong: {error.message}") from None
    return op


def _check_record(log: Log, line: _Line, record: Any) -> Any:
    places = [record.first, record.last] if line.kind == "summary" else [record.place]
    if record.agent != log.agent or not all(each.startswith(log.start) for each in places):
        raise InputError(f"{line.id!r} is not of {log.agent!r}")
    record = replace(record, trust=log.stamp(record.trust))
    if line.kind == "message":
        batch, _, number = line.id.partition("/")
        fits = record.batch == batch and record.place.endswith(f".{number}") and record.role in ROLES
        if not fits or not _NUMBER.fullmatch(number):
            raise InputError(f"{line.id!r} does not fit its batch, place or role")
    if line.kind == "batch":
        if record.type not in BATCH_TYPES or record.state not in BATCH_STATES or "/" in line.id:
            raise InputError(f"{line.id!r} has a wrong type or state")
        if record.state == "open":
            record = replace(record, state="interrupted", open_place=None, reason="imported while open")
    return record


def _wrong(number: int, what: str) -> InputError:
    return InputError(f"line {number} {what}", hint="nothing was imported", line=number)
