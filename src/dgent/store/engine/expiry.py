"""Records that expire: their entries in an index, and the one rule that hides them.

A record's time is the envelope field `expires_at` (`Datum.extra`). A read at or after that time does not show
the record; a sweep deletes it later. The time of a read is that of a commit that would be made then, so that
no reader is ahead of the writers; as of an earlier commit it is the time of that commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dgent import clock, codec
from dgent.model.datum import Datum, add_expiry
from dgent.model.query import update_key
from dgent.store.engine.catalog import EXPIRES, IndexName, SchemaState, low
from dgent.store.engine.kernel import IndexScan, Reading
from dgent.store.engine.row import DAMAGE, EXTRA


class _Expiring(msgspec.Struct):
    expires_at: datetime | None = None


_decoder = msgspec.json.Decoder(_Expiring)


def expiry_of(extra: bytes | None) -> int | None:
    """Return the time when a version expires, in microseconds; None if it does not, or names no time."""
    if extra is None:
        return None
    try:
        found = _decoder.decode(extra).expires_at
        return None if found is None or found.tzinfo is None else clock.to_us(found)
    except (*DAMAGE, OverflowError):
        return None


def set_expiry(extra: bytes, expires_us: int) -> bytes:
    """Return the `extra` of a version with another time of expiry."""
    return codec.encode(add_expiry(codec.decode(extra), clock.from_us(expires_us)))


def expiry_entry(
    index: int, expires_us: int, created_at: int, record_key: int
) -> tuple[int, bytes, int, int]:
    """Return the entry of a record in the index of those that expire."""
    return index, update_key(expires_us), created_at, record_key


def find_moment(reading: Reading, as_of: int | None = None) -> int:
    """Return the time of a read in microseconds: now, or that of an earlier commit."""
    seq, at = reading.newest()
    if as_of is None or as_of >= seq:
        return max(clock.now_us(), at)
    logged = reading.read_commit(as_of)
    if logged is None:  # pruned: the one after it was no earlier
        logged = next(iter(reading.log(as_of, 1)), None)
    return at if logged is None else logged.at


def is_expired(extra: bytes | None, moment: int) -> bool:
    """Return whether a version has expired at a time."""
    expires = expiry_of(extra)
    return expires is not None and expires <= moment


def drop_expired(rows: Sequence[Any]) -> list[Any]:
    """Return the brief rows, as an engine fetched them outside a reading, that have not expired by now."""
    now = clock.now_us()
    return [row for row in rows if row[EXTRA] is None or not is_expired(row[EXTRA], now)]


def hides(reading: Reading, row: Any, as_of: int | None = None) -> bool:
    """Return whether a row with `extra` is expired for a read."""
    return is_expired(row.extra, find_moment(reading, as_of))


def has_expired(datum: Datum, moment: int) -> bool:
    """Return whether a record has expired at a time."""
    expires = datum.expires_at
    return expires is not None and clock.to_us(expires) <= moment


def scan_expired(reading: Reading, state: SchemaState, moment: int) -> IndexScan | None:
    """Return the part of the index of a schema with the records that have expired; None if there is none."""
    index = reading.index_number(IndexName(state.number, 0, "", EXPIRES)) if state.expires else None
    return None if index is None else IndexScan(index, low(b""), low(update_key(moment + 1)))


def may_hide(reading: Reading, states: list[SchemaState]) -> bool:
    """Return whether some records of schemas have expired and are not swept yet."""
    moment = None
    for state in states:
        if state.expires:
            moment = find_moment(reading) if moment is None else moment
            scan = scan_expired(reading, state, moment)
            if scan is not None and reading.size(scan, 1):
                return True
    return False
