"""Very many new records in one commit: streamed into the tables instead of sent as one value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import asyncpg

from dgent.store.postgres.changes import with_ids
from dgent.store.postgres.format import FRESH
from dgent.store.postgres.proposal import Proposal
from dgent.store.postgres.sql import Texts
from dgent.store.row import Row

MANY = 1000
_DK, _SEQ, _AT = (Row._fields.index(name) for name in ("dk", "seq", "at"))
_ENTRY = ("ix", "key", "t", "dk", "id")


async def send(
    connection: asyncpg.Connection, texts: Texts, proposal: Proposal, writer: bytes, n: int
) -> tuple[int, int]:
    """Take the clock with everything but the new rows and entries, then stream those."""
    fresh, added = proposal.changes.fresh, proposal.changes.added
    proposal.changes.fresh, proposal.changes.added = [], []
    try:
        async with connection.transaction():
            await connection.execute(texts.patience)
            values = proposal.arguments(writer, n)
            seq, dk, at = await connection.fetchrow(texts.commit, *values)
            ahead, shift = seq - proposal.base, dk - FRESH
            await connection.copy_records_to_table(
                "datum",
                schema_name=texts.universe,
                columns=[*Row._fields, "trail"],
                records=_numbered(fresh, ahead, shift, at),
            )
            await connection.copy_records_to_table(
                "entry",
                schema_name=texts.universe,
                columns=list(_ENTRY),
                records=_shifted(with_ids(added, proposal.ids), shift),
            )
    finally:
        proposal.changes.fresh, proposal.changes.added = fresh, added
    return seq, at


def _numbered(rows: list[tuple[Any, ...]], ahead: int, shift: int, at: int) -> Iterator[list[Any]]:
    for row in rows:
        given = list(row[:-1])
        given[_DK] += shift
        given[_SEQ] += ahead
        given[_AT] = at
        yield given


def _shifted(entries: Sequence[tuple[Any, ...]], shift: int) -> Iterator[tuple[Any, ...]]:
    for ix, key, t, dk, id in entries:
        yield ix, key, t, dk + shift if dk < 0 else dk, id
