"""Cursors: where a query stopped, as text that fits only that query on that store."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import NamedTuple

from dgent.errors import CursorInvalid

_FORMAT = 1
_HEAD = struct.Struct(">B8s16sqqq")


class Cursor(NamedTuple):
    """The last row given out: its order key, time and dk, and the seq it was read as of (-1: now)."""

    key: bytes
    t: int
    dk: int
    as_of: int


def encode(cursor: Cursor, epoch: bytes, digest: bytes) -> str:
    """The cursor as text."""
    raw = _HEAD.pack(_FORMAT, epoch, digest, cursor.as_of, cursor.t, cursor.dk) + cursor.key
    return base64.urlsafe_b64encode(raw + struct.pack(">I", zlib.crc32(raw))).decode()


def decode(text: str, epoch: bytes, digest: bytes) -> Cursor:
    """The cursor of a text, or CursorInvalid when it is not one of this query and store."""
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        raw, (check,) = raw[:-4], struct.unpack(">I", raw[-4:])
        form, of_epoch, of_digest, as_of, t, dk = _HEAD.unpack_from(raw)
    except (ValueError, struct.error):
        raise CursorInvalid("this is not a cursor") from None
    if zlib.crc32(raw) != check or form != _FORMAT:
        raise CursorInvalid("this cursor is damaged or of another version")
    if of_digest != digest:
        raise CursorInvalid("this cursor belongs to another query")
    if of_epoch != epoch:
        raise CursorInvalid("this cursor belongs to another store")
    return Cursor(raw[_HEAD.size :], t, dk, as_of)
