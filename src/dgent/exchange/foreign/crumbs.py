"""Import a folder of the original crumbs program into a cupboard, and export a cupboard as such a folder.

Everything is imported in one commit or not at all; only earlier versions of stashes are separate commits
before it. Importing the same folder again changes nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from dgent.cupboard import batch
from dgent.cupboard.builtin import METADATA_SCHEMAS, schema_id
from dgent.cupboard.change import Changeset
from dgent.cupboard.cupboard import Cupboard
from dgent.cupboard.definition import Definition, Definitions
from dgent.cupboard.errors import PropertyNotFound
from dgent.cupboard.record import (
    CATEGORY,
    CRUMB,
    LINE,
    LINK,
    METADATA,
    PROPERTY,
    SCHEMA,
    STASH,
    TRAIL,
    CrumbRecord,
    LinkRecord,
    MetadataRecord,
    SchemaRecord,
    StashRecord,
    TrailRecord,
)
from dgent.cupboard.tables.metadata import is_schema_name
from dgent.errors import Conflict, InputError, NotFound
from dgent.exchange import folders
from dgent.exchange.folders import check_path, translate_errors
from dgent.exchange.foreign import files, links, stash_history
from dgent.exchange.foreign.definitions import (
    Naming,
    Unfit,
    decode_value,
    encode_value,
    find_exported_id,
    import_definitions,
)
from dgent.exchange.foreign.fields import (
    DEFINITIONS,
    FILES,
    NOTE,
    SourceRow,
    encode_fields,
    encode_unknown,
    parse_row,
    read_times,
)
from dgent.exchange.foreign.incoming import ImportRun, group_newest_first, line_bytes, load_records, note_of
from dgent.exchange.foreign.origin import make_extra, read_note
from dgent.exchange.foreign.report import Existing, ExportResult, ImportResult, ImportTally
from dgent.exchange.foreign.stash_history import HistoryImport, StashHistory, read_history_extra
from dgent.model.crystal import Crystal
from dgent.model.ref import Ref
from dgent.model.schema import Schema
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import Stopped, in_thread
from dgent.universe.universe import Universe

Lines = list[dict[str, Any]]


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


# -- exporting ----------------------------------------------------------------------------


async def export_folder(
    cupboard: Cupboard, path: Path, *, replace: bool = False, progress: Progress | None = None
) -> ExportResult:
    """Write everything as of one commit; each file replaces an older one atomically.

    A folder with such files that are not empty is refused unless `replace`.
    """
    universe = await cupboard._ready()
    await in_thread(lambda _: _check(path, replace))
    seq = await universe.seq()
    out = _FolderExport(cupboard, universe, seq, ProgressReporter(progress))
    wanted = {name: [files.encode_line(line) for line in lines] async for name, lines in out.lines()}
    kept: dict[str, list[bytes]] = {}
    for found in await out.all(LINE):
        kept.setdefault(found.value.file, []).append(line_bytes(found.value))
    for name, lines in wanted.items():
        # Kept lines stand where the line of a record with the same id takes precedence over them.
        wanted[name] = lines + kept.get(name, []) if name in DEFINITIONS else kept.get(name, []) + lines
    if not wanted["schemas"] and not (path / "schemas.jsonl").exists():
        del wanted["schemas"]  # the original has no such file
    size = await in_thread(lambda _: _write(path, wanted))
    out.pace.end()
    return ExportResult(str(path), {name: len(lines) for name, lines in wanted.items()}, seq, size)


def _check(path: Path, replace: bool) -> None:
    folders.check_path(path, "path")
    with folders.translate_errors(path):
        full = [name for name in FILES if _has_content(path / f"{name}.jsonl")]
    if full and not replace:
        raise Conflict(
            f"{path} already has a cupboard, in {full[0]}.jsonl",
            hint="name another folder, or say that it may be replaced",
            path=str(path),
        )


def _has_content(path: Path) -> bool:
    return os.path.lexists(path) and (not path.is_file() or path.stat().st_size > 0)


def _write(path: Path, wanted: dict[str, list[bytes]]) -> int:
    folders.make_folders(path)
    return sum(files.write_lines(path / f"{name}.jsonl", lines) for name, lines in wanted.items())


class _FolderExport:
    """One export of a cupboard as lines."""

    def __init__(self, cupboard: Cupboard, universe: Universe, seq: int, pace: ProgressReporter) -> None:
        self.cupboard, self.universe, self.seq, self.pace = cupboard, universe, seq, pace
        self.names: dict[str, str] = {}  # definitions that are written under other ids
        self.definitions = Definitions({}, {})

    async def all(self, schema: Schema[Any]) -> list[Crystal[Any]]:
        """Return all records of a schema."""
        return await load_records(self.universe, schema, self.seq, self.pace)

    async def lines(self) -> AsyncIterator[tuple[str, Lines]]:
        """Yield the lines of each file."""
        properties, categories = await self.all(PROPERTY), await self.all(CATEGORY)
        self.definitions = Definitions(
            {each.id: each.value for each in properties}, {each.id: each.value for each in categories}
        )
        self.names = {each.id: find_exported_id(each.value, each.id) for each in (*properties, *categories)}
        yield "properties", [self._definition("properties", "property_id", each) for each in properties]
        yield "categories", [self._definition("categories", "category_id", each) for each in categories]
        crumbs = await self.all(CRUMB)
        yield "crumbs", [self._line("crumbs", "crumb_id", each, properties={}) for each in crumbs]
        yield "crumb_properties", [line for each in crumbs for line in self._values(each)]
        yield "trails", [self._trail(each) for each in await self.all(TRAIL)]
        yield "links", [self._line("links", "link_id", each) for each in await self.all(LINK)]
        yield "metadata", [self._metadata(each) for each in await self.all(METADATA)]
        yield "schemas", self._schemas(await self.all(SCHEMA))
        stashes = await self.all(STASH)
        yield "stashes", [self._stash(each) for each in stashes]
        yield "stash_history", [line for each in stashes async for line in self._history(each)]

    def _line(self, file: str, id: str, found: Crystal[Any], **fields: Any) -> dict[str, Any]:
        own = {**vars(found.value), id: found.id, "created_at": found.created_at, **fields}
        return encode_fields(file, own, found.value.extra)

    def _definition(self, file: str, id: str, found: Crystal[Any]) -> dict[str, Any]:
        fields = {id: self.names[found.id]}
        if file == "categories":
            owner = found.value.property_id
            fields["property_id"] = self.names.get(owner, owner)
        return self._line(file, id, found, **fields)

    def _schemas(self, found: list[Crystal[Any]]) -> Lines:
        return [
            self._line("schemas", "schema_name", each, schema_name=each.value.name)
            for each in found
            if each.id not in METADATA_SCHEMAS
        ]

    def _trail(self, found: Crystal[Any]) -> dict[str, Any]:
        trail = found.value
        return self._line(
            "trails",
            "trail_id",
            found,
            crumbs=[ref.id for ref in trail.crumbs],
            properties=self._map("trail", trail.properties),
        )

    def _map(self, scope: str, stored: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a trail or stash for its own line; the original has no file for them."""
        return {
            self.names[definition.id]: encode_value(definition, value, self.names)
            for definition, value in self._iterate_values(scope, stored)
        }

    def _iterate_values(self, scope: str, stored: dict[str, Any]) -> Iterator[tuple[Definition, Any]]:
        for definition in self.definitions.of(scope):
            yield definition, stored.get(definition.id, definition.default())

    def _values(self, found: Crystal[Any]) -> Iterable[dict[str, Any]]:
        beside = read_note(found.value.extra, NOTE).get("values", {})
        for definition, value in self._iterate_values("crumb", found.value.properties):
            yield {
                "crumb_id": found.id,
                "property_id": self.names[definition.id],
                "value_type": definition.value_type,
                "value": encode_value(definition, value, self.names),
            } | encode_unknown("crumb_properties", beside.get(definition.id, {}))

    def _metadata(self, found: Crystal[Any]) -> dict[str, Any]:
        owner = found.value.property_id
        return self._line("metadata", "metadata_id", found, property_id=self.names.get(owner, owner))

    def _stash(self, found: Crystal[Any]) -> dict[str, Any]:
        stash: StashRecord = found.value
        fields: dict[str, Any] = {"properties": self._map("stash", stash.properties), "changed_by": None}
        if not stash.history_id:  # else the last line of its history has it
            fields |= {"changed_by": stash.changed_by, "last_operation": stash.operation}
        return self._line("stashes", "stash_id", found, **fields)

    async def _history(self, found: Crystal[Any]) -> AsyncIterator[dict[str, Any]]:
        for version in await self.cupboard.stashes.records(found.id):
            if version.history_id and version.version <= found.value.version:
                fields = {**vars(version), "stash_id": found.id, "created_at": version.updated_at}
                yield encode_fields("stash_history", fields, read_history_extra(version))
