"""Export a cupboard: as a folder of the original crumbs program, or its crumbs as issues of beads."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from dgent.cupboard.builtin import METADATA_SCHEMAS
from dgent.cupboard.cupboard import Cupboard
from dgent.cupboard.definition import Definition, Definitions
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
    MetadataRecord,
    StashRecord,
)
from dgent.errors import Conflict, Corrupt
from dgent.exchange import folders
from dgent.exchange.foreign import beads_issue, files
from dgent.exchange.foreign.beads_import import FILE, LISTS
from dgent.exchange.foreign.beads_issue import DEPENDENCIES, TEXTS
from dgent.exchange.foreign.definitions import encode_value, find_exported_id
from dgent.exchange.foreign.fields import (
    DEFINITIONS,
    FILES,
    NOTE,
    encode_fields,
    encode_unknown,
)
from dgent.exchange.foreign.incoming import line_bytes
from dgent.exchange.foreign.origin import read_note, restore_fields
from dgent.exchange.foreign.report import ExportResult
from dgent.exchange.foreign.stash_history import read_history_extra
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread
from dgent.universe.universe import Universe

LAST = 2**62  # the place of dependencies and comments made here: behind all imported ones

Lines = list[dict[str, Any]]


async def _load_records(
    universe: Universe, schema: Schema[Any], seq: int, pace: ProgressReporter
) -> list[Crystal[Any]]:
    """Load all records of a schema as of a commit, by creation time and id; Corrupt if one is unreadable."""
    found: list[Crystal[Any]] = []
    query = Query(schema=schema.name, descending=False, limit=None)
    async for each in universe.iterate(query, as_of=seq):
        if not isinstance(each, Crystal):
            raise Corrupt(f"{each.id!r} cannot be read: {each.problem}", id=each.id)
        found.append(each)
        pace.add(1)
    return sorted(found, key=lambda each: (each.created_at, each.id))


# -- folders of crumbs ----------------------------------------------------------------------------


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
        return await _load_records(self.universe, schema, self.seq, self.pace)

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


# -- issues of beads ----------------------------------------------------------------------------


async def export_beads(
    cupboard: Cupboard,
    path: Path,
    *,
    imported: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> ExportResult:
    """Write all crumbs as issues, or only those that were `imported`, as of one moment.

    Imported issues are written with all values that were read, except for changes made here. Crumbs made here
    are written with their short ids. An existing file is refused unless `replace`.
    """
    universe = await cupboard._ready()
    folders.check_path(path, "path")
    if path.exists() and not replace:
        raise Conflict(f"{path} already exists", hint="name a new file, or say that it may be replaced")
    seq = await universe.seq()
    out = _IssueExport(cupboard, seq, ProgressReporter(progress))
    lines = await out.lines(imported)
    size = await in_thread(lambda _: files.write_lines(path, lines))
    out.pace.end()
    return ExportResult(str(path), {path.name: len(lines)}, seq, size)


class _IssueExport:
    """One export of a cupboard as issues."""

    def __init__(self, cupboard: Cupboard, seq: int, pace: ProgressReporter) -> None:
        self.cupboard, self.seq, self.pace = cupboard, seq, pace

    async def all(self, schema: Schema[Any]) -> list[Crystal[Any]]:
        """Return all records of a schema."""
        return await _load_records(self.cupboard._universe, schema, self.seq, self.pace)

    async def lines(self, imported: bool) -> list[bytes]:
        """Return the lines of the file."""
        links: dict[str, list[Crystal[Any]]] = {}
        for link in await self.all(LINK):
            if link.value.link_type in beads_issue.DEPENDENCY_TYPES:
                links.setdefault(link.value.from_id, []).append(link)
        entries: dict[str, list[Crystal[Any]]] = {}
        for entry in await self.all(METADATA):
            entries.setdefault(entry.value.crumb_id, []).append(entry)
        lines = [line_bytes(kept.value) for kept in await self.all(LINE) if kept.value.file == FILE]
        issues: Lines = []
        crumbs = await self.all(CRUMB)
        names = {crumb.id: crumb.value.short_id for crumb in crumbs if crumb.value.short_id}
        for crumb in crumbs:
            if beads_issue.NOTE in crumb.value.extra or not imported:
                issue = self._issue(crumb, links.get(crumb.id, []), entries.get(crumb.id, []))
                issue = beads_issue.rename(issue, names)
                issues.append(issue | ({beads_issue.FULL_ID: crumb.id} if crumb.id in names else {}))
        issues.sort(key=lambda issue: str(issue["id"]))
        return lines + [files.encode_line(beads_issue.order_keys(issue)) for issue in issues]

    def _issue(
        self, crumb: Crystal[Any], links: list[Crystal[Any]], entries: list[Crystal[Any]]
    ) -> dict[str, Any]:
        note = read_note(crumb.value.extra, beads_issue.NOTE)
        made = beads_issue.build_issue(crumb.id, crumb.value, crumb.created_at, self.cupboard._definitions)
        written = restore_fields(dict(made), note.get("written"))
        lists: dict[str, list[tuple[int, Any]]] = {name: _restore_odd(note, name) for name in LISTS}
        for link in links:
            mine = read_note(link.value.extra, beads_issue.NOTE)
            line = beads_issue.restore_values(beads_issue.build_dependency(link.value, link.created_at), mine)
            lists["dependencies"].append((mine.get("place", LAST), line))
        for entry in entries:
            self._add_entry(written, lists, entry)
        for name, values in lists.items():
            if values:
                written[name] = [value for _, value in sorted(values, key=lambda each: each[0])]
        return beads_issue.refresh(beads_issue.restore_values(written, {**note, "written": {}}), crumb.value)

    def _add_entry(
        self, issue: dict[str, Any], lists: dict[str, list[tuple[int, Any]]], entry: Crystal[Any]
    ) -> None:
        record: MetadataRecord = entry.value
        note = read_note(record.extra, beads_issue.NOTE)
        where = note.get("place", LAST)
        if record.table_name == "comments":
            # A comment imported without an author is written without one.
            made = beads_issue.build_comment(record, entry.created_at, None if note else entry.author)
            lists["comments"].append((where, beads_issue.restore_values(made, note)))
        elif record.table_name == DEPENDENCIES:
            lists["dependencies"].append((where, _decode_or_text(record.content)))
        elif record.table_name in TEXTS:  # the last one
            issue[record.table_name] = record.content


def _restore_odd(note: Any, field: str) -> list[tuple[int, Any]]:
    """Return the entries of a list that did not become records, with their places."""
    others = note.get("others", {}).get(field, {})
    return [(int(where), value) for where, value in others.items()]


def _decode_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text
