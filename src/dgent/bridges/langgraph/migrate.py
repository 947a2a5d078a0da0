"""Import what LangGraph's own savers and stores keep: checkpoints, writes, items and their vectors.

A record has the id that `DgentSaver` and `DgentStore` give it, so what is there is found, and a second run
writes nothing. Writes come before their checkpoints: a thread that is half imported has no half steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dgent.bridges.langgraph import item as items
from dgent.bridges.langgraph import record
from dgent.bridges.langgraph.checkpoint import NewCheckpoint
from dgent.bridges.langgraph.content import NODE, references
from dgent.bridges.langgraph.migrate_items import NOTE, ItemImport, read_object, read_texts
from dgent.bridges.langgraph.opaque import (
    DAMAGE,
    DUMPS,
    check_typed,
    check_versions,
    find_preview,
    load_typed,
)
from dgent.bridges.langgraph.record import StoredValue, StoredWrite, StoredWrites
from dgent.bridges.langgraph.thread import ATTEMPTS, nodes_of
from dgent.config.secret import mask
from dgent.errors import Conflict, InputError, VersionConflict
from dgent.exchange.foreign.database import open_database, read_batches
from dgent.exchange.foreign.migration import (
    DIFFERENT,
    FORGOTTEN,
    Migration,
    MigrationTally,
    commit_checked,
    find_forgotten,
)
from dgent.model.datum import Datum
from dgent.store.backend import Check, Op, Put
from dgent.store.sqlite.foreign import ForeignRow
from dgent.system.progress import Progress, ProgressReporter
from dgent.universe.universe import Universe

CHECKPOINTS = 32  # rows at once
MAX_BYTES = 8 << 20  # of checkpoints in a commit
LINE = ("thread_id", "checkpoint_ns", "checkpoint_id")
ORDERS: dict[str, tuple[str, ...]] = {
    "writes": (*LINE, "task_id", "idx"),
    "checkpoints": LINE,
    "store": ("updated_at", "prefix", "key"),
}


class SourceCheckpoint(NamedTuple):
    """A checkpoint of a saver; objects in its values are opaque."""

    row: ForeignRow
    kind: str  # of its serializer
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    size: int


async def import_langgraph(
    universe: Universe,
    source: str,
    *,
    distance: str = "cosine",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Migration:
    """Import a file or database of LangGraph's savers and stores, which stays as it is.

    `distance` is that of the index that the vectors of the store were made for. Nothing is unpickled.
    """
    if distance not in items.METRICS:
        raise InputError(f"{distance!r} is not a valid distance (use {', '.join(items.METRICS)})")
    run = LanggraphImport(universe, distance, dry_run)
    if source.startswith(("postgres://", "postgresql://")):
        from dgent.bridges.langgraph.migrate_postgres import import_postgres  # another engine

        return await import_postgres(run, source, progress)
    async with open_database(Path(source)) as database:
        known = [name for name in ORDERS if name in database.tables]
        if not known:
            raise InputError(
                f"{source} has no tables of LangGraph's savers or stores (checkpoints, writes, store)",
                field="source",
            )
        pace = ProgressReporter(progress, sum(map(database.count, known)))
        async for rows in read_batches(database, "writes", ORDERS["writes"], run.tally, pace):
            await run.take_writes(rows)
        async for rows in read_batches(
            database, "checkpoints", ORDERS["checkpoints"], run.tally, pace, CHECKPOINTS
        ):
            await run.take_checkpoints(run.read_checkpoints(rows))
        async for rows in read_batches(database, "store", ORDERS["store"], run.tally, pace):
            await run.items.take(rows, database if "store_vectors" in database.tables else None)
        pace.end()
    return run.tally.done(mask(source), dry_run)


class LanggraphImport:
    """One import into a universe."""

    def __init__(self, universe: Universe, distance: str, dry_run: bool) -> None:
        universe.register(record.CHECKPOINT, record.WRITES, record.CONTENT)
        self._universe, self.dry_run = universe, dry_run
        self.tally = MigrationTally()
        self.items = ItemImport(universe, self.tally, distance, dry_run)

    # -- writes -----------------------------------------------------------------------------

    async def take_writes(self, rows: Sequence[ForeignRow]) -> None:
        """Import rows of writes: those of a task at a checkpoint are one record."""
        groups: dict[str, tuple[tuple[str, str, str], StoredWrites]] = {}
        places: dict[str, ForeignRow] = {}
        for row in rows:
            try:
                (thread, namespace, id, task), write = _read_write(row)
                checkpoint = record.line_prefix(thread, namespace) + id
                key = record.writes_id(checkpoint, task)
                path = row.values.get("task_path") or ""
                new = (checkpoint, thread, namespace), StoredWrites(task, str(path), [])
                record.make_writes(checkpoint, thread, namespace, new[1]).check()
            except InputError as error:
                self.tally.leave("writes", row.table, row.number, error.message)
                continue
            groups.setdefault(key, new)[1].writes.append(write)
            places[key] = row
        for _ in range(ATTEMPTS):
            try:
                return await self._put_writes(groups, places)
            except VersionConflict:
                continue
        raise Conflict("the writes of the imported threads keep changing")

    async def _put_writes(
        self,
        groups: Mapping[str, tuple[tuple[str, str, str], StoredWrites]],
        places: Mapping[str, ForeignRow],
    ) -> None:
        there = await self._universe.get_many(list(groups), raw=True)
        gone = await find_forgotten(self._universe, list(groups))
        ops: list[Op] = []
        counts: list[tuple[str, int]] = []
        for (key, (name, new)), found in zip(groups.items(), there, strict=True):
            if key in gone:
                continue
            old = [] if found is None else record.read_writes(found).writes
            known = {each.index for each in old}
            added = [each for each in new.writes if each.index not in known]
            counts += [("written", len(added)), ("already_there", len(new.writes) - len(added))]
            if added:
                whole = StoredWrites(new.task, new.path, [*old, *added])
                ops.append(Put(record.make_writes(*name, whole), 0 if found is None else found.rev))
        if not self.dry_run:
            await commit_checked(self._universe, ops, NOTE)
        for verdict, number in counts:
            self.tally.count("writes", verdict, number)
        for key in gone:
            row, (_, new) = places[key], groups[key]
            self.tally.leave("writes", row.table, row.number, FORGOTTEN, len(new.writes))

    # -- checkpoints ------------------------------------------------------------------------

    def read_checkpoints(self, rows: Iterable[ForeignRow]) -> list[SourceCheckpoint]:
        """Return the checkpoints of rows that the saver for SQLite wrote."""
        found = []
        for row in rows:
            kind: Any = row.values.get("type")
            raw: Any = row.values.get("checkpoint")
            wrong = check_typed(kind, raw)
            if wrong is not None:
                self.leave_checkpoint(row, wrong)
                continue
            try:
                metadata = read_object(row.values.get("metadata"))
                found.append(SourceCheckpoint(row, kind, load_typed(kind, raw), metadata, len(raw)))
            except InputError as error:
                self.leave_checkpoint(row, f"its metadata {error.message}")
        return found

    async def take_checkpoints(self, found: Iterable[SourceCheckpoint]) -> None:
        """Import checkpoints with the contents that their parents do not have."""
        new: dict[str, tuple[NewCheckpoint, ForeignRow]] = {}
        size = 0
        for each in found:
            try:
                made = self._make_checkpoint(each)
            except InputError as error:
                self.leave_checkpoint(each.row, error.message)
                continue
            new[made.id] = made, each.row
            size += each.size
            if size >= MAX_BYTES:
                await self._put_new(new)
                new, size = {}, 0
        await self._put_new(new)

    def _make_checkpoint(self, found: SourceCheckpoint) -> NewCheckpoint:
        values, checkpoint = found.row.values, found.checkpoint
        thread, namespace, id = read_texts(values, LINE)
        parent = values.get("parent_checkpoint_id")
        if not isinstance(checkpoint, dict) or checkpoint.get("id") != id:
            raise InputError("its value is not a checkpoint with its id")
        versions: Any = checkpoint.get("channel_versions")
        channels: Any = checkpoint.get("channel_values")
        if not check_versions(versions) or not isinstance(channels, dict):
            raise InputError("its channels are damaged")
        if parent is not None and not isinstance(parent, str):
            raise InputError("its parent is not a text")
        for name in channels:
            if name not in versions:
                self.tally.report(
                    found.row.table,
                    found.row.number,
                    f"the channel {name!r:.60} has a value and no version; its value is left out",
                )
        try:
            made = NewCheckpoint(
                DUMPS[found.kind],
                (thread, namespace),
                parent or None,
                checkpoint,
                found.metadata,
                versions,
                find_preview(channels),
            )
            made.make({})[0].check()
        except DAMAGE as error:
            raise InputError(f"it cannot be stored: {error!s:.120}") from None
        return made

    async def _put_new(self, new: Mapping[str, tuple[NewCheckpoint, ForeignRow]]) -> None:
        """Count the checkpoints that are there, and store the others."""
        counted: set[str] = set()
        for _ in range(ATTEMPTS):
            left = {id: each for id, each in new.items() if id not in counted}
            there = await self._universe.get_many(list(left), raw=True)
            gone = await find_forgotten(self._universe, list(left))
            known = {id: found for id, found in zip(left, there, strict=True) if found is not None}
            try:
                missing = [each for id, each in left.items() if id not in known and id not in gone]
                await self._put_missing(missing, counted)
            except VersionConflict:
                continue
            for id in gone:
                self.leave_checkpoint(left[id][1], FORGOTTEN)
            for id, found in known.items():
                made, row = left[id]
                if record.read_checkpoint(found) == made.make({})[1]:
                    self.tally.count("checkpoints", "already_there")
                else:
                    self.leave_checkpoint(row, DIFFERENT)
            return
        raise Conflict("the checkpoints of the imported threads keep changing")

    async def _put_missing(
        self, missing: Sequence[tuple[NewCheckpoint, ForeignRow]], counted: set[str]
    ) -> None:
        """Store checkpoints in one commit; if one of them cannot be stored, each in its own."""
        try:
            if not self.dry_run:
                await commit_checked(self._universe, await self._plan([made for made, _ in missing]), NOTE)
        except InputError as error:
            if len(missing) > 1:
                for each in missing:
                    await self._put_missing([each], counted)
                return
            self.leave_checkpoint(missing[0][1], error.message)
        else:
            if missing:
                self.tally.count("checkpoints", "written", len(missing))
        counted.update(made.id for made, _ in missing)

    async def _plan(self, entries: Sequence[NewCheckpoint]) -> list[Op]:
        """Return the ops that store checkpoints, each after its parent, and their contents once."""
        own = {each.id for each in entries}
        parents = list(
            dict.fromkeys(each.parent for each in entries if each.parent and each.parent not in own)
        )
        stored = [each for each in await self._universe.get_many(parents, raw=True) if each is not None]
        above: dict[str | None, Mapping[str, StoredValue]] = {
            each.id: record.read_checkpoint(each).values for each in stored
        }
        # Whoever prunes a parent away may take its contents along.
        ops: list[Op] = [Check(each.id, each.rev) for each in stored if each.rev is not None]
        contents: dict[str, Datum] = {}
        for entry in entries:
            datum, made = entry.make({})
            known = set(references(above.get(entry.parent, {}).values()))
            new = set(references(made.values.values())) - known
            new |= {each for ref in new if ref[:1] == NODE for each in nodes_of(entry.contents[ref])} - known
            for ref in new:
                content = record.make_content(made, ref, entry.contents[ref])
                contents.setdefault(content.id, content)
            ops.append(Put(datum, 0))
            above[entry.id] = made.values
        return [*map(Put, contents.values()), *ops]

    def leave_checkpoint(self, row: ForeignRow, reason: str) -> None:
        """Count a checkpoint as left out."""
        name = ", ".join(str(row.values.get(each))[:60] for each in (LINE[0], LINE[2]))
        self.tally.leave("checkpoints", row.table, row.number, f"{reason} ({name})")


def _read_write(row: ForeignRow) -> tuple[list[str], StoredWrite]:
    values = row.values
    kind, data, index = values.get("type"), values.get("value"), values.get("idx")
    texts = read_texts(values, (*LINE, "task_id"))
    (channel,) = read_texts(values, ("channel",))
    if type(index) is not int:
        raise InputError("its idx is not a number")
    wrong = check_typed(kind, data)
    if wrong is not None:
        raise InputError(f"{wrong} ({texts[0]:.60}, {texts[2]:.60}, {channel:.60})")
    return texts, StoredWrite(index, channel, str(kind), data or b"")
