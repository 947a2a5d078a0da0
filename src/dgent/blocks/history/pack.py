"""Pages: old versions packed together."""

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
from dgent.blocks.record import PAGE, PageRecord
from dgent.errors import InputError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.universe.universe import Universe

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


def readable(found: Any, id: str) -> Crystal[Any] | None:
    """A record of a block, None when there is none; DocumentCorrupt when it cannot be read."""
    if found is None or isinstance(found, Crystal):
        return found
    raise errors.DocumentCorrupt(f"the record {id!r} cannot be read: {found.problem}", id=id)


class Past:
    """The pages of one block."""

    def __init__(self, universe: Universe, block: str) -> None:
        self._universe, self._block = universe, block

    async def versions(self, after: int = 0) -> list[Version]:
        """The folded versions after one, oldest first; only the pages that have some of them are read."""
        records = await self._some(lambda listed: _with(listed, after + 1))
        found = [version for each in records for version in self.read(each).versions]
        return [version for version in found if version.number > after]

    async def find(self, number: int) -> Version | None:
        """One folded version; None when it is in no page."""
        for each in await self._some(lambda listed: _with(listed, number, number)):
            return self.read(each).versions[number - each.value.first]
        return None

    async def at(self, version: Version) -> Document:
        """The document as it was at a version: the last state before it, and the updates since."""
        if version.compacted:
            raise errors.VersionNotFound(
                f"version {version.number} was compacted: what it held is gone",
                hint="history tells who did what; versions with a checkpoint are kept",
                version=version.number,
            )
        try:
            return built(map(self.read, await self._needed(version.number)), version.number)
        except errors.DocumentCorrupt:
            return built(map(self.read, await self.records()), version.number)

    async def _needed(self, number: int) -> list[Crystal[PageRecord]]:
        """The pages that a version is built from."""

        def choose(listed: list[Crystal[PageRecord]]) -> list[Crystal[PageRecord]]:
            before = _with(listed, 0, number)
            states = [place for place, each in enumerate(before) if each.value.state]
            start = max((place for place in states if before[place].value.last <= number), default=0)
            return before[start:]

        return await self._some(choose)

    async def _some(
        self, choose: Callable[[list[Crystal[PageRecord]]], list[Crystal[PageRecord]]]
    ) -> list[Crystal[PageRecord]]:
        """Some of the pages, chosen before what they hold is read; oldest first."""
        query = Query(schema=PAGE.name, prefix=f"{self._block}/p/", limit=None, content=False)
        while True:
            ids = [each.id for each in choose(await self._listed(query))]
            read = [*map(readable, await self._universe.get_many(ids), ids)]
            found = [each for each in read if each is not None]
            if len(found) == len(ids):  # else they were rewritten meanwhile
                return found

    async def records(self) -> list[Crystal[PageRecord]]:
        """The pages as they are stored, oldest first."""
        return await self._listed(Query(schema=PAGE.name, prefix=f"{self._block}/p/", limit=None))

    async def _listed(self, query: Query) -> list[Crystal[PageRecord]]:
        read = [readable(each, each.id) for each in await self._universe.query(query)]
        found = [each for each in read if each is not None]
        return sorted(found, key=lambda page: page.value.first)

    async def newest(self, count: int) -> list[Crystal[PageRecord]]:
        """The newest pages, without what they hold."""
        query = Query(schema=PAGE.name, prefix=f"{self._block}/p/", limit=count, content=False)
        return await self._universe.recall(query)

    def read(self, record: Crystal[PageRecord]) -> Page:
        """What a page holds."""
        return unpack(self._block, record.value.first, record.value.last, record.datum.content)


def _with(listed: list[Crystal[PageRecord]], first: int, last: float = math.inf) -> list[Crystal[PageRecord]]:
    """Those pages that have versions from one number to another, or to the end."""
    return [each for each in listed if each.value.last >= first and each.value.first <= last]


def built(pages: Iterable[Page], number: int) -> Document:
    """The document of a version, from some pages, oldest first.

    An update that was made beside a state builds on what came before it: then an older state must do.
    """
    updates: list[bytes] = []
    states: list[tuple[bytes, int]] = [(b"", 0)]  # and how many updates each of them has in it
    for page in pages:
        first, last = page.versions[0].number, page.versions[-1].number
        if first > number:
            break
        if number in page.kept:
            return Document.load(page.kept[number])
        updates += page.updates[: number - first + 1]
        if page.state and last <= number:
            states.append((page.state, len(updates)))
    for state, known in states[:0:-1]:
        try:
            return Document.load(state, updates[known:])
        except errors.DocumentCorrupt:
            continue
    return Document.load(b"", updates)
