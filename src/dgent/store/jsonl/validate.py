"""Check lines that were decoded, and refuse those that cannot be stored; each line is checked alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from dgent import clock, ids
from dgent.errors import DgentError
from dgent.model import path as paths
from dgent.store.engine.check import MAX_VERSION, check_note
from dgent.store.engine.row import T_FIRST, T_LAST

if TYPE_CHECKING:
    from dgent.store.jsonl.line import CommitMark, RecordLine, SchemaLine

BY_HAND = "hand "  # begins the names of commits made from lines edited by hand
MAX_NUMBER = 2**62  # below what the cache can hold, so that counting on from it never overflows
MAX_PLACE = 2**31  # of an op in its commit
HASH_BYTES = 20


def check_line(line: RecordLine | CommitMark | SchemaLine) -> None:
    """Raise ValueError naming the first field of a line that a store cannot hold."""
    try:
        _CHECKS[type(line).__name__](line)
    except DgentError as error:
        raise ValueError(str(error)) from None


def _check_record_line(line: RecordLine) -> None:
    ids.check_id(line.id)
    _check_number("rev", line.rev)
    _check_number("i", line.i, MAX_PLACE)
    _check_number("n", line.n, MAX_PLACE)
    _check_number("keep", line.keep)
    _check_number("after", line.after)
    _check_number("schema_version", line.schema_version, MAX_VERSION)
    _check_moment("created_at", line.created_at)
    for field in ("schema", "author", "source"):
        value = getattr(line, field)
        if value:
            ids.check_name(value, field)
        elif value is not None and field != "schema":
            raise ValueError(f"{field} must not be empty")
    if line.parent_id is not None:
        ids.check_id(line.parent_id, "parent_id")
    if line.tags:
        ids.check_tags(line.tags)
    _check_data(line)
    _check_commit_fields(line)


def _check_data(line: RecordLine) -> None:
    """Check `data`, which is stored undecoded: it must be an object, UTF-8, and its numbers in range."""
    try:
        data = msgspec.json.decode(line.data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"data cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise ValueError("data must be an object")


def _check_commit_mark(mark: CommitMark) -> None:
    _check_number("n", mark.n, MAX_PLACE)
    _check_number("floor", mark.floor)
    _check_moment("expired", mark.expired)
    _check_commit_fields(mark)
    for id, rev in mark.drops.items():
        _check_op("drops", 0, id, rev)
    for i, known, rev in mark.same:
        _check_op("same", i, known, rev)
    for i, id, _, rev in mark.past:
        _check_op("past", i, id, rev)
    for i in mark.quiet:
        _check_number("quiet", i, MAX_PLACE)
    for i, _, rev in mark.gone:
        _check_op("gone", i, None, rev)
    for hashed, rev in mark.forget:
        _check_op("forget", 0, None, rev)
        if len(_decode_hex("forget", hashed)) != HASH_BYTES:
            raise ValueError(f"forget must have hashes of {HASH_BYTES} bytes")
    for c in mark.removed:
        ids.check_id(c, "removed")
    for hashed in mark.lines:
        if len(_decode_hex("lines", hashed)) != HASH_BYTES:
            raise ValueError(f"lines must have hashes of {HASH_BYTES} bytes")


def _check_commit_fields(line: RecordLine | CommitMark) -> None:
    """Check the fields of a line about its commit."""
    _check_number("seq", line.seq)
    _check_moment("at", line.at)
    if line.c is not None:
        ids.check_id(line.c, "c")
        if line.c.startswith(BY_HAND):
            raise ValueError(f"c must not begin with {BY_HAND!r}")
    if line.of:
        ids.check_id(line.of, "of")
    if line.by is not None:
        ids.check_name(line.by, "by")
    if line.note is not None:
        check_note(line.note)
    for field in ("key", "digest"):
        value = getattr(line, field)
        if value is not None:
            _decode_hex(field, value)


def _check_schema_line(declared: SchemaLine) -> None:
    ids.check_name(declared.schema, "schema")
    if declared.owner is not None:
        ids.check_name(declared.owner, "owner")
    _check_number("version", declared.version, MAX_VERSION)
    _check_moment("at", declared.at)
    _check_paths(declared.indexes)
    _check_paths(declared.refs)
    if isinstance(declared.history, int):
        _check_number("history", declared.history)
    elif declared.history not in ("all", "none"):
        raise ValueError('history must be "all", "none" or a number')


def _check_op(field: str, place: int, id: str | None, rev: int) -> None:
    _check_number(field, place, MAX_PLACE)
    _check_number(field, rev)
    if id is not None:
        ids.check_id(id, field)


def _check_number(field: str, value: int | None, limit: int = MAX_NUMBER) -> None:
    if value is not None and not 0 <= value < limit:
        raise ValueError(f"{field} must be from 0 to {limit - 1}, not {value}")


def _check_moment(field: str, value: datetime | None) -> None:
    if value is not None and not T_FIRST <= clock.to_us(value) <= T_LAST:
        raise ValueError(f"{field} must be in the years 1 to 9999 in UTC")


def _decode_hex(field: str, value: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise ValueError(f"{field} must be hexadecimal") from None


def _check_paths(values: Iterable[str]) -> None:
    for value in values:
        paths.parse(value)


_CHECKS: dict[str, Callable[[Any], None]] = {
    "RecordLine": _check_record_line,
    "CommitMark": _check_commit_mark,
    "SchemaLine": _check_schema_line,
}
