"""Import and export the graph as the file of the reference memory server, `memory.jsonl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from dgent.errors import Conflict
from dgent.exchange import folders
from dgent.exchange.foreign import files
from dgent.exchange.foreign.report import ExportResult, ImportResult, ImportTally
from dgent.graph.graph import ATTEMPTS, MAX_READS, Graph
from dgent.graph.record import Entity, Relation, entity_id, relation_id
from dgent.graph.wire import EntityJSON, RelationJSON, entity_json, relation_json
from dgent.model.crystal import Crystal
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

FILE = "memory"
KINDS: dict[str, type[EntityJSON | RelationJSON]] = {"entity": EntityJSON, "relation": RelationJSON}
ExistingEntity: TypeAlias = Literal["skip", "merge"]
"""A node that is or was there already stays as it is, or gets the observations that it lacks."""


async def import_graph(
    universe: Universe,
    path: Path,
    *,
    existing: ExistingEntity = "skip",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportResult:
    """Import a file in one commit; importing it again changes nothing.

    With `existing="skip"` what is here, or was deleted here, stays as it is; with "merge" entities get the
    observations that they lack, and deleted ones come back. Lines that cannot be used are reported.
    """
    Graph(universe)
    pace = ProgressReporter(progress, path.stat().st_size if path.is_file() else None)
    source = await in_thread(lambda stopped: files.read_lines(path, pace, stopped))
    tx = universe.transaction()

    async def work(current: Transaction) -> ImportTally:
        nonlocal tx
        tx = current
        tx.reads = MAX_READS
        run = _GraphImport(source, universe, tx, existing == "merge", dry_run)
        await run.put_all()
        return run.tally

    tally = await universe.transact(work, attempts=ATTEMPTS, note=f"import {path.name}")
    pace.end()
    done = tx.committed
    return tally.done(done.seq if done is not None and done.written else None, dry_run)


class _GraphImport:
    """One import of a file: the records in it by their ids, with the number of the line of each."""

    def __init__(
        self, source: files.SourceFile, universe: Universe, tx: Transaction, merges: bool, dry_run: bool
    ) -> None:
        self.tally = ImportTally()
        self._universe, self._tx, self._merges, self._dry_run = universe, tx, merges, dry_run
        self._records: dict[str, Entity | Relation] = {}
        self._lines: dict[str, int] = {}
        for line in source.lines:
            try:
                self._read(line)
            except msgspec.ValidationError as error:
                self._skip(line.number, f"it is not a valid {(line.given or {})['type']}: {error}"[:200])

    def _read(self, line: files.SourceLine) -> None:
        if line.given is None:
            self._skip(line.number, line.wrong)
            return
        kind = KINDS.get(name) if isinstance(name := line.given.get("type"), str) else None
        if kind is None:
            self._skip(line.number, f"its type is {name!r:.60}, not 'entity' or 'relation'")
            return
        record = msgspec.convert(line.given, kind).record()
        id = entity_id(record.name) if isinstance(record, Entity) else relation_id(record)
        earlier = self._records.get(id)
        if earlier is not None:
            self._skip(line.number, f"line {self._lines[id]} has it already; it gets what this one adds")
            record = _merge(earlier, record)
        self._records[id] = record
        self._lines.setdefault(id, line.number)

    def _skip(self, number: int, reason: str) -> None:
        self.tally.count("skipped")
        self.tally.report(FILE, number, reason)

    async def put_all(self) -> None:
        """Put the records into the transaction."""
        ids = list(self._records)
        stored = dict(zip(ids, await self._tx.get_many(ids), strict=True))
        missing = [id for id in ids if stored[id] is None]
        deleted = set() if self._merges else await _list_deleted(self._universe, missing)
        for id, record in self._records.items():
            found = stored[id]
            if id in deleted:
                self._skip(self._lines[id], "it was deleted here, and stays so")
            elif found is None:
                self.tally.count("added")
                if not self._dry_run:
                    await self._tx.remember(record, id=id)
            elif isinstance(found, Crystal) and type(found.value) is type(record):
                await self._put_over(found, record)
            else:
                self._skip(self._lines[id], f"{id!r:.80} is a record that is not of the graph")

    async def _put_over(self, found: Crystal[Any], record: Entity | Relation) -> None:
        """Put a record of the file over one that is here."""
        merged = _merge(found.value, record)
        if record == found.value or (self._merges and merged == found.value):
            self.tally.count("unchanged")
        elif not self._merges:
            self._skip(self._lines[found.id], "it is here with other content, and stays so")
        else:
            self.tally.count("changed")
            if not self._dry_run:
                await self._tx.update(found, observations=merged.observations)


async def _list_deleted(universe: Universe, ids: list[str]) -> set[str]:
    """Return those of some missing records that were there before."""
    ranks = await universe.backend.ranks(ids)
    return {id for id, rank in zip(ids, ranks, strict=True) if rank is not None}


def _merge(first: Any, second: Any) -> Any:
    """Return a record with the observations of both."""
    if not isinstance(first, Entity):
        return first
    observations = tuple(dict.fromkeys((*first.observations, *second.observations)))
    return Entity(first.name, first.entity_type, observations)


async def export_graph(universe: Universe, path: Path, *, replace: bool = False) -> ExportResult:
    """Write the graph as of one moment; an existing file is refused unless `replace`."""
    folders.check_path(path, "path")
    if path.exists() and not replace:
        raise Conflict(f"{path} already exists", hint="name a new file, or say that it may be replaced")
    seq = await universe.seq()
    part = await Graph(universe).read(seq)
    lines = [{"type": "entity", **entity_json(each)} for each in part.entities]
    lines += [{"type": "relation", **relation_json(each)} for each in part.relations]
    size = await in_thread(lambda _: files.write_lines(path, map(files.encode_line, lines)))
    return ExportResult(str(path), {path.name: len(lines)}, seq, size)
