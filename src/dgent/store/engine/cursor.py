"""Cursors: the place where a page of a query ended, as text that callers pass back."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import NamedTuple

from dgent.errors import CursorInvalid

_FORMAT = 1
_HEAD = struct.Struct(">B8s16sqqq")


class Cursor(NamedTuple):
    """The last row of a page: its order key, time and record key, and the seq it was read as of (-1: now)."""

    key: bytes
    created_at: int
    record_key: int
    as_of: int


def encode_cursor(cursor: Cursor, epoch: bytes, digest: bytes) -> str:
    """Return the cursor as text."""
    raw = _HEAD.pack(_FORMAT, epoch, digest, cursor.as_of, cursor.created_at, cursor.record_key) + cursor.key
    return base64.urlsafe_b64encode(raw + struct.pack(">I", zlib.crc32(raw))).decode()


def decode_cursor(text: str, epoch: bytes, digest: bytes) -> Cursor:
    """Return the cursor of a text; raises CursorInvalid when it is not one of this query and store."""
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        raw, (check,) = raw[:-4], struct.unpack(">I", raw[-4:])
        form, of_epoch, of_digest, as_of, created_at, record_key = _HEAD.unpack_from(raw)
    except (ValueError, struct.error):
        raise CursorInvalid("this is not a cursor") from None
    if zlib.crc32(raw) != check or form != _FORMAT:
        raise CursorInvalid("this cursor is damaged or of another version")
    if of_digest != digest:
        raise CursorInvalid("this cursor belongs to another query")
    if of_epoch != epoch:
        raise CursorInvalid("this cursor belongs to another store")
    return Cursor(raw[_HEAD.size :], created_at, record_key, as_of)
