"""The base of a merge: the content of a fork when it was made or last merged.

It has a hash of every record, and of a block its header and its newest version. It is stored in the fork, so
it does not depend on how much history either store keeps, and the source does not know about it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from dgent import codec, ids
from dgent.blocks.record import BLOCK, ERASURE, PACK, REDACTION, SEEN, SNAPSHOT, TEXT, VERSION
from dgent.errors import Corrupt
from dgent.exchange.copy import MARK
from dgent.exchange.fork.origin import ORIGIN
from dgent.exchange.snapshot import Snapshot
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import Delete, Op, Put
from dgent.universe import write
from dgent.universe.universe import Universe

PAGE_RECORDS = 2000
MAX_BYTES = 64 * 2**20
EVERYTHING = Query(limit=None, descending=False)


@dataclass(frozen=True)
class BaseRecord:
    """Some of the records of a base, packed in the content.

    The first also has the position of the store that the fork was made from, or last merged into.
    """

    part: int
    home: str = ""


@dataclass(frozen=True)
class PulledRecord:
    """Some of the records of a base that a fork has with a store it pulled from, packed in the content.

    `peer` identifies that store; `position` is its position then.
    """

    peer: str
    part: int
    position: str = ""


BASE = Schema("dgent.fork.base", contract=BaseRecord, history="none", feed=False)
PULLED = Schema("dgent.fork.pulled", contract=PulledRecord, history="none", feed=False)
OWN = frozenset((MARK.name, ORIGIN.name, BASE.name, PULLED.name, "blob.content", "blob.orphan"))
"""Schemas of records about a store itself, which are never copied to another."""
INNER = frozenset(each.name for each in (VERSION, PACK, SNAPSHOT, ERASURE, REDACTION, SEEN, TEXT))
"""Schemas of the parts of a block's document, which its version stands for, and of seen marks."""


class BaseEntry(NamedTuple):
    """A record of the base: its schema and the hash of its content.

    Of a block also its header (`card`), its newest merged version, and that of the fork point: up to there,
    versions have the same numbers on both sides. `synced` is the version here after the last pull, which only
    the base of a pull has.
    """

    schema: str
    fingerprint: bytes
    card: dict[str, Any] | None = None
    version: int = 0
    point: int = 0
    synced: int = 0


Base = dict[str, BaseEntry]


def hash_record(datum: Datum, author: bool = True) -> bytes:
    """Return the hash of a record's content, without rev, seq and creation time."""
    who = datum.author if author else None
    names = [datum.schema, datum.schema_version, who, datum.source, datum.parent_id]
    made = hashlib.blake2b(
        codec.canonical([names, sorted(datum.tags), datum.extra, datum.data]), digest_size=16
    )
    made.update(datum.content)
    return made.digest()


def make_entry(datum: Datum, version: int, point: int) -> BaseEntry:
    """Return the base entry of a record."""
    card = dict(datum.data) if datum.schema == BLOCK.name else None
    return BaseEntry(datum.schema or "", hash_record(datum), card, version, point)


async def iterate_records(universe: Universe, seq: int) -> AsyncIterator[Datum]:
    """Yield every record as of a commit that belongs in a base."""
    async with aclosing(Snapshot(universe, seq).records(EVERYTHING)) as found:
        async for datum in found:
            if datum.schema not in OWN and datum.schema not in INNER:
                yield datum


async def find_newest_versions(universe: Universe, seq: int) -> dict[str, int]:
    """Return the newest version of every block; it is never packed, so it has its own record."""
    found: dict[str, int] = {}
    wanted = EVERYTHING.replace(schema=VERSION.name, content=False)
    async with aclosing(Snapshot(universe, seq).records(wanted)) as versions:
        async for each in versions:
            block, _, number = each.id.rpartition("/u/")
            if block and number.isdigit():
                found[block] = max(found.get(block, 0), int(number))
    return found


async def capture(universe: Universe) -> Base:
    """Return the base of a fork as it is now."""
    seq = await universe.seq()
    versions = await find_newest_versions(universe, seq)
    base: Base = {}
    async for datum in iterate_records(universe, seq):
        if datum.problem is None:
            version = versions.get(datum.id, 0)
            base[datum.id] = make_entry(datum, version, version)
    return base


async def load(universe: Universe) -> tuple[Base, str]:
    """Load the stored base of a fork, and the position of its home then; "" if that is unknown."""
    base: Base = {}
    home = ""
    async for page in universe.iterate(EVERYTHING.replace(schema=BASE.name), raw=True):
        base.update(_unpack(page.content))
        home = home or str(page.data.get("home", ""))
    return base, home


async def save(universe: Universe, base: Base, home: str) -> None:
    """Replace the stored base in one commit."""
    universe.register(BASE)
    rows = [(id, *each[:5]) for id, each in base.items()]
    pages = {
        f"{BASE.name}/{part}": (BaseRecord(part, "" if part else home), content)
        for part, content in enumerate(_pack_pages(rows))
    }
    await _replace(universe, EVERYTHING.replace(schema=BASE.name), pages)


async def load_pulled(universe: Universe, peer: str) -> tuple[Base, str]:
    """Load the base that a fork has with a store it pulled from, and the position of that store then."""
    base: Base = {}
    position = ""
    async for page in universe.iterate(_pulled_from(peer), raw=True):
        base.update(_unpack(page.content, _PulledRow))
        position = position or str(page.data.get("position", ""))
    return base, position


async def save_pulled(universe: Universe, peer: str, base: Base, position: str) -> None:
    """Replace the base that a fork has with a store it pulled from, in one commit."""
    universe.register(PULLED)
    rows = [(id, *each) for id, each in base.items()]
    pages = {
        ids.compose(PULLED.name, peer, str(part)): (PulledRecord(peer, part, position), content)
        for part, content in enumerate(_pack_pages(rows))
    }
    await _replace(universe, _pulled_from(peer), pages)


def _pulled_from(peer: str) -> Query:
    return EVERYTHING.replace(schema=PULLED.name, prefix=ids.compose(PULLED.name, peer, ""))


async def _replace(universe: Universe, old: Query, pages: Mapping[str, tuple[object, bytes]]) -> None:
    ops: list[Op] = []
    for id, (record, content) in pages.items():
        datum, _ = write.new_datum(universe.contracts, record, id=id, author="system", content=content)
        ops.append(Put(datum, None, None, True))
    found = await universe.query(old.replace(content=False), raw=True)
    ops += [Delete(each.id) for each in found if each.id not in pages]
    await universe.commit(ops, note="fork")


def _pack_pages(rows: Sequence[tuple[Any, ...]]) -> list[bytes]:
    parts = [rows[start : start + PAGE_RECORDS] for start in range(0, len(rows), PAGE_RECORDS)] or [[]]
    return [zlib.compress(msgspec.msgpack.encode(part), 6) for part in parts]


_Row = tuple[str, str, bytes, dict[str, Any] | None, int, int]
_PulledRow = tuple[str, str, bytes, dict[str, Any] | None, int, int, int]


def _unpack(content: bytes, row: Any = _Row) -> Base:
    try:
        plain = zlib.decompressobj().decompress(content, MAX_BYTES)
        rows = msgspec.msgpack.decode(plain, type=list[row])
    except (zlib.error, msgspec.MsgspecError) as error:
        raise Corrupt(f"the base of the fork cannot be read: {error}") from None
    return {each[0]: BaseEntry(*each[1:]) for each in rows}
