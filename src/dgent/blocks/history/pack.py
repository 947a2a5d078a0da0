"""Packs: old versions stored together."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dgent import clock
from dgent.blocks import errors
from dgent.blocks.document.document import Document
from dgent.blocks.history.version import Version
from dgent.blocks.record import PACK, PackRecord
from dgent.errors import InputError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.universe.universe import Universe

MAX_PACK_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Pack:
    """Versions, the update of each, and perhaps the state after the last of them.

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


def encode_pack(pack: Pack) -> bytes:
    """Return the content of a pack's record."""
    rows = [_row(each) for each in pack.versions]
    packed = _Packed(rows, pack.updates, pack.state, pack.kept)
    return zlib.compress(msgspec.msgpack.encode(packed), 6)


def decode_pack(block: str, first: int, last: int, content: bytes) -> Pack:
    """Decode the content of the pack with the versions from `first` to `last`; raises DocumentCorrupt."""
    try:
        packed = _decoder.decode(zlib.decompressobj().decompress(content, MAX_PACK_BYTES))
        versions = [_version(number, row) for number, row in enumerate(packed.rows, first)]
    except (zlib.error, msgspec.MsgspecError, InputError) as error:
        raise errors.DocumentCorrupt(f"a pack of {block!r} cannot be read: {error}") from None
    if not len(versions) == len(packed.updates) == last - first + 1:
        raise errors.DocumentCorrupt(f"a pack of {block!r} does not have the versions {first} to {last}")
    return Pack(versions, packed.updates, packed.state, packed.kept)


def _row(version: Version) -> _Row:
    fields = {name: each for name, each in vars(version).items() if name not in ("number", "at")}
    return _Row(clock.to_us(version.at), **fields)


def _version(number: int, row: _Row) -> Version:
    fields = {name: getattr(row, name) for name in row.__struct_fields__ if name != "at"}
    return Version(number, clock.from_us(row.at), **fields)


def check_readable(found: Any, id: str) -> Crystal[Any] | None:
    """Return a record of a block, or None if there is none; raises DocumentCorrupt if it is unreadable."""
    if found is None or isinstance(found, Crystal):
        return found
    raise errors.DocumentCorrupt(f"the record {id!r} cannot be read: {found.problem}", id=id)


class PackStore:
    """The packs of one block."""

    def __init__(self, universe: Universe, block: str) -> None:
        self._universe, self._block = universe, block

    async def versions(self, after: int = 0) -> list[Version]:
        """Return the packed versions after one, oldest first; reads only the packs that have them."""
        records = await self._read_some(lambda listed: _select_range(listed, after + 1))
        found = [version for each in records for version in self.read(each).versions]
        return [version for version in found if version.number > after]

    async def find(self, number: int) -> Version | None:
        """Return one packed version; None when no pack has it."""
        for each in await self._read_some(lambda listed: _select_range(listed, number, number)):
            return self.read(each).versions[number - each.value.first]
        return None

    async def at(self, version: Version) -> Document:
        """Build the document as of a version: the last state before it, and the updates since."""
        if version.compacted:
            raise errors.VersionNotFound(
                f"version {version.number} was compacted: its content is gone",
                hint="the history still has its author and operation; versions with a checkpoint are kept",
                version=version.number,
            )
        try:
            return build_document(map(self.read, await self._read_needed(version.number)), version.number)
        except errors.DocumentCorrupt:
            return build_document(map(self.read, await self.records()), version.number)

    async def _read_needed(self, number: int) -> list[Crystal[PackRecord]]:
        """Read the packs that a version is built from."""

        def choose(listed: list[Crystal[PackRecord]]) -> list[Crystal[PackRecord]]:
            before = _select_range(listed, 0, number)
            states = [place for place, each in enumerate(before) if each.value.state]
            start = max((place for place in states if before[place].value.last <= number), default=0)
            return before[start:]

        return await self._read_some(choose)

    async def _read_some(
        self, choose: Callable[[list[Crystal[PackRecord]]], list[Crystal[PackRecord]]]
    ) -> list[Crystal[PackRecord]]:
        """Read some of the packs, chosen by their records without content; oldest first."""
        query = Query(schema=PACK.name, prefix=f"{self._block}/p/", limit=None, content=False)
        while True:
            ids = [each.id for each in choose(await self._list_records(query))]
            read = [*map(check_readable, await self._universe.get_many(ids), ids)]
            found = [each for each in read if each is not None]
            if len(found) == len(ids):  # else they were rewritten meanwhile
                return found

    async def records(self) -> list[Crystal[PackRecord]]:
        """Return the records of all packs, oldest first."""
        return await self._list_records(Query(schema=PACK.name, prefix=f"{self._block}/p/", limit=None))

    async def _list_records(self, query: Query) -> list[Crystal[PackRecord]]:
        read = [check_readable(each, each.id) for each in await self._universe.query(query)]
        found = [each for each in read if each is not None]
        return sorted(found, key=lambda pack: pack.value.first)

    async def newest(self, count: int) -> list[Crystal[PackRecord]]:
        """Return the records of the newest packs, without content."""
        query = Query(schema=PACK.name, prefix=f"{self._block}/p/", limit=count, content=False)
        return await self._universe.recall(query)

    def read(self, record: Crystal[PackRecord]) -> Pack:
        """Decode the pack of a record."""
        return decode_pack(self._block, record.value.first, record.value.last, record.datum.content)


def _select_range(
    listed: list[Crystal[PackRecord]], first: int, last: float = math.inf
) -> list[Crystal[PackRecord]]:
    """Return the packs that have versions from `first` to `last`."""
    return [each for each in listed if each.value.last >= first and each.value.first <= last]


def build_document(packs: Iterable[Pack], number: int) -> Document:
    """Build the document of a version from packs, oldest first.

    An update made concurrently with a state builds on what came before it: then an older state is used.
    """
    updates: list[bytes] = []
    states: list[tuple[bytes, int]] = [(b"", 0)]  # and how many updates each of them includes
    for pack in packs:
        first, last = pack.versions[0].number, pack.versions[-1].number
        if first > number:
            break
        if number in pack.kept:
            return Document.load(pack.kept[number])
        updates += pack.updates[: number - first + 1]
        if pack.state and last <= number:
            states.append((pack.state, len(updates)))
    for state, known in states[:0:-1]:
        try:
            return Document.load(state, updates[known:])
        except errors.DocumentCorrupt:
            continue
    return Document.load(b"", updates)
