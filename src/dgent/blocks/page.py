"""Pages: old versions packed together."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import msgspec

from dgent import clock
from dgent.blocks import errors
from dgent.blocks.version import Version
from dgent.errors import InputError

MAX_PAGE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Page:
    """What a page holds: versions, the update of each, and perhaps the state after the last of them.

    `kept` are states of single versions whose updates are gone.
    """

    versions: list[Version]
    updates: list[bytes]
    state: bytes = b""
    kept: dict[int, bytes] = field(default_factory=dict)


class _Row(msgspec.Struct, array_like=True):
    at: int
    by: str
    op: str
    node: int
    parent: int
    size: int
    added: int
    removed: int
    frontiers: str
    message: str
    lost: str = ""


class _Packed(msgspec.Struct, array_like=True):
    rows: list[_Row]
    updates: list[bytes]
    state: bytes
    kept: dict[int, bytes] = {}


_decoder = msgspec.msgpack.Decoder(_Packed)


def pack(page: Page) -> bytes:
    """The content of a page's record."""
    rows = [_row(each) for each in page.versions]
    packed = _Packed(rows, page.updates, page.state, page.kept)
    return zlib.compress(msgspec.msgpack.encode(packed), 6)


def unpack(block: str, first: int, last: int, content: bytes) -> Page:
    """What `pack` packed: the versions from one to another."""
    try:
        packed = _decoder.decode(zlib.decompressobj().decompress(content, MAX_PAGE_BYTES))
        versions = [_version(number, row) for number, row in enumerate(packed.rows, first)]
    except (zlib.error, msgspec.MsgspecError, InputError) as error:
        raise errors.DocumentCorrupt(f"a page of {block!r} cannot be read: {error}") from None
    if not len(versions) == len(packed.updates) == last - first + 1:
        raise errors.DocumentCorrupt(f"a page of {block!r} does not have the versions {first} to {last}")
    return Page(versions, packed.updates, packed.state, packed.kept)


def _row(version: Version) -> _Row:
    fields = {name: each for name, each in vars(version).items() if name not in ("number", "at")}
    return _Row(clock.to_us(version.at), **fields)


def _version(number: int, row: _Row) -> Version:
    fields = {name: getattr(row, name) for name in row.__struct_fields__ if name != "at"}
    return Version(number, clock.from_us(row.at), **fields)
