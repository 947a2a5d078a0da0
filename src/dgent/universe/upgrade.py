"""Rewriting old records in the newest version of their schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from dgent.errors import Conflict, Unreadable
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import Put

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

BATCH = 500


class Upgraded(msgspec.Struct):
    """What `upgrade_all` did, or would do in a dry run."""

    schema: str
    version: int
    seen: int = 0
    upgraded: int = 0
    current: int = 0
    newer: int = 0
    changed_meanwhile: int = 0
    failed: dict[str, str] = msgspec.field(default_factory=dict)


async def upgrade_all(
    universe: Universe,
    schema: Schema[object],
    dry_run: bool,
    progress: Callable[[int, int], None] | None,
) -> Upgraded:
    """Rewrite every older record of a schema; stopped at any point, the next run goes on from there."""
    report = Upgraded(schema.name, schema.version)
    everything = Query(schema=schema.name, limit=None)
    total = await universe.count(everything)
    batch: list[Put] = []
    async for datum in universe.iterate(everything, raw=True):
        report.seen += 1
        op = _upgraded(schema, datum, report)
        if op is not None:
            batch.append(op)
        if len(batch) == BATCH:
            await _flush(universe, batch, report, dry_run)
            batch = []
        if progress is not None and report.seen % BATCH == 0:
            progress(report.seen, total)
    await _flush(universe, batch, report, dry_run)
    if progress is not None:
        progress(report.seen, total)
    return report


def _upgraded(schema: Schema[object], datum: Datum, report: Upgraded) -> Put | None:
    version = datum.schema_version or schema.version
    if version == schema.version:
        report.current += 1
        return None
    if version > schema.version:
        report.newer += 1
        return None
    try:
        data = schema.upgrade(datum.data, version)
        schema.decode(data)
    except Unreadable as error:
        report.failed[datum.id] = str(error)
        return None
    return Put(datum.replace(data=data, schema_version=schema.version), datum.rev)


async def _flush(universe: Universe, batch: Sequence[Put], report: Upgraded, dry_run: bool) -> None:
    if dry_run or not batch:
        report.upgraded += len(batch)
        return
    try:
        await universe.commit(batch, kind="upgrade")
        report.upgraded += len(batch)
    except Conflict:
        if len(batch) == 1:
            # Someone else wrote it meanwhile; the next run looks at what they wrote.
            report.changed_meanwhile += 1
            return
        for op in batch:
            await _flush(universe, [op], report, dry_run)
