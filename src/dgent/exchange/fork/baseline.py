"""What a fork held when it was made, or last merged: by that, what each side did since is told apart.

Of every record there is a proof of what it said, and of a block its card and its newest version. This is kept
in the fork, so it does not depend on how much history either store keeps, and the source knows nothing of it.
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
from dgent.blocks.record import BLOCK, ERASURE, PACK, REDACTION, SEEN, SNAPSHOT, VERSION
from dgent.errors import Corrupt
from dgent.exchange.copy import MARK
from dgent.exchange.fork.origin import ORIGIN
from dgent.exchange.snapshot import Moment
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
"""Records that are about a store itself: they are never carried to another."""
INNER = frozenset((VERSION.name, PACK.name, SNAPSHOT.name, ERASURE.name, REDACTION.name, SEEN.name))
"""Parts of a block's document, which its version stands for; and what an agent has seen of it."""


class Known(NamedTuple):
    """A record as it was: its schema, and the proof of what it said.

    Of a block also its card, its newest version that was merged, and that of the fork point: up to there,
    versions have the same numbers on both sides.
    """

    schema: str
    proof: bytes
    card: dict[str, Any] | None = None
    version: int = 0
    point: int = 0


Base = dict[str, Known]


def proof(datum: Datum, author: bool = True) -> bytes:
    """What a record says, apart from its numbers in a store and from when it was first there."""
    who = datum.author if author else None
    names = [datum.schema, datum.schema_version, who, datum.source, datum.parent_id]
    made = hashlib.blake2b(
        codec.canonical([names, sorted(datum.tags), datum.extra, datum.data]), digest_size=16
    )
    made.update(datum.content)
    return made.digest()


def known(datum: Datum, version: int, point: int) -> Known:
    """A record as a base keeps it."""
    card = dict(datum.data) if datum.schema == BLOCK.name else None
    return Known(datum.schema or "", proof(datum), card, version, point)


async def records(universe: Universe, seq: int) -> AsyncIterator[Datum]:
    """Every record as of a commit that can be in a base."""
    async with aclosing(Moment(universe, seq).records(EVERYTHING)) as found:
        async for datum in found:
            if datum.schema not in OWN and datum.schema not in INNER:
                yield datum


async def newest_versions(universe: Universe, seq: int) -> dict[str, int]:
    """The newest version of every block; it is never folded, so it is a record."""
    found: dict[str, int] = {}
    wanted = EVERYTHING.replace(schema=VERSION.name, content=False)
    async with aclosing(Moment(universe, seq).records(wanted)) as versions:
        async for each in versions:
            block, _, number = each.id.rpartition("/u/")
            if block and number.isdigit():
                found[block] = max(found.get(block, 0), int(number))
    return found


async def taken(universe: Universe) -> Base:
    """The base of a fork as it is now."""
    seq = await universe.seq()
    versions = await newest_versions(universe, seq)
    base: Base = {}
    async for datum in records(universe, seq):
        if datum.problem is None:
            version = versions.get(datum.id, 0)
            base[datum.id] = known(datum, version, version)
    return base


async def load(universe: Universe) -> tuple[Base, str]:
    """The base that a fork keeps, and the position of its home then; "" when that is not known."""
    base: Base = {}
    home = ""
    async for page in universe.iterate(EVERYTHING.replace(schema=BASE.name), raw=True):
        base.update(_unpack(page.content))
        home = home or str(page.data.get("home", ""))
    return base, home


async def save(universe: Universe, base: Base, home: str) -> None:
    """Keep another base instead of the one there is, whole or not at all."""
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


def _pack(rows: Iterable[tuple[str, Known]]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode([(id, *each) for id, each in rows]), 6)


_Row = tuple[str, str, bytes, dict[str, Any] | None, int, int]


def _unpack(content: bytes) -> Base:
    try:
        plain = zlib.decompressobj().decompress(content, MAX_BYTES)
        rows = msgspec.msgpack.decode(plain, type=list[_Row])
    except (zlib.error, msgspec.MsgspecError) as error:
        raise Corrupt(f"what the fork held at first cannot be read: {error}") from None
    return {row[0]: Known(*row[1:]) for row in rows}
