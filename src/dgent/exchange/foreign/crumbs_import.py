"""Import a folder of the original crumbs program into a cupboard.

Everything is imported in one commit or not at all; only earlier versions of stashes are separate commits
before it. Importing the same folder again changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from dgent.cupboard import batch
from dgent.cupboard.builtin import METADATA_SCHEMAS, schema_id
from dgent.cupboard.change import Changeset
from dgent.cupboard.cupboard import Cupboard
from dgent.cupboard.definition import Definitions
from dgent.cupboard.errors import PropertyNotFound
from dgent.cupboard.record import (
    CrumbRecord,
    LinkRecord,
    MetadataRecord,
    SchemaRecord,
    TrailRecord,
)
from dgent.cupboard.tables.metadata import is_schema_name
from dgent.errors import InputError, NotFound
from dgent.exchange.folders import check_path, translate_errors
from dgent.exchange.foreign import files, links, stash_history
from dgent.exchange.foreign.definitions import (
    Naming,
    Unfit,
    decode_value,
    import_definitions,
)
from dgent.exchange.foreign.fields import (
    DEFINITIONS,
    FILES,
    NOTE,
    SourceRow,
    parse_row,
    read_times,
)
from dgent.exchange.foreign.incoming import ImportRun, group_newest_first, note_of
from dgent.exchange.foreign.origin import make_extra
from dgent.exchange.foreign.report import Existing, ImportResult, ImportTally
from dgent.exchange.foreign.stash_history import HistoryImport, StashHistory
from dgent.model.ref import Ref
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import Stopped, in_thread


class CrumbsFolder(msgspec.Struct):
    """A folder as it was read: valid rows, invalid lines, and lines with a repeated id."""

    rows: dict[str, list[SourceRow]]
    changed_at: dict[str, datetime]
    bad: list[tuple[str, files.SourceLine, str]]
    twice: list[tuple[str, files.SourceLine, str]]


async def import_folder(
    cupboard: Cupboard,
    path: Path,
    *,
    existing: Existing = "newer",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportResult:
    """Import a folder of `crumbs.jsonl` and related files; problems are reported, and nothing is lost.

    `existing` decides about records that exist with other content: the newer one wins, they stay, or the
    folder's replace them.
    """
    pace = ProgressReporter(progress)
    folder = await in_thread(lambda stopped: read_folder(path, pace, stopped))
    plan = _FolderImport(folder, existing)
    await plan.compare(cupboard)
    note = note_of(path)
    seq: int | None = None
    if any(each.behind and len(each.history.versions) > 1 for each in plan.history_imports):
        # A dry run finds the stashes that can be imported.
        await batch.change(cupboard, plan.run, note, dry_run=True)
        if not dry_run:
            seq = await stash_history.replay(cupboard, plan.usable, lambda: pace.add(0))
    tally, last = await batch.change(cupboard, plan.run, note, dry_run=dry_run)
    pace.end()
    return tally.done(last or seq, dry_run)


# -- reading ------------------------------------------------------------------------------


def read_folder(path: Path, pace: ProgressReporter, stopped: Stopped) -> CrumbsFolder:
    """Read the files of a folder, or one file, each line as a row or with its problem."""
    check_path(path, "path")
    with translate_errors(path):
        there = _files(path)
        pace.total = sum(each.stat().st_size for each in there.values())
    folder = CrumbsFolder({name: [] for name in FILES}, {}, [], [])
    for name, each in there.items():
        read = files.read_lines(each, pace, stopped)
        folder.changed_at[name] = read.changed_at
        rows = []
        for line in read.lines:
            try:
                if line.given is None:
                    raise InputError(line.wrong)
                rows.append(parse_row(name, line))
            except InputError as error:
                folder.bad.append((name, line, error.message))
        # Repeated values are resolved later, when it is known which of them are valid.
        folder.rows[name] = rows if name == "crumb_properties" else list(_drop_repeated(folder, name, rows))
    return folder


def _files(path: Path) -> dict[str, Path]:
    if path.is_file() and path.suffix == ".jsonl" and path.stem in FILES:
        return {path.stem: path}
    if not path.exists():
        raise NotFound(f"the folder {path} does not exist", path=str(path))
    there = {name: path / f"{name}.jsonl" for name in FILES if (path / f"{name}.jsonl").exists()}
    if not there:
        known = ", ".join(f"{name}.jsonl" for name in FILES)
        raise InputError(f"{path} has none of the files of a cupboard", hint=f"they are called {known}")
    return there


def _drop_repeated(folder: CrumbsFolder, file: str, rows: list[SourceRow]) -> Iterator[SourceRow]:
    """Yield the rows without those that another row of the same id replaces."""

    def key(row: SourceRow) -> Any:
        return next(iter(row.fields.values()))

    def age(row: SourceRow) -> Any:
        return -row.line.number if file in DEFINITIONS else row.fields.get("updated_at", 0)

    for winner, *others in group_newest_first(rows, key, age).values():
        yield winner
        for other in others:
            if other.line.given != winner.line.given:
                folder.twice.append(
                    (file, other.line, f"line {winner.line.number} has the same id and is used instead")
                )


# -- importing ----------------------------------------------------------------------------


class _FolderImport:
    """One import of a folder; `run` is repeated after a conflict."""

    def __init__(self, folder: CrumbsFolder, existing: Existing) -> None:
        self.folder, self.existing = folder, existing
        self.rows, self.changed_at = folder.rows, folder.changed_at
        self.histories, self.orphans = stash_history.read_histories(folder.rows, folder.changed_at)
        self.history_imports: list[HistoryImport] = []
        self.usable: list[HistoryImport] = []

    async def compare(self, cupboard: Cupboard) -> None:
        """Compare the histories of the stashes with the stored ones."""
        self.history_imports = [
            await stash_history.compare_history(cupboard, history, self.existing)
            for history in self.histories
        ]

    async def run(self, changeset: Changeset) -> ImportTally:
        """Put everything into a changeset."""
        run = ImportRun(changeset, self.existing, {name: f"{name}.jsonl" for name in FILES})
        for file, line, reason in self.folder.bad:
            run.keep_line(file, line, reason)
        for file, line, message in self.folder.twice:
            run.report(file, line, message)
        await run.load(self._ids())
        naming = await import_definitions(run, self.rows, self.changed_at.get("properties", changeset.now))
        self._import_crumbs(run, naming)
        for row in self.rows["trails"]:
            self._import_trail(run, naming, row)
        self._import_stashes(run, naming)
        self._import_links(run)
        await links.report_broken_links(run, self.rows["links"])
        self._import_schemas(run)
        for row in self.rows["metadata"]:
            self._import_metadata(run, naming, row)
        await run.settle_lines(FILES)
        return run.tally

    def _ids(self) -> Iterator[str]:
        for file in ("properties", "categories", "crumbs", "trails", "links", "metadata", "stashes"):
            for row in self.rows[file]:
                yield next(iter(row.fields.values()))
                for name in ("from_id", "to_id", "crumb_id"):
                    if name in row.fields:
                        yield row.fields[name]
        for file, name in (("metadata", "table_name"), ("schemas", "schema_name")):
            for row in self.rows[file]:
                if is_schema_name(row.fields[name]):
                    yield schema_id(row.fields[name])

    def _import_crumbs(self, run: ImportRun, naming: Naming) -> None:
        values, beside = self._values(run, naming)
        for row in self.rows["crumbs"]:
            given, when = row.fields, read_times(row, self.changed_at[row.file])
            id = given["crumb_id"]
            mine = self._properties(run, naming, row, "crumb", values.get(id, {}))
            own = {name: value for name, value in given.items() if name in CrumbRecord.__dataclass_fields__}
            own |= {"updated_at": when.updated_at, "properties": mine, "token": max(0, given["token"])}
            record = CrumbRecord(**own, extra=row.extra(values=beside.get(id, {})))
            run.import_record(row.file, row.line, id, record, when.created_at, stated=when.stated)

    def _values(
        self, run: ImportRun, naming: Naming
    ) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """Return the property values of crumbs by crumb id, and the unknown fields of their lines."""
        definitions = run.changeset.definitions
        values: dict[str, dict[str, Any]] = {row.fields["crumb_id"]: {} for row in self.rows["crumbs"]}
        beside: dict[str, dict[str, Any]] = {}
        for row in self.rows["crumb_properties"]:
            crumb, wanted = row.fields["crumb_id"], row.fields["property_id"]
            if crumb not in values:
                run.keep_line(row.file, row.line, f"this folder has no crumb {crumb!r}")
                continue
            try:
                definition = definitions.find("crumb", naming.here.get(wanted, wanted))
                value = decode_value(definition, row.fields["value"], naming)
            except (*Unfit, PropertyNotFound) as error:
                run.keep_line(row.file, row.line, error.message)
                continue
            if values[crumb].get(definition.id, value) != value:
                run.report(row.file, row.line, f"{definition.name} occurs twice; this one is used")
            values[crumb][definition.id] = value
            run.mark_imported(row.file, row.line)
            if row.unknown:
                beside.setdefault(crumb, {})[definition.id] = make_extra(row.unknown, NOTE, {})
        return values, beside

    def _properties(
        self, run: ImportRun, naming: Naming, row: SourceRow, scope: str, given: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a value for every property: the given one, that of the row's own map, or the default."""
        definitions: Definitions = run.changeset.definitions
        values: dict[str, Any] = {}
        for key, value in row.fields["properties"].items():
            try:
                definition = definitions.find(scope, naming.here.get(key, key))
                values[definition.id] = decode_value(definition, value, naming)
            except (*Unfit, PropertyNotFound) as error:
                row.unknown.setdefault("properties", {})[key] = value
                run.report(row.file, row.line, error.message)
        return definitions.encode_values(scope, values | given)

    def _import_trail(self, run: ImportRun, naming: Naming, row: SourceRow) -> None:
        given, when = row.fields, read_times(row, self.changed_at[row.file])
        properties = self._properties(run, naming, row, "trail", {})
        record = TrailRecord(
            given["name"],
            given["state"],
            when.updated_at,
            given["goal"],
            given["completed_at"],
            given["reason"],
            given["lesson"],
            properties,
            tuple(Ref(id) for id in given["crumbs"]),
            extra=row.extra(),
        )
        run.import_record(row.file, row.line, given["trail_id"], record, when.created_at, stated=when.stated)

    def _import_links(self, run: ImportRun) -> None:
        for row in self.rows["links"]:
            given = row.fields
            record = LinkRecord(given["link_type"], given["from_id"], given["to_id"], extra=row.extra())
            when = read_times(row, self.changed_at[row.file])
            run.import_record(row.file, row.line, given["link_id"], record, when.created_at)

    def _import_stashes(self, run: ImportRun, naming: Naming) -> None:
        names = Counter(history.row.fields["name"] for history in self.histories)
        scoped = {row.fields["from_id"] for row in self.rows["links"]}
        self.usable = []
        for history_import in self.history_imports:
            row = history_import.history.row
            if names[row.fields["name"]] > 1 and history_import.id not in scoped:
                run.report(row.file, row.line, f"another stash is called {row.fields['name']!r} as well")
            self._import_stash(run, naming, history_import)
        for row in self.orphans:
            run.keep_line(row.file, row.line, f"this folder has no stash {row.fields['stash_id']!r}")

    def _import_stash(self, run: ImportRun, naming: Naming, history_import: HistoryImport) -> None:
        history: StashHistory = history_import.history
        row, changeset = history.row, run.changeset
        for entry, reason in history.odd:
            run.keep_line(entry.file, entry.line, reason)
        properties = self._properties(run, naming, row, "stash", {})
        odd = {"properties": row.unknown["properties"]} if "properties" in row.unknown else {}
        history.versions[:] = [
            replace(each, properties=properties, extra={**each.extra, **odd}) for each in history.versions
        ]
        last = history.versions[-1]
        free = history_import.id not in changeset.foreign | run.forgotten
        free = free and not run.stays_deleted(history_import.id, last)
        if (
            history_import.behind
            and free
            and type(changeset.record(history_import.id)) in (type(None), type(last))
        ):
            run.mark_imported(row.file, row.line)
            changeset.put(history_import.id, last, created_at=history.when.created_at)
            run.tally.count("changed" if history_import.known else "added")
            self.usable.append(history_import)
        else:
            run.import_record(row.file, row.line, history_import.id, last, history.when.created_at)

    def _import_schemas(self, run: ImportRun) -> None:
        for row in self.rows["schemas"]:
            name, content_type = row.fields["schema_name"], row.fields["content_type"]
            id = schema_id(name)
            record = SchemaRecord(name, row.fields["description"], content_type, extra=row.extra())
            if id not in METADATA_SCHEMAS:
                when = read_times(row, self.changed_at[row.file])
                run.import_record(row.file, row.line, id, record, when.created_at)

    def _import_metadata(self, run: ImportRun, naming: Naming, row: SourceRow) -> None:
        given, when = row.fields, read_times(row, self.changed_at[row.file])
        content = given["content"]
        if not isinstance(content, str):
            content = msgspec.json.encode(content, order="sorted").decode()
            row.written["content"] = [content, given["content"]]
        property_id = given["property_id"]
        property_id = naming.here.get(property_id, property_id)
        if property_id is not None and property_id not in naming.properties:
            run.report(row.file, row.line, f"no property {property_id!r} is defined")
        if not isinstance(run.changeset.record(given["crumb_id"]), CrumbRecord):
            run.report(row.file, row.line, f"the crumb {given['crumb_id']!r} of this entry does not exist")
        if not content:
            run.report(row.file, row.line, "the entry has no content")
        self._register_schema(run, row, when.created_at)
        record = MetadataRecord(
            given["crumb_id"], given["table_name"], content, property_id, extra=row.extra()
        )
        run.import_record(row.file, row.line, given["metadata_id"], record, when.created_at)

    def _register_schema(self, run: ImportRun, row: SourceRow, moment: datetime) -> None:
        """Register the metadata schema of an entry; the original has no list of them."""
        name = row.fields["table_name"]
        if not is_schema_name(name):
            run.report(row.file, row.line, f"{name!r} is not a valid name of a metadata schema")
        elif schema_id(name) not in METADATA_SCHEMAS and run.changeset.record(schema_id(name)) is None:
            run.changeset.put(schema_id(name), SchemaRecord(name), created_at=moment)
