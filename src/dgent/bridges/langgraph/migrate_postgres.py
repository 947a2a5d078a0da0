"""Import the tables of LangGraph's saver and store for Postgres."""

from __future__ import annotations

import json
from typing import Any

from langgraph.checkpoint.serde.types import TASKS

from dgent.bridges.langgraph.migrate import (
    CHECKPOINTS,
    LINE,
    ORDERS,
    LanggraphImport,
    SourceCheckpoint,
)
from dgent.bridges.langgraph.migrate_items import read_object
from dgent.bridges.langgraph.opaque import DAMAGE, Raw, check_typed, load_typed
from dgent.config.secret import mask
from dgent.errors import InputError
from dgent.exchange.foreign.database import BATCH
from dgent.exchange.foreign.migration import Migration
from dgent.store.postgres.foreign import ForeignTables, open_tables
from dgent.store.sqlite.foreign import ForeignRow
from dgent.system.progress import Progress, ProgressReporter

WRITES, BLOBS, VECTORS = "checkpoint_writes", "checkpoint_blobs", "store_vectors"
MIGRATED = 4  # the version of checkpoints from which sends are values of a channel
_BLOBS = f"""
SELECT channel, type, blob FROM {BLOBS} WHERE thread_id = $1 AND checkpoint_ns = $2
    AND (channel, version) IN (SELECT key, value FROM jsonb_each_text($3::jsonb))"""
_SENDS = f"""
SELECT type, blob FROM {WRITES} WHERE thread_id = $1 AND checkpoint_id = $2 AND channel = $3
    ORDER BY task_path, task_id, idx"""


async def import_postgres(run: LanggraphImport, url: str, progress: Progress | None) -> Migration:
    """Import a database that is read in one transaction."""
    async with open_tables(url, ("checkpoints", WRITES, BLOBS, "store", VECTORS)) as tables:
        known = [name for name in (WRITES, "checkpoints", "store") if name in tables.columns]
        if not known:
            raise InputError(f"{mask(url)} has no tables of LangGraph's savers or stores", field="source")
        pace = ProgressReporter(progress, sum([await tables.count(name) for name in known]))
        for table in known:
            number = 0
            order = ORDERS["writes" if table == WRITES else table]
            async for some in tables.read(table, order, CHECKPOINTS if table == "checkpoints" else BATCH):
                rows = [ForeignRow(table, number + at, values) for at, values in enumerate(some, 1)]
                number += len(rows)
                await _take(run, tables, table, rows)
                pace.add(len(rows))
        if VECTORS in tables.columns and (count := await tables.count(VECTORS)):
            run.tally.leave(
                "vectors", VECTORS, 0, "vectors of pgvector are made anew when items are put", count
            )
        pace.end()
    return run.tally.done(mask(url), run.dry_run)


async def _take(run: LanggraphImport, tables: ForeignTables, table: str, rows: list[ForeignRow]) -> None:
    if table == WRITES:
        for row in rows:
            row.values["value"] = row.values.get("blob")
        await run.take_writes(rows)
    elif table == "store":
        await run.items.take(rows)
    else:
        found = []
        for row in rows:
            try:
                found.append(await _read_checkpoint(tables, row))
            except InputError as error:
                run.leave_checkpoint(row, error.message)
        await run.take_checkpoints(found)


async def _read_checkpoint(tables: ForeignTables, row: ForeignRow) -> SourceCheckpoint:
    """Return a checkpoint with the values of its channels, which are rows of their own."""
    values = row.values
    checkpoint, metadata = read_object(values.get("checkpoint")), read_object(values.get("metadata"))
    versions = checkpoint.get("channel_versions")
    inline = checkpoint.get("channel_values")
    channels: dict[str, Any] = dict(inline) if isinstance(inline, dict) else {}
    size = len(values["checkpoint"])
    if isinstance(versions, dict) and BLOBS in tables.columns:
        thread, namespace, _ = (values[name] for name in LINE)
        for blob in await tables.fetch(_BLOBS, thread, namespace, json.dumps(versions)):
            if blob["type"] != "empty":
                channels[blob["channel"]] = _load(blob["type"], blob["blob"])
                size += len(blob["blob"] or b"")
        parent, version = values.get("parent_checkpoint_id"), checkpoint.get("v")
        if parent and type(version) is int and version < MIGRATED and WRITES in tables.columns:
            sends = await tables.fetch(_SENDS, thread, parent, TASKS)
            if sends:
                try:
                    channels[TASKS] = [_load(each["type"], each["blob"]) for each in sends]
                    versions[TASKS] = max(versions.values())
                except DAMAGE as error:
                    raise InputError(f"its versions are damaged: {error!s:.100}") from None
    return SourceCheckpoint(row, "msgpack", {**checkpoint, "channel_values": channels}, metadata, size)


def _load(kind: Any, data: Any) -> Any:
    wrong = check_typed(kind, data)
    if wrong is not None:
        raise InputError(wrong)
    # Only msgpack can be taken apart and put together again; anything else stays as it is.
    return load_typed(kind, data) if kind in ("msgpack", "null", "bytes") else Raw(kind, data)
