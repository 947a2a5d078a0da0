"""Pages: old versions packed together."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dgent import clock
from dgent.blocks import errors
from dgent.blocks.version import Version

MAX_PAGE_BYTES = 256 * 2**20


def pack(versions: Sequence[Version], updates: Sequence[bytes], state: bytes) -> bytes:
    """The content of a page: what each version says, its update, and perhaps the state after the last."""
    rows = [
        (
            clock.to_us(each.at),
            each.by,
            each.op,
            each.node,
            each.parent,
            each.size,
            each.added,
            each.removed,
            each.frontiers,
            each.message,
        )
        for each in versions
    ]
    return zlib.compress(msgspec.msgpack.encode((rows, list(updates), state)), 6)


def unpack(block: str, first: int, content: bytes) -> tuple[list[Version], list[bytes], bytes]:
    """What `pack` packed."""
    try:
        reader = zlib.decompressobj()
        plain = reader.decompress(content, MAX_PAGE_BYTES)
        rows, updates, state = msgspec.msgpack.decode(plain, type=_Page)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise errors.DocumentCorrupt(f"a page of {block!r} cannot be read: {error}") from None
    versions = [
        Version(first + place, _moment(at), by, op, node, parent, size, added, removed, frontiers, message)
        for place, (at, by, op, node, parent, size, added, removed, frontiers, message) in enumerate(rows)
    ]
    return versions, updates, state


_Row = tuple[int, str, str, int, int, int, int, int, str, str]
_Page = tuple[list[_Row], list[bytes], bytes]


def _moment(us: Any) -> datetime:
    return clock.from_us(us)
