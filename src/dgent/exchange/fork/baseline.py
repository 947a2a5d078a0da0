"""The base of a merge: the content of a fork when it was made or last merged.

It has a hash of every record, and of a block its header and its newest version. It is stored in the fork, so
it does not depend on how much history either store keeps, and the source does not know about it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from dgent import codec
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


BASE = Schema("dgent.fork.base", contract=BaseRecord, history="none", feed=False)
OWN = frozenset((MARK.name, ORIGIN.name, BASE.name))
"""Schemas of records about a store itself, which are never copied to another."""
INNER = frozenset(each.name for each in (VERSION, PACK, SNAPSHOT, ERASURE, REDACTION, SEEN, TEXT))
"""Schemas of the parts of a block's document, which its version stands for, and of seen marks."""


class BaseEntry(NamedTuple):
    """A record of the base: its schema and the hash of its content.

    Of a block also its header (`card`), its newest merged version, and that of the fork point: up to there,
    versions have the same numbers on both sides.
    """

    schema: str
    fingerprint: bytes
    card: dict[str, Any] | None = None
    version: int = 0
    point: int = 0


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
    rows = list(base.items())
    parts = [rows[start : start + PAGE_RECORDS] for start in range(0, len(rows), PAGE_RECORDS)] or [[]]
    ops: list[Op] = []
    for part, some in enumerate(parts):
        datum, _ = write.new_datum(
            universe.contracts,
            BaseRecord(part, "" if part else home),
            id=f"{BASE.name}/{part}",
            author="system",
            content=_pack(some),
        )
        ops.append(Put(datum, None, None, True))
    old = await universe.query(EVERYTHING.replace(schema=BASE.name, content=False), raw=True)
    mine = {op.id for op in ops}
    ops += [Delete(each.id) for each in old if each.id not in mine]
    if ops:
        await universe.commit(ops, note="fork")


def _pack(rows: Iterable[tuple[str, BaseEntry]]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode([(id, *each) for id, each in rows]), 6)


_Row = tuple[str, str, bytes, dict[str, Any] | None, int, int]


def _unpack(content: bytes) -> Base:
    try:
        plain = zlib.decompressobj().decompress(content, MAX_BYTES)
        rows = msgspec.msgpack.decode(plain, type=list[_Row])
    except (zlib.error, msgspec.MsgspecError) as error:
        raise Corrupt(f"the base of the fork cannot be read: {error}") from None
    return {row[0]: BaseEntry(*row[1:]) for row in rows}
